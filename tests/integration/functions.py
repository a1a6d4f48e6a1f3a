"""Functions that tests call through the executor: importable, and nothing else is imported with them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
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


class Bomb:
    """Raises an exception of this name when it is unpickled."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return explode, (self.kind,)


def explode(kind: str) -> Any:
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "ValueError": ValueError}[kind]("boom")


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that lets no attribute be set, and so no cause and no note."""

    number: int

    def __reduce__(self) -> Any:
        return Frozen, (self.number,)


def raise_frozen() -> None:
    raise Frozen(7)


def stamp(path: str, seconds: float) -> None:
    """Append when this call began and when it ended."""
    began = time.monotonic()
    time.sleep(seconds)
    append(path, f"{began} {time.monotonic()}")


def change(box: dict[str, list[int]]) -> int:
    """How many there are after one more."""
    box["list"].append(1)
    return len(box["list"])


def write_into(array: Any) -> str:
    """What numpy says when a call writes into an array that it shares with others."""
    try:
        array[0] = 99
    except ValueError as error:
        return str(error)
    return "written"


def last_words(path: str) -> None:
    append(path, f"ended {os.getpid()}")


def say_lines(x: int, count: int) -> int:
    """Some lines on both streams."""
    for n in range(count):
        print(f"{x}.{n} " + "x" * 40)
    if count > 1:
        print(f"{x} err", file=sys.stderr)
    return x
