"""Pickling by value: cloudpickle, and the decorators of `functools` and the `__slots__` that it does not know.

Imported only when something has to be pickled by value, because cloudpickle takes a while to import. What rebuilds an
object is itself sent by value, so that no runner needs this module.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Callable
from types import FunctionType, MemberDescriptorType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]  # it ships no types

from shoal.client.pickling.serialize import is_importable

_LRU_CACHE = type(functools.lru_cache(lambda: None))
_OF_LRU_CACHE = frozenset({"__wrapped__", "cache_parameters", "__module__", "__name__", "__qualname__", "__doc__"})
_OF_SINGLEDISPATCH = frozenset({"registry", "dispatch", "register", "_clear_cache", "__wrapped__"})


def dumps(value: Any, protocol: int, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """A pickle in which everything that only this process knows is by value."""
    with io.BytesIO() as file:
        Pickler(file, protocol=protocol, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # of a module without types
    """cloudpickle's, for `lru_cache`, `cached_property` and `singledispatch` too, whose cache is empty then; and a class
    with `__slots__` has them there as well."""

    def reducer_override(self, obj: Any) -> Any:
        """How an object is pickled; called for each."""
        if isinstance(obj, _LRU_CACHE) and not is_importable(obj):
            options = obj.cache_parameters()
            attributes = {name: value for name, value in obj.__dict__.items() if name not in _OF_LRU_CACHE}
            return _LRU, (obj.__wrapped__, options["maxsize"], options["typed"]), attributes or None
        if _is_proxy(obj):
            # As for a child of this process: it needs the manager's key, which is left out of any other pickle.
            make, (function, token, serializer, options), *_ = obj.__reduce__()
            return make, (function, token, serializer, {**options, "authkey": bytes(obj._authkey)})
        if type(obj) is functools.cached_property:
            return _CACHED_PROPERTY, (obj.func, obj.attrname)
        if isinstance(obj, FunctionType) and not is_importable(obj) and obj.__dict__.keys() >= _OF_SINGLEDISPATCH:
            # Implementations may refer to the function itself: they are added when it is there.
            return _DISPATCH, (obj.__wrapped__,), list(obj.registry.items()), None, None, _REGISTER  # type: ignore[attr-defined]
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and type(reduced) is tuple and len(reduced) == 6 and len(reduced[1]) == 6:
            return _with_slots(obj, reduced)
        return reduced


def _with_slots(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """How cloudpickle pickles a class, but so that it is made with the slots it has here.

    Without them its objects would have a `__dict__` there, and what they bring home would not fit those of our class.
    """
    make, (meta, name, bases, attributes, tracker, extra), (state, slot_state), *rest = reduced
    # What pickle notes in a class when it meets the first object: a class is the same before and after.
    state = {key: value for key, value in state.items() if key != "__slotnames__"}
    own = vars(kind)
    if "__slots__" in own and NamedTuple not in bases:  # that makes them itself
        # As they are in the class, where private names are complete: `__slots__` itself may be an iterator that is used up.
        slots = [
            key for key, value in own.items() if type(value) is MemberDescriptorType and value.__objclass__ is kind
        ]
        state = {key: value for key, value in state.items() if key not in slots}
        slots += [key for key in ("__dict__", "__weakref__") if key in own and key not in attributes]
        attributes = {**attributes, "__slots__": tuple(slots)}
    return make, (meta, name, bases, attributes, tracker, extra), (state, slot_state), *rest


def _is_proxy(obj: Any) -> bool:
    """True if it stands for an object of a `multiprocessing.Manager`."""
    managers = sys.modules.get("multiprocessing.managers")
    return managers is not None and isinstance(obj, managers.BaseProxy)


def _rebuilders() -> tuple[Callable[..., Any], ...]:
    """Functions inside a function are always pickled by value."""

    def lru_cached(function: Any, maxsize: int | None, typed: bool) -> Any:
        import functools

        return functools.lru_cache(maxsize, typed)(function)

    def cached_property(function: Any, name: str) -> Any:
        import functools

        made = functools.cached_property(function)
        made.__set_name__(object, name)
        return made

    def dispatch(function: Any) -> Any:
        import functools

        return functools.singledispatch(function)

    def register(function: Any, implementations: list[tuple[type, Any]]) -> None:
        for kind, implementation in implementations:
            function.register(kind, implementation)

    return lru_cached, cached_property, dispatch, register


_LRU, _CACHED_PROPERTY, _DISPATCH, _REGISTER = _rebuilders()
