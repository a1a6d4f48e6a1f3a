"""What follows a failed attempt: whose fault it was, and what is done with the task [protocol 4]. Decided by `sched.cause`
and `sched.retry`, carried out here.
"""

from __future__ import annotations

from shoal.engine.matching.eligibility import eligibility_of, other_pilots, other_sites
from shoal.engine.pilots.bans import end_probes, record_failure, retract_failures, views
from shoal.engine.records import Pilot, Task
from shoal.engine.state import State
from shoal.engine.task_overrides import FailedAt
from shoal.model.states import Cause
from shoal.model.task.spec import Spec
from shoal.model.task.visible import NOT_VISIBLE
from shoal.sched.failure_cause import OWN_SITES, FailureFacts, Whose, decide
from shoal.sched.fit import misfit
from shoal.sched.retry import Failure, Final, History, Retry, Terms, counts_against_site, next_step, remember
from shoal.wire.messages import TOO_LARGE, Report


def judge_failure(state: State, pilot: Pilot, task: Task, report: Report) -> tuple[Cause, Final | Retry, History]:
    """Why an attempt failed, the next step, and the history of the task after it. Failures are counted against places, or
    retracted, on the way."""
    array, accounting, host, site = task.array, state.accounting, pilot.host, pilot.site
    spec, special, owner = task.spec, task.differences, task.array.run.owner
    evidence = accounting.evidence_of(pilot.holder)
    kinds, setups = evidence.kinds, evidence.setups
    cls = state.queue.class_of(array)
    cause = decide(
        FailureFacts(
            _believable(report.cause, spec), report.exit_code, report.signal, report.max_rss, task.needs.memory,
            report.evidence, report.duration, spec.time,
        )
    )  # fmt: skip
    others = other_pilots(state, pilot, cls) if cause not in (Cause.OUT_OF_MEMORY, Cause.OUTPUT_MISSING) else []
    hosts, sites = {other.host for other in others}, other_sites(state, pilot, others)
    untried = sites - set(special.avoid_sites)
    whose, setup_failed, has_untried_site = Whose.TASK, 0, False
    is_exception = cause is Cause.TASK_ERROR and bool(spec.function)  # an exception is always the task's own
    kept = views(state, owner, pilot.holder, host, site)
    if cause in (Cause.TASK_ERROR, Cause.SIGNAL) and not is_exception:
        for known, its_host, its_site in kept:
            known.kinds.fail(array.trait, its_host, state.now, its_site, bool(sites))
        has_untried_site = bool(untried) and kinds.is_in_doubt(array.trait, site)
        left = {other.host for other in others if not special.avoids(other.host, other.site)}
        failed_on = [failed.host for failed in special.failed_at]
        whose = kinds.whose(array.trait, host, len(left), failed_on, has_untried_site)
    elif cause is Cause.OVER_TIME:
        for known, _, its_site in kept:
            known.kinds.over_time(array.trait, its_site)
        is_doubtful = not kinds.times(array.trait, site)[0] and not kinds.is_late_everywhere(array.trait)
        has_untried_site = bool(untried) and is_doubtful
        if has_untried_site:
            whose = Whose.HOST if kinds.is_slow(array.trait, site) else Whose.OPEN
    elif cause is Cause.HOST_UNFIT:
        for known, its_host, its_site in kept:
            known.setups.fail(array.trait, its_host, state.now, its_site, bool(sites))
        setup_failed = setups.failed_hosts(array.trait)
        has_untried_site = bool(untried) and setups.failed_sites(array.trait) < OWN_SITES
        whose = Whose.HOST if setups.worked(array.trait) else Whose.OPEN
    largest = max((p.room.memory for p in state.pilots.values() if state.serves(p, owner)), default=0)
    memory = accounting.policy.memory
    hosts_left = None
    if cause is Cause.STAGE_IN and report.evidence in (TOO_LARGE, NOT_VISIBLE):  # it can begin on some hosts only
        hosts_left = len({other.host for other in others if not special.avoids(other.host, other.site)} - {host})
    failure = Failure(
        whose, report.max_rss, largest, len(hosts) + 1, max(1, setup_failed), setups.worked(array.trait),
        is_end=cause in (Cause.TASK_ERROR, Cause.SIGNAL) and code_of(report) in (*spec.unless_exit, *spec.abort_on),
        hosts_left=hosts_left, has_untried_site=has_untried_site,
    )  # fmt: skip
    terms = Terms(spec.retries, spec.rerun, spec.needs.memory, memory.factor, memory.cap, spec.max_memory)
    past = past_of(task)
    step = next_step(cause, terms, past, failure)
    if cause is Cause.OVER_TIME and whose is Whose.HOST:
        reason = f"tasks run over their time of {spec.time:g} s here and fit into it at other sites"
        record_failure(state, pilot, reason, since=state.now - report.duration, is_sites=True)
    elif whose is Whose.HOST:
        record_failure(state, pilot, _reason(pilot, cause, report), max(1, kinds.in_row(host)))
    elif cause is Cause.OVER_TIME and counts_against_site(*kinds.times(array.trait, site)):
        record_failure(state, pilot, f"a task ran over its time of {spec.time:g} s, others of its kind do not")
    elif isinstance(step, Final) and special.failed_at:
        retract_failures(state, owner, array.trait, special.failed_at)
    evidence.places.release(pilot.name, host, site)
    return cause, step, remember(past, cause, failure, step) if isinstance(step, Retry) else past


def code_of(report: Report) -> int | None:
    """How an attempt ended, as `unless_exit` and `abort_on` name it: its exit code, or the number of a signal below 0."""
    if report.outcome == "succeeded":
        return report.exit_code or 0
    return -report.signal if report.signal else report.exit_code


def _believable(cause: str, spec: Spec) -> str:
    """The cause that a pilot gives, if it can be true: what has no time limit cannot be over it, and that a task kills
    pilots or that its parents failed only the server knows. Anything else is decided by the other evidence."""
    if cause in (Cause.POISON, Cause.DEPENDENCY_FAILED) or (cause == Cause.OVER_TIME and spec.time is None):
        return ""
    return cause


def note(task: Task, past: History) -> None:
    """Keep the history of a task."""
    special = task.differences
    task.retries = past.burnt
    special.refunds, special.stagings, special.raises = past.refunds, past.stagings, past.raises
    special.memory, special.base = past.memory, past.base


def send_elsewhere(state: State, pilot: Pilot, task: Task, step: Retry) -> None:
    """Have its next try made on another host, or at another site, if there is one."""
    special = task.differences
    if not step.elsewhere:
        return
    others = other_pilots(state, pilot, state.queue.class_of(task.array))
    if not any(not special.avoids(p.host, p.site) and p.host != pilot.host for p in others):
        return
    special.failed_at.append(FailedAt(pilot.host, pilot.site, pilot.holder))
    if step.other_site and pilot.site not in special.avoid_sites:
        special.avoid_sites.append(pilot.site)
    if pilot.host not in special.avoid:
        special.avoid.append(pilot.host)
    state.avoiding[task.id] = task


def past_of(task: Task) -> History:
    """The history of a task."""
    found = task.special
    if found is None:
        return History(task.retries)
    return History(task.retries, found.refunds, found.stagings, found.raises, found.memory, found.base)


def _reason(pilot: Pilot, cause: Cause, report: Report) -> str:
    """Why a failure counts against a place; a group's other members must not read a task's message."""
    if pilot.group:
        return f"{cause}, exit code {report.exit_code}" if report.exit_code is not None else str(cause)
    return f"{cause}: {report.message}" if report.message else str(cause)


def release_avoiding(state: State) -> None:
    """Tasks that avoid hosts, and for which there is no other any more, may go back to them: waiting would be worse."""
    for key, task in list(state.avoiding.items()):
        array, special = task.array, task.special
        if array.tasks.get(task.element) is not task or special is None or not (special.avoid or special.avoid_sites):
            del state.avoiding[key]  # it is final, or was retried by hand since
            continue
        if task.element not in array.todo:
            continue
        here = _able(state, task)
        left = [p for p in here if not special.avoids(p.host, p.site)]
        if special.avoid_sites and all(state.ban_of(p) is not None for p in left):
            left = [] if any(state.ban_of(p) is None for p in here) else left  # a banned site takes no task soon
        if not left and special.avoid_sites and any(p.host not in special.avoid for p in here):
            array.apart.pop(task.element, None)
            special.avoid_sites = []  # no other site is left, but another host is
            state.offer_back(task)
            state.write_task(task)
        elif here and not left:
            del state.avoiding[key]
            array.apart.pop(task.element, None)
            special.avoid, special.avoid_sites, special.failed_at = [], [], []
            task.note = f"{task.note}; no other host is left to try it on".lstrip("; ")
            state.offer_back(task)
            state.write_task(task)
    end_probes(state)


def _able(state: State, task: Task) -> list[Pilot]:
    """Pilots that could run a task if it avoided nothing."""
    owner, cls = task.array.run.owner, state.queue.class_of(task.array)
    return [
        pilot
        for pilot in state.pilots.values()
        if not pilot.draining
        and state.serves(pilot, owner)
        and misfit(task.needs, pilot.room) is None
        and cls in eligibility_of(state, pilot, owner)
    ]
