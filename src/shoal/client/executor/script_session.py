"""Sessions of scripts: the same script, started again after a crash, finds the run with its calls."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from shoal.client.connection.embedded_server import is_alive
from shoal.client.connection.reconnect import ServerConnection
from shoal.client.console import say
from shoal.client.environment import environment_field
from shoal.client.executor.open_run import Call, OpenRun, read_run
from shoal.client.working_directory import working_directory
from shoal.model.lazy_dataclass import dataclass
from shoal.model.quantities import many

SESSION, CLIENT = "session", "client"  # labels of an executor's run
MAX_LOOKED = 200  # newest runs of a name that are looked through
INTERACTIVE = "<interactive>"
_ordinals: dict[str, Iterator[int]] = {}  # by attempt


@dataclass(frozen=True)
class Session:
    """One executor of one start of a script."""

    name: str
    ordinal: int  # among the executors of the process
    seed: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    attach: bool = True  # go on with the run of an earlier start
    max_running: int | None = None  # calls that run at once
    reduce: Mapping[str, str] = field(default_factory=dict)  # how values that calls emit are merged

    def open(self, connection: ServerConnection, probe: Call) -> OpenRun:
        """The run of an earlier process that ended early, else a new one."""
        key = session_key(self.name, self.ordinal, self.seed, *([self.max_running] if self.max_running else []))
        found = find_earlier(connection, self.name, key, probe) if self.attach and not is_first_attempt() else None
        if found is not None:
            return found
        document = {
            "name": self.name, "cwd": working_directory(), "open": True, "tasks": [], "key": f"auto-{uuid.uuid4()}",
            "labels": {**self.labels, SESSION: key, CLIENT: this_client()},
            **({"seed": self.seed} if self.seed is not None else {}),
            **({"max_running": self.max_running} if self.max_running is not None else {}),
            **({"reduce": dict(self.reduce)} if self.reduce else {}),
        }  # fmt: skip
        answer = connection.ask(lambda client: client.submit({**document, **environment_field(client.url)}))
        return OpenRun(str(answer["run"]))


def next_ordinal() -> int:
    """The number of the next executor of this process; in a runner, which makes calls of many tasks, of this attempt."""
    attempt = os.environ.get("SHOAL_ATTEMPT", "")
    if attempt not in _ordinals:
        if len(_ordinals) > 1:
            _ordinals.clear()  # only the present attempt goes on counting
        _ordinals[attempt] = itertools.count(1)
    return next(_ordinals[attempt])


def is_first_attempt() -> bool:
    """True in the first attempt at a task, which has nothing to go on with."""
    return os.environ.get("SHOAL_ATTEMPT", "").endswith("#1")


def script() -> str:
    """The absolute path of the program; INTERACTIVE for prompts and notebooks."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str) or is_interactive():
        return INTERACTIVE
    return os.path.abspath(file)


def is_interactive() -> bool:
    """True in an interactive interpreter or a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules


def session_key(name: str, ordinal: int, *more: object) -> str:
    """A key that all starts of one script share. The arguments of a notebook's kernel differ each time."""
    program = os.environ.get("SHOAL_TASK") or script()  # a retry of a task finds what its earlier attempt submitted
    arguments = [] if program == INTERACTIVE or "SHOAL_TASK" in os.environ else sys.argv[1:]
    identity = json.dumps([program, arguments, working_directory(), name, ordinal, *more], default=str)
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def this_client() -> str:
    """The identity of this process: machine, process id, start time."""
    return f"{_machine()}:{os.getpid()}:{_start_of(os.getpid())}"


def is_abandoned(client: str) -> bool:
    """True if the process that made a run has ended. On another machine that is unknown, so it counts as alive."""
    machine, _, rest = client.partition(":")
    number, _, start = rest.partition(":")
    if machine != _machine() or not number.isdecimal():
        return False
    return not is_alive(int(number)) or _start_of(int(number)) != start


def _machine() -> str:
    with contextlib.suppress(OSError):
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or os.uname().nodename
    return os.uname().nodename


def _start_of(pid: int) -> str:
    """The start time of a process in clock ticks; empty if the kernel does not tell."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    return ""


def find_earlier(connection: ServerConnection, name: str, key: str, probe: Call) -> OpenRun | None:
    """The run of an earlier process of this script, if it ended without closing the run and submitted this first call."""
    page = connection.ask(lambda client: client.runs(name=glob_of(name), limit=MAX_LOOKED))
    row = next((row for row in page["runs"] if row["labels"].get(SESSION) == key), None)
    if row is None or not row.get("open") or not is_abandoned(row["labels"].get(CLIENT, "")):
        return None
    run = str(row["run"])
    opened = read_run(connection, run)
    total = sum(map(len, opened.calls.values()))
    if not opened.knows(*probe):
        if len(opened.rows) < total:
            differs = opened.differences(*probe)
            what = f"was started with other code (differs: {', '.join(differs)})" if differs else "has other calls"
            say(f"{run} of this script {what} and goes on; `shoal cancel {run}` ends it")
        return None
    say(f"re-attached to {run}: {many(total, 'call')} known, {len(opened.rows):,} of them finished")
    return opened


def glob_of(name: str) -> str:
    """A glob pattern that matches only this name."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
