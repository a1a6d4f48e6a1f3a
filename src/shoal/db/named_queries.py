"""Named SQL: each statement of `queries/*.sql` by its name, read once. No SQL is put together anywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_VALUES = re.compile(r"VALUES (\([?, ]+\))")
_NAME = re.compile(r"^-- name: *(\S+) *$", re.M)


def parse(text: str) -> Iterator[tuple[str, str]]:
    """The names and statements of one file; the text before the first name is about the file."""
    parts = _NAME.split(text)[1:]
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        yield name, "\n".join(line for line in body.strip().splitlines() if not line.startswith("--")).strip()


def _load() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).with_name("queries").glob("*.sql")):
        for name, sql in parse(path.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"{path.name}: {name} is also in another file")
            found[name] = sql
    return found


@cache
def for_many(name: str, rows: int) -> str:
    """A named INSERT for so many rows at once: one step of the database, in which Python may do something else."""
    found = _VALUES.search(SQL[name])
    assert found is not None
    return SQL[name].replace(found[0], "VALUES " + ", ".join([found[1]] * rows), 1)


SQL: Mapping[str, str] = MappingProxyType(_load())
