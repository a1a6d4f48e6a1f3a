"""Restores the engine's state from a snapshot of the database: nothing running is forgotten, nothing is leased twice.

Every living pilot gets a fresh full lease, and matching stays closed until each has sent its held list, or the quarantine
has passed [protocol 10; promise I7].
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from shoal.engine.changes import ArrayRow, ChunkRow, GrownRow, GrowthRow, PartialRow, PilotRow, PlanRow, RunRow, TaskRow
from shoal.engine.ended_pilot import EndedPilot
from shoal.engine.matching.chunks import enter
from shoal.engine.matching.grant import attach
from shoal.engine.pilots.mesh import enter as enter_mesh
from shoal.engine.planning import restore as restore_plan
from shoal.engine.policy.accounting import Accounting
from shoal.engine.records import (
    MESH,
    NO_NEEDS,
    Array,
    Attempt,
    Chunk,
    Pilot,
    Run,
    Task,
)
from shoal.engine.run_bound import Lane, RunBound
from shoal.engine.snapshot import FinalRange, KeptRow, Snapshot
from shoal.engine.state import State
from shoal.engine.task_overrides import FailedAt, TaskOverrides
from shoal.engine.tasks.dependencies import enter as enter_dependency
from shoal.engine.tasks.divisible import enter_work
from shoal.engine.tasks.growth import restore as restore_growth
from shoal.engine.tasks.kept_outputs import keep_outputs
from shoal.engine.tasks.layout import add_array, link, make_array, meet, release_begun
from shoal.engine.tasks.nested import place
from shoal.engine.tasks.partial import restored
from shoal.engine.tasks.runs import hold_lasts
from shoal.engine.windows.window import enter as enter_window
from shoal.model.ids import PARENT, AttemptId, TaskId
from shoal.model.rangeset import RangeSet
from shoal.model.states import PilotState, Rerun, TaskState
from shoal.model.task.spec import Needs, Spec
from shoal.model.timing import Timing
from shoal.wire.messages import Capacity
from shoal.wire.policy import parse_policy
from shoal.wire.task import stored_spec

AT_ONCE = 1_000  # texts that are read together


def restore(snapshot: Snapshot, timing: Timing, rng: Random, now: float, state_dir: str = "") -> State:
    """The engine's state as the database remembers it."""
    state = State(timing, rng, snapshot.incarnation, snapshot.next_run, snapshot.next_seq, state_dir, now=now)
    state.lease_key, state.ran_until = snapshot.lease_key, snapshot.last_time
    for row in snapshot.pilots:
        pilot = state.pilots[row.pilot] = _pilot(row, now)
        state.sessions[row.session] = row.pilot
        enter_mesh(state, pilot)
    for row in snapshot.gone:
        state.gone[row.pilot] = EndedPilot(
            row.session,
            json.loads(row.former),
            row.owner or f"@{row.grp}",
            row.token,
            row.ended or now,
            row.reason,
            bool(row.revoked),
            bool(row.bound),
            host=row.host,
            identity=row.identity,
            site=row.site,
        )
    state.hosts = {(row.identity, row.owner, row.grp, row.site): row for row in snapshot.hosts}
    state.groups.update(snapshot.groups)
    if snapshot.policy is not None:
        state.policy_version = snapshot.policy.version
        state.accounting = Accounting(parse_policy(json.loads(snapshot.policy.document)), state.groups)
        state.queue.rule = state.accounting.policy.order
    state.accounting.load(snapshot.usage, snapshot.places, snapshot.spent)
    for pilot in state.pilots.values():
        if not pilot.draining:
            state.count_slots(pilot, 1)
    state.unreconciled = set(state.pilots)
    state.quarantine_until = now + timing.quarantine
    for run, element, winner, nonce, name in snapshot.settled:
        state.remember(TaskId(run, element), winner, nonce, name)
    load(
        state, snapshot.runs, snapshot.arrays, snapshot.tasks, snapshot.done, snapshot.chunks, snapshot.kept,
        snapshot.partials, snapshot.growths, snapshot.grown, snapshot.plans,
    )  # fmt: skip
    return state


def load(
    state: State,
    runs: list[RunRow],
    arrays: list[ArrayRow],
    tasks: list[TaskRow],
    done: list[FinalRange],
    chunks: Sequence[ChunkRow] = (),
    kept: Sequence[KeptRow] = (),
    partials: Sequence[PartialRow] = (),
    growths: Sequence[GrowthRow] = (),
    grown: Sequence[GrownRow] = (),
    plans: Sequence[PlanRow] = (),
) -> None:
    """Bring runs into memory."""
    for row in runs:
        run = Run(
            row.run, row.owner, row.name, row.created, row.cwd, row.seed, row.max_fail, row.key, row.digest, row.labels,
            row.signature, finished=row.finished, env_file=row.env_file, open=bool(row.open), last_poll=state.now,
            nonce=row.nonce, base=row.base, bound=RunBound(row.max_running) if row.max_running is not None else None,
            due=row.due, notify=tuple(json.loads(row.notify)) if row.notify else (),
        )  # fmt: skip
        state.runs[row.run] = run
        if row.key:
            state.keys[(row.owner, row.key)] = run
    for kept_partial in partials:
        state.runs[kept_partial.run].partial = restored(kept_partial)
        state.emitting[kept_partial.run] = False  # its goal may have been reached by what was written last
    for plan in plans:
        restore_plan(state.runs[plan.run], plan)
    files: dict[int, list[GrownRow]] = {}
    for file in grown:
        files.setdefault(file.run, []).append(file)
    for kept_growth in growths:
        restore_growth(state.runs[kept_growth.run], kept_growth, files.get(kept_growth.run, ()), state.now)
    begun = {number for number, *_ in done} | {row.run for row in tasks} | {row.run for row in chunks}
    begun |= {row.run for row in runs if PARENT in row.labels}  # its class depends on where it is placed
    left: list[Array] = []
    state.queue.offer_all(_untouched(_arrays(state, arrays), begun, left))
    linked = dict.fromkeys(array.run for array in left if _waits(array))
    for row in runs:
        state.accounting.ledger.queued(row.owner, state.runs[row.run].total)
    for row in sorted(runs, key=lambda row: row.run):  # a parent has a smaller number
        place(state, state.runs[row.run])
    for number, low, high, final in done:
        _finish(state, state.runs[number], low, high, TaskState(final))
    for run in linked:
        link(run)
        for array in run.arrays:
            if _waits(array):
                meet(array)
                if array.todo:
                    enter_dependency(state, array)
    for row in runs:
        hold_lasts(state.runs[row.run])
    for number, element, result in kept:
        parent = state.runs[number].array_of(element)
        assert parent is not None
        keep_outputs(parent, element, result)
    for item in tasks:
        _task(state, item)
    for piece in chunks:
        _chunk(state, piece)
    for array in left:
        if array.live or array.tasks:
            release_begun(array)
            for task in array.tasks.values():
                if task.element in array.todo and task.special is not None and task.special.is_apart:
                    state.offer_back(task)
    state.queue.offer_all(left)


def _untouched(arrays: Iterator[Array], begun: set[int], left: list[Array]) -> Iterator[Array]:
    """Those of which nothing else is known, to be offered while each is still in the processor's cache; the others are
    added to `left`."""
    for array in arrays:
        if array.run.number in begun or array.spec.after or array.spec.after_any or array.held:
            left.append(array)
        else:
            yield array


def _waits(array: Array) -> bool:
    return bool(array.spec.after or array.spec.after_any)


def _arrays(state: State, arrays: list[ArrayRow]) -> Iterator[Array]:
    """Each array, entered into its run, in order."""
    for number, first, spec, table in _specs(sorted(arrays)):
        run = state.runs[number]
        array = make_array(state, run, first, spec)
        array.since = run.created
        array.accepted = not run.is_planning
        add_array(run, array)
        if spec.units is not None:
            enter_work(array, table)
        yield array


def _specs(arrays: list[ArrayRow]) -> Iterator[tuple[int, int, Spec, dict[str, Any]]]:
    """Run, first element, spec and table of each array. Texts are read many at a time, which takes half as long."""
    for at in range(0, len(arrays), AT_ONCE):
        some = arrays[at : at + AT_ONCE]
        for row, task in zip(some, json.loads(f"[{','.join([row.task for row in some])}]"), strict=True):
            yield row.run, row.first, stored_spec(task), task


def _finish(state: State, run: Run, low: int, high: int, to: TaskState) -> None:
    """Enter final elements; a range of the database may run over several arrays."""
    while low < high:
        array = run.array_of(low)
        assert array is not None
        top = min(high, array.first + array.count)
        array.take_todo(low, top)
        state.count_final(array, low, top, to)
        low = top


def _pilot(row: PilotRow, now: float) -> Pilot:
    room = Capacity(row.cores, row.memory, row.disk, row.gpus)
    pilot = Pilot(
        row.pilot, PilotState(row.state), row.owner, row.site, row.host, row.identity, row.session, room, row.version,
        json.loads(row.tags), row.joined, now, room, row.grp, row.token, former=json.loads(row.former),
        reason=row.reason, is_reconciled=False, may_be_stale=True, ends=row.ends, bound=bool(row.bound),
    )  # fmt: skip
    for key in pilot.tags:
        if "." in key:
            owner = key.partition(".")[0]
            pilot.published[owner] = pilot.published.get(owner, 0) + 1
    if pilot.state is PilotState.DRAINING:
        pilot.draining = row.reason or "draining"
    elif pilot.state is PilotState.BUSY:
        pilot.state = PilotState.IDLE  # by what it holds, below
    return pilot


def _chunk(state: State, row: ChunkRow) -> None:
    """Elements leased together: those that are neither final nor have a row of their own are still with their pilot."""
    arrays = state.runs[row.run].arrays_of(row.low, row.high)
    array, left = arrays[0], RangeSet([(row.low, row.high)])
    for one in arrays:
        for low, high in one.done.ranges():
            left.remove_range(low, high)
        for element in one.tasks:
            left.remove(element)
    chunk = Chunk(array, row.low, row.high, row.number, row.incarnation, row.pilot, row.leased, 0, left)
    pilot = state.pilots.get(row.pilot)
    if not left:
        return
    assert pilot is not None  # when a pilot goes, everything in its chunks gets a row, in the same transaction
    if array.bound is not None and array.spec.function:
        chunk.lane = Lane(str(chunk.attempt(row.low)))
    if len(arrays) > 1:
        chunk.several = arrays
    for one in arrays:
        for low, high in chunk.left_of(one):
            one.take_todo(low, high)
            one.count_live(high - low, chunk.lane)
    enter(state, chunk, pilot)


def _task(state: State, row: TaskRow) -> None:
    """A task that is not final: ready with a history, or live on a pilot."""
    array = state.runs[row.run].array_of(row.element)
    assert array is not None
    task = array.enter_task(
        Task(
            array, row.element, TaskState.READY, row.attempt, row.retries, row.losses, note=row.message, cause=row.cause
        )
    )
    if row.special:
        task.special = TaskOverrides(**json.loads(row.special))
        task.special.failed_at = [FailedAt(*place) for place in task.special.failed_at]
        task.set_own()
        if task.special.avoid or task.special.avoid_sites:
            state.avoiding[task.id] = task
        if task.special.alone:
            state.suspects[task.id] = task
    if array.waiting:
        task.state = TaskState.WAITING
    for number, incarnation, name, stage, leased, *other in json.loads(row.live) if row.live else []:
        name_of = AttemptId(row.run, row.element, number, incarnation, array.run.nonce)
        attempt = Attempt(name_of, name, leased, stage == "running")
        if other:  # its task was given other needs since
            attempt.needs = Needs(
                **{**other[0], "licences": tuple((name, count) for name, count in other[0]["licences"])}
            )
        if stage == "lost":
            task.past[attempt.id] = name
            continue
        pilot = state.pilots.get(name)
        if pilot is not None:
            attach(state, array, attempt, pilot)
            if attempt.running:
                state.count_cores(array, attempt, attempt.leased)
        elif name.startswith(MESH):
            task.live[attempt.id] = attempt
            attempt.orphaned, attempt.needs = math.inf, task.needs if attempt.needs is NO_NEEDS else attempt.needs
            state.orphans[attempt.id] = task
            enter_window(state, attempt)
        elif array.spec.rerun is Rerun.SAFE:
            task.past[attempt.id] = name
            continue
        else:
            # Its pilot was given up before the crash; an exclusive task's right to run still has to end.
            task.live[attempt.id] = attempt
            attempt.orphaned = state.now + state.timing.hold + state.timing.margin
            attempt.site, attempt.reserved = row.site, state.queue.class_of(array).expected
            attempt.needs = task.needs if attempt.needs is NO_NEEDS else attempt.needs
            state.accounting.enter(array.run.owner, row.site, attempt.needs, 1, attempt.reserved)
            state.orphans[attempt.id] = task
        task.state = TaskState.RUNNING if attempt.running or task.state is TaskState.RUNNING else TaskState.LEASED
    if task.live:
        array.take_todo(row.element, row.element + 1)
        array.count_live(1)
