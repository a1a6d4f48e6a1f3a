"""A piece of short commands on the pilot's side: what the guard is given, and what it reports as the agent takes it
[ADR 0033]."""

from __future__ import annotations

from typing import Optional

from shoal.model.ids import parse_attempt
from shoal.model.task.sweep import holes
from shoal.pilot.guard.messages import Ran, Start, StartPiece
from shoal.wire.chunk import own_command, own_env, shift, single
from shoal.wire.messages import Batch, Lease

_SEEDS = ("SHOAL_SEED", "SHOAL_INDEX")


class CommandPiece:
    """Neighbouring commands of a lease that the guard runs one after another."""

    def __init__(self, lease: Lease, folder: str) -> None:
        self.lease, self.name, self.count = lease, lease.attempt, lease.count
        self.folder = folder  # of their logs, also if the server names another one meanwhile
        self.first = parse_attempt(lease.attempt)
        self.seen = 0  # that have ended
        self.stops: dict[str, str] = {}  # attempts that must not go on, or not begin, and why

    def named(self, at: int) -> str:
        """The attempt at an index."""
        return str(shift(self.first, at))

    def has(self, attempt: str) -> bool:
        """True if this is one of those that have not ended."""
        which = parse_attempt(attempt)
        at = which.element - self.first.element
        return self.seen <= at < self.count and which == shift(self.first, at)

    @property
    def left(self) -> list[str]:
        """Those that have not ended."""
        return [self.named(at) for at in range(self.seen, self.count)]

    def start(self, first: Start) -> StartPiece:
        """The request to the guard, given that of its first command alone."""
        lease = self.lease
        differing = {name for name, text in lease.env.items() if holes(text)}.union(_SEEDS) if lease.params else _SEEDS
        run, _, number, _, _ = self.first
        emits = first.env.get("SHOAL_EMIT", "").rpartition(".")[0]
        envs = []
        for at in range(self.count):
            env = {name: value for name, value in own_env(lease, at).items() if name in differing}
            task = f"r{run}.{self.first.element + at}"
            env["SHOAL_TASK"], env["SHOAL_ATTEMPT"] = task, f"{task}#{number}"
            if emits:
                env["SHOAL_EMIT"] = f"{emits}.{self.first.element + at}"
            envs.append(env)
        same = not lease.params or not any(map(holes, lease.command))
        argvs = [] if same else [own_command(lease, at) for at in range(self.count)]
        return StartPiece(self.name, list(vars(first).values()), envs, argvs, self.folder)

    def take(self, ran: Ran) -> Optional[Batch]:
        """The next ones succeeded."""
        count, at = len(ran.started), self.seen
        self.seen += count
        return Batch(self.named(at), count, ran.started, ran.duration, ran.cpu, ran.max_rss) if count else None

    def take_one(self) -> Lease:
        """The next one ended, and is reported by itself: its lease."""
        self.seen += 1
        return single(self.lease, self.seen - 1)
