"""Objects as texts and blobs; large buffers are neither copied into the pickle nor out of it."""

from __future__ import annotations

import pickle

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.blobs import is_digest
from shoal.wire import payload
from tests.unit.blobbed import dump, joined


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers())
def test_a_container_gives_back_what_was_put_in(buffers: list[bytes], value: int) -> None:
    obj = (value, [pickle.PickleBuffer(bytearray(data)) for data in buffers])
    pickled, kept = dump(obj)
    found = payload.load(joined(payload.container(pickled, kept)))
    assert found[0] == value and [bytes(view) for view in found[1]] == buffers


def test_an_array_is_a_view_of_the_blob_it_came_in() -> None:
    array = numpy.arange(100_000.0)
    pickled, buffers = dump({"a": array})
    parts = payload.container(pickled, buffers)
    assert len(pickled) < 1000 and any(isinstance(part, memoryview) and part.nbytes == array.nbytes for part in parts)
    found = payload.load(joined(parts))["a"]
    assert not found.flags.owndata and (found == array).all()
    assert found.ctypes.data % 8 == 0


@pytest.mark.parametrize("text", ["sha256:" + "a" * 64])
def test_a_digest_is_told_from_base64(text: str) -> None:
    assert is_digest(text)
    assert not is_digest(payload.to_text(b"x")) and not is_digest(text[:-1])
    assert payload.of_text(payload.to_text(b"\x00xyz")) == b"\x00xyz"


def test_a_ref_is_its_object_in_a_runner_and_itself_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ref = payload.Ref("sha256:" + "b" * 64)
    again = pickle.loads(pickle.dumps(ref))
    assert isinstance(again, payload.Ref) and again.digest == ref.digest
    monkeypatch.setattr(payload, "resolver", lambda digest: ("the object of", digest))
    assert pickle.loads(pickle.dumps([ref])) == [("the object of", ref.digest)]
