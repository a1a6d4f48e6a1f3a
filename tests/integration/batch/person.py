"""A person who types `shoal` commands, with directories of their own for settings and state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.batch.daemons import until
from tests.integration.namespaces import Namespace

SHOAL = str(Path(sys.executable).parent / "shoal")


class Person:
    """One account's commands; `end` stops whatever they left behind."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, network: Namespace | None = None) -> None:
        self.folder, self._network = folder, network
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.env = {
            **os.environ, **(env or {}), "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    @property
    def provision(self) -> Path:
        """Where the provisioner keeps its files: that of the embedded server, or of the only other one."""
        state = self.folder / "state" / "shoal"
        return next(iter(state.glob("provision-*")), state / "provision")

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        return self._network.argv(SHOAL, *words) if self._network is not None else [SHOAL, *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            self._argv(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.work, env=self.env,
        )  # fmt: skip

    def shoal(self, *words: str, status: int | None = 0, within: float = 180.0, stdin: str = "") -> str:
        """What a command prints; it must end with this status (None: any)."""
        done = subprocess.run(
            self._argv(words), input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.work, env=self.env, timeout=within, check=False,
        )  # fmt: skip
        assert status is None or done.returncode == status, f"shoal {' '.join(words)}: {done.stdout}\n{self.story()}"
        return done.stdout

    def until_said(self, text: str, *words: str, within: float = 60.0) -> tuple[str, float]:
        """Begin a command and wait until its terminal shows a text: the line, and the seconds that it took. The command is
        left as Ctrl-C leaves it: what it submitted goes on."""
        began, lines = time.monotonic(), list[str]()
        with self.start(*words) as command:
            assert command.stdout is not None
            stopper = threading.Timer(within, command.kill)
            stopper.start()
            try:
                for line in command.stdout:
                    lines.append(line)
                    if text in line:
                        return line, time.monotonic() - began
            finally:
                stopper.cancel()
                command.kill()
        raise AssertionError(f"{text!r} was not said: {''.join(lines)}\n{self.story()}")

    def json(self, *words: str) -> Any:
        """The document that a command prints."""
        text = self.shoal(*words, "--json")
        return json.loads(text[text.index("{") :])

    def wait_for(self, condition: Callable[[], object], within: float = 90.0) -> None:
        """Wait for an event; the provisioner's log tells what happened instead."""
        until(condition, self.story, within)

    def story(self) -> str:
        """The end of the provisioner's log."""
        path = self.provision / "provisioner.log"
        return path.read_text()[-4000:] if path.exists() else "no provisioner ran"

    def ledger(self, site: str) -> list[dict[str, Any]]:
        """The allocations of a site that are not over, as the provisioner wrote them down."""
        document = json.loads((self.provision / "allocations" / f"{site}.json").read_bytes())
        return list(document["allocations"])

    def provisioner(self) -> int:
        """The process of the provisioner."""
        return int((self.provision / "lock").read_text())

    def kill_provisioner(self) -> None:
        """As a power cut would."""
        os.kill(self.provisioner(), signal.SIGKILL)

    def end(self) -> None:
        """Stop the server, the provisioner and the pilots of this person."""
        subprocess.run(self._argv(("server", "stop")), cwd=self.work, env=self.env, capture_output=True, check=False)
        deadline = time.monotonic() + 20.0
        while (left := self._processes()) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGTERM if time.monotonic() < deadline - 10.0 else signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.2)

    def _processes(self) -> list[int]:
        """Processes that have this person's directories in their environment."""
        mark, found = f"XDG_STATE_HOME={self.folder / 'state'}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found
