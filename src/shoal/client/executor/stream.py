"""An open run as a stream: calls in, results out, over any number of servers that come and go [ADR 0009].

Rules:
- Elements get their numbers when they are sent, in the order of submission, so the same script has the same numbers
  and seeds. One thread sends at a time; what comes meanwhile goes out together with the next addition.
- An addition is repeated under the same number until it is answered: added once, never lost.
- Whoever is to get a result is registered before the call is sent, for the result may be faster than the answer.
- A call submitted when nothing else is on its way is sent by the caller's own thread: one thread less to wait for.
- `left` counts calls that somebody waits for. The end happens in the feed's thread, whoever asked for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any

from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.client.executor.background import Background
from shoal.client.executor.control import HASTY, Control
from shoal.client.executor.futures import Batch, CallFuture
from shoal.client.executor.open_run import OpenRun
from shoal.client.executor.outcome import DIGEST, RESULT, Closed, Row, closed_row
from shoal.client.executor.pending_calls import MAX_SENT, TAKEN_BACK, Piece, Waiters
from shoal.client.executor.printed_output import PrintedOutput
from shoal.client.executor.result_poll import ResultPoll
from shoal.model.errors import Conflict, ShoalError, Unreachable
from shoal.model.limits import MAX_SPECS

CLOSE_WITHIN = 10.0  # seconds that the end waits for a lost server
GRACE = 0.2  # seconds until the rest of a map is cancelled: Ctrl-C ends a loop first, and then detaches

Opener = Callable[[ServerConnection, tuple[str, str]], OpenRun]


class Stream:
    """One open run and everybody who waits for its results. Any thread may call any method."""

    def __init__(self, link: Reconnecting, opener: Opener, echo: bool = True) -> None:
        self.run = ""
        self.is_foreign = False  # inherited through a fork: the parent's, to be left alone
        self.broken: BaseException | None = None
        self.closed, self._gone = threading.Event(), threading.Event()  # ended; broken or detached
        self.control = Control(link)
        self._opener = opener
        self._opened: OpenRun | None = None
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for the sender
        self._sent = threading.Condition(self._lock)  # for who waits until nothing is being sent
        self._up, self._blob_line = ServerConnection(link), ServerConnection(link)
        self._pending: deque[Piece] = deque()
        self._unsent: tuple[int, list[Piece]] | None = None  # numbered, but the answer is missing
        self._waiters = Waiters()
        self._next = 1
        self._left = 0
        self._sending = self._closing = self._drops = False
        self._sender: threading.Thread | None = None
        self._feed = ResultPoll(self, ServerConnection(link), self._lock)
        self._blobs, self._chores = Background("shoal-blobs"), Background("shoal-chores")
        self._echo = PrintedOutput(link, self._chores) if echo else None

    @property
    def left(self) -> int:
        """Calls without a result."""
        return self._left

    # --- calls in
    def open(self, probe: tuple[str, str] = ("", "")) -> OpenRun:
        """The run, made or found again when the first call is there; `probe` is that call: function and arguments."""
        opened = self._opened
        if opened is not None:
            return opened
        with self._opening:
            if self._opened is None:
                opened = self.control.use(lambda line: self._opener(line, probe))
                self.run, self._next, self._feed.after = opened.run, opened.first, opened.after
                self._opened = opened
            return self._opened

    def add_call(self, table: Mapping[str, Any], text: str, future: CallFuture[Any]) -> None:
        """One more call, or with an empty text one more command; its result goes to a future."""
        opened = self.open((table.get("function", ""), text))
        row: Row | None = None
        sent = None
        with self._lock:
            self._check()
            future.stream = self
            self._left += 1
            claim = opened.claim(table, text)
            if claim is not None:
                self._waiters.add_future(claim[0], future)
                row = claim[1]
                self._feed.wake()
            else:
                last = self._pending[-1] if self._pending else None
                if last is not None and last.takes(table, text):
                    last.add(text, future)
                else:
                    self._pending.append(Piece(table, [text] if text else [], [future]))
                sent = self._take_own()
        if row is not None:
            self.place([row])
        if sent is not None:
            self._send_own(*sent)

    def add_calls(self, table: Mapping[str, Any], texts: list[str], batch: Batch) -> None:
        """Many calls, whose results go to the end of a batch."""
        opened = self.open((table["function"], texts[0]))
        rows: list[Row] = []
        with self._lock:
            self._check()
            at = batch.extend(len(texts))
            self._left += len(texts)
            ranges, claims = opened.split(table, texts)
            for low, high in ranges:
                self._pending.append(Piece(table, texts[low:high], None, batch, at + low))
            for place, (element, row) in claims:
                self._waiters.add_place(element, batch, at + place)
                rows += [row] if row is not None else []
            self._feed.wake()
            self._wake_sender()
        if rows:
            self.place(rows)

    def adopt(self, futures: Mapping[int, CallFuture[Any]], rows: list[Row]) -> None:
        """Futures wait for elements that were submitted earlier; some of them are finished."""
        with self._lock:
            for element, future in futures.items():
                future.stream = self
                self._waiters.add_future(element, future)
            self._left += len(futures)
            self._feed.wake()
        self.take(rows)

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")

    # --- sending
    def _take_own(self) -> tuple[int, list[Piece]] | None:
        """What the caller's own thread is to send: its call, if it is the only one anywhere. Under the lock."""
        self._feed.wake()
        if self._left > 1 or self._sending or self._unsent is not None:
            self._wake_sender()
            return None
        self._sending = True
        return self._take()

    def _send_own(self, first: int, pieces: list[Piece]) -> None:
        done = False
        try:
            done = self._post(first, pieces, HASTY)
        finally:  # also after Ctrl-C: nobody knows then whether it arrived, so the sender repeats it
            with self._lock:
                self._sending = False
                self._unsent = None if done else (first, pieces)
                if not done or self._pending:
                    self._wake_sender()
                self._sent.notify_all()

    def _wake_sender(self) -> None:
        if self._sender is None:
            self._sender = threading.Thread(target=self._send_all, name="shoal-sender", daemon=True)
            self._sender.start()
        self._work.notify()

    def _send_all(self) -> None:
        while True:
            with self._lock:
                while self._sending or (self._unsent is None and not self._pending):
                    if self.closed.is_set():
                        return
                    self._work.wait()
                self._sending = True
                first, pieces = self._take() if self._unsent is None else self._unsent
                self._unsent = None
            try:
                if pieces:
                    self._post(first, pieces, None)
            except Exception as error:  # a defect of ours must not look like a wait
                self.break_off(BrokenExecutor(f"the calls could not be sent: {error!r}"))
            finally:
                with self._lock:
                    self._sending = False
                    self._sent.notify_all()

    def _take(self) -> tuple[int, list[Piece]]:
        """The next addition: numbered, and everybody registered who is to get its results. Under the lock."""
        first, taken, size = self._next, list[Piece](), 0
        while self._pending and len(taken) < MAX_SPECS and (not taken or size + self._pending[0].size <= MAX_SENT):
            piece = self._pending.popleft()
            piece.drop_cancelled()
            if piece.count:
                taken.append(piece)
                size += piece.size
                self._waiters.add_piece(self._next, piece)
                self._next += piece.count
        return first, taken

    def _post(self, first: int, pieces: list[Piece], patience: float | None) -> bool:
        """Add to the run; False if the server stays away and the addition has to be repeated."""
        try:
            self._up.ask(lambda client: client.add(self.run, first, [piece.document() for piece in pieces]), patience)
        except Stopped:
            return True
        except Unreachable as error:
            if patience is not None:
                return False
            self.break_off(BrokenExecutor(f"the server is gone: {error.line}"))
        except Conflict as error:
            self.break_off(BrokenExecutor(f"somebody else adds to {self.run}: {error.line}"))
        except ShoalError as error:
            # These calls are not taken: that is their result, and their numbers are free again.
            with self._lock:
                rows = [[n, "failed", error, error.code, error.message, 0, "", 0, 0] for n in range(first, self._next)]
                self._next = first
            self.place(rows)
        return True

    # --- results out
    def take(self, rows: list[Row]) -> None:
        """Rows of the feed: what is small goes out at once, blobs are fetched aside."""
        large = [row for row in rows if row[RESULT][:7] == DIGEST]
        for row in large:
            self._blobs.put(lambda row=row: self._fetch(row))  # type: ignore[misc]  # this very row
        self.place([row for row in rows if row[RESULT][:7] != DIGEST] if large else rows)

    def rows_of(self, closed: Iterable[Closed]) -> list[Row]:
        """Rows for those of some closed ranges that somebody waits for."""
        found: list[Row] = []
        for low, high, *how in closed:
            with self._lock:
                elements = self._waiters.elements()
            found += [closed_row(n, *how) for n in elements if low <= n < high]
        return found

    def _fetch(self, row: Row) -> None:
        try:
            data: Any = self._blob_line.ask(lambda client: client.get_blob(row[RESULT]))
        except Stopped:
            return
        except ShoalError as error:
            data = error
        self.place([[*row[:RESULT], data, *row[RESULT + 1 :]]])

    def place(self, rows: list[Row]) -> None:
        """Hand rows to those who wait for them; what the calls printed is shown first."""
        with self._lock:
            found = self._waiters.find(rows)
        if found.printed and self._echo is not None:
            self._echo.show(self.run, found.printed)
        for future, row in found.singles:
            future.settle(self.run, row)
        for batch in found.batches.values():
            batch.tell()
        self._settled(found.count)

    def _settled(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if self._closing and not self._left:
                self._feed.stop()

    # --- taking back
    def cancel_future(self, future: CallFuture[Any]) -> bool:
        """Cancel one call unless it runs."""
        if self.is_foreign:
            return False
        with self._lock:
            is_here = future.element == 0
            if is_here:
                future.element = TAKEN_BACK
        if is_here:
            future.cancel_here()
            self._settled(1)
            return True
        if future.element == TAKEN_BACK:
            return True
        return self.control.cancel_one(self.run, future.element) and future.cancel_here()

    def is_running(self, element: int) -> bool:
        """Is this call executed now?"""
        return element > 0 and not self.is_foreign and self.control.is_running(self.run, element)

    def cancel_unstarted(self, batch: Batch | None = None) -> None:
        """Cancel what has not begun, all of it or one map's: here at once, on the server behind the caller's back."""
        with self._lock:
            dropped = [piece for piece in self._pending if batch is None or piece.batch is batch]
            self._pending = deque(piece for piece in self._pending if batch is not None and piece.batch is not batch)
            for piece in dropped:
                piece.drop_cancelled()
            count = sum(piece.count for piece in dropped)
            elements = self._waiters.elements(batch)
        for piece in dropped:
            for future in piece.futures or ():
                future.cancel_here()
            if piece.batch is not None:
                piece.batch.fail(CancelledError(), piece.at, piece.count)
        self._settled(count)
        if elements:
            self._chores.put(lambda: self._cancel(elements, GRACE if batch is not None else 0.0))

    def cancel_all(self) -> None:
        """Cancel everything, also what runs."""
        self.cancel_unstarted()
        if self.run:
            with contextlib.suppress(ShoalError, Stopped):
                self.control.ask(lambda client: client.cancel([self.run]), CLOSE_WITHIN)

    def _cancel(self, elements: list[int], after: float) -> None:
        if not self._gone.wait(after):
            with contextlib.suppress(ShoalError, Stopped):
                self.control.cancel(self.run, elements)

    # --- the end
    def shutdown(self, wait: bool = True, cancel: bool = False) -> None:
        """No more calls; when the last has its result the run is closed."""
        if self.is_foreign:
            return
        with self._opening, self._lock:
            self._closing = True
            if self._opened is None:
                self.closed.set()
                return
            self._feed.wake()
            if not self._left:
                self._feed.stop()
        if cancel:
            self.cancel_unstarted()
        if wait and not self._feed.is_mine and not self._blobs.is_mine() and not self._chores.is_mine():
            self.closed.wait()

    def break_off(self, error: BaseException, cancel: bool = False) -> None:
        """The pool is gone for this stream: whoever waits is told so. `cancel`: the server is to drop the rest."""
        self._drops = cancel
        self._end(error)
        if cancel:
            self.cancel_all()

    def detach(self) -> int:
        """Leave the run to the server; returns how many calls go on. Here their futures are cancelled."""
        self._up.cut()
        return self._end(CancelledError("detached"))

    def _end(self, error: BaseException) -> int:
        with self._lock:
            if self.broken is not None:
                return 0
            self._gone.set()
            self.broken = RuntimeError("detached from the run") if isinstance(error, CancelledError) else error
            going = self._left - sum(piece.count for piece in self._pending)
            self._left = 0
            futures, batches = self._waiters.clear()
            for piece in self._pending:
                futures += piece.futures or []
                batches += [piece.batch] if piece.batch is not None else []
            self._pending.clear()
            self._unsent = None
        for future in futures:
            if isinstance(error, CancelledError):
                future.cancel_here()
            else:
                future.settle_as(False, error)
        for batch in batches:
            batch.fail(error)
        with self._lock:
            self._feed.stop()
        return going

    def finish(self) -> None:
        """The last thing the feed does: the run is closed, connections and threads end."""
        self._blobs.finish()
        self._chores.finish()
        with self._lock:
            while self._sending and self.broken is None:
                self._sent.wait()
        if self._opened is not None and self._opened.is_ours and (self.broken is None or self._drops):
            with contextlib.suppress(ShoalError, Stopped):
                self._up.ask(lambda client: client.close_run(self.run), CLOSE_WITHIN)
        self._up.cut()
        for line in (self._up, self._blob_line):
            line.drop()
        self.control.close()
        if self._echo is not None:
            self._echo.close()
        with self._lock:
            self.closed.set()
            self._work.notify_all()
