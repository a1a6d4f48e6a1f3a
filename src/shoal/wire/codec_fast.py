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
        return codec.encode(message)  # text that is not UTF-8, such as a file name, must not block a message


def decode(kind: type[T], data: bytes) -> T:
    """The message in `data`, or BadInput naming the field. Unknown fields of a newer pilot are passed over."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        message: T = decoder.decode(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        found = codec.parse(data)  # malformed JSON is refused with the same message everywhere
        if not isinstance(found, dict):
            raise BadInput("expected an object", code="want_object") from None
        message_text, _, field = str(error).partition(" - at `$.")
        code = "required" if message_text.startswith("Object missing") else "wrong_type"
        raise BadInput(message_text, code=code, field=field.rstrip("`")) from None
    return message
