"""The thread that polls for results: long polls while calls are unfinished, then the end of the stream."""

from __future__ import annotations

import threading
import time
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any

from shoal.client.connection.reconnect import ServerConnection, Stopped
from shoal.client.console import say
from shoal.client.executor.outcome import ResultRow, broken_by_initializer, closed_ranges, rows_of_page
from shoal.model.errors import ShoalError, Unreachable
from shoal.model.states import Cause

if TYPE_CHECKING:
    from shoal.client.executor.stream import Stream

WAIT = 10.0  # seconds that the server holds a poll until there are results
LINGER = 5.0  # seconds of polling after the last result: the next call finds a poll under way
FEW, MANY = 64, 256  # a page of few rows while many are missing: let results gather, to send fewer requests
GATHER = 0.01
WHY_AFTER = 10.0  # seconds without any result until the person is told why, if nothing runs


class ResultPoll:
    """Polls for the results of one stream."""

    def __init__(self, stream: Stream, connection: ServerConnection, lock: threading.Lock) -> None:
        self.after = 0  # the event up to which results were read
        self._stream, self._connection = stream, connection
        self._changed = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._active = 0.0  # when a call was added or a result came
        self._is_held = False  # an addition is under way whose answer may bring what it waits for
        self._page: dict[str, Any] | None = None  # that came with such an answer
        self._comes_early = False  # the last addition brought its result, so the next one may, too
        self._stopped = False
        self._reason = ""
        self._nonce = ""  # of the run, since the first response
        self._told_raise, self._retries_after = False, 0  # the event up to which retries were read

    def join(self) -> None:
        """Wait until the polling thread has ended. Called when the stream is closed."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def is_current_thread(self) -> bool:
        """True if the caller is the polling thread."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Poll, because a call was added. Under the stream's lock."""
        self._active = time.monotonic()
        self._is_held = self._comes_early = False
        self._begin()

    def hold(self) -> None:
        """A call is being added whose result may come with the answer: wait for that. Under the stream's lock."""
        self._is_held = True
        self._begin()

    def added(self, page: dict[str, Any] | None) -> None:
        """The answer to such an addition is here: read the results that came with it, or poll. Under the stream's lock."""
        if page is None:
            self.wake()
            return
        self._is_held, self._comes_early, self._page = False, True, page
        self._changed.notify()

    def _begin(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="shoal-results", daemon=True)
            self._thread.start()
        else:
            self._changed.notify()

    def stop(self) -> None:
        """End the polling. Under the stream's lock."""
        self._stopped = True
        self._changed.notify()
        self._connection.cut()

    def _run(self) -> None:
        try:
            while self._wait():
                self._poll()
        except Stopped:
            pass
        except Unreachable as error:
            self._stream.break_off(BrokenExecutor(f"the server is gone: {error.line}"))
        except ShoalError as error:
            self._stream.break_off(BrokenExecutor(f"no results of {self._stream.run} any more: {error.line}"))
        except BaseException as error:  # a defect of ours must not look like a wait
            self._stream.break_off(BrokenExecutor(f"the results could not be read: {error!r}"))
            raise
        finally:
            self._connection.drop()
            self._stream.finish()

    def _wait(self) -> bool:
        """Wait until there is a page, or a call is unfinished; False at the end."""
        with self._changed:
            while not self._stopped and self._page is None and (self._is_held or self._is_idle()):
                self._changed.wait()
            return not self._stopped

    def _is_idle(self) -> bool:
        if self._stream.left:
            return False
        return self._comes_early or time.monotonic() - self._active > LINGER

    def _poll(self) -> None:
        run, left = self._stream.run, self._stream.left
        page, self._page = self._page, None
        if page is None:
            try:
                page = self._connection.ask(
                    lambda client: client.results(run, self.after, wait=WAIT), None if left else 0.0
                )  # fmt: skip
            except Unreachable:
                if left:
                    raise
                self._active = 0.0  # a server that ended for want of work is not started just to be polled
                return
        elif int(page["last"]) <= self.after:
            return  # a poll that was under way had it, too
        nonce = str(page.get("nonce") or "")
        if self._nonce and nonce != self._nonce:
            self._stream.break_off(BrokenExecutor(f"{run} is another run now: the server's database was rolled back"))
            return
        self._nonce = nonce
        rows = [*rows_of_page(page, self._connection.trust), *self._stream.closed_rows(closed_ranges(page))]
        self.after = max(self.after, int(page["last"]))
        if rows:
            self._active, self._reason = time.monotonic(), ""
            if not self._told_raise and any(row.attempt > 1 for row in rows):
                self._tell_raise(run)
            broken = next((row for row in rows if row.cause == Cause.INITIALIZER), None)
            self._stream.receive([row for row in rows if row.cause != Cause.INITIALIZER] if broken else rows)
            if broken is not None:
                self._break(broken)
            elif len(rows) < FEW and self._stream.left > MANY:
                time.sleep(GATHER)
        elif left and time.monotonic() - self._active > WHY_AFTER:
            self._tell_why(run)

    def _break(self, row: ResultRow) -> None:
        """The initializer failed: no call can be made, and all that are not done hear of it."""
        self._stream.break_off(broken_by_initializer(self._stream.run, row), cancel=True)

    def _tell_raise(self, run: str) -> None:
        """Say once that a call ran out of its memory and was made again with more, as the commands do."""
        try:
            page = self._connection.ask(
                lambda client: client.events(self._retries_after, run, kinds=["task_retried"]), 0.0
            )
        except ShoalError:
            return
        self._retries_after = int(page["last"])
        for event in page["events"]:
            data = event.get("data") or {}
            if data.get("memory"):
                self._told_raise = True
                say(
                    f"{run}.{event['task']} ran out of memory and was tried again with {data.get('why')}; further ones are "
                    f"not told (memory= states more, max_memory= bounds it; `shoal events {run}`)"
                )
                return

    def _tell_why(self, run: str) -> None:
        """Say why nothing runs, once for each reason; only called after a long time without results."""
        try:
            row = self._connection.ask(lambda client: client.run_row(run), 0.0)
            if (row.get("counts") or {}).get("live"):
                return
            reasons = self._connection.ask(lambda client: client.why(run), 0.0).get("reasons") or [{"text": ""}]
        except ShoalError:
            return
        text = str(reasons[0]["text"]) + (f" ({reasons[0]['fix']})" if reasons[0].get("fix") else "")
        if text and text != self._reason:
            self._reason = text
            say(f"{run} waits: {text}")
