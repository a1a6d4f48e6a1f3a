"""The guard: one small process per pilot that starts, watches and ends every task process [B0.5].

It is the parent of all tasks and a subreaper, so whatever a task starts comes back to it. It thinks for itself
in three cases only: a limit is passed, contact is lost under an exclusive task, the pilot is gone. A stopped
pilot changes nothing here; a dead one ends every task at once.

Orders in:   start, stop, signal, contact, work (a directory to remove if the pilot dies), quit.
News out:    started, ended, failed. All are JSON objects with `do` or `was`, see `channel`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any, Optional, Union

from shoal.pilot import spawn, tree
from shoal.pilot.channel import Channel
from shoal.pilot.streams import Bound

MEMORY_LOOK = 0.25
STREAM_LOOK, STREAM_LOOK_FAST = 0.5, 0.05
SWEEP_LOOK = 0.02
SWEEP_GIVE_UP = 5.0  # a process that not even SIGKILL ends (a dead disk) holds its slot no longer than this
_NEVER = float("inf")

# Whose a stray process is: one attempt, or any of those that lived when it was first seen.
_Owner = Union[str, frozenset[str]]


@dataclass
class _Task:
    attempt: str
    pid: int
    mark: str
    began: float
    out: Bound
    err: Bound
    memory: int
    exclusive: bool
    grace: float
    over_at: float
    is_file_bound: bool  # its streams must not grow to the bound on its files
    kill_at: float = _NEVER
    why: str = ""
    peak: int = 0
    look_again: float = 0.0
    ended_at: float = 0.0
    give_up_at: float = 0.0
    status: int = 0
    cpu: float = 0.0


class Guard:
    """State and rules of one guard; `run` is its life."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._tasks: dict[str, _Task] = {}  # main process lives
        self._closing: dict[str, _Task] = {}  # main process ended, the rest is swept
        self._by_pid: dict[int, _Task] = {}
        self._strays: dict[int, _Owner] = {}
        self._heirs: dict[int, _Owner] = {}  # below a stray that was killed: its owner's as well
        self._contact: Optional[tuple[float, float]] = None
        self._work = ""
        self._quit = False
        self._memory_at = self._stream_at = 0.0
        self._orders = {
            "start": self._start,
            "stop": self._stop,
            "signal": self._signal,
            "contact": self._on_contact,
            "work": self._on_work,
            "quit": self._on_quit,
        }

    # --- life
    def run(self, wake: int) -> None:
        """Serve until the pilot says quit or is gone; then end everything."""
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            selector.register(self.channel, selectors.EVENT_READ)
            while not self._quit and not self.channel.closed:
                both = selectors.EVENT_READ | selectors.EVENT_WRITE
                selector.modify(self.channel, both if self.channel.wants_write else selectors.EVENT_READ)
                due = self.deadline()
                ready = selector.select(None if due is None else max(0.0, due - tree.now()))
                if any(key.fileobj == wake for key, _ in ready):
                    os.read(wake, 4096)
                for order in self.channel.receive():
                    self._orders[order["do"]](order)
                self.step(tree.now())
                self.channel.flush()
        self.end_all()

    def end_all(self) -> None:
        """Kill every task and all that came of it."""
        for task in self._tasks.values():
            tree.signal_group(task.pid, signal.SIGKILL)
        tree.kill_children(SWEEP_GIVE_UP)
        if self._work and not self._quit:
            shutil.rmtree(self._work, ignore_errors=True)

    def deadline(self) -> Optional[float]:
        """When `step` is due at the latest."""
        times = [self._stream_at] if self._tasks else []
        if any(task.memory for task in self._tasks.values()):
            times.append(self._memory_at)
        for task in self._tasks.values():
            times.append(min(task.over_at, task.kill_at))
            if task.exclusive and self._contact:
                times.append(sum(self._contact))
        if self._closing:
            times.append(tree.now() + SWEEP_LOOK)
        due = min(times) if times else _NEVER
        return None if due == _NEVER else due

    def step(self, now: float) -> None:
        """Whatever is due: ends, limits, looks."""
        self._reap(now)
        self._check_deadlines(now)
        if now >= self._memory_at:
            self._memory_at = now + MEMORY_LOOK
            for task in self._tasks.values():
                if task.memory:
                    self._check_memory(task, now)
        if now >= self._stream_at:
            looks = [bound.look() for task in self._tasks.values() for bound in (task.out, task.err)]
            fast = any(looks) or any(task.is_file_bound for task in self._tasks.values())
            self._stream_at = tree.now() + (STREAM_LOOK_FAST if fast else STREAM_LOOK)
        if self._closing:
            self._sweep(now)

    # --- orders
    def _start(self, order: dict[str, Any]) -> None:
        attempt = order["attempt"]
        try:
            pid = spawn.spawn(order)
        except spawn.SpawnFailed as failure:
            for path in (order["stdout"], order["stderr"]):
                Bound(path).finish()
            self.channel.send({"was": "failed", "attempt": attempt, **failure.news})
            return
        spawn.set_limits(pid, order)
        now = tree.now()
        limit: Optional[float] = order["time"]
        task = _Task(
            attempt, pid, order["env"].get("SHOAL_ATTEMPT", ""), now, Bound(order["stdout"]), Bound(order["stderr"]),
            order["memory"], order["exclusive"], order["grace"], now + limit if limit is not None else _NEVER,
            order["file_size"] is not None,
        )  # fmt: skip
        if not self._tasks or task.is_file_bound:
            self._stream_at = now + (STREAM_LOOK_FAST if task.is_file_bound else STREAM_LOOK)
        self._tasks[attempt] = self._by_pid[pid] = task
        self.channel.send({"was": "started", "attempt": attempt, "pid": pid})

    def _stop(self, order: dict[str, Any]) -> None:
        task = self._tasks.get(order["attempt"])
        if task is not None:
            self._terminate(task, "stopped", order["grace"], tree.now())

    def _signal(self, order: dict[str, Any]) -> None:
        task = self._tasks.get(order["attempt"])
        if task is not None:
            tree.signal_group(task.pid, order["number"])

    def _on_contact(self, order: dict[str, Any]) -> None:
        self._contact = (order["at"], order["kill_after"])

    def _on_work(self, order: dict[str, Any]) -> None:
        self._work = order["path"]

    def _on_quit(self, order: dict[str, Any]) -> None:
        self._quit = True

    # --- limits
    def _check_deadlines(self, now: float) -> None:
        lost = self._contact is not None and now > sum(self._contact)
        for task in self._tasks.values():
            if lost and task.exclusive:
                self._kill(task, "contact")
            elif now >= task.kill_at:
                self._kill(task, task.why)
            elif now >= task.over_at:
                task.over_at = _NEVER
                self._terminate(task, "time", task.grace, now)

    def _check_memory(self, task: _Task, now: float) -> None:
        pids = tree.descend(task.pid)
        for pid, owner in self._strays.items():
            if owner == task.attempt:
                pids += tree.descend(pid)
        held = tree.resident(pids)
        if held > task.memory and len(pids) > 1:
            # Pages shared after a fork are counted once per process above: look closer before killing for it.
            # That look costs time in proportion to the memory, so it is rationed.
            if now < task.look_again:
                return
            exact = tree.proportional(pids)
            task.look_again = now + 20 * (tree.now() - now)
            held = held if exact is None else exact
        task.peak = max(task.peak, held)
        if held > task.memory:
            self._kill(task, "memory")

    def _terminate(self, task: _Task, why: str, grace: float, now: float) -> None:
        """Ask to end: SIGTERM to all of it; SIGKILL follows after the grace."""
        task.why = task.why or why
        task.kill_at = min(task.kill_at, now + grace)
        tree.signal_group(task.pid, signal.SIGTERM)
        for pid in tree.descend(task.pid)[1:]:
            # Those in its group got theirs; a second SIGTERM means "at once" to some programs.
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != task.pid:
                    os.kill(pid, signal.SIGTERM)
        for pid, owner in self._list_strays().items():
            if owner == task.attempt:
                tree.signal_group(pid, signal.SIGTERM)

    def _kill(self, task: _Task, why: str) -> None:
        task.why = task.why or why
        # Once is enough, even for a process that hangs in the kernel: nothing here is due again.
        task.kill_at = task.over_at = _NEVER
        task.exclusive, task.memory = False, 0
        tree.signal_group(task.pid, signal.SIGKILL)

    # --- ends
    def _reap(self, now: float) -> None:
        """Take every ended child: main processes with what they used, strays just so."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            pid = found.si_pid
            task = self._by_pid.pop(pid, None)
            if task is None:
                os.waitpid(pid, 0)
                self._strays.pop(pid, None)
                continue
            if not self._may_linger(task, now):
                # While the main process is not waited for, its group cannot be anyone else's.
                tree.signal_group(pid, signal.SIGKILL)
            _, task.status, usage = os.wait4(pid, 0)
            task.cpu = usage.ru_utime + usage.ru_stime
            task.peak = max(task.peak, usage.ru_maxrss * 1024)
            task.ended_at = now
            task.give_up_at = (task.kill_at if self._may_linger(task, now) else now) + SWEEP_GIVE_UP
            self._closing[task.attempt] = self._tasks.pop(task.attempt)

    def _may_linger(self, task: _Task, now: float) -> bool:
        """Was it asked to end, so that what the main process left may use the rest of the grace?"""
        return task.why in ("time", "stopped") and now < task.kill_at < _NEVER

    def _list_strays(self) -> dict[int, _Owner]:
        """Children we did not start, by owner. All that is left of an ended main process is among or below them."""
        found: dict[int, _Owner] = {}
        for pid in tree.children(os.getpid()):
            if pid not in self._by_pid:
                found[pid] = self._strays[pid] if pid in self._strays else self._owner(pid)
        self._strays = found
        if not found:
            self._heirs.clear()
        return found

    def _owner(self, pid: int) -> _Owner:
        if pid in self._heirs:
            return self._heirs[pid]
        session, mark = tree.session(pid), tree.mark(pid)
        everyone = [*self._tasks.values(), *self._closing.values()]
        for task in everyone:
            if session == task.pid or (mark and mark == task.mark):
                return task.attempt
        return frozenset(task.attempt for task in everyone)

    def _sweep(self, now: float) -> None:
        """End what ended tasks left behind; tell of those of which nothing is left."""
        strays = self._list_strays()
        for task in list(self._closing.values()):
            mine = [
                pid
                for pid, owner in strays.items()
                if owner == task.attempt or (isinstance(owner, frozenset) and owner.isdisjoint(self._tasks))
            ]
            if mine and now < task.give_up_at:
                if not self._may_linger(task, now):
                    self._kill_strays(mine)
                continue
            del self._closing[task.attempt]
            self._tell_end(task)

    def _kill_strays(self, pids: list[int]) -> None:
        for pid in pids:
            for heir in tree.descend(pid)[1:]:
                self._heirs[heir] = self._strays[pid]
            tree.signal_group(pid, signal.SIGKILL)

    def _tell_end(self, task: _Task) -> None:
        task.out.finish()
        task.err.finish()
        code = os.WEXITSTATUS(task.status) if os.WIFEXITED(task.status) else None
        self.channel.send(
            {
                "was": "ended",
                "attempt": task.attempt,
                "exit_code": code,
                "signal": os.WTERMSIG(task.status) if os.WIFSIGNALED(task.status) else None,
                "why": task.why,
                "cut": [name for name, bound in (("stdout", task.out), ("stderr", task.err)) if bound.is_cut],
                "duration": task.ended_at - task.began,
                "cpu": task.cpu,
                "max_rss": task.peak,
            }
        )


def _be_guard(sock: socket.socket) -> None:
    """The guard's process from its first moment."""
    tree.set_name("shoal-guard")
    os.setsid()  # what is sent to the pilot's whole group must not take its guard too
    tree.become_subreaper()
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # the tasks inherit it
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # A handler that does nothing, not SIG_IGN: tasks would inherit the latter and be deaf to SIGTERM.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    guard = Guard(Channel(sock))
    try:
        guard.run(read)
    except BaseException:
        # Whatever went wrong in here, no task goes on without a guard.
        guard.end_all()
        raise


def launch(private: Optional[int] = None) -> tuple[Channel, int]:
    """Fork the guard; must be called before there is any thread. Returns the line to it and its process number.

    `private` is an open file that the guard must not have.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return Channel(ours), pid
    code = 1
    try:
        ours.close()
        if private is not None:
            os.close(private)
        _be_guard(theirs)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
