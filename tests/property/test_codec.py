"""Both codecs say the same: whatever either writes, either reads back equal."""

from __future__ import annotations

import dataclasses
import json
from types import ModuleType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.errors import BadInput, ShoalError
from shoal.wire import codec, codec_fast, messages

KINDS = [
    kind for kind in vars(messages).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)
]  # every message there is, also those added later
_REALS = st.floats(allow_nan=False, allow_infinity=False)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
    float: _REALS,
    bool: st.booleans(),
    type(None): st.none(),
}


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as the messages use types."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Union:
        return st.one_of([strategy(option) for option in inner])
    if origin is list:
        return st.lists(strategy(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(strategy(inner[0]), strategy(inner[1]), max_size=3)
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return st.builds(hint, **{name: strategy(part) for name, part in get_type_hints(hint).items()})
    return _SCALARS[hint]


def shape(value: Any) -> Any:
    """A value with its types: 1, 1.0 and True are equal, and are not the same."""
    if dataclasses.is_dataclass(value):
        return [shape(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    return type(value), value


def test_there_are_messages_to_try() -> None:
    assert {"Exchange", "Reply", "Register", "Registered", "Lease", "Report"} <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_either_reads_what_either_writes(kind: type, data: st.DataObject) -> None:
    message = data.draw(strategy(kind))
    for writer in (codec, codec_fast):
        written = writer.encode(message)
        for reader in (codec, codec_fast):
            found: Any = reader.decode(kind, written)
            assert found == message
            assert shape(found) == shape(message)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**60), 10**60) | _REALS | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_strict_json_reads_what_json_writes(data: Any) -> None:
    assert codec.parse(json.dumps(data).encode()) == data
    assert codec.parse(codec.encode(data)) == data


@pytest.mark.parametrize("one", [codec, codec_fast], ids=lambda module: module.__name__)
@given(data=st.binary(max_size=60) | _JSON.map(lambda data: json.dumps(data).encode()))
def test_anything_else_is_refused_and_never_an_error_of_another_kind(one: ModuleType, data: bytes) -> None:
    try:
        message = one.decode(messages.Exchange, data)
    except ShoalError as error:
        assert isinstance(error, BadInput)
        assert len(error.line) < 400
    else:
        assert isinstance(message, messages.Exchange)


@given(st.data())
def test_a_message_with_one_field_of_another_type_is_refused_by_both(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    plain = dataclasses.asdict(data.draw(strategy(kind)))
    field = data.draw(st.sampled_from(sorted(plain)))
    plain[field] = [[[]]]
    for reader in (codec, codec_fast):
        with pytest.raises(BadInput):
            reader.decode(kind, json.dumps(plain).encode())
