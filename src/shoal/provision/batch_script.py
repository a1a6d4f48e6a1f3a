"""What the scripts and the parsers of all backends have in common."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from shoal.provision.backend import BackendError, Order, Result
from shoal.provision.batch_values import NAME, PATH, check, check_count

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
NOT_FOUND = 127  # what a shell says of a program that is not there


def check_order(order: Order, *, is_timed: bool = True) -> None:
    """Refuse an order with names, paths or numbers that cannot stand in a script."""
    check("name", order.name, NAME)
    check("directory", order.directory, PATH)
    shape = order.shape
    for field, value, least in (
        ("cores", shape.cores, 1),
        ("hosts", shape.hosts, 1),
        ("seconds", shape.seconds, 1 if is_timed else 0),
        ("memory", shape.memory, 0),
        ("gpus", shape.gpus, 0),
    ):
        check_count(field, value, least)


def script(order: Order, directives: Iterable[str], launch: Sequence[str]) -> str:
    """A whole script: directives, when the allocation ends, and the lines that start the pilots."""
    return "\n".join(["#!/bin/sh", *directives, *preamble(order.shape.seconds), *launch, ""])


def preamble(seconds: int) -> list[str]:
    """Private files, and the end of the allocation for the pilot; 0 seconds: it has none."""
    ends = [f"SHOAL_ALLOCATION_ENDS=$(( $(date +%s) + {seconds} ))", "export SHOAL_ALLOCATION_ENDS"]
    return ["umask 077", *(ends if seconds else [])]


def start_here(order: Order) -> list[str]:
    """The script becomes the pilot of this host."""
    return [f"exec {shlex.join(order.start)}"]


def start_on_hosts(order: Order, launcher: Sequence[str]) -> list[str]:
    """A launcher that neither quotes arguments nor hands on variables starts a file on each host.

    `$file` in the lines of the launcher is what it starts with `/bin/sh`, and `$SHOAL_ALLOCATION_ENDS` its argument.
    """
    text = "\n".join(["umask 077", "SHOAL_ALLOCATION_ENDS=$1", "export SHOAL_ALLOCATION_ENDS", *start_here(order), ""])
    return [
        f"file={shlex.quote(f'{order.directory}/{order.name}.host')}",
        f'printf %s {shlex.quote(text)} > "$file" || exit 1',
        *launcher,
        "status=$?",
        'rm -f "$file"',
        'exit "$status"',
    ]


def clock(seconds: int) -> str:
    """Wall time as HOURS:MINUTES:SECONDS."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def mebibytes(size: int) -> int:
    """Whole MiB that hold these bytes."""
    return -(-size // 2**20)


def expect_success(program: str, result: Result, also: Sequence[int] = ()) -> str:
    """What a command printed; raises BackendError, in the words of the batch system, if it failed."""
    if result.status == NOT_FOUND:
        hint = "install the batch system's client there, or put it on PATH"
        raise BackendError(f"{program} was not found: {result.tail}", hint=hint)
    if result.status != 0 and result.status not in also:
        raise BackendError(f"{program} failed with exit status {result.status}: {result.tail}")
    return result.out


def not_understood(program: str, result: Result) -> BackendError:
    """The error for output that is not of the documented form."""
    return BackendError(f"what {program} printed was not understood: {result.tail}")


def find_id(program: str, ids: Sequence[str], result: Result) -> str:
    """The one id that a submission printed; none or several are an error, never a guess."""
    if len(set(ids)) != 1:
        raise not_understood(program, result)
    return ids[0]
