"""The files of running tasks: the pilot is asked, and its answer comes with an exchange [DIANE U5]."""

from __future__ import annotations

import base64
import posixpath
from dataclasses import asdict

from shoal.engine.commands import Look
from shoal.engine.matching.lease_message import parameters
from shoal.model.errors import BadInput, Conflict, NotFound, Refused, ShoalError
from shoal.model.ids import TaskId, parse_task
from shoal.model.limits import PEEK_WAIT
from shoal.model.states import TaskState
from shoal.model.task.spec import OWN
from shoal.model.task.sweep import fill
from shoal.server.context import CallHandler
from shoal.server.handlers.runs import check_exists
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.wire.messages import FileAnswer
from shoal.wire.task import parse_spec

_ERRORS: dict[str, type[ShoalError]] = {"no_such_file": NotFound, "not_running": Conflict, "leads_out": Refused}


class PeekHandler(CallHandler):
    """Calls about the files of running tasks."""

    async def files(self, call: Call) -> Response:
        """The entries of a task's directory, or of one below it."""
        found = await self._ask(call, "list_files")
        entries = [asdict(entry) for entry in found.entries]
        return answer({"directory": found.directory, "entries": entries, "total": found.size})

    async def file(self, call: Call) -> Response:
        """A part of a file as it is now; its size and where the part begins are in the headers."""
        if not call.text("path"):
            raise BadInput("which file?", code="required", field="path", hint="name one of its files")
        tail = call.number_or_none("tail")
        offset = call.number("offset") if tail is None else -tail
        found = await self._ask(call, "read_file", offset, call.number("length"))
        headers = {"X-Shoal-Offset": str(found.offset), "X-Shoal-Size": str(found.size)}
        return Response(body=base64.b64decode(found.data), headers=headers, content_type="application/octet-stream")

    async def _ask(self, call: Call, kind: str, offset: int = 0, count: int = 0) -> FileAnswer:
        task = parse_task(call.path_part("task"))
        await check_exists(self.context, task)
        self._check_owner(call, task)
        await self._check_runs(task)
        request, path = self.context.file_answers.new_request(), call.text("path") or ""
        pilot = self.service.post(Look(task, kind, request, path, offset, count))
        call.rest()
        found = await self.context.file_answers.wait(pilot.name, request, PEEK_WAIT)
        if found is None:
            raise Refused(
                f"pilot {pilot.name} on {pilot.host} did not answer within {PEEK_WAIT:g} s", code="pilot_silent",
                hint=f"it is frozen, cut off or very busy: `shoal show {pilot.name}`",
            )  # fmt: skip
        if found.error:
            hint = f"see `shoal files {task}`" if found.code != "not_running" else f"see `shoal show {task}`"
            raise _ERRORS.get(found.code, BadInput)(f"{task}: {found.error}", code=found.code, hint=hint)
        return found

    def _check_owner(self, call: Call, task: TaskId) -> None:
        """Only the owner looks at files: a manager may see and cancel the run, no more."""
        if self.context.owner_of(task.run) != call.caller.owner and not call.caller.is_admin:
            hint = "ask its owner"
            raise Refused("only the owner of a task looks at its files", code="forbidden", hint=hint)

    async def _check_runs(self, task: TaskId) -> None:
        """Refuse a task that has not begun or is over, and say where its files would be."""
        run = self.service.engine.state.runs.get(task.run)
        array = run.array_of(task.element) if run is not None else None
        state = array.state_of(task.element) if array is not None else None
        if state is TaskState.RUNNING:
            return
        if state is not None:
            hint = f"see `shoal why {task}`"
            raise Conflict(f"{task} has not started yet: it is {state}", code="not_running", hint=hint)
        row, before = await self.service.query(lambda r: (r.task_row(*task), r.run(task.run)))
        if row is None or before is None or not row.attempt:
            ended = row.state if row is not None else "over"
            raise Conflict(f"{task} never ran, it is {ended}", code="not_running", hint=f"see `shoal show {task}`")
        table = next(a for a in before["arrays"] if a["first"] <= task.element < a["first"] + a["count"])
        spec = parse_spec(table["task"])
        hint = f"declare what you want to keep with --output; `shoal logs {task}` shows what it printed"
        if spec.cwd == OWN:
            what = "its own directory was removed at its end"
        else:
            values = parameters(spec, task.element - table["first"])
            cwd = fill(spec.cwd or "", values) if values else spec.cwd or ""
            what = f"what it left is in {posixpath.join(before['cwd'], cwd)} on {row.host}"
            hint = f"`shoal logs {task}` shows what it printed"
        raise Conflict(f"{task} is over ({row.state}): {what}", code="not_running", hint=hint)
