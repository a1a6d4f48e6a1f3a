"""The encoding and its bounds [input E1-E11; security S16]; that both codecs agree is a property."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_DEPTH, MAX_DIGITS
from shoal.wire import codec, codec_fast
from shoal.wire.messages import Capacity, Exchange, Held, Lease, Register, Reply, Report, TagValue

HEAD = '"protocol":1,"pilot":"p","session":"s","seq":1,"ack":0,"free":{}'


def refused(data: bytes) -> BadInput:
    with pytest.raises(BadInput) as caught:
        codec.parse(data)
    return caught.value


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_body"),
        (b" \n", "empty_body"),
        (b"{", "bad_json"),
        (b'{"a":1', "bad_json"),
        (b"{'a':1}", "bad_json"),
        (b'{"a":1}x', "bad_json"),
        (b'{"a":1,"a":2}', "duplicate_key"),
        (b'{"b":{"a":1,"a":1}}', "duplicate_key"),
        (b"NaN", "not_finite"),
        (b"[Infinity]", "not_finite"),
        (b'{"a":-Infinity}', "not_finite"),
        (b"1e400", "not_finite"),
        (b"-1e400", "not_finite"),
        (b"1" * 65, "number_too_long"),
        (b"1" * 10_000, "number_too_long"),
        (b"-" + b"1" * 64, "number_too_long"),
        (b"0." + b"1" * 10_000, "number_too_long"),
        (b"[" * 33 + b"]" * 33, "too_deep"),
        (b"[" * 100_000, "too_deep"),
        (b'{"a":' * 100_000, "too_deep"),
        (b"\xff", "bad_utf8"),
        (b'"\xc3"', "bad_utf8"),
        (b'"\xed\xa0\x80"', "bad_utf8"),
        (b'{"a":"\\ud800"}', "bad_utf8"),
        (b'{"\\udc00":1}', "bad_utf8"),
    ],
)
def test_what_is_not_good_json_is_refused_by_its_code(data: bytes, code: str) -> None:
    error = refused(data)
    assert error.code == code
    assert len(error.line) < 250


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b"1" * MAX_DIGITS, int("1" * MAX_DIGITS)),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
        (b'"' + b"[" * 1000 + b'"', "[" * 1000),
        (b'"\\"[[[[["', '"[[[[['),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        ('"é\\u0000"'.encode(), "é\0"),
        (b"1e308", 1e308),
        (b"null", None),
    ],
)
def test_what_is_good_json_is_read(data: bytes, value: Any) -> None:
    found = codec.parse(data)
    if value is not None:
        assert found == value


def test_bad_json_is_told_with_line_and_column() -> None:
    assert "line 2 column 6" in refused(b'{"a": 1,\n"b": x}').line


def test_bad_utf8_is_told_with_its_offset() -> None:
    assert "byte 3" in refused(b"abc\xff").line


def test_a_doubled_key_is_named_and_escaped() -> None:
    error = refused(b'{"\\u001b":1,"\\u001b":2}')
    assert "\\x1b" in error.line
    assert error.line.isprintable()


def test_brackets_in_a_text_do_not_count_as_depth_whatever_stands_before_them() -> None:
    assert codec.parse(b'["\\\\", "' + b"[" * 100 + b'"]') == ["\\", "[" * 100]


# --- messages
@pytest.mark.parametrize(
    ("kind", "data", "code", "where"),
    [
        (Capacity, b"[1]", "want_object", ""),
        (Capacity, b"5", "want_object", ""),
        (Capacity, b'{"core":1}', "unknown_field", ""),
        (Capacity, b'{"cores":"1"}', "wrong_type", "cores"),
        (Capacity, b'{"cores":1.5}', "wrong_type", "cores"),
        (Capacity, b'{"cores":true}', "wrong_type", "cores"),
        (Capacity, b'{"cores":null}', "wrong_type", "cores"),
        (Held, b'{"attempt":"r1.1#1@1"}', "required", ""),
        (Exchange, b"{" + HEAD.encode() + b',"held":[{"attempt":5,"stage":"x"}]}', "wrong_type", "held[0].attempt"),
        (Exchange, b"{" + HEAD.encode() + b',"tags":{"a":[]}}', "wrong_type", "tags.a"),
        (Exchange, b"{" + HEAD.encode() + b',"held":{}}', "wrong_type", "held"),
        (Exchange, b"{" + HEAD.encode() + b',"tags":[]}', "wrong_type", "tags"),
        (Report, b'{"attempt":"a","outcome":"b","exit_code":"0"}', "wrong_type", "exit_code"),
    ],
)
def test_a_wrong_message_is_refused_by_field(kind: type, data: bytes, code: str, where: str) -> None:
    with pytest.raises(BadInput) as caught:
        codec.decode(kind, data)
    assert (caught.value.code, caught.value.field) == (code, where)
    with pytest.raises(BadInput):
        codec_fast.decode(kind, data if code != "unknown_field" else b"[]")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(BadInput, match="stage is missing"):
        codec.decode(Held, b'{"attempt":"r1.1#1@1"}')


def test_the_server_passes_over_a_field_of_a_newer_pilot() -> None:
    assert codec_fast.decode(Capacity, b'{"cores":2,"tpus":[1,{"a":2}]}') == Capacity(2)


@pytest.mark.parametrize(
    "data", [b"", b" ", b"{", b"NaN", b"\xff", b'{"x":' * 100_000, b"[" * 100_000, b'{"cores":1' + b"0" * 10_000 + b"}"]
)
def test_the_fast_codec_refuses_garbage_without_another_error(data: bytes) -> None:
    with pytest.raises(BadInput):
        codec_fast.decode(Capacity, data)


def test_a_whole_number_stands_for_a_float_and_becomes_one() -> None:
    reply = codec.decode(Reply, b'{"seq":1,"incarnation":1,"hold":5}')
    assert type(reply.hold) is float
    assert type(codec_fast.decode(Reply, b'{"seq":1,"incarnation":1,"hold":5}').hold) is float


def test_tags_keep_their_types_through_both() -> None:
    tags: dict[str, TagValue] = {"text": "1", "whole": 1, "real": 1.0, "yes": True, "no": False}
    said = Register(1, "v", "h", "i", Capacity(1), tags=dict(tags))
    for one in (codec, codec_fast):
        for other in (codec, codec_fast):
            found = other.decode(Register, one.encode(said)).tags
            assert [(k, type(v), v) for k, v in found.items()] == [(k, type(v), v) for k, v in tags.items()]


def test_numbers_that_are_not_finite_are_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        codec.encode(Reply(1, 1, hold=float("nan")))


def test_both_send_text_that_utf8_cannot_carry_rather_than_fail() -> None:
    """A file name that is not UTF-8 must stop neither a pilot's reports nor a server's leases."""
    for one in (codec, codec_fast):
        data = one.encode(Lease("r1.1#1@1", Capacity(1), "safe", ["a\udcffb"]))
        assert codec.decode(Lease, data).command[0].startswith("a")
