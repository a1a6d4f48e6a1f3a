"""Parsers of what others write: any text is read or refused with BadInput, and nothing else ever happens."""

from __future__ import annotations

import json
import os
import posixpath
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.client.config import KEYS, read_ca, read_config
from shoal.model.credentials import PREFIXES, kind_of, redact
from shoal.model.errors import BadInput
from shoal.model.file_names import SUFFIX, environment_name, log_name
from shoal.model.ids import is_pilot, parse_attempt, parse_run, parse_target, parse_task
from shoal.server.http.listen import join, names_of, parse_address
from shoal.wire import codec, codec_fast
from shoal.wire.http import unix_socket
from shoal.wire.join import Join, parse_join
from shoal.wire.messages import Exchange, Register
from shoal.wire.task import parse_spec

TOKEN = PREFIXES["enrol"] + "A" * 43
PRINT = "0123456789abcdef" * 4


def expect_short(error: BadInput) -> None:
    """The form of a refusal: one line that can be printed, with a code."""
    assert error.code and error.message
    assert error.line.isprintable(), error.line
    assert len(error.line) < 400


def tried(parse: Callable[[Any], Any], value: Any) -> Any:
    """What a parser makes of a value; None if it refuses it as it should."""
    try:
        return parse(value)
    except BadInput as error:
        expect_short(error)
        return None


def near(*pieces: str) -> st.SearchStrategy[str]:
    """Texts that look like the right ones, and others."""
    parts = st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=9).map("".join)
    return parts | st.text(max_size=60)


# --- join strings
_HOST = st.from_regex(r"[a-z][a-z0-9.-]{0,20}|10\.0\.0\.[1-9]|\[fe80::1\]", fullmatch=True)
_TLS = st.builds(lambda host, port: f"{host}:{port}", _HOST, st.integers(1, 65_535))
_PLAIN = st.text(min_size=1, max_size=30).map(lambda text: unix_socket.to_address(f"/{text}"))
JOINS = st.builds(Join, st.lists(_TLS, min_size=1, max_size=8).map(tuple), st.just(PRINT), st.just(TOKEN)) | st.builds(
    Join, st.lists(_PLAIN, min_size=1, max_size=8).map(tuple), st.just(""), st.just(TOKEN)
)


@given(JOINS)
def test_a_join_string_is_read_back_as_it_was(made: Join) -> None:
    assert parse_join(f" {made}\n") == made
    assert TOKEN not in repr(made)


@given(near("#", ",", ":", "unix:/", "%23", "box", "8443", PRINT, TOKEN, "0", "99999", "[", "]", "\n", "127.0.0.1"))
@example(f"http://127.0.0.1:80#{''}#{TOKEN}")
@example(f"box:٣#{PRINT}#{TOKEN}")
@example(f"http://127.........:1##{TOKEN}")
@example("#" * 100_000)
def test_any_other_text_is_no_join_string(text: str) -> None:
    found = tried(parse_join, text)
    if found is not None:
        assert found.addresses and kind_of(found.token) is not None
        assert all(url.startswith(("https://", "http://127.")) for url in found.urls)


@given(
    st.text(max_size=40),
    st.sampled_from(["{}#" + PRINT + "#" + TOKEN, "box:1#{}#" + TOKEN, "box:1#" + PRINT + "#" + TOKEN + "{}"]),
)
def test_a_refused_join_string_never_shows_its_token(text: str, form: str) -> None:
    try:
        parse_join(form.replace("{}", text))
    except BadInput as error:
        assert TOKEN not in error.line and TOKEN[:20] not in error.line


# --- JSON
_LEAF = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6)
_TREE = st.recursive(_LEAF, lambda i: st.lists(i, max_size=3) | st.dictionaries(st.text(max_size=5), i, max_size=3))
_GOOD = {
    "protocol": 4, "pilot": "p3f9c", "session": "s", "seq": 1, "ack": 0, "free": {"cores": 1}, "version": "1", "host": "h",
    "identity": "i", "room": {"cores": 1}, "tags": {"a": 1}, "held": [{"attempt": "r1.1#1@1", "stage": "running"}],
    "reports": [{"attempt": "r1.1#1@1", "outcome": "failed"}], "tails": [], "leaving": "", "nonce": "", "unfit": [],
}  # fmt: skip


def bodies(kind: type) -> st.SearchStrategy[bytes]:
    """Bytes that are, or are nearly, a message."""
    names = list(kind.__dataclass_fields__)  # type: ignore[attr-defined]  # every kind here is a dataclass
    good = {name: value for name, value in _GOOD.items() if name in names}
    changed = st.tuples(st.sampled_from([*names, "other"]), _TREE).map(lambda pair: {**good, pair[0]: pair[1]})
    text = (changed | _TREE).map(lambda data: json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    cut = st.tuples(text, st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]])
    noisy = st.tuples(text, st.integers(0, 200), st.binary(max_size=4)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
    )
    return text | cut | noisy | st.binary(max_size=80)


@pytest.mark.parametrize("kind", [Exchange, Register])
@given(data=st.data())
def test_both_decoders_come_to_the_same_verdict(kind: type, data: st.DataObject) -> None:
    """But for what the fast one passes over by design: fields of a newer pilot, and a key that stands twice."""
    body = data.draw(bodies(kind))
    verdicts: list[tuple[str, Any]] = []
    for one in (codec, codec_fast):
        try:
            verdicts.append(("", one.decode(kind, body)))
        except BadInput as error:
            expect_short(error)
            verdicts.append((error.code, None))
    (slow, _), (fast, _) = verdicts
    if slow in ("unknown_field", "duplicate_key") and not fast:
        return
    if not fast and slow in ("number_too_long", "too_deep", "not_finite", "bad_utf8", "bad_json"):
        # Inside a field that it does not know the fast one looks no closer than it must.
        assert set(json.loads(body.decode("utf-8-sig", "replace"))) - set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
        return
    same = {"unknown_field": {"unknown_field", "wrong_type", "required", "want_object"}}
    assert fast == slow or (fast and fast in same.get(slow, {"wrong_type", "required", "want_object"})), (
        body,
        slow,
        fast,
    )
    assert bool(fast) == bool(slow) and verdicts[0][1] == verdicts[1][1]


@given(st.binary(max_size=200) | _TREE.map(lambda tree: json.dumps(tree).encode()))
@example(b'"' + b'\\"' * 200_000)
@example(b'"\\' * 200_000)
@example(b"[" * 200_000)
@example(b"]" * 100 + b"[" * 100_000)
def test_strict_json_reads_or_refuses_any_bytes_in_time(data: bytes) -> None:
    """A text of two hundred thousand quotes that never ends once took minutes."""
    found = tried(codec.parse, data)
    if found is not None:
        assert codec.parse(codec.encode(found)) == found


# --- addresses
@given(_HOST, st.integers(0, 65_535))
def test_an_address_is_read_back_as_it_was(host: str, port: int) -> None:
    assert join(*parse_address(f"{host}:{port}", "--listen")) == f"{host}:{port}"


@given(near(":", "[", "]", "::1", "8443", "65536", "host", "-", ".", "\n", "%eth0", "٣"))
@example(":٣")
@example("[::]:0")
@example("[" + ":" * 500 + "]:1")
def test_any_text_is_an_address_or_refused(text: str) -> None:
    found = tried(lambda said: parse_address(said, "--listen"), text)
    if found is not None:
        host, port = found
        assert 0 <= port <= 65_535
        assert not set(host) & set(" \n\0/@#?%")
        assert names_of([join(host, port)])


# --- configurations
PROVE = os.environ.get("SHOAL_PROVE") == "1"
_VALUES = st.sampled_from(
    ['"x"', "1", "true", "[]", "{}", '"""a\nb"""', "'", "nan", "2026-11-16", '"\\u0000"', '"\x1b"']
)
_LINES = st.lists(
    st.builds(lambda k, v: f"{k} = {v}", st.sampled_from([*KEYS, "serve", '""', "a.b", "[t]"]), _VALUES), max_size=4
)


@given(
    (_LINES.map("\n".join) | st.text(max_size=80)).map(lambda t: t.encode("utf-8", "replace")) | st.binary(max_size=80)
)
@example(b"\xef\xbb\xbfserver = 'x'")
@example(b"[" * 70_000)
@example(b"a" + b".a" * (20_000 if PROVE else 3_000) + b" = 1")  # takes the parser time by its square
def test_any_file_is_a_configuration_or_refused_by_name(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shoal.toml"
        file.write_bytes(data)
        try:
            found = read_config(file)
        except BadInput as error:
            expect_short(error)
            assert "shoal.toml" in error.line
        else:
            assert set(found) <= set(KEYS)
            assert all(isinstance(value, str) for value in found.values())


@pytest.mark.parametrize("text", ["a = " + "[" * 30_000, "server = " + "1" * 5_000], ids=["deep", "long number"])
def test_a_configuration_that_the_parser_itself_cannot_bear_is_refused_too(text: str, tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput):
        read_config(tmp_path / "shoal.toml")


@pytest.mark.parametrize("value", ["\0", "a\0.pem", "~nobody-at-all/x"])
def test_a_path_that_can_be_none_names_no_certificate(value: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read_ca(value, tmp_path)


@given(near("sha256:", PRINT, ":", "AB", "/", "..").filter(lambda text: not set(text) & {"\0", "~"}))
@example("x" * 5_000)
def test_any_text_names_a_certificate_or_is_refused(value: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = tried(lambda said: read_ca(said, Path(folder)), value)
    assert found is None or len(found) == 64


# --- names of things, and of their files
_IDS = near("r", "p", "1", "9" * 17, ".", "#", "@", "0", "-", "/", "..", "\n", "٣", "\0")


@given(_IDS)
@example("r1\n")
@example("r1.1#1@1\n")
@example("r" + "9" * 10_000)
def test_any_text_is_the_name_of_something_or_refused(text: str) -> None:
    for parse in (parse_run, parse_task, parse_attempt, parse_target):
        found = tried(parse, text)
        if found is not None:
            numbers = [found] if isinstance(found, int) else list(found)
            assert all(0 < number < 10**18 for number in numbers)
            assert text in (f"r{found}", str(found))
    if is_pilot(text):
        assert text.isascii() and text.isalnum() and len(text) <= 17


@given(st.from_regex(r"r[1-9][0-9]{0,17}\.[1-9][0-9]{0,17}#[1-9][0-9]{0,8}@[1-9][0-9]{0,8}", fullmatch=True))
def test_the_log_of_any_attempt_rests_below_the_log_directory_in_a_place_of_its_own(text: str) -> None:
    attempt = parse_attempt(text)
    assert str(attempt) == text
    names = {log_name(attempt.run, attempt.element, attempt.number, stream) for stream in SUFFIX}
    assert len(names) == len(SUFFIX)
    for name in [*names, environment_name(attempt.run)]:
        assert posixpath.normpath(name) == name and not name.startswith(("/", ".", "-"))
        assert all(len(part) < 200 for part in name.split("/"))
        assert f"r{attempt.run}" in name


@given(near("a", "/", ".", "..", "-", "\0", "\n", " ", "~", "é", "e\u0301", "\\", "x" * 300))
@example("a/../../x")
@example("./a")
@example("a//b")
def test_an_output_that_is_accepted_stays_below_its_directory(name: str) -> None:
    found = tried(lambda said: parse_spec({"command": ["true"], "outputs": [said]}), name)
    if found is not None:
        assert not name.startswith(("/", "-"))
        assert posixpath.normpath(name) == name != ".."
        assert posixpath.normpath(posixpath.join("/top", name)).startswith("/top/")


# --- secrets
@given(near(*PREFIXES.values(), "A" * 43, "_", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\n"))
def test_no_whole_secret_is_left_in_a_text_that_was_redacted(text: str) -> None:
    left = redact(f"{text}{PREFIXES['session']}{'z' * 43} x\n-----BEGIN EC PRIVATE KEY-----\nMIGH")
    assert "zzzz" not in left and "MIGH" not in left
    assert kind_of(left) is None and redact(left) == left
