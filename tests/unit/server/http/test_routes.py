"""The route table, from which router, security matrix and OpenAPI are made [security S13]."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

from shoal.model.credentials import ENROL, SCOPES, SESSION, SUBMIT
from shoal.model.limits import MAX_BLOB, MAX_BODY, MAX_BULK_BODY, MAX_PAGE, MAX_RESULTS
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
from shoal.server.http.routes import ROUTES, RULES, Route

PARTS: dict[str, type] = {
    "runs": RunsHandler,
    "logs": LogsHandler,
    "events": EventsHandler,
    "pilots": PilotsHandler,
    "bundles": BundlesHandler,
    "people": PeopleHandler,
    "server": ServerHandler,
    "sites": SitesHandler,
    "blobs": BlobHandler,
    "open": OpenRunsHandler,
    "acct": AcctHandler,
    "policy": PolicyHandler,
    "manage": ManageHandler,
    "peek": PeekHandler,
}
each_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")


def test_no_call_is_there_twice() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert len({route.handler for route in ROUTES}) == len(ROUTES)


def test_every_handler_has_a_route() -> None:
    methods = {
        f"{name}.{method}"
        for name, part in PARTS.items()
        for method, found in inspect.getmembers(part, inspect.iscoroutinefunction)
        if not method.startswith("_")
    }
    assert methods == {route.handler for route in ROUTES}


@each_route
def test_rule_kinds_and_scope_are_words_we_know(route: Route) -> None:
    assert route.rule in RULES
    assert set(route.kinds) <= {SUBMIT, ENROL, SESSION}
    assert route.scope in ("", *SCOPES)
    assert route.method in (("GET", "HEAD", "PUT") if route.rule == "blob" else ("GET", "POST"))
    assert route.path.startswith("/v1/") or route.path in ("/metrics", "/")
    assert route.about.endswith((".", "?"))


@each_route
def test_the_handler_is_there_and_takes_one_call(route: Route) -> None:
    module, _, method = route.handler.partition(".")
    handler = getattr(PARTS[module], method)
    assert inspect.iscoroutinefunction(handler)
    assert list(inspect.signature(handler).parameters) == ["self", "call"]


@each_route
def test_what_acts_is_a_post_and_is_written_down(route: Route) -> None:
    if route.acts:
        assert route.method == "POST"
    if route.method == "POST":
        assert route.body is not None and dataclasses.is_dataclass(route.body)
        # Beats, and what is added to a run that has its line, are counted; all else that changes something has its own.
        assert route.acts or route.handler in ("pilots.exchange", "bundles.bundle", "open.add")
    else:
        assert route.body is None
    # Bytes come under their digest, as often as results do: put again they change nothing, and so they are counted.
    assert bool(route.takes) == (route.method == "PUT")


@each_route
def test_only_three_calls_want_no_token(route: Route) -> None:
    if route.rule == "public":
        assert route.path in ("/v1/health", "/v1/ca", "/")
        assert (route.method, route.kinds, route.scope, route.body) == ("GET", (), "", None)
    else:
        assert route.kinds


@each_route
def test_a_rule_and_a_scope_go_together(route: Route) -> None:
    assert (route.rule == "admin") == (route.scope == "admin")
    if route.rule == "pilot":
        assert set(route.kinds) <= {ENROL, SESSION} and not route.scope
    elif route.rule == "blob":
        assert route.kinds == (SUBMIT, SESSION)
        assert route.scope == ("submit" if route.method == "PUT" else "read")
    elif SESSION in route.kinds or ENROL in route.kinds:
        assert (
            route.rule == "caller" and route.method == "GET" and not route.scope
        )  # the pilot's own code, this interface
    if route.rule == "targets":
        assert route.method == "POST"
    if SUBMIT in route.kinds and not route.scope and route.rule != "pilot":
        assert route.rule == "caller" and route.method == "GET"  # what every token may read is about itself


@each_route
def test_a_path_names_what_its_rule_checks(route: Route) -> None:
    names = re.findall(r"{(\w+)}", route.path)
    if route.rule in ("run", "task", "target"):
        assert names == [route.rule]
    elif route.rule == "blob":
        assert names == ["digest"]
    elif route.rule == "pilot":
        assert names in ([], ["pilot"])
    else:
        assert names == []  # nothing that a path names goes unchecked


@each_route
def test_parameters_are_bounded(route: Route) -> None:
    assert route.most in (MAX_BODY, MAX_BULK_BODY, MAX_BLOB)
    assert (route.most == MAX_BLOB) == (route.handler == "blobs.put")
    assert route.most == MAX_BODY or route.handler in ("runs.submit", "open.add", "blobs.put")
    names = [query.name for query in route.query]
    assert len(set(names)) == len(names)
    for query in route.query:
        assert query.kind in (int, str)
        if query.kind is int and query.default is not None:
            assert query.low <= int(query.default) <= query.high
        if query.name == "limit":
            assert (query.low, query.high) == (1, MAX_RESULTS if route.handler == "open.results" else MAX_PAGE)
        assert query.name not in ("sort", "order", "token_secret", "fields")
