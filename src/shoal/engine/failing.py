"""What follows a failed attempt: whose fault it was by the evidence, and what is done with the task [contract 4, B7].

`sched.cause` and `sched.retry` decide; here the decision is carried out.
"""

from __future__ import annotations

from shoal.engine.blame import blame, end_probes, forgive
from shoal.engine.menus import menu_of, other_hosts
from shoal.engine.records import Pilot, Task
from shoal.engine.state import State
from shoal.model.spec import Spec
from shoal.model.states import Cause
from shoal.sched.cause import Facts, Whose, decide
from shoal.sched.match import misfit
from shoal.sched.retry import Final, Past, Retry, Scene, Terms, counts_against_site, next_step, remember
from shoal.wire.messages import Report


def weigh(state: State, pilot: Pilot, task: Task, report: Report) -> tuple[Cause, Final | Retry, Past]:
    """Why an attempt failed, what is to follow, and what the task has behind it then. Places are blamed, or forgiven,
    on the way."""
    array, books, host = task.array, state.books, pilot.host
    spec, special = array.spec, task.differences
    cls = state.queue.class_of(array)
    cause = decide(
        Facts(
            _believable(report.cause, spec), report.exit_code, report.signal, report.max_rss, task.needs.memory, 0,
            report.evidence, report.duration, spec.time,
        )
    )  # fmt: skip
    others = other_hosts(state, pilot, cls) if cause not in (Cause.OUT_OF_MEMORY, Cause.OUTPUT_MISSING) else set()
    whose, setup_failed = Whose.TASK, 0
    is_own_word = cause is Cause.TASK_ERROR and bool(spec.function)  # an exception is never in doubt
    if cause in (Cause.TASK_ERROR, Cause.SIGNAL) and not is_own_word:
        books.kinds.fail(array.trait, host, state.now)
        whose = books.kinds.whose(array.trait, host, len(others - set(special.avoid)), special.avoid)
    elif cause is Cause.OVER_TIME:
        books.kinds.over_time(array.trait, pilot.site)
    elif cause is Cause.HOST_UNFIT:
        books.setups.fail(array.trait, host, state.now)
        setup_failed = books.setups.failed_hosts(array.trait)
        whose = Whose.HOST if books.setups.worked(array.trait) else Whose.OPEN
    largest = max((p.room.memory for p in state.pilots.values() if state.serves(p, array.run.owner)), default=0)
    memory = books.policy.memory
    scene = Scene(
        whose, True, report.max_rss, largest, len(others) + 1, max(1, setup_failed), books.setups.worked(array.trait)
    )
    terms = Terms(spec.retries, spec.rerun, spec.needs.memory, memory.factor, memory.cap)
    past = past_of(task)
    step = next_step(cause, terms, past, scene)
    if whose is Whose.HOST:
        blame(state, pilot, _reason(cause, report), max(1, books.kinds.in_row(host)))
    elif cause is Cause.OVER_TIME and counts_against_site(*books.kinds.times(array.trait, pilot.site)):
        blame(state, pilot, f"a task ran over its time of {spec.time:g} s, others of its kind do not")
    elif isinstance(step, Final) and special.avoid:
        forgive(state, array.trait, special.avoid)
    books.places.release(pilot.name, host, pilot.site)
    return cause, step, remember(past, cause, scene, step) if isinstance(step, Retry) else past


def _believable(cause: str, spec: Spec) -> str:
    """The cause that a pilot gives, if it can be true: what has no time limit cannot be over it, and that a task kills
    pilots or that its parents failed only the server knows. Anything else is decided by the other evidence."""
    if cause in (Cause.POISON, Cause.DEPENDENCY_FAILED) or (cause == Cause.OVER_TIME and spec.time is None):
        return ""
    return cause


def note(task: Task, past: Past) -> None:
    """Keep what a task has behind it now."""
    special = task.differences
    task.retries = past.burnt
    special.refunds, special.stagings, special.raises = past.refunds, past.stagings, past.raises
    special.memory, special.base = past.memory, past.base


def send_elsewhere(state: State, pilot: Pilot, task: Task, step: Retry) -> None:
    """Have its next try made on another host, if there is one."""
    special = task.differences
    others = other_hosts(state, pilot, state.queue.class_of(task.array)) if step.elsewhere else set()
    if others - set(special.avoid) and pilot.host not in special.avoid:
        special.avoid.append(pilot.host)
        state.avoiding[task.id] = task


def past_of(task: Task) -> Past:
    """What a task has behind it."""
    found = task.special
    if found is None:
        return Past(task.retries)
    return Past(task.retries, found.refunds, found.stagings, found.raises, found.memory, found.base)


def _reason(cause: Cause, report: Report) -> str:
    return f"{cause}: {report.message}" if report.message else str(cause)


def let_back(state: State) -> None:
    """Tasks that avoid hosts, and for which there is no other any more, may come back to them: waiting would be worse.
    And a place whose probe told nothing may be tried again."""
    for key, task in list(state.avoiding.items()):
        array, special = task.array, task.special
        if array.tasks.get(task.element) is not task or special is None or not special.avoid:
            del state.avoiding[key]  # it is final, and what stands there now may be another try of a person's
            continue
        if task.element not in array.todo:
            continue
        here = _able(state, task)
        if here and all(p.host in special.avoid for p in here):
            del state.avoiding[key]
            array.apart.pop(task.element, None)
            special.avoid = []
            task.note = f"{task.note}; no other host is left to try it on".lstrip("; ")
            state.offer_back(task)
            state.write_task(task)
    end_probes(state)


def _able(state: State, task: Task) -> list[Pilot]:
    """Pilots that could run a task if it avoided nothing."""
    owner, cls = task.array.run.owner, state.queue.class_of(task.array)
    line = state.queue.lines[owner]
    return [
        pilot
        for pilot in state.pilots.values()
        if not pilot.draining
        and state.serves(pilot, owner)
        and misfit(task.needs, pilot.room) is None
        and cls in menu_of(state, pilot, line)
    ]
