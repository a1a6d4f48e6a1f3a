"""What a pilot is, by its tags and by what tasks published on it, decides what it gets [GWP G3, G4]."""

from __future__ import annotations

import pytest

from shoal.model.limits import MAX_TASK_TAG, MAX_TASK_TAGS
from shoal.wire.messages import Published
from tests.unit.engine.stand import FakePilot, Stand, good


def test_a_requirement_keeps_a_task_from_a_pilot_until_its_tag_changes() -> None:
    stand = Stand()
    stand.submit({"require": "load < 2"})
    pilot = stand.pilot(tags={"load": 5})
    assert pilot.pull() == []
    assert len(pilot.pull(tags={"load": 1})) == 1


def test_a_tag_that_no_pilot_has_is_undefined_and_no_requirement_over_it_holds() -> None:
    stand = Stand()
    run = stand.submit({"require": "not (cluster == 'x')"})
    pilot = stand.pilot()
    assert pilot.pull() == []
    assert len(pilot.pull(tags={"cluster": "y"})) == 1
    assert stand.state(run) == "leased"


def test_a_pilot_cannot_call_itself_larger_than_it_registered() -> None:
    stand = Stand()
    stand.submit({"require": "cores >= 16 or site == 'cern'"})
    pilot = stand.pilot(2, tags={"cores": 64})
    assert pilot.pull(tags={"cores": 64, "slots": 64, "site": "cern"}) == []


def test_a_pilot_cannot_speak_for_what_tasks_publish() -> None:
    stand = Stand()
    stand.submit({"require": "my.cache == 1"})
    pilot = stand.pilot(tags={"ann.cache": 1})
    assert pilot.pull(tags={"ann.cache": 1}) == []


def test_an_empty_text_takes_a_tag_away() -> None:
    stand = Stand()
    stand.submit({"require": "has(cuda)"})
    pilot = stand.pilot(tags={"cuda": "12"})
    assert stand.engine.state.pilots[pilot.name].tags == {"cuda": "12"}
    assert pilot.pull(tags={"cuda": ""}) == []
    assert len(pilot.pull(tags={"cuda": "13"})) == 1


@pytest.mark.parametrize("classes", [1, 250])
def test_what_a_task_published_lets_its_owners_next_task_match_and_stays_after_it(classes: int) -> None:
    """With many classes numpy looks at them: it must read `my.x` as the one by one way does."""
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    first = pilot.work()
    stand.submit(*({"require": f"my.volume == 7 and cores < {n + 2}"} for n in range(classes)))
    pilot.publish(first, volume=7)
    assert len(pilot.talk(good(first)).leases) == 1, "it stays after the task"


def test_what_a_task_published_counts_when_it_is_published() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot(2)
    first = pilot.work()
    stand.submit({"require": "my.stage >= 2"})
    assert pilot.pull() == []
    assert pilot.publish(first, stage=1).leases == []
    assert len(pilot.publish(first, stage=2).leases) == 1


def test_published_tags_are_told_apart_by_owner() -> None:
    stand = Stand()
    stand.group("phys", "ann", "bob")
    stand.submit({})
    stand.submit({"require": "my.x == 1", "name": "mine"}, owner="bob")
    pilot = stand.pilot(2, group="phys")
    first = pilot.work()
    assert pilot.publish(first, x=1).leases == []
    stand.submit({"require": "ann.x == 1"}, owner="bob")
    assert len(pilot.pull()) == 1, "by its whole name anybody may read it"


def test_published_tags_stay_when_the_pilot_enrols_again() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    first = pilot.work()
    pilot.publish(first, warm=True)
    pilot.talk(good(first))
    stand.submit({"require": "my.warm"})
    cold = stand.pilot(host="other")
    assert cold.pull() == []
    again = stand.pilot(former=pilot)
    assert len(again.pull()) == 1
    assert stand.sound()


def test_published_tags_survive_a_restart_and_still_count_against_the_bound() -> None:
    stand = Stand()
    stand.submit({"array": "1-2"})
    pilot = stand.pilot()
    first = pilot.work()
    pilot.publish(first, **{f"t{n}": n for n in range(MAX_TASK_TAGS)})
    stand.restart()
    pilot.publish(first, late=1, t0=5)
    tags = stand.engine.state.pilots[pilot.name].tags
    assert tags["ann.t0"] == 5
    assert "ann.late" not in tags


def test_published_tags_are_acknowledged_when_they_are_safe_and_not_before() -> None:
    """The pilot forgets them with the answer: one that came before the commit lost them in a crash."""
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    first = pilot.work()
    answer = pilot.send(pilot.make(published=[Published(first, {"x": 1})]))
    assert answer is not None and answer.durable
    stand.restart()
    answer = pilot.send(pilot.make(published=[Published(first, {"y": 1})]))
    assert answer is not None and answer.durable, "also by the first answer after a restart"


def test_tags_of_a_task_that_the_same_exchange_brings_back_after_a_crash_are_kept() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()  # and the lease is forgotten
    exchange = pilot.make(held={lease.attempt: "running"}, published=[Published(lease.attempt, {"x": 1})])
    assert pilot.send(exchange) is not None
    assert stand.engine.state.pilots[pilot.name].tags == {"ann.x": 1}
    assert stand.sound()


def test_published_tags_are_bounded_in_number_and_size_and_the_journal_says_so() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    first = pilot.work()

    def tags() -> dict[str, object]:
        return dict(stand.engine.state.pilots[pilot.name].tags)

    pilot.publish(first, **{f"t{n}": n for n in range(MAX_TASK_TAGS + 5)})
    assert len(tags()) == MAX_TASK_TAGS
    assert "5 tags" in stand.events("tags_published")[-1].data["refused"]
    pilot.publish(first, t0="")
    assert len(tags()) == MAX_TASK_TAGS - 1
    pilot.publish(first, long="x" * (MAX_TASK_TAG + 1))
    assert "ann.long" not in tags()
    pilot.publish(first, long="x" * MAX_TASK_TAG)
    assert "ann.long" in tags()
    pilot.publish(first, **{"a b": 1, "ann.y": 1, "": 1, "1x": 1})
    assert len(tags()) == MAX_TASK_TAGS
    assert "4 tags" in stand.events("tags_published")[-1].data["refused"]


def test_publishing_the_same_again_writes_nothing() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    first = pilot.work()
    pilot.publish(first, x=1)
    pilot.publish(first, x=1)
    assert len(stand.events("tags_published")) == 1


def test_tags_of_a_task_that_the_pilot_does_not_run_are_nobodys() -> None:
    stand = Stand()
    stand.submit({"array": "1-2"})
    mine, other = stand.pilot(), stand.pilot(host="other")
    first, second = mine.work(), other.work()
    mine.publish(second, x=1)
    mine.publish("r9.9#1@1", x=1)
    assert stand.engine.state.pilots[mine.name].tags == {}
    mine.talk(good(first), published=[Published(first, {"last": "word"})])
    assert stand.engine.state.pilots[mine.name].tags == {"ann.last": "word"}, "its last words come with its end"


def test_a_tag_that_no_expression_looks_at_costs_no_new_menu() -> None:
    stand = Stand()
    stand.submit({"array": "1-9", "require": "arch == 'x86_64'"})
    pilot = stand.pilot(tags={"arch": "x86_64"})
    pilot.pull()
    before = _eligibility(stand, pilot)
    pilot.pull(tags={"load": 3})
    assert _eligibility(stand, pilot) is before
    pilot.pull(tags={"arch": "arm64"})
    pilot.talk(*(good(attempt) for attempt in list(pilot.held)))
    assert _eligibility(stand, pilot) is not before


def _eligibility(stand: Stand, pilot: FakePilot) -> object:
    return stand.engine.state.pilots[pilot.name].eligibilities["ann"]


def test_a_requirement_over_free_room_is_looked_at_anew_for_each_task() -> None:
    stand = Stand()
    stand.submit({"array": "1-9", "require": "free_cores >= 3"})
    pilot = stand.pilot(4)
    assert len(pilot.pull()) == 2, "with a third one less than 3 would have been free before it"
    assert stand.sound()


def test_tags_of_an_exchange_that_was_overtaken_are_not_lost() -> None:
    stand = Stand()
    pilot = stand.pilot()
    first, second = pilot.make(tags={"x": 1}), pilot.make()
    pilot.send(second)
    pilot.send(first)
    assert stand.engine.state.pilots[pilot.name].tags == {"x": 1}


def test_an_image_wants_a_runtime_unless_set_up_lines_may_bring_one() -> None:
    for fields, count in (({"container": "x"}, 0), ({"container": "x", "setup": ["module load apptainer"]}, 1)):
        stand = Stand()
        stand.submit(fields)
        assert len(stand.pilot(1).pull()) == count
        assert len(stand.pilot(1, tags={"containers": "podman"}).pull()) == 1 - count
