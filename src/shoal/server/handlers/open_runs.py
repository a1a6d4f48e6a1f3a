"""Calls about open runs, to which tasks are added while they run: add, close, and their results [ADR 0009]."""

from __future__ import annotations

import asyncio
from operator import methodcaller
from typing import Any

from shoal.db.reader import Results
from shoal.engine.commands import Add, AdvancePlan, Close, PollRun, TellFiles
from shoal.engine.records import Run
from shoal.model.errors import BadInput, Conflict, Refused, TooBusy
from shoal.model.ids import parse_run, run_text
from shoal.model.limits import MAX_BYTES, MAX_RESULTS, MAX_TOLD_FILES, MAX_WAIT
from shoal.model.states import UNACCEPTED
from shoal.model.task.checks import whole
from shoal.model.task.field_values import files
from shoal.server.context import CallHandler, unknown_run
from shoal.server.handlers.submit import blobs_of, check_space
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.server.planning.steps import next_stage
from shoal.server.recent_results import foreign_elements, page_of
from shoal.server.submission.check_expressions import check_expressions
from shoal.wire.http.requests import FilesBody, Nothing
from shoal.wire.submission import parse_addition

# Batching: fewer than FEW results of a run with more than MANY tasks under way wait so many seconds for more of them,
# because a response costs as much with one result as with a hundred.
FEW, MANY, MOMENT = 250, 100, 0.01
FILE_NAMES = files(MAX_TOLD_FILES)  # below the run's directory
FULL_AGAIN = 1.0  # seconds after which an addition that waits for space on the disk is worth repeating


class OpenRunsHandler(CallHandler):
    """Calls about open runs."""

    async def add(self, call: Call) -> Response:
        """Add tasks to an open run; answered after the commit, with what has become final up to then [ADR 0066]."""
        first, submission = await call.object(parse_addition)
        check_expressions(submission.specs)
        self._check_adder(call)
        self.service.last_request = self.service.clock()
        run = await self._load(parse_run(call.path_part("run")))
        if first > run.total:  # what is repeated needs no more space: it waits for its commit
            check_space(self.service, call.request.content_length or 0)
        self.context.blobs.claim(run.owner, run.number, blobs_of(submission))
        try:
            done = await self.service.command(
                Add(run.number, first, submission), lambda _: self.service.accept(run.number, first, submission.count)
            )
        except Refused as error:
            if error.code != "disk_full":
                raise
            # They are added all the same, so the caller must not add others in their place.
            raise TooBusy(error.message, after=FULL_AGAIN, hint=error.hint) from error
        after = call.number_or_none("after")
        return answer({**done, "page": self._latest(run.number, after, call) if after is not None else None})

    def _latest(self, number: int, after: int, call: Call) -> dict[str, Any] | None:
        """The results after a number of the journal, if there are some and memory has them all."""
        entries = self.service.results.take(number, after, MAX_RESULTS)
        return self._document(page_of(entries, after), number, call) if entries else None

    def _document(self, page: Results, number: int, call: Call) -> dict[str, Any]:
        """A page of results as it is answered."""
        run = self.service.engine.state.runs.get(number)
        row = run if run is not None else self.service.reader.run_row(number)
        return {
            "results": page.rows, "closed": page.closed, "last": page.last,
            "finished": run is None or run.finished is not None,
            "foreign": foreign_elements(page, call.caller.owner), "nonce": row.nonce if row is not None else "",
        }  # fmt: skip

    def _check_adder(self, call: Call) -> None:
        """Only the owner adds tasks, for they run as the owner: a manager may see and cancel the run, no more."""
        owner = self.context.owner_of(parse_run(call.path_part("run")))
        if owner != call.caller.owner and not call.caller.is_admin:
            raise Refused("only its owner adds tasks to a run", code="forbidden", hint="submit a run of your own")

    async def files(self, call: Call) -> Response:
        """Tell the rules of a run of files; answered after the commit."""
        body = await call.body(FilesBody)
        self._check_adder(call)
        if len(body.files) > MAX_TOLD_FILES:
            hint = f"at most {MAX_TOLD_FILES:,} in one call"
            raise BadInput(f"{len(body.files):,} files", code="split", field="files", hint=hint)
        names = FILE_NAMES(list(body.files), "files")
        sizes = [whole(0, MAX_BYTES)(size, "files") for size in body.files.values()]
        self.service.last_request = self.service.clock()
        number = parse_run(call.path_part("run"))
        return answer(await self.service.command(TellFiles(number, tuple(zip(names, sizes, strict=True)), body.end)))

    async def accept(self, call: Call) -> Response:
        """A person accepts the outlook of a run that is planned."""
        await call.body(Nothing)
        self._check_adder(call)
        number = parse_run(call.path_part("run"))
        found = self.service.engine.state.runs.get(number)
        stage = found.plan.stage if found is not None and found.plan is not None and found.is_planning else ""
        if stage != UNACCEPTED:
            what = f"{run_text(number)} is {stage}" if stage else f"{run_text(number)} waits for no acceptance"
            raise Conflict(what, code="not_unaccepted", hint=f"`shoal show {run_text(number)}` tells how far it is")
        to = next_stage(UNACCEPTED)
        data = {"accepted": call.caller.owner}
        return answer(await self.service.command(AdvancePlan(number, UNACCEPTED, to, data)))

    async def close(self, call: Call) -> Response:
        """Nothing more will be added."""
        await call.body(Nothing)
        run = await self._load(parse_run(call.path_part("run")))
        return answer(await self.service.command(Close(run.number)))

    async def _load(self, number: int) -> Run:
        """The run in memory; one that finished long ago is loaded again."""
        self.service.check_whole()
        if number not in self.service.engine.state.runs:
            loaded = await self.service.writer.ask(lambda db: db.load_run(number))
            if loaded is None:
                raise unknown_run(number)
            self.service.load(loaded)
        return self.service.engine.state.runs[number]

    async def results(self, call: Call) -> Response:
        """Tasks that became final after a number of the journal; waits if there are none."""
        number, after, limit = parse_run(call.path_part("run")), call.number("after"), call.number("limit")
        service = self.service
        end = service.clock() + min(call.number("wait"), MAX_WAIT)
        patient = False
        if number in service.engine.state.runs:
            service.post(PollRun(number))
        while True:
            entries = service.results.take(number, after, limit)
            run = service.engine.state.runs.get(number)
            if entries and len(entries) < FEW and run is not None and run.live > MANY:
                await asyncio.sleep(MOMENT)
                entries = service.results.take(number, after, limit)
            if entries is None:
                if run is not None:
                    service.results.follow(number, service.engine.state.next_seq - 1)
                read = methodcaller("results", number, after, limit)
                page: Results = await service.query(read, patient)
            else:
                page = page_of(entries, after)
            run = service.engine.state.runs.get(number)
            finished = run is None or run.finished is not None
            left = end - service.clock()
            if page.rows or page.closed or left <= 0 or (finished and page.last == after):
                return answer(self._document(page, number, call))
            after = page.last
            call.rest()
            patient = True
            await service.wait_for_commit(left)
