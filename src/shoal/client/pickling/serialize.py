"""Serialization of calls: functions, arguments and objects as payload texts [protocol 6].

Plain pickle first, because it is ten times faster; cloudpickle where that fails, and for everything of `__main__`, which
no runner can import: lambdas, closures, functions and classes of a script or notebook are sent by value.
"""

from __future__ import annotations

import contextlib
import operator
import pickle
import sys
import types
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from shoal.client.pickling.user_modules import user_modules
from shoal.model.errors import ShoalError, Unreachable
from shoal.model.limits import MAX_INLINE
from shoal.wire.payload import Bytes, Ref, container, to_text

PROTOCOL = 5
MAIN = b"__main__"
PROXY = b"RebuildProxy"  # of `multiprocessing.managers`: it needs the key of its manager
MAX_KEPT = 256  # functions whose text is cached
_MISSING = object()
_FIXED = (int, float, complex, bool, str, bytes, type(None), type(...), Ref)

Put = Callable[[Sequence[Bytes]], str]
T = TypeVar("T")


def dump(value: Any, in_band: bool = False) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A pickle and the large buffers left out of it; what only this process knows is in it by value.

    `in_band`: the buffers are in the pickle, because small arrays need no blob of their own.
    """
    buffers: list[pickle.PickleBuffer] = []
    callback = None if in_band else buffers.append
    try:
        data = pickle.dumps(value, PROTOCOL, buffer_callback=callback)
        if MAIN not in data and PROXY not in data:
            return data, buffers
    except Exception:  # whatever __reduce__ and __getstate__ raise: cloudpickle may still succeed, or raises the error
        pass
    from shoal.client.pickling.by_value import dumps  # most programs need it, many short ones do not

    buffers.clear()
    return dumps(value, PROTOCOL, callback), buffers


def text_of(value: Any, put: Put, most: int = MAX_INLINE) -> str:
    """An object as a payload text; `put` uploads the parts of a blob, of more than `most` bytes, and returns its digest."""
    data, buffers = dump(value)
    if buffers and len(data) + sum(buffer.raw().nbytes for buffer in buffers) <= most:
        data, buffers = dump(value, in_band=True)
    if buffers or len(data) > most:
        return put(container(data, buffers))
    return to_text(data)


def call_texts(
    calls: Iterator[tuple[Any, ...]], put: Put, fallback: Callable[[Any, Exception], T] | None = None
) -> Iterator[str | Exception | T]:
    """A text for each call's positional arguments, or the error, or what the fallback makes of arguments and error: a tight
    loop, because it runs once for each task."""
    dumps, encode, buffers = pickle.dumps, b2a_base64, list[pickle.PickleBuffer]()
    keep, nothing = buffers.append, dict[str, Any]()
    for args in calls:
        try:
            data = dumps((args, nothing), PROTOCOL, buffer_callback=keep)
            if not buffers and len(data) <= MAX_INLINE and MAIN not in data and PROXY not in data:
                yield encode(data, newline=False).decode("ascii")
                continue
        except Exception:  # the slow path below raises the error again, or succeeds
            pass
        buffers.clear()
        try:
            yield text_of((args, {}), put)
        except Unreachable:
            raise
        except Exception as error:  # it concerns this call only, not the others
            yield fallback((args, {}), error) if fallback is not None else error


class Functions:
    """Cached texts of functions. A pickle by value holds globals, so it is kept only while they stay the same.

    What is kept refers to its function, so that no other can ever have the same `id`.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[_Watched, str]] = {}

    def text_of(self, function: Callable[..., Any], put: Put) -> str:
        """The payload text of a function."""
        kept = self._kept.get(id(function))
        if kept is not None and kept[0].function is function and kept[0].is_same():
            return kept[1]
        user_modules.add_imports_of(function)
        text = text_of(function, put)
        fits = isinstance(function, types.FunctionType) or is_importable(function)
        watched = _Watched(function) if fits else None
        if watched is not None and watched.is_comparable:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[id(function)] = watched, text
        return text


class _Watched:
    """A function and all that its pickle depends on, compared by identity; mutable values cannot be compared so."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._globals: list[tuple[dict[str, Any], str, Any]] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self._codes: list[tuple[types.FunctionType, types.CodeType, Any, tuple[Any, ...], tuple[Any, ...]]] = []
        self._named: list[Any] = []  # in the pickle by name only: as long as the name leads to them
        self._modules: list[types.ModuleType] = []
        self._loaded: int | None = None  # modules: which parts of a package are in the pickle depends on what is loaded
        import cloudpickle  # type: ignore[import-untyped]  # it ships no types

        # A module that is registered to be pickled by value may change anywhere.
        self.is_comparable = not cloudpickle.list_registry_pickle_by_value() and self._add(function)

    def is_same(self) -> bool:
        """True if its pickle would be the same now. Loops without a function each: it is asked for every call."""
        for f, code, plain, named, hints in self._codes:
            if f.__code__ is not code or f.__defaults__ is not plain or f.__dict__:
                return False
            if (named or f.__kwdefaults__) and not _are_same(_items(f.__kwdefaults__), named):
                return False
            if (hints or f.__annotations__) and not _are_same(_items(f.__annotations__), hints):
                return False
        for names, name, value in self._globals:
            if names.get(name, _MISSING) is not value:
                return False
        for cell, value in self._cells:
            if content_of(cell) is not value:
                return False
        for thing in self._named:
            if not is_importable(thing):
                return False
        for module in self._modules:
            if not _is_loaded(module):
                return False
        return self._loaded is None or self._loaded == len(sys.modules)

    def _add(self, function: Any) -> bool:
        if any(known is function for known, *_ in self._codes):
            return True
        if is_importable(function):
            self._named.append(function)
            return True
        if function.__dict__:
            return False
        code, plain, named = function.__code__, function.__defaults__, _items(function.__kwdefaults__)
        self._codes.append((function, code, plain, named, _items(function.__annotations__)))
        if not all(self._is_fixed(value) for value in (*(plain or ()), *named)):
            return False
        for cell in function.__closure__ or ():
            value = content_of(cell)
            self._cells.append((cell, value))
            if not self._is_fixed(value):
                return False
        for name in sorted(names_in(code)):
            value = function.__globals__.get(name, _MISSING)
            self._globals.append((function.__globals__, name, value))
            if value is not _MISSING and not self._is_fixed(value):
                return False
        return True

    def _is_fixed(self, value: Any) -> bool:
        if type(value) in _FIXED:
            return True
        if isinstance(value, types.FunctionType):
            return self._add(value)
        if type(value) in (tuple, frozenset):
            return all(self._is_fixed(item) for item in value)
        if isinstance(value, types.ModuleType):
            self._modules.append(value)
            if hasattr(value, "__path__"):
                self._loaded = len(sys.modules)
            return _is_loaded(value)
        if isinstance(value, types.BuiltinFunctionType):  # of a module; a method of some list is none
            return isinstance(value.__self__, types.ModuleType)
        if isinstance(value, type) and is_importable(value):
            self._named.append(value)
            return True
        return False


def _items(table: dict[str, Any] | None) -> tuple[Any, ...]:
    """Names and values of a table that may be changed in place."""
    return tuple(part for pair in table.items() for part in pair) if table else ()


def _are_same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _is_loaded(module: types.ModuleType) -> bool:
    """True if a module is pickled by its name."""
    return sys.modules.get(module.__name__) is module


def content_of(cell: types.CellType) -> Any:
    """The value in a closure's cell."""
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


def names_in(code: types.CodeType) -> set[str]:
    """Every name that a code object and those inside it look up; some are attributes, which does no harm here."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_in(constant)
    return found


def is_importable(thing: Any) -> bool:
    """True if a function or class is pickled by its name: it is at the top of a module other than `__main__`."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return False
    return getattr(module, getattr(thing, "__qualname__", ""), None) is thing


def renewed(function: Any) -> Any:
    """A function of a module as its name leads to it now: after a reload a new runner has no other to initialize."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return function
    found = getattr(module, getattr(function, "__qualname__", ""), None)
    return found if callable(found) else function


def chunked(function: Callable[..., Any]) -> Callable[[list[tuple[Any, ...]]], list[Any]]:
    """Many calls of a function as one. A closure, so that it is pickled by value and no runner needs this module."""

    def chunk(calls: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*args) for args in calls]

    return chunk


def with_hint(error: Exception, what: str) -> Exception:
    """A pickling error with what it is about, and what to do."""
    hint = f"{what} cannot be pickled: make what is local to a process inside the function, or in an initializer"
    if not hasattr(error, "__notes__") and not isinstance(error, ShoalError):  # else it says already what it is about
        with contextlib.suppress(Exception):  # an exception may refuse notes
            error.add_note(hint)
    return error


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function as people write it."""
    name = getattr(function, "__qualname__", None) or getattr(type(function), "__qualname__", "call")
    return str(name).replace("<locals>.", "")[:120]
