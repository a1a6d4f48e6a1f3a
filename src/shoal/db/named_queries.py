"""Named SQL: each statement of `queries/*.sql` by its name, read once. No SQL is put together anywhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

_VALUES = re.compile(r"VALUES (\([?, ]+\))")
_NAME = re.compile(r"^-- name: *(\S+) *$", re.M)


@dataclass(frozen=True)
class Query:
    """One statement and the sentence that says what it is for."""

    name: str
    comment: str
    sql: str
    file: str


def parse(text: str, file: str) -> list[Query]:
    """The named statements of one file; what stands before the first name is about the file."""
    parts = _NAME.split(text)[1:]
    found = []
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = body.strip().splitlines()
        comment = [line[2:].strip() for line in lines if line.startswith("--")]
        sql = "\n".join(line for line in lines if not line.startswith("--"))
        found.append(Query(name, " ".join(comment), sql.strip(), file))
    return found


def _load() -> dict[str, Query]:
    found: dict[str, Query] = {}
    folder = resources.files("shoal.db").joinpath("queries")
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            for query in parse(entry.read_text(encoding="utf-8"), entry.name):
                if query.name in found:
                    raise ValueError(f"{entry.name}: {query.name} is also in {found[query.name].file}")
                found[query.name] = query
    return found


@cache
def for_many(name: str, rows: int) -> str:
    """A named INSERT for so many rows at once: one step of the database, in which Python may do something else."""
    found = _VALUES.search(SQL[name])
    assert found is not None
    return SQL[name].replace(found[0], "VALUES " + ", ".join([found[1]] * rows), 1)


QUERIES: Mapping[str, Query] = MappingProxyType(_load())
SQL: Mapping[str, str] = MappingProxyType({name: query.sql for name, query in QUERIES.items()})
