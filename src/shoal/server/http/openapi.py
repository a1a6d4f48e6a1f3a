"""The OpenAPI 3.1 description, generated from the route table and the message types."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from shoal import __version__
from shoal.server.http.routes import ROUTES, Query, Route
from shoal.wire import messages
from shoal.wire.http import responses
from shoal.wire.http.responses import ErrorAnswer

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
}
_BINARY = {"type": "string", "format": "binary"}
_STATUS = {
    "400": "malformed", "401": "no good token", "403": "not with this token", "404": "no such thing, or not yours",
    "405": "not this method", "408": "too slow", "409": "not now", "410": "no longer kept", "411": "no length",
    "413": "too large", "415": "not JSON", "416": "no such range", "421": "another host", "422": "a wrong value",
    "429": "too much, see Retry-After", "500": "a defect in the server; the request changed nothing",
    "503": "the database was taken away or cannot be read", "504": "a pilot did not answer", "507": "disk full",
}  # fmt: skip


@cache
def describe() -> dict[str, Any]:
    """The whole description."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    _schema(ErrorAnswer, schemas)
    failures = {
        status: {"description": text, "content": _json({"$ref": "#/components/schemas/ErrorAnswer"})}
        for status, text in _STATUS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shoal", "version": __version__, "license": {"name": "Apache-2.0"}},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": failures,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.path.split("/")
        if part.startswith("{")
    ] + [_parameter(query) for query in route.query]  # fmt: skip
    if route.text:
        content: dict[str, Any] = {route.text: {"schema": {"type": "string"}}}
    else:
        content = _json(_schema(getattr(responses, route.answer, None) or getattr(messages, route.answer), schemas))
    found: dict[str, Any] = {
        "operationId": route.handler.replace(".", "_"),
        "summary": route.about,
        "description": _who(route),
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": content},
            **{status: {"$ref": f"#/components/responses/{status}"} for status in _STATUS},
        },
    }
    if route.rule == "public":
        found["security"] = []
    if route.takes:
        found["requestBody"] = {"required": True, "content": {route.takes: {"schema": _BINARY}}}
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _json(_schema(route.body, schemas))}
    return found


def _who(route: Route) -> str:
    if route.rule == "public":
        return "Anyone."
    scope = f" with scope {route.scope}" if route.scope else ""
    return f"Tokens of kind {', '.join(route.kinds)}{scope}; rule: {route.rule}."


def _parameter(query: Query) -> dict[str, Any]:
    schema: dict[str, Any] = dict(_PLAIN[query.kind])
    if query.kind is int:
        schema |= {"minimum": query.low, "maximum": query.high}
    if query.default is not None:
        schema["default"] = query.default
    return {"name": query.name, "in": "query", "required": False, "schema": schema}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """A type as JSON schema; dataclasses are named and referred to."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(option, schemas) for option in get_args(kind)]}
    if origin is list:
        return {"type": "array", "items": _schema(get_args(kind)[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(get_args(kind)[1], schemas)}
    assert dataclasses.is_dataclass(kind), kind
    assert isinstance(kind, type)
    name = kind.__name__
    if name not in schemas:
        schemas[name] = {}  # a placeholder, for types that refer to themselves
        schemas[name] = _object(kind, schemas)
    return {"$ref": f"#/components/schemas/{name}"}


def _object(kind: type, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    required = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    found: dict[str, Any] = {
        "type": "object",
        "description": (kind.__doc__ or "").strip().split("\n")[0],
        "properties": {f.name: _schema(hints[f.name], schemas) for f in fields},
    }
    if required:
        found["required"] = required
    return found
