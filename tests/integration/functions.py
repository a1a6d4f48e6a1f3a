"""Functions that tests call through the executor: importable, and nothing else is imported with them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

state: dict[str, Any] = {}


def double(x: int) -> int:
    return 2 * x


def fail(x: object) -> None:
    raise KeyError(x)


def wait_for(path: str, value: Any = None, tell: str = "") -> Any:
    """Wait until a file exists; `tell` is a file that is made first."""
    if tell:
        Path(tell).touch()
    end = time.monotonic() + 60.0
    while not Path(path).exists():
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.005)
    return value


def append(path: str, word: str) -> None:
    """Append a line to a file, from any process."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


def die(how: str) -> None:
    """End the process that runs this."""
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def exits() -> None:
    sys.exit("leaving")


class Odd(Exception):
    """Cannot be loaded again: its arguments are not those of its constructor."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def odd() -> None:
    raise Odd("one", "two")


def lock() -> Any:
    return threading.Lock()


def begin(word: str) -> None:
    state["word"] = word


def word() -> Any:
    return state.get("word")


def no_licence() -> None:
    raise RuntimeError("no licence")


def pid(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


def talk(x: int) -> int:
    print(f"says {x}")
    return x


def talk_much() -> None:
    print("one")
    print("two", file=sys.stderr)
    print("three")
