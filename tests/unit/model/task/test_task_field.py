"""The one table of task fields: every use of a field comes from its entry, so that a new one needs nothing else."""

from __future__ import annotations

import dataclasses
import inspect
from random import Random
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from scripts import make_reference
from shoal.cli.tasks.options import task_options
from shoal.client.executor.executor import Executor
from shoal.client.executor.options import fields_of, signature_with_fields
from shoal.db.sqlite import Database
from shoal.engine.commands import Submit
from shoal.engine.engine import Engine
from shoal.engine.matching.classes import class_key
from shoal.engine.matching.lease_message import lease_of
from shoal.engine.records import Attempt, ClassKey
from shoal.engine.spec_digest import trait_of
from shoal.model.errors import BadInput
from shoal.model.ids import AttemptId
from shoal.model.lazy_dataclass import dataclass
from shoal.model.task import field_values
from shoal.model.task.spec import FIELDS, Needs, Spec, Submission
from shoal.model.task.task_field import TEXT, Field, Option, entry, task_fields
from shoal.model.timing import Timing
from shoal.server.submission.resume import sign
from shoal.wire.http.requests import table_type
from shoal.wire.messages import Lease
from shoal.wire.submission import parse_submission
from shoal.wire.task import parse_spec

COMMAND = {"command": ["sim", "{x}"], "params": {"x": "1..2"}}
FUNCTION = {"function": "AA==", "calls": ["AA==", "AB=="], "python": "/usr/bin/python3"}
# For each field a task, and the same task with another value of the field.
CHANGES: dict[str, tuple[dict[str, Any], Any]] = {
    "name": (COMMAND, "other"),
    "command": (COMMAND, ["other", "{x}"]),
    "shell": ({"shell": "a"}, "b"),
    "cwd": (COMMAND, "sub"),
    "env": (COMMAND, {"A": "1"}),
    "stdin": (COMMAND, "in.txt"),
    "stdin_data": (COMMAND, "AA=="),
    "stdout": (COMMAND, "{x}.out"),
    "stderr": (COMMAND, "{x}.err"),
    "max_output": (COMMAND, "1M"),
    "inputs": (COMMAND, ["in.txt"]),
    "outputs": (COMMAND, ["out.txt"]),
    "store": ({**COMMAND, "outputs": ["out.txt"]}, {"out.txt": "file:///store/{x}.txt"}),
    "cores": (COMMAND, 2),
    "memory": (COMMAND, "1G"),
    "max_memory": ({**COMMAND, "memory": "1G"}, "2G"),
    "disk": (COMMAND, "1G"),
    "gpus": (COMMAND, 1),
    "time": (COMMAND, "1h"),
    "retries": (COMMAND, 2),
    "unless_exit": (COMMAND, [3]),
    "abort_on": (COMMAND, ["3", -9]),
    "rerun": (COMMAND, "exclusive"),
    "priority": (COMMAND, 3),
    "category": (COMMAND, "io%2"),
    "role": (COMMAND, "final"),
    "noop": (COMMAND, True),
    "labels": (COMMAND, {"a": "b"}),
    "params": (COMMAND, {"x": "5..6"}),
    "array": ({"command": ["sim", "{i}"], "array": "1-2"}, "5-6"),
    "units": ({"command": ["sim", "{first}"], "units": 10}, 20),
    "after": (COMMAND, ["parent"]),
    "after_any": (COMMAND, ["parent"]),
    "function": (FUNCTION, "AAAA"),
    "calls": (FUNCTION, ["AC==", "AD=="]),
    "initializer": (FUNCTION, "AA=="),
    "finalizer": (FUNCTION, "AA=="),
    "max_tasks_per_child": (FUNCTION, 3),
    "python": (FUNCTION, "/opt/python3"),
    "modules": (FUNCTION, "AA=="),
    "session": (FUNCTION, "another"),
    "require": (COMMAND, "cores > 1"),
    "site": (COMMAND, "hpc"),
    "rank": (COMMAND, "cores"),
    "deadline": (COMMAND, "2h"),
    "order": (COMMAND, "-x"),
    "setup": (COMMAND, ["module load gcc"]),
    "container": (COMMAND, "debian:12"),
    "licences": (COMMAND, {"matlab": 1}),
    "checkpoint": (COMMAND, ["a.state"]),
    "checkpoint_every": ({**COMMAND, "checkpoint": ["a.state"]}, "5m"),
    "visible": (COMMAND, {"/ann": f"need dir {'a' * 16} 12 - {'b' * 16}"}),
    "content": (
        {"command": ["sim", "{x}"], "inputs": ["in"], "params": {"x": "1..2"}},
        {"in": f"sha256:{'a' * 64} 644"},
    ),
}


def changed(name: str) -> tuple[Spec, Spec]:
    """Two tasks that differ in one field only."""
    table, value = CHANGES[name]
    return parse_spec(table), parse_spec({**table, name: value})


def lease(spec: Spec) -> Lease:
    """The lease of the first element of a task."""
    with Database.open(":memory:", durability="normal") as database:
        database.raise_incarnation(0.0)
        engine = Engine(database.snapshot(), Timing(), Random(1), 0.0)
        parent = parse_spec({"command": ["true"], "name": "parent"})
        engine.handle(Submit(Submission((parent, spec), ({}, {}), cwd="/data", seed=7), "ann", "d"), 1.0)
    return lease_of(engine.state.runs[1].arrays[1], Attempt(AttemptId(1, 2, 1, 1), "p1", 0.0), "/state")


def test_every_field_of_a_spec_is_in_the_table_and_is_changed_here() -> None:
    assert [field.name for field in dataclasses.fields(Spec)] == list(FIELDS) == list(CHANGES)


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_the_signature_covers_a_field_unless_the_table_says_why_not(field: Field) -> None:
    before, after = (sign(Submission((spec,)), {}) for spec in changed(field.name))
    assert (before == after) is bool(field.same_result)


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_a_field_is_in_the_lease_as_the_table_says(field: Field) -> None:
    before, after = map(lease, changed(field.name))
    assert (before == after) is (field.lease == "")
    if field.lease == "same":
        assert getattr(before, field.name) != getattr(after, field.name)


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_a_field_is_in_the_class_key_as_the_table_says(field: Field) -> None:
    before, after = (class_key(spec, "ann") for spec in changed(field.name))
    differ = {name for name in ClassKey._fields if getattr(before, name) != getattr(after, name)}
    expected = {"key": {field.name}, "": set()}.get(field.matching, {field.matching})
    assert differ == expected or (field.name == "shell" and not differ)  # all texts for the shell are of one kind


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_failures_are_compared_by_what_is_executed(field: Field) -> None:
    before, after = (trait_of(spec, "ann") for spec in changed(field.name))
    assert (before != after) is field.is_program


def test_needs_are_the_fields_that_the_table_says() -> None:
    needed = {field.name for field in FIELDS.values() if field.matching == "needs"}
    assert needed == {field.name for field in dataclasses.fields(Needs)}


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_placeholders_are_filled_where_the_table_says(field: Field) -> None:
    if field.kind.option not in ("one", "many", "pairs") or field.name in ("params", "array", "shell"):
        return
    value: Any = {"one": "{x}", "many": ["{x}"], "pairs": {"A": "{x}"}}[field.kind.option]
    more = {}
    if field.name == "store":
        value, more = {"out.txt": "file:///{x}"}, {"outputs": ["out.txt"]}
    try:
        spec = parse_spec({"command": ["sim"], "params": {"x": "7..8"}, **more, field.name: value})
    except BadInput:
        assert not field.placeholders
        return
    assert any("{x}" in text for text in spec.texts) is field.placeholders
    if field.placeholders and field.lease:
        assert "{x}" not in str(lease(spec))


# --- a field that is made up here, declared as any other


@dataclass(frozen=True)
class Wider(Spec):
    """The table with one more entry."""

    colour: str = entry(
        "", TEXT, field_values.text(9), "The colour of the plots.", "9 bytes",
        option=Option("NAME", "Plot in this colour."), keyword=True, placeholders=True, matching="surroundings", lease="same",
    )  # fmt: skip


TABLE = {"command": ["sim"]}


def test_a_new_field_is_checked() -> None:
    assert parse_spec({**TABLE, "colour": "red"}, Wider) == Wider(command=("sim",), colour="red")
    with pytest.raises(BadInput, match="longer than 9 bytes"):
        parse_spec({**TABLE, "colour": "x" * 10}, Wider)
    with pytest.raises(BadInput, match="unknown field"):
        parse_spec({**TABLE, "colour": "red"})
    with pytest.raises(BadInput, match="is not a parameter"):
        parse_spec({**TABLE, "params": {"x": "1"}, "colour": "{y}"}, Wider)


def test_a_new_field_is_an_option_of_the_command_line() -> None:
    @click.command()
    @task_options(task_fields(Wider))
    def run(**options: Any) -> None:
        click.echo(options["colour"])

    told = CliRunner().invoke(run, ["--help"]).output
    assert "--colour NAME" in told
    assert "Plot in this colour." in told
    assert CliRunner().invoke(run, ["--colour", "red"]).output == "red\n"


def test_a_new_field_is_a_keyword_of_the_executor() -> None:
    assert "colour" in signature_with_fields(Executor.__init__, Wider).parameters
    assert fields_of({"colour": "red", "cores": 1}, Wider) == {"colour": "red"}
    with pytest.raises(TypeError, match=r"no option 'colour'"):
        fields_of({"colour": "red"})
    assert {"cores", "deadline", "env"} < set(inspect.signature(Executor).parameters)


def test_a_new_field_is_in_the_reference_page() -> None:
    row = make_reference.task_rows(task_fields(Wider))[-1]
    assert row == ("`colour`", "text", "none", "The colour of the plots.", "9 bytes")


def test_a_new_field_is_in_the_wire_form() -> None:
    assert "colour" in {field.name for field in dataclasses.fields(cast("Any", table_type(Wider)))}


def test_a_new_field_is_in_signature_class_key_and_lease() -> None:
    plain, red = Wider(command=("sim",)), Wider(command=("sim",), colour="red")
    assert sign(Submission((plain,)), {}) != sign(Submission((red,)), {})
    assert sign(Submission((plain,)), {}) == sign(parse_submission({"tasks": [TABLE]}), {})  # of before it was there
    assert class_key(plain, "ann") != class_key(red, "ann")
    assert red.leased["colour"] == "red"
