"""Progress of `Executor.map(..., progress=True)`: a line that moves on a terminal, a display in a notebook, else plain lines.

Always on standard error or in the notebook's output, never on standard output: what a script prints can be piped.
Notebooks get IPython's own updating display, because rich needs a further package there (ipywidgets).
"""

from __future__ import annotations

import contextlib
import html
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, TypeVar

from shoal.client.executor.futures import WAITING, Batch
from shoal.client.executor.outcome import SUCCEEDED, ResultRow
from shoal.model.errors import printable
from shoal.model.quantities import bar_text, rate_text, show_duration

if TYPE_CHECKING:
    from rich.live import Live

EVERY = 0.25  # seconds between two looks
SHARE = 20  # a look costs at most one part in so many of the time
BAR_AFTER = 0.3  # seconds; a map that ends sooner needs no line that moves
PLAIN_FIRST, PLAIN_EVERY = 1.0, 5.0  # seconds until the first plain line, and between two

R = TypeVar("R")


class MapStatus(NamedTuple):
    """The progress of one map, counted in calls."""

    name: str
    total: int
    done: int = 0
    failed: int = 0
    elapsed: float = 0.0

    @property
    def text(self) -> str:
        """Counts, rate, time and what is left, in the words of the command line's bar."""
        parts = [f"{self.done:,}/{self.total:,}", *([f"failed {self.failed:,}"] if self.failed else [])]
        rate = self.done / self.elapsed if self.elapsed > 0 else 0.0
        if rate:
            parts.append(rate_text(rate))
        parts.append(show_duration(self.elapsed))
        if rate and self.done < self.total and self.elapsed > 1:
            parts.append(f"about {show_duration((self.total - self.done) / rate)} left")
        return "  ".join(parts)

    @property
    def line(self) -> str:
        """The whole line, without the bar."""
        return f"{printable(self.name)[:30]}  {self.text}"


class Display(Protocol):
    """Shows the progress of a map."""

    def update(self, status: MapStatus) -> None: ...
    def close(self, status: MapStatus) -> None: ...


class PlainDisplay:
    """For logs and pipes: a line now and then, and one at the end if there was any."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._next = stream, PLAIN_FIRST

    def update(self, status: MapStatus) -> None:
        """Print if it is time."""
        if status.elapsed >= self._next:
            self._next = status.elapsed + PLAIN_EVERY
            self._print(status)

    def close(self, status: MapStatus) -> None:
        """Print the last line."""
        if self._next > PLAIN_FIRST:
            self._print(status)

    def _print(self, status: MapStatus) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed standard error is no reason to lose results
            print(f"shoal: {status.line}", file=self._stream, flush=True)


class TerminalDisplay:
    """For terminals: one line that moves, and stays at the end."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def update(self, status: MapStatus) -> None:
        """Draw."""
        if self._live is None and status.elapsed < BAR_AFTER:
            return
        from rich.text import Text  # imported here, because it is slow to import

        line = Text(no_wrap=True, overflow="ellipsis")  # Text takes no markup: a name cannot style or inject
        line.append(printable(status.name)[:30], style="bold")
        line.append(f"  {bar_text(status.done, status.total)}  {status.text}")
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            # What is printed meanwhile goes above the line; but what is piped has to go where it is piped to.
            self._live = Live(
                line, console=Console(stderr=True, highlight=False), auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),
            )  # fmt: skip
            self._live.start(refresh=True)
        else:
            self._live.update(line, refresh=True)

    def close(self, status: MapStatus) -> None:
        """Draw for the last time."""
        if self._live is not None:
            self.update(status)
            self._live.stop()


class NotebookDisplay:
    """For notebooks: one output of the cell that changes in place."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def update(self, status: MapStatus) -> None:
        """Show or change the output. A front end without HTML gets the text."""
        shown = {
            "text/plain": f"{printable(status.name)[:30]}  {bar_text(status.done, status.total)}  {status.text}",
            "text/html": f'<progress value="{status.done}" max="{max(status.total, 1)}"></progress> '
            f"<code>{html.escape(status.line)}</code>",
        }
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def close(self, status: MapStatus) -> None:
        """Show the end, which stays."""
        self.update(status)


def choose_display() -> Display:
    """The display that fits where this program runs."""
    if "ipykernel" in sys.modules:
        from IPython.display import display

        return NotebookDisplay(display)
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        return TerminalDisplay()
    return PlainDisplay(sys.stderr)


class MapProgress:
    """Watches a map from its first call to its last result, whether or not somebody reads the results meanwhile.

    As a context it surrounds the sending: an error there ends the display, else it ends with the last result.
    """

    def __init__(self, name: str, batch: Batch, chunksize: int = 1, display: Display | None = None) -> None:
        self._name, self._batch, self._chunksize = name, batch, chunksize
        self._display = display if display is not None else choose_display()
        self._calls, self._all_sent = 0, False
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shoal-progress", daemon=True)

    def __enter__(self) -> MapProgress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._all_sent = True
        if kind is not None:
            self.close()

    def count(self, calls: Iterator[R]) -> Iterator[R]:
        """The calls, counted as they are sent."""
        for call in calls:
            self._calls += 1
            yield call

    def over(self, results: Iterator[R]) -> Iterator[R]:
        """The results; the display ends with them."""
        try:
            yield from results
        finally:
            self.close()

    def close(self) -> None:
        """Stop watching, and show the end."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = EVERY
        while not self._ended.wait(pause):
            looked = time.monotonic()
            all_sent, status = self._all_sent, self._look()
            pause = max(EVERY, SHARE * (time.monotonic() - looked))
            if all_sent and status.done == status.total:
                break
            self._display.update(status)
        self._display.close(self._look())

    def _look(self) -> MapStatus:
        rows, calls = self._batch.rows, self._calls
        done = min(calls, (len(rows) - rows.count(WAITING)) * self._chunksize)
        # Who reads a failed row stops reading, so all failed rows are still there.
        failed = sum(1 for row in rows if isinstance(row, ResultRow) and row.state != SUCCEEDED)
        return MapStatus(self._name, calls, done, failed, time.monotonic() - self._began)
