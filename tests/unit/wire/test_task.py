"""The task table: every row of the bad-input catalogue that a task file can hold [input E13-E26, E32-E40]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput, NotFound, ShoalError, TooLarge
from shoal.model.limits import MAX_ARGV_BYTES, MAX_ARGV_ITEMS, MAX_ECHO, MAX_SPECS
from shoal.model.states import Rerun
from shoal.model.task.spec import FIELDS, Needs
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.submission import canonical, parse_submission
from shoal.wire.task import parse_spec

DOCUMENTED_FIELDS = (
    "name command shell function cwd env setup stdin inputs outputs cores memory disk gpus time retries rerun require rank "
    "priority labels params array after after_any deadline python container licences checkpoint"
)
LONG = "x" * 10_000
NASTY = "\x1b]0;" + "y" * 300 + "\x07"


def task(**fields: Any) -> dict[str, Any]:
    """A task that is right but for what is given."""
    return {"command": ["echo", "hi"], **fields}


def refused(*tasks: Any, **more: Any) -> ShoalError:
    """What a submission of these is refused with."""
    with pytest.raises(ShoalError) as caught:
        parse_submission({"tasks": list(tasks), **more})
    return caught.value


def named(name: str, *after: str) -> dict[str, Any]:
    return task(name=name, after=list(after))


BAD_CORES: list[Any] = [0, -1, 0.5, "4", True, 1e9, 65_537, 10**9, None, []]

# Row of the catalogue, what is submitted, code, and a word that names the place.
ROWS: list[tuple[str, list[Any], str, str]] = [
    ("E13", [task(core=2)], "unknown_field", "core"),
    ("E14", [{}], "required", "command"),
    ("E14", [{"name": "a"}], "required", "command"),
    ("E14", [task(shell="true")], "required", "shell"),
    ("E15", [{"command": []}], "empty_command", "command"),
    ("E15", [{"command": [""]}], "empty_command", "command"),
    ("E15", [{"command": [" "]}], "empty_command", "command"),
    ("E15", [{"shell": ""}], "empty_command", "shell"),
    ("E15", [{"shell": " \n"}], "empty_command", "shell"),
    ("E16", [{"command": "echo hi"}], "wrong_type", "command"),
    ("E16", [{"command": ""}], "wrong_type", "command"),
    ("E17", [{"command": ["a", "b\0c"]}], "nul_in_argument", "command[1]"),
    ("E17", [{"shell": "a\0"}], "nul_in_argument", "shell"),
    ("E18", [{"command": ["x" * 10_000_000]}], "argv_too_long", "command"),
    ("E18", [{"command": ["x"] * 1_000_000}], "argv_too_long", "command"),
    ("E18", [{"command": ["x"] * (MAX_ARGV_ITEMS + 1)}], "argv_too_long", "command"),
    ("E18", [{"command": ["é" * (MAX_ARGV_BYTES // 2)]}], "argv_too_long", "command"),
    ("E18", [{"shell": "x" * (MAX_ARGV_BYTES + 1)}], "too_long", "shell"),
    ("E19", [task(env={"A=B": "x"})], "bad_env_name", "env"),
    ("E19", [task(env={"A\0": "x"})], "bad_env_name", "env"),
    ("E19", [task(env={"": "x"})], "bad_env_name", "env"),
    ("E19", [task(env={"LD_PRELOAD": "x"})], "bad_env_name", "env"),
    ("E19", [task(env={"SHOAL_TASK": "x"})], "bad_env_name", "env"),
    ("E19", [task(env={LONG + "=": "x"})], "bad_env_name", "env"),
    ("E20", [task(name=LONG)], "too_long", "name"),
    ("E20", [task(name="é" * 129)], "too_long", "name"),
    *(("E23", [task(cores=bad)], "range", "cores") for bad in BAD_CORES),
    *(("E24", [task(memory=bad)], "bad_size", "memory") for bad in ("4 Gb", "4XB", -1, 1e30, 0, None, LONG)),
    ("E24", [task(disk="4XB")], "bad_size", "disk"),
    *(("E25", [task(time=bad)], "bad_duration", "time") for bad in (0, -5, "1:2:3:4", 1e12, None, LONG)),
    *(("E26", [task(priority=bad)], "range", "priority") for bad in (float("nan"), 1e308, "high", True, None, 10**400)),
    *(("E32", [task(retries=bad)], "range", "retries") for bad in (-1, 1e6, 1_000_000, 101, "1", True)),
    ("E32", [task(retries=1, rerun="never")], "range", "retries"),
    ("E33", [], "empty_bulk", "tasks"),
    ("E34", [task()] * (MAX_SPECS + 1), "split", "tasks"),
    *(("E36", [task(params={"x": bad})], "bad_array", "x") for bad in ("5..1", "1..5:0", "0..1000000000000", "0..1e12")),
    *(("E36", [task(array=bad)], "bad_array", "array") for bad in ("5-1", "1-5:0", "0-1000000000000", 7, "", LONG)),
    ("E36", [task(params={"x": []})], "bad_array", "x"),
    ("E36", [task(params={"a": "1..10000", "b": "1..10000"})], "bad_array", "params"),
    ("E36", [task(array="1-5", params={"x": "1"})], "bad_array", "array"),
    ("E37", [named("a", "b"), named("b", "a")], "cycle", "a -> b -> a"),
    ("E38", [named("a", "a")], "cycle", "a -> a"),
    ("E39", [named("a"), named("b", "nobody")], "unknown_task", "tasks[1].after"),
    ("E40", [named("a"), named("a")], "duplicate_name", "tasks[1].name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "tasks", "code", "place"), ROWS, ids=[f"{row}-{n}" for n, (row, *_) in enumerate(ROWS)]
)
def test_every_wrong_task_is_refused_by_code_and_place(row: str, tasks: list[Any], code: str, place: str) -> None:
    error = refused(*tasks)
    assert error.code == code
    assert place in error.line


@pytest.mark.parametrize(
    ("row", "tasks", "code", "place"), ROWS, ids=[f"{row}-{n}" for n, (row, *_) in enumerate(ROWS)]
)
def test_every_refusal_names_the_fix(row: str, tasks: list[Any], code: str, place: str) -> None:
    """One line that names the mistake and the fix."""
    assert refused(*tasks).hint


@pytest.mark.parametrize(
    ("row", "tasks", "code", "place"), ROWS, ids=[f"{row}-{n}" for n, (row, *_) in enumerate(ROWS)]
)
def test_no_refusal_echoes_more_than_eighty_characters_or_a_control(
    row: str, tasks: list[Any], code: str, place: str
) -> None:
    line = refused(*tasks).line
    assert "x" * (MAX_ECHO + 1) not in line
    assert line.isprintable()
    assert len(line) < 400


# Places where a caller's own words could slip into a message without `echo`.
NAMES: list[tuple[str, list[Any]]] = [
    ("a long environment name", [task(env={LONG: 5})]),
    ("a label with controls", [task(labels={NASTY[:200]: 5})]),
    ("a long label", [task(labels={"x" * 256: 5})]),
    ("a long placeholder", [task(command=["{" + LONG + "}"], params={"a": "1"})]),
    ("an unknown field with controls", [{NASTY: 1}]),
    ("a bad name of the first of several tasks", [task(name=NASTY[:100], cores=0), task()]),
    ("names with controls beside an unknown parent", [named("\x1b[31mab"), named("c", "ab")]),
    ("many names beside an unknown parent", [*(named(f"task-{n:04}") for n in range(1_000)), named("c", "zzz")]),
    ("many parameters beside an unknown placeholder",
     [task(command=["{no}"], params={f"{'p' * 60}{n}": "1" for n in range(32)})]),
    ("a cycle of a thousand", [named(f"task-{n:04}", f"task-{(n + 1) % 1_000:04}") for n in range(1_000)]),
    ("a duplicate name", [task(name=NASTY[:200]), task(name=NASTY[:200])]),
    ("an output path", [task(outputs=["../" + NASTY])]),
    ("a parameter name", [task(params={NASTY: "1"})]),
    ("a parameter value", [task(params={"x": [[NASTY]]})]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "tasks"), NAMES, ids=[what for what, _ in NAMES])
def test_a_callers_words_are_shown_short_and_escaped(what: str, tasks: list[Any]) -> None:
    line = refused(*tasks).line
    assert line.isprintable(), "a control character would reach the terminal"
    assert "x" * (MAX_ECHO + 1) not in line
    assert len(line) <= 1_000, "one line that a person can read"


# --- single rows with more to say
def test_an_unknown_field_hints_at_the_nearest() -> None:
    assert refused(task(core=2)).hint == "did you mean cores"
    assert refused(task(wallclock=2)).hint.startswith("known: abort_on, after, after_any, array")
    assert refused(task(), tasks_=1).hint == "did you mean tasks"


def test_the_table_is_the_contracts() -> None:
    # Beyond the documented list a function has its calls, what is called before and after them, how many one process
    # makes, and the modules and interpreters of its session; a sweep has an order [DIANE U10]; a checkpoint an interval
    # [GWP G10]; streams have files, bytes and a bound; files are seen by evidence [ADR 0029], go along [ADR 0046] or are stored
    # elsewhere; work may be divisible [DIANE U8]; a site may be named [DIANE U5]; and what workflows need of the engine
    # [ADR 0051].
    of_workflows = {"unless_exit", "abort_on", "category", "role", "noop"}
    streams = {"stdin_data", "stdout", "stderr", "max_output"}
    of_functions = {"calls", "initializer", "finalizer", "max_tasks_per_child", "modules", "session"}
    assert set(FIELDS) == {
        *DOCUMENTED_FIELDS.split(),
        *of_functions,
        *streams,
        *of_workflows,
        "order",
        "site",
        "checkpoint_every",
        "visible",
        "content",
        "store",
        "max_memory",
        "units",
    }


def test_a_command_in_one_text_hints_at_list_and_shell() -> None:
    hint = refused({"command": "echo hi"}).hint
    assert "list" in hint
    assert "shell" in hint


def test_too_many_tasks_are_too_large_not_wrong() -> None:
    error = refused(*[task()] * (MAX_SPECS + 1))
    assert isinstance(error, TooLarge)
    assert str(MAX_SPECS) in error.hint


def test_odd_text_in_a_name_is_kept() -> None:
    for name in ("😀", "a\u202eb", "two\nlines", "<script>alert(1)</script>", "\x1b[31mred"):
        assert parse_spec(task(name=name)).name == name
    assert parse_spec(task(name="é" * 128)).name == "é" * 128


def test_one_bad_of_many_is_named_by_its_index() -> None:
    tasks = [task() for _ in range(1_000)]
    tasks[617] = task(cores=0)
    assert refused(*tasks).field == "tasks[617].cores"


def test_the_index_comes_with_the_name_where_there_is_one() -> None:
    assert refused(task(), task(name="fit", cores=0)).field == "tasks[1] (fit).cores"


def test_the_first_twenty_bad_ones_are_listed() -> None:
    message = refused(*[task(cores=0)] * 100).message
    assert "tasks[1]" in message
    assert "tasks[19]" in message
    assert "tasks[20]" not in message


def test_a_cycle_behind_a_good_beginning_is_printed() -> None:
    error = refused(named("a"), named("b", "a", "d"), named("c", "b"), named("d", "c"))
    assert "b -> c -> d -> b" in error.line or "c -> d -> b -> c" in error.line or "d -> b -> c -> d" in error.line
    assert "a ->" not in error.line


def test_a_chain_of_ten_thousand_is_accepted() -> None:
    chain = [named("t0"), *(named(f"t{n}", f"t{n - 1}") for n in range(1, MAX_SPECS))]
    assert parse_submission({"tasks": chain}).count == MAX_SPECS


def test_an_unknown_parent_is_not_found_and_hints_at_the_nearest() -> None:
    error = refused(named("prepare"), named("b", "prepaer"))
    assert isinstance(error, NotFound)
    assert error.hint == "did you mean prepare"


def test_one_parent_named_twice_counts_once() -> None:
    submission = parse_submission({"tasks": [named("a"), named("b", "a", "a")]})
    assert submission.specs[1].after == ("a", "a")
    assert submission.count == 2


def test_in_a_sweep_every_placeholder_must_be_a_parameter() -> None:
    error = refused(task(command=["sim", "{y}"], params={"x": "1..3"}))
    assert error.code == "unknown_param"
    assert "known: x" in error.hint
    assert "{{y}}" in error.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "{y}"}, {"env": {"A": "{y}"}}, {"inputs": ["{y}"]}, {"outputs": ["{y}"]}, {"cwd": "{y}"}, {"stdin": "{y}"},
    ],
)  # fmt: skip
def test_placeholders_are_checked_in_every_text(fields: dict[str, Any]) -> None:
    assert refused(task(params={"x": "1"}, **fields)).code == "unknown_param"
    assert "{y}" in parse_spec(task(params={"y": "1"}, **fields)).texts


def test_without_a_sweep_braces_are_just_braces() -> None:
    assert parse_spec({"command": ["awk", "{print $1} {y} {{"]}).command[1] == "{print $1} {y} {{"


def test_a_table_of_parameters_needs_the_same_names_in_each_row() -> None:
    error = refused(task(params=[{"x": 1}, {"y": 2}]))
    assert error.code == "bad_param"
    assert "row 2" in error.message


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_parameter_that_json_cannot_carry_is_refused(bad: float) -> None:
    """A TOML file may say nan or inf; accepted here it would fail later, in the encoder [input E5]."""
    for params in ({"x": [1.0, bad]}, [{"x": bad}]):
        with pytest.raises(BadInput):
            parse_spec(task(params=params))


def test_text_that_utf8_cannot_carry_is_refused() -> None:
    """A lone surrogate in a command cannot be sent to a pilot: accepted here it would block that pilot [input E11]."""
    for fields in ({"command": ["echo", "\ud800"]}, task(env={"A": "\ud800"}), task(params={"x": ["\udfff"]})):
        with pytest.raises(BadInput):
            parse_spec(fields)


@pytest.mark.parametrize(
    "path", ["../../x", "/etc/passwd", "a/../../x", ".", "a/", "-rf", "a//b", "./a", "", "..", "a/."]
)
def test_an_output_outside_the_directory_is_refused(path: str) -> None:
    assert refused(task(outputs=[path])).field == "outputs"


def test_one_output_twice_is_refused() -> None:
    assert refused(task(outputs=["a", "a"])).code == "duplicate_output"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": 5}, "name"), ({"name": LONG}, "name"), ({"cwd": 5}, "cwd"), ({"max_fail": 0}, "max_fail"),
        ({"max_running": 0}, "max_running"), ({"max_running": True}, "max_running"),
        ({"max_fail": 1.5}, "max_fail"), ({"seed": -1}, "seed"), ({"seed": 2**63}, "seed"), ({"key": "x" * 129}, "key"),
        ({"labels": {"a": 1}}, "labels.a"), ({"labels": []}, "labels"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_the_run_is_refused(more: dict[str, Any], field: str) -> None:
    assert refused(task(), **more).field == field


@pytest.mark.parametrize("body", [None, [], 5, "x", True])
def test_a_submission_is_an_object(body: object) -> None:
    with pytest.raises(BadInput) as caught:
        parse_submission(body)
    assert caught.value.code == "want_object"


@pytest.mark.parametrize("tasks", [None, {}, "x", 5])
def test_tasks_are_a_list(tasks: object) -> None:
    with pytest.raises(BadInput) as caught:
        parse_submission({"tasks": tasks})
    assert caught.value.field == "tasks"


@pytest.mark.parametrize("bad", [None, 5, "x", [], [["x"]]])
def test_a_task_is_a_table(bad: object) -> None:
    assert refused(bad).code == "want_object"


def test_arrays_of_one_run_may_not_add_up_to_too_many() -> None:
    error = refused(task(array="1-6000000"), task(array="1-6000000"))
    assert error.code == "bad_array"


def test_a_whole_task_is_read() -> None:
    spec = parse_spec(
        {
            "name": "fit", "command": ["fit", "{i}"], "cwd": "own", "env": {"A": "{i}"}, "stdin": "in", "inputs": ["a"],
            "outputs": ["b/c"], "cores": 2, "memory": "4G", "disk": "1T", "gpus": 1, "time": "1h", "retries": 3,
            "rerun": "exclusive", "priority": -1.5, "labels": {"k": "v"}, "array": "1-10%2", "after": ["x"],
        }
    )  # fmt: skip
    assert spec.needs == Needs(2, 4 << 30, 1 << 40, 1)
    assert (spec.time, spec.retries, spec.rerun, spec.priority) == (3600.0, 3, Rerun.EXCLUSIVE, -1.5)
    assert (spec.count, spec.throttle, spec.after, spec.labels) == (10, 2, ("x",), {"k": "v"})


def test_what_is_left_out_has_the_contracts_defaults() -> None:
    spec = parse_spec(task())
    assert spec.needs == Needs(1, 0, 0, 0)
    assert (spec.time, spec.retries, spec.rerun, spec.priority, spec.count) == (None, 0, Rerun.SAFE, 0.0, 1)
    assert spec.cwd is None


def test_equal_data_has_one_canonical_text() -> None:
    assert canonical({"b": [1, 2.5], "a": "é"}) == canonical({"a": "é", "b": [1, 2.5]}) == '{"a":"\\u00e9","b":[1,2.5]}'
    assert canonical({"a": 1}) != canonical({"a": 2})


def test_a_far_off_word_gets_the_list() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"


BAD_UNITS: list[Any] = [
    0,
    -1,
    2**53,
    10**30,
    1.5,
    "many",
    True,
    None,
    [],
    {"first": 0},
    {"count": 0},
    {"first": -1, "count": 5},
]


@pytest.mark.parametrize("bad", BAD_UNITS, ids=repr)
def test_wrong_numbers_of_units_are_refused(bad: Any) -> None:
    assert refused(task(units=bad)).field == "units"


@pytest.mark.parametrize(
    ("tasks", "more", "code", "place"),
    [
        ([task(units=5, array="1-3")], {}, "bad_array", "units"),
        ([task(units=5, params={"x": "1..3"})], {}, "bad_array", "units"),
        ([{"function": "AA==", "calls": ["AA=="], "units": 5}], {}, "unknown_field", "units"),
        ([task(units=5, stdout="out.txt")], {}, "same_file", "stdout"),
        ([task(units=5, command=["echo", "{frist}"])], {}, "unknown_param", "command"),
        ([task(units=5)], {"open": True}, "usage", "units"),
        ([task(units=5), task(units=6)], {}, "duplicate_name", "tasks[1].name"),
        ([named("a") | {"units": 5}, named("a") | {"units": 6}], {}, "duplicate_name", "tasks[1].name"),
        ([named("a") | {"units": 5}, named("a")], {}, "duplicate_name", "tasks[1].name"),
        ([task(units={"first": 2**53 - 2, "count": 5})], {}, "range", "units"),
        ([task(units=5, order="first", rerun="never", retries=1)], {}, "range", "retries"),
    ],
    ids=str,
)
def test_what_does_not_go_with_units_is_refused(tasks: list[Any], more: Any, code: str, place: str) -> None:
    error = refused(*tasks, **more)
    assert (error.code, error.field) == (code, place) and error.hint


def test_units_are_one_task_whose_parameters_say_which_they_are() -> None:
    (spec,) = parse_submission({"tasks": [task(units=100, stdout="{first}.txt")]}).specs
    assert spec.count == 1 and spec.sweep is not None and spec.sweep.at(0) == {"first": 0, "count": 100}
    parts = [
        named("a") | {"units": {"first": 0, "count": 5}},
        named("a") | {"units": {"first": 5, "count": 5, "cut": True}},
    ]
    assert [one.units for one in parse_submission({"tasks": parts}).specs] == [(0, 5, False), (5, 5, True)]
