"""Starts what a bench measures: a real server on a database in a directory of its own, real and emulated pilots. And prints
the results."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.emulate import EmulatedPilot
from bench.peers.processes import resident_mb
from shoal.client.client import Client
from shoal.model.file_names import PILOT_ZIP, SERVER_FILE

REPETITIONS = "SHOAL_BENCH_REPETITIONS"  # set by `python -m bench --runs`


@dataclass
class Serving:
    """A running server."""

    state: Path
    process: subprocess.Popen[bytes]
    url: str
    token: str
    enrol: str
    command: list[str]  # that started it

    @property
    def client(self) -> Client:
        """A client of it."""
        return Client(self.url, self.token)

    def submit(self, tasks: list[dict[str, Any]]) -> str:
        """Submit a run, with a key, so that the client repeats the request when a busy server refuses it."""
        return str(self.client.submit({"tasks": tasks, "cwd": "/", "key": secrets.token_hex(8)})["run"])

    def pilots(self, count: int) -> list[EmulatedPilot]:
        """Emulated pilots of it."""
        return [EmulatedPilot(self.url, self.enrol, number=number) for number in range(count)]

    def rss_mb(self) -> float:
        """Resident memory now."""
        return resident_mb(self.process.pid)


@contextlib.contextmanager
def bench_directory() -> Iterator[Path]:
    """An empty directory, on a real file system unless SHOAL_BENCH_DIR names another one; removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="shoal-bench-", dir=os.environ.get("SHOAL_BENCH_DIR", "/var/tmp")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Serving]:
    """A server, which ends with the context."""
    with bench_directory() as path:
        command = [sys.executable, "-m", "shoal.server", "--embedded", "--linger", "3600", "--no-pilot", *options]
        server = _start([*command, "--state", str(path / "shoal")], path)
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait(60)


def _start(command: list[str], path: Path) -> Serving:
    state = path / "shoal"
    (state / SERVER_FILE).unlink(missing_ok=True)
    process = subprocess.Popen(command, stderr=(path / "log").open("ab"))
    end = time.monotonic() + 30
    while not (state / SERVER_FILE).exists():
        if time.monotonic() > end or process.poll() is not None:
            process.kill()
            raise RuntimeError((path / "log").read_text())
        time.sleep(0.005)
    contact = json.loads((state / SERVER_FILE).read_text())
    return Serving(state, process, contact["url"], contact["token"], contact["enrol"], command)


@contextlib.contextmanager
def real_pilot(server: Serving, cores: int, *options: str) -> Iterator[None]:
    """A pilot process with so many slots; `options` tell it the address of the server."""
    zipped = server.state / PILOT_ZIP
    while not zipped.exists():
        time.sleep(0.01)
    command = [sys.executable, str(zipped), *options, "--cores", str(cores)]
    pilot = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        pilot.terminate()
        pilot.wait(60)


def kill_and_restart(server: Serving, pilot: EmulatedPilot) -> float:
    """Kill a server and start the next; seconds from its start until it has answered an exchange of a pilot."""
    server.process.kill()
    server.process.wait()
    began = time.monotonic()
    new = _start(server.command, server.state.parent)
    server.process, server.url = new.process, new.url
    pilot.reconnect(new.url)
    return time.monotonic() - began


def percentile(values: list[float], part: float) -> float:
    """The value below which this part of them lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def report(name: str, value: float, unit: str, note: str = "") -> None:
    """Print one result as a line of JSON."""
    row: dict[str, Any] = {"name": name, "value": round(value, 4), "unit": unit, "note": note}
    print(json.dumps(row), flush=True)


def repetitions() -> int:
    """How often a slow experiment measures: three times, or once where its whole run is repeated as often anyway."""
    return int(os.environ.get(REPETITIONS, "3"))


def report_median(name: str, values: list[float], unit: str, note: str) -> None:
    """Print the median of repetitions, with the least and the most of them in the note."""
    many = f"; median of {len(values)}, {min(values):.4g} to {max(values):.4g}" if len(values) > 1 else ""
    report(name, statistics.median(values), unit, note + many)


def events_of(client: Client, run: str) -> Iterator[dict[str, Any]]:
    """The events of a run as they happen, until it is finished."""
    for events in client.pages(run, wait=10.0):
        for event in events:
            yield event
            if event["kind"] == "run_finished":
                return
