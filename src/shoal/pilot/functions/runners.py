"""The runners of a pilot: long-lived interpreters that call functions, one for each busy slot [ADR 0009].

A piece of calls goes to an idle runner of its kind, or to a new one; a runner belongs to one session for good. So that
a session need not wait for an interpreter to start, a spare one is kept ready [ADR 0024]. Runners are children of the
guard, which ends them and enforces their memory limit; the time limit of each call is enforced here, where it is known
when a call begins. A runner that ends is not repaired: the next piece gets another. All of it runs on the loop's thread.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Optional

from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_STDERR_TAIL
from shoal.pilot.commands import streams
from shoal.pilot.commands.files import StageError
from shoal.pilot.functions import crash_report
from shoal.pilot.functions.call_batch import Entries, Piece, Then
from shoal.pilot.functions.listener import Listener, RunnerConnection
from shoal.pilot.functions.runner_blobs import RunnerBlobs
from shoal.pilot.functions.runner_process import RunnerKind, RunnerProcess, find_kind, write_code
from shoal.pilot.guard import outcome, proctree
from shoal.pilot.guard.messages import Ended, NotStarted, OnProcess, SendSignal, Started, Stop, ToGuard
from shoal.pilot.runner.main import CALLING
from shoal.pilot.runner.messages import Describe, Described, Hello, NeedBlob, Progress, Stale
from shoal.wire.messages import Batch, Lease, Report

log = logging.getLogger(__name__)

PREFIX = "runner-"  # no attempt is named so
HELLO = 30.0  # seconds: an interpreter that has not connected by then never will
SPARE_AFTER = 1.0  # seconds from the last start to that of a spare runner; at once if no other has work
IDLE = 60.0  # seconds unused after which a runner gives its memory back
DESCRIBE = 10.0  # seconds to describe a call
LOOK = 0.06  # a little more than the runner's own 50 ms: what it has not notified by then is read without
BOUND = 0.5  # seconds between measurements of how much a call writes
FINALIZE = 5.0  # seconds that finalizers get when the pilot ends
CUT_OFF = 1.0  # a runner that lost its connection is dying; if it still lives after that, it is ended
NEVER = float("inf")
_KINDS_KEPT = 1000


class Runners:
    """All runners of one pilot, and the pieces they work on."""

    def __init__(
        self,
        *,
        send_guard: Callable[[ToGuard], None],
        work: str,
        prepare: Callable[[Lease], tuple[dict[str, str], str]],
        fetch: Callable[[str, Then], None],
        store: Callable[[str, Then], None],
        ended: Callable[[str, Optional[Batch], tuple[Report, ...], bool], None],
        log_paths: Callable[[str], tuple[str, str]],
        grace: float,
        umask: int = 0o077,
        cores: Optional[int] = None,
    ) -> None:
        self._base, self.grace = os.path.join(work, "runners"), grace
        self._umask, self._cores = umask, cores or len(os.sched_getaffinity(0))
        self._send_guard, self._prepare = send_guard, prepare
        self._blobs = RunnerBlobs(fetch, store, lambda one: self._plan(one, min(one.due, one.began + LOOK)))
        self._ended, self._log_paths = ended, log_paths
        self._listener = Listener(self._accept)
        self._runners: dict[str, RunnerProcess] = {}
        self._idle: list[RunnerProcess] = []  # the one used last is at the end
        self._going: set[str] = set()  # those that are about to end
        self._spare: Optional[RunnerProcess] = None
        self._wanted: Optional[RunnerKind] = None  # what a spare one is to be started for
        self._spare_at = NEVER
        self._kinds: dict[RunnerKind, RunnerKind] = {}
        self._count = 0
        self._is_open = False
        self._due = NEVER
        self._pieces: dict[str, Piece] = {}
        self._at: dict[Piece, RunnerProcess] = {}  # the runner of a piece
        self._waiting: set[str] = set()  # pieces whose call waits for other tasks

    # --- requests of the loop
    def start(self, piece: Lease) -> None:
        """Make the calls of a lease, one after another."""
        made = Piece(piece, self._on_told, self._blobs.put_away, self._log_paths)
        self._pieces[made.attempt] = made
        try:
            env, cwd = self._prepare(piece)
        except StageError as error:
            made.fail_all(Report("", "failed", error.cause, str(error)))
            return
        except OSError as error:
            self._give_back(made, f"cannot prepare: {error.strerror}")
            return
        made.pipe, made.emits = env.get("SHOAL_TAGS", ""), env.get("SHOAL_EMIT", "")
        kind = find_kind(piece, dict(env), cwd)
        if kind is None:
            self._give_back(made, f"there is no {piece.python or 'interpreter'} here, and no python3 on the PATH")
            return
        one = self._take(kind, piece.count)
        self._begin(one, made)

    def stop(self, attempt: str, why: str) -> bool:
        """End one call, or see to it that it never begins; False: it is not here."""
        piece, at = self._find(attempt)
        if piece is None:
            return False
        if at < piece.seen or at in piece.stops:
            return True
        piece.stops[at] = why
        one = self._at.get(piece)
        if one is None or one.describes:
            return True  # its runner has died, and it had not begun
        if not one.is_sent:
            if len(piece.stops) == piece.count:
                self._release(one)
                piece.fail_all(Report("", "failed"))
            return True
        if at > piece.seen:
            one.skip(at)
        # Only now it is certain: either the message was there before the call could begin, or the log shows that it began.
        self._drain(one)
        if at == piece.seen and self._at.get(piece) is one:
            self._stop_runner(one)
        return True

    def note_waiting(self, attempt: str, is_waiting: bool) -> None:
        """The call that a piece is at began or ceased to wait for other tasks: its runner does no work meanwhile."""
        piece = self._pieces.get(attempt)
        one = self._at.get(piece) if piece is not None else None
        if one is not None:
            self._drain(one)
        (self._waiting.add if is_waiting and piece is not None else self._waiting.discard)(attempt)

    def shorten(self, attempt: str) -> Optional[int]:
        """Take the calls of a piece that have not begun from its runner; returns how many are left in it."""
        piece = self._pieces.get(attempt)
        one = self._at.get(piece) if piece is not None else None
        if piece is None or one is None or not one.is_sent or one.describes:
            return None
        self._drain(one)
        for at in range(piece.seen + 1, piece.count):
            if at not in piece.stops:
                one.skip(at)
        # As in `stop`: what the log does not show as begun now, never begins.
        self._drain(one)
        if self._at.get(piece) is not one:
            return None
        piece.shorten(piece.seen + 1)
        return piece.count

    def signal(self, attempt: str, number: int) -> bool:
        """Send a signal to a call if it runs; False: it is not here."""
        piece, one, is_running = self._where(attempt)
        if one is not None and is_running and one.stage == CALLING:
            self._send_guard(SendSignal(one.key, int(number)))
        return piece is not None

    def files(self, attempt: str) -> Optional[tuple[str, str]]:
        """The two files that a call writes to while it runs; None: it does not run."""
        _, one, is_running = self._where(attempt)
        return one.files() if one is not None and is_running else None

    def directory(self, attempt: str) -> Optional[str]:
        """The directory of the runner that has a call; None if no runner has it."""
        _, one, _ = self._where(attempt)
        return one.kind.cwd if one is not None else None

    def fileno(self) -> int:
        """Readable when `receive` has something to do."""
        return self._listener.fileno()

    def receive(self) -> None:
        """Process what runners have sent."""
        self._listener.receive()

    def deadline(self) -> Optional[float]:
        """When `tick` is due at the latest."""
        due = min(self._due, self._spare_at)
        return due if due < NEVER else None

    def tick(self, now: float) -> None:
        """Do whatever is due: limits, logs, idle runners."""
        if now >= self._due:
            for one in list(self._runners.values()):
                if now >= one.due and one.key in self._runners:
                    one.due = NEVER  # unless something plans another check
                    at = self._check(one, now)
                    one.due = min(one.due, at)
            self._due = min((one.due for one in self._runners.values()), default=NEVER)
        if now >= self._spare_at:
            self._spare_at = NEVER
            self._start_spare(now)

    def abandon(self, why: str) -> None:
        """Give every piece back: the guard is lost, and all runners with it."""
        for one in list(self._runners.values()):
            self._forget(one)
            piece = one.piece
            if piece is not None:
                self._at.pop(piece, None)
                piece.take(one.read(proctree.now()) if one.is_sent else Entries(), one.rss, one.move, False)
                if piece.seen < piece.count:
                    piece.fail(Report(piece.name(piece.seen), "returned", "host_unfit", why))
                piece.finish()
            one.forget()

    def close(self) -> None:
        """Disconnect all; the guard ends what does not end by itself, with a finalizer within a few seconds."""
        until = time.monotonic() + min(FINALIZE, self.grace)
        for one in [one for one in self._runners.values() if one.send_end()]:
            one.await_end(until)
        for one in self._runners.values():
            one.forget()
        self._listener.close()
        shutil.rmtree(self._base, ignore_errors=True)

    # --- pieces and runners
    def _find(self, attempt: str) -> tuple[Optional[Piece], int]:
        which = parse_attempt(attempt)
        for piece in self._pieces.values():
            at = piece.index(which)
            if at is not None:
                return piece, at
        return None, 0

    def _where(self, attempt: str) -> tuple[Optional[Piece], Optional[RunnerProcess], bool]:
        """The piece of a call, its runner, and whether that is at this very call."""
        piece, at = self._find(attempt)
        one = self._at.get(piece) if piece is not None else None
        if piece is None or one is None or not one.is_sent:
            return piece, one, False
        self._drain(one)
        return piece, one, at == piece.seen and self._at.get(piece) is one

    def _begin(self, one: Optional[RunnerProcess], piece: Piece) -> None:
        """Have a runner make the calls of a piece, as soon as it is ready; None: there is none."""
        if one is None:
            self._give_back(piece, f"cannot write in {self._base}")
        else:
            self._assign(one, piece)

    def _assign(self, one: RunnerProcess, piece: Piece) -> None:
        one.piece, one.is_sent = piece, False
        self._at[piece] = one
        if one.is_ready:
            self._on_ready(one)

    def _on_ready(self, one: RunnerProcess) -> None:
        piece = one.piece
        if piece is None:
            return
        if one.describes:
            self._plan(one, one.since + DESCRIBE)
            one.send(Describe(piece.lease.function, piece.lease.calls[piece.seen], piece.lease.modules))
            self._watch_connection(one)
        else:
            self._give(one, piece)

    def _give(self, one: RunnerProcess, piece: Piece) -> None:
        lease, now = piece.lease, proctree.now()
        problem = one.wrong_version(lease)
        if problem:
            self._release(one)
            self._give_back(piece, problem)
            return
        texts = one.payloads(lease)
        one.give(piece, now)
        self._watch_connection(one)
        one.read_at = now + LOOK
        self._plan(one, one.read_at if lease.time is None else min(one.read_at, now + lease.time))
        for text in texts:
            if text[:7] == "sha256:":
                self._blobs.request(one, text)

    def _watch_connection(self, one: RunnerProcess) -> None:
        if one.connection is not None:
            self._listener.watch(one.connection)

    # --- runners: start
    def _take(self, kind: RunnerKind, calls: int) -> Optional[RunnerProcess]:
        """A runner of this kind: an idle one, else a new one; None: there can be none."""
        if len(self._kinds) > _KINDS_KEPT:
            self._kinds.clear()
        kind = self._kinds.setdefault(kind, kind)
        for at in range(len(self._idle) - 1, -1, -1):
            if (self._idle[at].kind is kind or self._idle[at].kind == kind) and self._idle[at].may_take(calls):
                return self._idle.pop(at)
        return self._launch(kind)

    def _launch(self, kind: RunnerKind) -> Optional[RunnerProcess]:
        """A new runner, the spare one if it fits; idle ones of other kinds end for it."""
        while self._idle and self._in_use >= self._cores:
            self._end(self._idle.pop(0))
        now = proctree.now()
        self._wanted, self._spare_at = kind, now + SPARE_AFTER
        one = self._spare
        # Where there is no such directory, the guard says so as it starts one.
        if one is not None and one.kind.bare == kind.bare and os.access(kind.cwd, os.R_OK | os.X_OK):
            self._spare, one.since = None, now
            one.take(kind)
            self._plan(one, now + (IDLE if one.is_ready else HELLO))
            return one
        return self._start(kind, now)

    def _start(self, kind: RunnerKind, now: float, is_spare: bool = False) -> Optional[RunnerProcess]:
        self._count += 1
        try:
            self._open()
            one = RunnerProcess(f"{PREFIX}{self._count}", kind, self._base, now, is_spare)
        except OSError as error:
            log.error("runner cannot be started: %s", error)
            return None
        self._runners[one.key] = one
        self._plan(one, now + HELLO)
        log.debug("runner start runner=%s python=%s", one.key, kind.python)
        self._send_guard(one.start(self.grace, self._umask))
        return one

    def _drop_stale(self, one: RunnerProcess) -> None:
        """End a runner whose files have changed, and the idle ones of its kind, which have read the same."""
        self._clear(one)
        for other in [one, *(idle for idle in self._idle if idle.kind == one.kind)]:
            if other in self._idle:
                self._idle.remove(other)
            self._end(other)

    def _start_spare(self, now: float) -> None:
        """Keep one runner ready that is like those started last; it takes no slot, and ends if nobody needs it."""
        kind, old = self._wanted, self._spare
        if kind is None or (old is not None and old.kind.bare == kind.bare):
            return
        if old is not None:
            self._end(old)
        self._spare = self._start(kind, now, is_spare=True)

    @property
    def _in_use(self) -> int:
        """Runners that a session has; those whose call waits for other tasks do not count."""
        return len(self._runners) - len(self._going) - len(self._waiting) - (self._spare is not None)

    def _open(self) -> None:
        """Prepare for runners, with the first piece: most pilots never see a function."""
        if not self._is_open:
            for folder in ("results", "compiled"):
                os.makedirs(os.path.join(self._base, folder), mode=0o700, exist_ok=True)
            write_code(os.path.join(self._base, "code"))
            self._listener.open(self._base)
            self._is_open = True

    def _accept(self, connection: RunnerConnection, hello: object) -> bool:
        one = self._runners.get(hello.name) if isinstance(hello, Hello) else None
        if not isinstance(hello, Hello) or one is None or one.is_ready or one.is_stopping or one.is_late:
            return False
        self._listener.keep(connection, lambda: self._read(one))
        is_welcome = one.connect(connection, hello)
        one.since = proctree.now()
        self._plan(one, one.since + IDLE)
        if is_welcome:
            self._on_ready(one)
        return True

    # --- runners: end
    def _release(self, one: RunnerProcess) -> None:
        """Make a runner idle, or end it if there are more than enough."""
        self._clear(one)
        if one.is_ready and one.connection is None:
            return  # it is dying, the guard will report that
        if self._spare_at < NEVER and not self._at:
            self._spare_at = 0.0
        if self._in_use > self._cores or not one.may_take(1):
            self._end(one)
            return
        one.since = proctree.now()
        self._idle.append(one)
        self._plan(one, one.since + (IDLE if one.is_ready else HELLO))

    def _clear(self, one: RunnerProcess) -> None:
        """Take its piece from it."""
        if one.piece is not None:
            self._at.pop(one.piece, None)
        one.piece, one.is_sent, one.describes, one.read_at, one.needed = None, False, False, None, ""
        one.blobs.clear()

    def _end(self, one: RunnerProcess) -> None:
        """End a runner without work: by itself, so that it can run its exit handlers, else by the guard."""
        if one is self._spare:
            self._spare = None
        ends_itself = one.connection is not None
        self._disconnect(one)
        self._going.add(one.key)
        one.is_late = one.is_late or not one.is_ready
        self._plan(one, proctree.now() + (self.grace if ends_itself else 0.0))

    def _stop_runner(self, one: RunnerProcess) -> None:
        """Have the guard end it."""
        if not one.is_stopping:
            one.is_stopping = True
            self._going.add(one.key)
            self._send_guard(Stop(one.key, self.grace))

    def _disconnect(self, one: RunnerProcess) -> None:
        """Close the connection to it."""
        if one.connection is not None:
            self._listener.drop(one.connection)
            one.disconnect()

    def _forget(self, one: RunnerProcess) -> None:
        """Remove a runner whose process is gone."""
        self._disconnect(one)
        self._runners.pop(one.key, None)
        self._going.discard(one.key)
        if one in self._idle:
            self._idle.remove(one)
        if one is self._spare:
            self._spare = None

    def _plan(self, one: RunnerProcess, at: float) -> None:
        """Check this runner then."""
        one.due = at
        self._due = min(self._due, at)

    def _check(self, one: RunnerProcess, now: float) -> float:
        """Check a runner that is due; returns when to do so again."""
        if one.is_stopping:
            return NEVER
        if one.is_ready and one.connection is None:  # it should have ended by itself
            self._stop_runner(one)
        elif one is self._spare and one.connection is not None:
            if now < one.since + IDLE:
                return one.since + IDLE
            self._end(one)
        elif not one.is_ready:
            if now < one.since + HELLO and not one.is_late:
                return one.since + HELLO
            one.is_late = True
            self._stop_runner(one)
        elif one.piece is not None:
            return self._check_busy(one, now)
        elif now < one.since + IDLE:
            return one.since + IDLE
        else:
            self._idle.remove(one)
            self._end(one)
        return NEVER

    # --- messages of runners
    def _read(self, one: RunnerProcess) -> None:
        connection = one.connection
        assert connection is not None
        connection.flush()
        self._listener.watch(connection)
        try:
            for message in connection.receive():
                self._on_message(one, message)
        except (ValueError, LookupError, TypeError):
            log.exception("runner sent no valid message runner=%s", one.key)
            connection.closed = True
        if connection.closed and one.connection is connection:
            self._disconnect(one)
            if one is self._spare:
                self._spare = None
            # Most likely it is dying, and the guard will report why; if not, it has lost us for good.
            one.is_cut_off = True
            self._plan(one, proctree.now() + CUT_OFF)

    def _on_message(self, one: RunnerProcess, message: object) -> None:
        piece = one.piece
        if isinstance(message, NeedBlob):
            self._blobs.need(one, message.digest)
        elif piece is None:
            pass
        elif isinstance(message, Described) and one.describes:
            self._on_described(one, piece, message.text)
        elif isinstance(message, Stale):
            if not one.is_stopping:
                self._drop_stale(one)
                self._begin(self._launch(one.kind), piece)
        elif isinstance(message, Progress):
            one.rss = message.rss
            if message.is_over and not one.is_stopping:
                entries = one.read(proctree.now())
                self._release(one)  # first: whoever receives the end of the piece may start the next
                piece.take(entries, one.rss, one.move, True)
            else:
                one.began = proctree.now()
                one.read_at = one.began + LOOK
                self._plan(one, min(one.read_at, one.due))
                self._drain(one)

    def _drain(self, one: RunnerProcess) -> None:
        """Take the calls that ended."""
        if one.piece is not None and one.is_sent:
            entries = one.read(proctree.now())
            if entries.plain or entries.full:
                one.piece.take(entries, one.rss, one.move, False)

    def _check_busy(self, one: RunnerProcess, now: float) -> float:
        piece = one.piece
        assert piece is not None
        if one.describes:
            if now >= one.since + DESCRIBE:
                self._stop_runner(one)
            return one.since + DESCRIBE
        limit = piece.lease.time
        is_over = limit is not None and not one.needed and now >= one.began + limit
        if is_over or (one.read_at is not None and now >= one.read_at):
            one.read_at = None
            self._drain(one)
        if now >= one.bound_at:
            one.bound()
            one.bound_at = now + BOUND
        over_at = one.began + limit if limit is not None and not one.needed else NEVER
        if now >= over_at:
            one.over = piece.seen
            self._stop_runner(one)
            return NEVER
        return min(over_at, one.bound_at, one.read_at or NEVER)

    # --- reports of the guard
    def hear_guard(self, report: OnProcess) -> bool:
        """Process a report on a runner; False: it is on something else."""
        one = self._runners.get(report.attempt)
        if one is None or isinstance(report, Started):
            return report.attempt.startswith(PREFIX)
        piece, now = one.piece, proctree.now()
        entries = one.read(now) if one.is_sent else Entries()
        written, stderr = one.written(), streams.tail(os.path.join(one.folder, "start.err"), MAX_STDERR_TAIL)
        self._forget(one)
        if piece is not None:
            self._at.pop(piece, None)
            if one.describes:
                self._on_described(one, piece, "")
            elif isinstance(report, NotStarted):
                piece.fail_all(outcome.not_started(piece.lease, report))
            elif one.died_waiting and not piece.is_renewed and not one.is_stopping:
                piece.is_renewed = True  # its end says nothing about this piece
                self._begin(self._launch(one.kind), piece)
            elif not one.is_sent:
                piece.fail_all(crash_report.never_ready(one.kind.python, report, one.is_late, HELLO, stderr))
            else:
                piece.take(entries, max(one.rss, report.max_rss), one.move, False)
                self._on_lost(one, piece, report, written, now)
        one.forget()
        return True

    def _on_lost(
        self, one: RunnerProcess, piece: Piece, ended: Ended, written: dict[str, list[int]], now: float
    ) -> None:
        """A runner ended while it had a piece: the call that it was at is the one that ended it."""
        at, why = piece.seen, ended.why
        # Else it was stopped for a call that then ended by itself, and this one had only just begun.
        if at < piece.count and (at in piece.stops or at == one.over or why != "stopped" or one.is_cut_off):
            took = max(0.0, now - one.began)
            cpu, why = max(0.0, ended.cpu - one.cpu_reported), "time" if at == one.over else why
            own = replace(ended, cpu=cpu, duration=took, why=why)
            report = crash_report.judge(piece.lease, piece.name(at), own, one.stage, time.time() - took)
            if at in piece.stops:
                report = replace(report, outcome="failed", cause="cancelled", message=piece.stops[at])
            elif report.cause == "cancelled":
                report = replace(report, cause="task_error", message="the function closed its runner's connection")
            report = piece.put_streams(report, written.get("out"), written.get("err"), one.move)
            if report.cause == "signal" and one.stage == CALLING:
                self._describe(piece, report, one.kind)
                return
            piece.fail(report)
        piece.finish()

    def _describe(self, piece: Piece, report: Report, kind: RunnerKind) -> None:
        """Have a new runner describe the call that killed its runner."""
        one = self._launch(kind)
        if one is None:
            piece.fail(crash_report.name_call(report, piece.lease, piece.seen, ""))
            piece.finish()
            return
        one.describes, one.crash = True, report
        self._assign(one, piece)

    def _on_described(self, one: RunnerProcess, piece: Piece, text: str) -> None:
        assert one.crash is not None
        if one.key in self._runners:
            self._release(one)
        piece.fail(crash_report.name_call(one.crash, piece.lease, piece.seen, text))
        piece.finish()

    # --- reporting
    def _give_back(self, piece: Piece, why: str) -> None:
        piece.fail_all(Report("", "returned", "host_unfit", why))

    def _on_told(self, piece: Piece, batch: Optional[Batch], reports: tuple[Report, ...], is_over: bool) -> None:
        if is_over:
            self._pieces.pop(piece.attempt, None)
            self._waiting.discard(piece.attempt)
        self._ended(piece.attempt, batch, reports, is_over)
