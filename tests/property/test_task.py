"""The task table against arbitrary JSON, and a spec that comes back from the database as it went in."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.db.sqlite import Database
from shoal.engine.commands import Submit
from shoal.engine.engine import Engine
from shoal.engine.matching.lease_message import lease_of
from shoal.engine.records import Attempt, Run
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId
from shoal.model.task.spec import FIELDS
from shoal.model.timing import Timing
from shoal.wire.messages import Lease
from shoal.wire.submission import parse_submission
from shoal.wire.task import parse_spec

_TEXT = st.text(max_size=8)
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**64), 10**64) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=15,
)
_NAME = st.sampled_from(["a", "b", "c", "x", "y", "i", "_p1"])
_SCALAR = st.one_of(st.integers(-9, 9), st.booleans(), _TEXT, st.floats(-9, 9))
_RANGES = st.sampled_from(["1..4", "0..1:0.25", "a,b", "3..1:-1", "1..2,9", "x", "007,7"])
_WORD = st.lists(st.sampled_from(["{a}", "{b}", "{x}", "{y}", "{i}", "{{", "}}", "w", " ", "{"]), max_size=4).map(
    "".join
)
# Values that are often right, so that good specs are met too.
_GOOD: dict[str, st.SearchStrategy[Any]] = {
    "name": _WORD,
    "command": st.lists(_WORD, min_size=1, max_size=3).map(lambda words: ["run", *words]),
    "cwd": st.sampled_from(["own", "sub", "out/{x}"]),
    "env": st.dictionaries(st.sampled_from(["A", "B_1"]), _WORD, max_size=2),
    "stdin": _WORD,
    "inputs": st.lists(st.sampled_from(["in", "{x}.dat"]), max_size=2),
    "outputs": st.lists(st.sampled_from(["out", "d/{x}"]), max_size=2, unique=True),
    "cores": st.integers(1, 8),
    "memory": st.sampled_from(["1G", 512, "1.5M"]),
    "time": st.sampled_from([1, 2.5, "1h30m"]),
    "retries": st.integers(0, 3),
    "rerun": st.sampled_from(["safe", "exclusive", "never"]),
    "priority": st.integers(-3, 3),
    "labels": st.dictionaries(_TEXT, _TEXT, max_size=2),
    "params": st.one_of(
        st.dictionaries(_NAME, _RANGES | st.lists(_SCALAR, min_size=1, max_size=3), min_size=1, max_size=4),
        st.lists(_NAME, min_size=1, max_size=3, unique=True).flatmap(
            lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, _SCALAR)), min_size=1, max_size=3)
        ),
    ),
    "array": st.sampled_from(["1-5", "0-9:3%2", "7"]),
}
_MANY = 300  # elements looked at


def _table(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    optional = {name: how for name, how in values.items() if name != "command"}
    return st.fixed_dictionaries({"command": values["command"]}, optional=optional)


_HALF_GOOD = _table({name: how | _ANY for name, how in _GOOD.items()})
_STRANGE = st.dictionaries(st.sampled_from([*FIELDS, "core"]) | _TEXT, _ANY, max_size=5)


@given(_ANY | _STRANGE | _HALF_GOOD)
def test_parsing_a_task_raises_nothing_but_our_errors_and_accepts_the_same_again(data: Any) -> None:
    try:
        spec = parse_spec(data)
    except ShoalError as error:
        assert error.code
        assert error.line
        return
    assert parse_spec(data) == spec
    assert parse_spec(json.loads(json.dumps(data))) == spec


@given(_ANY | st.fixed_dictionaries({"tasks": _ANY | st.lists(_HALF_GOOD | _STRANGE, max_size=3)}, optional={
    "name": _ANY, "cwd": _ANY, "max_fail": _ANY, "seed": _ANY, "key": _ANY, "labels": _ANY, "other": _ANY}))  # fmt: skip
def test_parsing_a_submission_raises_nothing_but_our_errors(data: Any) -> None:
    try:
        submission = parse_submission(data)
    except ShoalError as error:
        assert error.code
        assert error.line
        return
    assert submission.count >= 1
    assert parse_submission(data) == submission


def rendered(run: Run) -> list[Lease]:
    """The leases of every element, as pilots would get them."""
    leases = []
    for array in run.arrays:
        for element in range(array.first, array.first + min(array.count, _MANY)):
            attempt = Attempt(AttemptId(run.number, element, 1, 1), "p1", 0.0)
            leases.append(lease_of(array, attempt, "/state"))
    return leases


@given(st.lists(_table(_GOOD), min_size=1, max_size=3))
def test_a_task_renders_the_same_before_and_after_a_restart(tables: list[dict[str, Any]]) -> None:
    """The order of parameters decides which element is which: it must survive the database."""
    for at, table in enumerate(tables):
        table["name"] = f"{table.get('name', '')}{at}"
    try:
        submission = parse_submission({"tasks": tables, "cwd": "/data", "seed": 7})
    except ShoalError:
        return
    with Database.open(":memory:", durability="normal") as database:
        database.raise_incarnation(0.0)
        engine = Engine(database.snapshot(), Timing(), Random(1), 0.0)
        database.apply(engine.handle(Submit(submission, "ann", "d"), 1.0).changes)
        database.raise_incarnation(2.0)
        again = Engine(database.snapshot(), Timing(), Random(2), 2.0)
    before, after = engine.state.runs[1], again.state.runs[1]
    assert [array.spec for array in after.arrays] == [array.spec for array in before.arrays]
    assert rendered(after) == rendered(before)
    assert again.check() == []


def test_the_order_of_parameters_is_the_writers_own() -> None:
    tables = [{"command": ["c", "{b}", "{a}"], "params": {"b": "1..2", "a": "x,y"}}]
    submission = parse_submission({"tasks": json.loads(json.dumps(tables)), "seed": 1})
    sweep = submission.specs[0].sweep
    assert sweep is not None
    assert [list(sweep.at(k).items()) for k in range(2)] == [[("b", 1), ("a", "x")], [("b", 1), ("a", "y")]]
