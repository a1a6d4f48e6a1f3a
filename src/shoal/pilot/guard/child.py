"""One supervised task process: its limits, what it used, how it ended."""

from __future__ import annotations

import os
import signal
from dataclasses import field
from typing import Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.commands.streams import Bound
from shoal.pilot.guard.messages import Ended, Start
from shoal.pilot.guard.spawn import Launch
from shoal.pilot.guard.start_progress import StartStage

NEVER = float("inf")


@dataclass
class Child:
    """A task process from its start until its end is reported."""

    launch: Launch
    pid: int
    began: float
    out: Bound
    err: Bound
    over_at: float  # its time limit
    name_at: float = NEVER  # its streams get their names then
    kill_at: float = NEVER
    why: str = ""  # as in messages.Ended
    peak: int = 0
    measure_at: float = 0.0  # the next exact measurement of its memory is allowed then
    files_at: float = 0.0  # its files in memory are measured again then
    files: dict[tuple[int, int], int] = field(default_factory=dict)  # by device and inode, in bytes
    group: str = ""  # the cgroup that limits its memory
    ended_at: float = 0.0
    give_up_at: float = 0.0
    status: int = 0
    cpu: float = 0.0
    no_space: int = 0  # number of the error that whoever wrote to its streams got
    is_oom: bool = False  # the kernel killed it for want of memory

    def __post_init__(self) -> None:
        # Copies, since both limits are lifted once the process was killed.
        self.memory, self.exclusive = self.start.memory, self.start.exclusive

    @property
    def start(self) -> Start:
        """The request that it was started by."""
        return self.launch.start

    @property
    def attempt(self) -> str:
        """The attempt that it runs."""
        return self.start.attempt

    @property
    def streams(self) -> tuple[tuple[str, Bound], tuple[str, Bound]]:
        """Its two streams, by name."""
        return ("stdout", self.out), ("stderr", self.err)

    @property
    def is_file_bound(self) -> bool:
        """Its streams must be cut before they reach the limit on its files."""
        return self.start.file_size is not None

    @property
    def start_stage(self) -> Optional[StartStage]:
        """Of a container: where to see which runtime has it."""
        return StartStage(self.start.stage_file, name=self.start.container) if self.start.container else None

    @property
    def is_killed(self) -> bool:
        """SIGKILL ended it, or the last command of its shell, and it was not ours."""
        status = self.status
        if os.WIFSIGNALED(status):
            return not self.why and os.WTERMSIG(status) == signal.SIGKILL
        return not self.why and os.WEXITSTATUS(status) == 128 + signal.SIGKILL

    @property
    def is_plain(self) -> bool:
        """It ended with exit code 0, and there is nothing else to say of it."""
        left_out = self.out.left_out or self.err.left_out
        return not (self.status or self.why or self.is_oom or self.no_space or left_out)

    def deadline(self, contact: Optional[tuple[float, float]]) -> float:
        """When a limit of it is due."""
        at = min(self.over_at, self.kill_at, self.name_at)
        return min(at, sum(contact)) if self.exclusive and contact else at

    def may_linger(self, now: float) -> bool:
        """True if what the main process left may use the rest of the grace, since it was asked to end."""
        return self.why in ("time", "stopped") and now < self.kill_at < NEVER

    def ended(self, wrote: list[str]) -> Ended:
        """The report of its end."""
        status = self.status
        return Ended(
            self.attempt,
            os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            self.why,
            self.ended_at - self.began,
            self.cpu,
            self.peak,
            wrote,
            {name: bound.left_out for name, bound in self.streams if bound.left_out},
            self.is_oom,
            self.no_space,
            os.path.dirname(self.out.path) if self.no_space else "",
            {name: bound.size for name, bound in self.streams if bound.size},
        )
