"""Calls that keep a person's work in order: change what is queued, submit a run once more, remove a finished one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from shoal.db.reader import Reader
from shoal.db.retention import drop_logs
from shoal.engine.commands import Remove, SetFields
from shoal.model.errors import BadInput, Conflict, Refused, echo
from shoal.model.file_names import environment_name
from shoal.model.ids import TaskId, parse_run, parse_target, run_text
from shoal.model.limits import MAX_TARGETS
from shoal.model.rangeset import RangeSet
from shoal.model.states import TaskState
from shoal.model.task.spec import FIELDS, Spec
from shoal.model.task.task_field import fields_with
from shoal.server.context import CallHandler, unknown_run
from shoal.server.handlers.runs import check_exists
from shoal.server.handlers.submit import SubmissionRequest, submit
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.server.submission.check_expressions import check_expressions, tag_warnings
from shoal.server.submission.resume import sign
from shoal.wire.codec import from_plain
from shoal.wire.copy_tables import copy_tables, parse_only
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.http.requests import CopyRequest, RemoveRequest, SetRequest
from shoal.wire.submission import canonical, parse_submission
from shoal.wire.task import parse_spec

T = TypeVar("T", SetRequest, CopyRequest)


class ManageHandler(CallHandler):
    """Calls that change runs after they were submitted."""

    # --- change what is queued
    async def set_fields(self, call: Call) -> Response:
        """Give tasks that have not begun other values of task fields."""
        request = await call.object(lambda body: _with_fields(SetRequest, body))
        fields = _check_fields(request.fields, self.service.clock())
        if not request.targets or len(request.targets) > MAX_TARGETS:
            raise BadInput("which runs?", code="required", field="targets", hint='e.g. ["r12", "r13.4"]')
        targets = list(dict.fromkeys(parse_target(text) for text in request.targets))
        call.about = f"{' '.join(request.targets[:5])} {' '.join(fields)}"
        self.service.last_request = self.service.clock()
        for target in targets:
            self.context.check_target(call.caller, target)
            await check_exists(self.context, target)
        total = {"tasks": 0, "begun": 0}
        warnings: list[str] = []
        async with self.service.retrying:  # it reads rows and then acts on them, as a retry does
            for target in targets:
                done, notes = await self._set(target, fields)
                total = {name: count + done[name] for name, count in total.items()}
                warnings += [note for note in notes if note not in warnings]
        return answer({**total, "warnings": warnings})

    async def _set(self, target: int | TaskId, fields: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
        number, element = (target, 0) if isinstance(target, int) else target
        found = await self.service.query(lambda reader: _changed_tables(reader, number, element, fields))
        specs = [spec for spec, _ in found.values()]
        check_expressions(specs)
        owner = self.context.owner_of(number) or ""
        tables = {first: text for first, (_, text) in found.items()}
        done = await self.service.command(SetFields(target, fields, tables))
        return done, tag_warnings(self.service.engine.state, owner, specs)

    # --- the same work once more
    async def copy(self, call: Call) -> Response:
        """Submit what a run consists of, or some of it, as a new run with the same environment."""
        number, request = (
            parse_run(call.path_part("run")),
            await call.object(lambda body: _with_fields(CopyRequest, body)),
        )
        owner = self.context.owner_of(number)
        if owner != call.caller.owner:
            # The copy runs with the environment of the first submission, which is its owner's alone.
            raise Refused("only its owner copies a run", code="forbidden", hint="submit a run of your own")
        unknown = next((name for name in request.fields if name not in FIELDS), None)
        if unknown is not None:
            hint = did_you_mean(unknown, list(FIELDS))
            raise BadInput(f"unknown field {echo(unknown)!r}", code="unknown_field", field="fields", hint=hint)
        self.service.last_request = self.service.clock()
        parsed = await self.service.query(lambda reader: self._copied(reader, number, request))
        done = await submit(self.service, owner, parsed, self.context.blobs.claim)
        call.about = f"{run_text(number)} as {done['run']}"
        return answer(done)

    def _copied(self, reader: Reader, number: int, request: CopyRequest) -> SubmissionRequest:
        """The submission of a copy. On the reader's thread: a run may have millions of tasks."""
        found, row = reader.run(number), reader.run_row(number)
        if found is None or row is None:
            raise unknown_run(number)
        growth = reader.growth_row(number)
        grown = reader.grown_arrays(number) if growth is not None else ()
        arrays = [(array["first"], array["task"]) for array in found["arrays"] if array["first"] not in grown]
        chosen = _choose(reader, number, found["total"], request.only) if request.only else None
        document: dict[str, Any] = {
            "tasks": copy_tables(arrays, chosen, request.fields), "name": found["name"], "cwd": found["cwd"],
            "labels": found["labels"], "max_fail": row.max_fail, "max_running": row.max_running, "seed": row.seed,
            "key": request.key,
        }  # fmt: skip
        if row.notify:
            document["notify"] = json.loads(row.notify)
        partial = reader.partial_row(number)
        if partial is not None:
            document |= {"reduce": json.loads(partial.reduce), "until": partial.until}
        if growth is not None:
            document["rules"] = json.loads(growth.rules)
        document |= {name: value for name in ("name", "seed") if (value := getattr(request, name)) is not None}
        submission = parse_submission(document)
        environment = None
        if not row.env_file:
            with contextlib.suppress(OSError):  # a run without an environment
                environment = json.loads((self.service.state_dir / environment_name(number)).read_bytes())
        digest = hashlib.sha256(canonical([run_text(number), document]).encode()).hexdigest()
        return SubmissionRequest(
            submission, digest, sign(submission, {}), row.env_file, environment, False, False, False
        )

    # --- removal
    async def remove(self, call: Call) -> Response:
        """Remove finished runs with their logs, environments and references to blobs; their accounts stay."""
        request = await call.body(RemoveRequest)
        if not request.runs or len(request.runs) > MAX_TARGETS:
            raise BadInput("which runs?", code="required", field="runs", hint='e.g. ["r12"]')
        numbers = list(dict.fromkeys(parse_run(text) for text in request.runs))
        call.about = " ".join(request.runs[:8])
        self.service.last_request = self.service.clock()
        for number in numbers:
            self.context.check_target(call.caller, number)
        async with self.service.retrying:
            for number in numbers:
                await self._prepare_removal(number, numbers)
            done = await self.service.command(Remove(tuple(numbers)))
            freed = 0
            for number in numbers:
                freed += await asyncio.to_thread(_drop_files, self.service.state_dir, number)
                self.context.blobs.release(number)
                while await self.service.writer.ask(lambda db, run=number: db.drop_tasks(run)):  # type: ignore[misc]  # bound now
                    pass
        return answer({**done, "log_bytes": freed})

    async def _prepare_removal(self, number: int, numbers: list[int]) -> None:
        """Have the engine know the run; refuse it if another run that stays shows its results."""
        loaded = await self.service.writer.ask(lambda db: db.load_run(number))
        if loaded is None:
            raise unknown_run(number)
        later = await self.service.query(lambda reader: reader.reused_from(number))
        if later is not None and later not in numbers:
            raise Conflict(
                f"{run_text(later)} took over results of {run_text(number)} (--resume) and shows their output",
                code="in_use", hint=f"remove both: shoal rm {run_text(number)} {run_text(later)}",
            )  # fmt: skip
        self.service.load(loaded)


def _with_fields(kind: type[T], body: Mapping[str, Any]) -> T:
    """A body with task fields, which the table of task fields checks later, in the types that it has for each."""
    fields = body.get("fields", {})
    if not isinstance(fields, dict):
        raise BadInput(
            "expected a table of task fields", code="wrong_type", field="fields", hint='e.g. {"priority": 5}'
        )
    request = from_plain(kind, {name: value for name, value in body.items() if name != "fields"})
    return replace(request, fields=fields)


def _drop_files(state_dir: Path, run: int) -> int:
    """Delete the logs and the environment of a run; returns the bytes of logs."""
    (state_dir / environment_name(run)).unlink(missing_ok=True)
    return drop_logs(state_dir, run)


def _check_fields(fields: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Fields that can be changed while tasks are queued, each checked; a deadline counts from now on."""
    may_change = [field.name for field in fields_with(Spec, "queued")]
    if not fields:
        raise BadInput(
            "what shall be changed?", code="required", field="fields", hint=f"one of {', '.join(may_change)}"
        )
    for name in fields:
        if name not in may_change:
            hint = f"{', '.join(may_change)} can; `shoal copy` submits the same with any other change"
            if name not in FIELDS:
                hint = did_you_mean(name, may_change)
            raise BadInput(f"{echo(name)!r} cannot be changed", code="unknown_field", field="fields", hint=hint)
    found = dict(fields)
    for name, value in fields.items():
        kept = FIELDS[name].read(value, name)
        if name == "deadline" and kept[0] is not None:
            found[name] = datetime.fromtimestamp(now + kept[0], UTC).isoformat()
    return found


def _changed_tables(
    reader: Reader, number: int, element: int, fields: Mapping[str, Any]
) -> dict[int, tuple[Spec, str]]:
    """The tables of a run's arrays, or of the one with an element, with other fields, by first element."""
    run = reader.run(number)
    if run is None:
        raise unknown_run(number)
    found = {}
    for array in run["arrays"]:
        if not element or array["first"] <= element < array["first"] + array["count"]:
            table = {**array["task"], **fields}
            found[array["first"]] = parse_spec(table), json.dumps(table)
    return found


def _choose(reader: Reader, number: int, total: int, only: str) -> RangeSet:
    """The elements of a run that are named by their states or numbers."""
    states, ranges = parse_only(only, total)
    chosen = RangeSet()
    for low, high in ranges:
        chosen.add_range(low, high)
    if states:
        for row in reader.task_rows(number, [TaskState(state) for state in states]):
            chosen.add(row.element)
        for span in reader.spans(number):
            if span.state in states:
                chosen.add_range(span.low, span.high)
    if not chosen:
        hint = f"see `shoal ps {run_text(number)}`"
        raise BadInput(f"no task of {run_text(number)} is {echo(only)}", code="empty_bulk", field="only", hint=hint)
    return chosen
