"""Exchanges, silence and the end of pilots [protocol 5; promise R1-R5]."""

from __future__ import annotations

import dataclasses

import pytest

from shoal.engine.commands import Drain, Enrol, Look, Talk
from shoal.model.errors import BadInput, Conflict, ShoalError
from shoal.model.ids import TaskId
from shoal.model.limits import MAX_ENTRIES, MAX_FILE_ANSWERS, MAX_PEEK
from shoal.model.timing import Timing
from shoal.wire.messages import PROTOCOL, Capacity, FileAnswer, FileEntry, Held, Register, Report
from tests.unit.engine.stand import OWNER, Stand, back, bad, brief, good


# --- sequence and stored replies
def test_a_lost_reply_is_given_again_as_it_was() -> None:
    stand = Stand()
    stand.submit({"array": "1-3"})
    pilot = stand.pilot(3)
    exchange = pilot.make()
    first = pilot.send(exchange)
    assert first is not None
    assert sum(lease.count for lease in first.reply.leases) == 3
    again = pilot.send(exchange)
    assert again is not None
    assert again.reply == first.reply
    assert again.durable
    assert stand.sound()


def test_the_last_two_replies_are_kept() -> None:
    stand = Stand()
    stand.submit({"array": "1-3"})
    pilot = stand.pilot(1)
    exchanges, replies = [], []
    attempt = ""
    for reports in ([], [1], [1]):
        exchange = pilot.make([good(attempt)] if reports else [], held={})
        answer = pilot.send(exchange)
        assert answer is not None
        attempt = answer.reply.leases[0].attempt
        pilot.hear(answer.reply)
        exchanges.append(exchange)
        replies.append(answer.reply)
    for at in (1, 2):
        told = pilot.send(exchanges[at])
        assert told is not None
        assert told.reply == replies[at]
    with pytest.raises(Conflict, match="older"):
        pilot.send(exchanges[0])
    assert stand.sound()


def test_an_older_exchange_is_refused_as_a_replay() -> None:
    stand = Stand()
    pilot = stand.pilot()
    first = pilot.make()
    pilot.send(first)
    for _ in range(3):
        pilot.talk()
    with pytest.raises(Conflict) as caught:
        pilot.send(first)
    assert caught.value.code == "replay"


def test_reports_of_an_overtaken_exchange_still_count() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    pilot = stand.pilot(2)
    one, two = (lease.attempt for lease in pilot.pull())
    late = pilot.make([good(one)], held={one: "done", two: "running"})
    pilot.talk(good(two))  # overtakes it
    answer = pilot.send(late)
    assert answer is not None
    assert [(v.attempt, v.verdict) for v in answer.reply.verdicts] == [(one, "recorded")]
    assert answer.reply.leases == []
    assert answer.durable
    assert [stand.state(run, e) for e in (1, 2)] == ["succeeded", "succeeded"]


def test_the_held_list_of_an_overtaken_exchange_does_not_count() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    old = pilot.make(held={lease.attempt: "running"})
    pilot.talk()
    pilot.send(old)
    assert stand.state(run) == "leased"


def test_the_same_exchange_again_while_it_is_parked_stays_parked() -> None:
    stand = Stand()
    pilot = stand.pilot()
    exchange = pilot.make()
    assert pilot.send(exchange) is None
    assert pilot.send(exchange) is None
    stand.submit({})
    assert [a.seq for a in stand.last.answers] == [exchange.seq]


def test_a_newer_exchange_makes_the_parked_one_answered_empty() -> None:
    stand = Stand()
    pilot = stand.pilot()
    pilot.talk()
    pilot.talk()
    assert [(a.seq, a.reply.leases, a.reply.orders) for a in stand.last.answers] == [(1, [], [])]


def test_an_empty_exchange_is_held_for_a_beat_and_no_longer() -> None:
    stand = Stand()
    pilot = stand.pilot()
    pilot.talk()
    assert stand.pass_time(9.9).answers == []
    assert [a.seq for a in stand.pass_time(0.1).answers] == [1]


def test_work_that_arrives_answers_a_parked_exchange() -> None:
    stand = Stand()
    pilot = stand.pilot()
    pilot.talk()
    stand.submit({})
    (answer,) = stand.last.answers
    assert answer.seq == 1
    assert len(answer.reply.leases) == 1


def test_a_lease_the_pilot_never_got_is_sent_again_under_its_number() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    answer = pilot.send(pilot.make())
    assert answer is not None
    first = answer.reply.leases
    assert pilot.pull(held={}) == [], "the reply may still be under way"
    assert pilot.pull(held={}) == [dataclasses.replace(lease, proof="") for lease in first], "it never came"
    assert stand.task(1).number == 1


def test_a_lease_whose_reply_is_under_way_is_not_sent_twice() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    pilot.send(pilot.make())
    assert pilot.send(pilot.make()) is None


def test_a_lease_that_was_seen_and_is_missing_is_sent_again() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    assert pilot.pull(held={}) == [dataclasses.replace(lease, proof="")], "written down by then: no proof is needed"


@pytest.mark.parametrize("pilot_name", ["p0000", None])
def test_a_stranger_is_told_to_enrol(pilot_name: str | None) -> None:
    stand = Stand()
    pilot = stand.pilot()
    exchange = pilot.make()
    wrong = (
        dataclasses.replace(exchange, pilot=pilot_name)
        if pilot_name
        else dataclasses.replace(exchange, session="0" * 64)
    )
    with pytest.raises(Conflict) as caught:
        stand.do(Talk(wrong))
    assert caught.value.code == "re_enrol"


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0}, {"protocol": 99}, {"held": [Held("nonsense", "running")]}, {"reports": [Report("r1.1#1@1", "done")]},
        {"reports": [Report("r1.1#1@1", "failed", exit_code=99999)]}, {"reports": [Report("r1.1#1@1", "failed", "bored")]},
        {"reports": [Report("r1", "failed")]}, {"held": [Held("r1.1#1@1", "leased")] * 10_001},
        {"reports": [Report("r1.1#1@1", "failed")] * 2_001}, {"tags": {str(n): n for n in range(300)}},
    ],
)  # fmt: skip
def test_a_wrong_exchange_is_refused_and_changes_nothing(change: dict[str, object]) -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot(2)
    attempt = pilot.work()
    waits = pilot.exchange
    assert waits is not None
    wrong = dataclasses.replace(pilot.make(), **change)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ShoalError):
        stand.do(Talk(wrong))
    assert stand.engine.state.pilots[pilot.name].parked == waits.seq, "the exchange that waits still gets its answer"
    assert stand.engine.state.pilots[pilot.name].tags == {}
    pilot.seq -= 1
    assert pilot.verdict(good(attempt)) == "recorded"
    assert stand.state(run) == "succeeded"
    assert stand.sound()


# --- enrolment
def test_an_unfit_host_is_noted_and_gets_nothing() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot(unfit=["no space in /tmp"])
    (event,) = stand.events("pilot_unfit")
    assert event.data["reasons"] == ["no space in /tmp"]
    assert pilot.name not in stand.engine.state.pilots
    stand.commit()
    found = stand.reader.pilot(pilot.name)
    assert found is not None
    assert found.state == "gone"
    assert "no space in /tmp" in found.reason
    with pytest.raises(Conflict):
        pilot.talk()


@pytest.mark.parametrize(
    "room", [Capacity(0), Capacity(65_537), Capacity(-1), Capacity(1, -1), Capacity(1, 0, -1), Capacity(1, 0, 0, -1)]
)
def test_a_host_that_cannot_be_is_refused(room: Capacity) -> None:
    with pytest.raises(BadInput):
        Stand().pilot(room=room)


def test_another_protocol_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        Stand().do(Enrol(Register(PROTOCOL + 1, "", "", "", Capacity(1)), OWNER, "local"))
    assert caught.value.code == "protocol"


@pytest.mark.parametrize("room", [Capacity(1, 2**63), Capacity(1, 0, 2**70), Capacity(1, 0, 0, 2**64)])
def test_a_host_larger_than_the_database_can_write_is_refused_not_fatal(room: Capacity) -> None:
    """A row that cannot be written ends the server (writer._die), and the pilot would come again [input E58]."""
    stand = Stand()
    try:
        stand.pilot(room=room)
    except BadInput:
        return
    stand.commit()


def test_a_pilot_that_enrols_again_keeps_what_it_runs() -> None:
    stand = Stand()
    run = stand.submit({})
    old = stand.pilot()
    attempt = old.work()
    new = stand.pilot(former=old)
    assert old.name not in stand.engine.state.pilots
    assert next(iter(stand.engine.state.pilots[new.name].live)).text == attempt.split("@")[0]
    new.talk()
    assert new.verdict(good(attempt)) == "recorded"
    assert stand.state(run) == "succeeded"
    assert stand.sound()


def test_nobody_takes_over_a_living_pilots_work_without_its_secret() -> None:
    stand = Stand()
    stand.submit({})
    old = stand.pilot()
    attempt = old.work()
    secret, old.session = old.session, "0" * 64
    thief = stand.pilot(former=old)
    old.session = secret
    thief.talk(held={})
    assert thief.verdict(good(attempt)) == "stale"
    assert old.name in stand.engine.state.pilots
    assert stand.task(1).live
    assert stand.sound()


# --- drain
def test_the_drain_order_is_given_until_the_pilot_says_it_leaves() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.drain(pilot)
    assert [o.kind for a in stand.last.answers for o in a.reply.orders] == ["drain"]
    assert pilot.orders("drain")[0].why == "maintenance"
    assert len(pilot.orders("drain")) == 1
    assert pilot.orders("drain", leaving="maintenance") == []
    assert stand.engine.state.pilots[pilot.name].live
    assert pilot.talk(good(attempt), leaving="maintenance").verdicts[0].verdict == "recorded"
    assert pilot.name not in stand.engine.state.pilots
    assert stand.state(run) == "succeeded"
    assert stand.sound()


def test_a_draining_pilot_gets_nothing_new() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-5"})
    pilot = stand.pilot(2)
    stand.drain(pilot)
    assert pilot.pull() == []
    assert pilot.pull(leaving="maintenance") == []
    assert stand.state(run) == "ready"


def test_a_pilot_that_leaves_with_nothing_is_gone_at_once_and_gets_its_answer() -> None:
    stand = Stand()
    pilot = stand.pilot()
    answer = pilot.send(pilot.make(leaving="its time is over"))
    assert answer is not None
    assert stand.events("pilot_gone")[0].data["reason"] == "its time is over"


def test_drain_is_for_those_named_and_told_once() -> None:
    stand = Stand()
    one, two = stand.pilot(), stand.pilot()
    stand.pilot()
    stand.drain(one, two)
    assert len(stand.events("pilot_draining")) == 2
    stand.drain(one, two)
    assert len(stand.events("pilot_draining")) == 2


def test_tasks_given_back_by_a_pilot_that_leaves_burn_nothing() -> None:
    stand = Stand()
    run = stand.submit({"retries": 1})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    assert pilot.talk(back(lease.attempt), leaving="bye").verdicts[0].verdict == "recorded"
    task = stand.task(run)
    assert (stand.state(run), task.retries, task.losses) == ("ready", 0, 0)


# --- silence
def test_silence_makes_suspect_then_lost() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.work()
    stand.pass_time(30.0)
    assert not stand.events("pilot_suspect")
    stand.pass_time(0.1)
    assert len(stand.events("pilot_suspect")) == 1
    stand.pass_time(44.9)
    assert pilot.name in stand.engine.state.pilots
    assert stand.state(run) == "running"
    stand.pass_time(0.1)
    assert pilot.name not in stand.engine.state.pilots
    assert stand.state(run) == "ready"
    assert len(stand.events("pilot_suspect")) == 1
    assert stand.sound()


def test_a_suspect_that_speaks_is_a_suspect_no_more() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.pass_time(31)
    pilot.talk()
    stand.pass_time(60)
    assert pilot.name in stand.engine.state.pilots
    assert len(stand.events("pilot_suspect")) == 2


def test_a_pilot_known_to_be_dead_is_not_waited_for() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.work()
    stand.bury(pilot)
    assert stand.state(run) == "ready"
    assert stand.task(run).losses == 1


def test_a_task_that_kills_its_pilot_before_anybody_hears_of_its_start_is_poison_after_three() -> None:
    """Was: only losses of attempts that were known to run counted, and 24 pilots died on one task."""
    stand = Stand()
    run = stand.submit({})
    for _ in range(3):
        pilot = stand.pilot()
        assert len(pilot.pull()) == 1
        stand.bury(pilot)
        stand.pass_time(1)
    row = stand.row(run)
    assert (row.state, row.cause, row.losses) == ("failed", "poison", 3)
    assert "3 pilots were lost" in row.message
    assert stand.pilot().pull() == []


def test_a_task_that_takes_three_pilots_with_it_is_poison() -> None:
    stand = Stand()
    run = stand.submit({"retries": 100}, {"name": "other"})
    for round_ in range(3):
        assert stand.state(run) == "ready", round_
        pilot = stand.pilot()
        pilot.work()
        stand.bury(pilot)
    row = stand.row(run)
    assert (row.state, row.cause, row.losses, row.retries) == ("failed", "poison", 3, 0)
    assert stand.state(run, 2) == "ready"
    assert stand.sound()


def test_an_exclusive_task_that_takes_three_pilots_with_it_is_poison_too() -> None:
    """A task that kills its pilot stops after 3 pilots, whatever its re-run class [promise I11]."""
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    for _ in range(3):
        assert stand.state(run) == "ready"
        pilot = stand.pilot()
        pilot.work()
        stand.bury(pilot)
        stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert (stand.state(run), stand.row(run).cause) == ("failed", "poison")


def test_a_pilot_that_comes_back_was_not_lost_under_its_task() -> None:
    """A 10 h run is not thrown away for a 2 min cut, nor for the third of them: nothing died here [promise I11]."""
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    for cut in range(1, 6):
        stand.pass_time(120)
        pilot = stand.pilot(former=pilot)
        assert pilot.orders("cancel") == [], f"cut {cut}"
        assert stand.state(run) == "running", f"cut {cut}"
    assert stand.task(run).losses == 0
    assert pilot.verdict(good(attempt)) == "recorded"
    assert stand.state(run) == "succeeded"


def test_losses_are_counted_across_restarts() -> None:
    stand = Stand()
    run = stand.submit({})
    for _ in range(3):
        pilot = stand.pilot()
        pilot.work()
        stand.bury(pilot)
        stand.restart()
    assert (stand.state(run), stand.row(run).cause) == ("failed", "poison")


# --- exclusive and never
def test_an_exclusive_orphan_comes_back_after_hold_and_margin_not_before() -> None:
    stand = Stand(Timing(hold=900.0, margin=15.0))
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    pilot.work()
    seen = stand.now
    other = stand.pilot()
    stand.bury(pilot)
    while stand.now < seen + 900:
        assert stand.state(run) == "running"
        assert other.pull() == []
        stand.pass_time(30)
    stand.now = seen + 914.9
    other.talk()
    assert stand.state(run) == "running"
    stand.now = seen + 915.0
    stand.pass_time(0)
    assert stand.state(run) == "leased", "a waiting pilot gets it at once"
    assert stand.task(run).number == 2
    assert len(stand.task(run).live) == 1
    assert stand.sound()


def test_the_right_of_an_exclusive_task_counts_from_the_last_word_of_its_pilot() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    pilot.work()
    seen = stand.now
    stand.pass_time(75.1)  # lost
    stand.now = seen + 914.9
    stand.pass_time(0)
    assert stand.state(run) == "running"
    stand.now = seen + 915.0
    stand.pass_time(0)
    assert stand.state(run) == "ready"
    assert stand.task(run).retries == 0


def test_a_pilot_that_comes_back_in_time_keeps_its_exclusive_task() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.pass_time(75.1)
    again = stand.pilot(former=pilot)
    again.talk()
    assert stand.events("task_adopted")[0].data["how"] == "pilot came back"
    stand.pass_time(20)
    assert again.verdict(good(attempt)) == "recorded"
    assert stand.state(run) == "succeeded"
    assert brief(stand.row(run).winner) == "1@1"
    assert stand.sound()


def test_a_task_that_must_never_run_twice_ends_lost() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "never"})
    pilot = stand.pilot()
    pilot.work()
    stand.bury(pilot)
    assert stand.state(run) == "running"
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert (stand.state(run), stand.row(run).cause) == ("lost", "pilot_lost")
    other = stand.pilot()
    assert other.pull() == []
    assert stand.sound()


def test_a_never_task_that_may_have_started_ends_lost_even_if_no_start_was_heard() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "never"})
    pilot = stand.pilot()
    pilot.pull()
    stand.bury(pilot)
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert stand.state(run) == "lost"


def test_a_never_task_given_back_unstarted_runs_after_all() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "never"})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    pilot.talk(back(lease.attempt))
    assert stand.task(run).number == 2, "leased anew with the same breath"


def test_a_never_task_stopped_while_it_ran_ends_lost() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "never"})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.talk(back(attempt, started=1.0))
    assert stand.state(run) == "lost"


def test_lost_tasks_over_the_limit_of_failures_cancel_the_orphans_beside_them() -> None:
    """The end of one orphan may end the others (--max-fail) while the engine goes through them all."""
    stand = Stand()
    run = stand.submit({"rerun": "never", "array": "1-3"}, {"rerun": "exclusive"}, max_fail=1)
    pilot = stand.pilot(4)
    pilot.pull()
    pilot.run()
    stand.bury(pilot)
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert [stand.state(run, e) for e in (1, 2, 3, 4)] == ["lost", "cancelled", "cancelled", "cancelled"]
    assert stand.sound()


def test_poison_over_the_limit_of_failures_cancels_what_its_pilot_ran_beside_it() -> None:
    """The end of one attempt of a lost pilot may end the others (--max-fail) while the engine goes through them all."""
    stand = Stand()
    run = stand.submit({"array": "1-3"}, max_fail=1)
    for _ in range(3):
        pilot = stand.pilot(3)
        pilot.pull()
        pilot.run()
        stand.bury(pilot)
    assert [stand.state(run, e) for e in (1, 2, 3)] == ["failed", "cancelled", "cancelled"]
    assert stand.row(run).cause == "poison"
    assert stand.sound()


# --- what a pilot holds and should not
def test_a_pilot_that_holds_a_final_task_is_told_to_stop_it() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.cancel(run)
    (answer,) = stand.last.answers
    assert [(o.kind, o.attempt) for o in answer.reply.orders] == [("cancel", attempt)]
    assert [(o.kind, o.attempt) for o in pilot.talk().orders] == [("cancel", attempt)], "until it is gone"


def test_a_pilot_that_holds_what_another_has_is_told_to_stop() -> None:
    stand = Stand()
    stand.submit({"rerun": "exclusive"})
    first, second = stand.pilot(), stand.pilot()
    attempt = first.work()
    assert [o.attempt for o in second.orders("cancel", held={attempt: "running"})] == [attempt]
    assert stand.task(1).live.popitem()[1].pilot == first.name


def test_a_pilot_that_holds_what_does_not_exist_is_told_to_stop() -> None:
    stand = Stand()
    pilot = stand.pilot()
    assert len(pilot.orders("cancel", held={"r9.9#1@1": "running"})) == 1


def test_a_safe_copy_given_up_and_still_alive_is_kept_beside_the_new_one() -> None:
    stand = Stand()
    run = stand.submit({})
    first = stand.pilot()
    attempt = first.work()
    stand.pass_time(75.1)
    second = stand.pilot()
    second.work()
    again = stand.pilot(former=first)
    assert again.orders("cancel") == []
    assert len(stand.task(run).live) == 2
    assert again.verdict(good(attempt)) == "recorded"
    assert len(second.orders("cancel")) == 1
    assert stand.sound()


def test_a_copy_that_failed_is_not_taken_back_by_holding_it() -> None:
    stand = Stand()
    run = stand.submit({"retries": 1})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.talk(bad(attempt))
    held = {attempt: "running"}
    assert [o.attempt for o in pilot.orders("cancel", held=held)] == [attempt]
    assert all(str(a) != attempt for a in stand.task(run).live)


# --- ends of pilots, and looks at files
def test_a_drain_with_a_time_says_how_long_is_left_and_a_stop_after_it_is_ordered_too() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.submit({})
    pilot.work()
    stand.do(Drain((pilot.name,), "maintenance", within=100.0))
    (order,) = [o for a in stand.last.answers for o in a.reply.orders]
    assert (order.kind, order.within) == ("drain", 100.0)
    stand.restart()
    stand.now += 40.0
    pilot.talk()
    (order,) = pilot.orders("drain")
    assert order.within == pytest.approx(60.0), "the time is kept over a restart"
    pilot.talk(leaving="maintenance")
    assert stand.do(Drain((pilot.name,), "now", within=500.0)).result == {"pilots": 0}, "it cannot be put off"
    assert stand.do(Drain((pilot.name,), "now", within=5.0, stop=True)).result == {"pilots": 1}
    (order,) = [o for a in stand.last.answers for o in a.reply.orders] or pilot.orders("stop", leaving="maintenance")
    assert (order.kind, order.within) == ("stop", 5.0)
    assert stand.sound()


def test_an_older_pilot_is_drained_where_a_newer_one_is_stopped() -> None:
    stand = Stand()
    old = stand.pilot(protocol=PROTOCOL - 1)
    stand.do(Drain((old.name,), "now", within=5.0, stop=True))
    assert [order.kind for order in old.talk().orders] == ["drain"]


def test_a_question_about_files_goes_to_the_pilot_of_the_newest_running_attempt() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    pilot = stand.pilot()
    attempt = pilot.work()
    found = stand.do(Look(TaskId(run, 1), "read_file", "q", "out/x", -5, 10)).result
    assert found.name == pilot.name
    (order,) = [o for a in stand.last.answers for o in a.reply.orders] or pilot.orders("read_file")
    assert (order.attempt, order.path, order.offset, order.count, order.request) == (attempt, "out/x", -5, 10, "q")
    with pytest.raises(Conflict, match=f"r{run}.2 does not run"):
        stand.do(Look(TaskId(run, 2), "list_files", "q"))


def test_an_older_pilot_is_not_asked_about_files() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot(protocol=PROTOCOL - 1)
    pilot.work()
    with pytest.raises(Conflict, match="of an older version and shows no files"):
        stand.do(Look(TaskId(run, 1), "list_files", "q"))


@pytest.mark.parametrize(
    "answer",
    [
        FileAnswer("q", data="A" * (2 * MAX_PEEK)),
        FileAnswer("q", entries=[FileEntry("x", "file")] * (MAX_ENTRIES + 1)),
        FileAnswer("q", entries=[FileEntry("x" * 5000, "file")]),
        FileAnswer("q", error="x" * 5000),
    ],
)
def test_an_answer_about_files_that_is_too_large_is_refused(answer: FileAnswer) -> None:
    pilot = Stand().pilot()
    with pytest.raises(BadInput, match="out of bounds"):
        pilot.send(pilot.make(files=[answer]))
    with pytest.raises(BadInput, match="too many answers about files"):
        pilot.send(pilot.make(files=[FileAnswer("q")] * (MAX_FILE_ANSWERS + 1)))


def test_the_row_of_a_task_that_runs_says_since_when() -> None:
    """One that was fetched ahead was leased long before it began."""
    stand = Stand()
    run = stand.submit({"command": ["x"]})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    assert stand.row(run).started is None
    stand.pass_time(5.0)
    pilot.run(lease.attempt)
    assert stand.row(run).started == stand.now
    pilot.talk(good(lease.attempt, started=3.0))
    assert stand.row(run).started == 3.0
