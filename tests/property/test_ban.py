"""Bans grow and are bounded, successes always clear, a task that fails everywhere bans nobody, retries come to an end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.states import Cause, Rerun
from shoal.sched.ban import BURST, Places, Streak, fail, is_banned
from shoal.sched.failure_cause import Kinds, Whose
from shoal.sched.retry import MAX_RAISES, MAX_REFUNDS, Failure, Final, History, Retry, Terms, next_step, remember

_STEPS = st.lists(st.floats(0, 1e5), min_size=1, max_size=40)
_LONGEST, _SCALE = st.floats(0, 1e6), st.floats(0, 1e6)


@given(_STEPS, _LONGEST, _SCALE)
def test_a_ban_never_shrinks_while_the_streak_goes_on_and_never_exceeds_the_longest(
    steps: list[float], longest: float, scale: float
) -> None:
    streak: Streak | None = None
    now = before = until = 0.0
    for step in steps:
        now += step
        streak = fail(streak, now, "x", longest, scale)
        length = streak.until - streak.latest
        assert before - 1e-6 <= length <= longest + 1e-6 and streak.until >= until
        before, until = length, streak.until
        assert not is_banned(streak, now + longest + 1e-3)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.floats(0, 1e4)), max_size=60), st.integers(1, 40))
def test_a_success_always_clears_and_what_is_loaded_says_the_same(
    story: list[tuple[int, bool, float]], kept: int
) -> None:
    places, now = Places(3_600.0, 600.0, kept), 0.0
    for host, good, step in story:
        now += step
        where = (f"p{host}", f"h{host}", f"s{host % 2}")
        if good:
            places.clear(*where)
            assert places.verdict(*where, now) is None
        else:
            told = places.blame(*where, now, "x", 3)
            assert not told or places.verdict(*where, now) is not None or kept < 3
        assert len(places.streaks) <= kept
        again = Places(3_600.0, 600.0, kept)
        again.load(places.dump())
        assert (again.streaks, again._hosts, again._site_of) == (places.streaks, places._hosts, places._site_of)


@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30),
    st.floats(0, 1e6),
    st.integers(0, 5),
)
def test_a_task_that_fails_everywhere_bans_nobody(
    hosts: int, others: list[tuple[int, bool]], pause: float, retries: int
) -> None:
    """Beside any successes of its own kind and of others, at any pace."""
    places, kinds, now, past = Places(3_600.0, 600.0), Kinds(), 0.0, History()
    for number, same in others:
        kinds.succeed("k" if same else "other", f"h{number % hosts}")
    failed: list[str] = []
    pending: list[str] = []  # failures of it that are not yet known to be its own
    at, attempts = 0, 0
    while True:
        now += pause
        attempts += 1
        host = f"h{at}"
        kinds.fail("k", host, now)
        failed.append(host)
        pending.append(host)
        scene = Failure(whose=kinds.whose("k", host, hosts - 1, failed), hosts=hosts)
        if scene.whose is Whose.HOST:
            assert places.blame(f"p{at}", host, "s", now, "x", hosts, kinds.in_row(host)) == []
        elif scene.whose is Whose.TASK:
            for old in pending:
                kinds.excuse("k", old)
                places.forgive(f"p{old[1:]}", old, "s")
            pending.clear()
        assert not any(is_banned(streak, now) for streak in places.streaks.values())
        step = next_step(Cause.TASK_ERROR, Terms(retries), past, scene)
        if isinstance(step, Final):
            break
        past = remember(past, Cause.TASK_ERROR, scene, step)
        at = (at + 1) % hosts if step.elsewhere else at
    assert attempts <= 1 + retries + 1, "one more, to see whether it was the host"
    assert not places.streaks


@given(st.integers(1, 4), st.floats(0.0005, 0.01), st.floats(0.1, 30.0), st.booleans())
def test_a_black_hole_wastes_few_tasks_and_burns_none(kinds_there: int, each: float, later: float, warm: bool) -> None:
    """One host fails everything at once; another succeeds only after a while, or had succeeded before [promise I12]."""
    places, kinds, now, wasted, turn = Places(3_600.0, 600.0), Kinds(), 0.0, 0, 0
    names = [f"k{n}" for n in range(kinds_there)]
    if warm:
        for name in names:
            kinds.succeed(name, "good")
    while now < 50.0:
        now += each if now < 1.0 else 0.1
        if now > later:
            for name in names:
                kinds.succeed(name, "good")
        free = [name for name in names if kinds.may_try(name, "bad", now, 1)]
        if not free or places.verdict("p", "bad", "s", now) is not None:
            continue
        name, turn = free[turn % len(free)], turn + 1
        kinds.fail(name, "bad", now)
        wasted += 1
        whose = kinds.whose(name, "bad", 1, ["bad"])
        assert whose is not Whose.TASK
        step = next_step(Cause.TASK_ERROR, Terms(), History(), Failure(whose=whose, hosts=2))
        assert isinstance(step, Retry) and not step.burn
        if whose is Whose.HOST:
            places.blame("p", "bad", "s", now, "x", 2, kinds.in_row("bad"))
    assert wasted <= BURST + 1


_SCENES = st.builds(
    Failure,
    whose=st.sampled_from(Whose),
    max_rss=st.integers(0, 1 << 40),
    largest=st.integers(0, 1 << 40),
    hosts=st.integers(0, 10),
    setup_failed=st.integers(0, 10),
    setup_worked=st.booleans(),
)
_TERMS = st.builds(
    Terms,
    retries=st.integers(0, 10),
    rerun=st.sampled_from(Rerun),
    memory=st.integers(0, 1 << 40),
    factor=st.floats(0.5, 10),
    cap=st.floats(0.5, 1e9),
)


@given(_TERMS, st.lists(st.tuples(st.sampled_from(Cause), _SCENES), min_size=30, max_size=30))
def test_whatever_happens_a_task_ends_after_a_bounded_number_of_attempts(
    terms: Terms, story: list[tuple[Cause, Failure]]
) -> None:
    past = History()
    for attempt, (cause, scene) in enumerate(story):
        step = next_step(cause, terms, past, scene)
        if isinstance(step, Final):
            return
        assert attempt < terms.retries + MAX_REFUNDS + MAX_RAISES + 1
        after = remember(past, cause, scene, step)
        assert sum(after[:4]) == sum(past[:4]) + 1, "each try is counted once"
        assert after.burnt == past.burnt + step.burn <= terms.retries
        if step.memory is not None:
            assert step.memory > (past.memory or terms.memory)
        past = after
    raise AssertionError("it goes on and on")
