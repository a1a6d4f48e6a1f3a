"""The thread that listens for results: a long poll while somebody waits, and what has to be done at the very end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING

from shoal.client.connection.reconnect import ServerConnection, Stopped, say
from shoal.client.executor.outcome import INITIALIZER, MESSAGE, STATE, SUCCEEDED, rows_of_page
from shoal.model.errors import ShoalError, Unreachable

if TYPE_CHECKING:
    from shoal.client.executor.stream import Stream

WAIT = 10.0  # seconds that a question is held back for news
LINGER = 5.0  # seconds of listening after the last result: the next call finds the question already asked
FEW, MANY = 64, 256  # a page of few rows while many are missing: let news gather, a question each would be rude
GATHER = 0.01
WHY_AFTER = 10.0  # seconds without any result until the person is told why, if nothing runs


class ResultPoll:
    """Results of one stream as they come."""

    def __init__(self, stream: Stream, line: ServerConnection, lock: threading.Lock) -> None:
        self.after = 0  # the place in the journal up to which results were read
        self._stream, self._line = stream, line
        self._more = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._active = 0.0  # when a call was added or a result came
        self._stopped = False
        self._reason = ""
        self._nonce = ""  # of the run, since the first answer

    @property
    def is_mine(self) -> bool:
        """Is this the feed's own thread?"""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """There is something to wait for. Under the stream's lock."""
        self._active = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shoal-feed", daemon=True)
            self._thread.start()
        else:
            self._more.notify()

    def stop(self) -> None:
        """Nothing is waited for any more. Under the stream's lock."""
        self._stopped = True
        self._more.notify()
        self._line.cut()

    def _run(self) -> None:
        try:
            while self._wait():
                self._look()
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
            self._line.drop()
            self._stream.finish()

    def _wait(self) -> bool:
        """Until there is something to listen for; False at the end."""
        with self._more:
            while not self._stopped and not self._stream.left and time.monotonic() - self._active > LINGER:
                self._more.wait()
            return not self._stopped

    def _look(self) -> None:
        run, left = self._stream.run, self._stream.left
        try:
            page = self._line.ask(
                lambda client: client.results(run, self.after, wait=WAIT), None if left else 0.0
            )  # fmt: skip
        except Unreachable:
            if left:
                raise
            self._active = 0.0  # a server that ended for want of work is not started for listening's sake
            return
        nonce = str(page.get("nonce") or "")
        if self._nonce and nonce != self._nonce:
            self._stream.break_off(BrokenExecutor(f"{run} is another run now: the server's database was rolled back"))
            return
        self._nonce = nonce
        rows = [*rows_of_page(page, self._line.trust), *self._stream.rows_of(page.get("closed") or ())]
        self.after = max(self.after, int(page["last"]))
        if rows:
            self._active, self._reason = time.monotonic(), ""
            self._stream.take(rows)
            self._check(rows)
            if len(rows) < FEW and self._stream.left > MANY:
                time.sleep(GATHER)
        elif left and time.monotonic() - self._active > WHY_AFTER:
            self._tell_why(run)

    def _check(self, rows: list[list[object]]) -> None:
        for row in rows:
            if row[STATE] != SUCCEEDED and str(row[MESSAGE]).startswith(INITIALIZER):
                self._stream.break_off(BrokenExecutor(str(row[MESSAGE])), cancel=True)
                return

    def _tell_why(self, run: str) -> None:
        """Nothing came for long: if nothing runs either, say why, once for each reason."""
        try:
            newest = self._line.ask(lambda client: client.runs(limit=1, before=f"r{int(run[1:]) + 1}"), 0.0)
            if any((row.get("counts") or {}).get("live") for row in newest["runs"]):  # its row without its arrays
                return
            reasons = self._line.ask(lambda client: client.why(run), 0.0).get("reasons") or [{"text": ""}]
        except ShoalError:
            return
        text = str(reasons[0]["text"]) + (f" ({reasons[0]['fix']})" if reasons[0].get("fix") else "")
        if text and text != self._reason:
            self._reason = text
            say(f"{run} waits: {text}")
