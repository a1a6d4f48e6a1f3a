"""Imports inside a runner: the submitter's own modules are those of the session, whatever the files here say [ADR 0024].

What the submitter had loaded is executed from the sources that came along. What only the functions import is read from
the files here, never from a `.pyc`, which counts as fresh while the time and size of a source stay the same; and where
such a file changes later, the runner is no longer used. Installed packages and the standard library are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import Any, Optional

from shoal.wire.module_sources import ModuleSource, is_installed, of_bytes

_Look = Optional[tuple[int, int, int, int]]


class UserModules:
    """The first finder of `sys.meta_path`. `cache` is a folder for compiled code, named by what it was compiled from."""

    def __init__(self, cache: str) -> None:
        self._cache = cache
        self._shipped: dict[str, ModuleSource] = {}
        self._looks: dict[str, _Look] = {}  # files that were read here, as they were then
        self._texts: dict[str, bytes] = {}  # what was executed, by path: for tracebacks
        folder = os.path.dirname(os.path.abspath(os.__file__))
        self._library = (folder, os.path.realpath(folder))

    def install(self, data: bytes) -> None:
        """Import these modules from now on; `data` as in `wire.module_sources`, or empty."""
        found = of_bytes(data) if data else None
        modules = {one.name: one for one in found.modules} if found is not None else {}
        for top in found.incomplete if found is not None else ():
            # Its other parts can only be imported from its folder. Where that does not exist, this host may have its own.
            if top in modules and not any(os.path.exists(one) for one in (modules[top].folders or [modules[top].path])):
                modules = {name: one for name, one in modules.items() if name.partition(".")[0] != top}
        self._shipped = modules
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def is_stale(self) -> bool:
        """True if a file that was read here has changed. Also makes files be found that are new."""
        for finder in list(sys.path_importer_cache.values()):
            forget = getattr(finder, "invalidate_caches", None)
            if forget is not None:
                forget()
        return any(look_at(path) != look for path, look in self._looks.items())

    # --- the import system
    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """How a module is to be loaded; None: there is none."""
        one = self._shipped.get(name)
        if one is not None:
            return self._spec_of(one, path)
        for finder in sys.meta_path:
            find: Any = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if type(spec.loader) is SourceFileLoader and not is_installed(spec.loader.path, self._library):
                    spec.loader = FileSource(name, spec.loader.path, self)
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Nothing is cached here."""

    def _spec_of(self, one: ModuleSource, path: Optional[Sequence[str]]) -> Optional[ModuleSpec]:
        if one.source is not None:
            loader = ShippedSource(one.name, one.path, self, one.source.encode("latin-1"))
            return spec_from_file_location(
                one.name, one.path, loader=loader, submodule_search_locations=_copy(one.folders)
            )
        spec = ModuleSpec(one.name, None, is_package=True)
        own = PathFinder.find_spec(one.name, path)
        here = own.submodule_search_locations if own is not None and own.loader is None else None
        spec.submodule_search_locations = list(dict.fromkeys([*(one.folders or ()), *(here or ())]))
        return spec

    # --- for the loaders
    def code_of(self, data: bytes, path: str) -> CodeType:
        """Compiled code of a source; compiled once for all runners of the pilot."""
        self._texts[path] = data
        if "linecache" in sys.modules:
            self.show_sources()
        what = hashlib.sha256(data)
        what.update(
            f"\0{path}\0{sys.implementation.cache_tag}\0{sys.flags.optimize}".encode("utf-8", "surrogateescape")
        )
        file = os.path.join(self._cache, what.hexdigest())
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
            with open(file, "rb") as kept:
                code = marshal.load(kept)
            if isinstance(code, CodeType):
                return code
        made: CodeType = compile(data, path, "exec", dont_inherit=True)
        with contextlib.suppress(OSError, ValueError):
            with open(f"{file}.{os.getpid()}", "xb") as new:
                marshal.dump(made, new)
            os.replace(new.name, file)
        return made

    def note(self, path: str, look: _Look) -> None:
        """A file is about to be read."""
        self._looks[path] = look

    def show_sources(self) -> None:
        """Have tracebacks show what was executed, not what the files contain by now."""
        import linecache  # takes time, and most runners never need it

        for path, data in self._texts.items():
            with contextlib.suppress(SyntaxError, UnicodeDecodeError):
                lines = decode_source(data).splitlines(keepends=True)
                linecache.cache[path] = (len(data), None, lines, path)
        self._texts.clear()


class FileSource(SourceFileLoader):
    """Executes a source file as it is now."""

    def __init__(self, name: str, path: str, modules: UserModules) -> None:
        super().__init__(name, path)
        self._modules = modules

    def get_code(self, fullname: str) -> CodeType:
        """Without a `.pyc`."""
        path = self.get_filename(fullname)
        self._modules.note(path, look_at(path))
        return self._modules.code_of(self.get_data(path), path)


class ShippedSource(SourceFileLoader):
    """Executes a source that came along."""

    def __init__(self, name: str, path: str, modules: UserModules, source: bytes) -> None:
        super().__init__(name, path)
        self._modules, self._source = modules, source

    def get_data(self, path: str) -> bytes:
        """The source, or a file beside it."""
        return self._source if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType:
        """Of the source that came along."""
        return self._modules.code_of(self._source, self.path)


def look_at(path: str) -> _Look:
    """A file as it is now: another where it was written or replaced since."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _copy(folders: Optional[list[str]]) -> Optional[list[str]]:
    return None if folders is None else list(folders)
