"""Tags as people write them."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_TASK_TAG
from shoal.pilot.host.tags import MAX_OWN_TAGS, parse_line, parse_tags, value_of
from shoal.wire.messages import TagValue


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("-3", -3), ("+2", 2), ("0", 0), ("2.5", 2.5), (".5", 0.5), ("-1e3", -1000.0), ("1.5E-2", 0.015),
        ("true", True), ("false", False), ("True", "True"), ("ssd", "ssd"), ("", ""), ("007", "007"), ("1_000", "1_000"),
        ("1e999", "1e999"), ("nan", "nan"), ("inf", "inf"), ("e5", "e5"), ("-", "-"), (".", "."), ("1.", "1."),
        ("1.2.3", "1.2.3"), ("12345678901234567890", "12345678901234567890"), ('"12"', "12"), ("'a b'", "a b"),
        ('"', '"'), ("0x10", "0x10"), ("٣", "٣"), ("1 2", "1 2"),
    ],
)  # fmt: skip
def test_what_looks_like_a_number_or_a_truth_becomes_one(text: str, value: TagValue) -> None:
    found = value_of(text)
    assert (found, type(found)) == (value, type(value))


def test_tags_of_a_command_line_are_read() -> None:
    assert parse_tags(["disk=ssd", " rack = 7 ", "note=a=b", "fast=true"]) == {
        "disk": "ssd", "rack": 7, "note": "a=b", "fast": True,
    }  # fmt: skip
    assert parse_tags([]) == {}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["disk"], "--tag: disk is not NAME=VALUE (for example --tag disk=ssd)"),
        (["9x=1"], "--tag: '9x' is not a name"),
        (["=1"], "--tag: '' is not a name"),
        (["a.b=1"], "'a.b' is not a name"),
        ([f"{'n' * 65}=1"], "is not a name"),
        (["cores=9"], "--tag: cores has a meaning already"),
        (["load=9"], "has a meaning already"),
        (["my=9"], "has a meaning already"),
        (["a=1", "a=2"], "a is given twice"),
        (["a="], "a has no value"),
        (["a=  "], "a has no value"),
        ([f"a={'x' * (MAX_TASK_TAG + 1)}"], "the value of a is too long or not plain text"),
        (["a=x\x1b[2J"], "the value of a is too long or not plain text"),
        ([f"t{number}=1" for number in range(MAX_OWN_TAGS + 1)], "tags are too many"),
        (["\x1b[2J=1"], "is not a name"),
    ],
)
def test_a_bad_tag_is_refused_in_one_line(words: list[str], complaint: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_tags(words)
    line = str(caught.value)
    assert complaint in line and line.isprintable() and caught.value.code == "bad_tag"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"x = 1", ("x", 1)), (b"x=1", ("x", 1)), (b"  x  =  a b  \r", ("x", "a b")), (b"x =", ("x", "")),
        (b"x = a = b", ("x", "a = b")), ("ort = Köln".encode(), ("ort", "Köln")),
        (b"x", None), (b"", None), (b"= 1", None), (b"a.b = 1", None), (b"x = \xff", None), (b"x = a\x00b", None),
        (b"x = " + b"v" * (MAX_TASK_TAG + 1), None), (b"x = " + "ö".encode() * (MAX_TASK_TAG // 2 + 1), None),
        (b"x = " + b"v" * MAX_TASK_TAG, ("x", "v" * MAX_TASK_TAG)), (b"n" * 65 + b" = 1", None),
    ],
)  # fmt: skip
def test_lines_of_tasks_are_read_or_are_no_tags(line: bytes, found: tuple[str, TagValue] | None) -> None:
    assert parse_line(line) == found
