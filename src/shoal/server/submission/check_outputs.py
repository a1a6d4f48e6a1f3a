"""Outputs whose names are not equal, and yet one file where names are compared in another way than by their bytes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from shoal.model.errors import echo
from shoal.model.task.spec import Spec

MAX_WARNINGS = 3


def output_warnings(specs: Iterable[Spec]) -> list[str]:
    """Warnings about outputs of one task that differ only in upper and lower case, or in how accents are composed: on some
    disks they are one file [input E48]."""
    found: list[str] = []
    for spec in specs:
        names: dict[str, str] = {}
        for name in spec.outputs:
            first = names.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if first != name and len(found) < MAX_WARNINGS:
                found.append(f"outputs {echo(first)} and {echo(name)} are one file where case or accents do not count")
    return found
