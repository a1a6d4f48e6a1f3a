"""Where reading commands read: one interface, over HTTP from a server or straight from the database file.

Every reading command works without a server [protocol 1]; what only a living engine knows (`why`) says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from shoal.client.client import Client
from shoal.client.config import Target, find_target
from shoal.client.connection.embedded_server import Say, running_client, state_dir
from shoal.model.errors import EventsGone, NotFound, echo
from shoal.model.ids import run_text
from shoal.model.layout import DATABASE
from shoal.model.limits import MAX_LOOK, MAX_PAGE
from shoal.model.spec import Spec

Json = dict[str, Any]


class Source(Protocol):
    """What can be read of runs, tasks, logs, events and pilots; shapes as in docs/reference/http.md."""

    def __enter__(self) -> Source: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json: ...
    def run(self, run: str) -> Json: ...
    def tasks(self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Sequence[str] = ()) -> Json: ...
    def rows(self, run: str, states: Sequence[str] = ()) -> Iterator[Json]: ...
    def task(self, task: str) -> Json: ...
    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> bytes: ...
    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]: ...
    def pilots(self, state: str = "") -> Json: ...
    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json: ...
    def why(self, target: str) -> Json: ...


class HttpSource:
    """A server, asked page by page."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.task = client.task
        self.pilots = client.pilots
        self.acct = client.acct
        self.why = client.why

    def __enter__(self) -> HttpSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        """Runs, newest first."""
        page = self.client.runs(state, name, limit, before)
        return {**page, "runs": [named(row) for row in page["runs"]]}

    def run(self, run: str) -> Json:
        """One run with its arrays and spans."""
        return named(self.client.run(run))

    def tasks(self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Sequence[str] = ()) -> Json:
        """A page of rows."""
        return self.client.tasks(run, after, limit, states)

    def rows(self, run: str, states: Sequence[str] = ()) -> Iterator[Json]:
        """All rows of a run, in element order."""
        after: int | None = 0
        while after is not None:
            page = self.client.tasks(run, after, states=states)
            yield from page["tasks"]
            after = page["next"]

    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> bytes:
        """What there is of a stream now."""
        part = self.client.logs(task, stream, attempt)
        parts = [part.data]
        while part.data and part.more:
            part = self.client.logs(task, stream, attempt, part.next)
            parts.append(part.data)
        return b"".join(parts)

    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """The journal to where it ends now."""
        while True:
            try:
                page = self.client.events(after, run, kinds=kinds)
            except EventsGone as error:
                after = error.oldest - 1  # the beginning is pruned: from what is kept
                continue
            yield from page["events"]
            # A page is full, or the server looked through MAX_LOOK events for it, or the journal ends there. On a busy
            # server there is always a little more, of others or of other kinds: the first end is the end.
            if len(page["events"]) < MAX_PAGE and page["last"] - after < MAX_LOOK:
                return
            after = page["last"]


class EmptySource:
    """No server runs and nothing was ever submitted here."""

    def __enter__(self) -> EmptySource:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        """None."""
        return {"runs": [], "next": None}

    def run(self, run: str) -> Json:
        """Not there."""
        raise _nothing(run)

    def tasks(self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Sequence[str] = ()) -> Json:
        """Not there."""
        raise _nothing(run)

    def rows(self, run: str, states: Sequence[str] = ()) -> Iterator[Json]:
        """Not there."""
        raise _nothing(run)

    def task(self, task: str) -> Json:
        """Not there."""
        raise _nothing(task)

    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> bytes:
        """Not there."""
        raise _nothing(task)

    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """None."""
        return iter(())

    def pilots(self, state: str = "") -> Json:
        """None."""
        return {"pilots": []}

    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
        """No lines."""
        from shoal.db.accounts import words_of  # SQL is loaded only where it is read

        return {"by": words_of(by or "owner"), "since": since, "until": until or since, "lines": [], "places": None}

    def why(self, target: str) -> Json:
        """Not there."""
        raise _nothing(target)


def named(row: Json) -> Json:
    """A run's row with its number as people write it."""
    return row if isinstance(row["run"], str) else {**row, "run": run_text(row["run"])}


def _nothing(what: str) -> NotFound:
    return NotFound(
        f"there is no {echo(what)}: nothing was submitted here yet", code="unknown_run",
        hint="try `shoal run -- echo hello`",
    )  # fmt: skip


def open_source(server: str | None = None, say: Say | None = None) -> Source:
    """Where to read: the configured server, else the embedded one if it runs, else its database file."""
    return source_of(find_target(server), say)


def source_of(target: Target, say: Say | None = None) -> Source:
    """The source that a target stands for; starts nothing."""
    client = running_client(target, say)
    return HttpSource(client) if client is not None else open_file(state_dir())


def open_file(state: Path) -> Source:
    """The database file of a state directory, if there is one."""
    if not (state / DATABASE).exists():
        return EmptySource()
    from shoal.report.file_source import FileSource  # SQLite is loaded only where it is read

    return FileSource(state)


def latest_run(source: Source, say: Say) -> str:
    """The run that was submitted last, for a command that names none; says which it took."""
    runs = source.runs(limit=1)["runs"]
    if not runs:
        raise NotFound(
            "there are no runs: nothing was submitted here yet", code="unknown_run",
            hint="try `shoal run -- echo hello`",
        )  # fmt: skip
    run = str(runs[0]["run"])
    name = f" ({runs[0]['name']})" if runs[0]["name"] else ""
    say(f"no run named: {run}{name}, the latest")
    return run


def waits_for(source: Source, info: Mapping[str, Any]) -> Callable[[Spec], bool]:
    """Does an array still wait for its parents? Their successes are counted once, and only if somebody asks."""
    named: dict[str, tuple[int, int]] = {}
    for array in info["arrays"]:
        if array["name"]:
            named[array["name"]] = (int(array["first"]), int(array["first"]) + int(array["count"]))
    succeeded: dict[str, int] = {}

    def count() -> None:
        succeeded.update(dict.fromkeys(named, 0))
        places = sorted((low, high, name) for name, (low, high) in named.items())
        at = 0
        for row in source.rows(str(info["run"]), ("succeeded",)):
            while at < len(places) and places[at][1] <= row["element"]:
                at += 1
            if at < len(places) and places[at][0] <= row["element"]:
                succeeded[places[at][2]] += 1

    def waits(spec: Spec) -> bool:
        if spec.after and not succeeded:
            count()
        return any(succeeded[name] < named[name][1] - named[name][0] for name in spec.after)

    return waits
