"""The parts of a runner that need no pilot: what it makes of objects and errors, and where it looks for modules."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest

from shoal.model.limits import MAX_INLINE
from shoal.pilot.runner import load, main
from shoal.pilot.runner.failure import clean, in_one_line, pack_error, trace_of
from shoal.pilot.runner.load import HostLacks, Loads, Missing, NotPicklable, pack
from shoal.wire import chunk, payload
from tests.unit.blobbed import blob_of, joined


@pytest.fixture
def loads(tmp_path: Path) -> Any:
    before = payload.resolver
    asked: list[str] = []

    def need(digest: str) -> str:
        asked.append(digest)
        return str(tmp_path / digest[7:])

    made = Loads(need)
    yield made, asked, tmp_path
    payload.resolver = before


def put(folder: Path, name: str, value: object) -> str:
    (folder / name).write_bytes(blob_of(value))
    return f"sha256:{name}"


def test_seeds_are_those_of_the_wire() -> None:
    for element in (1, 2, 77, 10**9):
        assert main.seed_of(5, element) == chunk.seed_of(5, element)


@pytest.mark.parametrize("value", [None, 3, "x" * 100, {"a": [1, 2]}, numpy.arange(100), "about __main__"])
def test_small_results_are_plain_pickles(value: Any) -> None:
    data = pack(value)
    assert isinstance(data, bytes) and len(data) <= MAX_INLINE
    assert numpy.array_equal(pickle.loads(data), value)


@pytest.mark.parametrize("value", ["x" * MAX_INLINE, numpy.arange(MAX_INLINE), [numpy.arange(MAX_INLINE), "x"]])
def test_large_results_are_the_parts_of_a_blob(value: Any) -> None:
    parts = pack(value)
    assert isinstance(parts, list)
    found = payload.load(joined(parts))
    assert pickle.dumps(found) == pickle.dumps(value)


def test_what_plain_pickle_cannot_do_is_left_to_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(lambda: 5)
    assert isinstance(data, bytes) and pickle.loads(data)() == 5
    with pytest.raises(NotPicklable, match="lock") as caught:
        pack(threading.Lock())
    assert isinstance(caught.value.__cause__, TypeError)
    monkeypatch.setattr(load, "find_cloudpickle", lambda: None)
    with pytest.raises(NotPicklable):
        pack(lambda: 5)
    assert isinstance(pack("__main__"), bytes)  # only a text


def test_functions_are_loaded_once_and_the_last_hundred_kept(loads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, _ = loads
    texts = [payload.to_text(pickle.dumps([n])) for n in range(4)]
    monkeypatch.setattr(load, "FUNCTIONS_KEPT", 2)
    first = made.function(texts[0])
    assert made.function(texts[0]) is first
    made.function(texts[1])
    assert made.function(texts[0]) is first  # used again, so the other goes
    made.function(texts[2])
    assert made.function(texts[0]) is first
    made.function(texts[3])
    made.function(texts[2])
    assert made.function(texts[0]) is not first


def test_referred_objects_are_bounded_by_bytes_and_number(loads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked, folder = loads
    digests = [put(folder, f"d{n}", numpy.arange(1000)) for n in range(3)]
    monkeypatch.setattr(load, "REFERRED_BYTES", 20_000)
    for digest in (*digests, digests[0], digests[2]):
        assert payload.resolve(digest).sum() == 499500
    assert asked == [*digests, digests[0]]
    monkeypatch.setattr(load, "REFERRED_BYTES", 10)
    assert made.refer(digests[1]) is made.refer(digests[1])  # the newest is kept however large it is


def test_a_blob_that_cannot_be_opened_is_missing(loads: Any) -> None:
    made, _, _ = loads
    with pytest.raises(Missing, match="cannot read"):
        made.load("sha256:none")


def test_only_a_lack_of_cloudpickle_is_the_hosts(loads: Any) -> None:
    made, _, _ = loads
    with pytest.raises(ModuleNotFoundError):
        made.load(payload.to_text(b"cno_such_module\nf\n."))
    error = ModuleNotFoundError("no", name="cloudpickle.cloudpickle")

    class Fails:
        def __reduce__(self) -> Any:
            return _raise, (error,)

    with pytest.raises(HostLacks, match="has no cloudpickle"):
        made.load(payload.to_text(pickle.dumps(Fails())))


def _raise(error: Exception) -> None:
    raise error


def test_a_call_is_described_as_a_person_would_write_it(loads: Any) -> None:
    made, asked, _ = loads
    call = payload.to_text(pickle.dumps(((3, "x" * 500, payload.Ref("sha256:" + "0" * 64)), {"y": [1] * 50})))
    text = made.describe(payload.to_text(pickle.dumps(os.path.join)), call)
    assert text.startswith("join(3, 'xxx") and "Ref(sha256:0000000...)" in text and len(text) <= 200
    assert asked == [] and payload.resolver is not None
    assert made.describe(payload.to_text(pickle.dumps(max)), payload.to_text(pickle.dumps(((), {})))) == "max()"


class Awkward(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\n b"), "ValueError: a b"),
        (KeyError(), "KeyError"),
        (SystemExit(2), "SystemExit: the function called sys.exit(2)"),
        (Awkward(), "Awkward: (its text cannot be shown)"),
        (ValueError("\udcff"), "ValueError: ?"),
        (ValueError("x" * 1000), "ValueError: " + "x" * 488),
    ],
)
def test_an_error_is_one_line(error: BaseException, text: str) -> None:
    assert in_one_line(error) == text
    assert trace_of(error)


def test_errors_travel_or_become_plain_ones() -> None:
    error, trace = pickle.loads(pack_error(KeyError("a"), "trace"))
    assert isinstance(error, KeyError) and trace == "trace"
    awkward = ValueError("x")
    awkward.lock = threading.Lock()  # type: ignore[attr-defined]
    error, _ = pickle.loads(pack_error(awkward, ""))
    assert type(error) is RuntimeError and error.args == ("ValueError('x')",)
    assert clean("a\udcffb") == "a?b"


def test_modules_are_looked_for_as_the_submitter_had_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = str(tmp_path), os.path.dirname(os.__file__)
    monkeypatch.setattr(sys, "path", ["", ours])
    main.arrange_path(["", theirs, "/no/such", ours], True)
    assert sys.path == ["", theirs, ours]
    monkeypatch.setattr(sys, "path", ["", ours])
    main.arrange_path([theirs, ours], False)
    assert sys.path == [ours, theirs]
