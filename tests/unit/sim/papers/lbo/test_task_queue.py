"""What the task queue of the paper gives to whom."""

from __future__ import annotations

from shoal.data.catalogue import Catalogue
from shoal.sim.papers.lbo.task_queue import MB, TaskQueue
from shoal.sim.papers.lbo.workflow import Next, Workflow
from shoal.sim.planning.workloads import MERGING, SERIAL, SPLITTING

FILE = 700


def queue(workflow: Workflow, space: int = 10 * FILE) -> TaskQueue:
    return TaskQueue(workflow, [Catalogue(space * MB) for _ in range(3)], 1, FILE)


def made(workflow: Workflow, tasks: TaskQueue, files: list[int]) -> int:
    task = workflow.add(Next(tuple(files), 0))
    tasks.add(task)
    return task


def test_a_task_with_files_on_the_host_comes_first_then_one_without_files_then_the_oldest() -> None:
    workflow = Workflow(SERIAL, 4, 1.0, 0.0, "1")
    tasks = queue(workflow)
    for file in (0, 1):
        tasks.keep(file, file, 0.0)
    old, near = made(workflow, tasks, [0]), made(workflow, tasks, [1])
    assert [tasks.best(1, 0, set(), False) for _ in range(4)] == [near, 0, 1, old]
    assert tasks.best(1, 0, set(), False) is None and len(tasks) == 0


def test_a_task_waits_for_an_idle_pilot_with_its_files_and_for_no_busy_one() -> None:
    workflow = Workflow(SERIAL, 2, 1.0, 0.0, "1")
    tasks = queue(workflow)
    tasks.take(None)
    tasks.keep(0, 0, 0.0)
    task = made(workflow, tasks, [0])
    assert tasks.best(1, 0, {0, 2}, True) is None
    assert tasks.best(1, 0, {2}, True) == task


def test_what_goes_from_a_full_cache_is_near_no_more() -> None:
    workflow = Workflow(SERIAL, 4, 1.0, 0.0, "1")
    tasks = queue(workflow, 2 * FILE)
    task = made(workflow, tasks, [0])
    assert [tasks.keep(0, file, float(file)) for file in (0, 1)] == [0, 0]
    assert tasks.keep(0, 0, 1.5) == 0  # again
    assert tasks.near(0) == {task: 1} and tasks.read(0, 0, 2.0)
    assert tasks.keep(0, 2, 3.0) == 1 and not tasks.read(0, 1, 4.0)  # 0 was used later
    assert tasks.keep(0, 3, 5.0) == 1 and tasks.near(0) == {}
    assert queue(workflow, 0).keep(0, 0, 0.0) == 0


def test_tasks_of_the_second_step_are_made_when_their_files_are_there() -> None:
    splitting = Workflow(SPLITTING, 6, 1.0, 0.0, "1")
    assert splitting.first == 2 and splitting.done(1, 0) == [Next((1,), 0)] * 2 and not splitting.is_over
    merging = Workflow(MERGING, 6, 1.0, 0.0, "1")
    assert merging.first == 4 and merging.done(0, 0) == merging.done(1, 1) == []
    assert merging.done(2, 0) == [Next((0, 2), 0)]
    assert merging.done(3, 0) == [Next((3,), 0), Next((1,), 1)]  # of different sites, and no more to come
