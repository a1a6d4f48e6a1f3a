"""The sources of a submitter's own modules, as they travel with the calls of a session [ADR 0024].

The bytes are a function of the content alone: the same modules make the same blob, in every start of a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple, Optional

_INSTALLED = ("site-packages", "dist-packages")


class ModuleSource(NamedTuple):
    """One module. Without a source it is a namespace package."""

    name: str
    path: str  # of its file where it was loaded
    folders: Optional[list[str]]  # `__path__` of a package
    source: Optional[str]  # its bytes, one character for each


class ModuleSources(NamedTuple):
    """All modules of a session."""

    installed: str = ""  # digest of the names and versions of the submitter's installed distributions
    incomplete: tuple[str, ...] = ()  # top-level packages of which some module is no source file
    modules: tuple[ModuleSource, ...] = ()


def to_bytes(sources: ModuleSources) -> bytes:
    """The form in which they travel."""
    ordered = sorted(sources.modules)
    return json.dumps([sources.installed, sorted(sources.incomplete), ordered]).encode("ascii")


def of_bytes(data: bytes) -> ModuleSources:
    """What `to_bytes` was given."""
    installed, incomplete, modules = json.loads(data)
    return ModuleSources(installed, tuple(incomplete), tuple(ModuleSource(*one) for one in modules))


def is_installed(path: str, library: Iterable[str]) -> bool:
    """True for a file of an installed distribution, or below one of the folders of the standard library."""
    return any(part in _INSTALLED for part in path.split("/")) or any(path.startswith(one + "/") for one in library)
