"""Which job a pilot that asks is given."""

from __future__ import annotations

from shoal.data.catalogue import Catalogue
from shoal.sim.papers.cms.task_queue import Pilot, TaskQueue


def queue_with(*files: str, waits: bool = False, most_files: bool = True) -> tuple[TaskQueue, Pilot, Pilot]:
    """A queue, a pilot that wrote these files, and another one, both idle."""
    queue = TaskQueue(waits, lambda file: 10, most_files)
    writer, other = Pilot(0, Catalogue(100)), Pilot(1, Catalogue(100))
    for pilot in (writer, other):
        queue.join(pilot)
    for file in files:
        queue.keep(file, writer.cache, 0.0)
    return queue, writer, other


def test_the_job_of_which_a_pilot_has_most_files_goes_before_older_ones() -> None:
    """[CMS IV.E]"""
    for most_files, first in ((True, 3), (False, 1)):
        queue, writer, _ = queue_with("a", "b", most_files=most_files)
        for job, inputs in ((1, ("x",)), (2, ("a",)), (3, ("a", "b"))):
            queue.add(job, inputs)
        assert queue.take(writer) == first and len(queue) == 2


def test_a_job_waits_for_a_pilot_with_its_data_while_that_is_idle() -> None:
    queue, writer, other = queue_with("a", waits=True)
    queue.add(1, ("a",))
    assert queue.take(other) is None
    writer.is_idle = False
    assert queue.take(other) == 1 and queue.take(other) is None


def test_a_pilot_that_ended_is_not_waited_for_but_its_neighbour_is() -> None:
    queue, writer, other = queue_with("a", waits=True)
    neighbour = Pilot(2, writer.cache)
    queue.join(neighbour)
    queue.add(1, ("a",))
    assert not queue.leave(writer) and queue.take(other) is None
    assert queue.leave(neighbour) and queue.take(other) == 1
