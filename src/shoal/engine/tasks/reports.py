"""Reports and their verdicts: the attempt number is the fence [protocol 10; promise I2]. Each report gets one verdict.

recorded  it decided the task (a repeated report gets the same verdict)
adopted   an attempt given up as lost succeeded after all, and the task (safe) was not final
stale     it does not count; the task goes on without it
final     the task was final already
unknown   there is no such attempt here, or this pilot may not know of it

A report counts only from the pilot that held the attempt, or that is known to have been that pilot under another name
[ADR 0015].
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.engine.matching.chunks import carve, finish
from shoal.engine.matching.classes import Sample
from shoal.engine.matching.grant import attach
from shoal.engine.matching.visibility import mark_blind, need_directory
from shoal.engine.pilots.bans import record_failure, record_success
from shoal.engine.pilots.hosts import tally
from shoal.engine.pilots.lease_proofs import Proofs
from shoal.engine.records import MESH, Array, Attempt, Chunk, Pilot, Task
from shoal.engine.state import Settled, State
from shoal.engine.tasks.checkpoints import check_files, current, end_part, is_declared
from shoal.engine.tasks.divisible import learn_piece
from shoal.engine.tasks.failures import code_of, judge_failure, note, past_of, send_elsewhere
from shoal.engine.tasks.growth import note_outputs
from shoal.engine.tasks.kept_outputs import is_left_behind, keep_outputs
from shoal.engine.tasks.partial import settle
from shoal.engine.tasks.runs import abort_on, after_final, after_successes, notify_failure
from shoal.model.errors import BadInput, echo
from shoal.model.event import BEGUN_BY_SITE
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.limits import (
    ENDED_KEPT,
    MAX_BYTES,
    MAX_CONTENT,
    MAX_CONTRIBUTION,
    MAX_ELEMENT,
    MAX_FAILED_PLACES,
    MAX_FILES,
    MAX_PLACE_TEXT,
    MAX_REPORTS,
    MAX_RETURNS,
    MAX_SECONDS,
    MAX_SIGNAL,
    MAX_TIME,
)
from shoal.model.quantities import show_size
from shoal.model.states import Cause, Rerun, TaskState, advance
from shoal.model.task.visible import NOT_VISIBLE
from shoal.sched.ban import BURST
from shoal.sched.retry import Failure, Final, Terms, after_full_disk, next_part, remember
from shoal.wire.batches import report_of
from shoal.wire.chunk import shift
from shoal.wire.messages import GO_ON_LATER, ORIGINS, Batch, Exchange, Order, Report, Step, Verdict

CLOCK_SKEW = 3_600.0  # seconds that a host's clock may differ, or a report be late, before it is remarked
STEPS = ("prepare", "stage_in", "run", "stage_out")  # in this order
NO_SPACE = "no_space"  # evidence that a disk of the host is full
OUTCOMES = ("succeeded", "failed", "cancelled", "returned", "checkpointed")
ENDED = ("succeeded", "failed", "checkpointed")  # those of an attempt that went on to its end, or to a part of it
BEHIND = "it can only run behind its parents, of which this pilot did not report a success"
_CAUSES = {c.value for c in Cause}


def check(report: Report) -> AttemptId:
    """The attempt of a report; refuses a report that is out of bounds [input E54, E55]."""
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
    if report.files:
        check_files(report.files, "reports.files")
    check_emitted(report.emitted, "reports.emitted")
    is_good = _are_steps(report.steps) and _are_sizes(report.sizes) and (
        0 <= report.max_rss <= MAX_BYTES and 0 <= report.out <= MAX_BYTES and 0 <= report.err <= MAX_BYTES
        and 0 <= (report.signal or 0) <= MAX_SIGNAL and 0 <= report.duration <= MAX_SECONDS
        and 0 <= report.cpu <= MAX_BYTES and 0 <= report.staging <= MAX_SECONDS and 0 <= (report.started or 0.0) <= MAX_TIME
    )  # fmt: skip
    if not is_good:
        raise _no_number()
    return parse_attempt(report.attempt)


def _are_sizes(sizes: list[int]) -> bool:
    return len(sizes) <= MAX_FILES and all(0 <= size <= MAX_BYTES for size in sizes)


def _are_steps(steps: list[Step]) -> bool:
    return len(steps) <= len(STEPS) and all(
        step.name in STEPS and 0 <= step.seconds <= MAX_SECONDS and 0 <= step.files <= MAX_CONTENT
        and 0 <= step.bytes <= MAX_BYTES and len(step.origins) <= len(ORIGINS)
        and all(name in ORIGINS and 0 <= size <= MAX_BYTES for name, size in step.origins.items())
        and len(step.failed) <= MAX_FAILED_PLACES
        and all(len(place) <= MAX_PLACE_TEXT and len(why) <= MAX_PLACE_TEXT for place, why in step.failed.items())
        for step in steps
    )  # fmt: skip


def judge(state: State, pilot: Pilot, report: Report) -> str:
    """Handle one report; returns its verdict."""
    attempt = parse_attempt(report.attempt)
    if attempt in state.dying and state.dying[attempt].attempt.pilot in pilot.names:
        stopped(state, attempt)  # only the pilot that ran it can report that
    array = array_of(state, attempt)
    if array is None:
        return "recorded" if is_repeated(state, pilot, attempt) else "unknown"
    if attempt.element in array.done:
        if is_repeated(state, pilot, attempt):
            return "recorded"
        return "final" if state.serves(pilot, array.run.owner) else "unknown"
    holder = holder_of(array, attempt)
    if holder is None:
        return _late(state, pilot, array, attempt, report)
    if holder not in pilot.names:
        if not state.serves(pilot, array.run.owner):
            return "unknown"
        return _refuse(state, pilot, attempt, report, "it is leased to another pilot")
    task = task_of(state, array, attempt.element)
    if holder != pilot.name and holder.startswith(MESH):
        begin_windowed(state, pilot, task, task.live[attempt], has_ended=True)
    if (
        array.unmet and report.outcome in ENDED
    ):  # of a chain; a final task that is held begins no more, and this one began
        take_from(state, pilot, task.live[attempt], BEHIND)
        return _refuse(state, pilot, attempt, report, "its parents have not succeeded")
    return _decide(state, pilot, task, task.live[attempt], report)


def judge_all(state: State, pilot: Pilot, exchange: Exchange) -> list[Verdict]:
    """A verdict for each report; the attempts stay known for a while, since their last log lines may follow."""
    for report in exchange.reports:
        if pilot.holds(parse_attempt(report.attempt)):
            pilot.ended[report.attempt] = None
    while len(pilot.ended) > ENDED_KEPT:
        pilot.ended.popitem(last=False)
    ended: list[Report | Batch] = [*exchange.reports, *exchange.batches]
    if any(chunk.several for chunk in pilot.chunks.values()):
        ended.sort(key=lambda one: parse_attempt(one.attempt)[:2])  # in a chain parents come before who waits for them
    verdicts: list[Verdict] = []
    for one in ended:
        if isinstance(one, Report):
            verdicts.append(Verdict(one.attempt, judge(state, pilot, one)))
            continue
        judged = judge_batch(state, pilot, one)
        if any(verdict.verdict == "recorded" for verdict in judged):
            pilot.batches.append((parse_attempt(one.attempt), one.count))
        verdicts += judged
    return verdicts


def begin_windowed(state: State, pilot: Pilot, task: Task, live: Attempt, has_ended: bool) -> None:
    """A member of a mesh began an attempt of its window while the server was away: it is this pilot's from now on."""
    attach(state, task.array, live, pilot)
    window = state.windows.get((pilot.site, pilot.holder))
    if window is not None:
        window.note_adopted(live.id, state.now)
    state.emit(
        "task_adopted", task=task.id, attempt=live.id.number, pilot=pilot, how=BEGUN_BY_SITE, ended=has_ended
    )  # fmt: skip


def holder_of(array: Array, attempt: AttemptId) -> str | None:
    """The pilot that a live attempt is with; None if it is not live."""
    chunk = array.chunk_of(attempt.element)
    if chunk is not None:
        return chunk.pilot if chunk.attempt(attempt.element) == attempt else None
    task = array.tasks.get(attempt.element)
    live = task.live.get(attempt) if task is not None else None
    return live.pilot if live is not None else None


def task_of(state: State, array: Array, element: int) -> Task:
    """The task of an element; one that is in a chunk is carved out of it."""
    chunk = array.chunk_of(element)
    return carve(state, chunk, element) if chunk is not None else state.task_at(array, element)


def may_report(state: State, pilot: Pilot, attempt: AttemptId, proofs: Proofs) -> bool:
    """Is this attempt with the pilot, or was it, so that its report may count?"""
    array = array_of(state, attempt)
    if array is None or attempt.element in array.done:
        return False
    holder = holder_of(array, attempt)
    return holder in pilot.names if holder is not None else was_given(state, pilot, array, attempt, proofs)


def array_of(state: State, attempt: AttemptId) -> Array | None:
    """The array of an attempt, if its run is one of this history: a run of another may have the same number."""
    run = state.runs.get(attempt.run)
    return run.array_of(attempt.element) if run is not None and attempt.nonce == run.nonce else None


def was_given(state: State, pilot: Pilot, array: Array, attempt: AttemptId, proofs: Proofs | None) -> bool:
    """Was an attempt that is not live given to this pilot? By the record, or, where a crash may have cost the record, by
    what the pilot can prove."""
    task = array.tasks.get(attempt.element)
    holder = task.past.get(attempt) if task is not None else None
    if holder is not None:
        return holder in pilot.names
    if task is not None and array.run.base < attempt.number <= task.number:
        return False  # what became of it is on record: it is none of those that a crash forgot
    return attempt.incarnation < state.incarnation and proofs is not None and proofs.covers(attempt)


def judge_batch(state: State, pilot: Pilot, batch: Batch) -> list[Verdict]:
    """Take successes of neighbours in: those still in their chunk at once, the others one by one."""
    first = parse_attempt(batch.attempt)
    array = array_of(state, first)
    verdicts: list[Verdict] = []
    at = 0
    while at < batch.count:
        element = first.element + at
        if array is not None and element >= array.first + array.count:
            array = array.run.array_of(element)
        chunk = array.chunk_of(element) if array is not None else None
        mine = chunk is not None and chunk.attempt(element) == shift(first, at)
        if chunk is not None and mine and (chunk.pilot == pilot.name or chunk.pilot in pilot.former):
            high = min(chunk.left.reach(element), first.element + batch.count)
            high = _met_up_to(chunk, element, high)
        else:
            high = element
        if chunk is not None and high > element:
            finish(state, chunk, state.pilots[chunk.pilot], batch, at, element, high)
            settle(state, chunk.array.run, *batch.emitted[at : at + high - element])
            note_outputs(state, chunk.array, element, high)
            abort_on(state, chunk.array, element, 0)
            after_successes(state, chunk.array.run, chunk.array.run.arrays_of(element, high))
            verdicts.append(Verdict(str(shift(first, at)), "recorded", high - element))
            at += high - element
        else:
            report = report_of(batch, at)
            verdicts.append(Verdict(report.attempt, judge(state, pilot, report)))
            at += 1
    return verdicts


def _met_up_to(chunk: Chunk, low: int, high: int) -> int:
    """The first of elements low .. high - 1 of a chunk that waits for something else than those before it; `high`: none does."""
    over: set[int] = set()
    for array in chunk.array.run.arrays_of(low, high) if chunk.several else chunk.arrays:
        if not array.unmet <= over:
            return max(low, array.first)
        ended = min(high, array.first + array.count) - max(low, array.first)
        if array.succeeded + ended == array.count:
            over.add(array.first)
    return high


def check_batch(batch: Batch) -> None:
    """Refuse a batch that is out of bounds, or whose columns differ in length from its count."""
    if parse_attempt(batch.attempt).element + batch.count - 1 > MAX_ELEMENT:
        raise BadInput("a batch beyond the last element there can be", code="range", field="batches")
    columns: tuple[list[Any], ...] = (
        batch.started, batch.duration, batch.cpu, batch.max_rss, batch.last_line, batch.result, batch.out, batch.err,
        batch.emitted,
    )  # fmt: skip
    if not 1 <= batch.count <= MAX_REPORTS or any(len(column) not in (0, batch.count) for column in columns):
        raise BadInput("the columns of a batch differ in length", code="range", field="batches")
    mosts = (MAX_TIME, MAX_SECONDS, MAX_BYTES, MAX_BYTES, MAX_BYTES, MAX_BYTES)
    for text in batch.emitted:
        check_emitted(text, "batches.emitted")
    for column, most in zip((*columns[:4], *columns[6:8]), mosts, strict=True):
        if column and not (min(column) >= 0 and max(column) <= most):  # also false for what is no number
            raise _no_number()


def check_emitted(text: str, field: str) -> None:
    """Refuse more than any attempt may emit; what is in it is judged when it is merged."""
    if len(text) > MAX_CONTRIBUTION:
        raise BadInput("it emitted too much", code="range", field=field, hint=f"at most {MAX_CONTRIBUTION} characters")


def _no_number() -> BadInput:
    return BadInput("a number that no task can have", code="range", field="reports", hint="from 0 on, and not endless")


def stopped(state: State, attempt: AttemptId) -> None:
    """A cancelled copy is known to be dead: the task may be retried."""
    if attempt in state.dying:
        task = state.dying.pop(attempt).task
        left = [other.attempt for other in state.dying.values() if other.task is task]
        if task.id in state.settled:
            state.write_task(task, live=left)


def is_repeated(state: State, pilot: Pilot, attempt: AttemptId) -> bool:
    """True if this pilot settled the task by this attempt, and repeats its report."""
    settled = state.settled.get(attempt.task)
    return settled is not None and any(settled == Settled(attempt.winner, attempt.nonce, name) for name in pilot.names)


def _refuse(state: State, pilot: Pilot, attempt: AttemptId, report: Report, why: str) -> str:
    state.emit(
        "report_refused", task=attempt.task, attempt=attempt.number, pilot=pilot, why=why, outcome=report.outcome
    )
    return "stale"


def _decide(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> str:
    """A report of a live attempt."""
    was_not_sent = report.evidence == NOT_VISIBLE and report.outcome == "failed"
    if was_not_sent and is_left_behind(task.array, task.id.element) and need_directory(state, task.array):
        # What it reads was written where the submitter's files are seen: it waits for a pilot there, and nothing is burnt.
        report = replace(report, outcome="returned")
    live.took = report.duration * live.needs.cores
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
        is_blind = report.evidence == NOT_VISIBLE and mark_blind(state, pilot, state.queue.class_of(task.array))
        has_to = task.array.waiting  # its parents did not succeed there
        _return(state, pilot, task, live, report)
        if not (is_blind or has_to):
            _count_return(state, pilot, live, report)
    return "recorded"


def _account(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report, fate: str) -> None:
    queued = max(0.0, live.leased - task.array.since) if live.id.number <= task.array.run.base + 1 else 0.0
    state.account(task.array, pilot, live.took or 0.0, fate, 1, queued, report.staging)


def _late(state: State, pilot: Pilot, array: Array, attempt: AttemptId, report: Report) -> str:
    """A report of an attempt that is not live: only a success can still count, only for a safe task [promise R4]."""
    if not state.serves(pilot, array.run.owner):
        return "unknown"  # another's: as if it were not there [promise I16]
    if not was_given(state, pilot, array, attempt, pilot.proofs):
        return _refuse(state, pilot, attempt, report, "this pilot has no such attempt, or it is over")
    if array.waiting:
        return _refuse(state, pilot, attempt, report, "its parents have not succeeded")
    if report.outcome != "succeeded":
        return _refuse(state, pilot, attempt, report, "a late failure is only counted")
    if array.spec.rerun is not Rerun.SAFE:
        return _refuse(
            state, pilot, attempt, report, f"a late success of a task with rerun={array.spec.rerun} does not count"
        )
    task = task_of(state, array, attempt.element)
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
            other.took = (state.now - (other.started or other.leased)) * other.needs.cores
            state.account(array, holder, other.took, "duplicated")
    task.cause, task.note = "", report.message  # on a success it says what is not whole
    record_success(state, pilot, array)
    if array.spec.units is not None and task.special is not None and task.special.files:
        pass  # it went on from a checkpoint: how long all of it takes is not known
    elif array.spec.units is not None:
        learn_piece(state, array, pilot, report)
    else:
        state.learn(array, pilot, Sample(report.duration, report.max_rss, report.out + report.err))
    settle(state, array.run, report.emitted)
    keep_outputs(array, winner.element, report.result)
    note_outputs(state, array, winner.element, winner.element + 1, report.sizes, report.result)
    _close(state, pilot, task, TaskState.SUCCEEDED, winner, report, leased)


def _close(
    state: State, pilot: Pilot, task: Task, to: TaskState, winner: AttemptId, report: Report, leased: float | None
) -> None:
    if task.state is TaskState.LEASED:
        advance(task, TaskState.RUNNING)
    state.make_final(task, to)
    state.remember(task.id, winner.winner, winner.nonce, pilot.name)
    state.write_task(task, report, pilot, winner=winner.winner, leased=leased)
    data: dict[str, Any] = {
        "state": to.value, "duration": report.duration, "host": pilot.host, "exit_code": report.exit_code, "cpu": report.cpu,
        "max_rss": report.max_rss, "started": report.started, "leased": leased,
    }  # fmt: skip
    if report.started is not None and abs(report.started + report.duration - state.now) > CLOCK_SKEW:
        # the host's clock is wrong [input E56]
        data["clock_skew"] = round(report.started + report.duration - state.now)
    for place, why in (pair for step in report.steps for pair in step.failed.items()):
        state.emit("place_failed", task=task.id, attempt=winner.number, pilot=pilot, place=place, why=why)
    if report.steps:
        data["steps"] = [{**vars(step)} for step in report.steps]
    if to is TaskState.SUCCEEDED and task.note:
        data["message"] = task.note
    elif to is not TaskState.SUCCEEDED:
        data |= {
            "cause": task.cause, "message": task.note, "signal": report.signal, "stderr_tail": report.stderr_tail,
        }  # fmt: skip
    state.announce_final(task, report, pilot.owner)
    state.emit("task_finished", task=task.id, attempt=winner.number, pilot=pilot, **data)
    notify_failure(state, task)
    if to in (TaskState.SUCCEEDED, TaskState.FAILED):
        abort_on(state, task.array, task.element, code_of(report))
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
    pilot.returns = 0
    found, step, past = judge_failure(state, pilot, task, report)
    task.cause, task.note = found.value, report.message
    if isinstance(step, Final):
        if step.cause is not found:
            task.cause, task.note = step.cause.value, f"{report.message}: {step.why}"
        elif found is Cause.OUT_OF_MEMORY and (past.raises or task.spec.max_memory):
            task.note = f"{report.message}; {step.why}"
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
        exit_code=report.exit_code, stderr_tail=report.stderr_tail, left=task.spec.retries - task.retries,
        burnt=step.burn, why=step.why, memory=step.memory or 0, seconds=report.duration,
    )  # fmt: skip


def _go_on_later(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> None:
    """It wrote a checkpoint: its next attempt goes on from there, wherever that is [GWP G10]."""
    if not is_declared(task, report.files) or live is not current(task):
        # No such thing was declared, or a newer attempt is under way: as if it had been given back.
        _return(state, pilot, task, live, report)
        _count_return(state, pilot, live, report)
        return
    special = task.differences
    progressed = end_part(task, live, report) or report.exit_code != GO_ON_LATER
    special.idle_parts, end = next_part(special.idle_parts, progressed)
    task.note, pilot.returns = report.message, 0
    if end is not None and len(task.live) == 1:
        task.cause, task.note = end.cause.value, f"{report.message}: {end.why}".lstrip(": ")
        _close(state, pilot, task, TaskState.FAILED, live.id, report, live.leased)
        return
    state.drop_attempt(task, live.id)
    if task.live:
        state.write_task(task)
    else:
        state.back_to_ready(task)
    state.emit(
        "task_checkpointed", task=task.id, attempt=live.id.number, pilot=pilot, part=special.part,
        files=len(special.files), seconds=report.duration, why=report.message,
    )  # fmt: skip


def take_from(state: State, pilot: Pilot, live: Attempt, why: str) -> None:
    """An attempt is taken from its pilot as if it had given it back before it began."""
    _return(state, pilot, state.task_of(live.id), live, Report(str(live.id), "returned", message=why))


def give_up(state: State, pilot: Pilot, live: Attempt, why: str) -> None:
    """A living pilot neither holds nor reports an attempt that is leased to it, which would never end [promise I8]. It
    counts as given back, and as begun, since that is not known."""
    report = Report(str(live.id), "returned", message=why, started=0.0)
    _return(state, pilot, state.task_of(live.id), live, report)


def _return(state: State, pilot: Pilot, task: Task, live: Attempt, report: Report) -> None:
    """The pilot gave the attempt back: nothing is burnt, unless it must never start twice, or runs into a full disk
    again and again: it may be the task that fills them."""
    started, is_never = report.started is not None, task.array.spec.rerun is Rerun.NEVER
    is_its_own = report.duration > 0 or report.staging > 0  # not just a disk that was full before it began
    ran_full = report.evidence == NO_SPACE and is_its_own and len(task.live) == 1 and not is_never
    if ran_full and _count_full_disk(task, report):
        _close(state, pilot, task, TaskState.FAILED, live.id, report, live.leased)
        return
    # A pilot whose guard was killed cannot say how long it ran; that it began, and when, was told before.
    ran = state.now - live.started if started and live.running and live.started is not None else 0.0
    state.emit(
        "task_returned", task=task.id, attempt=live.id.number, pilot=pilot, why=report.message, started=started,
        seconds=report.duration or ran,
    )  # fmt: skip
    if len(task.live) > 1:
        state.drop_attempt(task, live.id)
        state.write_task(task)
    elif started and is_never:
        task.cause, task.note = Cause.PILOT_LOST.value, f"its pilot ended while it ran: {report.message}"
        report = replace(report, started=report.started or None)  # 0: the pilot does not know any more when
        _close(state, pilot, task, TaskState.LOST, live.id, report, live.leased)
    else:
        task.note = report.message
        state.drop_attempt(task, live.id)
        state.back_to_ready(task)


def _count_full_disk(task: Task, report: Report) -> bool:
    """Count an attempt that ran until the disk was full; True: the task ends by it."""
    past = past_of(task)
    step = after_full_disk(Terms(task.spec.retries), past)
    if isinstance(step, Final):
        task.cause, task.note = step.cause.value, f"{report.message}: {step.why}"
        return True
    note(task, remember(past, Cause.HOST_UNFIT, Failure(), step))
    return False


def _count_return(state: State, pilot: Pilot, live: Attempt, report: Report) -> None:
    """Ban a pilot that gives everything back without an order and begins nothing: it would be leased the same for ever."""
    is_asked = max(pilot.asked_back, pilot.asked_move) >= live.leased or pilot.draining
    has_run = report.started is not None and report.duration > 0
    if is_asked or has_run or any(attempt.running for attempt in pilot.live.values()):
        return
    if pilot.returned_at != pilot.seq:
        pilot.returned_at, pilot.returns = pilot.seq, pilot.returns + 1
        if pilot.returns >= MAX_RETURNS:
            reason = f"it gave back what it was leased {pilot.returns} times in a row: {report.message}"
            record_failure(state, pilot, reason, failures=BURST + 1)
