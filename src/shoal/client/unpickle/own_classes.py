"""Results that hold objects of classes of this script or notebook. They come back with the class as it was sent, which must
not be put over ours: it may have changed since, and would silently become the old one again."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from shoal.wire.payload import open_container

SETS_CLASS = b"_class_setstate"  # in every pickle that holds such a class
_TRACKER = {"_make_skeleton_class": 4, "_make_skeleton_enum": 5}  # argument by which a class is known again


def load_keeping_classes(data: Any) -> Any:
    """The object of a payload's bytes; classes that this process has stay as they are."""
    pickled, buffers = open_container(data)
    return _Loader(io.BytesIO(pickled), buffers=buffers).load()


def know_again(numbers: Mapping[str, str]) -> None:
    """Take classes that an earlier process of this script sent, by cloudpickle's numbers of them, for ours."""
    from cloudpickle import cloudpickle  # type: ignore[import-untyped]  # it ships no types

    known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
    for earlier, ours in numbers.items():
        if earlier != ours and ours in known:
            known.setdefault(earlier, known[ours])


class _Loader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, *, buffers: list[memoryview]) -> None:
        super().__init__(file, buffers=buffers)
        self._kept: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle names; how cloudpickle makes and fills classes is replaced."""
        found = super().find_class(module, name)
        if module.partition(".")[0] == "cloudpickle":
            if name in _TRACKER:
                return functools.partial(self._make, found, _TRACKER[name])
            if name == SETS_CLASS.decode():
                return functools.partial(self._fill, found)
        return found

    def _make(self, make: Callable[..., Any], at: int, *args: Any) -> Any:
        from cloudpickle import cloudpickle

        known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(args[at]) if args[at] is not None else None
        if known is None:
            return make(*args)
        self._kept.append(known)
        return known

    def _fill(self, fill: Callable[..., Any], made: Any, state: Any) -> Any:
        return made if any(one is made for one in self._kept) else fill(made, state)
