"""Objects from payloads and payloads from objects, inside a runner. Only ever in the submitter's interpreter.

What is large is mapped, not read. Arguments are mapped privately: a function may write into an array it was given,
and nobody else sees that. The object of a Ref is unpickled anew for each call, so that no call sees what another one did
to it; only what cannot be changed is kept. Its arrays are read-only and point into the mapped file: no copy is made.
"""

from __future__ import annotations

import importlib
import io
import mmap
import os
import pickle
import reprlib
import sys
from binascii import a2b_base64
from collections import OrderedDict
from types import AsyncGeneratorType, GeneratorType, ModuleType
from typing import Any, Callable, NamedTuple, Optional, Union

from shoal.model.limits import MAX_INLINE
from shoal.wire import payload

FUNCTIONS_KEPT = 100
REFERRED_KEPT, REFERRED_BYTES = 64, 1 << 30  # the newest is kept however large it is
DESCRIPTION = 200  # characters
_MAIN = b"__main__"
_CONSTANT = frozenset({int, float, complex, bool, str, bytes, type(None), range})
_CLOUDPICKLE = "cloudpickle"  # the only thing here that is not of the standard library, and used only where it is


class HostLacks(Exception):
    """This host lacks something that the call needs; it may do well elsewhere."""


class Missing(Exception):
    """A blob could not be had."""


class NotPicklable(Exception):
    """What a function returned cannot travel; the cause is the pickling error."""


def find_cloudpickle() -> Optional[ModuleType]:
    """The module, where it is installed."""
    try:
        return importlib.import_module(_CLOUDPICKLE)
    except ImportError:
        return None


def pack(value: Any) -> Union[bytes, list[payload.Bytes]]:
    """A pickle that fits into a message, or else the parts of a blob."""
    dumps: Callable[..., bytes] = pickle.dumps
    buffers: list[pickle.PickleBuffer] = []
    data = b""
    problem: Optional[Exception] = None
    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        problem = error
    if problem is not None or _MAIN in data:
        # A class or function of the submitter's script can only be found there by value.
        cloud = find_cloudpickle()
        if cloud is not None:
            found: list[pickle.PickleBuffer] = []
            try:
                data = cloud.dumps(value, protocol=5, buffer_callback=found.append)
                dumps, buffers, problem = cloud.dumps, found, None
            except Exception as error:
                problem = error if problem is not None else None
        if problem is not None:
            raise NotPicklable(str(problem)) from _clearer(value, problem)
    if buffers:
        if len(data) + sum(buffer.raw().nbytes for buffer in buffers) > MAX_INLINE:
            return payload.container(data, buffers)
        data = dumps(value, protocol=5)
    return data if len(data) <= MAX_INLINE else [data]


def _clearer(value: Any, problem: Exception) -> Exception:
    """A pickling error as a person understands it, where it is a usual mistake."""
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        return TypeError(
            f"{value.__qualname__} is a generator, which cannot leave its process: return a list of what it yields"
        )
    return problem


class _Referred(NamedTuple):
    """What is kept of a Ref."""

    data: mmap.mmap
    size: int
    is_constant: bool
    value: Any  # None, if calls could change it


def is_immutable(value: Any) -> bool:
    """True if a call cannot change this object: plain values, arrays that are read-only, and tuples of such."""
    kind = type(value)
    if kind in _CONSTANT:
        return True
    if kind in (tuple, frozenset):
        return all(map(is_immutable, value))
    numpy = sys.modules.get("numpy")
    return numpy is not None and kind is numpy.ndarray and not value.flags.writeable and not value.dtype.hasobject


class _Binder(pickle.Unpickler):
    """Unpickles arguments in which numbers stand for the results of other calls."""

    def __init__(self, data: payload.Bytes, found: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._found = found

    def persistent_load(self, number: int) -> Any:
        """The result with this number."""
        return self._found[number]


class Loads:
    """What this runner has loaded and may need again. `need` gives the path of a blob, or raises Missing."""

    def __init__(self, need: Callable[[str], str]) -> None:
        self._need = need
        self._functions: OrderedDict[str, Any] = OrderedDict()
        self._referred: OrderedDict[str, _Referred] = OrderedDict()
        payload.resolver, payload.binder = self.refer, self.bind

    def function(self, text: str) -> Any:
        """The callable of a payload text, loaded once."""
        known = self._functions.get(text)
        if known is None:
            known = self._functions[text] = self.load(text)
            if len(self._functions) > FUNCTIONS_KEPT:
                self._functions.popitem(last=False)
        else:
            self._functions.move_to_end(text)
        return known

    def load(self, text: str) -> Any:
        """The object of any payload text, anew."""
        try:
            if text.startswith("sha256:"):
                return payload.load(memoryview(self._map(text, mmap.ACCESS_COPY)[0]))
            return pickle.loads(a2b_base64(text))
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == _CLOUDPICKLE:
                raise HostLacks(
                    f"{sys.executable} on this host has no cloudpickle, which this function needs: "
                    "install it there, or give python= an interpreter that has it"
                ) from None
            raise

    def bind(self, text: str, values: list[str]) -> Any:
        """The arguments of a payload text with results of other calls, loaded anew, in the places of their numbers."""
        found = [self.load(value) for value in values]
        is_blob = text.startswith("sha256:")
        data = memoryview(self._map(text, mmap.ACCESS_READ)[0]) if is_blob else a2b_base64(text)
        return _Binder(data, found).load()

    def refer(self, digest: str) -> Any:
        """The object of a Ref: fetched once, and loaded anew for each call unless it cannot be changed."""
        known = self._referred.get(digest)
        if known is not None:
            self._referred.move_to_end(digest)
            return known.value if known.is_constant else payload.load(memoryview(known.data))
        data, size = self._map(digest, mmap.ACCESS_READ)
        value = payload.load(memoryview(data))
        is_constant = is_immutable(value)
        self._referred[digest] = _Referred(data, size, is_constant, value if is_constant else None)
        while len(self._referred) > 1 and (
            len(self._referred) > REFERRED_KEPT or sum(one.size for one in self._referred.values()) > REFERRED_BYTES
        ):
            self._referred.popitem(last=False)
        return value

    def _map(self, digest: str, access: int) -> tuple[mmap.mmap, int]:
        path = self._need(digest)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return mmap.mmap(fd, 0, access=access), os.fstat(fd).st_size
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise Missing(f"cannot read {path}: {error}") from None

    def describe(self, function: str, call: str) -> str:
        """A call as a person would write it, without making it."""
        payload.resolver = None  # a Ref shows as such: its object is not needed
        try:
            what = self.load(function)
            args, kwargs = self.load(call)
        finally:
            payload.resolver = self.refer
        short = reprlib.Repr()
        short.maxstring = short.maxother = short.maxlong = 60
        arguments = [short.repr(one) for one in args] + [f"{name}={short.repr(one)}" for name, one in kwargs.items()]
        name = getattr(what, "__qualname__", "").rpartition("<locals>.")[2] or short.repr(what)
        text = f"{name}({', '.join(arguments)})"
        return text if len(text) <= DESCRIPTION else text[: DESCRIPTION - 3] + "..."


class Environ:
    """Variables that change with every call, set as `os.environb` would but without what it checks each time."""

    def __init__(self) -> None:
        self._data = getattr(os.environ, "_data", None)  # the dictionary behind os.environ and os.environb
        self._put = os.putenv if isinstance(self._data, dict) else None

    def __setitem__(self, name: bytes, value: bytes) -> None:
        if self._put is None or self._data is None:
            os.environb[name] = value
        else:
            self._put(name, value)
            self._data[name] = value
