"""What a person asks for: one task or array of them (`Spec`), and a whole submission [protocol 3]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from shoal.model.states import Rerun
from shoal.model.sweep import Sweep

OWN = "own"  # value of `cwd` that forces a directory of the task's own


@dataclass(frozen=True)
class Needs:
    """What a task takes of a pilot while it runs."""

    cores: int = 1
    memory: int = 0  # bytes; 0: not stated, not limited
    disk: int = 0
    gpus: int = 0
    licences: tuple[tuple[str, int], ...] = ()  # by name; counted over the whole server


@dataclass(frozen=True)
class Spec:
    """One task, or as many as its sweep has elements. Texts may hold `{placeholders}` of the sweep."""

    name: str = ""
    command: tuple[str, ...] = ()
    shell: Optional[str] = None
    cwd: Optional[str] = None  # None: the submitter's directory; "own": a directory of its own
    env: dict[str, str] = field(default_factory=dict)
    stdin: Optional[str] = None  # a file
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    needs: Needs = Needs()
    time: Optional[float] = None
    retries: int = 0
    rerun: Rerun = Rerun.SAFE
    priority: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    sweep: Optional[Sweep] = None
    throttle: Optional[int] = None
    function: str = ""  # a payload text: the callable, of which each element is a call. Empty: this is a command
    calls: tuple[str, ...] = ()  # a payload text for each element: (args, kwargs)
    initializer: str = ""
    python: str = ""  # the interpreter of functions
    require: str = ""  # an expression over tags: what a pilot must be [GWP G5]
    rank: str = ""  # an expression over tags: which pilot is best
    due_in: Optional[float] = None  # deadline: seconds from the submission on, or
    due_at: Optional[float] = None  # a time
    # a parameter: elements go by its value, smallest first; with - before it, largest first [DIANE U10]
    order: str = ""
    setup: tuple[str, ...] = ()  # lines of shell before the command
    container: str = ""  # image
    checkpoint: tuple[str, ...] = ()  # files by which it can go on later [GWP G10]
    checkpoint_every: float = 60.0  # seconds between those that travel while it runs; 0: only when it ends

    @property
    def count(self) -> int:
        """How many tasks this is."""
        return len(self.calls) if self.function else self.sweep.count if self.sweep is not None else 1


@dataclass(frozen=True)
class Submission:
    """One run as the client sends it, checked."""

    specs: tuple[Spec, ...]
    tables: tuple[Mapping[str, Any], ...] = ()  # the specs as they were written: the form the database keeps
    name: str = ""
    cwd: str = ""  # the submitter's directory
    max_fail: Optional[int] = None
    seed: Optional[int] = None
    key: str = ""  # idempotency
    labels: dict[str, str] = field(default_factory=dict)
    open: bool = False  # more tasks may be added until it is closed

    @property
    def count(self) -> int:
        """How many tasks the run has."""
        return sum(spec.count for spec in self.specs)
