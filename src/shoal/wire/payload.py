"""Pickled Python objects between client and runner: a text in a message, or the bytes of a blob.

The server and the pilot forward payloads and never unpickle them. A payload text is either the base64 of a pickle, or
`sha256:HEX`, which names a blob. A blob is a plain pickle, or, where the object has large buffers (numpy arrays), a
container: pickle and buffers one behind the other, so that whoever reads it can map the file and copy nothing.
"""

from __future__ import annotations

import pickle
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

Bytes = Union[bytes, bytearray, memoryview]
MAGIC = b"SHOALPK1"  # no pickle begins so
ALIGN = 64  # buffers begin at multiples of this: what vector instructions like
_COUNT = struct.Struct("<Q")


def to_text(data: bytes) -> str:
    """A small pickle as a payload text."""
    return b2a_base64(data, newline=False).decode("ascii")


def of_text(text: str) -> bytes:
    """The pickle in a payload text that names no blob."""
    return a2b_base64(text)


def container(pickled: bytes, buffers: Sequence[pickle.PickleBuffer]) -> list[Bytes]:
    """The parts of a blob, to be written one after another; large buffers are not copied."""
    views = [memoryview(buffer.raw()) for buffer in buffers]
    if not views:
        return [pickled]
    sizes = [len(pickled), *(view.nbytes for view in views)]
    head = MAGIC + b"".join(_COUNT.pack(number) for number in (len(sizes), *sizes))
    parts: list[Bytes] = [head]
    at = len(head)
    contents: list[Bytes] = [pickled, *views]
    for part in contents:
        gap = -at % ALIGN
        parts += [b"\0" * gap, part]
        at += gap + len(part)
    return parts


def open_container(data: Bytes) -> tuple[memoryview, list[memoryview]]:
    """The pickle and the buffers of a blob, as views into it."""
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        return view, []
    at = len(MAGIC) + _COUNT.size
    (count,) = _COUNT.unpack(view[len(MAGIC) : at])
    sizes = [_COUNT.unpack_from(view, at + n * _COUNT.size)[0] for n in range(count)]
    at += count * _COUNT.size
    parts = []
    for size in sizes:
        at += -at % ALIGN
        parts.append(view[at : at + size])
        at += size
    return parts[0], parts[1:]


def load(data: Bytes) -> Any:
    """Unpickle the bytes of a payload. Only called where the task's owner runs code anyway."""
    pickled, buffers = open_container(data)
    return pickle.loads(pickled, buffers=buffers)


class Ref:
    """A large object that was put once and is named in many calls; in a runner it arrives as the object itself."""

    __slots__ = ("digest",)

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return resolve, (self.digest,)

    def __repr__(self) -> str:
        return f"Ref({self.digest[:14]}...)"


class Bound:
    """Arguments of a call in which results of other calls belong: in a runner it arrives with them in their places."""

    __slots__ = ("text", "values")

    def __init__(self, text: str, values: Sequence[str]) -> None:
        self.text, self.values = text, list(values)  # payload texts

    def __reduce__(self) -> tuple[Callable[[str, list[str]], Any], tuple[str, list[str]]]:
        return bind, (self.text, self.values)


resolver: Optional[Callable[[str], Any]] = None  # set in a runner: the object behind a digest


binder: Optional[Callable[[str, list[str]], Any]] = None  # set in a runner: puts values into arguments


def bind(text: str, values: list[str]) -> Any:
    """The arguments with the results in their places; outside a runner only what was given."""
    return binder(text, values) if binder is not None else Bound(text, values)


def resolve(digest: str) -> Any:
    """The object that a Ref names; outside a runner the Ref itself."""
    return resolver(digest) if resolver is not None else Ref(digest)
