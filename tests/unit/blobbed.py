"""Objects as the bytes of a blob, as a client would put them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from shoal.wire.payload import Bytes, container


def dump(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A pickle and the large buffers left out of it."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers


def joined(parts: Sequence[Bytes]) -> bytes:
    """The parts of a blob as one."""
    whole = io.BytesIO()
    for part in parts:
        whole.write(part)
    return whole.getvalue()


def blob_of(value: Any) -> bytes:
    """An object as a blob."""
    return joined(container(*dump(value)))
