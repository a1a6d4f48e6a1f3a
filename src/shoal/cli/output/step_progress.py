"""Progress of work that this process does itself, step by step: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from shoal.client.progress import Display, MapStatus, choose_display


class StepProgress:
    """A context around the work; `update` may be called as often as wanted. `quiet`: nothing is shown."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        self._name, self._began = name, time.monotonic()
        self._display: Display | None = None if quiet else choose_display()
        self._done = self._total = 0

    def __enter__(self) -> StepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.close(self._status())

    def update(self, done: int, total: int) -> None:
        """Show how much is done."""
        self._done, self._total = done, total
        if self._display is not None:
            self._display.update(self._status())

    def _status(self) -> MapStatus:
        return MapStatus(self._name, self._total, self._done, 0, time.monotonic() - self._began)
