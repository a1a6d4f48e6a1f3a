"""Sweeps: `at` runs once through all combinations, in order, and without spelling them out."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.task.sweep import Axis, Steps, Sweep, Value, fill, holes, parse_array, parse_axis, show_value

_VALUE: st.SearchStrategy[Value] = st.one_of(
    st.integers(-99, 99), st.booleans(), st.text(max_size=5), st.floats(-9, 9, allow_nan=False)
)
_PIECE = st.one_of(
    st.lists(_VALUE, min_size=1, max_size=3).map(tuple),
    st.builds(Steps, st.integers(-9, 9).map(str), st.sampled_from(["1", "-2", "0.1", "3"]), st.integers(1, 4)),
)
_AXES = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=4).flatmap(
    lambda names: st.tuples(
        *(st.builds(Axis, st.just(n), st.lists(_PIECE, min_size=1, max_size=2).map(tuple)) for n in names)
    )
)


def spelled(axis: Axis) -> list[Value]:
    """An axis written out, by the plainest means."""
    found: list[Value] = []
    for piece in axis.pieces:
        if isinstance(piece, Steps):
            steps = [Decimal(piece.start) + k * Decimal(piece.step) for k in range(piece.count)]
            found += [float(v) if "." in piece.start + piece.step else int(v) for v in steps]
        else:
            found += piece
    return found


@given(_AXES)
def test_at_is_a_bijection_onto_the_product_in_its_order(axes: tuple[Axis, ...]) -> None:
    sweep = Sweep(axes)
    expected = [dict(zip(sweep.names, values, strict=True)) for values in product(*map(spelled, axes))]
    assert sweep.count == len(expected)
    assert [list(sweep.at(k).items()) for k in range(sweep.count)] == [list(e.items()) for e in expected]


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(1, 50), st.integers(0, 3))
def test_a_range_holds_its_start_and_never_passes_its_end(low: int, high: int, step: int, places: int) -> None:
    low, high = min(low, high), max(low, high)
    scale = Decimal(10) ** -places
    words = [f"{number * scale:.{places}f}" for number in (low, high, step)]
    axis = parse_axis(f"x={words[0]}..{words[1]}:{words[2]}")
    expected = [number * scale for number in range(low, high + 1, step)]
    assert axis.count == len(expected)
    assert [axis.at(k) for k in range(axis.count)] == [float(v) if places else int(v) for v in expected]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=4))
def test_a_slurm_array_is_its_pieces_in_order(pieces: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{low}-{low + width}:{step}" for low, width, step in pieces)
    sweep, _ = parse_array(text)
    expected = [i for low, width, step in pieces for i in range(low, low + width + 1, step)]
    assert [sweep.at(k)["i"] for k in range(sweep.count)] == expected


def filled(text: str, params: dict[str, Value]) -> str:
    """Placeholders filled by the plainest means: from left to right, one piece at a time."""
    pieces = {"{{": "{", "}}": "}", **{f"{{{name}}}": show_value(value) for name, value in params.items()}}
    found = ""
    while text:
        piece = next((p for p in pieces if text.startswith(p)), text[0])
        found += pieces.get(piece, piece)
        text = text[len(piece) :]
    return found


@given(st.lists(st.sampled_from(["{{", "}}", "{x}", "{long_1}", "#", "{", "}", " ", "{ x}", "$"]), max_size=12), _VALUE)
def test_filling_goes_from_left_to_right_and_never_over_what_it_put_in(parts: list[str], value: Value) -> None:
    text = "".join(parts)
    params: dict[str, Value] = {"x": value, "long_1": "{x}"}
    assert set(holes(text)) <= set(params)
    assert fill(text, params) == filled(text, params)


@given(st.text(max_size=20), _VALUE)
def test_any_text_survives_when_its_braces_are_doubled(text: str, value: Value) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert holes(escaped) == []
    assert fill(escaped, {}) == text
    assert fill(escaped + " {x}", {"x": value}) == f"{text} {show_value(value)}"
