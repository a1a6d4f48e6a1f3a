"""Work done aside, one thing after another, by a thread that begins with the first of it."""

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

    def put(self, do: Callable[[], None]) -> None:
        """Do this when all that came before is done."""
        with self._lock:
            self._queue.put(do)
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
        do()

    def is_mine(self) -> bool:
        """Is this one of the errands?"""
        return threading.current_thread() is self._thread

    def finish(self) -> None:
        """Wait until all is done; the thread ends."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (do := self._queue.get()) is not None:
            try:
                do()
            except Exception:  # one errand that fails must not take the others along
                _log.exception("an errand failed")
