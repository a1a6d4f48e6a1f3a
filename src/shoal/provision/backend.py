"""What every backend does: it turns an order into a script and a command, and what a batch system printed into states.

A backend is pure: it runs nothing and reads no clock; `shell` runs its commands here or over ssh. Adding one is one module
with a class of this protocol, one line in `registry.py` (or an entry point `shoal.backends`), and recorded outputs in
`tests/contract/provision/<name>/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from shoal.model.errors import ShoalError
from shoal.model.lazy_dataclass import dataclass

QUEUED, RUNNING, ENDED = "queued", "running", "ended"  # states of an allocation


class BackendError(ShoalError):
    """A command of a batch system failed, or printed what cannot be understood."""

    code = "backend_error"


class Result(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def tail(self) -> str:
        """The last lines that it wrote, for an error message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return " | ".join(line.strip() for line in lines[-3:])[-400:] or "it printed nothing"


class Command(NamedTuple):
    """A command to run, with its standard input."""

    argv: tuple[str, ...]
    stdin: str = ""


@dataclass(frozen=True)
class Shape:
    """What one allocation asks for."""

    cores: int  # on each host
    seconds: int  # of wall time
    hosts: int = 1
    memory: int = 0  # bytes on each host; 0: what the site gives
    gpus: int = 0  # on each host


@dataclass(frozen=True)
class Order:
    """One allocation to be submitted."""

    name: str  # of the allocation: PREFIX-NUMBER, by which it is found again
    shape: Shape
    directory: str  # absolute path on the site, 0700: scripts, tickets and logs
    start: tuple[str, ...]  # the command that becomes a pilot on one host
    options: Mapping[str, str]  # of the site: account, partition, queue, qos, ...; checked by `batch_values.check`

    @property
    def log(self) -> str:
        """The file that gets what the allocation prints."""
        return f"{self.directory}/{self.name}.log"


class Status(NamedTuple):
    """What a batch system says of one allocation."""

    id: str
    name: str
    state: str
    reason: str = ""  # in the batch system's own word: Priority, QOSMaxJobsPerUserLimit, TIMEOUT, exit status 1
    hosts: str = ""


class Backend(Protocol):
    """One way to get machines."""

    name: str
    options: frozenset[str]  # that a site of this kind may have

    def script(self, order: Order) -> str:
        """The batch script; for several hosts it starts one pilot on each."""

    def submit(self, order: Order, script: str) -> Command:
        """The command that submits the script, which is at this path on the site."""

    def parse_submit(self, result: Result) -> str:
        """The id of the allocation; raises BackendError with the system's own words, never an id that was not printed."""

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """One command for all allocations: of those whose names begin with the prefix, and of these ids."""

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """What it said. An id that it no longer knows is left out: it has ended. Raises BackendError if it failed."""

    def cancel(self, ids: Sequence[str]) -> Command:
        """The command that ends allocations; those that have ended already do no harm."""
