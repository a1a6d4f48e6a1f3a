"""Sizes and durations: what people write, and every bad value of the catalogue [input E24, E25]."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_BYTES, MAX_SECONDS
from shoal.model.quantities import first_of, parse_duration, parse_ports, parse_size, show_duration, show_size


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (1, 1), (4096, 4096), ("17", 17), ("17B", 17), ("1K", 1 << 10), ("512M", 512 << 20), ("4G", 4 << 30),
        ("4 G", 4 << 30), (" 4G ", 4 << 30), ("1.5T", 3 << 39), ("4GiB", 4 << 30), ("4GB", 4 * 10**9), ("1KB", 1000),
        ("2P", 2 << 50), (MAX_BYTES, MAX_BYTES), ("0.5K", 512),
    ],
)  # fmt: skip
def test_a_size_is_read(value: object, bytes_: int) -> None:
    assert parse_size(value) == bytes_


@pytest.mark.parametrize(
    "value",
    [
        "4 Gb", "4XB", -1, 1e30, 0, "0", "0G", "", " ", "G", "4g", "-4G", "1e3", "4 iB", "1.5.5G", "4G4M", True, None,
        4.0, float("nan"), float("inf"), [], {}, "9" * 30, "999999P", MAX_BYTES + 1, 10**40, "4\0G", "٤G",
    ],
)  # fmt: skip
def test_what_is_not_a_size_is_refused_with_examples(value: object) -> None:
    with pytest.raises(BadInput) as caught:
        parse_size(value, "disk")
    assert caught.value.code == "bad_size"
    assert caught.value.field == "disk"
    assert '"4G"' in caught.value.hint


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1, 1.0), (0.5, 0.5), ("90", 90.0), ("90s", 90.0), ("1.5", 1.5), ("1.5s", 1.5), ("15m", 900.0), ("2h", 7200.0),
        ("1h30m", 5400.0), ("1h30m10s", 5410.0), ("1d", 86400.0), ("1d2h", 93600.0), ("02:30:00", 9000.0),
        ("02:30", 9000.0), ("1-02:00:00", 93600.0), (" 5m ", 300.0), (MAX_SECONDS, MAX_SECONDS), ("120m", 7200.0),
    ],
)  # fmt: skip
def test_a_duration_is_read(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        0, -5, "1:2:3:4", 1e12, "", " ", "0", "0s", "-5", "5x", "1m1h", "h", "1:2:3:", "1::3", True, None, [], {},
        float("nan"), float("inf"), float("-inf"), "nan", "inf", "1e3", MAX_SECONDS + 1, 10**64, "9" * 30, "1 h",
    ],
)  # fmt: skip
def test_what_is_not_a_duration_is_refused_with_examples(value: object) -> None:
    with pytest.raises(BadInput) as caught:
        parse_duration(value, "time")
    assert caught.value.code == "bad_duration"
    assert caught.value.field == "time"
    assert '"1h30m"' in caught.value.hint


def test_a_duration_beyond_every_float_is_refused_like_any_other() -> None:
    """A task file may hold a whole number of hundreds of digits; TOML sets no bound."""
    with pytest.raises(BadInput) as caught:
        parse_duration(10**400)
    assert caught.value.code == "bad_duration"


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(0, "0B"), (512, "512B"), (1024, "1.0K"), (4 << 30, "4.0G"), (3 << 39, "1.5T"), (1 << 60, "1048576.0T")],
)
def test_sizes_are_shown_with_a_unit(bytes_: int, text: str) -> None:
    assert show_size(bytes_) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0ms"), (0.25, "250ms"), (1.0, "1.0s"), (59.9, "59.9s"), (61, "1m01s"), (5400, "1h30m"), (90000, "1d1h")],
)
def test_durations_are_shown_in_the_two_largest_units(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_a_port_and_a_range_of_ports() -> None:
    assert parse_ports("9700") == range(9700, 9701)
    assert parse_ports("9700-9702") == range(9700, 9703)
    assert parse_ports("0") == range(1), "any that is free"


@pytest.mark.parametrize(
    "text", ["", "a", "-1", "1-", "9-8", "65536", "1-65536", "0-5", "1 - 2", "1-2-3", "٣", "9" * 12]
)
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="range of ports"):
        parse_ports(text)


def test_a_list_says_how_many_more_there_are() -> None:
    assert first_of(["a", "b"], 2) == "a, b"
    assert first_of(["a", "b", "c"], 2) == "a, b and 1 more"
    assert first_of(["a", "b"], 2, 1_002) == "a, b and 1,000 more"
