"""The modules of this process that are its user's own, with their sources: what every runner of a session executes.

A source is read when the module is first seen, which is when an executor is made or a call submitted, and again only
after the module was reloaded: so the calls use what this process uses, even if the file was edited meanwhile [ADR 0024].
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from shoal.client.console import say
from shoal.model.limits import MAX_MODULES
from shoal.model.quantities import show_size
from shoal.wire.module_sources import ModuleSource, ModuleSources, is_installed, to_bytes

_OURS = "shoal"
_DISTRIBUTIONS = (".dist-info", ".egg-info")


class _Seen(NamedTuple):
    """A module when it was looked at. `is_other`: one of the user's own that is no source file."""

    module: ModuleType
    spec: ModuleSpec | None
    source: ModuleSource | None
    is_other: bool = False


class LoadedModules:
    """The user's own modules in `sys.modules`. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        self._watched: list[tuple[str, ModuleType, ModuleSpec | None]] = []
        self._mark: tuple[int, str] = (0, "")
        self._installed: str | None = None
        self._data = b""
        self._is_large = False

    def sources(self) -> bytes:
        """Their sources as they travel; the very same object while nothing has changed. Cheap: it is asked for each call."""
        if self._mark != _mark() or any(
            sys.modules.get(name) is not module or getattr(module, "__spec__", None) is not spec
            for name, module, spec in self._watched
        ):
            with self._lock:
                self._look()
        return self._data

    def _look(self) -> None:
        mark, seen = _mark(), dict[str, _Seen]()
        for name, module in list(sys.modules.items()):
            if not isinstance(module, ModuleType):
                continue
            spec = getattr(module, "__spec__", None)
            known = self._seen.get(name)
            if known is None or known.module is not module or known.spec is not spec:
                known = _see(name, module, spec, known)
            seen[name] = known
        if self._installed is None:
            self._installed = _installed()
        found = [one.source for one in seen.values() if one.source is not None]
        incomplete = {name.partition(".")[0] for name, one in seen.items() if one.is_other}
        data = to_bytes(ModuleSources(self._installed, tuple(incomplete), tuple(self._bounded(found))))
        self._seen, self._mark = seen, mark
        self._watched = [(name, one.module, one.spec) for name, one in seen.items() if one.source is not None]
        if data != self._data:
            self._data = data

    def _bounded(self, found: list[ModuleSource]) -> list[ModuleSource]:
        """As many as may travel, the smallest first; the others are imported by name where the calls run."""
        total, kept = 0, list[ModuleSource]()
        for one in sorted(found, key=lambda one: (len(one.source or ""), one.name)):
            total += len(one.source or "")
            if total > MAX_MODULES:
                if not self._is_large:
                    say(f"your modules are larger than {show_size(MAX_MODULES)}: the largest are read where the calls run")
                self._is_large = True
                return kept
            kept.append(one)
        return kept


def _mark() -> tuple[int, str]:
    """What differs when a module was loaded: how many there are, and the name of the last."""
    return len(sys.modules), next(reversed(sys.modules), "")


def _see(name: str, module: ModuleType, spec: ModuleSpec | None, former: _Seen | None) -> _Seen:
    nothing = _Seen(module, spec, None)
    if spec is None or spec.name != name or name == "__main__" or name.partition(".")[0] == _OURS:
        return nothing
    folders = spec.submodule_search_locations
    if spec.origin is None or not spec.has_location:
        if folders is None or spec.origin is not None:
            return nothing
        theirs = [os.path.abspath(one) for one in getattr(module, "__path__", folders)]
        if all(is_installed(one, _library()) for one in theirs):
            return nothing
        return nothing._replace(source=ModuleSource(name, "", theirs, None))
    path = os.path.abspath(spec.origin)
    if is_installed(path, _library()):
        return nothing
    data = _read(spec.loader, spec.origin) if path.endswith(".py") else None
    if data is None:
        return nothing._replace(is_other=True)
    if former is not None and former.source is not None and not _compiles(data, path):
        return nothing._replace(source=former.source)  # its reload failed: what was loaded before still runs here
    where = None if folders is None else [os.path.abspath(one) for one in folders]
    return nothing._replace(source=ModuleSource(name, path, where, data.decode("latin-1")))


def _read(loader: Any, path: str) -> bytes | None:
    """The source that a loader loaded: in a runner that is the submitter's, not the file's."""
    for read in (getattr(loader, "get_data", None), _read_file):
        if read is not None:
            with contextlib.suppress(OSError):
                return bytes(read(path))
    return None


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _compiles(data: bytes, path: str) -> bool:
    try:
        compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


@functools.cache
def _library() -> tuple[str, ...]:
    folder = os.path.dirname(os.path.abspath(os.__file__))
    return folder, os.path.realpath(folder)


def _installed() -> str:
    """The distributions on the search path with their versions, as the names of their folders say them."""
    names = set[str]()
    for folder in sys.path:
        if is_installed(os.path.abspath(folder or "."), ()):
            with contextlib.suppress(OSError):
                names.update(name for name in os.listdir(folder) if name.endswith(_DISTRIBUTIONS))
    return hashlib.sha256("\n".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


loaded = LoadedModules()
