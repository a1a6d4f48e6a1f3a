"""Queries for readers, over a connection that cannot write: dicts that become JSON, row types for programs.

It works beside a server and without one. No transaction stays open between calls, so that a slow reader keeps neither
the log from being checkpointed nor the writer from writing. One thread at a time per Reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from shoal.db.accounts import AccountQuery, listed
from shoal.db.accounts import read as read_accounts
from shoal.db.backups import connect_readonly
from shoal.db.database_lock import explained
from shoal.db.migrate import newest, version_of
from shoal.db.named_queries import SQL
from shoal.db.sqlite import MAX_INT, MEMORY, Database
from shoal.engine.changes import (
    ClosedRow,
    GrowthRow,
    NoticeRow,
    PartialRow,
    PilotRow,
    ResultRow,
    RunRow,
    SpanRow,
    TaskRow,
)
from shoal.model.errors import BadInput, EventsGone, NotFound, Refused, echo
from shoal.model.event import KINDS
from shoal.model.ids import parse_attempt, start_count
from shoal.model.limits import MAX_NAME, MAX_PAGE, MAX_SHOWN_RESULT
from shoal.model.states import REMOVE, PilotState, TaskState
from shoal.model.task.kept_files import START
from shoal.sched.partial.answers import describe
from shoal.sched.partial.contribution import read

Row = dict[str, Any]
RowT = TypeVar("RowT")
_GLOB = frozenset("*?[")
_LOOKED, _ALIKE = 2_000, 3  # runs that are looked through for runs alike, and those that are told
_EARLIER = 100  # runs of one signature that --resume looks at
OUTCOMES = 10_000  # rows that are read at once: longer would keep the server from its checkpoints


class KeyedRun(NamedTuple):
    """The run that an idempotency key made, and the digest of the request."""

    run: int
    digest: str


class Results(NamedTuple):
    """A page of the results of a run."""

    rows: list[ResultRow]
    closed: list[ClosedRow]  # ranges of elements that became final without rows
    last: int  # the number of the event up to which the page goes
    holders: list[str]  # for each row the owner of its pilot; empty: a group's pilot, or none


def _gone(after: int, oldest: int) -> EventsGone:
    return EventsGone(f"events after {after} are no longer kept", oldest=oldest)


class Reader:
    """Queries to a database."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        location = os.path.realpath(path)
        if not os.path.isfile(location):
            raise NotFound(f"there is no database {location}", code="no_database", hint="submit something first")
        with explained(location), contextlib.ExitStack() as undo:
            self._connection, self._path = connect_readonly(location), location
            undo.callback(self._connection.close)
            _check_schema(self._connection, location)
            undo.pop_all()

    @classmethod
    def on(cls, database: Database) -> Reader:
        """A reader of an open database; one in memory can only be read through its own connection."""
        if database.path != MEMORY:
            return cls(database.path)
        reader = cls.__new__(cls)
        reader._connection, reader._path = database.connection, MEMORY
        return reader

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a reader should be closed before the server's own connection."""
        if self._path != MEMORY:
            self._connection.close()

    # --- runs
    def find_key(self, owner: str, key: str) -> KeyedRun | None:
        """The run that an owner's idempotency key made."""
        found = self._connection.execute(SQL["find_key"], {"owner": owner, "key": key}).fetchone()
        return None if found is None else KeyedRun(*found)

    def runs(
        self, *, limit: int = 50, before: int | None = None, state: Literal["open", "finished"] | None = None,
        name: str | None = None, owners: Iterable[str] | None = None,
    ) -> list[Row]:  # fmt: skip
        """Runs newest first; `before` is the last run of the page before; `name` is a prefix, or a glob with * ? [."""
        if state not in (None, "open", "finished"):
            raise BadInput(f"{echo(state)!r} is not a state of a run", code="unknown_state", hint="open or finished")
        if name is not None and len(name.encode("utf-8", "replace")) > MAX_NAME:
            raise BadInput("the name is too long", code="bad_name", field="name", hint=f"at most {MAX_NAME} bytes")
        glob = name is not None and not _GLOB.isdisjoint(name)
        found = self._all(
            "list_runs", limit=_page(limit), before=MAX_INT if before is None else _whole(before, "before"),
            open=None if state is None else int(state == "open"), owners=listed(owners),
            prefix=None if glob else name, glob=name if glob else None,
        )  # fmt: skip
        goals = self._goals(found[-1]["run"], found[0]["run"]) if found else {}
        return [{**_decoded(row, counts={}, labels={}), "goal": goals.get(row["run"])} for row in found]

    def run(self, run: int) -> Row | None:
        """One run with its arrays."""
        found = self._first("get_run", run=run)
        if found is None:
            return None
        arrays = [_decoded(row, task={}) for row in self._all("show_arrays", run=run)]
        grows = self._rules(run)
        more = {"rules": grows, "planning": self._planning(found)}
        return {**_decoded(found, counts={}, labels={}), "arrays": arrays, **self._emitted(run), **more}

    def _planning(self, run: Row) -> Row | None:
        """The planning state of a run, and what its steps found; None: the server did not plan it."""
        row = self._first("get_plan", run=run["run"])
        if row is None:
            return None
        data = {name: value for name, value in json.loads(row["data"]).items() if name not in ("written", "renamed")}
        return {"stage": REMOVE if run["finished"] is not None else row["stage"], **data}

    def _rules(self, run: int) -> list[Row]:
        """The rules of a run that make tasks of files, and how far each is; none of nearly every run."""
        row = self.growth_row(run)
        if row is None:
            return []
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for found in self._all("grown_tasks", run=run):
            is_task = found["element"] > 0
            counts[found["rule"]].update(
                files=found["files"], waiting=0 if is_task else found["files"], tasks=int(is_task)
            )
        watches = bool(row.watching and not row.stopped)
        return [
            {
                "name": table["name"], "pattern": table["files"], "files": counts[at]["files"],
                "waiting": counts[at]["waiting"], "tasks": counts[at]["tasks"], "watching": watches and "watch" in table,
            }
            for at, table in enumerate(json.loads(row.rules))
        ]  # fmt: skip

    def growth_row(self, run: int) -> GrowthRow | None:
        """The rules of a run as they were written; None if it has none."""
        return self._row(GrowthRow, "get_growth", run=run)

    def grown_arrays(self, run: int) -> set[int]:
        """First elements of the tasks that rules of a run made."""
        return {row["element"] for row in self._all("grown_tasks", run=run)} - {0}

    def _emitted(self, run: int) -> Row:
        """Whether tasks of a run emitted anything, or may be expected to; and its goal."""
        row = self.partial_row(run)
        goal = {"until": row.until, "reached": row.reached} if row is not None and row.until else None
        return {"emits": row is not None, "goal": goal}

    def _goals(self, low: int, high: int) -> dict[int, Row]:
        """The goals of runs from one to another, and the values by which they were reached, if they were."""
        return {row.pop("run"): row for row in self._all("list_goals", low=low, high=high)}

    def notices(self, each: int, page: int = 500) -> list[NoticeRow]:
        """What is to be told to somebody, oldest first, and so many of one owner at most; read in pages."""
        found, of = list[NoticeRow](), Counter[str]()
        seq, target = 0, ""
        while True:
            rows = self._connection.execute(
                SQL["list_notices"], {"seq": seq, "target": target, "limit": page}
            ).fetchall()
            for row in map(NoticeRow._make, rows):
                of[row.owner] += 1
                if of[row.owner] <= each:
                    found.append(row)
            if len(rows) < page:
                return found
            seq, target = rows[-1][:2]

    def partial_row(self, run: int) -> PartialRow | None:
        """What tasks of a run emitted, of those that succeeded; None if nothing was emitted, nor anything said of it."""
        return self._row(PartialRow, "get_partial", run=run)

    def partial(self, run: int) -> Row:
        """The same as answers."""
        row = self.partial_row(run) or PartialRow(run, "{}", "", "", 0, "")
        return describe(run, read(row.merged), row.tasks, 0, row.until, row.reached)

    def run_row(self, run: int) -> RunRow | None:
        """One run without its arrays, of which there may be ten thousand."""
        return self._row(RunRow, "get_run", run=run)

    def failed_runs(self, owners: Iterable[str] | None) -> list[int]:
        """Runs of which something did not succeed, newest first; the newest thousand."""
        return [row["run"] for row in self._all("failed_runs", owners=listed(owners), limit=MAX_PAGE)]

    def earlier(self, owner: str, signature: str) -> list[int]:
        """An owner's runs whose signature begins so, newest first; the newest hundred."""
        found = self._all("earlier_runs", owner=owner, signature=signature)
        return sorted((row["run"] for row in found), reverse=True)[:_EARLIER]

    def alike(self, owner: str, command: Sequence[str], shell: str | None) -> list[int]:
        """The newest runs of an owner with the same command, before parameters are filled in."""
        text = json.dumps(list(command), separators=(",", ":"), ensure_ascii=False) if command else None
        after = self._connection.execute(SQL["last_run"]).fetchone()[0] - _LOOKED
        found = self._all("alike_runs", owner=owner, command=text, shell=shell, after=after, limit=_ALIKE)
        return [row["run"] for row in found]

    def reused_from(self, run: int) -> int | None:
        """A run that took over results of this one; None if none did."""
        found = self._first("reused_from", run=run)
        return found["run"] if found is not None else None

    # --- tasks
    def tasks(
        self,
        run: int,
        *,
        after: int = 0,
        limit: int = MAX_PAGE,
        states: Iterable[str] | None = None,
        values: bool = False,
    ) -> list[Row]:
        """A page of the tasks of a run that have rows, in order of their elements; `values`: with small results."""
        wanted = _filter(states, {state.value for state in TaskState}, "unknown_state", "states")
        if wanted is None:
            return []
        found = self._all("list_tasks", run=run, after=_whole(after, "after"), limit=_page(limit), states=wanted)
        return [_task(row, values) for row in found]

    def outcomes(self, run: int, values: bool = False) -> Iterator[tuple[Any, ...]]:
        """What became of each task of a run that has a row, in order of their elements: element, state, exit_code,
        duration, host, cause, attempt, last_line, started, ended, and with `values` the small results, else ''."""
        return chain.from_iterable(self._outcome_pages(run, values))

    def _outcome_pages(self, run: int, values: bool) -> Iterator[list[tuple[Any, ...]]]:
        asked = {"run": run, "values": int(values), "most": MAX_SHOWN_RESULT, "after": 0, "limit": OUTCOMES}
        while page := self._connection.execute(SQL["list_outcomes"], asked).fetchall():
            yield page
            asked["after"] = page[-1][0]

    def task(self, run: int, element: int) -> Row | None:
        """One task, if it has a row."""
        found = self._first("get_task", run=run, element=element)
        return None if found is None else _task(found)

    def task_row(self, run: int, element: int) -> TaskRow | None:
        """One task as the database has it, if it has a row."""
        return self._row(TaskRow, "get_task", run=run, element=element)

    def spans(self, run: int) -> list[SpanRow]:
        """Elements low .. high - 1 that became final together without rows."""
        return [SpanRow._make(row) for row in self._connection.execute(SQL["spans_of_run"], {"run": run})]

    def task_rows(self, run: int, states: Iterable[str]) -> Iterator[TaskRow]:
        """Every task of a run in one of these states, read page by page, for `--resume`."""
        after, wanted = 0, listed(states)
        while True:
            values = {"run": run, "after": after, "limit": MAX_PAGE, "states": wanted}
            page = [TaskRow._make(row) for row in self._connection.execute(SQL["list_tasks"], values)]
            yield from page
            if len(page) < MAX_PAGE:
                return
            after = page[-1].element

    # --- the journal
    def events(
        self, *, after: int, limit: int = MAX_PAGE, run: int | None = None, kinds: Iterable[str] | None = None,
        holders: Iterable[str] | None = None, until: int = MAX_INT, raw: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Events after a number, oldest first; EventsGone if some that should be among them were deleted.

        `raw`: their data stays JSON text, for a response that would only encode it again.
        """
        _whole(after, "after")
        wanted = _filter(kinds, set(KINDS), "unknown_kind", "kinds")
        found: list[Row] = []
        if wanted is not None:
            query = "list_events" if run is None else "list_run_events"
            values: Row = {"after": after, "limit": _page(limit), "kinds": wanted}
            more: Row = {"run": run} if run is not None else {"holders": listed(holders), "until": until}
            found = self._all(query, **values, **more)
        # Read last: events that retention deleted meanwhile are noticed.
        oldest = self.oldest_seq()
        if after < oldest - 1:
            raise _gone(after, oldest)
        if raw:
            return [{**row, "data": msgspec.Raw((row["data"] or "{}").encode())} for row in found]
        return [_decoded(row, data={}) for row in found]

    def history(self, run: int, element: int, attempt: int | None = None) -> list[Row]:
        """The events of one task, or of one attempt at it, oldest first.

        Events about many tasks at once are among them, reduced to this one.
        """
        found = []
        for row in self._all("task_events", run=run, element=element):
            event = _decoded(row, data={})
            if event["task"] is not None:
                if attempt in (None, event["attempt"]):
                    found.append(event)
            elif attempt is None and any(low <= element <= high for low, high in event["data"].get("ranges", [])):
                found.append({**event, "task": element, "data": {**event["data"], "ranges": [[element, element]]}})
        text = f"r{run}.{element}#" if attempt is None else f"r{run}.{element}#{attempt}@"
        for row in self._all("naming_events", run=run, needle=f'"{text}'):
            event = _decoded(row, data={})
            for name in event["data"].get("attempts", []):
                if name.startswith(text):
                    number = int(name.split("#")[1].split("@")[0])
                    data = {**event["data"], "attempts": [name]}
                    if "inputs" in data:
                        data["inputs"] = {one: local for one, local in data["inputs"].items() if one == name}
                    found.append({**event, "run": run, "task": element, "attempt": number, "data": data})
        found += [event for event in self._chunk_leases(run, element) if attempt in (None, event["attempt"])]
        return sorted(found, key=lambda event: event["seq"])

    def _chunk_leases(self, run: int, element: int) -> Iterator[Row]:
        """Events about this element and its neighbours, reduced to it."""
        for row in self._all("naming_events", run=run, needle=f'["r{run}.'):
            event = _decoded(row, data={})
            for name, count in event["data"].get("chunks", []):
                first = parse_attempt(name)
                if first.run == run and first.element <= element < first.element + count:
                    mine = str(first._replace(element=element))
                    data = {"attempts": [mine], "chunk": [name, count]}
                    yield {**event, "run": run, "task": element, "attempt": first.number, "data": data}

    def results(self, run: int, after: int, limit: int) -> Results:
        """Tasks of a run that became final after a number of the journal, and all those without rows."""
        last = self.last_seq()  # first, so that nothing committed meanwhile is skipped
        found = self._connection.execute(SQL["list_results"], {"run": run, "after": after, "limit": limit}).fetchall()
        if after < self.oldest_seq() - 1:
            raise _gone(after, self.oldest_seq())
        rows = [ResultRow._make((*row[1:-1], 0, 0)) for row in found]  # the database keeps no sizes of streams
        closed = [ClosedRow(span.low, span.high, span.state, span.cause, span.message) for span in self.spans(run)]
        reached = found[-1][0] if len(found) == limit else max(after, last)
        return Results(rows, closed, reached, [row[-1] for row in found])

    def oldest_seq(self) -> int:
        """The number of the oldest event that is kept."""
        return int(self._meta("oldest_seq"))

    def last_seq(self) -> int:
        """The number of the newest event, even if it is no longer kept."""
        last = self._connection.execute(SQL["last_event"]).fetchone()[0]
        return max(int(last), self.oldest_seq() - 1)

    # --- pilots and the server
    def pilots(
        self, *, state: str | None = None, limit: int = MAX_PAGE, holders: Iterable[str] | None = None
    ) -> list[Row]:
        """Pilots newest first."""
        if state is not None and state not in {known.value for known in PilotState}:
            hint = ", ".join(known.value for known in PilotState)
            raise BadInput(f"{echo(state)!r} is not a state of a pilot", code="unknown_state", hint=hint)
        found = self._all("list_pilots", state=state, limit=_page(limit), holders=listed(holders))
        return [_decoded(row, former=[], tags={}) for row in found]

    def pilot(self, name: str) -> PilotRow | None:
        """One pilot."""
        return self._row(PilotRow, "get_pilot", pilot=name)

    def hosts(self, *, limit: int = MAX_PAGE, holders: Iterable[str] | None = None) -> list[Row]:
        """Hosts, the one seen last first."""
        return self._all("list_hosts", limit=_page(limit), holders=listed(holders))

    def acct(self, query: AccountQuery, now: float) -> Row:
        """Sums of the accounts, and how much of what pilots offered was used."""
        return read_accounts(self._connection, query, now)

    def last_time(self) -> float:
        """The time of the newest event that is kept: the database knows of nothing later."""
        found = self._first("last_time")
        return 0.0 if found is None else float(found["time"])

    # --- people
    def tokens(
        self, *, now: float, owner: str | None = None, group: str = "", dead: bool = False, limit: int = MAX_PAGE
    ) -> list[Row]:
        """Tokens of an owner and of a group newest first, without the digests of their secrets."""
        found = self._all("list_tokens", owner=owner, grp=group, dead=int(dead), now=now, limit=_page(limit))
        return [{name: value for name, value in row.items() if name != "digest"} for row in found]

    def audit(
        self, *, limit: int = MAX_PAGE, before: int | None = None, token: str | None = None, owner: str | None = None
    ) -> list[Row]:
        """Uses of secrets, newest first."""
        start = MAX_INT if before is None else _whole(before, "before")
        return self._all("list_audit", limit=_page(limit), before=start, token=token, owner=owner)

    def server_facts(self) -> Row:
        """Figures about the database as a whole, for `shoal server status`."""
        pragma = {
            name: int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("user_version", "page_count", "page_size")
        }
        counts = self._first("count_all") or {}
        log = self._path + "-wal"
        return {
            "incarnation": start_count(int(self._meta("incarnation"))),
            "started": float(self._meta("started")),
            "schema": pragma["user_version"],
            "sqlite": sqlite3.sqlite_version,
            **counts,
            "events": self.last_seq() - self.oldest_seq() + 1,  # the journal has no gaps
            "event_bytes": int(self._meta("event_bytes")),
            "bytes": pragma["page_count"] * pragma["page_size"] + (os.path.getsize(log) if os.path.exists(log) else 0),
        }

    # --- running queries
    def _all(self, query: str, **values: Any) -> list[Row]:
        cursor = self._connection.execute(SQL[query], values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _first(self, query: str, **values: Any) -> Row | None:
        found = self._all(query, **values)
        return found[0] if found else None

    def _row(self, kind: Callable[..., RowT], query: str, **values: Any) -> RowT | None:
        found = self._connection.execute(SQL[query], values).fetchone()
        return None if found is None else kind(*found)

    def _meta(self, key: str) -> Any:
        return self._connection.execute(SQL["get_meta"], {"key": key}).fetchone()[0]


def _check_schema(connection: sqlite3.Connection, path: str) -> None:
    version = version_of(connection, path)
    if version == 0:
        raise NotFound(f"{path} is empty", code="no_database", hint="submit something first")
    if version < newest():
        raise Refused(
            f"{path} was made by an older Shoal (schema {version}, this one reads {newest()})", code="older_database",
            hint="start a server on it once: that brings it up to date",
        )  # fmt: skip


def _decoded(row: Row, **columns: Any) -> Row:
    """The row with its JSON columns decoded; each is named with the value that an empty text stands for."""
    for name, empty in columns.items():
        row[name] = json.loads(row[name]) if row[name] else empty
    return row


def _task(row: Row, values: bool = False) -> Row:
    result = row.pop("result", None)  # up to 64 KiB that only the caller of the function can decode
    if values and result and (len(result) <= MAX_SHOWN_RESULT or result.startswith(START)):  # or it names outputs
        row["result"] = result
    return _decoded(row, live=[], new_files=[], special={})


def _whole(value: int, field: str) -> int:
    """A cursor, if it can be one [input E69]."""
    if not 0 <= value <= MAX_INT:
        raise BadInput(f"{echo(value)!r} is not a place to go on from", code="bad_cursor", field=field)
    return value


def _page(limit: int) -> int:
    """How many rows a page has: what was asked, up to the bound [input E69]."""
    if limit < 1:
        raise BadInput(f"{echo(limit)!r} is not a limit", code="bad_limit", field="limit", hint=f"1 to {MAX_PAGE}")
    return min(limit, MAX_PAGE)


def _filter(given: Iterable[str] | None, known: set[str], code: str, field: str) -> str | None:
    """The names as one text for SQL: empty if there is no filter, None if nothing can pass it."""
    if given is None:
        return ""
    names = [str(name) for name in given]
    for name in names:
        if name not in known:
            raise BadInput(f"{echo(name)!r} is unknown", code=code, field=field, hint=", ".join(sorted(known)))
    return listed(names) if names else None
