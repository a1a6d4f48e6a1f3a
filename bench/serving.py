"""A real server process for a bench, on a database in a directory that is printed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.emulate import EmulatedPilot
from shoal.client.client import Client
from shoal.model.layout import SERVER_FILE


@dataclass
class Serving:
    """A running server."""

    state: Path
    process: subprocess.Popen[bytes]
    url: str
    token: str
    enrol: str
    words: list[str]  # that it was started by

    @property
    def client(self) -> Client:
        """A client of it."""
        return Client(self.url, self.token)

    def rss_mb(self) -> float:
        """Resident memory now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Serving]:
    """Start a server, give it, end it."""
    place = Path(tempfile.mkdtemp(prefix="shoal-bench-", dir=os.environ.get("SHOAL_BENCH_DIR", "/var/tmp")))
    words = [sys.executable, "-m", "shoal.server", "--embedded", "--linger", "3600", "--no-pilot", *options]
    server: Serving | None = None
    try:
        server = _start([*words, "--state", str(place / "shoal")], place)
        yield server
    finally:
        if server is not None:
            server.process.terminate()
            server.process.wait(60)
        shutil.rmtree(place, ignore_errors=True)


def _start(words: list[str], place: Path) -> Serving:
    home = place / "shoal"
    (home / SERVER_FILE).unlink(missing_ok=True)
    process = subprocess.Popen(words, stderr=(place / "log").open("ab"))
    end = time.monotonic() + 30
    while not (home / SERVER_FILE).exists():
        if time.monotonic() > end or process.poll() is not None:
            process.kill()
            raise RuntimeError((place / "log").read_text())
        time.sleep(0.005)
    told = json.loads((home / SERVER_FILE).read_text())
    return Serving(home, process, told["url"], told["token"], told["enrol"], words)


def kill_and_restart(server: Serving, pilot: EmulatedPilot) -> float:
    """Kill a server and start the next; seconds from its start until it has answered a pilot's exchange."""
    server.process.kill()
    server.process.wait()
    began = time.monotonic()
    new = _start(server.words, server.state.parent)
    server.process, server.url = new.process, new.url
    pilot.come_back(new.url)
    return time.monotonic() - began


def line(name: str, value: float, unit: str, note: str = "") -> None:
    """One result, as a line of JSON."""
    row: dict[str, Any] = {"name": name, "value": round(value, 4), "unit": unit, "note": note}
    print(json.dumps(row), flush=True)


def events_of(client: Client, run: str) -> Iterator[dict[str, Any]]:
    """The events of a run as they happen, until it is finished."""
    for events in client.pages(run, wait=10.0):
        for event in events:
            yield event
            if event["kind"] == "run_finished":
                return
