"""The other server: tasks are submitted to it, cancelled, and their ends are awaited, on two threads.

Every request is repeated until the server answers, and none of them counts twice: a submission has a key, and the end of a run
can be read as often as one likes. So either server may be killed at any time. Where it refuses, the attempt that the request was
for is reported all the same: no attempt may stay without an end, and neither thread ends before the bridge does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from shoal.bridge.translate import given_back, report_of, submission_of
from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.model.errors import EventsGone, NotFound, Refused, ShoalError
from shoal.model.ids import run_text
from shoal.wire.messages import Lease, Report

log = logging.getLogger(__name__)
ENDS = ("task_finished", "tasks_closed")
HELD = 5.0  # seconds that a request for news is held
PAUSE = 5.0  # seconds after a request for news that was refused
PATIENCE = float(
    10 * 365 * 86_400
)  # seconds without an answer: the bridge waits for the other server as long as it lives

Deliver = Callable[[Report], None]


class Peer:
    """One other server, as one of its users."""

    def __init__(self, server: str | None, origin: str, deliver: Deliver, began: Callable[[str], None]) -> None:
        link = Reconnecting(server, PATIENCE)
        self._orders, self._news = ServerConnection(link), ServerConnection(link)
        self._origin, self._deliver, self._began = origin, deliver, began
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._runs: dict[str, str] = {}  # attempt -> its run over there
        self.refused = ""  # why the other server takes nothing now
        self._is_swept = False  # runs over there that nobody here knows are withdrawn
        self._end = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._send, self._follow)]

    def start(self) -> None:
        """Connect, withdraw what a bridge before this one left there, and work."""
        self._queue.put(self._sweep_once)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Withdraw what is there, and end."""
        with self._mutex:
            left = list(self._runs)
        for attempt in left:
            self.withdraw(attempt, "the bridge ends")
        self._queue.put(None)
        self._threads[0].join(10.0)
        self._end.set()
        self._orders.cut()
        self._news.cut()

    # --- from the loop
    def take(self, lease: Lease) -> None:
        """Have a task run over there."""
        self._queue.put(lambda: self._submit(lease))

    def withdraw(self, attempt: str, why: str) -> None:
        """End a task over there."""
        self._queue.put(lambda: self._cancel(attempt, why))

    # --- the thread that sends
    def _send(self) -> None:
        while (do := self._queue.get()) is not None:
            try:
                do()
            except Stopped:
                return
            except ShoalError as error:
                log.error("the other server refuses: %s", error)
            except Exception:  # one request; those behind it are made all the same
                log.exception("a request to the other server failed")

    def _sweep_once(self) -> None:
        """Withdraw the runs over there that nobody here knows; again before the next submission, if that is refused."""
        if self._is_swept:
            return
        runs = self._orders.ask(lambda client: client.runs("open", f"bridge-{self._origin}", 1_000))["runs"]
        left = [str(row["run"]) for row in runs]
        if left:
            log.info("runs of an earlier bridge are withdrawn: %d", len(left))
            self._orders.ask(lambda client: client.cancel(left))
        self._is_swept = True

    def _submit(self, lease: Lease) -> None:
        attempt = lease.attempt
        try:
            document = submission_of(lease, self._origin)
            self._sweep_once()
            run = str(self._orders.ask(lambda client: client.submit(document))["run"])
        except ShoalError as error:
            self.refused = error.message
            self._deliver(given_back(attempt, f"the other server takes it not: {error.message}"))
            return
        except Stopped:
            raise
        except Exception as error:  # whatever it is, the attempt must have an end
            log.exception("attempt=%s cannot be submitted", attempt)
            self._deliver(given_back(attempt, f"it cannot be submitted there: {type(error).__name__}: {error}"))
            return
        self.refused = ""
        with self._mutex:
            self._runs[attempt] = run
        self._began(attempt)
        self._look(attempt, run, self._orders)  # its end may have been told before its number was known here

    def _cancel(self, attempt: str, why: str) -> None:
        with self._mutex:
            run = self._runs.pop(attempt, None)
        if run is None:
            return  # what is sent is sent in order: so it was refused, or is over
        try:
            self._orders.ask(lambda client: client.cancel([run]))
        except ShoalError as error:  # it may run there to its end, which counts for nothing
            log.error("run=%s cannot be withdrawn there: %s", run, error)
        self._deliver(Report(attempt, "failed", "cancelled", why))

    # --- the thread that follows
    def _follow(self) -> None:
        after: int | None = None
        doubtful: set[str] = set()  # attempts of which we could not learn what became of them
        while True:
            try:
                after = self._read_on(after, doubtful)
                if not doubtful:
                    continue
            except Stopped:
                return
            except Refused as error:  # our token ended or was revoked: so it withdraws what it has of ours
                self._give_all_back(error)
            except ShoalError as error:
                log.warning("the other server tells no news: %s", error)
            except Exception:  # whatever it is, what runs there must have an end here
                log.exception("news of the other server cannot be read")
            if self._end.wait(PAUSE):
                return

    def _read_on(self, after: int | None, doubtful: set[str]) -> int | None:
        """Read one page of news and report what ended; returns where to go on. None: all that we know is looked at, which is so
        at first and where what we followed is not kept any more."""
        ended: set[str] = set()
        if after is None:
            after = int(self._news.ask(lambda client: client.server())["last_seq"])
        else:
            since = after
            try:
                page = self._news.ask(lambda client: client.events(since, wait=HELD, kinds=ENDS))
            except EventsGone as error:
                log.warning("events of the other server are missing: %s", error)
                return None
            after = int(page["last"])
            ended = {run_text(int(event["run"])) for event in page["events"]}
        with self._mutex:
            known = [(a, run) for a, run in self._runs.items() if not ended or run in ended or a in doubtful]
        doubtful.clear()
        for attempt, run in known:
            try:
                self._look(attempt, run, self._news)
            except Refused:
                raise
            except ShoalError as error:  # the others are looked at all the same
                log.warning("attempt=%s run=%s cannot be looked at: %s", attempt, run, error)
                doubtful.add(attempt)
        return after

    def _give_all_back(self, error: Refused) -> None:
        """What is over there runs elsewhere, and is withdrawn there as soon as that is possible."""
        log.error("the other server refuses: %s", error)
        self.refused = error.message
        with self._mutex:
            left, self._runs = list(self._runs), {}
        self._is_swept = self._is_swept and not left
        for attempt in left:
            self._deliver(given_back(attempt, f"the other server does not tell of it any more: {error.message}"))

    def _look(self, attempt: str, run: str, connection: ServerConnection) -> None:
        """Report a task if it is over."""
        try:
            found = connection.ask(lambda client: client.task(f"{run}.1"))
            is_over = found["state"] in ("succeeded", "failed", "cancelled", "lost")
            report = report_of(attempt, found)
        except NotFound as error:
            is_over, report = True, given_back(attempt, f"the other server does not know it any more: {error.message}")
        if is_over:
            with self._mutex:
                was_here = self._runs.pop(attempt, None) is not None
            if was_here:
                self._deliver(report)
