"""Every command on this host, from Begin to Settle: stage in, start by the guard, stage out, report.

All methods but those given to the file threads run on the loop's thread.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Optional, Union

from shoal.model.errors import ShoalError
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_STDERR_TAIL
from shoal.model.task.visible import NOT_VISIBLE
from shoal.pilot.agent.events import (
    Begin,
    Called,
    Contact,
    Ended,
    Event,
    Recall,
    Settle,
    Shorten,
    Shortened,
    Signal,
    Started,
    Stop,
    Watch,
)
from shoal.pilot.agent.guard_queue import may_queue
from shoal.pilot.commands import streams
from shoal.pilot.commands.checkpoint_watch import CheckpointWatch
from shoal.pilot.commands.ending import End
from shoal.pilot.commands.files import NoSpace, NotSent, NotVisible, StageError, TooLarge
from shoal.pilot.commands.pieces import CommandPiece
from shoal.pilot.commands.staging import Prepared, Staging
from shoal.pilot.executor import GUARD_GONE, given_back
from shoal.pilot.guard import messages, outcome, proctree
from shoal.pilot.guard.guards import Guards
from shoal.pilot.guard.spawn import STREAM_SLACK
from shoal.pilot.host import disk_space, probe
from shoal.pilot.host.file_threads import FileThreads
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.log_upload import LogUpload
from shoal.wire.chunk import single
from shoal.wire.messages import TOO_LARGE, Lease, Registered, Report

log = logging.getLogger(__name__)

GUARD_LATE = 2.0  # seconds that the guard may be late in ending exclusive tasks before the pilot does it
CONTACT_EVERY = 0.5  # seconds; contact is sent to the guard no more often
MAX_UNFIT = 3  # starts in a row that failed for the host's sake
FIT_LOOK = 0.1
STREAMS = ("stdout", "stderr")


@dataclass
class _Here:
    """An attempt from its beginning until the server has settled it."""

    lease: Lease
    out: str
    err: str
    after: str = ""  # it begins when this attempt is over
    made: Optional[Prepared] = None
    started: Optional[float] = None
    guarded: bool = False  # the guard has it
    stop: str = ""
    keep: bool = False  # it is stopped to go on later
    staged: float = 0.0  # seconds that staging in took
    left_out: Mapping[str, int] = field(default_factory=dict)  # bytes by stream, of those that lost their middle
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes by stream, of what is kept
    wrote: Collection[str] = STREAMS  # streams that may hold something
    reported: bool = False
    piece: Optional[CommandPiece] = None  # it stands for these; its lease is that of the first
    part_of: Optional[CommandPiece] = None  # it is one of these, and has ended
    before: Optional[_Here] = None  # the one that it follows, until it is staged: another may get the same name
    followers: list[Callable[[], None]] = field(default_factory=list)  # starts that wait until the guard has it

    @property
    def own_streams(self) -> Collection[str]:
        """Streams that go to files of the submitter's."""
        return self.made.own_streams if self.made is not None else ()

    @property
    def slow(self) -> bool:
        """True if there is a directory to empty."""
        return self.made is not None and bool(self.made.own_dir)


class CommandExecutor:
    """The attempts of commands, and the connection to the guard that runs them."""

    def __init__(
        self,
        guards: Guards,
        stage: Staging,
        umask: int,
        feed: Callable[[Event], None],
        post: Callable[[Callable[[], None]], None],
        unfit: Callable[[str], None],
        pause: Callable[[str], None],
        tails: LogUpload,
        blobs: Blobs,
        others: Callable[[messages.OnProcess], object],
    ) -> None:
        self.guards, self.guard_lost = guards, False
        self._stage, self._umask = stage, umask
        self._feed, self._post = feed, post
        self._unfit, self._pause = unfit, pause  # the host takes no more tasks; none while there is no disk space
        self._others = others  # receives what the guard reports on processes that are no attempts
        self._work = stage.facts.work
        self._file_threads = FileThreads()  # which bring inputs in
        self._end_threads = FileThreads()  # those of other tasks must not keep what has ended from being reported
        self._tails, self._blobs = tails, blobs
        self._here: dict[str, _Here] = {}
        self._exclusive: set[str] = set()  # those of them that the guard must end when contact is lost
        self._log_dir = ""
        self.grace = 10.0
        self._kill_after = float("inf")
        self._contact = 0.0
        self._told_contact = -CONTACT_EVERY
        self._doubt: Optional[float] = None
        self._unfit_starts = 0
        self._checkpoints = CheckpointWatch(os.path.join(self._work, "checkpoints"), feed, post, lambda: blobs)
        self._space = disk_space.Space()
        self._fit_until = 0.0

    def on_joined(self, registered: Registered) -> None:
        """Apply the server's settings on logs and times."""
        self.grace, self._kill_after = registered.grace, registered.kill_after
        self._log_dir = streams.shared_log_folder(registered)

    # --- the agent's actions
    def begin(self, action: Begin) -> None:
        """Stage an attempt, or a piece, in and start it."""
        lease, piece = action.lease, None
        if lease.count > 1:
            lease, piece = single(lease), CommandPiece(lease, self._log_folder)
        out, err = streams.log_paths(self._log_folder, lease.attempt)
        before = self._here.get(action.after)
        here = self._here[lease.attempt] = _Here(lease, out, err, action.after, piece=piece, before=before)
        if not self._log_dir and piece is None:
            self._tails.add(lease.attempt, {"stdout": out, "stderr": err})
        unfit = self._lost_fitness()
        lack = "" if unfit else self.lack()
        if unfit or self.guard_lost:
            self._give_back(here, unfit or GUARD_GONE)
        elif lack:
            self._end(here, Report(lease.attempt, "returned", "host_unfit", lack, evidence="no_space"))
        elif self._stage.is_slow(lease):
            self._file_threads.do(lambda: self._post(partial(self._start, here, self._prepare(here, action.gpus))))
        else:
            self._start(here, self._prepare(here, action.gpus))

    @property
    def sees_logs(self) -> bool:
        """True if what attempts write goes to files that the server reads itself."""
        return bool(self._log_dir)

    @property
    def _log_folder(self) -> str:
        return self._log_dir or os.path.join(self._work, "logs")

    def _lost_fitness(self) -> str:
        """Called at each start, measured ten times a second at most: the loop measures too when leases come."""
        now = proctree.now()
        if now < self._fit_until:
            return ""
        unfit = probe.lost_fitness(self._work)
        if not unfit:
            self._fit_until = now + FIT_LOOK
        return unfit

    def lack(self, least: int = probe.LEAST_FREE) -> str:
        """Why there is no space for another attempt now; empty while there is."""
        doing = "an attempt was to begin"
        for folder in filter(None, (self._work, self._log_dir)):
            # Where the logs are, the server's database is, too: the next attempt must not fill what little is left.
            if probe.is_short(folder, least):
                return disk_space.no_space(folder, errno.ENOSPC, doing)
        return self._space.reason(filter(None, (self._work, self._log_dir)), proctree.now(), doing)

    def stop(self, action: Stop) -> bool:
        """End an attempt, or keep it from starting; False if it is not here."""
        here = self._find(action.attempt)
        if here is None:
            return False
        if here.piece is not None:
            here.piece.stops[action.attempt] = action.why
            self.guards.send_to(here.piece.name, messages.Stop(action.attempt, self.grace))
            return True
        here.stop, here.keep = action.why, action.keep
        self._checkpoints.remove(action.attempt)  # what it writes from now on is looked at when it has ended
        log.info("stop attempt=%s why=%s", action.attempt, action.why)
        self.guards.send(messages.Stop(action.attempt, self.grace))
        return True

    def _find(self, attempt: str) -> Optional[_Here]:
        """The attempt, or the piece that it is one of and in which it has not ended."""
        here = self._here.get(attempt)
        if here is not None and here.piece is None:
            return here
        return next((one for one in self._here.values() if one.piece is not None and one.piece.has(attempt)), None)

    def shorten(self, action: Shorten) -> bool:
        """Take what has not begun of a piece from the guard; False if it is not here."""
        here = self._here.get(action.piece)
        if here is None or here.piece is None:
            return False
        self.guards.send(messages.Shorten(action.piece))
        return True

    def recall(self, action: Recall) -> None:
        """Take an attempt back that has not begun; the guard knows whether it has."""
        here = self._here.get(action.attempt)
        if here is not None and here.guarded:
            self.guards.send(messages.Stop(action.attempt, None))

    def signal(self, action: Signal) -> bool:
        """Send a signal to an attempt, if the guard finds that it runs; False if it is not here."""
        here = self._find(action.attempt)
        if here is not None and action.number in signal.valid_signals():
            log.info("signal attempt=%s number=%d", action.attempt, action.number)
            self.guards.send_to(here.lease.attempt, messages.SendSignal(action.attempt, action.number))
        return here is not None

    def watch(self, action: Watch) -> bool:
        """Upload what an attempt writes as it writes it; False if it is not here."""
        here = self._find(action.attempt)
        self._tails.watch(action.attempt, action.stream, proctree.now())
        return here is not None

    def directory(self, attempt: str) -> Optional[str]:
        """The directory that an attempt runs in; None if it is not here or has not begun."""
        here = self._find(attempt)
        return here.made.cwd if here is not None and here.made is not None and here.guarded else None

    def settle(self, action: Settle) -> None:
        """The server has decided on a report: nothing of the attempt stays here."""
        here = self._here.get(action.attempt)
        if here is None or here.piece is not None:
            return  # given back before it began, or one of a piece, which leaves nothing
        del self._here[action.attempt]
        self._tails.settle(action.attempt)
        if here.made is not None:
            work = partial(self._put_away, here.made, action.accepted)
            # One that was recalled from the queue comes again, and gets a directory of the same name: it is empty.
            was_recalled = here.after and here.started is None
            self._end_threads.do(work) if here.slow and not was_recalled else work()

    def contact(self, action: Contact) -> None:
        """Send the guard the time of the last contact."""
        self._contact, self._doubt = action.at, None
        if action.at < self._told_contact + CONTACT_EVERY:
            return  # that the guard counts from a little earlier does no harm
        self._told_contact = action.at
        self.guards.send(messages.LastContact(action.at, self._kill_after))  # the first has all exclusive tasks

    # --- from lease to guard
    def _prepare(self, here: _Here, gpus: tuple[int, ...]) -> Union[Prepared, StageError, OSError]:
        began = time.monotonic()
        try:
            with self._blobs.fetcher.while_wanted(lambda: not here.stop):
                made = self._stage.prepare(here.lease, gpus, self._blobs)
        except (StageError, OSError) as error:
            return error
        except (ValueError, ShoalError) as error:  # a name that no file can have, or a place that is none
            return StageError("stage_in", str(error))
        except Exception as error:  # whatever it is, the attempt must have an end, or its slot is held for ever
            log.exception("attempt=%s cannot be prepared", here.lease.attempt)
            return StageError("stage_in", f"it cannot be prepared: {type(error).__name__}: {error}")
        if made.own_dir or here.lease.restored:
            here.staged = time.monotonic() - began
        return made

    def _start(self, here: _Here, made: Union[Prepared, StageError, OSError]) -> None:
        before, here.before = here.before, None
        if before is not None and not before.guarded and not before.reported:
            # It is still being staged, and the guard would begin at once what waits for one that it does not know.
            before.followers.append(partial(self._start, here, made))
            return
        lease = here.lease
        if here.stop and isinstance(made, Exception):  # which may be why it could not be prepared
            self._end(here, Report(lease.attempt, "failed", "cancelled", here.stop))
            return
        if isinstance(made, OSError) and disk_space.is_full(made):
            made = NoSpace(self._work, made, "an attempt was prepared")
        if isinstance(made, NoSpace):
            # With the time that it took, by which the server counts it: files that never fit must not go on for ever.
            spent = max(here.staged, 1e-6)
            report = Report(lease.attempt, "returned", made.cause, str(made), evidence="no_space", staging=spent)
            self._end(here, report)
        elif isinstance(made, NotVisible):
            self._end(here, Report(lease.attempt, "returned", message=str(made), evidence=NOT_VISIBLE))
        elif isinstance(made, StageError):
            evidence = TOO_LARGE if isinstance(made, TooLarge) else NOT_VISIBLE if isinstance(made, NotSent) else ""
            self._end(here, Report(lease.attempt, "failed", made.cause, str(made), evidence=evidence))
        elif isinstance(made, OSError):
            self._give_back(here, f"host_unfit: cannot prepare in {self._work}: {made.strerror}")
        else:
            here.made = made
            here.out, here.err = made.own_streams.get("stdout", here.out), made.own_streams.get("stderr", here.err)
            if here.stop:
                self._end(here, Report(lease.attempt, "failed", "cancelled", here.stop))
            elif self.guard_lost:
                self._give_back(here, GUARD_GONE)
            elif here.piece is not None and made.own_dir:
                self._part(here, made)
            else:
                self._send_start(here, made)

    def _part(self, here: _Here, made: Prepared) -> None:
        """Have the commands of a piece begun one by one: this host does not see the submitter's directory, so each gets
        one of its own, which is emptied after its end and beside those that follow."""
        assert here.piece is not None
        self._put_away(made, False)  # here: the first of them comes again, and gets a directory of this name
        here.reported = True
        self._close_piece(here)
        self._feed(Called(here.piece.name, None, (), over=True, apart=True))
        self._start_followers(here)

    def _send_start(self, here: _Here, made: Prepared) -> None:
        lease, here.guarded = here.lease, True
        if lease.rerun == "exclusive":
            self._exclusive.add(lease.attempt)
        log.debug("begin attempt=%s cwd=%s", lease.attempt, made.cwd)
        start = messages.Start(
            lease.attempt,
            made.argv,
            made.cwd,
            made.own,
            here.out,
            here.err,
            self.grace,
            self._umask,
            stdin=made.stdin,
            base=made.base.number,
            after=here.after,
            time=lease.time,
            memory=lease.room.memory,
            cpu=lease.room.cores * lease.time + self.grace if lease.time is not None else None,
            file_size=max(lease.room.disk, lease.max_output) + STREAM_SLACK if lease.room.disk > 0 else None,
            exclusive=lease.attempt in self._exclusive,
            max_output=lease.max_output,
            own_streams=list(made.own_streams),
        )
        if made.start_stage is not None and made.start_stage.image:
            start.stage_file, start.container = made.start_stage.mark, made.start_stage.name
        is_plain = may_queue(lease) and not lease.room.memory
        request = start if here.piece is None else here.piece.start(start)
        self.guards.start(request, made.base.number, made.base.values, is_plain)
        for attempt in here.piece.stops if here.piece is not None else ():
            self.guards.send_to(lease.attempt, messages.Stop(attempt, self.grace))
        self._start_followers(here)

    def _start_followers(self, here: _Here) -> None:
        """The guard has it, or it is over: what was to follow it may be started."""
        followers, here.followers = here.followers, []
        for start in followers:
            start()

    # --- from guard to report
    def fileno(self) -> int:
        """For selectors."""
        return self.guards.fileno()

    def receive(self) -> None:
        """Process what the guard reports."""
        reports = self.guards.receive()
        over = {report.attempt for report in reports if type(report) is not messages.Started}
        self.guards.hold()  # what comes of all this is sent at once
        for report in reports:
            here = self._here.get(getattr(report, "piece", "") or report.attempt)
            if isinstance(report, (messages.Ran, messages.Shortened)) or (here is not None and here.piece is not None):
                self._on_piece(here, report)
                continue
            if here is None:
                self._others(report)
                continue
            if isinstance(report, messages.Started):
                here.started = report.at
                self._unfit_starts = 0
                if here.lease.attempt not in over:  # else the agent gets its end in a moment
                    if here.made is not None:
                        self._checkpoints.add(here.made, proctree.now())
                    self._feed(Started(here.lease.attempt))
                continue
            here.guarded = False
            self.guards.over(here.lease.attempt)
            self._exclusive.discard(here.lease.attempt)
            self._checkpoints.remove(here.lease.attempt)
            self._on_end(here, report)
        self.guards.flush()
        if self.guards.closed:
            self.on_guard_lost()

    def _on_end(self, here: _Here, report: messages.FromGuard) -> None:
        if isinstance(report, messages.NotStarted):
            self._on_not_started(here, report)
        elif isinstance(report, messages.Ended):
            here.left_out, here.sizes, here.wrote = report.left_out, report.sizes, report.wrote
            self._on_ended(here, outcome.judge(here.lease, report, here.started))

    def _on_piece(self, here: Optional[_Here], report: messages.FromGuard) -> None:
        """Process what the guard reports on a piece."""
        if here is None or here.piece is None:
            return  # it was given up
        piece = here.piece
        if isinstance(report, messages.Ran):
            if report.started:
                self._unfit_starts = 0
            if report.over:
                self._close_piece(here)
            batch = piece.take(report)
            self._feed(Called(piece.name, batch, (), report.over))
        elif isinstance(report, messages.Shortened):
            piece.count = min(piece.count, report.count)
            self._feed(Shortened(piece.name, report.count))
        elif isinstance(report, messages.Started):
            self._unfit_starts = 0
        else:
            lease = piece.take_one()
            one = _Here(lease, *streams.log_paths(piece.folder, lease.attempt), made=here.made, part_of=piece)
            if isinstance(report, messages.Ended):
                one.started, one.stop = report.started, piece.stops.pop(lease.attempt, "")
            self._on_end(one, report)

    def _close_piece(self, here: _Here) -> None:
        self.guards.over(here.lease.attempt)
        del self._here[here.lease.attempt]

    def _on_not_started(self, here: _Here, failure: messages.NotStarted) -> None:
        report = outcome.not_started(here.lease, failure)
        if report.cause == "host_unfit" and report.evidence != "no_space":
            self._unfit_starts += 1
            if self._unfit_starts >= MAX_UNFIT:
                self._unfit(f"host_unfit: {report.message}")
        self._end(here, report)

    def _on_ended(self, here: _Here, report: Report) -> None:
        assert here.made is not None
        if here.made.own_dir and report.cause == "task_error":
            why = self._space.reason((self._work,), proctree.now(), "the task ran there")
            if why:  # perhaps that is all that was wrong with it
                report = replace(report, outcome="returned", cause="host_unfit", message=why, evidence="no_space")
        end = End(here.made, report, here.err, here.stop, here.keep, here.staged)
        if end.is_slow:
            self._end_threads.do(lambda: self._post(partial(self._end, here, end.finish(self._stage, self._blobs))))
        else:
            self._end(here, end.finish(self._stage, None))

    def _give_back(self, here: _Here, why: str) -> None:
        """The host, not the task, is at fault; it takes no more."""
        # First leave: an end frees a slot, in which nothing new may begin.
        self._unfit(why)
        self._end(here, given_back(here.lease.attempt, why, here.started))

    def _end(self, here: _Here, report: Report) -> None:
        if here.reported:
            return
        here.reported, here.guarded = True, False
        self._start_followers(here)
        if report.evidence == "no_space":
            self._pause(report.message)
        if here.piece is not None:  # nothing of it began, or the guard is lost: what holds for one holds for all
            self._close_piece(here)
            all_of_it = tuple(replace(report, attempt=attempt) for attempt in here.piece.left)
            self._feed(Called(here.piece.name, None, all_of_it, over=True))
            return
        self._exclusive.discard(report.attempt)
        last = streams.last_line(here.out) if "stdout" in here.wrote else ""
        tail = ""
        if report.outcome != "succeeded" and "stderr" in here.wrote:
            tail = streams.tail(here.err, MAX_STDERR_TAIL)
        if last or tail:
            report = replace(report, last_line=last, stderr_tail=tail)
        if here.sizes:
            kept = {name: 0 if name in here.own_streams else size for name, size in here.sizes.items()}
            report = replace(report, out=kept.get("stdout", 0), err=kept.get("stderr", 0))
        if here.left_out:
            is_full = report.evidence == "no_space"
            report = replace(report, message=streams.not_whole(report.message, here.left_out, is_full))
        log.debug("end attempt=%s outcome=%s cause=%s", report.attempt, report.outcome, report.cause)
        if here.part_of is not None:  # pieces run only where the server reads the streams itself
            self._feed(Called(here.part_of.name, None, (report,), False))
            return
        self._tails.end(report.attempt, here.left_out)
        self._feed(Ended(report, tuple(self._tails.read(proctree.now())), self._tails.has_more))

    def _put_away(self, made: Prepared, accepted: bool) -> None:
        for wrong in self._stage.settle(made, accepted):
            log.error("attempt=%s %s", made.lease.attempt, wrong)

    # --- supervision of the guard
    def deadline(self) -> Optional[float]:
        """When `tick` is due at the latest."""
        times = [at for at in (self._guard_deadline(), self._checkpoints.deadline()) if at is not None]
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Check the guard, and look at checkpoint files."""
        self._check_guard(now)
        self._checkpoints.tick(now)

    def _guard_deadline(self) -> Optional[float]:
        """When to check that the guard ended the exclusive tasks as it should; None where there is none."""
        if self.guard_lost or not self._exclusive:
            return None
        due = (self._contact + self._kill_after if self._doubt is None else self._doubt) + GUARD_LATE
        return due if due < float("inf") else None

    def _check_guard(self, now: float) -> None:
        """Give up a guard that is too late."""
        due = self._guard_deadline()
        if due is None or now < due:
            return
        if self._doubt is None:
            self._doubt = now  # perhaps the whole host slept, and the guard wakes as we do: once more
        else:
            log.error("guard does not act pid=%d", self.guards.pids[0])
            self.on_guard_lost()

    def on_guard_lost(self) -> None:
        """Without a guard no task may live: end them all, give them back, leave."""
        if self.guard_lost:
            return
        self.guard_lost = True
        log.error("guard lost pids=%s attempts=%s", self.guards.pids, ",".join(self._here) or "none")
        self.guards.close()
        self.guards.kill()
        proctree.kill_children(5.0)
        self._unfit(GUARD_GONE)
        for here in [here for here in self._here.values() if here.guarded]:
            if here.piece is not None:
                here.started = 0.0  # any of it may have begun
            self._give_back(here, GUARD_GONE)

    def close(self) -> None:
        """End the guard and whatever is left; wait for the file threads."""
        self._checkpoints.close()
        if not self.guard_lost:
            self.guards.quit()
            self.guards.wait(7.0)
        proctree.kill_children(5.0)
        # What the server never accepted leaves no half-published outputs.
        for here in self._here.values():
            if here.made is not None:
                self._end_threads.do(partial(self._put_away, here.made, False))
        for here in self._here.values():
            here.stop = here.stop or "the pilot ends"  # nothing is fetched for it any more
        self._file_threads.finish(60.0)
        self._end_threads.finish(60.0)
