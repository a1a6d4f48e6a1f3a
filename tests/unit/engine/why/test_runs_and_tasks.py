"""One reason in plain words for everything that waits."""

from __future__ import annotations

import pytest

from shoal.model.errors import NotFound
from shoal.model.ids import TaskId
from shoal.wire.messages import Capacity
from tests.unit.engine.stand import Stand, good


def test_without_a_pilot() -> None:
    stand = Stand()
    run = stand.submit({})
    reason = stand.why(run)
    assert reason.text == "no pilot is connected"
    assert "shoal pilot start" in reason.fix


def test_without_a_pilot_because_none_could_be_started() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.engine.state.trouble = "the local pilot ended: no space"
    assert stand.why(run).text == "no pilot is connected: the local pilot ended: no space"


def test_waiting_for_a_parent() -> None:
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "after": ["a"]})
    assert stand.why(run, 2).text == "it waits for a"


def test_waiting_for_the_rest_of_a_parent() -> None:
    stand = Stand()
    run = stand.submit({"name": "a", "array": "1-3"}, {"name": "b", "after": ["a"]})
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert stand.why(run, 4).text == "it waits for a (1 of 3 succeeded)"


def test_too_large_for_every_pilot() -> None:
    stand = Stand()
    run = stand.submit({"cores": 64})
    small, large = stand.pilot(2), stand.pilot(16, host="n17")
    assert small.name != large.name
    assert stand.why(run).text == (
        f"no pilot is large enough: it needs 64 cores, has 16 (the nearest of 2, {large.name} on n17 of site local)"
    )


def test_too_large_names_the_pilot_that_lacks_least() -> None:
    """The nearest place, not the one with the most cores [input E27]."""
    stand = Stand()
    run = stand.submit({"memory": "64G"})
    stand.pilot(64, host="wide", site="a")
    stand.pilot(room=Capacity(2, 48 << 30, 1 << 40), host="deep", site="b")
    assert "48.0G" in stand.why(run).text
    assert "on deep of site b" in stand.why(run).text


def test_a_pilot_with_room_where_a_quota_forbids_it_is_no_answer() -> None:
    stand = Stand()
    stand.policy(quota=[{"site": "eu", "cores": 0}])
    run = stand.submit({"array": "1-2"})
    stand.pilot(4, host="a", site="eu").pull()
    stand.pilot(1, host="b", site="us").pull()
    assert stand.why(run, 2).text == (
        "all slots are busy: 1 task on 1 core of 1 pilot; a limit keeps it from 1 other pilot"
    )


def test_a_requirement_is_judged_on_those_that_are_large_enough() -> None:
    stand = Stand()
    run = stand.submit({"cores": 4, "require": "arch == 'x'"})
    stand.pilot(1, host="a", tags={"arch": "x"})
    stand.pilot(4, host="b", tags={"arch": "y"})
    assert stand.why(run).text.startswith('its requirement holds on no pilot that is large enough: `arch == "x"`')


def test_others_hear_nothing_of_pilots_that_do_not_serve_them() -> None:
    stand = Stand()
    stand.pilot(owner="bob", host="secret")
    assert stand.why(stand.submit({})).text == "no pilot is connected"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"memory": "1T"}, "1.0T of memory, has 8.0G"),
        ({"disk": "2T"}, "2.0T of disk"),
        ({"gpus": 1}, "needs 1 graphics device, has 0"),
    ],
)
def test_too_large_names_what_lacks(task: dict[str, str], words: str) -> None:
    stand = Stand()
    run = stand.submit(task)
    stand.pilot(2)
    assert words in stand.why(run).text


def test_all_slots_are_busy() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-5"})
    stand.pilot(2).pull()
    assert stand.why(run, 5).text == "all slots are busy: 2 tasks on 2 cores of 1 pilot"


def test_a_pilot_has_room() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.pilot()
    assert stand.why(run).text == "a pilot has room and takes it with its next exchange"


def test_all_pilots_are_ending() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.drain(stand.pilot(), why="maintenance")
    assert stand.why(run).text == "every pilot is ending (maintenance)"


def test_all_fitting_pilots_are_silent() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.pilot()
    stand.pass_time(31)
    assert stand.why(run).text == "every fitting pilot is silent (1)"


def test_throttled_by_its_own_limit() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-5%1"})
    stand.pilot(4).pull()
    assert stand.why(run, 2).text == "1 task of this array run, its limit is 1"


def test_the_server_restarted() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    stand.restart()
    assert stand.why(run).text == "the server restarted and waits up to 15 s for 1 pilot to say what they run"
    assert pilot.name not in stand.why(run).text, "it may be another owner's"


def test_leased_and_not_begun() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot(host="n17")
    pilot.pull()
    stand.now += 2
    assert stand.why(run).text == f"attempt r1.1#1 is with {pilot.name} (n17) for 2.0s and has not started yet"


def test_running() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot(host="n17")
    pilot.work()
    stand.now += 61
    assert stand.why(run).text == f"attempt r1.1#1 runs on {pilot.name} (n17) for 1m01s"
    assert "shoal logs r1.1" in stand.why(run).fix


def test_running_on_a_silent_pilot() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.pilot().work()
    stand.pass_time(31)
    assert "which is silent for 31.0s" in stand.why(run).text


@pytest.mark.parametrize(("rerun", "words"), [("exclusive", "runs again in"), ("never", "counts as lost in")])
def test_an_orphan(rerun: str, words: str) -> None:
    stand = Stand()
    run = stand.submit({"rerun": rerun})
    pilot = stand.pilot()
    pilot.work()
    stand.bury(pilot)
    assert f"its pilot {pilot.name} was lost" in stand.why(run).text
    assert f"{words} 15m15s" in stand.why(run).text


def test_final() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.cancel(run)
    assert stand.why(run).text == "it is final"


def test_a_whole_run() -> None:
    stand = Stand()
    run = stand.submit({"name": "a", "array": "1-5"}, {"name": "b", "after": ["a"]})
    stand.pilot(2).pull()
    state, reasons = stand.engine.why(run, stand.now)
    assert state == "open"
    assert [r.text for r in reasons] == [
        "2 tasks with pilots",
        "a: 3 tasks: all slots are busy: 2 tasks on 2 cores of 1 pilot",
        "b: 1 task: it waits for a (0 of 5 succeeded)",
    ]


def test_a_run_of_many_arrays_gives_ten_reasons_at_most() -> None:
    stand = Stand()
    run = stand.submit(
        {"name": "a"}, *({"name": f"b{n}", "after": ["a" if n == 0 else f"b{n - 1}"]} for n in range(50))
    )
    assert len(stand.engine.why(run, stand.now)[1]) == 10


def test_a_finished_run() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.cancel(run)
    assert stand.engine.why(run, stand.now) == ("finished", stand.engine.why(run, stand.now)[1])
    assert "every task is final" in stand.engine.why(run, stand.now)[1][0].text
    stand.pass_time(61)
    assert stand.engine.why(run, stand.now)[0] == "finished"


def test_a_task_that_does_not_exist() -> None:
    stand = Stand()
    run = stand.submit({})
    with pytest.raises(NotFound):
        stand.engine.why(TaskId(run, 2), stand.now)


def test_pilots() -> None:
    stand = Stand()
    pilot = stand.pilot(2)

    def told() -> str:
        return stand.engine.why(pilot.name, stand.now)[1][0].text

    assert told() == "no task is ready"
    stand.submit({"cores": 4})
    assert told() == "no ready task fits it: a task needs 4 cores, has 2"
    stand.submit({})
    pilot.pull()
    assert told() == "it holds 1 attempt on 2 cores"
    stand.drain(pilot)
    assert told() == "it takes nothing new: maintenance; 1 attempt left"
    stand.pass_time(31)
    assert told() == "silent for 31.0s"
    with pytest.raises(NotFound):
        stand.engine.why("pffff", stand.now)
