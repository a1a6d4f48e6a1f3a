"""The other server: tasks are submitted to it, cancelled, and their ends are awaited, on two threads.

Every request is repeated until the server answers, and none of them counts twice: a submission has a key, and the end of a run
can be read as often as one likes. So either server may be killed at any time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from shoal.bridge.translate import given_back, report_of, submission_of
from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.model.errors import NotFound, ShoalError
from shoal.model.ids import run_text
from shoal.wire.messages import Lease, Report

log = logging.getLogger(__name__)
ENDS = ("task_finished", "tasks_closed")
HELD = 5.0  # seconds that a request for news is held
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
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._send, self._follow)]

    def start(self) -> None:
        """Connect, withdraw what a bridge before this one left there, and work."""
        self._queue.put(self._sweep)
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

    def _sweep(self) -> None:
        runs = self._orders.ask(lambda client: client.runs("open", f"bridge-{self._origin}", 1_000))["runs"]
        left = [str(row["run"]) for row in runs]
        if left:
            log.info("runs of an earlier bridge are withdrawn: %d", len(left))
            self._orders.ask(lambda client: client.cancel(left))

    def _submit(self, lease: Lease) -> None:
        attempt = lease.attempt
        document = submission_of(lease, self._origin)
        try:
            run = str(self._orders.ask(lambda client: client.submit(document))["run"])
        except ShoalError as error:
            self.refused = error.message
            self._deliver(given_back(attempt, f"the other server takes it not: {error.message}"))
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
        self._orders.ask(lambda client: client.cancel([run]))
        self._deliver(Report(attempt, "failed", "cancelled", why))

    # --- the thread that follows
    def _follow(self) -> None:
        try:
            after = int(self._news.ask(lambda client: client.server())["last_seq"])
            while True:
                page = self._page(after)
                after = int(page["last"])
                ended = {run_text(int(event["run"])) for event in page["events"]}
                with self._mutex:
                    known = [(a, run) for a, run in self._runs.items() if run in ended or not page["events"]]
                for attempt, run in known:
                    self._look(attempt, run, self._news)
        except Stopped:
            return

    def _page(self, after: int) -> dict[str, Any]:
        try:
            return self._news.ask(lambda client: client.events(after, wait=HELD, kinds=ENDS))
        except NotFound:
            raise
        except ShoalError as error:  # what we followed is not kept any more: every task is looked at
            log.warning("events of the other server are missing: %s", error)
            return {"events": [], "last": int(self._news.ask(lambda client: client.server())["last_seq"])}

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
