"""Retry policy: what follows a failure is another attempt, here or elsewhere, with more memory, free or not; or the end.

The engine keeps a small `History` for each task that failed, calls `next_step`, and keeps what `remember` returns. Every
free attempt is counted, so that no task goes on for ever.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Union

from shoal.model.quantities import show_size
from shoal.model.states import Cause, Rerun
from shoal.sched.failure_cause import Whose

MAX_REFUNDS = 3  # failures of one task that were the host's fault, or may have been; the next one burns a retry
MAX_RAISES = 10  # times that one task gets more memory, however small the steps are
SETUP_HOSTS = 3  # hosts on which the same setup lines must fail before they are the task's own error
MAX_IDLE_PARTS = 3  # parts of a task with checkpoints in a row that brought it no further; then it ends
FIT_SHARE = 0.8  # of a kind's tasks that must finish in time at a site before one that does not counts against the site


class Terms(NamedTuple):
    """What the submitter asked for, and the policy's rule of memory."""

    retries: int = 0
    rerun: Rerun = Rerun.SAFE
    memory: int = 0  # bytes asked for; 0: none
    factor: float = 2.0  # more memory at each try
    cap: float = 4.0  # times what was asked for, at most
    most: int = 0  # bytes that it may be given at most; 0: not stated


class History(NamedTuple):
    """Earlier failures of a task."""

    burnt: int = 0  # retries
    refunds: int = 0
    stagings: int = 0  # free tries after a failed stage-in
    raises: int = 0  # of memory
    memory: int = 0  # bytes it is given now; 0: what was asked for
    base: int = 0  # bytes that the cap is counted from, if none were asked for


class Failure(NamedTuple):
    """What is known about the failure and the pool."""

    whose: Whose = Whose.TASK  # by `Kinds.whose`
    max_rss: int = 0
    largest: int = 0  # bytes of memory of the largest host it may go to; 0: not known
    hosts: int = 1  # that could run it, this one included
    setup_failed: int = 1  # hosts on which the same setup lines fail, this one included (`Kinds.failed_hosts`)
    setup_worked: bool = False  # did they ever work anywhere? (`Kinds.worked`)
    hosts_left: Optional[int] = None  # set: this host cannot have an input; others that are left
    is_end: bool = False  # its exit code is one after which the submitter wants no other attempt
    has_untried_site: bool = False  # the site is in doubt, and another one could run it where it was not tried yet


class Final(NamedTuple):
    """It ends here."""

    cause: Cause
    why: str


class Retry(NamedTuple):
    """It is tried again."""

    burn: bool  # one of its retries is used up
    elsewhere: bool  # on another host, if there is one
    memory: Optional[int]  # bytes it gets from now on, if that changes
    why: str
    other_site: bool = False  # at another site, that is


Step = Union[Final, Retry]

_ENDS = frozenset({Cause.POISON, Cause.CANCELLED, Cause.DEPENDENCY_FAILED})
_MAYBE_HOSTS = frozenset({Cause.TASK_ERROR, Cause.SIGNAL, Cause.STAGE_OUT})
_BETTER_ELSEWHERE = frozenset({Cause.OVER_TIME, Cause.STAGE_IN, Cause.STAGE_OUT, Cause.PILOT_LOST})


def next_step(cause: Cause, terms: Terms, past: History, failure: Failure) -> Step:
    """What to do after an attempt that ended by this cause."""
    step = _next_step(cause, terms, past, failure)
    if isinstance(step, Retry) and step.elsewhere and failure.has_untried_site:
        return step._replace(other_site=True)
    return step


def _next_step(cause: Cause, terms: Terms, past: History, failure: Failure) -> Step:
    if cause in _ENDS:
        return Final(cause, "it is not to run again")
    if failure.is_end:
        return Final(cause, "no retry follows this exit code")
    if terms.rerun is Rerun.NEVER:
        return Final(cause, "it must not run twice (rerun=never)")
    if cause is Cause.OUT_OF_MEMORY:
        return _more_memory(terms, past, failure)
    if cause is Cause.HOST_UNFIT:
        return _unfit(terms, past, failure)
    if cause is Cause.STAGE_IN and failure.hosts_left is not None:
        if failure.hosts_left:
            return Retry(False, True, None, "another host may have its input")
        return Final(cause, "no other host is left to try it on")
    if cause is Cause.STAGE_IN and not past.stagings:
        return Retry(False, True, None, "its input may arrive elsewhere")
    is_slow_site = cause is Cause.OVER_TIME and failure.has_untried_site
    in_doubt = (cause in _MAYBE_HOSTS or is_slow_site) and failure.whose is not Whose.TASK
    if (in_doubt or cause is Cause.PILOT_LOST) and past.refunds < MAX_REFUNDS:
        if cause is Cause.PILOT_LOST:
            return Retry(False, True, None, "its pilot was lost")
        place = "site" if failure.has_untried_site else "host"
        known = failure.whose is Whose.HOST
        return Retry(
            False, True, None, f"the {place} is at fault" if known else f"another {place} will show whose it is"
        )
    return _burn(cause, terms, past, in_doubt or cause in _BETTER_ELSEWHERE)


def remember(past: History, cause: Cause, failure: Failure, step: Retry) -> History:
    """The history of a task after this step."""
    if step.burn:
        past = past._replace(burnt=past.burnt + 1)
    if step.memory is not None:
        return past._replace(raises=past.raises + 1, memory=step.memory, base=past.base or failure.max_rss)
    if not step.burn and cause is Cause.STAGE_IN:
        return past._replace(stagings=past.stagings + 1)
    if not step.burn:
        return past._replace(refunds=past.refunds + 1)
    return past


def next_part(idle: int, progressed: bool) -> tuple[int, Optional[Final]]:
    """What follows a part that wrote a checkpoint: how many parts in a row brought the task no further, `idle` before
    this one, and its end if those are too many. Each part is free, so one that never gets on would go on for ever."""
    idle = 0 if progressed else idle + 1
    if idle < MAX_IDLE_PARTS:
        return idle, None
    return idle, Final(Cause.TASK_ERROR, f"{idle} parts in a row left its checkpoint as it was")


def after_full_disk(terms: Terms, past: History) -> Step:
    """What follows an attempt that ran until a disk of its host was full: a free try, but not for ever, since it may be
    the task that fills the disks."""
    if past.refunds < MAX_REFUNDS:
        return Retry(False, True, None, "the disk of its host is full")
    return _burn(Cause.HOST_UNFIT, terms, past, True)


def counts_against_site(in_time: int, over: int) -> bool:
    """Is a task over its time, counted in `over`, the site's fault [SPHINX S8]? Only if most others of its kind fit in
    time there: a limit that is too short for everybody is the task's own. Takes `Kinds.times`."""
    return in_time > 0 and in_time >= FIT_SHARE * (in_time + over)


def _burn(cause: Cause, terms: Terms, past: History, elsewhere: bool) -> Step:
    left = terms.retries - past.burnt
    if left <= 0:
        return Final(cause, "no retries are left" if terms.retries else "it has no retries")
    return Retry(True, elsewhere, None, f"{left - 1} more after this one" if left > 1 else "this is its last retry")


def _more_memory(terms: Terms, past: History, failure: Failure) -> Step:
    """More memory at each try, at no cost, up to the cap or the largest host; then it ends."""
    now = past.memory or terms.memory or failure.max_rss
    if not now:
        return _burn(Cause.OUT_OF_MEMORY, terms, past, True)  # no figure to start from
    limit = int(terms.cap * (terms.memory or past.base or now))
    reason = f"{terms.cap:g} times what it asked for" if terms.memory else f"{terms.cap:g} times what it used first"
    if failure.largest and failure.largest < limit:
        limit, reason = failure.largest, "what the largest host has"
    if terms.most and terms.most <= limit:
        limit, reason = terms.most, "its max_memory"
    more = min(limit, int(now * terms.factor))
    if more <= now or past.raises >= MAX_RAISES:
        had = [terms.memory or past.base or now]
        while had[-1] < now and len(had) <= MAX_RAISES:
            had.append(min(now, int(had[-1] * terms.factor)))
        tries = f"its attempts had {', '.join(map(show_size, had))}" if len(had) > 1 else f"it had {show_size(now)}"
        return Final(Cause.OUT_OF_MEMORY, f"{tries}, and more than {reason} is not tried")
    return Retry(False, False, more, f"{show_size(more)} instead of {show_size(now)}")


def _unfit(terms: Terms, past: History, failure: Failure) -> Step:
    """Not the task's fault, until the same lines failed on three hosts, or on all there are, and worked nowhere."""
    is_everywhere = failure.setup_failed >= min(SETUP_HOSTS, max(1, failure.hosts)) and not failure.has_untried_site
    if not failure.setup_worked and is_everywhere:
        many = f"on {failure.setup_failed} hosts" if failure.setup_failed > 1 else "on the only host"
        return Final(Cause.TASK_ERROR, f"its setup failed {many} and worked on none")
    if past.refunds < MAX_REFUNDS:
        return Retry(False, True, None, "the host is unfit for it")
    return _burn(Cause.HOST_UNFIT, terms, past, True)
