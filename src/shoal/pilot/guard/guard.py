"""The guard: a small process beside the pilot that starts, watches and ends every task process [promise R6].

It is the parent of all tasks and a subreaper, so whatever a task starts comes back to it. It acts on its own
in three cases only: a limit is passed, contact is lost under an exclusive task, the pilot is gone. A stopped
pilot changes nothing here; a dead one ends every task at once. What it receives and sends is in `messages`; what it
sends waits a few milliseconds to go together where no slot is idle for it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Optional

from shoal.pilot.commands.streams import Blanks, Bound, open_stream
from shoal.pilot.guard import cgroup, messages, pid_namespace, proctree, spawn
from shoal.pilot.guard.channel import Channel
from shoal.pilot.guard.child import NEVER, Child
from shoal.pilot.guard.oom import OomKills
from shoal.pilot.guard.orphans import Orphans, Owner, ProcessMarks
from shoal.pilot.guard.pieces import Piece
from shoal.pilot.guard.queued_starts import QueuedStarts
from shoal.pilot.host import registry
from shoal.pilot.host.disk_space import Space

MEMORY_LOOK = 0.25
STREAM_LOOK, STREAM_LOOK_FAST = 0.5, 0.05
OOM_LOOK = 0.5
SWEEP_LOOK = 0.02
SWEEP_GIVE_UP = 5.0  # a process that not even SIGKILL ends (a dead disk) holds its slot no longer than this
NAME_AFTER = 0.05  # an attempt that is over sooner and wrote nothing never has files
STARTED_LATE = 0.01  # so long the report of a start waits for others to go with: most often that of its end
ENDED_LATE = 0.005  # the same for an end that leaves no slot idle
PIECE_LATE = 0.05  # the same for one of a piece
_SETTLED = b"settled"


class Guard:
    """State and rules of one guard; `run` is its main loop."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._spawner = spawn.Spawner()
        self._blanks = Blanks()
        self._space = Space()
        self._tasks: dict[str, Child] = {}  # main process lives
        self._closing: dict[str, Child] = {}  # main process ended, the rest is swept
        self._by_pid: dict[int, Child] = {}
        self._waiting = QueuedStarts()
        self._pieces: dict[str, Piece] = {}  # by their first attempt; also those that wait
        self._orphans = Orphans()
        self._contact: Optional[tuple[float, float]] = None
        self._work = self._kill_group = self._memory_group = ""
        self._limits: Optional[cgroup.MemoryLimits] = None
        self._quit = False
        self._memory_at = self._stream_at = self._oom_at = 0.0
        self._oom_kills, self._host_killings = OomKills(), OomKills(host=True)
        self._due = NEVER  # no task is over a limit before
        self._send_at = NEVER  # the reports so far are sent then
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Start: lambda start: self._take(self._spawner.prepare(start)),
            messages.StartPiece: lambda start: self._take(self._spawner.prepare_piece(start)),
            messages.Shorten: self._on_shorten,
            messages.Stop: self._on_stop,
            messages.SendSignal: self._on_signal,
            messages.LastContact: self._on_contact,
            messages.WorkDirectory: self._on_work,
            messages.Quit: self._on_quit,
        }

    # --- main loop
    def run(self, wake: int) -> None:
        """Serve until the pilot quits or is gone; then end everything."""
        connection, waits = self.channel.fileno(), False
        with select.epoll() as poll:
            poll.register(wake, select.EPOLLIN)
            poll.register(connection, select.EPOLLIN)
            while not self._quit and not self.channel.closed:
                due = self.deadline()
                ready = poll.poll(None if due is None else max(0.0, due - proctree.now()))
                for fd, _ in ready:
                    if fd == wake:
                        os.read(wake, 4096)
                    else:
                        for message in self.channel.receive():
                            self._handlers[type(message)](message)
                now = proctree.now()
                self.step(now)
                if now >= self._send_at or waits:
                    self._flush()
                if waits != self.channel.wants_write:
                    waits = not waits
                    poll.modify(connection, select.EPOLLIN | (select.EPOLLOUT if waits else 0))
        self.end_all()

    def _flush(self) -> None:
        """Send all reports."""
        for piece in self._pieces.values():
            self._report_piece(piece)
        self.channel.flush()
        self._send_at = NEVER

    def end_all(self) -> None:
        """Kill every task and all that came of it."""
        for task in self._tasks.values():
            proctree.signal_group(task.pid, signal.SIGKILL)
        proctree.kill_children(SWEEP_GIVE_UP)
        for task in (*self._tasks.values(), *self._closing.values()):
            # What a service of the host runs for us is no child of ours.
            if task.start_stage is not None:
                with contextlib.suppress(spawn.SpawnFailed):
                    task.start_stage.remove(self._spawner.environment(task.launch), SWEEP_GIVE_UP)
        if not self._quit:
            if self._work:
                shutil.rmtree(self._work, ignore_errors=True)
            if self._kill_group:
                cgroup.leave(self._kill_group)
            for group in filter(None, (self._kill_group, self._memory_group)):
                cgroup.remove(group)

    def deadline(self) -> Optional[float]:
        """When `step` is due at the latest."""
        due = self._send_at
        if self._tasks:
            due = min(due, self._due, self._stream_at, self._memory_at)
        if self._closing:
            due = min(due, proctree.now() + SWEEP_LOOK)
        return None if due == NEVER else due

    def step(self, now: float) -> None:
        """Do whatever is due: ended processes, limits, measurements."""
        self._reap(now)
        if now >= self._due:
            self._check_deadlines(now)
        if now >= self._memory_at:
            bound = [task for task in self._tasks.values() if task.memory]
            self._memory_at = now + MEMORY_LOOK if bound else NEVER
            for task in bound:
                self._check_memory(task, now)
        if now >= self._stream_at:
            looks = [bound.look() for task in self._tasks.values() for bound in (task.out, task.err)]
            for task in self._tasks.values():
                self._look_at_space(task, now)
            fast = any(looks) or any(task.is_file_bound for task in self._tasks.values())
            self._stream_at = proctree.now() + (STREAM_LOOK_FAST if fast else STREAM_LOOK)
        if now >= self._oom_at:
            self._oom_at = now + OOM_LOOK
            self._oom_kills.look(now)
            self._host_killings.look(now)
        if self._closing:
            self._sweep(now)

    # --- messages of the pilot
    def _take(self, launch: spawn.Launch) -> None:
        """Start a command or a piece, now or behind another one."""
        before = launch.start.after
        if launch.piece is not None:
            self._pieces[launch.piece.name] = launch.piece
        if any(before in known for known in (self._tasks, self._closing, self._waiting, self._pieces)):
            self._waiting.add(launch)
        else:
            self._begin(launch)

    def _begin(self, launch: spawn.Launch) -> None:
        """Start a command; of a piece, the next one that can be started."""
        piece = launch.piece
        if piece is None:
            if not self._launch(launch):
                self._follow(launch.start.attempt)
            return
        while True:
            following = piece.next()
            if following is None:
                break
            start, is_stopped = following
            if is_stopped:
                self._report_piece(piece)
                self._send(messages.NotStarted(start.attempt, "cancelled", "stopped", piece=piece.name), 0.0)
            elif self._launch(launch._replace(start=start)):
                return
        del self._pieces[piece.name]
        # While another piece is queued, the pilot may hear of it a little later.
        at = proctree.now() + ENDED_LATE if self._waiting.is_followed(piece.name) else 0.0
        self._send_ran(piece, piece.end())
        self._send_at = min(self._send_at, at)
        self._follow(piece.name)

    def _report_piece(self, piece: Piece) -> None:
        """Report what succeeded, before anything that comes after it."""
        ran = piece.report()
        if ran is not None:
            self._send_ran(piece, ran)

    def _send_ran(self, piece: Piece, ran: messages.Ran) -> None:
        self.channel.hold()
        number = self._space.trouble(piece.log_folder, proctree.now()) if ran.started else 0
        if number:
            for ended in piece.as_lost(ran, number):
                self.channel.send(ended)
            ran = messages.Ran(piece.name, [], [], [], [], ran.over)
        if ran.started or ran.over:
            self.channel.send(ran)

    def _launch(self, launch: spawn.Launch) -> bool:
        """Start a process; False: it could not be, and that was reported."""
        start, attempt, piece = launch.start, launch.start.attempt, launch.piece
        opened: list[Bound] = []
        try:
            pid = self._spawner.spawn(launch, *self._open_streams(start, opened))
        except spawn.SpawnFailed as failure:
            for bound in opened:
                self._blanks.finish(bound)
            if piece is not None:
                self._report_piece(piece)
            self._send(failure.report(attempt, piece.name if piece is not None else ""), 0.0)
            return False
        out, err = opened
        spawn.set_limits(pid, start)
        now = proctree.now()
        for bound in opened:
            bound.settle()
        over_at = now + start.time if start.time is not None else NEVER
        task = Child(launch, pid, now, out, err, over_at, name_at=now + NAME_AFTER)
        if not self._tasks or task.is_file_bound:
            self._stream_at = now + (STREAM_LOOK_FAST if task.is_file_bound else STREAM_LOOK)
        if task.memory:
            self._memory_at = min(self._memory_at, now + MEMORY_LOOK)
            if self._limits is not None and not start.container:  # a runtime makes a cgroup of its own
                task.group = self._limits.take(task.memory, pid)
        self._tasks[attempt] = self._by_pid[pid] = task
        self._due = min(self._due, task.deadline(self._contact))
        if piece is None:
            self._send(messages.Started(attempt, pid, time.time()), now + STARTED_LATE)
        return True

    def _open_streams(self, start: messages.Start, opened: list[Bound]) -> tuple[int, int]:
        try:
            for name, path in (("stdout", start.stdout), ("stderr", start.stderr)):
                if name in start.own_streams:
                    opened.append(Bound(path, open_stream(path), most=0))
                else:
                    opened.append(self._blanks.open(path, start.max_output))
        except OSError as error:
            raise spawn.SpawnFailed.for_streams(error) from None
        return opened[0].fd, opened[1].fd

    def _send(self, report: messages.FromGuard, at: float) -> None:
        """Send a report together with others, at this time at the latest."""
        self.channel.hold()
        self.channel.send(report)
        self._send_at = min(self._send_at, at)

    def _follow(self, attempt: str) -> None:
        for launch in self._waiting.follow(attempt):
            self._begin(launch)

    def _on_shorten(self, request: messages.Shorten) -> None:
        piece = self._pieces.get(request.attempt)
        if piece is not None and piece.begun:
            self._report_piece(piece)
            self._send(messages.Shortened(piece.name, piece.shorten()), 0.0)

    def _on_stop(self, stop: messages.Stop) -> None:
        if stop.grace is None:
            self._on_recall(stop.attempt)
            return
        task = self._tasks.get(stop.attempt)
        piece = next((one for one in self._pieces.values() if one.index(stop.attempt) is not None), None)
        if task is not None:
            self._terminate(task, "stopped", stop.grace, proctree.now())
        elif piece is not None:
            piece.stop(stop.attempt)
        elif self._waiting.drop(stop.attempt) is not None:
            self._send(messages.NotStarted(stop.attempt, "cancelled", "stopped"), 0.0)

    def _on_recall(self, attempt: str) -> None:
        """Take an attempt, or a whole piece, out of the queue, unless it has begun."""
        launch = self._waiting.drop(attempt)
        if launch is None:
            return
        if launch.piece is not None:
            del self._pieces[launch.piece.name]
            self._send(launch.piece.end(), 0.0)
        else:
            self._send(messages.NotStarted(attempt, "cancelled", "stopped"), 0.0)

    def _on_signal(self, request: messages.SendSignal) -> None:
        task = self._tasks.get(request.attempt)
        if task is not None:
            proctree.signal_group(task.pid, request.number)

    def _on_contact(self, contact: messages.LastContact) -> None:
        self._contact = (contact.at, contact.kill_after)
        if any(task.exclusive for task in self._tasks.values()):
            self._due = 0.0

    def _on_work(self, work: messages.WorkDirectory) -> None:
        self._work = work.path
        if work.mark:
            self._spawner.mark = {registry.MARK.encode(): work.mark.encode()}
        if work.entry:
            registry.hold(work.entry)
        if work.kill_group and cgroup.join(work.kill_group, os.getpid()):
            self._kill_group = work.kill_group
        if work.memory_group:
            self._memory_group, self._limits = work.memory_group, cgroup.MemoryLimits(work.memory_group)

    def _on_quit(self, _: messages.Quit) -> None:
        self._quit = True

    # --- limits
    def _check_deadlines(self, now: float) -> None:
        lost = self._contact is not None and now > sum(self._contact)
        for task in self._tasks.values():
            if now >= task.name_at:
                self._name_streams(task)
                piece = task.launch.piece
                if piece is not None:
                    self._report_piece(piece)
                    self._send(messages.Started(task.attempt, task.pid, _wall_clock(task.began), piece.name), now)
            if lost and task.exclusive:
                self._kill(task, "contact")
            elif now >= task.kill_at:
                self._kill(task, task.why)
            elif now >= task.over_at:
                task.over_at = NEVER
                self._terminate(task, "time", task.start.grace, now)
        self._due = min((task.deadline(self._contact) for task in self._tasks.values()), default=NEVER)

    def _name_streams(self, task: Child) -> None:
        task.name_at = NEVER
        self._blanks.name(task.out)
        self._blanks.name(task.err)

    def _look_at_space(self, task: Child, now: float) -> None:
        """Note a full disk: a task that wrote meanwhile may not have noticed, and nobody else does. One whose output has a
        part in it is ended: it is given back in any case, and would take every byte that becomes free."""
        trouble = self._space.trouble(os.path.dirname(task.out.path), now)
        task.no_space = task.no_space or trouble
        if trouble and task.attempt in self._tasks and (task.out.is_large or task.err.is_large):
            self._kill(task, "space")

    def _check_memory(self, task: Child, now: float) -> None:
        if task.start.container:
            self._find_orphans()
        orphans = self._orphans.of(task.attempt)
        # The runtime of a container that is beside it, not above it, is no part of the task's memory.
        pids = [] if task.start.container and orphans else proctree.descend(task.pid)
        for pid in orphans:
            pids += proctree.descend(pid)
        if now >= task.files_at and not task.group:  # the kernel counts them there
            task.files = proctree.memory_files(pids)
            task.files_at = now + 20 * (proctree.now() - now)
        files = sum(task.files.values())
        held = proctree.resident(pids) + files
        if held > task.memory and (len(pids) > 1 or files):
            # Pages shared after a fork are counted once per process above, and those of a mapped file with the file:
            # look closer before killing for it. That look costs time in proportion to the memory, so it is rationed.
            if now < task.measure_at:
                return
            exact = proctree.proportional(pids, task.files)
            exact = None if exact is None else exact + files
            task.measure_at = now + 20 * (proctree.now() - now)
            held = held if exact is None else exact
        task.peak = max(task.peak, held)
        if held > task.memory:
            self._kill(task, "memory")

    def _terminate(self, task: Child, why: str, grace: float, now: float) -> None:
        """Send SIGTERM to all of it; SIGKILL follows after the grace."""
        task.why = task.why or why
        task.kill_at = min(task.kill_at, now + grace)
        self._due = min(self._due, task.kill_at)
        proctree.signal_group(task.pid, signal.SIGTERM)
        for pid in proctree.descend(task.pid)[1:]:
            # Those in its group got theirs; a second SIGTERM means "at once" to some programs.
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != task.pid:
                    os.kill(pid, signal.SIGTERM)
        self._find_orphans()
        for pid in self._orphans.of(task.attempt) if not task.start.container else ():  # the runtime forwards it
            proctree.signal_group(pid, signal.SIGTERM)

    def _kill(self, task: Child, why: str) -> None:
        task.why = task.why or why
        # Once is enough, even for a process that hangs in the kernel: nothing here is due again.
        task.kill_at = task.over_at = NEVER
        task.exclusive, task.memory = False, 0
        proctree.signal_group(task.pid, signal.SIGKILL)

    # --- ends
    def _reap(self, now: float) -> None:
        """Reap every ended child: main processes with what they used, orphans just so."""
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
                self._orphans.forget(pid)
                continue
            lingers = task.may_linger(now)
            if not lingers:
                # While the main process is not waited for, its group, which it leads, cannot be anyone else's.
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            _, task.status, usage = os.wait4(pid, 0)
            task.cpu = usage.ru_utime + usage.ru_stime
            task.peak = max(task.peak, usage.ru_maxrss * 1024)
            task.ended_at = now
            # Also where a shell ignored that its child was killed: the watch over resident sizes would have ended it, too.
            if task.group and not task.why and cgroup.has_killed(task.group):
                task.why, task.peak = "memory", max(task.peak, task.memory)
            if task.is_killed:
                counter = self._oom_kills if not task.start.container else self._host_killings
                counter.look(now)
                task.is_oom = counter.is_recent(now)
            task.give_up_at = (task.kill_at if lingers else now) + SWEEP_GIVE_UP
            self._closing[task.attempt] = self._tasks.pop(task.attempt)

    def _find_orphans(self) -> dict[int, Owner]:
        return self._orphans.find(self._by_pid, self._marks())

    def _marks(self) -> Iterator[ProcessMarks]:
        for tasks in (self._tasks, self._closing):
            for task in tasks.values():
                yield ProcessMarks(
                    task.attempt, task.pid, task.start.env.get("SHOAL_ATTEMPT", ""), task.start.container
                )

    def _sweep(self, now: float) -> None:
        """End what ended tasks left behind; report those of which nothing is left."""
        orphans = self._find_orphans()
        for task in list(self._closing.values()):
            mine = [
                pid
                for pid, owner in orphans.items()
                if owner == task.attempt or (isinstance(owner, frozenset) and owner.isdisjoint(self._tasks))
            ]
            if mine and now < task.give_up_at:
                if not task.may_linger(now):
                    self._orphans.kill(mine)
                continue
            del self._closing[task.attempt]
            if mine:
                self._name_streams(task)  # what would not end may go on writing
            self._report_end(task)
            if task.launch.piece is not None:
                self._begin(task.launch)
            else:
                self._follow(task.attempt)

    def _report_end(self, task: Child) -> None:
        if task.group and self._limits is not None:
            self._limits.give_back(task.group)
        wrote = [name for name, bound in task.streams if self._blanks.finish(bound)]
        task.no_space = task.no_space or task.out.error or task.err.error
        piece = task.launch.piece
        if piece is None or wrote or task.status:  # else when it is reported with others
            self._look_at_space(task, proctree.now())
        if task.no_space:
            task.out.make_space()
            task.err.make_space()
        if piece is None:
            # While there is enough queued, the pilot may receive several ends at once.
            at = task.ended_at + ENDED_LATE if len(self._waiting) > 2 * len(self._tasks) else 0.0
            self._send(task.ended(wrote), at)
            return
        started, at = _wall_clock(task.began), task.ended_at + PIECE_LATE
        if task.is_plain and not wrote:
            piece.add(started, task.ended_at - task.began, task.cpu, task.peak)
            self._send_at = min(self._send_at, at)
        else:
            self._report_piece(piece)
            self._send(replace(task.ended(wrote), piece=piece.name, started=started), at)


def _wall_clock(at: float) -> float:
    """A time of ours in seconds since the epoch."""
    return time.time() - proctree.now() + at


def _be_guard(sock: socket.socket) -> None:
    """Be the guard: set up this process, then serve."""
    proctree.set_name("shoal-guard")
    os.setsid()  # what is sent to the pilot's whole group must not take its guard too
    proctree.become_subreaper()
    spawn.keep_files()
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


def launch_all(count: int, is_confined: bool, private: Optional[int] = None) -> tuple[list[tuple[Channel, int]], bool]:
    """Fork so many guards, all of them confined where that is wanted and permitted, and whether they are; must be called
    before there is any thread. `private` is an open file that no guard must have."""
    guards: list[tuple[Channel, int]] = []
    for _ in range(count):
        # A guard that had the pilot's end of the connection to another one would keep that from seeing the pilot's end.
        files = [*([] if private is None else [private]), *(channel.fileno() for channel, _ in guards)]
        confined = launch_confined(files) if is_confined else None
        if confined is None and is_confined and guards:
            break  # as many as there could be
        is_confined = confined is not None
        guards.append(confined or launch(files))
    return guards, is_confined


def launch(private: Sequence[int] = ()) -> tuple[Channel, int]:
    """Fork a guard; must be called before there is any thread. Returns the connection to it and its process number.

    `private` are open files that the guard must not have.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return Channel(ours), pid
    return _live(theirs, [ours.fileno(), *private])


def launch_confined(private: Sequence[int] = ()) -> Optional[tuple[Channel, int]]:
    """As `launch`, with the guard as process 1 of a PID namespace; None where this host does not permit that.

    The caller must be a subreaper. A process in between makes the namespace, since what makes one has all its later
    children in there; it ends at once, and the guard becomes our child.
    """
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        _launch_between(theirs, write, [ours.fileno(), read, *private])
    os.close(write)
    theirs.close()
    with open(read, "rb") as file:
        received = file.read().split()  # the guard's number, and _SETTLED from itself, in either order
    os.waitpid(between, 0)
    pid = next((int(one) for one in received if one != _SETTLED), 0)
    if pid and _SETTLED in received:
        return Channel(ours), pid
    ours.close()
    if pid:
        os.waitpid(pid, 0)
    return None


def _launch_between(sock: socket.socket, write: int, others: list[int]) -> NoReturn:
    try:
        pid_namespace.leave()
        pid = os.fork()
        if pid == 0:
            pid_namespace.settle()
            os.write(write, _SETTLED + b" ")
            _live(sock, [write, *others])
        os.write(write, b"%d " % pid)
    except OSError:
        pass  # the pilot receives nothing, and does without
    os._exit(0)


def _live(sock: socket.socket, others: list[int]) -> NoReturn:
    """Be the guard, without the files of `others`, until the end of this process."""
    code = 1
    try:
        for fd in others:
            os.close(fd)
        _be_guard(sock)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
