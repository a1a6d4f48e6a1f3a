"""The interface for programs: whole, and equal to the code it is made from."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from shoal.model.task.spec import FIELDS
from shoal.server.http.openapi import describe
from shoal.server.http.request import _CODES, _STATUS
from shoal.server.http.routes import ROUTES, Route
from shoal.wire.http.requests import SubmissionBody, TaskTable
from shoal.wire.http.responses import ErrorAnswer, Failure
from shoal.wire.submission import _SUBMISSION

OPERATION = {"operationId", "summary", "description", "parameters", "responses", "security", "requestBody"}
SCHEMA = {
    "$ref", "type", "anyOf", "items", "properties", "required", "additionalProperties", "description", "minimum", "maximum",
    "default",
}  # fmt: skip
BINARY = {"type": "string", "format": "binary"}
TYPES = {"string", "integer", "number", "boolean", "null", "array", "object"}
each_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")


def operation_of(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = describe()["paths"][route.path][route.method.lower()]
    return found


def refs(value: Any) -> Iterator[str]:
    """Every reference anywhere in the description."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema below a schema."""
    yield value
    for inner in [*value.get("properties", {}).values(), *value.get("anyOf", [])]:
        yield from schemas(inner)
    for name in ("items", "additionalProperties"):
        if name in value:
            yield from schemas(value[name])


def test_it_is_one_document_of_openapi_3_1() -> None:
    found = describe()
    assert found["openapi"].startswith("3.1.")
    assert {"title", "version"} <= set(found["info"])
    assert set(found) <= {"openapi", "info", "security", "paths", "components"}
    assert set(found["components"]) <= {"schemas", "responses", "securitySchemes"}
    assert found["security"] == [{"token": []}] and set(found["components"]["securitySchemes"]) == {"token"}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for part in found["components"].values() for name in part)
    assert json.loads(json.dumps(found)) == found


def test_every_route_is_in_it_and_nothing_else() -> None:
    told = {(method.upper(), path) for path, methods in describe()["paths"].items() for method in methods}
    assert told == {(route.method, route.path) for route in ROUTES}


def test_every_reference_leads_somewhere_and_nothing_lies_about_unused() -> None:
    found = describe()
    named = set(refs(found))
    for ref in named:
        start, part, kind, name = ref.split("/")
        assert (start, part) == ("#", "components") and name in found["components"][kind], ref
    unused = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]} - named
    assert not unused


def test_names_of_operations_are_unique() -> None:
    names = [operation_of(route)["operationId"] for route in ROUTES]
    assert len(set(names)) == len(names)


@each_route
def test_an_operation_says_what_its_route_says(route: Route) -> None:
    told = operation_of(route)
    assert set(told) <= OPERATION
    assert told["summary"] == route.about
    assert (told.get("security") == []) == (route.rule == "public")
    assert ("requestBody" in told) == (route.body is not None or bool(route.takes))
    if route.takes:
        assert told["requestBody"] == {"required": True, "content": {route.takes: {"schema": BINARY}}}
    if route.body is not None:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{route.body.__name__}"} and told["requestBody"]["required"]
    in_path = [p["name"] for p in told["parameters"] if p["in"] == "path"]
    assert in_path == re.findall(r"{(\w+)}", route.path)
    assert all(p["required"] for p in told["parameters"] if p["in"] == "path")
    in_query = [p["name"] for p in told["parameters"] if p["in"] == "query"]
    assert in_query == [query.name for query in route.query]
    assert list(told["responses"]["200"]["content"]) == [route.text or "application/json"]
    assert route.scope in told["description"]


def test_every_status_that_a_refusal_can_have_is_described() -> None:
    possible = {str(status) for _, status in _STATUS} | {str(status) for status in _CODES.values()} | {"405", "422"}
    for route in ROUTES:
        told = set(operation_of(route)["responses"])
        assert possible <= told, possible - told


def test_schemas_use_words_of_json_schema_only() -> None:
    for name, top in describe()["components"]["schemas"].items():
        for schema in schemas(top):
            assert set(schema) <= SCHEMA, (name, schema)
            assert schema.get("type") in {*TYPES, None}, (name, schema)
            assert set(schema.get("required", [])) <= set(schema.get("properties", {})), name
            assert "$ref" not in schema or len(schema) == 1, name


def test_a_task_has_the_fields_of_the_one_table() -> None:
    assert {field.name for field in dataclasses.fields(cast("Any", TaskTable))} == set(FIELDS)
    assert set(describe()["components"]["schemas"]["TaskTable"]["properties"]) == set(FIELDS)


def test_a_submission_has_what_is_checked_of_it() -> None:
    beside = {
        "environment",
        "environment_file",
        "fingerprints",
        "resume",
        "dry_run",
        "strict",
    }  # taken out by server/handlers/submit.py before the rest is checked
    assert {field.name for field in dataclasses.fields(SubmissionBody)} == _SUBMISSION | beside


def test_a_refusal_has_four_parts() -> None:
    found = describe()["components"]["schemas"]
    assert found["ErrorAnswer"]["required"] == [field.name for field in dataclasses.fields(ErrorAnswer)] == ["error"]
    assert set(found["Failure"]["required"]) == {field.name for field in dataclasses.fields(Failure)}
    assert set(found["Failure"]["required"]) == {"code", "message", "field", "hint"}
