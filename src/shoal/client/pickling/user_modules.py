"""The modules that are the user's own, with their sources: what every runner of a session executes [ADR 0024].

A module that is loaded here travels as it was when it was first seen, which is when an executor is made or a call
submitted, and anew only after it was reloaded: so the calls use what this process uses, even if the file was edited
meanwhile. A module that is not loaded, but named by an import statement of what travels, is read again whenever its
file has changed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import opcode
import os
import re
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

from shoal.client.console import say
from shoal.model.limits import MAX_MODULES, MAX_UNLOADED
from shoal.model.quantities import show_size
from shoal.wire.module_sources import ModuleSource, ModuleSources, is_installed, to_bytes

_OURS = "shoal"
_DISTRIBUTIONS = (".dist-info", ".egg-info")
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n;#]*)|import[ \t]+([^\n;#]*))", re.M
)
_IMPORT_NAME = opcode.opmap["IMPORT_NAME"]
_Look = tuple[int, int, int, int] | None


class _Seen(NamedTuple):
    """A module when it was looked at. `is_other`: one of the user's own that is no source file."""

    module: types.ModuleType
    spec: ModuleSpec | None
    source: ModuleSource | None = None
    imports: tuple[str, ...] = ()
    is_other: bool = False


class _Unloaded(NamedTuple):
    """A module that is named, but not loaded, and its file when it was read."""

    source: ModuleSource
    look: _Look
    imports: tuple[str, ...]


class UserModules:
    """The user's own modules. Any thread may ask: who looks at the same time finds the same."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._watched: list[tuple[str, types.ModuleType, ModuleSpec | None]] = []
        self._unloaded: dict[str, _Unloaded] = {}
        self._files: list[tuple[str, _Look]] = []
        self._named: dict[str, None] = {}  # by import statements of functions that travel by value
        self._mark: tuple[int, str] = (0, "")
        self._installed: str | None = None
        self._data = b""
        self._is_large = False

    def sources(self) -> bytes:
        """Their sources as they travel; the very same object while nothing has changed. Cheap: it is asked for each call."""
        if self._has_changed():
            self._look()
        return self._data

    def _has_changed(self) -> bool:
        modules = sys.modules
        if self._mark != (len(modules), next(reversed(modules), "")):
            return True
        for name, module, spec in self._watched:
            if modules.get(name) is not module or getattr(module, "__spec__", None) is not spec:
                return True
        return bool(self._files) and any(_look_at(path) != look for path, look in self._files)

    def add_imports_of(self, function: Any) -> None:
        """Have the modules travel that a function, sent by value, imports when it is called."""
        names = [name for name in imports_of(function) if name not in self._named]
        if names:
            self._named.update(dict.fromkeys(names))
            self._mark = (0, "")

    def _look(self) -> None:
        # What differs when a module was loaded: how many there are, and the name of the last.
        mark, seen = (len(sys.modules), next(reversed(sys.modules), "")), dict[str, _Seen]()
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType):
                spec, known = getattr(module, "__spec__", None), self._seen.get(name)
                if known is None or known.module is not module or known.spec is not spec:
                    known = _see(name, module, spec, known)
                seen[name] = known
        if self._installed is None:
            self._installed = _installed()
        own = {name: one for name, one in seen.items() if one.source is not None}
        unloaded = self._find_unloaded([name for one in own.values() for name in one.imports])
        found = [one.source for one in own.values() if one.source is not None]
        found += [one.source for one in unloaded.values()]
        incomplete = {name.partition(".")[0] for name, one in seen.items() if one.is_other}
        data = to_bytes(ModuleSources(self._installed, tuple(incomplete), tuple(self._bounded(found))))
        self._seen, self._unloaded, self._mark = seen, unloaded, mark
        self._watched = [(name, one.module, one.spec) for name, one in own.items()]
        self._files = [(one.source.path, one.look) for one in unloaded.values() if one.source.path]
        if data != self._data:
            self._data = data

    def _find_unloaded(self, names: Iterable[str]) -> dict[str, _Unloaded]:
        """The user's modules that are named and not loaded, and those that they name."""
        found, tried = dict[str, _Unloaded](), set[str]()
        queue = deque([*names, *self._named])
        while queue and len(found) < MAX_UNLOADED:
            name = queue.popleft()
            if name in tried or name in sys.modules:
                continue
            tried.add(name)
            parent = name.rpartition(".")[0]
            above = (
                found[parent].source.folders if parent in found else getattr(sys.modules.get(parent), "__path__", None)
            )
            if parent and above is None:
                continue
            spec = _find_spec(name, list(above) if parent and above is not None else None)
            known, look = self._unloaded.get(name), _look_at((spec and spec.origin) or "")
            if known is None or known.look != look or look is None:
                source, _ = _source_of(name, spec, None)
                known = None if source is None else _Unloaded(source, look, _imports_in(source))
            if known is not None:
                found[name] = known
                queue.extend(known.imports)
        return found

    def _bounded(self, found: list[ModuleSource]) -> Iterator[ModuleSource]:
        """As many as may travel, the smallest first; the others are imported by name where the calls run."""
        total = 0
        for one in sorted(found, key=lambda one: (len(one.source or ""), one.name)):
            total += len(one.source or "")
            if total > MAX_MODULES:
                if not self._is_large:
                    say(f"your modules are larger than {show_size(MAX_MODULES)}: the largest are read where calls run")
                self._is_large = True
                return
            yield one


def _see(name: str, module: types.ModuleType, spec: ModuleSpec | None, former: _Seen | None) -> _Seen:
    source, is_other = _source_of(name, spec, module)
    if source is not None and former is not None and former.source is not None and not _compiles(source):
        source = former.source  # its reload failed: what was loaded before still runs here
    return _Seen(module, spec, source, _imports_in(source) if source is not None else (), is_other)


def _source_of(name: str, spec: ModuleSpec | None, module: types.ModuleType | None) -> tuple[ModuleSource | None, bool]:
    """A module of the user's as it travels; None if it is not the user's, or, which is told, no source file."""
    if spec is None or spec.name != name or name == "__main__" or name.partition(".")[0] == _OURS:
        return None, False
    folders = spec.submodule_search_locations
    if spec.origin is None or not spec.has_location:
        if folders is None or spec.origin is not None:
            return None, False
        theirs = [os.path.abspath(one) for one in getattr(module, "__path__", folders)]
        is_theirs = not all(is_installed(one, _library()) for one in theirs)
        return (ModuleSource(name, "", theirs, None) if is_theirs else None), False
    path = os.path.abspath(spec.origin)
    if is_installed(path, _library()):
        return None, False
    data = _read(spec.loader, spec.origin) if path.endswith(".py") else None
    if data is None:
        return None, True
    where = None if folders is None else [os.path.abspath(one) for one in folders]
    return ModuleSource(name, path, where, data.decode("latin-1")), False


def _read(loader: Any, path: str) -> bytes | None:
    """The source that a loader loaded: in a runner that is the submitter's, not the file's."""
    readers: tuple[Callable[[str], bytes] | None, ...] = (getattr(loader, "get_data", None), _read_file)
    for read in readers:
        if read is not None:
            with contextlib.suppress(OSError):
                return bytes(read(path))
    return None


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _look_at(path: str) -> _Look:
    """A file as it is now: another where it was written or replaced since."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _compiles(source: ModuleSource) -> bool:
    try:
        ast.parse((source.source or "").encode("latin-1"), source.path)
    except (SyntaxError, ValueError):
        return False
    return True


def _find_spec(name: str, folders: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):  # whatever finders of other people raise
            spec = finder.find_spec(name, folders)
            if spec is not None:
                return spec
    return None


@functools.cache
def _library() -> tuple[str, ...]:
    folder = os.path.dirname(os.path.abspath(os.__file__))
    return folder, os.path.realpath(folder)


def _installed() -> str:
    """The distributions on the search path with their versions, as the names of their folders say them."""
    names = set[str]()
    for folder in sys.path:
        with contextlib.suppress(OSError):  # of the directory, or of a current directory that was deleted
            if folder and is_installed(os.path.abspath(folder), ()):
                names.update(name for name in os.listdir(folder) if name.endswith(_DISTRIBUTIONS))
    return hashlib.sha256("\n".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


# --- import statements
def _imports_in(source: ModuleSource) -> tuple[str, ...]:
    """The modules that a source may import, also within its functions; some are none, which does no harm."""
    names = dict[str, None]()
    package = source.name if source.folders is not None else source.name.rpartition(".")[0]
    for dots, base, parts, plain in _IMPORT.findall(source.source or ""):
        if plain:
            for part in plain.split(","):
                _add_prefixes(names, part.split()[0] if part.split() else "")
            continue
        if dots:
            above = package.split(".")[: len(package.split(".")) - len(dots) + 1]
            base = ".".join([*above, base] if base else above)
        _add_prefixes(names, base)
        for part in parts.strip("() \n\t").split(","):
            if base and part.split():
                names[f"{base}.{part.split()[0]}"] = None
    return tuple(names)


def _add_prefixes(names: dict[str, None], name: str) -> None:
    parts = name.split(".")
    names.update((".".join(parts[:n]), None) for n in range(1, len(parts) + 1) if all(parts[:n]))


def imports_of(function: Any) -> list[str]:
    """The modules that a function which travels by value may import when it is called, and those that it calls."""
    names, seen, queue = dict[str, None](), set[int](), [function]
    while queue:
        one = queue.pop()
        if id(one) in seen or len(seen) > MAX_UNLOADED:
            continue
        seen.add(id(one))
        if isinstance(one, type):
            if one.__module__ == "__main__":
                queue += vars(one).values()
        elif isinstance(one, types.FunctionType):
            if getattr(sys.modules.get(one.__module__), one.__qualname__, None) is one and one.__module__ != "__main__":
                continue  # it travels by name, and its source with its module
            queue += [function_global for name in _names_in(one.__code__, names)
                      if isinstance(function_global := one.__globals__.get(name), (types.FunctionType, type))]  # fmt: skip
            for cell in one.__closure__ or ():
                with contextlib.suppress(ValueError):  # not filled yet
                    queue.append(cell.cell_contents)
        else:
            queue += [part for attribute in ("func", "__func__", "__wrapped__")
                      if isinstance(part := getattr(one, attribute, None), (types.FunctionType, types.MethodType))]  # fmt: skip
    return list(names)


def _names_in(code: types.CodeType, imports: dict[str, None]) -> set[str]:
    """Every name that a code object and those inside it look up; what they import is added to `imports`."""
    found = set(code.co_names)
    if _IMPORT_NAME in code.co_code[::2]:
        import dis  # most functions import nothing

        base = ""
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":
                base = str(step.argval)
                _add_prefixes(imports, base)
            elif step.opname == "IMPORT_FROM" and base:
                imports[f"{base}.{step.argval}"] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant, imports)
    return found


user_modules = UserModules()
