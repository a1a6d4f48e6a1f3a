"""The HTTP edge: routes, the token, bounds, and the one place where errors become status codes [docs/reference/http.md]."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from shoal.db.endings import ending_of
from shoal.db.reader import Gone
from shoal.db.retention import KEEP_BYTES, KEEP_SECONDS
from shoal.engine.commands import Cancel, Drain, Enrol, Retry
from shoal.model.errors import BadInput, Conflict, NotFound, Refused, ShoalError, TooLarge, echo
from shoal.model.ids import TaskId, is_pilot, parse_run, parse_target, parse_task, run_text
from shoal.model.layout import LOG_MARK, LOGS, log_name
from shoal.model.limits import MAX_BODY, MAX_BULK_BODY, MAX_PAGE, MAX_SPECS
from shoal.model.quantities import many, parse_duration, parse_size
from shoal.server.retention import prune
from shoal.server.service import Service
from shoal.server.submit import submit
from shoal.wire import codec, codec_fast
from shoal.wire.messages import Exchange, Register

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_WAIT = 30.0
_STATUS: list[tuple[type[ShoalError], int]] = [
    (NotFound, 404),
    (Gone, 410),
    (Conflict, 409),
    (TooLarge, 413),
    (Refused, 403),
]
# Codes whose status is not their type's.
_CODES = {
    "bad_json": 400, "empty_body": 400, "want_object": 400, "duplicate_key": 400, "not_finite": 400, "number_too_long": 400,
    "too_deep": 400, "bad_utf8": 400, "encoding_refused": 415, "want_json": 415, "unauthorised": 401, "disk_full": 507,
}  # fmt: skip


def status_of(error: ShoalError) -> int:
    """The status code of an error."""
    if error.code in _CODES:
        return _CODES[error.code]
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 422)


def answer(data: Any, status: int = 200) -> web.Response:
    """Data as a JSON response."""
    return web.Response(body=codec_fast.encode(data), status=status, content_type="application/json")


def refusal(error: ShoalError) -> web.Response:
    """An error as a JSON response [promises E]."""
    body = {"error": {"code": error.code, "message": error.message, "field": error.field, "hint": error.hint}}
    return answer(body, status_of(error))


def make_app(service: Service, token: str, stop: Callable[[], None]) -> web.Application:
    """The application with all routes."""
    edge = Edge(service, stop)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path != "/v1/health":
                _check_token(request, token)
            _check_head(request)
            return await handler(request)
        except ShoalError as error:
            return refusal(error)
        except web.HTTPRequestEntityTooLarge:
            return refusal(TooLarge("the body is too large", hint=f"at most {MAX_BODY} bytes"))
        except web.HTTPException as error:
            code = {404: "no_such_route", 405: "method"}.get(error.status, "http")
            return answer({"error": {"code": code, "message": error.reason, "field": "", "hint": ""}}, error.status)
        except Exception:
            log.exception("method=%s path=%s failed", request.method, echo(request.path))
            return answer(
                {"error": {"code": "internal", "message": "a defect in the server", "field": "", "hint": ""}}, 500
            )

    app = web.Application(middlewares=[guard], client_max_size=MAX_BULK_BODY)
    app.add_routes(
        [
            web.get("/v1/health", edge.health),
            web.post("/v1/prune", edge.prune),
            web.get("/v1/server", edge.server),
            web.post("/v1/server/stop", edge.stop),
            web.post("/v1/runs", edge.submit),
            web.get("/v1/runs", edge.runs),
            web.get("/v1/runs/{run}", edge.run),
            web.get("/v1/runs/{run}/tasks", edge.tasks),
            web.get("/v1/tasks/{task}", edge.task),
            web.get("/v1/tasks/{task}/logs", edge.logs),
            web.get("/v1/why/{target}", edge.why),
            web.post("/v1/cancel", edge.cancel),
            web.post("/v1/retry", edge.retry),
            web.get("/v1/events", edge.events),
            web.get("/v1/pilots", edge.pilots),
            web.post("/v1/pilots", edge.enrol),
            web.post("/v1/pilots/drain", edge.drain),
            web.post("/v1/pilots/{pilot}/exchange", edge.exchange),
        ]
    )
    return app


def _check_token(request: web.Request, token: str) -> None:
    said = request.headers.get("Authorization", "")
    if not hmac.compare_digest(said.encode("utf-8", "replace"), f"Bearer {token}".encode()):
        raise Refused("the token is missing or wrong", code="unauthorised", hint="send Authorization: Bearer TOKEN")


def _check_head(request: web.Request) -> None:
    if request.method not in ("POST", "PUT"):
        return
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise BadInput("compressed bodies are not taken", code="encoding_refused")
    if request.content_type != "application/json":
        raise BadInput("the body must be JSON", code="want_json", hint="send Content-Type: application/json")
    most = MAX_BULK_BODY if request.path == "/v1/runs" else MAX_BODY
    if request.content_length is not None and request.content_length > most:
        raise TooLarge(f"{request.content_length} bytes", hint=f"at most {most}")


def _number(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not text.lstrip("-").isdigit() or len(text) > 18 or not low <= int(text) <= high:
        raise BadInput(f"{echo(text)!r} is out of range", code="range", field=name, hint=f"{low} to {high}")
    return int(text)


class Edge:
    """One method a route."""

    def __init__(self, service: Service, stop: Callable[[], None]) -> None:
        self.service, self._stop = service, stop

    async def _body(self, request: web.Request) -> dict[str, Any]:
        data = codec.parse(await request.read())
        if not isinstance(data, dict):
            raise BadInput("expected an object", code="want_object")
        self.service.last_request = self.service.clock()
        return data

    # --- the server itself
    async def health(self, request: web.Request) -> web.Response:
        """Is someone there?"""
        return answer({"ok": True})

    async def server(self, request: web.Request) -> web.Response:
        """What this server is and does."""
        return answer({**await self.service.look(lambda r: r.server_facts()), **self.service.facts()})

    async def stop(self, request: web.Request) -> web.Response:
        """End this server; what runs goes on and comes back to the next one."""
        self._stop()
        return answer({"stopping": True})

    async def prune(self, request: web.Request) -> web.Response:
        """Delete old events and logs now."""
        body = await self._body(request)
        age = parse_duration(body.get("older_than", KEEP_SECONDS), "older_than")
        return answer(await prune(self.service, age, parse_size(body.get("keep", KEEP_BYTES), "keep")))

    # --- runs and tasks
    async def submit(self, request: web.Request) -> web.Response:
        """Accept a run."""
        return answer(await submit(self.service, await self._body(request)))

    async def runs(self, request: web.Request) -> web.Response:
        """List runs, newest first."""
        limit = _number(request, "limit", 50, 1, MAX_PAGE)
        before = parse_run(request.query["before"]) if "before" in request.query else None
        query = request.query
        state: Any = query.get("state")  # the reader refuses what it does not know
        found = await self.service.look(
            lambda r: r.runs(limit=limit, before=before, state=state, name=query.get("name"), owner=query.get("owner"))
        )
        for row in found:
            self._overlay(row)
        return answer({"runs": found, "next": run_text(found[-1]["run"]) if len(found) == limit else None})

    async def run(self, request: web.Request) -> web.Response:
        """One run whole, but for its tasks."""
        return answer(await self._run(parse_run(request.match_info["run"])))

    async def _run(self, number: int) -> dict[str, Any]:
        found = await self.service.look(lambda r: {**(r.run(number) or {}), "spans": r.spans(number)})
        if "run" not in found:
            raise NotFound(f"there is no run {run_text(number)}", code="unknown_run", hint="see `shoal ps`")
        return self._overlay(found)

    def _overlay(self, row: dict[str, Any]) -> dict[str, Any]:
        """How many of a run's tasks are with pilots now: the row is written only when a task ends."""
        run = self.service.engine.state.runs.get(row["run"])
        if run is not None:
            row["counts"]["live"] = run.live
        return row

    async def _total(self, number: int) -> int:
        """How many tasks a run has; without its arrays, which may be ten thousand."""
        found = await self.service.look(lambda r: r.runs(limit=1, before=number + 1))
        if not found or found[0]["run"] != number:
            raise NotFound(f"there is no run {run_text(number)}", code="unknown_run", hint="see `shoal ps`")
        return int(found[0]["total"])

    async def _check_task(self, task: TaskId) -> None:
        total = await self._total(task.run)
        if task.element > total:
            raise NotFound(f"there is no task {task}", code="unknown_task", hint=f"the run has {many(total, 'task')}")

    async def tasks(self, request: web.Request) -> web.Response:
        """Rows of a run's tasks, a page at a time."""
        number = parse_run(request.match_info["run"])
        limit = _number(request, "limit", MAX_PAGE, 1, MAX_PAGE)
        after = _number(request, "after", 0, 0, 10**18)
        states = request.query["state"].split(",") if "state" in request.query else None
        await self._total(number)
        rows = await self.service.look(lambda r: r.tasks(number, after=after, limit=limit, states=states))
        return answer({"tasks": rows, "next": rows[-1]["element"] if len(rows) == limit else None})

    async def task(self, request: web.Request) -> web.Response:
        """One task with its history."""
        task = parse_task(request.match_info["task"])
        run = await self._run(task.run)
        arrays = [a for a in run["arrays"] if a["first"] <= task.element < a["first"] + a["count"]]
        if not arrays:
            raise NotFound(
                f"there is no task {task}", code="unknown_task", hint=f"the run has {many(run['total'], 'task')}"
            )
        row, events = await self.service.look(lambda r: (r.task(*task), r.history(*task)))
        spans = [s for s in run["spans"] if s["low"] <= task.element < s["high"]]
        live = self.service.engine.state.runs.get(task.run)
        array = live.array_of(task.element) if live is not None else None
        state = array.state_of(task.element) if array is not None else None
        said = str(state) if state is not None else (row or (spans or [{"state": "ready"}])[0])["state"]
        return answer(
            {"run": run, "array": arrays[0], "task": row, "span": (spans or [None])[0], "state": said, "events": events}
        )

    async def logs(self, request: web.Request) -> web.Response:
        """A stream of an attempt, as text."""
        task = parse_task(request.match_info["task"])
        stream = request.query.get("stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise BadInput(f"{echo(stream)!r} is not a stream", code="range", field="stream", hint="stdout or stderr")
        await self._check_task(task)
        row = await self.service.look(lambda r: r.task(*task))
        if row is not None and row["reused"]:
            task = parse_task(row["reused"])
            row = await self.service.look(lambda r: r.task(*task))
        number = _number(request, "attempt", row["attempt"] if row is not None else 1, 1, 10**9)
        path = self.service.state_dir / LOGS / log_name(task.run, task.element, number, stream)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""  # empty streams leave no file
        return web.Response(body=data, content_type="text/plain", headers={"X-Content-Type-Options": "nosniff"})

    async def why(self, request: web.Request) -> web.Response:
        """Why something is where it is."""
        text = request.match_info["target"]
        target = text if is_pilot(text) else parse_target(text)
        if not isinstance(target, str):
            await (self._total(target) if isinstance(target, int) else self._check_task(target))
        over = await self.service.look(lambda r: ending_of(r, target))
        if over is not None:
            return answer({"target": text, **over})
        state, reasons = self.service.engine.why(target, self.service.clock())
        return answer({"target": text, "state": state, "reasons": reasons})

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel runs and tasks."""
        targets = await self._targets(request)
        return answer(await self.service.command(Cancel(tuple(targets))))

    async def retry(self, request: web.Request) -> web.Response:
        """Make tasks that did not succeed ready again."""
        targets = await self._targets(request)
        count = 0
        async with self.service.retrying:
            for target in targets:
                run, element = (target, None) if isinstance(target, int) else target
                loaded, (rows, spans) = await self.service.writer.ask(
                    lambda db, n=run, e=element: (db.load_run(n), db.failed_rows(n, e))  # type: ignore[misc]  # bound now
                )
                if loaded is not None:
                    self.service.engine.load(*loaded)
                    result = await self.service.command(Retry(run, tuple(rows), tuple(spans)))
                    count += result["tasks"]
        return answer({"tasks": count})

    async def _targets(self, request: web.Request) -> list[int | TaskId]:
        body = await self._body(request)
        said = body.get("targets")
        if not isinstance(said, list) or not said or len(said) > MAX_SPECS or not all(isinstance(t, str) for t in said):
            raise BadInput(
                "expected a list of runs and tasks", code="required", field="targets", hint='e.g. ["r12", "r13.4"]'
            )
        targets = [parse_target(text) for text in said]
        for target in targets:
            await (self._total(target) if isinstance(target, int) else self._check_task(target))
        return targets

    async def events(self, request: web.Request) -> web.Response:
        """The journal from a place on; waits for news if there is none."""
        after = _number(request, "after", 0, 0, 10**18)
        limit = _number(request, "limit", MAX_PAGE, 1, MAX_PAGE)
        wait = min(float(_number(request, "wait", 0, 0, 3600)), MAX_WAIT)
        run = parse_run(request.query["run"]) if "run" in request.query else None
        kinds = request.query["kind"].split(",") if "kind" in request.query else None
        end = self.service.clock() + wait
        while True:
            # The end first: an event committed between the two questions must not be stepped over.
            last, found = await self.service.look(
                lambda r: (r.last_seq(), r.events(after=after, limit=limit, run=run, kinds=kinds))
            )
            left = end - self.service.clock()
            if found or left <= 0:
                return answer({"events": found, "last": found[-1]["seq"] if len(found) == limit else max(last, after)})
            await self.service.news(left)

    # --- pilots
    async def pilots(self, request: web.Request) -> web.Response:
        """List pilots, newest first, with what those that live hold."""
        limit, state = _number(request, "limit", MAX_PAGE, 1, MAX_PAGE), request.query.get("state")
        rows = await self.service.look(lambda r: r.pilots(limit=limit, state=state))
        living = self.service.engine.state.pilots
        for row in rows:
            pilot = living.get(row["pilot"])
            row["live"] = len(pilot.live) if pilot is not None else 0
            row["free"] = max(0, pilot.free.cores) if pilot is not None else 0
            row["suspect"] = pilot.suspect if pilot is not None else False
            row["seen"] = pilot.seen if pilot is not None else row["ended"]
            row["state"] = str(pilot.state) if pilot is not None else row["state"]
            for secret in ("session", "former", "identity"):
                del row[secret]
        return answer({"pilots": rows})

    async def enrol(self, request: web.Request) -> web.Response:
        """Take a pilot in."""
        said = codec_fast.decode(Register, await request.read())
        registered = await self.service.command(Enrol(said, self.service.owner, said.site or "local"))
        logs = self.service.state_dir / LOGS
        return answer({**vars(registered), "log_dir": str(logs), "log_mark": LOG_MARK})

    async def drain(self, request: web.Request) -> web.Response:
        """Ask pilots to end."""
        body = await self._body(request)
        names = body.get("pilots", [])
        if not isinstance(names, list) or not all(isinstance(n, str) and is_pilot(n) for n in names):
            raise BadInput("expected a list of pilots", code="wrong_type", field="pilots", hint='e.g. ["p3f9c"]')
        unknown = [n for n in names if n not in self.service.engine.state.pilots]
        if unknown:
            raise NotFound(f"no pilot {unknown[0]} is connected", code="unknown_pilot", hint="see `shoal pilots`")
        why = str(body.get("why") or "drained by the user")[:200]
        return answer(await self.service.command(Drain(tuple(names), why)))

    async def exchange(self, request: web.Request) -> web.Response:
        """A pilot's exchange."""
        said = codec_fast.decode(Exchange, await request.read())
        if said.pilot != request.match_info["pilot"]:
            raise BadInput("the path names another pilot", code="range", field="pilot")
        reply = await self.service.exchange(said)
        self.service.keep_tails(said)
        return answer(reply)
