"""The same encoding by msgspec, for the server; equality with `codec` is a property test."""

from __future__ import annotations

import codecs
from typing import Any, TypeVar

import msgspec

from shoal.model.errors import BadInput
from shoal.wire import codec

T = TypeVar("T")
_ENCODER = msgspec.json.Encoder()
_DECODERS: dict[type, Any] = {}


def encode(message: Any) -> bytes:
    """A dataclass or plain data as JSON."""
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:
        return codec.encode(message)  # text that is not UTF-8, a file name for one: it must not block a conversation


def decode(kind: type[T], data: bytes) -> T:
    """The message in `data`, or BadInput naming the field. Unknown fields of a newer pilot are passed over."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        message: T = decoder.decode(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        found = codec.parse(data)  # what is no JSON is refused in the same words everywhere
        if not isinstance(found, dict):
            raise BadInput("expected an object", code="want_object") from None
        words, _, place = str(error).partition(" - at `$.")
        code = "required" if words.startswith("Object missing") else "wrong_type"
        raise BadInput(words, code=code, field=place.rstrip("`")) from None
    return message
