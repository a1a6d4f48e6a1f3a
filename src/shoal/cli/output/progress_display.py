"""Progress displays: one live line on a terminal, a plain line now and then elsewhere; always on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from shoal.cli.arguments.moments import clock_text
from shoal.cli.output.tables import clean, shorten, width
from shoal.model.lazy_dataclass import dataclass
from shoal.model.quantities import bar_text, many, rate_text, show_duration
from shoal.sched.vector.deadline import chance_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

PLAIN_EVERY = 5.0
REASON_AGAIN, REASON_SELDOM = 60.0, 900.0  # seconds until the same reason is told again: each time twice as long
PLAIN_FIRST = 1.0  # seconds until the first plain line
LIVE_AFTER = 0.3  # seconds; a run that ends sooner needs no bar
BAR = 16


class TimeLeft(NamedTuple):
    """Seconds until the run's end: as likely less as more, and in 9 of 10 cases at most; None: not known yet."""

    about: float | None = None
    within: float | None = None
    chance: float | None = None  # of meeting the run's deadline


@dataclass(frozen=True)
class Status:
    """The progress of a run."""

    run: str
    name: str = ""
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    units: int = 0  # of divisible work
    units_done: int = 0
    running: int = 0
    earlier: int = 0  # of the final ones: those that were final when the waiting began
    elapsed: float = 0.0
    pilots: int = 0
    slots: int = 0
    reason: str = ""  # why nothing runs
    is_impossible: bool = False  # and can ever run on the pilots there are
    left: TimeLeft | None = None  # None: nobody asked yet
    due: float | None = None  # its deadline
    answers: str = ""  # the first of what its tasks emitted
    sites: tuple[str, ...] = ()  # busy cores of those that each has, and what it waits for

    @property
    def done(self) -> int:
        """How many tasks are final."""
        return self.succeeded + self.failed + self.cancelled

    @property
    def rate(self) -> float:
        """Tasks per second since the waiting began."""
        return max(0, self.done - self.earlier) / self.elapsed if self.elapsed > 0 else 0.0


def parts_of(status: Status) -> dict[str, str]:
    """The parts of the line of progress, in order: counts, rate, time, what is left, pilots."""
    parts = {"done": f"{status.done:,}/{status.total:,}", "running": f"running {status.running:,}"}
    if status.units:
        parts["done"] = f"{status.units_done:,}/{status.units:,} units"
    parts["failed"] = f"failed {status.failed:,}"
    if status.cancelled:
        parts["cancelled"] = f"cancelled {status.cancelled:,}"
    if status.rate > 0 and not status.units:
        parts["rate"] = rate_text(status.rate)
    parts["elapsed"] = show_duration(status.elapsed)
    if status.left is not None and status.done < status.total:
        parts |= left_parts(status.left)
        if status.due is not None and status.left.chance is not None:
            parts["by"] = f"P(by {clock_text(status.due, time.time())}) {chance_text(status.left.chance)}"
    if status.answers:
        parts["answers"] = shorten(clean(status.answers), 60)
    if status.sites:
        parts["sites"] = "  ".join(status.sites)
    elif status.pilots:
        parts["pilots"] = f"{many(status.pilots, 'pilot')}, {many(status.slots, 'slot')}"
    return parts


def site_parts(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What the sites do, by the server's rows; nothing if there is only this machine."""
    if {row["site"] for row in rows} <= {"", "local"}:
        return ()
    return tuple(_site_part(row) for row in rows)


def _site_part(row: Mapping[str, Any]) -> str:
    """`hpc 3/4 (1 allocation waits: Priority)`: busy cores of those there are."""
    text = f"{clean(row['site'] or 'local')} {row['busy']:,}/{row['cores']:,}"
    return f"{text} ({shorten(clean(row['waits']), 60)})" if row["waits"] else text


def rough(seconds: float) -> str:
    """A duration that is not known exactly: no parts of seconds."""
    return f"{max(1, round(seconds))}s" if seconds < 59.5 else show_duration(seconds)


def left_parts(left: TimeLeft) -> dict[str, str]:
    """`about 2m left`, and `(9 in 10 within 3m)` unless that reads the same."""
    if left.about is None or left.within is None:
        return {"left": "time left not known yet"}
    about, within = rough(left.about), rough(left.within)
    return {"left": f"about {about} left"} | ({"within": f"(9 in 10 within {within})"} if within != about else {})


def status_text(status: Status) -> str:
    """The line of progress, whole."""
    return "  ".join(parts_of(status).values())


def fitted(status: Status, columns: int) -> tuple[str, str]:
    """Title and line of progress for a terminal of so many columns: what says least is left out first. How much is done,
    what failed and how long it will take stay longest."""
    title, parts = title_of(status), {"bar": bar_of(status), **parts_of(status)}
    dropped = iter(
        (
            "pilots",
            "rate",
            "bar",
            "sites",
            "answers",
            "elapsed",
            "within",
            "by",
            "" if status.failed else "failed",
            "name",
            "running",
            "cancelled",
        )
    )
    while width("  ".join((title, *parts.values()))) > columns:
        name = next(dropped, None)
        if name is None:
            break
        parts.pop(name, None)
        if name == "name":
            title = status.run
    return title, "  ".join(parts.values())


def title_of(status: Status) -> str:
    """The run's id and name."""
    return status.run + (f" {shorten(clean(status.name), 30)}" if status.name else "")


def reason_text(status: Status) -> str:
    """Why nothing runs."""
    return f"nothing runs: {shorten(status.reason, 300)}" if status.reason else ""


def bar_of(status: Status) -> str:
    """`#####.....`"""
    return bar_text(status.units_done, status.units, BAR) if status.units else bar_text(status.done, status.total, BAR)


class Display(Protocol):
    """Shows the progress of a run."""

    def update(self, status: Status) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class PlainDisplay:
    """For logs and pipes: a line at most every few seconds, and when the reason for waiting changes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._next = clock() + PLAIN_FIRST
        self._reason = self._told = ""
        self._reason_again = self._pause = 0.0

    def update(self, status: Status) -> None:
        """Print if it is time."""
        now = self._clock()
        new_reason = self._is_to_tell(status, now)
        if now < self._next and not (new_reason and not self._reason):
            return
        self._next, self._reason = now + PLAIN_EVERY, status.reason
        self.note(f"{title_of(status)}  {status_text(status)}")
        if new_reason:
            self._tell_reason(status, now)

    def _is_to_tell(self, status: Status, now: float) -> bool:
        """True if the reason is another, or was told a while ago."""
        return bool(status.reason) and (status.reason != self._reason or now >= self._reason_again)

    def _tell_reason(self, status: Status, now: float) -> None:
        self._pause = REASON_AGAIN if status.reason != self._told else min(2 * self._pause, REASON_SELDOM)
        self._told, self._reason_again = status.reason, now + self._pause
        self.note(f"  {reason_text(status)}")

    def note(self, text: str) -> None:
        """Print a line of its own."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing has to be removed."""


class QuietDisplay(PlainDisplay):
    """For --quiet and --json: notes only, no progress."""

    def update(self, status: Status) -> None:
        """Nothing is printed, unless nothing can run on the pilots there are, or, once, there are none."""
        now = self._clock()
        is_first = bool(status.reason) and not status.pilots and not self._told
        if is_first or (status.is_impossible and self._is_to_tell(status, now)):
            self._reason = status.reason
            self._tell_reason(status, now)


class LiveDisplay:
    """For terminals: one line that moves, and a second one while nothing runs."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._console: Console | None = None

    def update(self, status: Status) -> None:
        """Draw."""
        if status.elapsed < LIVE_AFTER:
            return
        from rich.text import Text  # imported here, because it is slow to import

        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
        title, text = fitted(status, self._console.width)  # asked anew: the window may have changed
        line = Text(no_wrap=True, overflow="ellipsis")  # Text takes no markup: a name cannot style or inject
        line.append(title, style="bold")
        line.append(f"  {text}")
        if status.reason:
            line.append(f"\n  {reason_text(status)}", style="yellow")
        if self._live is None:
            from rich.live import Live

            self._live = Live(line, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self._live.update(line)

    def note(self, text: str) -> None:
        """Above the moving line."""
        if self._live is None:
            print(text, file=sys.stderr, flush=True)
            return
        from rich.text import Text

        self._live.console.print(Text(text))

    def close(self) -> None:
        """Remove the moving line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def choose_display(quiet: bool) -> Display:
    """The display that fits where standard error goes."""
    if quiet:
        return QuietDisplay(sys.stderr)
    moves = sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    return LiveDisplay() if moves else PlainDisplay(sys.stderr)
