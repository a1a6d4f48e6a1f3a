"""What follows a failure: each cause with its rule."""

from __future__ import annotations

import pytest

from shoal.model.states import Cause, Rerun
from shoal.sched.failure_cause import Whose
from shoal.sched.retry import (
    MAX_REFUNDS,
    Failure,
    Final,
    History,
    Retry,
    Terms,
    after_full_disk,
    counts_against_site,
    next_step,
    remember,
)

G = 1 << 30


def burns(step: object, elsewhere: bool) -> bool:
    return isinstance(step, Retry) and step.burn and step.elsewhere is elsewhere and step.memory is None


def is_free(step: object) -> bool:
    return isinstance(step, Retry) and not step.burn and step.elsewhere and step.memory is None


def ends(step: object, cause: Cause) -> bool:
    return isinstance(step, Final) and step.cause is cause


@pytest.mark.parametrize("cause", [Cause.TASK_ERROR, Cause.SIGNAL, Cause.OUTPUT_MISSING])
def test_a_tasks_own_error_burns_a_retry_while_there_are_some(cause: Cause) -> None:
    assert burns(next_step(cause, Terms(retries=1), History(), Failure()), elsewhere=False)
    assert ends(next_step(cause, Terms(retries=1), History(burnt=1), Failure()), cause)
    assert ends(next_step(cause, Terms(), History(), Failure()), cause)


@pytest.mark.parametrize("whose", [Whose.HOST, Whose.OPEN])
@pytest.mark.parametrize("cause", [Cause.TASK_ERROR, Cause.SIGNAL, Cause.STAGE_OUT])
def test_on_a_host_in_doubt_it_goes_elsewhere_at_no_cost_three_times(cause: Cause, whose: Whose) -> None:
    scene, past = Failure(whose=whose), History()
    for _ in range(MAX_REFUNDS):
        step = next_step(cause, Terms(), past, scene)
        assert is_free(step) and isinstance(step, Retry)
        past = remember(past, cause, scene, step)
    assert past == History(refunds=MAX_REFUNDS)
    assert ends(next_step(cause, Terms(), past, scene), cause)
    assert burns(next_step(cause, Terms(retries=1), past, scene), elsewhere=True)


def test_a_missing_output_is_never_the_hosts_fault() -> None:
    assert ends(next_step(Cause.OUTPUT_MISSING, Terms(), History(), Failure(whose=Whose.HOST)), Cause.OUTPUT_MISSING)


def test_out_of_memory_gets_twice_as_much_up_to_four_times_and_burns_nothing() -> None:
    terms, past, given = Terms(memory=G), History(), []
    while isinstance(step := next_step(Cause.OUT_OF_MEMORY, terms, past, Failure(max_rss=G)), Retry):
        assert not step.burn and step.memory is not None
        given.append(step.memory)
        past = remember(past, Cause.OUT_OF_MEMORY, Failure(max_rss=G), step)
    assert given == [2 * G, 4 * G]
    assert ends(step, Cause.OUT_OF_MEMORY) and "4 times what it asked for" in step.why
    assert past.burnt == 0


def test_a_task_that_asked_for_no_memory_gets_twice_what_it_used_and_the_cap_counts_from_there() -> None:
    terms, past, given, used = Terms(), History(), [], 3 * G
    while isinstance(step := next_step(Cause.OUT_OF_MEMORY, terms, past, Failure(max_rss=used)), Retry):
        assert step.memory is not None
        past = remember(past, Cause.OUT_OF_MEMORY, Failure(max_rss=used), step)
        given.append(step.memory)
        used = step.memory
    assert given == [6 * G, 12 * G]
    assert ends(step, Cause.OUT_OF_MEMORY) and "what it used first" in step.why


def test_no_more_memory_is_tried_than_the_largest_host_has() -> None:
    step = next_step(Cause.OUT_OF_MEMORY, Terms(memory=4 * G), History(), Failure(largest=6 * G))
    assert isinstance(step, Retry) and step.memory == 6 * G
    step = next_step(Cause.OUT_OF_MEMORY, Terms(memory=4 * G, retries=9), History(memory=6 * G), Failure(largest=6 * G))
    assert ends(step, Cause.OUT_OF_MEMORY) and isinstance(step, Final) and "largest host" in step.why


def test_out_of_memory_of_which_nothing_is_known_is_a_plain_failure() -> None:
    assert burns(next_step(Cause.OUT_OF_MEMORY, Terms(retries=1), History(), Failure()), elsewhere=True)
    assert ends(next_step(Cause.OUT_OF_MEMORY, Terms(), History(), Failure()), Cause.OUT_OF_MEMORY)


def test_over_time_goes_elsewhere_while_retries_are_left() -> None:
    assert burns(
        next_step(Cause.OVER_TIME, Terms(retries=2), History(burnt=1), Failure(whose=Whose.HOST)), elsewhere=True
    )
    assert ends(next_step(Cause.OVER_TIME, Terms(), History(), Failure(whose=Whose.HOST)), Cause.OVER_TIME)


def test_over_time_speaks_against_a_site_only_if_most_others_fit_there() -> None:
    assert not counts_against_site(0, 1), "nobody knows whether it could fit there"
    assert counts_against_site(4, 1) and counts_against_site(100, 3)
    assert not counts_against_site(3, 1) and not counts_against_site(0, 50)


def test_failed_setup_goes_elsewhere_until_it_failed_on_three_hosts_and_is_then_the_tasks_error() -> None:
    scene = Failure(hosts=10)
    assert is_free(next_step(Cause.HOST_UNFIT, Terms(), History(), scene._replace(setup_failed=1)))
    assert is_free(next_step(Cause.HOST_UNFIT, Terms(), History(refunds=1), scene._replace(setup_failed=2)))
    step = next_step(Cause.HOST_UNFIT, Terms(retries=5), History(refunds=2), scene._replace(setup_failed=3))
    assert ends(step, Cause.TASK_ERROR) and isinstance(step, Final) and "3 hosts" in step.why


def test_failed_setup_on_all_hosts_there_are_is_the_tasks_error() -> None:
    assert ends(next_step(Cause.HOST_UNFIT, Terms(), History(), Failure(hosts=1, setup_failed=1)), Cause.TASK_ERROR)
    assert ends(next_step(Cause.HOST_UNFIT, Terms(), History(), Failure(hosts=2, setup_failed=2)), Cause.TASK_ERROR)
    assert is_free(next_step(Cause.HOST_UNFIT, Terms(), History(), Failure(hosts=2, setup_failed=1)))


def test_setup_that_works_somewhere_stays_the_hosts_fault() -> None:
    scene = Failure(hosts=9, setup_failed=7, setup_worked=True)
    assert is_free(next_step(Cause.HOST_UNFIT, Terms(), History(refunds=2), scene))
    assert ends(next_step(Cause.HOST_UNFIT, Terms(), History(refunds=3), scene), Cause.HOST_UNFIT)
    assert burns(next_step(Cause.HOST_UNFIT, Terms(retries=1), History(refunds=3), scene), elsewhere=True)


def test_a_failed_stage_in_has_one_free_try_elsewhere() -> None:
    step = next_step(Cause.STAGE_IN, Terms(), History(), Failure())
    assert is_free(step) and isinstance(step, Retry)
    past = remember(History(), Cause.STAGE_IN, Failure(), step)
    assert past == History(stagings=1)
    assert ends(next_step(Cause.STAGE_IN, Terms(), past, Failure()), Cause.STAGE_IN)
    assert burns(next_step(Cause.STAGE_IN, Terms(retries=1), past, Failure()), elsewhere=True)


def test_a_full_disk_is_free_three_times_and_then_burns_a_retry() -> None:
    assert all(is_free(after_full_disk(Terms(), History(refunds=count))) for count in range(3))
    assert burns(after_full_disk(Terms(retries=1), History(refunds=3)), elsewhere=True)
    assert ends(after_full_disk(Terms(), History(refunds=3)), Cause.HOST_UNFIT)


def test_a_lost_pilot_costs_nothing_at_first() -> None:
    assert is_free(next_step(Cause.PILOT_LOST, Terms(), History(), Failure()))


def test_what_must_not_run_twice_ends_by_any_failure() -> None:
    terms = Terms(retries=5, rerun=Rerun.NEVER, memory=G)
    for cause in Cause:
        assert ends(next_step(cause, terms, History(), Failure(whose=Whose.HOST)), cause), cause


@pytest.mark.parametrize("cause", [Cause.CANCELLED, Cause.POISON, Cause.DEPENDENCY_FAILED])
def test_what_was_ended_on_purpose_stays_ended(cause: Cause) -> None:
    assert ends(next_step(cause, Terms(retries=5), History(), Failure(whose=Whose.HOST)), cause)


def test_a_task_that_ran_out_of_memory_for_good_says_what_each_attempt_had() -> None:
    terms, past, step = Terms(memory=G), History(), None
    for _ in range(3):
        step = next_step(Cause.OUT_OF_MEMORY, terms, past, Failure(max_rss=G))
        if isinstance(step, Retry):
            assert "instead of" in step.why
            past = remember(past, Cause.OUT_OF_MEMORY, Failure(), step)
    assert step == Final(
        Cause.OUT_OF_MEMORY, "its attempts had 1.0G, 2.0G, 4.0G, and more than 4 times what it asked for is not tried"
    )


def test_a_stated_most_of_memory_bounds_what_later_tries_get() -> None:
    step = next_step(Cause.OUT_OF_MEMORY, Terms(memory=G, most=G), History(), Failure(max_rss=G))
    assert ends(step, Cause.OUT_OF_MEMORY) and isinstance(step, Final) and "its max_memory" in step.why
    step = next_step(Cause.OUT_OF_MEMORY, Terms(memory=2 * G, most=3 * G), History(), Failure(max_rss=2 * G))
    assert isinstance(step, Retry) and step.memory == 3 * G
    step = next_step(Cause.OUT_OF_MEMORY, Terms(memory=2 * G, most=90 * G), History(), Failure(max_rss=2 * G))
    assert isinstance(step, Retry) and step.memory == 4 * G, "it asks for no more than the policy gives"


def test_an_input_too_large_for_one_host_is_tried_on_every_other_at_no_cost_and_then_ends() -> None:
    """Neither a retry nor a free stage-in is used up by hosts that are just too small."""
    past = History(stagings=1)
    step = next_step(Cause.STAGE_IN, Terms(), past, Failure(hosts_left=2))
    assert isinstance(step, Retry) and step.elsewhere and not step.burn
    assert next_step(Cause.STAGE_IN, Terms(retries=3), past, Failure(hosts_left=0)) == Final(
        Cause.STAGE_IN, "no other host is left to try it on"
    )
