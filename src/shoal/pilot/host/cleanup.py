"""What pilots left on this host that were killed: they are reported to their server, and with a dead guard their
processes are ended and their directories removed. The next pilot of this user does it as it starts, and living ones
every few seconds.

Which pilots are dead is in the `registry`. Every task process has a mark in its environment that names pilot and guard and
the namespace they live in. A mark is judged only by pilots of the same PID namespace, in which a process number means the
same; a number alone proves nothing, so the start time of the process goes with it.

The mark reaches what a task starts, unless that is given another environment and detaches itself as well. So this
sweep is the last means: where there is a PID namespace nothing is left to be swept but directories, and where a cgroup
can be made (`cgroup`) nothing escapes by its environment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Callable, Container
from typing import NamedTuple

from shoal.model.limits import MAX_SIBLINGS
from shoal.pilot.commands.files import remove_tree
from shoal.pilot.guard import cgroup, proctree
from shoal.pilot.host import registry
from shoal.pilot.host.registry import Record, boot, namespace, process_state

log = logging.getLogger(__name__)

ROUNDS = 100  # of killing, until nothing is left
PAUSE = 0.02  # seconds between two rounds
LOOK_EVERY = 2.0  # seconds between two looks for dead pilots
SWEEP_EVERY = 20.0  # seconds
SWEEP_SHARE = 0.002  # of a processor's time that sweeps may take
_MARK = registry.MARK.encode() + b"="
_STOPPED = ("T", "t")
_NAME = re.compile(r"[0-9a-f]{12}")


class Swept(NamedTuple):
    """What a sweep found."""

    processes: int = 0
    folders: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"swept what pilots left here that were killed with their guards: {self.processes} processes ended, "
            f"{len(self.folders)} directories removed"
        )


class Sweeper(threading.Thread):
    """Looks for dead pilots while this one lives: reports those of our server, and sweeps what they left."""

    def __init__(
        self, folder: str, server: str, say: Callable[[str], None], report: Callable[[list[str]], None]
    ) -> None:
        super().__init__(name="sweeper", daemon=True)
        self._folder, self._server, self._say, self._report = folder, server, say, report
        self.reported: set[str] = set()  # sessions; added to by whoever reports them

    def run(self) -> None:
        """Never returns: the process ends without asking."""
        sweep_at = time.monotonic() + SWEEP_EVERY
        while True:
            time.sleep(LOOK_EVERY)
            try:
                dead = self.dead()
                if dead:
                    self._report(dead)
                began = time.monotonic()
                if began < sweep_at:
                    continue
                swept = sweep(self._folder)
                sweep_at = time.monotonic() + max(SWEEP_EVERY, (time.monotonic() - began) / SWEEP_SHARE)
                if any(swept):
                    self._say(str(swept))
            except Exception:  # whatever somebody left there, sweeping goes on
                log.exception("sweep failed")

    def dead(self) -> list[str]:
        """Pilots of our server that are dead and not reported yet, by the digest of their session."""
        here, found = boot(), []
        for pilot in registry.dead_pilots(self._folder):
            session = pilot.record.session
            is_ours = here and (pilot.record.boot, pilot.record.server) == (here, self._server)
            if is_ours and session and session not in self.reported:
                found.append(session)
        return found[:MAX_SIBLINGS]

    def forget_reported(self) -> None:
        """We end: what we have reported need not stay for others."""
        clean(self._folder, self.reported)


def sweep(folder: str) -> Swept:
    """End what dead pilots of this user left running on this host, then remove their directories."""
    killed = _end_marked()
    swept = clean(folder)
    return Swept(killed + swept.processes, swept.folders)


def clean(folder: str, reported: Container[str] = ()) -> Swept:
    """Clean up after pilots that are dead together with their guards; forget those that were reported."""
    killed, removed = 0, []
    for pilot in registry.dead_pilots(folder):
        if not pilot.take():
            _end_stopped_guard(pilot.record)
            continue
        if pilot.record.work:
            killed += sum(cgroup.end(group) for group in pilot.record.groups)
            if _is_theirs(os.path.basename(pilot.path), pilot.record.work):
                remove_tree(pilot.record.work)
                removed.append(pilot.record.work)
            with contextlib.suppress(OSError):  # no space: it is cleaned up again
                pilot.set_cleaned()
        if pilot.is_reported_long_ago or pilot.record.session in reported:
            pilot.remove()
    return Swept(killed, tuple(removed))


def _is_theirs(name: str, work: str) -> bool:
    """True if a pilot made this directory for itself. A file that is wrong must not cost a person theirs."""
    try:
        found = os.lstat(work)
    except OSError:
        return False
    is_named = _NAME.fullmatch(name) is not None and os.path.basename(work) in (name, f"shoal-{name}")
    return is_named and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _end_stopped_guard(record: Record) -> None:
    """A guard without a pilot that somebody stopped watches nobody, and cannot end: the next sweep finds it dead."""
    if record.namespace == namespace("self") and record.boot == boot() and process_state(record.guard) in _STOPPED:
        _kill(int(record.guard.partition(".")[0]), "")


def is_abandoned(mark: str) -> bool:
    """True if nobody watches the tasks that have this mark.

    Without a guard they must end: a pilot that runs does it itself, one that is stopped or dead cannot. With a guard
    they are watched, unless the pilot is dead and the guard stopped.
    """
    pilot, guard = (process_state(process) for process in mark.split(":")[2:4])
    if not guard:
        return not pilot or pilot in _STOPPED
    return not pilot and guard in _STOPPED


def _end_marked() -> int:
    """Kill every process with the mark of an abandoned pilot, and all below it, until there is none; how many."""
    killed: set[int] = set()
    for _ in range(ROUNDS):
        found = _marked()
        if not found:
            break
        for pid in found:
            _kill(pid, found[pid])
        killed |= found.keys()
        time.sleep(PAUSE)
    return len(killed)


def _marked() -> dict[int, str]:
    """Processes that nobody watches, with their mark; empty for those that are known only by whom they came from."""
    space, us, judged = namespace("self"), {os.getpid(), os.getppid(), 1}, dict[str, bool]()
    # The first namespace has one number on all hosts, and marks travel with srun and the like.
    here = f"{boot()}.{space}"
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in us:
            continue
        mark = mark_of(int(name))
        parts = mark.split(":")
        if (
            not registry.MARK_FORM.fullmatch(mark)
            or parts[1] != here
            or namespace(name) != space
            or proctree.is_zombie(int(name))
        ):
            continue
        if mark not in judged:
            judged[mark] = is_abandoned(mark)
        if judged[mark]:
            found[int(name)] = mark
            guard = int(parts[3].partition(".")[0])
            if process_state(parts[3]):  # it is stopped
                found[guard] = ""
    for pid in list(found):
        for below in proctree.descend(pid)[1:]:
            if below not in us and mark_of(below) in ("", found[pid]):
                found.setdefault(below, "")
    return found


def mark_of(pid: int) -> str:
    """The mark that the environment of a process has; empty: none, or it is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return ""
            data = file.read()
    except OSError:
        return ""
    at = data.find(_MARK)
    if at > 0 and data[at - 1] != 0:
        at = data.find(b"\0" + _MARK) + 1
    return os.fsdecode(data[at + len(_MARK) :].partition(b"\0")[0]) if at >= 0 and data[at:].startswith(_MARK) else ""


def _kill(pid: int, mark: str) -> None:
    """Kill a process if it is still the one that was looked at."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if not mark or mark_of(pid) == mark:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(fd)
