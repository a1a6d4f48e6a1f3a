"""Runs: submission, dependencies between tasks, cancellation, and when a run is over."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shoal.engine.changes import Closed, ClosedRow, NoticeDrop, SpanRow, TaskRow
from shoal.engine.commands import Accept, Add, Cancel, Close, Noticed, PollRun, Submit, TellFiles
from shoal.engine.matching.chunks import carve, carve_array
from shoal.engine.matching.visibility import ask_again
from shoal.engine.policy.apply_policy import check_queue
from shoal.engine.records import Array, Plan, Run, Task
from shoal.engine.run_bound import RunBound
from shoal.engine.state import State, Stopping
from shoal.engine.tasks import growth
from shoal.engine.tasks.deadlines import common_due
from shoal.engine.tasks.dependencies import enter, failed_outside, take_settled, target_text
from shoal.engine.tasks.kept_outputs import keep_outputs
from shoal.engine.tasks.layout import array_at, is_met, lay_out, link, meet
from shoal.engine.tasks.nested import check_nesting, place, runs_below
from shoal.engine.tasks.partial import Partial
from shoal.model.errors import BadInput, Conflict, NotFound
from shoal.model.ids import TaskId, run_text
from shoal.model.quantities import many
from shoal.model.states import UNREDUCED, Cause, Rerun, TaskState, advance
from shoal.model.task.spec import Spec, Submission
from shoal.model.task.task_field import fields_with
from shoal.wire.messages import Order

MAX_EARLY = 100  # arrays of a submission from which on it is offered once: nobody waits for a single one of so many
Reused = tuple[tuple[int, TaskRow], ...]  # element -> the result that it takes over
FAILURES = (TaskState.FAILED, TaskState.LOST)
ABANDONED = 60.0  # seconds without a poll of its submitter after which an open run with nothing to do is over


def submit(state: State, command: Submit) -> dict[str, Any]:
    """Create a run with its arrays, and offer what may begin before it is durable; `accept` offers the rest."""
    submission, key = command.submission, (command.owner, command.submission.key)
    if submission.key and key in state.keys:
        return again(state.keys[key].number, state.keys[key].total, state.keys[key].digest, command.digest)
    check_queue(state, command.owner, submission.count - len(command.reused))
    check_nesting(state, command.owner, submission.labels)
    run = Run(
        state.next_run, command.owner, submission.name, state.now, submission.cwd,
        submission.seed if submission.seed is not None else state.rng.getrandbits(48), submission.max_fail,
        submission.key, command.digest, json.dumps(submission.labels), command.signature, env_file=command.env_file,
        open=submission.open, last_poll=state.now, nonce=f"{state.rng.getrandbits(64):016x}",
        bound=RunBound(submission.max_running) if submission.max_running is not None else None, notify=submission.notify,
    )  # fmt: skip
    state.next_run += 1
    place(state, run)
    state.runs[run.number] = run
    if submission.key:
        state.keys[key] = run
    if submission.reduce or submission.until:
        run.partial = Partial(submission.reduce, submission.until)
        state.change(run.partial.row(run.number))
    lay_out(state, run, submission)
    if command.plan is not None:
        run.plan = Plan(UNREDUCED, command.plan)
        state.change(run.plan.row(run.number))
    if submission.rules:
        growth.enter(state, run, submission.rules)
    run.due = common_due(run)
    ask_again(state, submission.specs)
    link(run)
    state.emit("run_submitted", run=run.number, name=run.name, tasks=run.total)
    if run.due is not None:
        state.emit("deadline_stated", run=run.number, due=run.due, chance=submission.stated)
    if command.reused:
        _enter_reused(state, run, command.reused)
    for array in run.arrays:
        meet(array)
        enter_noop(state, array)
    for array in run.arrays:
        failed = failed_outside(state, array, command.outcomes)
        if array.todo and failed is None:
            enter(state, array)
        elif array.todo and failed is not None:
            _fail_dependent(state, array, failed)
    close_if_done(state, run)
    state.write_run(run)
    _offer_early(state, run.arrays)
    return {"run": run_text(run.number), "tasks": run.total, "reused": len(command.reused), "again": False}


def starts_early(spec: Spec) -> bool:
    """True if its tasks may begin while their submission is on its way to the disk [ADR 0034]: they may run again if a
    crash undoes it, and show nobody's results to the world. Which units a piece has must be durable first."""
    return spec.rerun is Rerun.SAFE and not (spec.after or spec.after_any) and spec.units is None


def _offer_early(state: State, arrays: list[Array]) -> None:
    """Offer what may begin at once, to pilots that wait for work now: their leases are written in the transaction of the
    submission, so that a crash forgets both or neither. Nothing of it, if something else of it is ready and has to wait for
    the commit: that may go first, and would find its slot taken."""
    may_start = (
        bool(state.parked) and len(arrays) <= MAX_EARLY and not any(array.run.is_planning for array in arrays[:1])
    )
    may_start = may_start and all(starts_early(array.spec) or array.waiting or not array.todo for array in arrays)
    for array in arrays:
        array.accepted = may_start and starts_early(array.spec)
        state.queue.offer(array)
    state.unwritten = arrays


def hold_back(state: State) -> None:
    """Nothing more of a submission is leased before it is durable."""
    arrays, state.unwritten = state.unwritten, []
    for array in arrays:
        array.accepted = False
    for cls in {state.queue.listed_class_of(array) for array in arrays if array.queued}:
        state.queue.relist(cls)


def accept(state: State, command: Accept) -> None:
    """The submission, or an addition, is durable: offer what is ready."""
    run = state.runs.get(command.run)
    if run is None or run.is_planning:
        return
    end = len(run.arrays) if command.tasks is None else bisect_left(run.firsts, command.first + command.tasks)
    accepted = run.arrays[bisect_left(run.firsts, command.first) : end]
    for array in accepted:
        array.accepted = True
        for element in array.apart:  # what began early, failed, and is to be tried again
            state.queue.offer_apart(array, element)
    state.queue.offer_all(accepted)


def add(state: State, command: Add) -> dict[str, Any]:
    """Put more tasks into an open run. Idempotent: a repeated addition changes nothing."""
    run = state.runs[command.run]
    submission, first = command.submission, command.first
    answer = {"run": run_text(run.number), "first": first, "tasks": submission.count, "again": False}
    if not run.open:
        raise Conflict(f"{run_text(run.number)} is closed", code="run_closed", hint="make a new run")
    if any(spec.after or spec.after_any for spec in submission.specs):
        raise BadInput("tasks added to a run wait for nothing", code="usage", field="after", hint="leave it out")
    run.last_poll = state.now
    if first <= run.total:
        _check_again(run, first, submission)
        return {**answer, "again": True}
    if first != run.total + 1:
        hint = f"the next element is {run.total + 1}"
        raise Conflict(f"element {first} cannot be next", code="wrong_place", field="first", hint=hint)
    check_queue(state, run.owner, submission.count)
    before = len(run.arrays)
    lay_out(state, run, submission)
    run.due = common_due(run, before)
    if run.finished is not None:
        run.finished = None
        state.emit("run_reopened", run=run.number, tasks=submission.count)
    state.emit("tasks_added", run=run.number, first=first, tasks=submission.count)
    state.write_run(run)
    _offer_early(state, run.arrays[bisect_left(run.firsts, first) :])
    return answer


def _check_again(run: Run, first: int, submission: Submission) -> None:
    """Refuse an addition that differs from what is at that element already."""
    for spec in submission.specs:
        array = run.array_of(first)
        if array is None or array.first != first or _as_added(array.spec, spec) != spec:
            raise Conflict(f"another task is at element {first}", code="wrong_place", field="first")
        first += spec.count


def _as_added(spec: Spec, added: Spec) -> Spec:
    """A spec without what a person may have changed in it since it was added."""
    return replace(spec, **{field.name: getattr(added, field.name) for field in fields_with(Spec, "queued")})


def close(state: State, command: Close) -> dict[str, Any]:
    """Nothing more will be added: the run is over when its tasks are."""
    run = state.runs[command.run]
    run.open = False
    close_if_done(state, run)
    state.write_run(run)
    return {"run": run_text(run.number), "finished": run.finished is not None}


def tell_files(state: State, command: TellFiles) -> dict[str, int | str]:
    """Somebody says which files there are for the rules of a run."""
    answer = growth.tell(state, command)
    close_if_done(state, state.runs[command.run])
    state.write_run(state.runs[command.run])
    return answer


def grow_in_time(state: State) -> None:
    """What time brings to runs with rules."""
    for run in [run for run in state.runs.values() if run.growth is not None and run.finished is None]:
        growth.turn(state, run)
        close_if_done(state, run)
        if run.finished is not None:
            state.write_run(run)


def noticed(state: State, command: Noticed) -> None:
    """Somebody was told of something, or that was given up: it is not tried again."""
    state.change(NoticeDrop(command.seq, command.target))
    state.emit(
        "notice_failed" if command.wrong else "notice_sent", run=command.run, owner=command.owner, what=command.what,
        to=command.place, of=command.seq, tries=command.tries, why=command.wrong,
    )  # fmt: skip


def note_poll(state: State, command: PollRun) -> None:
    """Note that the submitter of an open run is alive."""
    run = state.runs.get(command.run)
    if run is not None:
        run.last_poll = state.now


def may_be_abandoned(run: Run) -> bool:
    """True if it is open and has nothing to do."""
    return run.open and run.finished is None and run.settled == run.total


def close_abandoned(state: State) -> None:
    """Close open runs in which nothing is left to do, and whose submitter did not poll for a while."""
    for run in state.runs.values():
        if may_be_abandoned(run) and state.now > run.last_poll + ABANDONED:
            state.finish_run(run)
            state.write_run(run)


def again(number: int, total: int, before: str, digest: str) -> dict[str, Any]:
    """The answer to a key that was used: the same run for the same body, a refusal for another [promise I4]."""
    if before != digest:
        raise BadInput(
            f"this key belongs to {run_text(number)}, which asked for something else", code="key_reused", field="key",
            hint="use a new key for a new submission",
        )  # fmt: skip
    return {"run": run_text(number), "tasks": total, "reused": 0, "again": True}


def take_over(state: State, run: Run, reused: Reused) -> None:
    """Enter results of earlier runs into a run of which nothing has begun, and release what waited for these tasks."""
    _enter_reused(state, run, reused)
    for first in dict.fromkeys(array_at(run, element).first for element, _ in reused):
        array = array_at(run, first)
        if array.children and array.is_over:
            _release_children(state, array)


def _enter_reused(state: State, run: Run, reused: Reused) -> None:
    """Enter results of earlier runs as this run's own: what `--resume` skips."""
    for element, row in reused:
        array = array_at(run, element)
        array.take_todo(element, element + 1)
        if element in array.tasks:  # somebody changed it while the run was planned
            array.apart.pop(element, None)
            array.drop_task(element)
        state.count_final(array, element, element + 1, TaskState.SUCCEEDED)
        keep_outputs(array, element, row.result)
        source = row.reused or str(TaskId(row.run, row.element))
        state.change(row._replace(run=run.number, element=element, live="", reused=source))
    origins = sorted({run_text(row.run) for _, row in reused})
    state.emit("tasks_reused", run=run.number, count=len(reused), origins=origins)


# --- when something became final
def after_final(state: State, array: Array, to: TaskState) -> None:
    """What follows from a final task: children, the run's limit of failures, the run's end."""
    run = array.run
    if to is not TaskState.SUCCEEDED:
        _fail_children(state, array)
    if array.children and array.is_over:
        _release_children(state, array)
    if to is not TaskState.SUCCEEDED:
        failed = run.finals.get("failed", 0) + run.finals.get("lost", 0)
        if run.max_fail is not None and failed >= run.max_fail and run.settled < run.total:
            cancel_run(state, run, f"{many(failed, 'task')} failed, the limit of this run (--max-fail)", spares=True)
    close_if_done(state, run)
    state.write_run(run)


def after_successes(state: State, run: Run, arrays: Iterable[Array]) -> None:
    """The same for elements of several arrays of a run that succeeded together."""
    for array in arrays:
        if array.children and array.is_over:
            _release_children(state, array)
    close_if_done(state, run)
    state.write_run(run)


def _release_children(state: State, parent: Array) -> None:
    for child in parent.children:
        if parent.first in child.unmet and is_met(child, parent):
            child.unmet.discard(parent.first)
            _release(state, child)


def _release(state: State, array: Array) -> None:
    """Something that an array waited for is met: if it was the last, its elements are ready."""
    enter_noop(state, array)
    if array.waiting or not array.todo:
        return
    for task in array.tasks.values():
        if task.state is TaskState.WAITING:
            advance(task, TaskState.READY)
    ranges = [[low, high - 1] for low, high in array.todo.ranges()]
    state.emit("tasks_released", run=array.run.number, ranges=ranges[:100])
    array.since = state.now
    for element in array.apart:
        state.queue.offer_apart(array, element)
    state.queue.offer(array)


def settle_dependents(state: State) -> None:
    """Release or close the tasks of other runs that waited for what has ended in this command."""
    for target, succeeded, arrays in take_settled(state):
        for array in arrays:
            must_succeed = array.awaits.pop(target, None)
            if must_succeed is None or not array.todo:
                continue  # it was cancelled meanwhile
            if succeeded or not must_succeed:
                _release(state, array)
            else:
                _fail_dependent(state, array, target)
                close_if_done(state, array.run)
                state.write_run(array.run)


def _fail_dependent(state: State, array: Array, target: int | TaskId) -> None:
    """Close an array, and all behind it: a run or task that it needs ended without success."""
    array.awaits.clear()
    _close_todo(state, array, TaskState.FAILED, Cause.DEPENDENCY_FAILED, f"{target_text(target)} did not succeed")
    _fail_children(state, array)
    if array.children and array.is_over:
        _release_children(state, array)


def _fail_children(state: State, parent: Array) -> None:
    """Close everything below a failed task; without recursion, since chains may be long [promise I19]."""
    pending = [(parent, child) for child in parent.children]
    while pending:
        parent, child = pending.pop()
        if (child.todo or child.live) and child.unmet and parent.spec.name in child.spec.after:
            why = f"{parent.spec.name} did not succeed"
            _withdraw(state, child, why)
            _close_todo(state, child, TaskState.FAILED, Cause.DEPENDENCY_FAILED, why)
            pending.extend((child, below) for below in child.children)
            if child.is_over:
                _release_children(state, child)


def _withdraw(state: State, array: Array, why: str) -> None:
    """Take back what a pilot was leased of an array behind its parents [ADR 0064]: it waits again."""
    carve_array(state, array)
    for task in list(array.tasks.values()):
        for attempt in list(task.live.values()):
            pilot = state.pilots.get(attempt.pilot)
            if pilot is not None:
                state.order(pilot, Order("cancel", str(attempt.id), why))
            state.drop_attempt(task, attempt.id)
        if task.state in (TaskState.LEASED, TaskState.RUNNING):
            state.back_to_ready(task)


def _close_todo(state: State, array: Array, to: TaskState, cause: Cause | None, why: str) -> int:
    """Make every element that is not live final at once; those without a row get one span, not rows [ADR 0001]."""
    histories = [task for task in array.tasks.values() if task.element in array.todo]
    for task in histories:
        finish_without_report(state, task, to, cause, why)
    ranges = array.todo.ranges()
    count = len(array.todo)
    code = cause.value if cause is not None else ""
    for low, high in ranges:
        state.count_final(array, low, high, to)
        state.change(SpanRow(array.run.number, low, high, to.value, code, why, state.now))
        if array.run.open:
            row = ClosedRow(low, high, to.value, code, why)
            state.out.finals.append(Closed(array.run.number, state.next_seq, row))
    for low, high in ranges:
        array.take_todo(low, high)
    array.apart.clear()
    if count:
        shown = [[low, high - 1] for low, high in ranges[:100]]
        state.emit("tasks_closed", run=array.run.number, ranges=shown, count=count, cause=code, state=to.value, why=why)
    return count + len(histories)


def finish_without_report(state: State, task: Task, to: TaskState, cause: Cause | None, why: str) -> None:
    """Make a task final without a report; its live copies are ordered to stop."""
    stopping = list(task.live.values())
    for attempt in stopping:
        pilot = state.pilots.get(attempt.pilot)
        if pilot is not None:
            state.order(pilot, Order("cancel", str(attempt.id), why))
            # The time was used, though for nothing: it counts for the owner, too [GWP G12; promise I14].
            if attempt.running:
                attempt.took = (state.now - (attempt.started or attempt.leased)) * attempt.needs.cores
                state.account(task.array, pilot, attempt.took, "lost")
    if task.array.spec.rerun is not Rerun.SAFE:
        # The row keeps these copies until they are known to be dead: a retry must not overlap them [promise I3].
        state.dying.update({attempt.id: Stopping(task, attempt) for attempt in stopping})
    else:
        stopping = []
    task.cause, task.note = cause.value if cause is not None else "", why
    state.make_final(task, to)
    state.remember(task.id, "", "", "")
    state.write_task(task, live=stopping)
    state.announce_final(task)
    state.emit(
        "task_finished", task=task.id, attempt=task.number or None, state=to.value, cause=task.cause, message=why
    )
    notify_failure(state, task)
    if to is TaskState.CANCELLED and task.id in state.nested:
        _cancel_below(state, task)


def notify_failure(state: State, task: Task) -> None:
    """Have what the run notifies be told of its first failure."""
    run = task.array.run
    if run.notify and task.state in FAILURES and sum(run.finals.get(one.value, 0) for one in FAILURES) == 1:
        text = f"has its first failure: {task.id} {task.state.value} ({task.cause}): {task.note}".rstrip(": ")
        state.notify(run, "first_failure", text, task=str(task.id), cause=task.cause, message=task.note)


def _cancel_below(state: State, task: Task) -> None:
    """Cancel the runs that a cancelled task submitted: nobody waits for them any more."""
    for run in runs_below(state, task.id):
        cancel_run(state, run, f"{task.id} was cancelled, which submitted this run")
        run.open = False
        close_if_done(state, run)
        state.write_run(run)


def enter_noop(state: State, array: Array) -> None:
    """An array that does nothing has succeeded as soon as it waits for nothing: within the command that is handled."""
    if (
        array.spec.noop
        and array.todo
        and not array.waits_for_others
        and (not array.spec.role or _others_over(array.run))
    ):
        state.ready_noops.append(array)


def settle_noops(state: State) -> None:
    """Carry out what does nothing. What follows may make more of it ready: chains of them need no recursion."""
    while state.ready_noops:
        array = state.ready_noops.pop()
        if array.todo:
            for task in array.tasks.values():  # those that were cancelled by themselves, and are retried
                if task.state is TaskState.WAITING:
                    advance(task, TaskState.READY)
            _close_todo(state, array, TaskState.SUCCEEDED, None, "")
            after_final(state, array, TaskState.SUCCEEDED)


def _others_over(run: Run) -> bool:
    """True if everything of a run is over but its final tasks and its services, and nothing more grows."""
    return _is_settled(run) and not (run.growth is not None and run.growth.is_open)


def _is_settled(run: Run) -> bool:
    apart = [*run.lasts, *run.services]
    return run.settled - sum(len(array.done) for array in apart) == run.total - sum(array.count for array in apart)


def hold_lasts(run: Run) -> None:
    """Final tasks of a run wait while anything else of it is not over."""
    for array in run.lasts:
        array.held = array.spec.noop or not _others_over(run)


def _settle_roles(state: State, run: Run) -> None:
    """When everything else of a run is over, its final tasks begin; when these are over, too, its services end."""
    if not (run.lasts or run.services) or not _others_over(run):
        return
    for array in run.lasts:
        if array.todo and (array.held or array.spec.noop):
            array.held = array.spec.noop
            _release(state, array)
    if all(array.is_over for array in run.lasts):
        for array in run.services:
            _end_service(state, array)


def _end_service(state: State, array: Array) -> None:
    """Stop what runs of a service, which is its success, and cancel what of it never began."""
    why = "everything else of its run is over"
    _close_todo(state, array, TaskState.CANCELLED, Cause.CANCELLED, why)
    carve_array(state, array)
    for task in list(array.tasks.values()):
        if task.state is TaskState.RUNNING:
            finish_without_report(state, task, TaskState.SUCCEEDED, None, "")
        else:
            finish_without_report(state, task, TaskState.CANCELLED, Cause.CANCELLED, why)


def abort_on(state: State, array: Array, element: int, code: int | None) -> None:
    """Cancel the rest of a run if its submitter wants that of the exit code with which a task of it just ended; `after_final`
    comes next."""
    run = array.run
    if code not in array.spec.abort_on:
        return
    task = TaskId(run.number, element)
    state.emit("run_aborted", task=task, exit_code=code)
    cancel_run(state, run, f"{task} ended with exit code {code}, which ends the run (abort_on)", spares=True)
    run.open = False


def close_if_done(state: State, run: Run) -> None:
    """Every task is final: the run is over, unless its rules make others."""
    if run.growth is not None and run.finished is None and _is_settled(run):
        growth.flush(state, run)
    _settle_roles(state, run)
    grows = run.growth is not None and run.growth.is_open
    if run.finished is None and run.settled == run.total and not run.open and not grows:
        state.finish_run(run)


# --- cancellation
def cancel(state: State, command: Cancel) -> dict[str, int]:
    """Cancel runs and tasks; what is final stays as it is [promise I20]."""
    cancelled = already = 0
    for target in command.targets:
        run = state.runs.get(target if isinstance(target, int) else target.run)
        if run is not None and not isinstance(target, int) and run.array_of(target.element) is None:
            raise NotFound(
                f"{target} does not exist", code="unknown_task", hint=f"the run has {many(run.total, 'task')}"
            )
    for target in command.targets:
        run = state.runs.get(target if isinstance(target, int) else target.run)
        if run is None:
            already += 1  # the caller saw to it that it exists: so it is finished
        elif isinstance(target, int):
            before = run.settled
            already += before
            cancelled += cancel_run(state, run, command.why, command.unless_running)
            run.open = run.open and command.unless_running  # what is cancelled as a whole gets no more tasks
        else:
            done = _cancel_task(state, run, target, command.why, command.unless_running)
            cancelled, already = cancelled + done, already + (not done)
        if run is not None:
            close_if_done(state, run)
            state.write_run(run)
    return {"cancelled": cancelled, "already_final": already}


def cancel_run(
    state: State,
    run: Run,
    why: str,
    unless_running: bool = False,
    spares: bool = False,
    cause: Cause = Cause.CANCELLED,
) -> int:
    """Cancel whatever of a run is not final, or has not even begun; `spares`: but for its final tasks and services."""
    count = 0
    growth.stop(state, run, why)
    for array in run.arrays:
        if spares and array.spec.role:
            continue
        count += _close_todo(state, array, TaskState.CANCELLED, cause, why)
        carve_array(state, array)
        for task in list(array.tasks.values()):
            if not (unless_running and task.state is TaskState.RUNNING):
                finish_without_report(state, task, TaskState.CANCELLED, cause, why)
                count += 1
    return count


def _cancel_task(state: State, run: Run, target: TaskId, why: str, unless_running: bool) -> bool:
    array = array_at(run, target.element)
    if target.element in array.done or (unless_running and array.state_of(target.element) is TaskState.RUNNING):
        return False
    chunk = array.chunk_of(target.element)
    task = carve(state, chunk, target.element) if chunk is not None else state.task_at(array, target.element)
    finish_without_report(state, task, TaskState.CANCELLED, Cause.CANCELLED, why)
    _fail_children(state, array)
    if array.is_over:
        _release_children(state, array)
    return True
