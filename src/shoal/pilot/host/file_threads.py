"""Threads for work on files that may take long, so that the loop is not blocked."""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import Callable, Optional

log = logging.getLogger(__name__)

THREADS = 2


class FileThreads:
    """A queue of work, done in order of arrival by few threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._count = threads
        self._work: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def do(self, work: Callable[[], None]) -> None:
        """Queue a piece of work, which delivers its own result."""
        if not self._threads:
            for number in range(self._count):
                thread = threading.Thread(target=self._run, name=f"files-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        self._work.put(work)

    def finish(self, patience: float) -> None:
        """Wait until everything queued is done, for some seconds at most."""
        for _ in self._threads:
            self._work.put(None)
        end = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            try:
                work()
            except Exception:
                log.exception("work on files failed")
