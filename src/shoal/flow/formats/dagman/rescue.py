"""Rescue files: which nodes of a workflow have succeeded, so that the next attempt at it goes on from there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shoal.flow.formats.dagman.source import logical_lines, wrong
from shoal.model.errors import echo

MAX_RESCUE = 100  # as DAGMAN_MAX_RESCUE_NUM: then the last file is written again
_NAME = re.compile(r".*\.rescue([0-9]{3})")


def rescue_name(dag: str, number: int) -> str:
    """`diamond.dag.rescue001`."""
    return f"{dag}.rescue{number:03}"


def newest(names: Iterable[str]) -> int:
    """The highest number of the rescue files among these names; 0 if there is none."""
    return max((int(found[1]) for name in names if (found := _NAME.fullmatch(name))), default=0)


def read_rescue(text: str, name: str) -> frozenset[str]:
    """The nodes that a rescue file marks as done. It is no whole `.dag` file: it says nothing else but numbers of retries,
    which begin anew."""
    done: set[str] = set()
    for line in logical_lines(text, name):
        words = line.text.split()
        command = words[0].upper()
        if command == "DONE" and len(words) == 2:
            done.add(words[1])
        elif command != "RETRY":
            hint = "a partial one has lines DONE NODE; a whole one is run as it stands: shoal dag FILE.rescueNNN"
            raise wrong(line.where, f"{echo(words[0])!r} is no line of a rescue file", hint)
    return frozenset(done)


def write_rescue(dag: str, run: str, done: Sequence[str], failed: Sequence[str], total: int) -> str:
    """The text of a rescue file."""
    lines = [
        f"# Rescue file of {dag}, written by Shoal after {run}",
        f"# Nodes: {total}; done: {len(done)}; failed: {len(failed)}",
        *(f"#   failed: {name}" for name in failed[:100]),
        *(f"DONE {name}" for name in done),
    ]
    return "\n".join(lines) + "\n"
