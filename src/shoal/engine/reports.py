"""Rules of reports: the attempt number is the fence (A7, I2). Each report gets one verdict.

recorded  it decided the task (told again: the same word again)
adopted   an attempt given up as lost succeeded after all, and the task (safe) was not final
stale     it does not count; the task goes on without it
final     the task was final already
unknown   there is no such task
"""

from __future__ import annotations

from typing import Any

from shoal.engine.blame import praise
from shoal.engine.chunks import carve, finish
from shoal.engine.failing import note, send_elsewhere, weigh
from shoal.engine.hosts import tally
from shoal.engine.records import Array, Attempt, Pilot, Task
from shoal.engine.render import parameters
from shoal.engine.runs import after_final
from shoal.engine.state import State
from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.limits import MAX_BYTES, MAX_CHECKPOINT, MAX_REPORTS
from shoal.model.quantities import show_size
from shoal.model.states import Cause, Rerun, TaskState, advance
from shoal.model.sweep import fill
from shoal.sched.retry import Final
from shoal.wire.batches import report_of
from shoal.wire.chunk import shift
from shoal.wire.messages import Batch, Order, Report, Verdict

CLOCK_SKEW = 3_600.0  # seconds that a host's clock may differ, or a report be late, before it is remarked
OUTCOMES = ("succeeded", "failed", "cancelled", "returned", "checkpointed")
_CAUSES = {c.value for c in Cause}


def check(report: Report) -> AttemptId:
    """The attempt a report speaks of, if the report can be one at all [E54, E55]."""
    if report.outcome not in OUTCOMES:
        raise BadInput(
            f"{echo(report.outcome)!r} is not an outcome",
            code="unknown_state",
            field="reports.outcome",
            hint=", ".join(OUTCOMES),
        )
    if report.cause and report.cause not in _CAUSES:
        raise BadInput(f"{echo(report.cause)!r} is not a cause", code="unknown_state", field="reports.cause")
    if report.exit_code is not None and not -255 <= report.exit_code <= 255:
        raise BadInput(f"exit code {report.exit_code}", code="range", field="reports.exit_code", hint="-255 to 255")
    if len(report.files) > MAX_CHECKPOINT or not all(is_digest(digest) for digest in report.files.values()):
        raise BadInput("no checkpoint", code="bad_digest", field="reports.files", hint="names with sha256:HEX")
    numbers = (
        report.max_rss, report.signal or 0, report.duration, report.cpu, report.started or 0.0, report.out, report.err,
        report.staging,
    )  # fmt: skip
    if not all(0 <= number <= MAX_BYTES for number in numbers):
        raise _no_number()
    return parse_attempt(report.attempt)


def judge(state: State, pilot: Pilot, report: Report) -> str:
    """Take one report in; return its verdict."""
    attempt = parse_attempt(report.attempt)
    if attempt in state.dying and state.dying[attempt][1].pilot in (pilot.name, *pilot.former):
        stopped(state, attempt)  # by the word of the pilot that ran it, and of no other
    run = state.runs.get(attempt.run)
    array = run.array_of(attempt.element) if run is not None else None
    if array is None:
        if run is not None or attempt.run >= state.next_run:
            return "unknown"
        return _told_again(state, attempt)
    if attempt.element in array.done:
        return _told_again(state, attempt) if state.serves(pilot, array.run.owner) else "unknown"
    chunk = array.chunk_of(attempt.element)
    task = carve(state, chunk, attempt.element) if chunk is not None else array.tasks.get(attempt.element)
    live = task.live.get(attempt) if task is not None else None
    if task is not None and live is not None:
        if live.pilot != pilot.name and live.pilot not in pilot.former:
            if not state.serves(pilot, array.run.owner):
                return "unknown"
            return _refuse(state, pilot, attempt, report, "it is leased to another pilot")
        return _decide(state, pilot, task, live, report)
    return _late(state, pilot, array, attempt, report)


def judge_batch(state: State, pilot: Pilot, batch: Batch) -> list[Verdict]:
    """Take successes of neighbours in: those still in their chunk at once, the others one by one."""
    first = parse_attempt(batch.attempt)
    run = state.runs.get(first.run)
    array = run.array_of(first.element) if run is not None else None
    verdicts: list[Verdict] = []
    at = 0
    while at < batch.count:
        element = first.element + at
        if array is not None and element >= array.first + array.count and run is not None:
            array = run.array_of(element)
        chunk = array.chunk_of(element) if array is not None else None
        mine = chunk is not None and chunk.attempt(element) == shift(first, at)
        if chunk is not None and mine and (chunk.pilot == pilot.name or chunk.pilot in pilot.former):
            high = min(chunk.left.reach(element), first.element + batch.count)
            finish(state, chunk, state.pilots[chunk.pilot], batch, at, element, high)
            after_final(state, chunk.array, TaskState.SUCCEEDED)
            verdicts.append(Verdict(str(shift(first, at)), "recorded", high - element))
            at += high - element
        else:
            report = report_of(batch, at)
            verdicts.append(Verdict(report.attempt, judge(state, pilot, report)))
            at += 1
    return verdicts


def check_batch(batch: Batch) -> None:
    """Can a batch be one at all? Its columns must be as long as it says."""
    parse_attempt(batch.attempt)
    columns: tuple[list[Any], ...] = (
        batch.started, batch.duration, batch.cpu, batch.max_rss, batch.last_line, batch.result, batch.out, batch.err,
    )  # fmt: skip
    if not 1 <= batch.count <= MAX_REPORTS or any(len(column) not in (0, batch.count) for column in columns):
        raise BadInput("the columns of a batch differ in length", code="range", field="batches")
    for column in (*columns[:4], *columns[6:]):
        if column and not (min(column) >= 0 and max(column) <= MAX_BYTES):  # also false for what is no number
            raise _no_number()


def _no_number() -> BadInput:
    return BadInput("a number that no task can have", code="range", field="reports", hint="from 0 on, and not endless")


def stopped(state: State, attempt: AttemptId) -> None:
    """A cancelled copy is known to be dead: nothing stands in the way of a retry any more."""
    if attempt in state.dying:
        task, _ = state.dying.pop(attempt)
        left = [live for other, live in state.dying.values() if other is task]
        if task.id in state.settled:
            state.write_task(task, live=left)


def _told_again(state: State, attempt: AttemptId) -> str:
    winner = state.settled.get(attempt.task)
    return "recorded" if winner == f"{attempt.number}@{attempt.incarnation}" else "final"


def _refuse(state: State, pilot: Pilot, attempt: AttemptId, report: Report, why: str) -> str:
    state.emit(
        "report_refused", task=attempt.task, attempt=attempt.number, pilot=pilot, why=why, outcome=report.outcome
    )
    return "stale"


def _decide(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> str:
    """A report of a live attempt."""
    live.took = report.duration * task.array.spec.needs.cores
    if report.outcome in ("succeeded", "failed"):
        tally(state, pilot, report.outcome, live.took)
    if report.outcome == "succeeded":
        _account(state, pilot, task, live, report, "useful")
        _succeed(state, pilot, task, live.id, report, live.leased)
    elif report.outcome == "failed":
        _account(state, pilot, task, live, report, "failed")
        _fail(state, pilot, task, live, report)
    elif report.outcome == "checkpointed":
        _account(state, pilot, task, live, report, "useful")
        _go_on_later(state, pilot, task, live, report)
    else:
        if live.took:
            _account(state, pilot, task, live, report, "lost")
        _return(state, pilot, task, live, report)
    return "recorded"


def _account(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report, fate: str) -> None:
    queued = max(0.0, live.leased - task.array.since) if live.id.number == 1 else 0.0
    state.account(task.array, pilot, live.took or 0.0, fate, 1, queued, report.staging)


def _late(state: State, pilot: Pilot, array: Array, attempt: AttemptId, report: Report) -> str:
    """A report of an attempt that is not live: only a success can still count, only for a safe task [B0.4]."""
    if not state.serves(pilot, array.run.owner):
        return "unknown"  # another's: as if it were not there [I16]
    task = array.tasks.get(attempt.element)
    number = task.number if task is not None else 0
    given = (
        attempt.number <= number
        if attempt.incarnation == state.incarnation
        else attempt.incarnation < state.incarnation
    )
    owner = task.past.get(attempt) if task is not None else None
    if owner is not None and owner != pilot.name and owner not in pilot.former:
        return _refuse(state, pilot, attempt, report, "it was leased to another pilot")
    if not given:
        return _refuse(state, pilot, attempt, report, "no such attempt was handed out")
    if array.waiting:
        return _refuse(state, pilot, attempt, report, "its parents have not succeeded")
    if report.outcome != "succeeded":
        return _refuse(state, pilot, attempt, report, "a late failure is only counted")
    if array.spec.rerun is not Rerun.SAFE:
        return _refuse(
            state, pilot, attempt, report, f"a late success of a task with rerun={array.spec.rerun} does not count"
        )
    task = state.task_at(array, attempt.element)
    task.number = max(task.number, attempt.number)
    state.emit("task_adopted", task=attempt.task, attempt=attempt.number, pilot=pilot, how="late success")
    state.account(array, pilot, report.duration * array.spec.needs.cores, "useful", staging=report.staging)
    _succeed(state, pilot, task, attempt, report, None)
    return "adopted"


def _succeed(state: State, pilot: Pilot, task: Task, winner: AttemptId, report: Report, leased: float | None) -> None:
    array = task.array
    for other in task.live.values():
        holder = state.pilots.get(other.pilot)
        if other.id != winner and holder is not None:
            state.order(holder, Order("cancel", str(other.id), f"{winner.text} succeeded first"))
    for other in task.live.values():
        holder = state.pilots.get(other.pilot)
        if other.id != winner and holder is not None and other.running:
            other.took = (state.now - (other.started or other.leased)) * array.spec.needs.cores
            state.account(array, holder, other.took, "duplicated")
    task.cause = task.note = ""
    praise(state, pilot, array)
    state.learn(array, pilot, report.duration)
    _close(state, pilot, task, TaskState.SUCCEEDED, winner, report, leased)


def _close(
    state: State, pilot: Pilot, task: Task, to: TaskState, winner: AttemptId, report: Report, leased: float | None
) -> None:
    if task.state is TaskState.LEASED:
        advance(task, TaskState.RUNNING)
    state.make_final(task, to)
    text = f"{winner.number}@{winner.incarnation}"
    state.remember(task.id, text)
    state.write_task(task, report, pilot, winner=text, leased=leased)
    data: dict[str, Any] = {
        "state": to.value, "duration": report.duration, "host": pilot.host, "exit_code": report.exit_code, "cpu": report.cpu,
        "max_rss": report.max_rss, "started": report.started, "leased": leased,
    }  # fmt: skip
    if report.started is not None and abs(report.started + report.duration - state.now) > CLOCK_SKEW:
        data["clock_skew"] = round(report.started + report.duration - state.now)  # the host's clock is wrong [E56]
    if to is not TaskState.SUCCEEDED:
        data |= {
            "cause": task.cause, "message": task.note, "signal": report.signal, "stderr_tail": report.stderr_tail,
        }  # fmt: skip
    state.tell_final(task, report, pilot.owner)
    state.emit("task_finished", task=task.id, attempt=winner.number, pilot=pilot, **data)
    after_final(state, task.array, to)


def _fail(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> None:
    if len(task.live) > 1:
        # Another copy lives on and decides; this failure is statistics.
        state.drop_attempt(task, live.id)
        state.write_task(task)
        state.emit(
            "report_refused",
            task=task.id,
            attempt=live.id.number,
            pilot=pilot,
            why="another copy runs",
            cause=report.cause,
        )
        return
    found, step, past = weigh(state, pilot, task, report)
    task.cause, task.note = found.value, report.message
    if isinstance(step, Final):
        if step.cause is not found:
            task.cause, task.note = step.cause.value, f"{report.message}: {step.why}"
        _close(state, pilot, task, TaskState.FAILED, live.id, report, live.leased)
        return
    state.drop_attempt(task, live.id)
    note(task, past)  # after the drop: what it held was by its former needs
    if step.memory:
        task.note = f"{task.note}; tried again with {show_size(step.memory)}".lstrip("; ")
    send_elsewhere(state, pilot, task, step)
    state.back_to_ready(task)
    state.emit(
        "task_retried", task=task.id, attempt=live.id.number, pilot=pilot, cause=found.value, message=report.message,
        exit_code=report.exit_code, stderr_tail=report.stderr_tail, left=task.array.spec.retries - task.retries,
        burnt=step.burn, why=step.why,
    )  # fmt: skip


def _go_on_later(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> None:
    """It wrote a checkpoint: its next attempt goes on from there, wherever that is [G10]."""
    spec, params = task.array.spec, parameters(task.array.spec, task.element - task.array.first)
    if set(report.files) != {fill(name, params) if params else name for name in spec.checkpoint}:
        state.drop_attempt(task, live.id)  # no such thing was declared: as if it had been given back
        state.back_to_ready(task)
        return
    special = task.differences
    special.files, special.part = dict(report.files), special.part + 1
    task.note = report.message
    state.drop_attempt(task, live.id)
    if task.live:
        state.write_task(task)
    else:
        state.back_to_ready(task)
    state.emit(
        "task_checkpointed", task=task.id, attempt=live.id.number, pilot=pilot, part=special.part,
        files=len(special.files), seconds=report.duration, why=report.message,
    )  # fmt: skip


def _return(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> None:
    """The pilot gave the attempt back: nothing is burnt, unless it must never start twice."""
    started = report.started is not None
    state.emit("task_returned", task=task.id, attempt=live.id.number, pilot=pilot, why=report.message, started=started)
    if len(task.live) > 1:
        state.drop_attempt(task, live.id)
        state.write_task(task)
    elif started and task.array.spec.rerun is Rerun.NEVER:
        task.cause, task.note = Cause.PILOT_LOST.value, f"its pilot ended while it ran: {report.message}"
        _close(state, pilot, task, TaskState.LOST, live.id, report, live.leased)
    else:
        task.note = report.message
        state.drop_attempt(task, live.id)
        state.back_to_ready(task)
