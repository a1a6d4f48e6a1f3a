"""One task in the care of the guard: what it may, what it used, how it ended."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any, Optional

from shoal.pilot.commands.streams import Bound
from shoal.pilot.guard.start_stage import StartStage

NEVER = float("inf")


@dataclass
class Child:
    """From its start until its end is told."""

    attempt: str
    pid: int
    mark: str
    began: float
    out: Bound
    err: Bound
    memory: int
    exclusive: bool
    grace: float
    over_at: float
    is_file_bound: bool  # its streams must not grow to the bound on its files
    name_at: float = NEVER  # its streams get their names then
    kill_at: float = NEVER
    why: str = ""
    peak: int = 0
    look_again: float = 0.0
    files_at: float = 0.0  # its files in memory are looked at again then
    files: dict[tuple[int, int], int] = field(default_factory=dict)  # by device and inode, in bytes
    group: str = ""  # the cgroup that limits its memory
    ended_at: float = 0.0
    give_up_at: float = 0.0
    status: int = 0
    cpu: float = 0.0
    no_space: int = 0  # the number of the error that who wrote to its streams got, perhaps it
    is_oom: bool = False  # the kernel ended it for want of memory
    order: Optional[dict[str, Any]] = None  # of a container: how it was started

    @property
    def container(self) -> str:
        """The name of its container, if it has one."""
        return str(self.order["container"]) if self.order is not None else ""

    @property
    def start_stage(self) -> Optional[StartStage]:
        """Of a container: where to see which runtime has it."""
        return StartStage(self.order["gate"], name=self.container) if self.order is not None else None

    @property
    def is_killed(self) -> bool:
        """Did SIGKILL end it, or its last command as a shell says it, and was it not ours?"""
        status = self.status
        if os.WIFSIGNALED(status):
            return not self.why and os.WTERMSIG(status) == signal.SIGKILL
        return not self.why and os.WEXITSTATUS(status) == 128 + signal.SIGKILL

    def deadline(self, contact: Optional[tuple[float, float]]) -> float:
        """When something is due for it."""
        at = min(self.over_at, self.kill_at, self.name_at)
        return min(at, sum(contact)) if self.exclusive and contact else at

    def may_linger(self, now: float) -> bool:
        """Was it asked to end, so that what the main process left may use the rest of the grace?"""
        return self.why in ("time", "stopped") and now < self.kill_at < NEVER

    def news(self, wrote: list[str]) -> dict[str, Any]:
        """How it ended."""
        status = self.status
        told = {
            "was": "ended",
            "attempt": self.attempt,
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "why": self.why,
            "wrote": wrote,
            "cut": [name for name, bound in (("stdout", self.out), ("stderr", self.err)) if bound.is_cut],
            "duration": self.ended_at - self.began,
            "cpu": self.cpu,
            "max_rss": self.peak,
        }
        if self.no_space:
            told.update(no_space=self.no_space, folder=os.path.dirname(self.out.path))
        return {**told, "oom": True} if self.is_oom else told
