"""Trust in results: which are unpickled without restriction, only those of one's own pilots or a group's [SECURITY.md]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass

Pair = tuple[str, str]  # module and name
OWN, GROUP = "own", "group"
HINT = 'write "own", "group", or the classes that may be loaded: "package.module:Class, package.module:Other"'


@dataclass(frozen=True)
class Trust:
    """What an owner allows in results from pilots that are not their own."""

    is_all: bool = False  # any pickle: it runs code in the program of whoever loads it
    names: frozenset[Pair] = frozenset()  # besides plain values


def parse_trust(setting: str | Iterable[type | Pair | str] | None) -> Trust:
    """Parse `Executor(trust=...)` or the setting `trust`: "own", "group", classes, or names of classes."""
    if setting is None or setting == OWN:
        return Trust()
    if setting == GROUP:
        return Trust(is_all=True)
    items = [part.strip() for part in setting.split(",")] if isinstance(setting, str) else list(setting)
    return Trust(names=frozenset(_pair_of(item) for item in items))


def _pair_of(item: Any) -> Pair:
    if isinstance(item, type):
        return item.__module__, item.__qualname__
    if isinstance(item, str):
        module, colon, name = item.partition(":")
        if colon and module and name:
            return module, name
    elif isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return item[0], item[1]
    raise BadInput(f"{echo(item)!r} says not what may be loaded", code="bad_trust", field="trust", hint=HINT)
