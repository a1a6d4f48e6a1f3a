"""Causes from evidence, and whose fault a failure was from the pattern."""

from __future__ import annotations

import pytest

from shoal.model.limits import KINDS_PER_HOST
from shoal.model.states import Cause
from shoal.sched.failure_cause import OPEN_FAILURES, OPEN_WAIT, STRANGE_KINDS, FailureFacts, Kinds, Whose, decide

G = 1 << 30


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (FailureFacts("task_error", exit_code=1), Cause.TASK_ERROR),
        (FailureFacts(exit_code=1), Cause.TASK_ERROR),
        (FailureFacts("signal", signal=11), Cause.SIGNAL),
        (FailureFacts("signal", signal=9, evidence="oom_kill"), Cause.OUT_OF_MEMORY),
        (FailureFacts("task_error", exit_code=1, evidence="oom_kill"), Cause.OUT_OF_MEMORY),
        (FailureFacts("signal", signal=9, max_rss=95 * G, memory=100 * G), Cause.OUT_OF_MEMORY),
        (FailureFacts("task_error", exit_code=137, max_rss=95 * G, memory=100 * G), Cause.OUT_OF_MEMORY),
        (FailureFacts("signal", signal=9, max_rss=50 * G, memory=100 * G), Cause.SIGNAL),
        (FailureFacts("signal", signal=9, max_rss=50 * G), Cause.SIGNAL),
        (FailureFacts("signal", signal=11, max_rss=99 * G, memory=100 * G), Cause.SIGNAL),
        (FailureFacts("signal", signal=24, time=60.0), Cause.OVER_TIME),
        (FailureFacts("signal", signal=15, time=60.0, duration=60.5), Cause.OVER_TIME),
        (FailureFacts("signal", signal=15, time=60.0, duration=3.0), Cause.SIGNAL),
        (FailureFacts("signal", signal=24), Cause.SIGNAL),
        (FailureFacts("over_time", signal=9, evidence="oom_kill"), Cause.OVER_TIME),
        (FailureFacts("host_unfit", exit_code=1), Cause.HOST_UNFIT),
        (FailureFacts("stage_in"), Cause.STAGE_IN),
    ],
)
def test_the_cause_follows_from_the_evidence(facts: FailureFacts, cause: Cause) -> None:
    assert decide(facts) is cause


def test_a_kind_that_fails_on_two_hosts_and_succeeded_nowhere_is_the_tasks_own_fault() -> None:
    kinds = Kinds()
    kinds.fail("k", "a", 0.0)
    assert kinds.whose("k", "a", others=5) is Whose.OPEN
    kinds.fail("k", "b", 1.0)
    assert kinds.whose("k", "b", others=5) is Whose.TASK
    kinds.succeed("k", "c")
    assert kinds.whose("k", "b", others=5) is Whose.HOST


def test_without_another_host_it_is_the_task() -> None:
    kinds = Kinds()
    kinds.fail("k", "a", 0.0)
    assert kinds.whose("k", "a", others=0) is Whose.TASK


def test_the_same_task_failing_on_two_hosts_is_the_task_whatever_its_kind_does() -> None:
    kinds = Kinds()
    for _ in range(100):
        kinds.succeed("k", "c")
    kinds.fail("k", "a", 0.0)
    assert kinds.whose("k", "a", others=2, failed_on=["a"]) is Whose.HOST
    kinds.fail("k", "b", 1.0)
    assert kinds.whose("k", "b", others=2, failed_on=["a", "b"]) is Whose.TASK


def test_what_succeeds_elsewhere_and_fails_here_is_the_host_until_one_succeeds_here() -> None:
    kinds = Kinds()
    kinds.succeed("k", "b")
    kinds.fail("k", "a", 0.0)
    assert kinds.is_hosts("k", "a") and not kinds.is_hosts("k", "b")
    kinds.succeed("k", "a")
    assert not kinds.is_hosts("k", "a")


def test_a_success_here_says_nothing_about_elsewhere() -> None:
    kinds = Kinds()
    kinds.succeed("k", "a")
    kinds.fail("k", "a", 0.0)
    assert kinds.whose("k", "a", others=3) is Whose.OPEN


def test_of_a_kind_that_often_fails_by_itself_more_failures_in_a_row_are_needed() -> None:
    kinds = Kinds()
    for n in range(100):
        kinds.succeed("k", "b")
        if n % 5 == 0:
            kinds.fail("k", "b", float(n))  # one of six
    kinds.fail("k", "a", 0.0)
    kinds.fail("k", "a", 1.0)
    assert not kinds.is_hosts("k", "a"), "1/36 is no rare event"
    kinds.fail("k", "a", 2.0)
    assert kinds.is_hosts("k", "a")


def test_hosts_that_never_managed_it_do_not_excuse_another() -> None:
    kinds = Kinds()
    kinds.succeed("k", "good")
    for _ in range(50):
        kinds.fail("k", "black hole", 0.0)
    kinds.fail("k", "a", 0.0)
    assert kinds.is_hosts("k", "a")


def test_several_kinds_that_fail_on_a_host_where_nothing_succeeds_are_the_host() -> None:
    kinds = Kinds()
    for n in range(STRANGE_KINDS):
        assert not kinds.is_hosts("k0", "a")
        kinds.fail(f"k{n}", "a", 0.0)
    assert kinds.is_hosts("k0", "a")
    kinds.succeed("other", "a")
    assert not kinds.is_hosts("k0", "a")


def test_kinds_that_fail_everywhere_are_no_evidence_against_a_host() -> None:
    kinds = Kinds()
    for n in range(STRANGE_KINDS + 2):
        kinds.fail(f"k{n}", "a", 0.0)
        kinds.fail(f"k{n}", "b", 0.0)
        assert kinds.whose(f"k{n}", "a", others=1) is Whose.TASK
    assert not kinds.is_hosts("k0", "a")


def test_a_kind_waits_when_it_failed_often_on_a_host_and_another_can_tell_why() -> None:
    kinds = Kinds()
    for _ in range(OPEN_FAILURES):
        assert kinds.may_try("k", "a", 10.0, others=1)
        kinds.fail("k", "a", 10.0)
    assert not kinds.may_try("k", "a", 11.0, others=1)
    assert kinds.may_try("k", "a", 10.0 + OPEN_WAIT, others=1), "not for ever"
    assert kinds.may_try("k", "a", 11.0, others=0), "nobody else could tell"
    assert kinds.may_try("k", "b", 11.0, others=1) and kinds.may_try("other", "a", 11.0, others=1)
    kinds.fail("k", "b", 12.0)
    assert kinds.may_try("k", "a", 13.0, others=1), "it is the kind"


def test_everything_waits_when_several_kinds_failed_in_a_row_on_a_host() -> None:
    kinds = Kinds()
    for n in range(OPEN_FAILURES):
        assert kinds.may_try("third", "a", 10.0, others=1)
        kinds.fail(f"k{n % 2}", "a", 10.0)
    assert not kinds.may_try("third", "a", 11.0, others=1)
    assert kinds.may_try("third", "a", 10.0 + OPEN_WAIT, others=1)
    kinds.fail("k0", "b", 12.0)
    assert kinds.may_try("third", "a", 13.0, others=1), "one of the two is known to be a bad kind"


def test_failures_that_were_the_tasks_own_do_not_speak_against_the_host() -> None:
    kinds = Kinds()
    kinds.succeed("k", "b")
    kinds.fail("k", "a", 0.0)
    kinds.fail("k", "a", 0.0)
    kinds.excuse("k", "a")
    assert kinds.in_row("a") == 1 and kinds.is_hosts("k", "a")
    kinds.excuse("k", "a")
    assert kinds.in_row("a") == 0 and not kinds.is_hosts("k", "a")
    kinds.excuse("k", "a")
    kinds.excuse("unheard of", "nowhere")
    assert kinds.in_row("a") == 0


def test_a_kind_that_failed_everywhere_stays_known_for_it_when_its_failures_are_excused() -> None:
    kinds = Kinds()
    for host in "ab":
        kinds.fail("k", host, 0.0)
    for host in "ab":
        kinds.excuse("k", host)
    kinds.fail("k", "c", 1.0)
    assert kinds.whose("k", "c", others=2) is Whose.TASK


def test_a_success_of_another_kind_ends_what_is_held_against_a_host() -> None:
    kinds = Kinds()
    kinds.fail("k", "a", 0.0)
    kinds.succeed("other", "a")
    assert kinds.in_row("a") == 0


def test_how_often_it_failed_in_a_row_and_where_is_known() -> None:
    kinds = Kinds()
    assert (kinds.in_row("a"), kinds.failed_hosts("k"), kinds.worked("k")) == (0, 0, False)
    kinds.fail("k", "a", 0.0)
    kinds.fail("k", "a", 0.0)
    assert (kinds.in_row("a"), kinds.failed_hosts("k"), kinds.worked("k")) == (2, 1, False)
    kinds.fail("k", "b", 0.0)
    assert (kinds.in_row("a"), kinds.failed_hosts("k"), kinds.worked("k")) == (0, 2, False), "it is the kind"
    kinds.succeed("k", "b")
    assert (kinds.in_row("b"), kinds.failed_hosts("k"), kinds.worked("k")) == (0, 1, True)


def test_times_are_counted_for_each_site() -> None:
    kinds = Kinds()
    kinds.succeed("k", "a", "s", count=9)
    kinds.over_time("k", "s")
    kinds.over_time("k", "t")
    assert kinds.times("k", "s") == (9, 1) and kinds.times("k", "t") == (0, 1)
    assert kinds.times("k", "u") == kinds.times("j", "s") == (0, 0)


def test_only_so_much_is_remembered() -> None:
    kinds = Kinds(kept=10, hosts_per_kind=4)
    for n in range(100):
        kinds.fail(f"k{n}", f"h{n}", 0.0)
        kinds.fail("k", f"h{n}", 0.0)
        kinds.over_time("k", f"s{n}")
        for m in range(20):
            kinds.fail(f"j{m}", "one", 0.0)
    assert len(kinds._kinds) == 10 and len(kinds._bad_hosts) == 10
    assert all(len(known.hosts) <= 4 and len(known.times) <= 4 for known in kinds._kinds.values())
    assert max(len(bad.kinds) for bad in kinds._bad_hosts.values()) <= KINDS_PER_HOST
