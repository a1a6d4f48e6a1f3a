"""Direct submission: every job of a workflow goes through the grid's broker by itself, without pilots [CMS V].

A job is submitted when the ends of those before it are known. It waits for the broker and for a host, runs, and its end is
known after the broker's own delay. A model, with the queue of planning worlds.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from shoal.sim.clock import Clock
from shoal.sim.distributions import Distribution
from shoal.sim.planning.batch_queue import BatchQueue
from shoal.sim.planning.description import Site
from shoal.sim.planning.workloads import Batch


class JobTimes(NamedTuple):
    """When things happened to a job, in seconds from the submission of the workflow."""

    began: float
    ended: float
    known: float  # when the one who submitted it knew of its end


class DirectSubmission:
    """One workflow, submitted job by job."""

    def __init__(self, batch: Batch, site: Site, notification: Distribution, seed: int) -> None:
        self._batch, self._notification = batch, notification
        self._clock = Clock(0.0)
        self._queue = BatchQueue(site, self._clock, seed)
        self._draws = Random(f"{seed}/notification")
        self._known: dict[int, JobTimes] = {}

    def run(self) -> list[JobTimes]:
        """Let the workflow run to its end."""
        for number, job in enumerate(self._batch.jobs):
            if not job.after:
                self._submit(number)
        while len(self._known) < len(self._batch.jobs) and self._clock.step():
            pass
        return [self._known[number] for number in range(len(self._batch.jobs))]

    def _submit(self, number: int) -> None:
        self._queue.submit(lambda: self._begin(number))

    def _begin(self, number: int) -> None:
        began = self._clock.now
        self._clock.after(self._batch.jobs[number].seconds, lambda: self._end(number, began))

    def _end(self, number: int, began: float) -> None:
        self._queue.release()
        ended = self._clock.now
        delay = self._notification.draw(self._draws)
        self._clock.after(delay, lambda: self._tell(number, JobTimes(began, ended, ended + delay)))

    def _tell(self, number: int, times: JobTimes) -> None:
        self._known[number] = times
        for other, job in enumerate(self._batch.jobs):
            if number in job.after and all(parent in self._known for parent in job.after):
                self._submit(other)
