"""The joblib backend behind `joblib.parallel_config("shoal")`, which scikit-learn's `n_jobs` uses.

joblib cuts the work into batches; each batch becomes one call of an executor. Arguments above joblib's `max_nbytes` are
sent once for all batches of a `Parallel` and arrive read-only, as those that joblib maps into memory do. Works with
joblib 1.3 and newer.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib._parallel_backends import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

from shoal.client.connection.reconnect import Reconnecting, ServerConnection
from shoal.client.executor.executor import Executor
from shoal.client.pickling.serialize import name_of
from shoal.wire.payload import Ref

PILOT_WITHIN = 10.0  # seconds that a server which was just started may take until it has a pilot
LOOK_EVERY = 0.05
SLOTS_FOR = 5.0  # seconds that a count of the slots holds: a program may make many short loops
_ARRAYS = ("numpy", "pandas", "scipy", "torch")  # packages whose objects say how large they are

Callback = Callable[[Any], object]


class ShoalBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """Batches of joblib as calls in the pool. Options are those of `shoal.Executor`.

    One executor serves every `Parallel` under one `parallel_config`. It does not re-attach to an earlier start of the
    script, because batches are cut by how long the earlier ones took.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **options: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._options = {"attach": False, **options}
        Executor(**self._options)  # a wrong option is told here, and not at the first call
        self._cores = int(options.get("cores") or 1)
        self._link = Reconnecting(options.get("server"))
        self._slots, self._slots_until = 0, 0.0
        self._executor: Executor | None = None
        self._batches: _Batches | None = None
        self._limit: int | None = None
        self._max_nbytes: int | None = None

    # --- how many
    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches run at once: -1 is all slots of the pool, -2 all but one. 1 is no parallel code at all."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        if n_jobs > 0:
            return n_jobs
        # joblib takes 1 for "in this process"; who names the pool means the pool, however small it is.
        return max(2, self._count_slots() + 1 + n_jobs)

    def _count_slots(self) -> int:
        """How many calls the pool runs at once; where no pilot is there yet, as many as this machine has cores."""
        now = time.monotonic()
        if now < self._slots_until:
            return self._slots
        connection, until = ServerConnection(self._link), now + PILOT_WITHIN
        try:
            while True:
                slots = int(connection.ask(lambda client: client.server()).get("slots") or 0) // self._cores
                if slots or time.monotonic() > until:
                    break
                time.sleep(LOOK_EVERY)
        finally:
            connection.drop()
        self._slots, self._slots_until = slots or os.cpu_count() or 1, time.monotonic() + SLOTS_FOR
        return self._slots

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        max_nbytes: int | None = None,
        mmap_mode: str | None = None,
        **_: Any,  # folders and processes of joblib's own pools
    ) -> int:
        """Prepare for the calls of one `Parallel`; returns how many batches may run at once."""
        count = self.effective_n_jobs(n_jobs)
        if count == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._limit = n_jobs if n_jobs > 0 else None
        # What is sent once is shared and read-only. Who asks for another mode means to write into it.
        self._max_nbytes = max_nbytes if mmap_mode == "r" else None
        return count

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Loops inside a call: in threads if it has several cores, else one after the other, for its slot is one core."""
        if self._cores > 1:
            backend, _ = super().get_nested_backend()
            return backend, self._cores
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    # --- calls
    def start_call(self) -> None:
        """A `Parallel` begins: nothing of an earlier one is known, since its arrays may have changed."""
        if self._executor is None:
            self._executor = Executor(**{**self._options, "env": self._environment()})
        self._batches = _Batches(self._executor, self._limit, self._max_nbytes)

    def submit(self, func: Any, callback: Callback | None = None) -> None:
        """Schedule a batch; the callback gets its future. After an abort nothing is scheduled."""
        if self._batches is not None:
            self._batches.add(func, callback or (lambda _: None))

    apply_async = submit  # its name before joblib 1.5

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch, or the exception that a call of it raised."""
        return out.result()

    def stop_call(self) -> None:
        """A `Parallel` ended; another of the same block may go on, if its results are read as a generator."""
        if self._executor is not None:
            self._batches = _Batches(self._executor, self._limit, self._max_nbytes)

    def terminate(self) -> None:
        """A `Parallel` is not used again; the executor stays for the next one and ends with this object."""
        self.parallel = None  # no cycle: this object, and with it the executor, ends when nobody needs it
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches, also those that run. The next `Parallel` gets an executor of its own."""
        batches, self._batches = self._batches, None
        executor, self._executor = self._executor, None
        if batches is not None:
            batches.drop_waiting()
        if executor is not None:
            executor.cancel_all()
            executor.shutdown(wait=False)
        self.reset_batch_stats()

    def _environment(self) -> dict[str, str]:
        """Variables that keep numerical libraries from starting more threads than a call has cores."""
        threads = self.inner_max_num_threads
        limits = {
            name: str(threads) if threads is not None else os.environ.get(name, str(self._cores))
            for name in self.MAX_NUM_THREADS_VARS
        }
        return {**limits, **(self._options.get("env") or {})}


class _Batches:
    """The batches of one `Parallel`: at most `limit` of them are in the pool, and large arguments are sent once."""

    def __init__(self, executor: Executor, limit: int | None, max_nbytes: int | None) -> None:
        self._executor, self._limit, self._max_nbytes = executor, limit, max_nbytes
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Any, Callback]] = deque()
        self._running = 0
        self._sent: dict[int, tuple[Any, Ref]] = {}  # by id; the object is kept, so that no id is given again
        self._callers: dict[str, Callable[[Any], Any]] = {}

    def add(self, batch: Any, callback: Callback) -> None:
        """Schedule a batch."""
        with self._lock:
            self._waiting.append((batch, callback))
        self._start()

    def drop_waiting(self) -> None:
        """Forget the batches that were not sent."""
        with self._lock:
            self._waiting.clear()

    def _start(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or (self._limit is not None and self._running >= self._limit):
                    return
                batch, callback = self._waiting.popleft()
                self._running += 1
            future = self._send(batch)
            future.add_done_callback(lambda done, tell=callback: self._ended(done, tell))  # type: ignore[misc]

    def _ended(self, future: Future[Any], callback: Callback) -> None:
        with self._lock:
            self._running -= 1
        self._start()
        callback(future)

    def _send(self, batch: Any) -> Future[Any]:
        try:
            batch.items = [
                (function, tuple(map(self._once, args)), {name: self._once(one) for name, one in kwargs.items()})
                for function, args, kwargs in batch.items
            ]
            return self._executor.submit(self._caller(name_of(batch.items[0][0])), batch)
        except Exception as error:  # joblib sends also from its callback, where nobody would see it raised
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def _once(self, argument: Any) -> Any:
        """The argument, or if it is large a reference to what was sent of it."""
        if self._max_nbytes is None or size_of(argument) < self._max_nbytes:
            return argument
        known = self._sent.get(id(argument))
        if known is None:
            known = self._sent[id(argument)] = argument, self._executor.put(argument)
        return known[1]

    def _caller(self, name: str) -> Callable[[Any], Any]:
        """The function that calls batches of calls of this name, which `shoal show` then shows.

        A closure, so that it is pickled by value and no runner needs this module.
        """
        caller = self._callers.get(name)
        if caller is None:

            def call(batch: Any) -> Any:
                return batch()

            call.__name__ = call.__qualname__ = name
            caller = self._callers[name] = call
        return caller


def size_of(value: Any) -> int:
    """The bytes of an array, a frame, a matrix or a text; 0 for everything else."""
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if type(value).__module__.partition(".")[0] not in _ARRAYS:
        return 0
    size = getattr(value, "nbytes", None)
    if size is None:
        size = getattr(getattr(value, "data", None), "nbytes", None)  # a sparse matrix
    if size is None and hasattr(value, "memory_usage"):
        size = value.memory_usage(deep=False).sum()  # a frame
    return int(size or 0)
