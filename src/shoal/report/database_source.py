"""Reading without a server: the database and log files of a state directory, as documents like the server's."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.db.accounts import AccountQuery
from shoal.db.database_lock import explained
from shoal.db.end_reasons import ending_of
from shoal.db.reader import Reader
from shoal.engine.why.reason import Reason
from shoal.model.errors import EventsGone, NotFound, Refused, echo
from shoal.model.file_names import DATABASE, LOGS, log_name
from shoal.model.ids import TaskId, is_pilot, parse_place, parse_run, parse_target, parse_task, run_text
from shoal.model.limits import MAX_LOG_PART, MAX_PAGE
from shoal.report.data_source import Json, waits_for
from shoal.wire.task import parse_spec

if TYPE_CHECKING:  # the engine is imported only where it is used
    from shoal.engine.engine import Engine

_SECRETS = ("session", "former", "identity")  # columns of a pilot that no listing shows


def engine_why(state: Path, target: str) -> Json:
    """Why something waits, without a server: from an engine restored from the database."""
    from random import Random

    from shoal.db.sqlite import Database
    from shoal.engine.engine import Engine
    from shoal.model.timing import Timing

    with Database.open(state / DATABASE) as database:
        engine = Engine(database.snapshot(), Timing(), Random(0), time.time(), str(state))
    engine.state.unreconciled.clear()  # without a server no pilot is waited for
    where, reasons = _ask(engine, target)
    asleep = Reason(
        "no_server",
        "no server is running, so nothing new is handed out",
        "any work starts it again: `shoal wait RUN`, `shoal run ...`, or `shoal server start`",
    )
    return {"target": target, "state": where, "reasons": [asdict(reason) for reason in (asleep, *reasons)]}


def _ask(engine: Engine, target: str) -> tuple[str, list[Reason]]:
    named, now = parse_place(target), time.time()
    if named is None:
        return engine.why(target if is_pilot(target) else parse_target(target), now)
    kind, name = named
    if kind == "owner":
        return "", engine.why_owner(name, now)
    return "", engine.why_site(name, [p.name for p in engine.state.pilots.values() if p.site == name], now)


class FileSource:
    """A state directory whose server does not run, or is not needed."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._reader = Reader(state / DATABASE)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        """Runs, newest first."""
        with self._explained():
            found = self._reader.runs(
                limit=limit, before=parse_run(before) if before else None,
                state=state or None, name=name or None,  # type: ignore[arg-type]  # the reader refuses other states
            )  # fmt: skip
        rows = [{**row, "run": run_text(row["run"])} for row in found]
        return {"runs": rows, "next": rows[-1]["run"] if len(rows) == min(limit, MAX_PAGE) else None}

    def run(self, run: str) -> Json:
        """One run with its arrays and spans."""
        number = parse_run(run)
        with self._explained():
            found = self._reader.run(number)
            if found is None:
                raise no_run(run)
            return {**found, "run": run, "spans": [span._asdict() for span in self._reader.spans(number)]}

    def tasks(
        self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Sequence[str] = (), values: bool = False
    ) -> Json:
        """A page of rows."""
        number = parse_run(run)
        with self._explained():
            rows = self._reader.tasks(number, after=after, limit=limit, states=states or None, values=values)
        return {"tasks": rows, "next": rows[-1]["element"] if len(rows) == min(limit, MAX_PAGE) else None}

    def outcomes(self, run: str, values: bool = False) -> Iterator[tuple[Any, ...]]:
        """What became of each task that has a row."""
        number = parse_run(run)
        with self._explained():
            yield from self._reader.outcomes(number, values)

    def partial(self, run: str) -> Json:
        """What tasks of a run that succeeded emitted, merged."""
        number = parse_run(run)
        with self._explained():
            if self._reader.run_row(number) is None:
                raise no_run(run)
            return self._reader.partial(number)

    def task(self, task: str) -> Json:
        """One task with its events."""
        found = parse_task(task)
        info = self.run(run_text(found.run))
        array = next((a for a in info["arrays"] if a["first"] <= found.element < a["first"] + a["count"]), None)
        if array is None:
            raise no_task(task, info["total"])
        with self._explained():
            row = self._reader.task(found.run, found.element)
            events = self._reader.history(found.run, found.element)
        span = next((s for s in info["spans"] if s["low"] <= found.element < s["high"]), None)
        ended = row or span
        state = ended["state"] if ended is not None else self._state_of(info, array)
        return {"run": info, "array": array, "task": row, "span": span, "state": state, "events": events}

    def _state_of(self, info: Json, array: Json) -> str:
        return "waiting" if waits_for(self, info)(parse_spec(array["task"])) else "ready"

    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> Iterator[bytes]:
        """The bytes of a stream, part by part, from its log file."""
        found = parse_task(task)
        with self._explained():
            row = self._reader.task(found.run, found.element)
        if row is None:
            self.task(task)  # raises if there is no such task
            return
        if row["reused"]:
            yield from self.logs(row["reused"], stream)
            return
        path = self._state / LOGS / log_name(found.run, found.element, attempt or row["attempt"], stream)
        try:
            with path.open("rb") as file:
                while part := file.read(MAX_LOG_PART):
                    yield part
        except FileNotFoundError:
            return  # empty streams leave no file
        except OSError as error:
            raise Refused(f"cannot read {echo(str(path))}: {error.strerror}", code="unreadable") from None

    def events(self, run: str = "", after: int = 0, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """The events up to now, from the oldest that is kept."""
        number = parse_run(run) if run else None
        while True:
            try:
                with self._explained():
                    page = self._reader.events(after=after, run=number, kinds=kinds or None)
            except EventsGone as gone:
                after = gone.oldest - 1
                continue
            if not page:
                return
            yield from page
            after = page[-1]["seq"]

    def pilots(self, state: str = "") -> Json:
        """The pilots as the database knows them: without a server it is unknown which of them still run."""
        with self._explained():
            found = self._reader.pilots(state=state or None)
        return {"pilots": [{k: v for k, v in row.items() if k not in _SECRETS} for row in found]}

    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
        """Sums of the accounts up to the last event: what pilots did after it is unknown."""
        query = AccountQuery(by or "owner", since, math.inf if until is None else until)
        with self._explained():
            return self._reader.acct(query, self._reader.last_time() or time.time())

    def why(self, target: str) -> Json:
        """Why a run, task or pilot is in its state; for final ones the rows say it, and no engine is needed."""
        if parse_place(target) is not None:
            return engine_why(self._state, target)
        found = target if is_pilot(target) else parse_target(target)
        if isinstance(found, TaskId):
            self.task(target)  # raises if there is none
        elif isinstance(found, int):
            self.run(target)
        elif self._reader.pilot(target) is None:
            raise NotFound(f"there is no pilot {target}", code="unknown_pilot", hint="see `shoal pilots --all`")
        with self._explained():
            over = ending_of(self._reader, found)
        if over is not None:
            return {"target": target, **over}
        return engine_why(self._state, target)

    def _explained(self) -> Any:
        return explained(str(self._state / DATABASE))


def no_run(run: str) -> NotFound:
    """There is no such run."""
    return NotFound(f"there is no run {echo(run)}", code="unknown_run", hint="see `shoal ps`")


def no_task(task: str, total: int) -> NotFound:
    """There is no such task in its run."""
    return NotFound(f"there is no task {echo(task)}", code="unknown_task", hint=f"the run has tasks 1 to {total}")
