"""Function calls on this host: the runners of a pilot, with their blobs, environments and logs.

All methods run on the loop's thread; blobs move on the file threads.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from typing import Optional

from shoal.model.file_names import SUFFIX
from shoal.model.ids import parse_attempt
from shoal.model.task.visible import NOT_VISIBLE
from shoal.pilot.agent.events import Begin, Called, Event, Shorten, Shortened, Signal, Stop, Watch
from shoal.pilot.commands import streams
from shoal.pilot.commands.files import not_visible
from shoal.pilot.commands.staging import Staging
from shoal.pilot.executor import GUARD_GONE
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.functions.runners import Runners
from shoal.pilot.guard import proctree
from shoal.pilot.guard.messages import OnProcess, ToGuard
from shoal.pilot.host import disk_space
from shoal.pilot.host.file_threads import FileThreads
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.log_upload import LogUpload
from shoal.wire.batches import report_of
from shoal.wire.chunk import names, shift
from shoal.wire.messages import Batch, Lease, Registered, Report

log = logging.getLogger(__name__)

IN_USE = 120.0  # seconds after which a runner has surely opened the blob that it needed
Then = Callable[[Optional[str], str], None]


class FunctionExecutor:
    """The runners of a pilot, with their blobs, environments and logs."""

    def __init__(
        self,
        stage: Staging,
        umask: int,
        cores: int,
        send_guard: Callable[[ToGuard], None],
        feed: Callable[[Event], None],
        post: Callable[[Callable[[], None]], None],
        pause: Callable[[str], None],
        tails: LogUpload,
        blobs: Blobs,
    ) -> None:
        self._stage, self._feed, self._post, self._tails, self._blobs = stage, feed, post, tails, blobs
        self._pause = pause  # no more tasks while there is no disk space
        self._is_near = False  # the server reads our logs where we write them
        self._gpus: dict[str, tuple[int, ...]] = {}
        self._log_dir = os.path.join(stage.facts.work, "logs")
        self._file_threads = FileThreads()
        self._space = disk_space.Space()
        self._fetched: deque[tuple[float, str]] = deque()
        self._looking: dict[
            str, list[Stop]
        ] = {}  # calls whose files are being looked for, and what was asked meanwhile
        self._runners = Runners(
            send_guard=send_guard,
            work=stage.facts.work,
            prepare=self._prepare,
            fetch=self._fetch,
            store=self._store,
            ended=self._on_ended,
            log_paths=lambda attempt: streams.log_paths(self._log_dir, attempt),
            grace=10.0,
            umask=umask,
            cores=cores,
        )

    def on_joined(self, registered: Registered) -> None:
        """Apply the server's settings on logs and times."""
        shared = streams.shared_log_folder(registered)
        self._is_near, self._log_dir = bool(shared), shared or os.path.join(self._stage.facts.work, "logs")
        self._runners.grace = registered.grace
        self._blobs.joined(registered.session, registered.blob_dir if shared else "")

    def lack(self) -> str:
        """Why calls can write nothing now; empty while they can."""
        folders = (self._stage.facts.work, self._log_dir)
        return self._space.reason(folders, proctree.now(), "calls wrote output and results")

    # --- the agent's actions
    def begin(self, action: Begin) -> None:
        """Have a runner make these calls."""
        lease, visibility = action.lease, self._stage.visibility
        self._gpus[lease.attempt] = action.gpus
        if visibility.is_known(lease.visible):
            self._start(lease, visibility.missing(lease.visible))
            return
        self._looking[lease.attempt] = []
        self._file_threads.do(lambda: self._post(partial(self._start, lease, visibility.missing(lease.visible))))

    def _start(self, lease: Lease, missing: str) -> None:
        """Hand calls to a runner, or give them back where the submitter's files are not seen."""
        stops = self._looking.pop(lease.attempt, [])
        if missing:
            back = [Report(a, "returned", message=not_visible(missing), evidence=NOT_VISIBLE) for a in names(lease)]
            self._on_ended(lease.attempt, None, tuple(back), True)
            return
        self._runners.start(lease)
        for stop in stops:
            self._runners.stop(stop.attempt, stop.why)

    def stop(self, action: Stop) -> bool:
        """End a call, or keep it from starting; False if it is not here."""
        for first, stops in self._looking.items():
            attempt, other = parse_attempt(first), parse_attempt(action.attempt)
            if attempt._replace(element=other.element) == other:
                stops.append(action)
                return True
        return self._runners.stop(action.attempt, action.why)

    def signal(self, action: Signal) -> bool:
        """Send a signal to a call if it runs; False if it is not here."""
        return self._runners.signal(action.attempt, action.number)

    def note_waiting(self, piece: str, is_waiting: bool) -> None:
        """A call of a piece began or ceased to wait for other tasks; the calls before it are reported first."""
        self._runners.note_waiting(piece, is_waiting)

    def shorten(self, action: Shorten) -> None:
        """Take the calls of a piece that have not begun from its runner."""
        count = self._runners.shorten(action.piece)
        if count is not None:
            self._feed(Shortened(action.piece, count))

    def _prepare(self, lease: Lease) -> tuple[dict[str, str], str]:
        return self._stage.surroundings(lease, self._gpus.get(lease.attempt, ()))

    def _on_ended(self, piece: str, batch: Optional[Batch], reports: tuple[Report, ...], over: bool) -> None:
        if over:
            self._gpus.pop(piece, None)
        lack = self.lack() if batch is not None or reports else ""
        if lack:
            reports, batch = tuple(_give_back(batch, reports, lack)), None
            self._pause(lack)
        if not self._is_near:
            for attempt in _writers(batch, reports):
                self._tails.add(attempt, dict(zip(SUFFIX, streams.log_paths(self._log_dir, attempt))))
                self._tails.end(attempt, ())
                self._tails.settle(attempt)  # the files are not needed once they were sent
        self._feed(Called(piece, batch, reports, over))

    def watch(self, action: Watch) -> bool:
        """Have what a call writes seen while it writes it; False: it is no call that runs here."""
        files = self._runners.files(action.attempt)
        if files is None:
            return False
        if self._is_near:
            for path, log_path in zip(files, streams.log_paths(self._log_dir, action.attempt)):
                with contextlib.suppress(OSError):  # it is there already, or nothing was written yet
                    os.makedirs(os.path.dirname(log_path), mode=0o700, exist_ok=True)
                    os.link(path, log_path)
        else:
            self._tails.add(action.attempt, dict(zip(SUFFIX, files)))
            self._tails.watch(action.attempt, action.stream, proctree.now())
        return True

    def directory(self, attempt: str) -> Optional[str]:
        """The directory that the calls of a piece are made in; None if it is not here."""
        return self._runners.directory(attempt)

    # --- blobs
    def _fetch(self, digest: str, then: Then) -> None:
        self._file_threads.do(lambda: self._carry(lambda blobs: blobs.fetch(digest), then, digest))

    def _store(self, path: str, then: Then) -> None:
        self._file_threads.do(lambda: self._carry(lambda blobs: blobs.store(path), then))

    def _carry(self, work: Callable[[Blobs], str], then: Then, fetched: str = "") -> None:
        """On a file thread: move bytes, and post the result to the loop."""
        found: Optional[str] = None
        error = ""
        try:
            found = work(self._blobs)
        except (NoBlob, OSError) as failure:
            error = str(failure)
        except Exception as failure:  # whatever it is, the call must have an end
            log.exception("bytes of a call cannot be moved")
            error = f"{type(failure).__name__}: {failure}"

        def deliver() -> None:
            if fetched and found is not None:
                self._fetched.append((proctree.now() + IN_USE, fetched))
            then(found, error)

        self._post(deliver)

    # --- messages, time and ends
    def fileno(self) -> int:
        """For selectors."""
        return self._runners.fileno()

    def receive(self) -> None:
        """Process what runners report."""
        self._runners.receive()

    def on_guard_message(self, report: OnProcess) -> bool:
        """Process what the guard reports on a runner; False if it is of something else."""
        return self._runners.hear_guard(report)

    def on_guard_lost(self) -> None:
        """Every runner died with the guard: give every call back."""
        self._runners.abandon(GUARD_GONE)

    def deadline(self) -> Optional[float]:
        """When `tick` is due at the latest."""
        times = (self._runners.deadline(), self._fetched[0][0] if self._fetched else None)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Check the limits of calls, idle runners, and blobs that are open by now."""
        self._runners.tick(now)
        while self._fetched and self._fetched[0][0] <= now:
            _, digest = self._fetched.popleft()
            self._blobs.free(digest)

    def close(self) -> None:
        """End the runners and whoever waits for bytes."""
        self._blobs.close()
        self._runners.close()
        self._file_threads.finish(5.0)


def _give_back(batch: Optional[Batch], reports: tuple[Report, ...], why: str) -> Iterator[Report]:
    """Calls that ended while the disk was full: what they wrote, and large results, may be lost, whatever they returned."""
    ended = [report_of(batch, at) for at in range(batch.count)] if batch is not None else []
    for report in (*ended, *reports):
        if report.cause in ("cancelled", "over_time", "out_of_memory"):
            yield report
        else:
            # With its duration, by which the server counts it: a call that never fits must not go on for ever.
            yield Report(
                report.attempt, "returned", "host_unfit", why, started=report.started, duration=report.duration,
                evidence="no_space",
            )  # fmt: skip


def _writers(batch: Optional[Batch], reports: tuple[Report, ...]) -> list[str]:
    """The attempts that wrote something."""
    found = [report.attempt for report in reports if report.out or report.err]
    if batch is not None and (batch.out or batch.err):
        first = parse_attempt(batch.attempt)
        pairs = zip_longest(batch.out, batch.err, fillvalue=0)
        found += [str(shift(first, at)) for at, pair in enumerate(pairs) if any(pair)]
    return found
