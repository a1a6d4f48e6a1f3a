"""A background thread that runs functions one after another; it is started when the first one is queued."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Background:
    """A queue of functions and the thread that calls them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, function: Callable[[], None]) -> None:
        """Call a function after all that were queued before it."""
        with self._lock:
            self._queue.put(function)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
                self._thread = thread
                return
            except RuntimeError:  # the interpreter is ending and starts no thread any more
                pass
        self._queue.get()
        function()

    def is_current_thread(self) -> bool:
        """True if the caller is one of the queued functions."""
        return threading.current_thread() is self._thread

    def finish(self) -> None:
        """Wait until the queue is empty; the thread ends."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            try:
                function()
            except Exception:  # one that fails must not keep the others from being called
                _log.exception("work in the background failed")
