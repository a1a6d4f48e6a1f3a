"""[GWP] Rubio-Montero, Huedo, Castejón, Mayo-García: GWpilot; see docs/papers.md.

Each test names the section, a few words of the sentence, and runs what Shoal has of it today.
"""

from __future__ import annotations

from math import exp

import pytest

from shoal.engine.commands import Signal
from shoal.pilot.agent.events import Ended
from shoal.sched.ban import ban_time
from tests.unit.engine.stand import Stand, good
from tests.unit.pilot.agent.test_agent import Driver, done, lease, sent


def test_a_change_of_state_is_told_at_once() -> None:
    """3.2, "immediately triggered after a state change": a pilot whose task ends does not wait for its next heartbeat."""
    driver = Driver()
    driver.begin(lease(1))
    driver.settle()
    exchanges = sent(driver.see(Ended(done(1))))
    due = driver.agent.deadline()
    while not any(exchange.reports for exchange in exchanges):
        assert due is not None and due - driver.now < 0.1, "it waits a moment for others to ride along, and no longer"
        exchanges = sent(driver.tick())
        due = driver.agent.deadline()
    assert [report.attempt for exchange in exchanges for report in exchange.reports] == [done(1).attempt]


def test_a_signal_reaches_a_running_task_by_its_pilots_exchange() -> None:
    """3.2, "a POSIX signal to be passed to an active task"; a task that does not run gets none."""
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    pilot = stand.pilot(2)
    attempt = pilot.work()  # the other is leased and has not begun
    assert stand.do(Signal((run,), 10)).result == {"signalled": 1, "not_running": 1}
    orders = [order for answer in stand.answers for order in answer.reply.orders if order.kind == "signal"]
    assert [(order.attempt, order.signal) for order in orders] == [(attempt, 10)]


def test_a_host_that_comes_back_is_known() -> None:
    """3.3, of a discarded pilot what is known "is maintained in the Pilot Pool to be compared": the next pilot of the same
    machine goes on with its history, and another machine of that name does not."""
    stand = Stand()
    for identity in ("box", "box", "other"):
        stand.bury(stand.pilot(host="n1", identity=identity))
    assert [event.data["before"] for event in stand.events("pilot_joined")] == [0, 1, 0]


@pytest.mark.parametrize("value", [7, 7.5, "seven", True])
def test_tags_have_no_type_and_a_requirement_reads_them(value: int | float | str | bool) -> None:
    """4.1, "they can operate as un-typed variables": the same label is a number here and a text there."""
    stand = Stand()
    wanted = f"'{value}'" if isinstance(value, str) else str(value).lower()
    stand.submit({"require": f"mark == {wanted}"})
    pilot = stand.pilot(tags={"mark": "eight"})
    assert pilot.pull() == []
    assert len(pilot.pull(tags={"mark": value})) == 1


def test_a_task_leaves_tags_on_its_pilot_that_stay_after_it() -> None:
    """4.1, written to a pipe they "are maintained among task executions"; the next task may require them."""
    stand = Stand()
    stand.submit({})
    here, elsewhere = stand.pilot(host="here"), stand.pilot(host="elsewhere")
    first = here.work()
    here.publish(first, volume=7)
    here.talk(good(first))
    stand.submit({"require": "my.volume == 7"})
    assert (elsewhere.pull(), len(here.pull())) == ([], 1)


def test_pilots_of_higher_rank_are_used_first() -> None:
    """4.1, "those pilots with higher ranks are first used" among those for which the requirement is true."""
    stand = Stand()
    pilots = [stand.pilot(host=f"n{n}", tags={"mhz": mhz, "gpu": gpu}) for n, (mhz, gpu) in enumerate(
        [(1, True), (4, False), (2, True), (3, True)])]  # fmt: skip
    for pilot in pilots:
        pilot.wait()
    stand.submit({"array": "1-2", "require": "gpu == true", "rank": "mhz"})
    assert [len(pilot.took()) for pilot in pilots] == [0, 0, 1, 1]


def test_a_pilot_is_filled_with_tasks_that_fit_its_remaining_time() -> None:
    """4.2, "fill pilots with tasks of adequate duration"."""
    stand = Stand()
    long = stand.submit({"time": "1h"})
    short = stand.submit({"time": "10m"})
    pilot = stand.pilot(2, ends=1200.0)
    assert [lease.attempt.partition(".")[0] for lease in pilot.pull()] == [f"r{short}"]
    assert stand.state(long) == "ready"


def test_a_ban_grows_towards_its_limit_and_c_says_how_fast() -> None:
    """Table 3, FR_MAX_BANNED. As printed the exponent has the wrong sign; ours tends to the limit T from below."""
    longest = 1000.0
    times = [ban_time(dt, 2, longest, 100.0) for dt in (10.0, 50.0, 100.0, 500.0, 5000.0)]
    assert times == sorted(times) and times[-1] == pytest.approx(longest)
    assert times[2] == pytest.approx(longest * (1 - exp(-1.0)))
    assert ban_time(50.0, 2, longest, 500.0) < times[1] < ban_time(50.0, 2, longest, 10.0)
