"""Objects of a script's classes come home, and leave the classes as they are."""

from __future__ import annotations

import enum
import subprocess
import sys
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy

from shoal.client.executor.outcome import unpack
from shoal.client.unpickle.own_classes import SETS_CLASS, load_keeping_classes
from shoal.wire.payload import container, to_text
from tests.unit.blobbed import blob_of, joined


def make() -> Any:
    """A class that only this process knows."""

    class Point:
        scale = 1

        def tell(self) -> Any:
            return "old", self.scale

    return Point


def test_a_class_that_changed_since_stays_changed() -> None:
    kind = make()
    data = cloudpickle.dumps(kind())
    assert SETS_CLASS in data
    kind.scale, kind.tell = 2, lambda self: ("new", self.scale)
    found = unpack(to_text(data), None)
    assert isinstance(found, kind) and found.tell() == ("new", 2) == kind().tell()


def test_a_class_that_is_new_here_is_made_whole() -> None:
    code = (
        "import cloudpickle, enum, sys\n"
        "class P:\n  x = 7\n  def tell(self): return self.x\nclass E(enum.Enum):\n  A = 1\n"
        "sys.stdout.buffer.write(cloudpickle.dumps([P(), E.A, P]))"
    )
    data = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    for _ in range(2):
        point, member, kind = load_keeping_classes(data)
        assert point.tell() == 7 and isinstance(point, kind) and member.value == 1


def test_enumerations_and_large_arrays_come_home() -> None:
    colour = enum.Enum("colour", ["RED"], module="__main__")
    assert unpack(to_text(cloudpickle.dumps(colour.RED)), None) is colour.RED
    kind = make()
    buffers: list[Any] = []
    value = (kind(), numpy.arange(50_000))
    data = cloudpickle.dumps(value, 5, buffer_callback=buffers.append)
    found, array = unpack(bytearray(joined(container(data, buffers))), None)
    assert isinstance(found, kind) and array.sum() == value[1].sum() and array.flags.writeable
    assert unpack(bytearray(blob_of([1])), None) == [1]
