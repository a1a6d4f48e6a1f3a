"""What came out of a planning world, and the recorder that writes it down while the world goes on."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import field

from shoal.model.ids import parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.report.history import Attempt, Ending, PilotLife, RunRecord
from shoal.sim.clock import Clock
from shoal.wire.messages import Checkpoint, Lease


@dataclass
class Outcome:
    """One simulated workload. Times count from the start of the world."""

    seed: int
    makespan: float  # infinite: it did not end
    record: RunRecord
    tasks: int
    succeeded: int
    failed: int
    asked: int  # pilots that were asked for,
    enrolled: int  # and those that came
    messages: Counter[str] = field(default_factory=Counter)  # that the server received, by kind
    steps: int = 0  # events of the simulation
    trace: str = ""  # the same for the same seed
    stuck: str = ""  # why it did not end


class Recorder:
    """Is told of payloads by the hosts; writes attempts, pilots and ends of tasks down."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._start = clock, clock.now
        self._open: dict[str, float] = {}  # attempts that run -> since when
        self._firsts: dict[int, int] = {}  # run -> how many tasks the runs before it have
        self._tasks = 0
        self._pilots: dict[str, PilotLife] = {}
        self._hash = hashlib.sha256()
        self.record = RunRecord(0.0, 0.0)
        self.frozen: set[str] = set()
        self.last_change = clock.now

    @property
    def running(self) -> int:
        """Payloads that run now."""
        return len(self._open)

    @property
    def running_since(self) -> Mapping[str, float]:
        """Attempts whose payloads run now, and since when by the clock."""
        return self._open

    def locate(self, task: int) -> tuple[int, int]:
        """The run and the index in it of a task of the record."""
        run = max((run for run, first in self._firsts.items() if first < task), key=lambda one: self._firsts[one])
        return run, task - self._firsts[run] - 1

    @property
    def trace(self) -> str:
        """The hash of everything that happened."""
        return self._hash.hexdigest()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._hash.update(f"{self._clock.now:.6f} {text}\n".encode())

    def add_run(self, run: int, slots: int, tasks: int) -> None:
        """A run was accepted."""
        self._firsts[run] = self._tasks
        self._tasks += tasks
        self.record.demand += slots

    def pilot_came(self, name: str, slots: int) -> bool:
        """A pilot registered; False: again, after the server had missed it."""
        is_new = name not in self._pilots
        if is_new:
            self._pilots[name] = PilotLife(name, name, slots, self._now(), math.inf)
        self.note(f"{name} joined")
        return is_new

    def pilot_ended(self, name: str) -> None:
        """It ended; one that never registered is not known."""
        if name in self._pilots:
            self._pilots[name] = self._pilots[name]._replace(ended=self._now())
        self.note(f"{name} ended")

    def finish(self) -> RunRecord:
        """The record of everything until now."""
        record = self.record
        record.end = self._now()
        record.pilots = list(self._pilots.values())
        return record

    def _now(self) -> float:
        return self._clock.now - self._start

    # --- what hosts tell
    def payload_started(self, lease: Lease, host: str) -> None:
        """A payload began."""
        self._open[lease.attempt] = self.last_change = self._clock.now
        self.note(f"{host} begins {lease.attempt}")

    def payload_ended(self, lease: Lease, host: str, succeeded: bool) -> None:
        """It ended."""
        began = self._open.pop(lease.attempt, None)
        if began is None:
            return
        self.last_change = self._clock.now
        attempt = parse_attempt(lease.attempt)
        task, slots = self._firsts[attempt.run] + attempt.element, lease.room.cores
        outcome = "succeeded" if succeeded else "lost"
        self.record.attempts.append(
            Attempt(task, attempt.number, host, began - self._start, self._now(), slots, outcome)
        )
        if succeeded:
            self.record.endings.append(Ending(self._now(), 1, slots))
        self.note(f"{host} ends {lease.attempt} {outcome}")

    def payload_failed(self) -> None:
        """The payload that ended last failed by itself."""
        self.record.attempts[-1] = self.record.attempts[-1]._replace(outcome="failed")

    def report_settled(self, attempt: str, accepted: bool) -> None:
        """The record is of what ran."""

    def step_of(self, lease: Lease) -> int:
        """No task of a planning world writes checkpoints."""
        return 0

    def checkpoint_written(self, lease: Lease, step: int) -> dict[str, str]:
        """No task of a planning world writes checkpoints."""
        return {}

    def checkpoint_acknowledged(self, checkpoint: Checkpoint) -> None:
        """No task of a planning world writes checkpoints."""
