"""Sources of data for reading commands: one interface, over HTTP from a server or from the database file.

Every reading command works without a server [protocol 1].
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol

from shoal.client.client import Client
from shoal.client.config import Target
from shoal.client.connection.embedded_server import Say, running_client, state_dir
from shoal.model.errors import EventsGone, NotFound, echo
from shoal.model.file_names import DATABASE
from shoal.model.limits import MAX_LOOK, MAX_PAGE
from shoal.model.quantities import many
from shoal.model.states import FINAL, TaskState
from shoal.model.task.spec import Spec

Json = dict[str, Any]
# Output that is on its way from another host: seconds between requests for it, and until it is given up.
ON_ITS_WAY_EVERY, ON_ITS_WAY = 0.1, 60.0


# What `Source.outcomes` gives of each task, in this order.
OUTCOME = (
    "element", "state", "exit_code", "duration", "host", "cause", "attempt", "last_line", "started", "ended", "result",
)  # fmt: skip


class Source(Protocol):
    """Runs, tasks, logs, events and pilots to be read; documents as in docs/reference/http.md."""

    def __enter__(self) -> Source: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json: ...
    def run(self, run: str) -> Json: ...
    def tasks(
        self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Sequence[str] = (), values: bool = False
    ) -> Json: ...
    def outcomes(self, run: str, values: bool = False) -> Iterator[tuple[Any, ...]]: ...
    def task(self, task: str) -> Json: ...
    def partial(self, run: str) -> Json: ...
    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> Iterator[bytes]: ...
    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]: ...
    def pilots(self, state: str = "") -> Json: ...
    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json: ...
    def why(self, target: str) -> Json: ...


class HttpSource:
    """A server, read page by page."""

    def __init__(self, client: Client, sleep: Callable[[float], None] = time.sleep) -> None:
        self.client, self.sleep = client, sleep
        self.runs, self.run, self.tasks, self.task = client.runs, client.run, client.tasks, client.task
        self.pilots, self.acct, self.why, self.partial = client.pilots, client.acct, client.why, client.partial

    def __enter__(self) -> HttpSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def outcomes(self, run: str, values: bool = False) -> Iterator[tuple[Any, ...]]:
        """What became of each task that has a row."""
        return outcomes_of(all_rows(self, run, values=values))

    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> Iterator[bytes]:
        """The bytes of a stream up to now, part by part; of an ended attempt also those that are on their way."""
        part = self.client.logs(task, stream, attempt)
        silent = 0.0
        while part.data or (part.more and silent < ON_ITS_WAY):
            yield part.data
            if not part.more:
                break
            silent = 0.0 if part.data else silent + ON_ITS_WAY_EVERY
            if silent:
                self.sleep(ON_ITS_WAY_EVERY)
            part = self.client.logs(task, stream, attempt, part.next)
        if part.missing:
            raise NotFound(f"{many(part.missing, 'byte')} of it never came from its host", code="log_not_whole")

    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """The events up to now."""
        while True:
            try:
                page = self.client.events(after, run, kinds=kinds)
            except EventsGone as error:
                after = error.oldest - 1  # older events were deleted: go on with the oldest that is kept
                continue
            yield from page["events"]
            # A page is full, or the server looked through MAX_LOOK events for it, or the journal ends there. On a busy
            # server new events never cease, so the first page that is neither full nor long is the last.
            if len(page["events"]) < MAX_PAGE and page["last"] - after < MAX_LOOK:
                return
            after = page["last"]


class EmptySource:
    """The source where no server runs and nothing was ever submitted."""

    def __enter__(self) -> EmptySource:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        """No runs."""
        return {"runs": [], "next": None}

    def _missing(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise nothing_submitted(str(args[0]))

    run = tasks = outcomes = task = partial = logs = why = _missing

    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """No events."""
        return iter(())

    def pilots(self, state: str = "") -> Json:
        """No pilots."""
        return {"pilots": []}

    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
        """No lines."""
        from shoal.db.accounts import parse_grouping  # SQL is loaded only where it is read

        return {
            "by": parse_grouping(by or "owner"),
            "since": since,
            "until": until or since,
            "lines": [],
            "places": None,
        }


def nothing_submitted(what: str = "") -> NotFound:
    """The error where no run was ever submitted; `what` is the run or task that was asked for."""
    missing = f"there is no {echo(what)}" if what else "there are no runs"
    hint = "try `shoal run -- echo hello`"
    return NotFound(f"{missing}: nothing was submitted here yet", code="unknown_run", hint=hint)


def all_rows(source: Source, run: str, states: Sequence[str] = (), values: bool = False) -> Iterator[Json]:
    """All rows of a run's tasks, in element order; `values`: with the small results of calls."""
    after: int | None = 0
    while after is not None:
        page = source.tasks(run, after, MAX_PAGE, states, values)
        yield from page["tasks"]
        after = page["next"]


def outcomes_of(rows: Iterable[Json]) -> Iterator[tuple[Any, ...]]:
    """Of each row what `OUTCOME` names."""
    return (tuple([row.get(name) for name in OUTCOME]) for row in rows)


def source_of(target: Target, say: Say | None = None) -> Source:
    """The source of a target: its server, else the embedded one if it runs, else its database file."""
    client = running_client(target, say)
    return HttpSource(client) if client is not None else open_file(state_dir())


def open_file(state: Path) -> Source:
    """The database file of a state directory as a source."""
    if not (state / DATABASE).exists():
        return EmptySource()
    from shoal.report.database_source import FileSource  # SQLite is loaded only where it is read

    return FileSource(state)


def latest_run(source: Source, say: Say) -> str:
    """The run that was submitted last, for a command line without a run; says which it is."""
    runs = source.runs(limit=1)["runs"]
    if not runs:
        raise nothing_submitted()
    run = str(runs[0]["run"])
    name = f" ({runs[0]['name']})" if runs[0]["name"] else ""
    say(f"the latest run: {run}{name}")
    return run


class _Array(NamedTuple):
    """A named array of a run: elements `first` to `end - 1`."""

    name: str
    first: int
    end: int


def _is_open(source: Source, target: str) -> bool:
    """True if a run, or a task, that others wait for is not over."""
    try:
        if "." in target:
            return not TaskState(source.task(target)["state"]).final
        return source.run(target)["finished"] is None
    except NotFound:
        return False  # it was deleted, which only what is over can be


def waits_for(source: Source, info: Mapping[str, Any]) -> Callable[[Spec], bool]:
    """A function that says whether an array still waits for its parents; successes are counted once, when needed."""
    arrays = [
        _Array(a["name"], int(a["first"]), int(a["first"]) + int(a["count"])) for a in info["arrays"] if a["name"]
    ]
    ordered = sorted(arrays, key=lambda array: array.first)
    starts = [array.first for array in ordered]
    sizes = {array.name: array.end - array.first for array in arrays}
    succeeded: dict[str, int] = {}
    settled: dict[str, int] = {}

    def count() -> None:
        succeeded.update(dict.fromkeys(sizes, 0))
        settled.update(succeeded)
        for row in all_rows(source, str(info["run"]), [state.value for state in FINAL]):
            at = bisect_right(starts, row["element"]) - 1
            if at >= 0 and row["element"] < ordered[at].end:
                succeeded[ordered[at].name] += row["state"] == "succeeded"
                settled[ordered[at].name] += 1
        for span in info["spans"]:
            at = bisect_right(starts, span["low"]) - 1
            if at >= 0:
                settled[ordered[at].name] += span["high"] - span["low"]

    def waits(spec: Spec) -> bool:
        parents = (*spec.after, *spec.after_any)
        if parents and not settled:
            count()
        if any(succeeded[name] < sizes[name] for name in spec.after if name in sizes):
            return True
        if any(settled[name] < sizes[name] for name in spec.after_any if name in sizes):
            return True
        return any(_is_open(source, name) for name in parents if name not in sizes)

    return waits
