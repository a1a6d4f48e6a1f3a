"""Calls about runs and tasks: submit, list, show, why, cancel, retry, signal."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from typing import Any

from shoal.db.end_reasons import ending_of
from shoal.engine.changes import TaskRow
from shoal.engine.commands import Cancel, Retry, Signal
from shoal.engine.why.reason import Reason
from shoal.model.errors import BadInput, NotFound, echo
from shoal.model.ids import TaskId, is_pilot, parse_place, parse_run, parse_target, parse_task, run_text
from shoal.model.limits import MAX_NAME, MAX_TARGETS
from shoal.model.quantities import many
from shoal.model.signals import SIGNALS, parse_signal
from shoal.model.states import FINAL, Cause, TaskState
from shoal.server.context import CallHandler, Context, unknown_run
from shoal.server.handlers.events import LARGE
from shoal.server.handlers.submit import read_submission, submit
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.server.submission.dependencies import outcomes_of, targets_of
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.http.requests import RetryRequest, SignalRequest, Targets, Where
from shoal.wire.task import parse_spec


class RunsHandler(CallHandler):
    """Calls about runs and tasks."""

    async def submit(self, call: Call) -> Response:
        """Accept a run."""
        request = await call.object(read_submission)
        for target in targets_of(request.submission.specs):
            self.context.check_target(call.caller, target)
            await check_exists(self.context, target)
        self.service.last_request = now = self.service.clock()
        if request.submission.count <= LARGE:
            self.service.events.follow(now)  # whoever submits a run mostly follows it
        size = call.request.content_length or 0
        done = await submit(self.service, call.caller.owner, request, self.context.blobs.claim, size)
        call.about = done["run"]
        return answer(done)

    async def list_runs(self, call: Call) -> Response:
        """List runs, newest first."""
        limit, before = call.number("limit"), call.text("before")
        first = parse_run(before) if before is not None else None
        state: Any = call.text("state")  # the reader refuses what it does not know
        seen, owner = self.context.access.seen_by(call.caller), call.text("owner")
        owners = seen if owner is None else [owner] if seen is None or owner in seen else []
        if owners == [] or (owners is not None and any("," in name for name in owners)):
            return answer({"runs": [], "next": None})
        found = await self.service.query(
            lambda r: r.runs(limit=limit, before=first, state=state, name=call.text("name"), owners=owners)
        )
        running = self._running()
        for row in found:
            self._overlay(row, running)
        return answer({"runs": found, "next": run_text(found[-1]["run"]) if len(found) == limit else None})

    async def run(self, call: Call) -> Response:
        """One run whole, but for its tasks."""
        return answer(await self._run(parse_run(call.path_part("run"))))

    async def _run(self, number: int) -> dict[str, Any]:
        found = await self.service.query(
            lambda r: {**(r.run(number) or {}), "spans": [span._asdict() for span in r.spans(number)]}
        )
        if "run" not in found:
            raise unknown_run(number)
        return self._overlay(found, self._running())

    def _running(self) -> Counter[int]:
        """How many tasks of each run are known to run."""
        pilots = self.service.engine.state.pilots.values()
        return Counter(one.id.run for pilot in pilots for one in pilot.live.values() if one.running)

    def _overlay(self, row: dict[str, Any], running: Counter[int]) -> dict[str, Any]:
        """Add how many of a run's tasks are with pilots now, and run: the row is written only when a task ends."""
        run = self.service.engine.state.runs.get(row["run"])
        if run is not None:
            row["emits"] = run.partial is not None
            waiting = sum(len(array.todo) for array in run.arrays if array.waiting)
            row["counts"] |= {"live": run.live, "running": min(run.live, running[run.number]), "waiting": waiting}
        for inner in ("signature", "digest", "env_file", "nonce", "base", "notify"):
            row.pop(inner, None)
        return row

    async def tasks(self, call: Call) -> Response:
        """Rows of a run's tasks, a page at a time."""
        number, limit, after = parse_run(call.path_part("run")), call.number("limit"), call.number("after")
        state = call.text("state")
        states, values = state.split(",") if state is not None else None, bool(call.number("values"))
        await total_of(self.context, number)
        rows = await self.service.query(
            lambda r: r.tasks(number, after=after, limit=limit, states=states, values=values)
        )
        return answer({"tasks": rows, "next": rows[-1]["element"] if len(rows) == limit else None})

    async def partial(self, call: Call) -> Response:
        """What a run's tasks emitted so far."""
        number = parse_run(call.path_part("run"))
        await total_of(self.context, number)
        found = self.service.engine.partial(number)
        return answer(found if found is not None else await self.service.query(lambda r: r.partial(number)))

    async def task(self, call: Call) -> Response:
        """One task with its history."""
        task = parse_task(call.path_part("task"))
        run = await self._run(task.run)
        arrays = [a for a in run["arrays"] if a["first"] <= task.element < a["first"] + a["count"]]
        if not arrays:
            raise _no_task(task, run["total"])
        row, events = await self.service.query(lambda r: (r.task(*task), r.history(*task)))
        spans = [s for s in run["spans"] if s["low"] <= task.element < s["high"]]
        live = self.service.engine.state.runs.get(task.run)
        array = live.array_of(task.element) if live is not None else None
        state = array.state_of(task.element) if array is not None else None
        shown = str(state) if state is not None else (row or (spans or [{"state": "ready"}])[0])["state"]
        return answer(
            {
                "run": run,
                "array": arrays[0],
                "task": row,
                "span": (spans or [None])[0],
                "state": shown,
                "events": events,
            }
        )

    async def why(self, call: Call) -> Response:
        """Why a run, task, pilot, site or owner is in its state."""
        text = call.path_part("target")
        place = parse_place(text)
        if place is not None:
            return answer({"target": text, "state": "", "reasons": self._why_place(call, *place)})
        target = text if is_pilot(text) else parse_target(text)
        if not isinstance(target, str):
            await check_exists(self.context, target)
        over = await self.service.query(lambda r: ending_of(r, target))
        if over is not None:
            return answer({"target": text, **over})
        state, reasons = self.service.engine.why(target, self.service.clock())
        return answer({"target": text, "state": state, "reasons": reasons})

    def _why_place(self, call: Call, kind: str, name: str) -> list[Reason]:
        """The reasons for a site, as far as the caller sees its pilots, or for an owner that they may see."""
        engine, now = self.service.engine, self.service.clock()
        if kind == "owner":
            return engine.why_owner(name, now)
        holders = self.context.access.holders(call.caller)
        pilots = [
            p for p in engine.state.pilots.values() if p.site == name and (holders is None or p.holder in holders)
        ]
        return engine.why_site(name, [p.name for p in pilots], now, holders)

    # --- actions
    async def cancel(self, call: Call) -> Response:
        """Cancel runs and tasks."""
        request = await call.body(Targets)
        targets = await self._targets(call, request.targets)
        return answer(await self.service.command(Cancel(tuple(targets), unless_running=request.unless_running)))

    async def signal(self, call: Call) -> Response:
        """Send a signal to running tasks."""
        request = await call.body(SignalRequest)
        number = SIGNALS[parse_signal(request.signal)]
        targets = await self._targets(call, request.targets)
        return answer(await self.service.command(Signal(tuple(targets), number)))

    async def retry(self, call: Call) -> Response:
        """Make tasks that did not succeed ready again."""
        request = await call.body(RetryRequest)
        where = _check_where(request.where or Where())
        targets: list[int | TaskId]
        if request.targets or request.where is None:
            targets = await self._targets(call, request.targets)
        else:
            # A filter alone means the caller's own runs, also for those who may act on others'.
            targets = list(await self.service.query(lambda r: r.failed_runs([call.caller.owner])))
        count, runs = 0, []
        async with self.service.retrying:
            for target in targets:
                number, element = (target, None) if isinstance(target, int) else target
                done = await self._retry(number, element, where)
                count += done
                if done:
                    runs.append(run_text(number))
        return answer({"tasks": count, "runs": list(dict.fromkeys(runs))})

    async def _retry(self, number: int, element: int | None, where: Where) -> int:
        loaded, failed = await self.service.writer.ask(
            lambda db: (db.load_run(number), db.failed_rows(number, element))
        )
        rows = [row for row in failed.tasks if _fits(where, row)]
        spans = [span for span in failed.spans if _fits_span(where, span.state)]
        is_whole = element is None and where == Where()
        if loaded is None or not (rows or spans or (is_whole and any(row.stopped for row in loaded.growths))):
            return 0
        awaited = targets_of(parse_spec(json.loads(array.task)) for array in loaded.arrays)
        outcomes = await outcomes_of(self.service, awaited)
        self.service.load(loaded)
        result = await self.service.command(Retry(number, tuple(rows), tuple(spans), outcomes))
        return int(result["tasks"])

    async def _targets(self, call: Call, texts: list[str]) -> list[int | TaskId]:
        if not texts or len(texts) > MAX_TARGETS:
            raise BadInput(
                "expected a list of runs and tasks", code="required", field="targets", hint='e.g. ["r12", "r13.4"]'
            )
        call.about = " ".join(texts[:5])
        self.service.last_request = self.service.clock()
        targets = list(dict.fromkeys(parse_target(text) for text in texts))
        for target in targets:
            self.context.check_target(call.caller, target)
            if not isinstance(target, int):
                await check_exists(self.context, target)
        return targets


# --- existence
async def total_of(context: Context, number: int) -> int:
    """How many tasks a run has."""
    known = context.service.engine.state.runs.get(number)
    if known is not None:
        return known.total
    found = await context.service.query(lambda r: r.run_row(number))
    if found is None:
        raise unknown_run(number)
    return found.total


async def check_exists(context: Context, target: int | TaskId) -> None:
    """Refuse a run or a task that does not exist."""
    total = await total_of(context, target if isinstance(target, int) else target.run)
    if not isinstance(target, int) and target.element > total:
        raise _no_task(target, total)


def _no_task(task: TaskId, total: int) -> NotFound:
    return NotFound(f"there is no task {task}", code="unknown_task", hint=f"the run has {many(total, 'task')}")


# --- filters
def _check_where(where: Where) -> Where:
    finals = [state.value for state in FINAL if state is not TaskState.SUCCEEDED]
    if where.state is not None and where.state not in finals:
        hint = ", ".join(sorted(finals))
        raise BadInput(f"{echo(where.state)!r} cannot be retried", code="unknown_state", field="where.state", hint=hint)
    for field in ("cause", "host", "site", "message"):
        # A glob becomes a pattern that is built and searched on the event loop.
        if len(getattr(where, field) or "") > MAX_NAME:
            raise BadInput("too long", code="too_long", field=f"where.{field}", hint=f"at most {MAX_NAME} characters")
    causes = [cause.value for cause in Cause]
    if where.cause is not None and where.cause not in causes:
        raise BadInput(
            f"{echo(where.cause)!r} is not a cause", code="unknown_state", field="where.cause",
            hint=did_you_mean(where.cause, causes),
        )  # fmt: skip
    return where


def _fits(where: Where, row: TaskRow) -> bool:
    texts = ((where.host, row.host), (where.site, row.site), (where.message, row.message))
    return (
        where.state in (None, row.state)
        and where.cause in (None, row.cause)
        and where.exit_code in (None, row.exit_code)
        and all(glob is None or fnmatch.fnmatchcase(text, glob) for glob, text in texts)
    )


def _fits_span(where: Where, state: str) -> bool:
    """Tasks that never ran have a state and nothing else to filter by."""
    rest = (where.cause, where.exit_code, where.host, where.site, where.message)
    return where.state in (None, state) and all(value is None for value in rest)
