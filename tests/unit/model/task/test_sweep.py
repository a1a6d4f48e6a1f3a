"""Sweeps and arrays: order of combinations, exact decimals, Slurm's form, placeholders, and what is refused
[input E36]."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_ELEMENTS, MAX_PARAMS
from shoal.model.task.sweep import (
    Axis,
    Steps,
    Sweep,
    Value,
    fill,
    has_shape,
    holes,
    parse_array,
    parse_axis,
    shape_of,
    show_value,
    sweep_of,
    unknown_parts,
)


def values(word: str) -> list[Value]:
    axis = parse_axis(word)
    return [axis.at(k) for k in range(axis.count)]


def elements(sweep: Sweep) -> list[dict[str, Value]]:
    return [sweep.at(k) for k in range(sweep.count)]


def test_the_last_parameter_varies_fastest() -> None:
    sweep = sweep_of(["x=1..2", "mode=a,b"])
    assert elements(sweep) == [
        {"x": 1, "mode": "a"}, {"x": 1, "mode": "b"}, {"x": 2, "mode": "a"}, {"x": 2, "mode": "b"},
    ]  # fmt: skip
    assert [list(e) for e in elements(sweep)] == [["x", "mode"]] * 4


def test_a_sweep_without_axes_has_one_element() -> None:
    assert elements(Sweep()) == [{}]


def test_rows_of_a_table_are_taken_in_order() -> None:
    rows: tuple[dict[str, Value], ...] = ({"x": 1, "y": "a"}, {"x": 2, "y": "b"})
    sweep = Sweep(rows=rows)
    assert sweep.count == 2
    assert sweep.names == ("x", "y")
    assert elements(sweep) == list(rows)


def test_a_table_is_not_changed_by_who_got_a_row() -> None:
    sweep = Sweep(rows=({"x": 1},))
    sweep.at(0)["x"] = 2
    assert sweep.at(0) == {"x": 1}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("x=1..4", [1, 2, 3, 4]),
        ("x=10..40:10", [10, 20, 30, 40]),
        ("x=10..35:10", [10, 20, 30]),
        ("x=3..1:-1", [3, 2, 1]),
        ("x=-2..1", [-2, -1, 0, 1]),
        ("x=5..5", [5]),
        ("x=0..0.5:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("x=0..1:0.25", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("x=1.5..3", [1.5, 2.5]),
        ("x=1..3,7,9..10", [1, 2, 3, 7, 9, 10]),
        ("x=a,b", ["a", "b"]),
        ("x=1,2.5,-3", [1, 2.5, -3]),
        ("x=007,1e5,1.50,-0", ["007", "1e5", "1.50", 0]),
        ("x=../data,..", ["../data", ".."]),
        ("x=a=b", ["a=b"]),
        ("x=9999999999999999999", ["9999999999999999999"]),
    ],
)
def test_values_of_a_word(word: str, expected: list[Value]) -> None:
    found = values(word)
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]


def test_thousands_of_decimal_steps_stay_exact() -> None:
    axis = parse_axis("x=0..1000:0.1")
    assert axis.count == 10_001
    assert [str(axis.at(k)) for k in (3, 7001, 9999)] == ["0.3", "700.1", "999.9"]


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("x=5..1", "bad_array"), ("x=1..5:-1", "bad_array"), ("x=1..5:0", "bad_array"), ("x=0..1:0.0", "bad_array"),
        ("x=0..1000000000000", "bad_array"), ("x=0..1e12", "bad_array"), ("x=1..", "bad_array"), ("x=..5", "bad_array"),
        ("x=1..5:", "bad_array"), ("x=a..b", "bad_array"), ("x=1.2.3..4", "bad_array"), ("x=....", "bad_array"),
        ("x=", "bad_array"), ("x=1,,2", "bad_array"), ("x=0..1:0.00000000001", "bad_array"),
        ("x", "bad_param"), ("=1", "bad_param"), ("9=1", "bad_param"), ("a b=1", "bad_param"), ("é=1", "bad_param"),
        ("x" * 65 + "=1", "bad_param"), ("x\n=1", "bad_param"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused(word: str, code: str) -> None:
    with pytest.raises(BadInput) as caught:
        sweep_of([word])
    assert caught.value.code == code
    assert len(caught.value.line) < 250


def test_a_refused_range_names_its_parameter_and_the_form() -> None:
    with pytest.raises(BadInput) as caught:
        parse_axis("energy=5..1")
    assert caught.value.field == "energy"
    assert caught.value.line.startswith("energy: 5..1 is empty")


def test_one_name_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="x is given twice"):
        sweep_of(["x=1", "x=2"])


def test_too_many_parameters_are_refused() -> None:
    with pytest.raises(BadInput) as caught:
        sweep_of([f"p{k}=1" for k in range(MAX_PARAMS + 1)])
    assert caught.value.code == "bad_param"
    assert str(MAX_PARAMS) in caught.value.hint


def test_too_many_combinations_are_refused_without_counting_them_out() -> None:
    with pytest.raises(BadInput) as caught:
        sweep_of(["a=1..10000", "b=1..10000", "c=1..10000"])
    assert caught.value.code == "bad_array"
    assert str(MAX_ELEMENTS) in caught.value.hint


# --- Slurm's form
@pytest.mark.parametrize(
    ("text", "expected", "throttle"),
    [
        ("1-5", [1, 2, 3, 4, 5], None),
        ("0-9:3", [0, 3, 6, 9], None),
        ("1,4,7-9", [1, 4, 7, 8, 9], None),
        ("7", [7], None),
        ("1-2000%50", list(range(1, 2001)), 50),
        ("3,1,2%1", [3, 1, 2], 1),
    ],
)
def test_a_slurm_array_is_read(text: str, expected: list[int], throttle: int | None) -> None:
    sweep, limit = parse_array(text)
    assert [e["i"] for e in elements(sweep)] == expected
    assert sweep.names == ("i",)
    assert limit == throttle


@pytest.mark.parametrize(
    "text",
    [
        "5-1", "1-5:0", "0-1000000000000", "1..5", "", "a", "1-", "-1", "1-5%", "1-5%0", "1-5%x", "1-5%5%5", "1,,2", "1-5:-1",
        "1 - 5", "%5", "1-5%-1", "٣", 5, None, True, ["1-5"], "1-" + "9" * 30,
    ],
)  # fmt: skip
def test_what_is_not_an_array_is_refused(text: object) -> None:
    with pytest.raises(BadInput) as caught:
        parse_array(text)
    assert caught.value.code == "bad_array"
    assert caught.value.field == "array"


def test_a_million_elements_are_a_few_words() -> None:
    sweep, _ = parse_array("1-1000000")
    assert sweep.count == 1_000_000
    assert sweep.at(999_999) == {"i": 1_000_000}
    assert len(sweep.axes[0].pieces) == 1


# --- placeholders
def test_placeholders_are_found_in_order() -> None:
    assert holes("a {x} b {mode}{x}") == ["x", "mode", "x"]


@pytest.mark.parametrize("text", ["", "x", "{}", "{ x }", "{0}", "{{x}}", "{x", "x}", "{a-b}", "${{HOME}}"])
def test_what_is_not_a_placeholder_is_left_alone(text: str) -> None:
    assert holes(text) == []


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{x}", "1"), ("a{x}b{mode}", "a1bfast"), ("{{x}}", "{x}"), ("{{{x}}}", "{1}"), ("awk '{{print}}'", "awk '{print}'"),
        ("{}", "{}"), ("{ x }", "{ x }"), ("}}{{", "}{"), ("{flag}", "true"), ("{off}", "false"), ("{y}", "0.1"), ("{x", "{x"),
    ],
)  # fmt: skip
def test_placeholders_are_filled_and_doubled_braces_stand_for_themselves(text: str, filled: str) -> None:
    assert fill(text, {"x": 1, "mode": "fast", "flag": True, "off": False, "y": 0.1}) == filled


def test_a_value_with_braces_is_not_filled_again() -> None:
    assert fill("{x} {y}", {"x": "{y}", "y": "{{"}) == "{y} {{"


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (False, "false"), (1, "1"), (0.1, "0.1"), ("a b", "a b")])
def test_values_stand_in_a_command_as_people_write_them(value: Value, text: str) -> None:
    assert show_value(value) == text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("x=008..011", ["008", "009", "010", "011"]),
        ("x=01..100:50", ["001", "051"]),
        ("x=-01..01", ["-01", "000", "001"]),
        ("x=10..08:-1", ["10", "09", "08"]),
        ("x=0..2", [0, 1, 2]),
        ("x=0..01:0.5", [0.0, 0.5, 1.0]),
    ],
)
def test_zeros_before_a_number_are_kept(word: str, expected: list[Value]) -> None:
    assert values(word) == expected


def test_an_array_counts_as_slurm_does_without_zeros() -> None:
    assert elements(parse_array("01-03")[0]) == [{"i": 1}, {"i": 2}, {"i": 3}]


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("runs/a.tar.gz", "a.tar.gz a.tar .gz runs"),
        ("a", "a a  ."),
        ("/x", "x x  /"),
        (".bashrc", ".bashrc .bashrc  ."),
        (7, "7 7  ."),
    ],
)
def test_parts_of_a_path_fill_placeholders(value: Value, filled: str) -> None:
    text = "{f.name} {f.stem} {f.suffix} {f.parent}"
    assert holes(text) == ["f"] * 4
    assert fill(text, {"f": value}) == filled


def test_parts_that_there_are_not_are_found() -> None:
    assert unknown_parts("{f.stem} {f.stme} {{f.no}} {f.}") == [("f", "stme")]


def test_a_sweep_is_counted_if_all_its_values_are_steps() -> None:
    assert Sweep().is_counted and Sweep((Axis("x", (Steps("1", "1", 9), Steps("0", "0.1", 3))),)).is_counted
    assert not Sweep((Axis("x", (Steps("1", "1", 9), ("a",))),)).is_counted
    assert not Sweep(rows=({"x": 1},)).is_counted


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        ("raw/{n}.dat", "raw/12.dat", True), ("raw/{n}.dat", "raw/12.da", False), ("raw/{n}.dat", "raw.dat", False),
        ("a{x}b{y.stem}c", "a1bb2c", True), ("a{x}b{y}c", "a12c", False), ("aba{x}aba", "aba", False),
        ("plain", "plain", True), ("plain", "plains", False), ("{{x}}{n}", "{x}7", True), ("{x}", "", True),
    ],
)  # fmt: skip
def test_a_text_has_the_shape_of_what_placeholders_could_make_of_it(text: str, name: str, fits: bool) -> None:
    assert has_shape(name, shape_of(text)) is fits
