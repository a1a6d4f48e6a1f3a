"""An open run as a stream: calls in, results out, across restarts of the server [ADR 0009].

Rules:
- Elements get their numbers when they are sent, in the order of submission, so the same script has the same numbers
  and seeds. One thread sends at a time; calls submitted meanwhile are sent together with the next addition.
- An addition is repeated under the same number until the server confirms it: added once, never lost.
- Futures and batches are registered before their call is sent, because the result may arrive before the response.
- A call submitted when no other is unfinished is sent by the caller's own thread, which saves a thread switch. If its
  result comes with the answer, no poll is sent for it [ADR 0066].
- A call that waits for futures gets its number when they are done, since its arguments are known only then.
- `left` counts unfinished calls. The end of the stream always happens in the polling thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any

from shoal.client.client import Client
from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.client.executor.background import Background
from shoal.client.executor.dependencies import Dependent
from shoal.client.executor.futures import Batch, CallFuture
from shoal.client.executor.open_run import Call, OpenRun
from shoal.client.executor.outcome import SUCCEEDED, ClosedRange, ResultRow
from shoal.client.executor.pending_calls import CANCELLED_UNSENT, MAX_SENT, Piece, Waiters
from shoal.client.executor.printed_output import PrintedOutput
from shoal.client.executor.result_poll import ResultPoll
from shoal.client.executor.slot_choice import PoolView
from shoal.client.waiting import IdleWatch, is_inside, wait_until
from shoal.model.errors import Conflict, ShoalError
from shoal.model.limits import MAX_ADDED

_log = logging.getLogger(__name__)

CLOSE_WITHIN = 10.0  # seconds that the end waits for a lost server
HASTY = 2.0  # seconds that a small request waits for a lost server
MAX_TARGETS = 10_000  # of one cancellation
GRACE = 0.2  # seconds until the rest of a map is cancelled: Ctrl-C ends a loop first, and then detaches

Opener = Callable[[ServerConnection, Call], OpenRun]


class Stream:
    """One open run and the futures and batches that wait for its results. Any thread may call any method."""

    def __init__(self, link: Reconnecting, opener: Opener, echo: bool = True, at_once: int = 0) -> None:
        self.run = ""
        self.is_foreign = False  # inherited through a fork: it belongs to the parent
        self.broken: BaseException | None = None
        self.closed, self._gone = threading.Event(), threading.Event()  # ended; broken or detached
        self._control = ServerConnection(link)  # for requests beside calls and results
        self._opener, self._at_once = opener, at_once  # calls that run at once; 0: unknown
        self._opened: OpenRun | None = None
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for the sender
        self._sent = threading.Condition(self._lock)  # notified when no addition is being sent
        self._adding, self._downloads = ServerConnection(link), ServerConnection(link)
        self._pending: deque[Piece] = deque()
        self._unsent: tuple[int, list[Piece]] | None = None  # numbered, but not confirmed by the server
        self._waiters = Waiters()
        self._next = 1
        self._left = 0
        self._sending = self._closing = self._drops = False
        self._brings_results = False  # the server told that answers to additions may bring results
        self._sender: threading.Thread | None = None
        self._poll = ResultPoll(self, ServerConnection(link), self._lock)
        self._blobs, self._background = Background("shoal-blobs"), Background("shoal-background")
        self._output = PrintedOutput(link, Background("shoal-output")) if echo else None
        self._releases = Background("shoal-dependents")
        self._held: dict[int, Dependent] = {}  # calls that wait for futures, by identity
        self.address = link.target.url  # None: the embedded server's
        self._idle = IdleWatch(lambda: self._left > 0, time.monotonic, time.process_time) if is_inside() else None

    @property
    def left(self) -> int:
        """The number of unfinished calls."""
        return self._left

    # --- calls in
    def open(self, probe: Call | None = None) -> OpenRun:
        """The run, made or found again with the first call; `probe` is that call."""
        opened = self._opened
        if opened is not None:
            return opened
        with self._opening:
            if self._opened is None:
                opened = self._opener(self._control, probe or ({}, ""))
                self.run, self._next, self._poll.after = opened.run, opened.first, opened.after
                self._opened = opened
            return self._opened

    def add_call(self, table: Mapping[str, Any], text: str, future: CallFuture[Any]) -> None:
        """Add a call, or with an empty text a command; its result goes to a future."""
        opened = self.open((table, text))
        opened.read_program(table)
        row: ResultRow | None = None
        sent = None
        with self._lock:
            self._check()
            future.stream = self
            self._left += 1
            earlier = opened.reuse(table, text)
            if earlier is not None:
                self._waiters.add_future(earlier.element, future)
                row = earlier.row
                self._poll.wake()
            else:
                last = self._pending[-1] if self._pending else None
                if last is not None and last.takes(table, text):
                    last.add(text, future)
                else:
                    self._pending.append(Piece(table, [text] if text else [], [future]))
                sent = self._take_own()
        self._wake_idle()
        if row is not None:
            self.receive([row])
        if sent is not None:
            self._send_own(*sent)

    def add_calls(self, table: Mapping[str, Any], texts: list[str], batch: Batch) -> None:
        """Add many calls, whose results go to the end of a batch."""
        opened = self.open((table, texts[0]))
        opened.read_program(table)
        rows: list[ResultRow] = []
        with self._lock:
            self._check()
            at = batch.extend(len(texts))
            self._left += len(texts)
            ranges, earlier = opened.split(table, texts)
            for low, high in ranges:
                self._pending.append(Piece(table, texts[low:high], None, batch, at + low))
            for position, call in earlier:
                self._waiters.add_position(call.element, batch, at + position)
                rows += [call.row] if call.row is not None else []
            self._poll.wake()
            self._wake_sender()
        self._wake_idle()
        if rows:
            self.receive(rows)

    def hold(self, dependent: Dependent) -> None:
        """Add a call that waits for futures; it is sent when they are done, also after `shutdown`."""
        self.open((dependent.table, ""))
        with self._lock:
            self._check()
            self._left += 1
            self._held[id(dependent)] = dependent
            if dependent.future is not None:
                dependent.future.stream = self
            self._poll.wake()
        self._wake_idle()
        dependent.watch(self)

    def release_later(self, dependent: Dependent) -> None:
        """Send a call whose futures are done, or settle it if one of them failed: in the background, because it may take
        an upload, and any thread may have settled the last future."""
        if id(dependent) in self._held:  # else it was cancelled, or the stream has ended
            self._releases.put(lambda: self._release(dependent))

    def _release(self, dependent: Dependent) -> None:
        if id(dependent) not in self._held:
            return  # it was released before, or cancelled
        found = dependent.resolve(self)
        row: ResultRow | None = None
        with self._lock:
            if self._held.pop(id(dependent), None) is None or dependent.is_cancelled:
                return
            if isinstance(found, str):
                row = self._add_released(dependent, found)
        if row is not None:
            self.receive([row])
        if not isinstance(found, str):
            _settle(dependent, found)
            self._settled(1)

    def _add_released(self, dependent: Dependent, text: str) -> ResultRow | None:
        """Queue a call whose futures are done, or use an earlier one, whose row is returned. Under the lock."""
        assert self._opened is not None
        table, future, batch, at = dependent.table, dependent.future, dependent.batch, dependent.at
        earlier = self._opened.reuse(table, text)
        if earlier is not None:
            if future is not None:
                self._waiters.add_future(earlier.element, future)
            elif batch is not None:
                self._waiters.add_position(earlier.element, batch, at)
        else:
            last = self._pending[-1] if self._pending else None
            if future is not None and last is not None and last.takes(table, text):
                last.add(text, future)
            else:
                self._pending.append(Piece(table, [text], [future] if future is not None else None, batch, at))
            self._wake_sender()
        self._poll.wake()
        return earlier.row if earlier is not None else None

    def adopt(self, futures: Mapping[int, CallFuture[Any]], rows: list[ResultRow]) -> None:
        """Let futures wait for elements that were submitted earlier; `rows` are of those that are finished."""
        with self._lock:
            for element, future in futures.items():
                future.stream = self
                self._waiters.add_future(element, future)
            self._left += len(futures)
            self._poll.wake()
        self.receive(rows)

    def _wake_idle(self) -> None:
        """A call is unfinished: in a task, watch whether the task computes anything while it waits."""
        if self._idle is not None:
            self._idle.wake()

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def look_at_pool(self) -> PoolView:
        """The pilots as the server lists them, and how many calls of this stream they have now."""

        def ask(client: Client) -> PoolView:
            live = client.run_row(self.run)["counts"].get("live", 0) if self.run else 0
            return PoolView(client.pilots()["pilots"], live)

        view: PoolView = self._control.ask(ask)
        return view

    def put_blob(self, parts: Sequence[Any]) -> str:
        """Upload a blob; returns its digest."""
        return str(self._control.ask(lambda client: client.put_blob(parts)))

    # --- sending
    def _take_own(self) -> tuple[int, list[Piece]] | None:
        """What the caller's own thread is to send: its call, if no other is unfinished. Under the lock."""
        if self._left > 1 or self._sending or self._unsent is not None:
            self._poll.wake()
            self._wake_sender()
            return None
        self._poll.hold()
        self._sending = True
        return self._take()

    def _send_own(self, first: int, pieces: list[Piece]) -> None:
        answer: dict[str, Any] | None = None
        try:
            answer = self._post(first, pieces, HASTY, self._poll.after if self._brings_results else None)
        finally:  # also after Ctrl-C: it is unknown whether it arrived, so the sender repeats it
            with self._lock:
                self._sending = False
                self._unsent = None if answer is not None else (first, pieces)
                if answer is None or self._pending:
                    self._wake_sender()
                self._sent.notify_all()
                self._brings_results = self._brings_results or "page" in (answer or ())
                self._poll.added((answer or {}).get("page"))

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
                pieces = []  # this thread may wait long for the next; nobody's results are kept meanwhile
                with self._lock:
                    self._sending = False
                    self._sent.notify_all()

    def _take(self) -> tuple[int, list[Piece]]:
        """The next addition: numbered, and its futures and batches registered. Under the lock."""
        first, taken, size = self._next, list[Piece](), 0
        while self._pending and len(taken) < MAX_ADDED and (not taken or size + self._pending[0].size <= MAX_SENT):
            piece = self._pending.popleft()
            piece.drop_cancelled()
            if piece.count:
                taken.append(piece)
                size += piece.size
                self._waiters.add_piece(self._next, piece)
                self._next += piece.count
        return first, taken

    def _post(
        self, first: int, pieces: list[Piece], patience: float | None, after: int | None = None
    ) -> dict[str, Any] | None:
        """Add to the run, and ask for results after a number of the journal. Returns the answer, which is empty if the server
        has none; None if it does not answer and the addition has to be repeated."""
        try:
            return self._adding.ask(
                lambda client: client.add(self.run, first, [piece.document() for piece in pieces], after), patience
            )
        except Stopped:
            return {}
        except Conflict as error:
            if error.code == "run_closed":
                self.break_off(BrokenExecutor(f"{self.run} was cancelled, so that it takes no more calls"))
                return {}
            self.break_off(BrokenExecutor(f"somebody else adds to {self.run}: {error.line}"))
        except ShoalError as error:
            if error.transient:  # it is not known whether they were added
                if patience is not None:
                    return None
                self.break_off(BrokenExecutor(f"the server is gone: {error.line}"))
                return {}
            # The server refused these calls: the error is their result, and their numbers are free again.
            with self._lock:
                rows = [ResultRow(n, "failed", error, error.code, error.message) for n in range(first, self._next)]
                self._next = first
            self.deliver(rows)
        return {}

    # --- results out
    def receive(self, rows: list[ResultRow]) -> None:
        """Deliver rows that the server sent; those of calls that wrote something when that is written here."""
        rows = self._without_early(rows)
        if self._output is not None:
            wrote = [row for row in rows if row.stdout_bytes or row.stderr_bytes]
            if wrote:
                rows = [row for row in rows if not (row.stdout_bytes or row.stderr_bytes)]
                with self._lock:
                    wanted = [row for row in wrote if self._waiters.has(row.element)]
                self._output.show(self.run, wanted, self._pass_on)
        if rows:
            self._pass_on(rows)

    def _without_early(self, rows: list[ResultRow]) -> list[ResultRow]:
        """Of a run that was found again: rows of calls which this process has not made yet are kept until it does."""
        opened = self._opened
        if opened is None or not opened.calls:
            return rows
        with self._lock:
            early = {row.element: row for row in rows if not self._waiters.has(row.element)}
            opened.rows.update(early)
        return [row for row in rows if row.element not in early]

    def _pass_on(self, rows: list[ResultRow]) -> None:
        """Deliver rows; those with a blob when it is fetched, in the background."""
        large = {row.element for row in rows if row.is_blob}
        if large:
            with self._lock:  # a future fetches what it returned when it is asked for; a map, and an error, at once
                large -= {
                    row.element for row in rows if row.state == SUCCEEDED and self._waiters.is_future(row.element)
                }
        for row in rows:
            if row.element in large:
                self._blobs.put(lambda row=row: self._fetch(row))  # type: ignore[misc]  # this very row
        self.deliver([row for row in rows if row.element not in large] if large else rows)

    def get_blob(self, digest: str) -> Any:
        """The bytes of a large result, or the error instead of them; also after the end of the stream."""
        try:
            return self._downloads.ask(lambda client: client.get_blob(digest))
        except Stopped:
            return RuntimeError("the executor has ended")
        except ShoalError as error:
            return error
        finally:
            if self.closed.is_set():
                self._downloads.drop()

    def closed_rows(self, ranges: Iterable[ClosedRange]) -> list[ResultRow]:
        """Rows for those elements of closed ranges that are waited for, or will be."""
        found: list[ResultRow] = []
        for closed in ranges:
            with self._lock:
                elements = [*self._waiters.elements(), *(self._opened.left() if self._opened is not None else ())]
            found += [closed.row(n) for n in elements if closed.low <= n < closed.high]
        return found

    def _fetch(self, row: ResultRow) -> None:
        self.deliver([row._replace(result=self.get_blob(row.result))])

    def deliver(self, rows: list[ResultRow]) -> None:
        """Give rows to the futures and batches that wait for them."""
        with self._lock:
            found = self._waiters.find(rows)
        for future, row in found.singles:
            try:
                future.settle(self.run, row)
            except BaseException:  # of a callback, such as SystemExit: it concerns no other future
                _log.exception("a callback of %s.%s failed", self.run, row.element)
        for batch in found.batches.values():
            batch.wake_reader()
        self._settled(found.count)

    def _settled(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if self._closing and not self._left:
                self._poll.stop()

    # --- cancelling
    def cancel_future(self, future: CallFuture[Any]) -> bool:
        """Cancel one call unless it runs."""
        if self.is_foreign:
            return False
        with self._lock:
            is_unsent = future.element == 0
            if is_unsent:
                future.element = CANCELLED_UNSENT
        if is_unsent:
            future.cancel_here()
            self._settled(1)
            return True
        if future.element == CANCELLED_UNSENT:
            return True
        try:
            task = f"{self.run}.{future.element}"
            done = self._control.ask(lambda client: client.cancel([task], unless_running=True), HASTY)
        except (ShoalError, Stopped):
            return False
        return bool(done.get("cancelled")) and future.cancel_here()

    def is_running(self, element: int) -> bool:
        """True if this call is executed now."""
        if element <= 0 or self.is_foreign:
            return False
        try:
            task = self._control.ask(lambda client: client.task(f"{self.run}.{element}"), HASTY)
        except (ShoalError, Stopped):
            return False
        return bool(task.get("state") == "running")

    def cancel_unstarted(self, batch: Batch | None = None, keep: int = 0) -> None:
        """Cancel calls that have not started, all or those of one map: here at once, on the server in the background.
        `keep`: so many of those that were sent first run, or are about to, and are left alone."""
        with self._lock:
            dropped = [piece for piece in self._pending if batch is None or piece.batch is batch]
            self._pending = deque(piece for piece in self._pending if batch is not None and piece.batch is not batch)
            for piece in dropped:
                piece.drop_cancelled()
            held = [found for found in self._held.values() if batch is None or found.batch is batch]
            for found in held:
                del self._held[id(found)]
            held = [found for found in held if not found.is_cancelled]
            count = sum(piece.count for piece in dropped) + len(held)
            elements = self._waiters.elements(batch)
            if keep:
                elements = sorted(elements)[keep:]
        for piece in dropped:
            for future in piece.futures or ():
                future.cancel_here()
            if piece.batch is not None:
                piece.batch.fail(CancelledError(), piece.at, piece.count)
        for found in held:
            _settle(found, None)
        self._settled(count)
        if elements:
            self._background.put(lambda: self._cancel(elements, GRACE if batch is not None else 0.0))

    def cancel_all(self) -> None:
        """Cancel every call, also those that run."""
        self.cancel_unstarted()
        if self.run:
            with contextlib.suppress(ShoalError, Stopped):
                self._control.ask(lambda client: client.cancel([self.run]), CLOSE_WITHIN)

    def _cancel(self, elements: list[int], after: float) -> None:
        if not self._gone.wait(after):
            with contextlib.suppress(ShoalError, Stopped):
                for at in range(0, len(elements), MAX_TARGETS):
                    targets = [f"{self.run}.{n}" for n in elements[at : at + MAX_TARGETS]]
                    self._control.ask(lambda client, some=targets: client.cancel(some, unless_running=True))  # type: ignore[misc]  # bound now

    # --- the end
    def shutdown(self, wait: bool = True, cancel: bool = False) -> None:
        """Accept no more calls; when the last has its result the run is closed."""
        if self.is_foreign:
            return
        with self._opening, self._lock:
            self._closing = True
            if self._opened is None:
                self.closed.set()
                return
            self._poll.wake()
            if not self._left:
                self._poll.stop()
        if cancel:
            self.cancel_unstarted(keep=self._at_once)
        is_ours = any(
            thread.is_current_thread() for thread in (self._poll, self._blobs, self._background, self._releases)
        ) or (self._output is not None and self._output.is_current_thread())
        if wait and not is_ours:
            wait_until(self.closed.wait)
            self._poll.join()
            with self._lock:
                sender, self._sender = self._sender, None
            if sender is not None:
                sender.join()

    def break_off(self, error: BaseException, cancel: bool = False) -> None:
        """End the stream with an error for all unfinished calls. `cancel`: cancel them on the server, too."""
        self._drops = cancel
        self._end(error)
        if cancel:
            self.cancel_all()

    def detach(self) -> int:
        """Leave the run to the server; returns how many calls go on. Their futures are cancelled here."""
        self._adding.cut()
        return self._end(CancelledError("detached"))

    def _end(self, error: BaseException) -> int:
        with self._lock:
            if self.broken is not None:
                return 0
            self._gone.set()
            self.broken = RuntimeError("detached from the run") if isinstance(error, CancelledError) else error
            held = [found for found in self._held.values() if not found.is_cancelled]
            self._held.clear()
            going = self._left - sum(piece.count for piece in self._pending) - len(held)
            self._left = 0
            futures, batches = self._waiters.clear()
            for piece in self._pending:
                futures += piece.futures or []
                batches += [piece.batch] if piece.batch is not None else []
            futures += [found.future for found in held if found.future is not None]
            batches += [found.batch for found in held if found.batch is not None]
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
            self._poll.stop()
        return going

    def finish(self) -> None:
        """Close the run, the connections and the threads; called at the end of the polling thread."""
        if self._output is not None:
            self._output.close()
        self._blobs.finish()
        self._releases.finish()
        self._background.finish()
        with self._lock:
            while self._sending and self.broken is None:
                self._sent.wait()
        if self._opened is not None and self._opened.is_ours and (self.broken is None or self._drops):
            with contextlib.suppress(ShoalError, Stopped):
                self._adding.ask(lambda client: client.close_run(self.run), CLOSE_WITHIN)
        self._adding.cut()
        for connection in (self._adding, self._downloads, self._control):
            connection.drop()
        with self._lock:
            self.closed.set()
            self._work.notify_all()


def _settle(dependent: Dependent, error: BaseException | None) -> None:
    """Fail a call that was not sent, or without an error cancel it."""
    if dependent.batch is not None:
        dependent.batch.fail(error or CancelledError(), dependent.at, 1)
    elif dependent.future is not None and error is not None:
        dependent.future.settle_as(False, error)
    elif dependent.future is not None:
        dependent.future.cancel_here()
