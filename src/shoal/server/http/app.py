"""The HTTP application: every request is checked here in this order: form, authentication, rate, authorisation; then its
handler runs. Errors become responses here and nowhere else [docs/reference/http.md].
"""

from __future__ import annotations

import ipaddress
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from shoal.db.database_lock import refusal_of
from shoal.engine.records import Pilot
from shoal.model.blobs import parse_digest
from shoal.model.credentials import ENROL, PREFIXES, SESSION, SUBMIT, digest
from shoal.model.errors import BadInput, InternalError, Refused, ShoalError, TooBusy, echo
from shoal.model.ids import is_pilot, parse_place, parse_run, parse_target, parse_task
from shoal.model.lazy_dataclass import dataclass
from shoal.server.auth.authentication import Caller, unauthorised
from shoal.server.auth.lockout import Sender
from shoal.server.blobs.registry import unknown_blob
from shoal.server.context import Context
from shoal.server.handlers.acct import AcctHandler
from shoal.server.handlers.blobs import BlobHandler
from shoal.server.handlers.bundles import BundlesHandler
from shoal.server.handlers.events import EventsHandler
from shoal.server.handlers.logs import LogsHandler
from shoal.server.handlers.manage import ManageHandler
from shoal.server.handlers.open_runs import OpenRunsHandler
from shoal.server.handlers.peek import PeekHandler
from shoal.server.handlers.people import PeopleHandler
from shoal.server.handlers.pilots import PilotsHandler
from shoal.server.handlers.policy import PolicyHandler
from shoal.server.handlers.runs import RunsHandler
from shoal.server.handlers.server import ServerHandler
from shoal.server.handlers.sites import SitesHandler
from shoal.server.http.connections import peer_name
from shoal.server.http.fast_path import ExchangeFastPath
from shoal.server.http.messages import Request, Response
from shoal.server.http.rate_limit import POOL, RateLimit
from shoal.server.http.request import Call, plain_error, refusal
from shoal.server.http.routes import ROUTES, Route
from shoal.wire.join import SERVER_NAME

log = logging.getLogger(__name__)
Handler = Callable[[Call], Awaitable[Response]]
_LOCAL_NAMES = frozenset({"localhost", SERVER_NAME})
_SAFE = ("GET", "HEAD")
_EXCHANGE = next(route for route in ROUTES if route.handler == "pilots.exchange")
_EXCHANGE_CALL = f"{_EXCHANGE.method} {_EXCHANGE.path}"  # as the audit has it


def make_app(context: Context) -> Callable[[Request], Awaitable[Response]]:
    """The application with all routes."""
    exchanges = PilotsHandler(context)
    parts = {
        "runs": RunsHandler(context),
        "logs": LogsHandler(context),
        "events": EventsHandler(context),
        "pilots": exchanges,
        "bundles": BundlesHandler(context),
        "people": PeopleHandler(context),
        "server": ServerHandler(context),
        "open": OpenRunsHandler(context),
        "blobs": BlobHandler(context),
        "acct": AcctHandler(context),
        "policy": PolicyHandler(context),
        "manage": ManageHandler(context),
        "peek": PeekHandler(context),
        "sites": SitesHandler(context),
    }
    handlers: dict[str, Handler] = {}
    for route in ROUTES:
        module, _, method = route.handler.partition(".")
        handlers[route.handler] = getattr(parts[module], method)
    return _Checks(context, handlers, exchanges).handle


class _Node:
    """A segment of the paths of routes: what may follow it, and the routes that end with it."""

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.named: _Node | None = None  # for any segment that has no node of its own
        self.methods: dict[str, Route] = {}
        self.names: list[str] = []  # of the segments that the path leaves open


class Router:
    """Finds the route of a request by its path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node, names = self._root, []
            for part in route.path.split("/"):
                if part[:1] == "{":
                    names.append(part[1:-1])
                    node.named = node.named or _Node()
                    node = node.named
                else:
                    node = node.children.setdefault(part, _Node())
            node.methods[route.method], node.names = route, names

    def find(self, raw_path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes with this path by their methods, and the parts of the path that they name; none: there is no such
        path."""
        node, values = self._root, []
        for part in raw_path.partition("?")[0].split("/"):
            text = unquote(part) if "%" in part else part
            found = node.children.get(text)
            if found is None:
                if node.named is None or not text:
                    return {}, {}
                found = node.named
                values.append(text)
            node = found
        return node.methods, dict(zip(node.names, values, strict=True)) if node.methods else {}


class _Checks:
    def __init__(self, context: Context, handlers: Mapping[str, Handler], exchanges: PilotsHandler) -> None:
        self.context, self._handlers = context, handlers  # by the name that routes have for them
        self._exchanges = exchanges
        self._router = Router(ROUTES)

    async def handle(self, request: Request) -> Response:
        """One request, from its first check to its row in the audit."""
        context, began = self.context, self.context.service.clock()
        context.connections.entered(request.protocol)
        methods, request.match_info = self._router.find(request.raw_path)
        checked = _Checked(methods.get(request.method))
        try:
            response = await self._answer(request, checked, methods)
        except Exception as error:
            response = self.refuse(error, checked.caller, f"method={request.method} path={echo(request.path)}")
        finally:
            context.connections.left(request.protocol)
        name = checked.route.path if checked.route is not None else "other"
        context.metrics.answered(name, response.status, context.service.clock() - began)
        self._audit(checked, request, response.status)
        if checked.route is _EXCHANGE and response.status == 200:
            self._open_fast_path(request)
        return response

    def refuse(self, error: Exception, caller: Caller | None, what: str) -> Response:
        """The response to an error; `what` names the request in the log."""
        context = self.context
        if isinstance(error, ShoalError):
            if isinstance(error, InternalError) and caller is not None:
                seconds = context.lockouts.strike(_senders(caller), context.service.clock())
                names = " ".join(sender.name for sender in _senders(caller))
                log.warning("sender locked out: %s seconds=%.0f", names, seconds)
            context.metrics.refused(error.code)
            return refusal(error)
        if isinstance(error, sqlite3.Error):
            # The log names the file and the way out; callers, who need not know its path, get the meaning only.
            found = refusal_of("the database", error, "see the server's log")
            log.error("%s failed: %s", what, error)
            return refusal(found or Refused("the database cannot be read", code="disk_error"))
        log.error("%s failed", what, exc_info=error)
        return plain_error("internal_error", "a defect in the server", 500)

    def _open_fast_path(self, request: Request) -> None:
        """Let further exchanges that have the headers of this one take the fast path."""
        proven: ProvenPilot | None = request.protocol.proven
        head = request.protocol.beginning_of(request)
        if proven is not None and head is not None:
            pilot, caller = proven
            limits = [(POOL, _pool(caller)), (caller.kind, _key(caller))]
            request.protocol.fast_path = ExchangeFastPath(
                self.context, self._exchanges, self, request.protocol, head, pilot, caller, _senders(caller), limits
            )

    def note_exchange(self, caller: Caller, status: int, began: float) -> None:
        """Count an exchange of the fast path, as `handle` does of others."""
        now = self.context.service.clock()
        self.context.metrics.answered(_EXCHANGE.path, status, now - began)
        self.context.access.count(caller, _EXCHANGE_CALL, "ok" if status < 400 else str(status), now)

    async def _answer(self, request: Request, checked: _Checked, methods: Mapping[str, Route]) -> Response:
        route = checked.route
        self._check_form(request)
        self.context.service.check_database()
        if route is not None and route.rule == "public":
            call = Call(
                request, route, Caller(""), lambda: None, lambda: Caller(""), self.context.bodies.charge("", "")
            )
            return await self._handlers[route.handler](call)
        self.context.service.check_whole()
        caller = checked.caller = self._authenticate(request, route)
        if self.context.lockouts:
            self.context.lockouts.check(_senders(caller), self.context.service.clock())
        if not caller.is_unproven and not self.context.connections.known(request, _key(caller), _pool(caller)):
            raise TooBusy(f"too many connections of {_key(caller)}", after=2.0, hint="close some")
        if route is None:
            return _no_route(methods)
        work = _Work(self.context.rate_limit)
        try:
            work.begin(caller, self.context.service.clock(), route.pace)
            self._authorise(route, caller)
            charge = self.context.bodies.charge(caller.kind, _pool(caller) or _key(caller))
            call = Call(request, route, caller, work.rest, lambda: self._again(request, checked), charge)
            checked.call = call
            self._check_object(call)
            return await self._handlers[route.handler](call)
        finally:
            work.rest()

    # --- the form of a request
    def _check_form(self, request: Request) -> None:
        """Refuse ambiguous paths, names of other hosts, and requests from pages of other sites [input E71-E73]."""
        raw = request.raw_path
        path = raw.partition("?")[0]
        is_odd = "//" in path or "%00" in raw or "\\" in raw or ".." in path.lower().replace("%2e", ".")
        if is_odd:
            raise BadInput("this path means nothing here", code="bad_path")
        if not self._is_ours(request.host):
            raise Refused(
                f"{echo(request.host)} is not this server", code="wrong_host", hint="use the server's own address"
            )
        origin = request.headers.get("Origin", f"://{request.host}")  # only browsers send it
        if request.method not in _SAFE and origin.partition("://")[2].lower() != request.host.lower():
            raise Refused("a request from another site", code="bad_origin")

    def _is_ours(self, host: str) -> bool:
        """True for this server's names, against DNS rebinding; an address cannot be rebound [security S15]."""
        name, is_address = _host_of(host)
        return is_address or name in _LOCAL_NAMES or name in self.context.names

    # --- authentication
    def _again(self, request: Request, checked: _Checked) -> Caller:
        """Authenticate the caller again after a body that may have taken half a minute: a token may have been revoked.
        Sessions are checked by the engine when it acts."""
        assert checked.caller is not None and checked.route is not None
        if checked.caller.kind != SESSION:
            checked.caller = self._authenticate(request, checked.route)
            self._authorise(checked.route, checked.caller)
        return checked.caller

    def _authenticate(self, request: Request, route: Route | None) -> Caller:
        context, address, now = self.context, request.remote or "local", self.context.service.clock()
        is_tls = request.transport is not None and request.transport.get_extra_info("ssl_object") is not None
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        try:
            if scheme != "Bearer" or len(request.headers.all("Authorization")) != 1:
                raise unauthorised()
            known: ProvenPilot | None = request.protocol.proven
            if known is not None and known.caller.secret == secret and self._is_living(known.pilot):
                return known.caller
            pilot = self._pilot_of(secret)
            if pilot is not None:
                caller = _proven(pilot, secret, address, is_tls, peer_name(request.transport) if is_tls else "")
                request.protocol.proven = ProvenPilot(pilot, caller)
            else:
                caller = context.access.check(secret, now, address, is_tls)
                if caller.kind == SESSION and is_tls:
                    caller = replace(caller, peer=peer_name(request.transport))
            if caller.is_unproven and (route is None or route.rule != "pilot"):
                raise unauthorised()  # anyone can invent a session
            return caller
        except Refused:
            if not request.remote:
                raise  # on the Unix socket it is our own account, which can read the tokens and need not guess
            wait = context.rate_limit.admit("unknown", address, now)
            if wait > 0.0:
                raise TooBusy("too many wrong tokens from here", after=wait) from None
            raise

    def _pilot_of(self, secret: str) -> Pilot | None:
        """The living pilot whose session this is. One that none has stays a claim: it can only be answered that the pilot
        must enrol again."""
        state = self.context.service.engine.state
        name = state.sessions.get(digest(secret)) if secret.startswith(PREFIXES[SESSION]) else None
        return state.pilots.get(name) if name is not None else None

    def _is_living(self, pilot: Pilot) -> bool:
        """True if this is still how the engine knows the pilot of that name."""
        return self.context.service.engine.state.pilots.get(pilot.name) is pilot

    # --- authorisation
    def _authorise(self, route: Route, caller: Caller) -> None:
        if caller.kind not in route.kinds:
            raise Refused(
                f"not with a token of kind {caller.kind}", code="forbidden", hint=f"use {' or '.join(route.kinds)}"
            )
        if caller.kind != SUBMIT:
            return
        if route.scope and route.scope not in caller.scopes and not (caller.is_admin and route.scope != "admin"):
            raise Refused(
                f"this token has no scope {route.scope}", code="forbidden", hint="make one: `shoal token new --scope`"
            )
        if route.rule == "admin" and not caller.is_admin:
            raise Refused("only an administrator may", code="forbidden")

    def _check_object(self, call: Call) -> None:
        """Refuse an object in the path that is not the caller's as if it did not exist [promise I16]."""
        rule, context = call.route.rule, self.context
        if rule == "run":
            context.check_run(call.caller, parse_run(call.path_part("run")))
        elif rule == "task":
            context.check_run(call.caller, parse_task(call.path_part("task")).run, call.path_part("task"))
        elif rule == "blob":
            digest = parse_digest(call.path_part("digest"))
            if call.route.method == "GET" and not context.sees_blob(call.caller, digest):
                raise unknown_blob(digest)
        elif rule == "target":
            text = call.path_part("target")
            place = parse_place(text)
            if place is not None:
                context.check_place(call.caller, *place)
            elif is_pilot(text):
                context.check_pilot(call.caller, text)
            else:
                target = parse_target(text)
                context.check_target(call.caller, target)

    # --- audit
    def _audit(self, checked: _Checked, request: Request, status: int) -> None:
        route, caller = checked.route, checked.caller
        if route is None or route.rule == "public":
            return
        now, what = self.context.service.clock(), f"{route.method} {route.path}"
        address = request.remote or "local"
        outcome = "ok" if status < 400 else str(status)
        if route.acts and caller is not None and status not in (401, 429):
            about = checked.call.about if checked.call is not None else ""
            self.context.access.note(caller, what, about, outcome, now)
        else:
            self.context.access.count(caller, what, outcome, now, address)


class ProvenPilot(NamedTuple):
    """The pilot that an earlier request on a connection proved to be: who sends the same session there need not be looked
    up again while that pilot lives."""

    pilot: Pilot
    caller: Caller


@dataclass
class _Checked:
    """How far the checks of a request have come."""

    route: Route | None
    caller: Caller | None = None
    call: Call | None = None


def _proven(pilot: Pilot, secret: str, address: str, is_tls: bool, peer: str) -> Caller:
    """A pilot as the sender of a request; its session is bound to the certificate that it got with it [security S3]."""
    if (is_tls and peer != pilot.name) or (pilot.bound and not is_tls):
        raise unauthorised()  # over TLS only with its own certificate; a session given over TLS is valid there only
    return Caller(
        SESSION, pilot.owner, pilot.group, token=pilot.token, site=pilot.site, pilot=pilot.name, secret=secret,
        address=address, tls=is_tls, peer=peer,
    )  # fmt: skip


def _no_route(methods: Mapping[str, Route]) -> Response:
    """The answer where the path, or the method on this path, does not exist."""
    if not methods:
        return plain_error("no_such_route", "Not Found", 404)
    response = plain_error("method", "Method Not Allowed", 405)
    response.headers["Allow"] = ",".join(sorted(methods))
    return response


class _Work:
    """The admission of one request; one that begins to wait is no longer counted."""

    def __init__(self, rate_limit: RateLimit) -> None:
        self._rate_limit = rate_limit
        self._begun: list[tuple[str, str]] = []  # the kinds and keys under which it is counted

    def begin(self, caller: Caller, now: float, pace: str) -> None:
        """Count it for its person or pilot, and for all pilots of its owner; refused if that is too many."""
        pool = _pool(caller)
        own = ENROL if caller.is_unproven else caller.kind  # an unproven session has the limits of an enrolment
        mine = (own, _key(caller), pace)
        for kind, key, rate in ((POOL, pool, ""), mine) if pool else (mine,):
            wait = self._rate_limit.admit(kind, key, now, rate)
            if wait > 0.0:
                raise TooBusy("too many requests", after=wait, hint=f"come back in {wait:.1f} s")
            self._begun.append((kind, key))

    def rest(self) -> None:
        """Stop counting it: it is answered, or waits. Idempotent."""
        begun, self._begun = self._begun, []
        for kind, key in begun:
            self._rate_limit.done(kind, key)


def _senders(caller: Caller) -> list[Sender]:
    """The names under which a caller's contained requests are counted. A pilot that enrols again has a new name, so its
    enrolment token is counted, too; other tokens are counted with their owner or @group."""
    if caller.is_unproven:
        return [Sender(f"address:{caller.address}", 1)]
    if caller.kind == SESSION:
        return [Sender(f"pilot:{caller.pilot}", 1), Sender(f"token:{caller.token}", 8)]
    return [Sender(f"token:{caller.token}", 1), Sender(f"owner:{caller.holder}", 8)]


def _key(caller: Caller) -> str:
    """The key under which connections, rates and work are counted: a pilot, or a person with all their tokens."""
    return caller.pilot or caller.holder or caller.address


def _pool(caller: Caller) -> str:
    """The owner or @group whose pilot calls; empty: it is no pilot."""
    return caller.holder if caller.pilot else ""


@lru_cache(maxsize=256)  # pilots send the same few names all the time
def _host_of(host: str) -> tuple[str, bool]:
    """The name in a Host header, and whether it is an address; an empty name is nobody's."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower() if "@" not in host else ""
    except ValueError:
        return "", False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name, False
    return name, True
