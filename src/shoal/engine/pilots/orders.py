"""Signals to running tasks, the streaming of their output and looks at their files, sent to the pilot as orders
[GWP G11; DIANE U5]."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.engine.commands import Look, Signal, Watch
from shoal.engine.records import Attempt, Pilot, Task
from shoal.engine.state import State
from shoal.model.errors import Conflict
from shoal.model.ids import TaskId
from shoal.wire.messages import ORDERS, Order

WATCH_AGAIN = 10.0  # seconds; a pilot sends along for longer after each order


def signal(state: State, command: Signal) -> dict[str, int]:
    """Have a signal sent to every running attempt of the targets."""
    sent = idle = 0
    for target in command.targets:
        tasks = list(_live_tasks(state, target))
        idle += 1 if isinstance(target, TaskId) and not tasks else _chunked(state, target)
        for task in tasks:
            done = False
            for attempt in task.live.values():
                pilot = state.pilots.get(attempt.pilot)
                if attempt.running and pilot is not None and pilot.protocol >= ORDERS["signal"]:
                    state.order(pilot, Order("signal", str(attempt.id), signal=command.number))
                    state.emit(
                        "task_signalled", task=task.id, attempt=attempt.id.number, pilot=pilot, signal=command.number
                    )
                    done = True
            sent, idle = sent + done, idle + (not done)
    return {"signalled": sent, "not_running": idle}


def _chunked(state: State, target: int | TaskId) -> int:
    """How many elements of a run are in chunks, where nothing has begun."""
    run = state.runs.get(target) if isinstance(target, int) else None
    if run is None:
        return 0
    left = ((chunk, array) for array in run.arrays for chunk in array.chunks)
    return sum(high - low for chunk, array in left for low, high in chunk.left_of(array))


def _live_tasks(state: State, target: int | TaskId) -> Iterator[Task]:
    """Tasks of a run, or the one, that are with a pilot."""
    run = state.runs.get(target if isinstance(target, int) else target.run)
    if run is None:
        return
    if isinstance(target, TaskId):
        array = run.array_of(target.element)
        task = array.tasks.get(target.element) if array is not None else None
        if task is not None and task.live:
            yield task
        return
    for array in run.arrays:
        yield from (task for task in list(array.tasks.values()) if task.live)


def watch(state: State, command: Watch) -> bool:
    """Have the newest running attempt's stream sent along; False if none runs."""
    tasks = list(_live_tasks(state, command.task))
    attempt = _newest_running(tasks)
    if attempt is None:
        return bool(tasks)
    pilot = state.pilots.get(attempt.pilot)
    key = (str(attempt.id), command.stream)
    knows = pilot is not None and pilot.protocol >= ORDERS["tail"]
    if pilot is not None and knows and state.now - pilot.watched.get(key, -WATCH_AGAIN) >= WATCH_AGAIN:
        pilot.watched = {k: at for k, at in pilot.watched.items() if state.now - at < WATCH_AGAIN}
        pilot.watched[key] = state.now
        state.order(pilot, Order("tail", key[0], stream=command.stream))
    return True


def look(state: State, command: Look) -> Pilot:
    """Have the pilot of the newest running attempt answer a question about its files; returns the pilot."""
    attempt = _newest_running(list(_live_tasks(state, command.task)))
    pilot = state.pilots.get(attempt.pilot) if attempt is not None else None
    if attempt is None or pilot is None:
        raise Conflict(f"{command.task} does not run", code="not_running", hint=f"see `shoal why {command.task}`")
    if pilot.protocol < ORDERS[command.kind]:
        raise Conflict(
            f"the pilot of {command.task} is of an older version and shows no files", code="old_pilot",
            hint="it renews itself when it is idle",
        )  # fmt: skip
    order = Order(command.kind, str(attempt.id), path=command.path, offset=command.offset, request=command.request,
                  count=command.count)  # fmt: skip
    state.order(pilot, order)
    return pilot


def _newest_running(tasks: list[Task]) -> Attempt | None:
    running = [attempt for task in tasks for attempt in task.live.values() if attempt.running]
    return max(running, key=lambda a: (a.id.incarnation, a.id.number), default=None)
