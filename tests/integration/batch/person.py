"""A person who types `shoal` commands, with directories of their own for settings and state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.batch.daemons import until

SHOAL = str(Path(sys.executable).parent / "shoal")


class Person:
    """One account's commands; `end` stops whatever they left behind."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.env = {
            **os.environ, **(env or {}), "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    @property
    def provision(self) -> Path:
        """Where the provisioner of the embedded server keeps its files."""
        return self.folder / "state" / "shoal" / "provision"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [SHOAL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.work, env=self.env,
        )  # fmt: skip

    def shoal(self, *words: str, status: int | None = 0, within: float = 180.0, said: str = "") -> str:
        """What a command prints that reads `said`; it must end with this status (None: any)."""
        done = subprocess.run(
            [SHOAL, *words], input=said, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.work, env=self.env, timeout=within, check=False,
        )  # fmt: skip
        assert status is None or done.returncode == status, f"shoal {' '.join(words)}: {done.stdout}\n{self.story()}"
        return done.stdout

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

    def provisioner(self) -> int:
        """The process of the provisioner."""
        return int((self.provision / "lock").read_text())

    def kill_provisioner(self) -> None:
        """As a power cut would."""
        os.kill(self.provisioner(), signal.SIGKILL)

    def end(self) -> None:
        """Stop the server, the provisioner and the pilots of this person."""
        subprocess.run([SHOAL, "server", "stop"], cwd=self.work, env=self.env, capture_output=True, check=False)
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
