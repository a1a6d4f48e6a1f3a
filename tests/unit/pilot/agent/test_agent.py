"""The pilot's thought: its four rules, leaving, being disowned, and patience [protocol 5; DIANE U4; GWP G1]."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest

from shoal.model.limits import MAX_IN_FLIGHT, MAX_REPORTS
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.events import (
    Action,
    Announced,
    Answered,
    Assigned,
    Begin,
    Called,
    Complain,
    Contact,
    Disowned,
    Ended,
    Event,
    Fetch,
    Fetched,
    Finish,
    Join,
    Joined,
    Leave,
    Look,
    Looked,
    NoAnswer,
    Noticed,
    Outdated,
    Rejected,
    Reserved,
    Saved,
    Send,
    Settle,
    Shorten,
    Shortened,
    Signal,
    Started,
    Stop,
    Tick,
    Waits,
    Watch,
    Wrote,
)
from shoal.pilot.agent.registration import BACKOFF_MOST
from shoal.pilot.agent.send_schedule import START_DELAY, STARTS_AWAITED, TAGS_INTERVAL
from shoal.wire.messages import (
    Batch,
    Capacity,
    Exchange,
    FileAnswer,
    FormerPilot,
    Held,
    Lease,
    LogPiece,
    Order,
    Published,
    Registered,
    Reply,
    Report,
    Verdict,
)

DIGEST = "a" * 64
REGISTERED = Registered("p1", "secret", 1, 10.0, 75.0, 900.0, 720.0, 10.0, 600.0, 86_400.0)
ActionT = TypeVar("ActionT", bound=Action)


def lease(number: int, cores: int = 1, **more: Any) -> Lease:
    return Lease(f"r1.{number}#1@1", Capacity(cores, **more), "safe", ["true"])


def done(number: int, outcome: str = "succeeded", **more: Any) -> Report:
    return Report(f"r1.{number}#1@1", outcome, started=1.0, **more)


class Driver:
    """An agent, its clock, and everything it did."""

    def __init__(self, room: Capacity | None = None, join: bool = True) -> None:
        self.agent = Agent(room or Capacity(2, 8 << 30, 1 << 40, 2), Random(1))
        self.now = 100.0
        self.did: list[Action] = []
        self.open: dict[int, Exchange] = {}  # sent and not answered
        if join:
            self.see(Tick())
            self.see(Joined(REGISTERED))

    def see(self, event: Event) -> list[Action]:
        """Something happens; what the agent does about it."""
        actions = self.agent.handle(event, self.now)
        self.did += actions
        for action in actions:
            if isinstance(action, Send):
                self.open[action.exchange.seq] = action.exchange
        return actions

    def answer(self, seq: int | None = None, **more: Any) -> list[Action]:
        """The oldest open exchange, or the one named, is answered."""
        seq = seq if seq is not None else min(self.open)
        said = self.open.pop(seq)
        verdicts = [Verdict(r.attempt, "recorded") for r in said.reports]
        return self.see(Answered(Reply(seq, 1, **{"verdicts": verdicts, **more})))

    def begin(self, *leases: Lease) -> list[Action]:
        """The server hands out work, and the hands begin it."""
        actions = self.answer(leases=list(leases))
        for action in only(actions, Begin):
            self.see(Started(action.lease.attempt))
        return actions

    def settle(self) -> None:
        """Answer until there is nothing left to say but one parked exchange."""
        for _ in range(20):
            if len(self.open) < 2 and not any(e.reports for e in self.open.values()):
                return
            self.answer()

    def answer_to_the_end(self) -> None:
        """Answer everything until the agent ends."""
        while not self.agent.ended:
            self.answer()

    def tick(self) -> list[Action]:
        """Let time pass up to the deadline."""
        due = self.agent.deadline()
        assert due is not None
        self.now = max(self.now, due)
        return self.see(Tick())


def only(actions: list[Action], kind: type[ActionT]) -> list[ActionT]:
    return [action for action in actions if isinstance(action, kind)]


def sent(actions: list[Action]) -> list[Exchange]:
    return [action.exchange for action in only(actions, Send)]


# --- joining
def test_the_first_thing_is_to_join() -> None:
    driver = Driver(join=False)
    (join,) = driver.see(Tick())
    assert isinstance(join, Join) and join.former is None
    assert driver.see(Tick()) == []


def test_who_has_joined_sends_an_exchange_at_once() -> None:
    driver = Driver(join=False)
    driver.see(Tick())
    (contact, send) = driver.see(Joined(REGISTERED))
    assert contact == Contact(driver.now)
    assert isinstance(send, Send)
    exchange = send.exchange
    assert (exchange.pilot, exchange.session, exchange.seq, exchange.ack) == ("p1", "secret", 1, 0)
    assert exchange.free == driver.agent.room


def test_there_is_always_one_exchange_open() -> None:
    driver = Driver()
    for seq in range(1, 6):
        assert list(driver.open) == [seq]
        assert [e.seq for e in sent(driver.answer())] == [seq + 1]
    assert driver.open[6].ack == 5


# --- rule 1: a report is kept until a reply acknowledges it
def test_a_report_is_kept_until_it_is_acknowledged() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (exchange,) = sent(driver.see(Ended(done(1))))
    assert [r.attempt for r in exchange.reports] == ["r1.1#1@1"]
    assert list(driver.agent.reports) == ["r1.1#1@1"]
    driver.see(NoAnswer(exchange.seq))
    assert list(driver.agent.reports) == ["r1.1#1@1"]
    actions = driver.answer(exchange.seq)
    assert only(actions, Settle) == [Settle("r1.1#1@1", True)]
    assert not driver.agent.reports


def call(number: int, count: int = 1) -> Lease:
    return Lease(f"r1.{number}#1@1", Capacity(1), "safe", function="Zg==", calls=["b25l"] * count, count=count)


def called(number: int, over: bool = True) -> Called:
    return Called(f"r1.{number}#1@1", Batch(f"r1.{number}#1@1", 1, [1.0], [0.001], result=["gAU="]), (), over)


def test_the_report_of_a_call_also_asks_for_work_if_nothing_else_is_here() -> None:
    driver = Driver()
    driver.answer(leases=[call(1)])
    (exchange,) = sent(driver.see(called(1)))
    assert exchange.asks and len(exchange.batches) == 1
    driver.now += 0.1
    assert sent(driver.see(Tick())) == [], "it waits for work already"
    (urgent,) = sent(driver.see(Leave("told to end")))
    assert not urgent.batches and urgent.leaving, "what is urgent does not wait for its end"
    driver.answer(exchange.seq)
    assert driver.agent.outbox.is_empty


@pytest.mark.parametrize("why", ["poll", "running", "command", "leaving"])
def test_any_other_report_is_answered_when_it_is_durable(why: str) -> None:
    """Outputs of commands are published when they are accepted; who has more to do has more to say."""
    driver = Driver()
    driver.answer(leases=[lease(1) if why == "command" else call(1), *([call(2)] if why == "running" else [])])
    if why == "poll":
        driver.tick()  # it asks already
    elif why == "leaving":
        driver.agent.handle(Leave("told to end"), driver.now)
    exchange = sent(driver.see(Ended(done(1)) if why == "command" else called(1)))
    assert all(not one.asks for one in exchange)


@pytest.mark.parametrize(
    ("verdict", "accepted"),
    [("recorded", True), ("adopted", True), ("stale", False), ("final", False), ("unknown", False)],
)
def test_outputs_are_published_only_if_the_report_counted(verdict: str, accepted: bool) -> None:
    driver = Driver()
    driver.begin(lease(1))
    (exchange,) = sent(driver.see(Ended(done(1))))
    actions = driver.answer(exchange.seq, verdicts=[Verdict("r1.1#1@1", verdict)])
    assert only(actions, Settle) == [Settle("r1.1#1@1", accepted)]
    assert not driver.agent.reports


def test_an_answer_to_another_exchange_acknowledges_nothing() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (exchange,) = sent(driver.see(Ended(done(1))))
    other = next(seq for seq in driver.open if seq != exchange.seq)
    driver.answer(other)
    assert list(driver.agent.reports) == ["r1.1#1@1"]


def test_what_is_reported_is_held_as_done_until_then() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (exchange,) = sent(driver.see(Ended(done(1))))
    assert [(h.attempt, h.stage) for h in exchange.held] == [("r1.1#1@1", "done")]


def test_reports_beyond_one_message_follow_in_the_next() -> None:
    driver = Driver(Capacity(MAX_REPORTS + 10))
    driver.answer(leases=[lease(n) for n in range(1, MAX_REPORTS + 6)])
    for n in range(1, MAX_REPORTS + 6):
        driver.agent.reports[f"r1.{n}#1@1"] = done(n)
        driver.agent.running.pop(f"r1.{n}#1@1")
    while driver.agent.reports:
        assert all(len(e.reports) <= MAX_REPORTS for e in driver.open.values())
        driver.answer()
    assert len(only(driver.did, Settle)) == MAX_REPORTS + 5


# --- rule 2: an attempt once seen is never begun again
def test_a_lease_sent_twice_is_begun_once() -> None:
    driver = Driver()
    assert len(only(driver.begin(lease(1)), Begin)) == 1
    assert only(driver.answer(leases=[lease(1)]), Begin) == []
    driver.see(Ended(done(1)))
    driver.settle()
    assert only(driver.answer(leases=[lease(1)]), Begin) == []
    assert len(only(driver.did, Begin)) == 1


def test_a_reply_that_comes_twice_is_taken_once() -> None:
    driver = Driver()
    reply = Reply(1, 1, leases=[lease(1)])
    driver.see(Answered(reply))
    driver.see(Ended(done(1)))
    assert driver.see(Answered(reply)) == []


# --- rule 3: an exchange without an answer is sent again unchanged
def test_an_unanswered_exchange_is_sent_again_under_its_number() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (first,) = driver.open.values()
    driver.see(NoAnswer(first.seq))
    driver.see(Ended(done(1)))  # there is more to say, but not in this one
    again = sent(driver.tick())
    assert again[0] is first
    assert all(exchange.seq > first.seq for exchange in again[1:])


def test_nothing_new_is_sent_while_the_first_waits_for_its_next_try() -> None:
    driver = Driver()
    driver.begin(lease(1), lease(2))
    (first,) = driver.open.values()
    driver.see(NoAnswer(first.seq))
    assert sent(driver.see(Ended(done(1)))) == []
    assert sent(driver.see(Ended(done(2)))) == []
    driver.tick()
    driver.answer(first.seq)
    riding = [r.attempt for exchange in driver.open.values() for r in exchange.reports]
    assert sorted(riding) == ["r1.1#1@1", "r1.2#1@1"]


def test_backoff_grows_and_stays_within_its_bounds() -> None:
    driver = Driver()
    (seq,) = driver.open
    waits = []
    for _ in range(12):
        driver.see(NoAnswer(seq))
        due = driver.agent.deadline()
        assert due is not None
        waits.append(due - driver.now)
        assert [e.seq for e in sent(driver.tick())] == [seq]
    assert 0.0 < waits[0] <= 0.4
    assert all(0.0 < wait <= BACKOFF_MOST for wait in waits)
    assert min(waits[5:]) >= BACKOFF_MOST / 2
    assert len(set(waits[5:])) > 1, "pilots must not come back all at once"


def test_an_answer_ends_the_backoff() -> None:
    driver = Driver()
    for _ in range(8):
        driver.see(NoAnswer(1))
        driver.tick()
    driver.answer(1)
    driver.see(NoAnswer(2))
    due = driver.agent.deadline()
    assert due is not None
    assert due - driver.now <= 0.4


def test_a_registration_without_an_answer_is_tried_again() -> None:
    driver = Driver(join=False)
    first = driver.see(Tick())
    assert driver.see(NoAnswer(0)) == []
    due = driver.agent.deadline()
    assert due is not None
    assert 0 < due - driver.now <= 0.4
    assert driver.tick() == first, "the same nonce: it may have come through"


def test_the_next_registration_has_another_nonce() -> None:
    driver = Driver()
    (again,) = only(driver.see(Disowned(1)), Join)
    (first,) = only(driver.did, Join)[:1]
    assert len({first.nonce, again.nonce, ""}) == 3


def test_every_exchange_has_a_nonce_and_keeps_it_when_it_is_sent_again() -> None:
    driver = Driver()
    driver.see(NoAnswer(1))
    (again,) = sent(driver.tick())
    driver.answer(1)
    assert again.nonce == sent(driver.did)[0].nonce
    assert len({exchange.nonce for exchange in sent(driver.did)} | {""}) == 3


# --- rule 4: at most two in flight, a report on one at a time
def test_at_most_two_are_in_flight() -> None:
    driver = Driver(Capacity(8))
    driver.begin(*(lease(n) for n in range(1, 6)))
    for n in range(1, 6):
        driver.see(Ended(done(n)))
        assert len(driver.open) <= MAX_IN_FLIGHT
    assert len(driver.open) == MAX_IN_FLIGHT


def test_a_report_rides_on_one_exchange_at_a_time() -> None:
    driver = Driver(Capacity(8))
    driver.begin(*(lease(n) for n in range(1, 6)))
    for n in range(1, 6):
        driver.see(Ended(done(n)))
    seen: list[str] = []
    while driver.agent.reports:
        riding = [r.attempt for e in driver.open.values() for r in e.reports]
        assert len(riding) == len(set(riding))
        seen += [r.attempt for r in driver.open[min(driver.open)].reports]
        driver.answer()
    assert sorted(seen) == [f"r1.{n}#1@1" for n in range(1, 6)]


def test_a_start_waits_a_little_for_company() -> None:
    driver = Driver()
    driver.answer(leases=[lease(1)])
    assert sent(driver.see(Started("r1.1#1@1"))) == []
    due = driver.agent.deadline()
    assert due == driver.now + START_DELAY
    (exchange,) = sent(driver.tick())
    assert [(h.attempt, h.stage) for h in exchange.held] == [("r1.1#1@1", "running")]


def test_where_no_slot_is_free_the_next_exchange_waits_a_moment_and_tells_of_the_start() -> None:
    driver = Driver(Capacity(1))
    assert sent(driver.answer(leases=[lease(1)])) == []
    assert driver.agent.deadline() == driver.now + STARTS_AWAITED
    (exchange,) = sent(driver.see(Started("r1.1#1@1")))
    assert [(h.attempt, h.stage) for h in exchange.held] == [("r1.1#1@1", "running")]
    assert sent(driver.answer()) != [], "the start needs no exchange of its own"
    assert len(driver.open) == 1


def test_a_start_that_takes_long_keeps_no_exchange_back() -> None:
    driver = Driver(Capacity(1))
    driver.answer(leases=[lease(1)])
    (exchange,) = sent(driver.tick())
    assert [(h.attempt, h.stage) for h in exchange.held] == [("r1.1#1@1", "leased")]
    assert sent(driver.see(Started("r1.1#1@1"))) == []
    assert driver.agent.deadline() == driver.now + START_DELAY


def test_while_something_waits_here_or_a_slot_is_free_work_is_asked_for_at_once() -> None:
    for room, leases in ((Capacity(2), [lease(1)]), (Capacity(1), [lease(1), lease(2)])):
        driver = Driver(room)
        (exchange,) = sent(driver.answer(leases=leases))
        assert {held.stage for held in exchange.held} == {"leased"}


def test_changed_tags_travel_once() -> None:
    driver = Driver()
    driver.see(Noticed({"load": 0.5}))
    driver.see(Noticed({"load": 0.7, "free": 3}))
    (exchange,) = sent(driver.answer())
    assert exchange.tags == {"load": 0.7, "free": 3}
    driver.answer()
    driver.answer()
    assert all(later.tags == {} for later in driver.open.values())


def test_changed_tags_cause_no_exchange_of_their_own() -> None:
    driver = Driver()
    before = driver.agent.deadline()
    assert sent(driver.see(Noticed({"load": 0.5}))) == []
    assert driver.agent.deadline() == before


def test_that_there_is_space_again_is_told_at_once() -> None:
    """Tasks that wait for this pilot alone waited for the next beat as well."""
    driver = Driver()
    (exchange,) = sent(driver.see(Noticed({"unfit": ""})))
    assert exchange.tags == {"unfit": ""}


def test_published_tags_are_told_within_a_moment() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.tick()
    driver.settle()
    assert sent(driver.see(Announced("r1.1#1@1", {"x": 1}))) == []
    due = driver.agent.deadline()
    assert due is not None and due - driver.now <= 0.05
    (exchange,) = sent(driver.tick())
    assert exchange.published == [Published("r1.1#1@1", {"x": 1})]


def test_published_tags_come_no_later_than_the_report_of_their_task() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Announced("r1.1#1@1", {"x": 1}))
    (exchange,) = [e for e in sent(driver.see(Ended(done(1)))) if e.batches or e.reports]
    assert exchange.published == [Published("r1.1#1@1", {"x": 1})]
    assert sent(driver.see(Announced("r1.1#1@1", {"x": 2}))) == [], "it is over, nobody can have said that"
    assert not driver.agent.outbox.has_published


def test_what_a_task_published_survives_lost_outdated_and_disowned_exchanges() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.tick()
    driver.settle()
    driver.see(Announced("r1.1#1@1", {"x": 1}))
    (exchange,) = sent(driver.tick())
    driver.see(NoAnswer(exchange.seq))
    (again,) = [e for e in sent(driver.tick()) if e.published]
    assert again == exchange
    del driver.open[exchange.seq]
    (second,) = sent(driver.see(Outdated(exchange.seq)))
    assert second.published == exchange.published
    driver.see(Disowned(second.seq))
    driver.open.clear()
    (third,) = sent(driver.see(Joined(REGISTERED)))
    assert third.published == exchange.published
    driver.answer(third.seq)
    driver.now += 10.0
    driver.see(Tick())
    assert all(not later.published for later in driver.open.values()), "once heard it is not said again"


def test_a_task_that_never_ends_publishing_is_heard_now_and_then() -> None:
    driver = Driver()
    driver.begin(lease(1))
    count = len(only(driver.did, Send))
    end = driver.now + 10.0
    number = 0
    while driver.now < end:
        number += 1
        driver.see(Announced("r1.1#1@1", {"x": number}))
        driver.now += 0.01
        driver.see(Tick())
        while len(driver.open) > 1:
            driver.answer()
    assert 10 <= len(only(driver.did, Send)) - count <= 2 * 10 / TAGS_INTERVAL + 5


def test_what_a_call_publishes_is_said_in_the_name_of_the_call_that_its_piece_is_at() -> None:
    driver = Driver(Capacity(1))
    piece = Lease("r1.1#1@1", Capacity(1), "safe", function="f", calls=["a", "b", "c"], count=3)
    (begin,) = only(driver.answer(leases=[piece]), Begin)
    assert begin.lease.count == 3
    driver.see(Called("r1.1#1@1", Batch("r1.1#1@1", 1, duration=[0.1])))
    for seq in [seq for seq, exchange in driver.open.items() if exchange.batches]:
        driver.answer(seq)
    driver.see(Announced("r1.1#1@1", {"x": 1}))
    driver.tick()
    (said,) = [one for e in driver.open.values() for one in e.published]
    assert said == Published("r1.2#1@1", {"x": 1})


def test_a_rejected_exchange_is_said_again_without_what_was_published() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.tick()
    driver.settle()
    driver.see(Announced("r1.1#1@1", {"x": 1}))
    (exchange,) = sent(driver.tick())
    assert exchange.published
    del driver.open[exchange.seq]
    for later in sent(driver.see(Rejected(exchange.seq))):
        assert not later.published


# --- outdated and disowned
def test_what_an_outdated_exchange_carried_is_said_again() -> None:
    driver = Driver()
    driver.begin(lease(1))
    tail = LogPiece("r1.1#1@1", "stdout", "hi")
    (exchange,) = sent(driver.see(Ended(done(1), (tail,))))
    assert exchange.tails == [tail]
    del driver.open[exchange.seq]
    (again,) = sent(driver.see(Outdated(exchange.seq)))
    assert again.seq > exchange.seq
    assert [r.attempt for r in again.reports] == ["r1.1#1@1"]
    assert again.tails == [tail]


def test_tags_of_an_outdated_exchange_do_not_overwrite_newer_ones() -> None:
    driver = Driver()
    driver.see(Noticed({"a": 1, "b": 1}))
    (exchange,) = sent(driver.answer())
    driver.see(Noticed({"b": 2}))
    del driver.open[exchange.seq]
    (again,) = sent(driver.see(Outdated(exchange.seq)))
    assert again.tags == {"a": 1, "b": 2}


def test_who_is_disowned_joins_again_with_its_former_name() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (seq,) = driver.open
    (join,) = driver.see(Disowned(seq))
    assert isinstance(join, Join) and join.former == FormerPilot("p1", "secret")
    driver.open.clear()
    new = Registered("p2", "other", 2, 10.0, 75.0, 900.0, 720.0, 10.0, 600.0, 86_400.0)
    (exchange,) = sent(driver.see(Joined(new)))
    assert (exchange.pilot, exchange.session) == ("p2", "other")
    assert [(h.attempt, h.stage) for h in exchange.held] == [("r1.1#1@1", "running")]
    assert exchange.seq > seq, "numbers go on, so that an old answer is not taken for a new one"


def test_a_server_that_takes_in_and_disowns_is_not_asked_without_a_pause() -> None:
    driver = Driver()
    for _ in range(3):
        driver.see(Disowned(min(driver.open)))
        driver.open.clear()
        if driver.agent.deadline() == driver.now:
            driver.tick()
        driver.see(Joined(REGISTERED))
    assert only(driver.see(Disowned(min(driver.open))), Join) == []
    due = driver.agent.deadline()
    assert due is not None and 0 < due - driver.now <= BACKOFF_MOST


def test_who_is_disowned_keeps_its_reports_and_tails() -> None:
    driver = Driver()
    driver.begin(lease(1))
    tail = LogPiece("r1.1#1@1", "stderr", "x")
    (exchange,) = sent(driver.see(Ended(done(1), (tail,))))
    driver.see(Disowned(exchange.seq))
    driver.open.clear()
    (again,) = sent(driver.see(Joined(REGISTERED)))
    assert [r.attempt for r in again.reports] == ["r1.1#1@1"]
    assert again.tails == [tail]


def test_who_is_disowned_keeps_the_tags_it_had_to_tell() -> None:
    driver = Driver()
    driver.see(Noticed({"gpu": "broken"}))
    (exchange,) = sent(driver.answer())
    driver.see(Disowned(exchange.seq))
    driver.open.clear()
    (again,) = sent(driver.see(Joined(REGISTERED)))
    assert again.tags == {"gpu": "broken"}


def test_word_of_a_session_already_left_is_ignored() -> None:
    driver = Driver()
    driver.answer()
    driver.see(Disowned(1))
    assert driver.agent.registered is REGISTERED


def test_an_answer_from_before_does_not_count_after_registration_again() -> None:
    driver = Driver()
    driver.see(Disowned(1))
    driver.open.clear()
    driver.see(Joined(REGISTERED))
    assert driver.see(Answered(Reply(1, 1, leases=[lease(1)]))) == []
    assert not driver.agent.running


# --- the server's wish to be left alone
def test_the_server_says_when_to_come_back() -> None:
    driver = Driver()
    driver.see(NoAnswer(1, after=30.0))
    due = driver.agent.deadline()
    assert due is not None and 30.0 <= due - driver.now <= 36.0


def test_another_answer_does_not_shorten_the_wait_that_the_server_asked_for() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (late,) = sent(driver.see(Ended(done(1))))
    driver.see(NoAnswer(late.seq, after=30.0))
    driver.answer(min(driver.open))
    due = driver.agent.deadline()
    assert due is not None and due - driver.now >= 30.0


# --- rejected
def reject(driver: Driver, exchange: Exchange) -> list[Exchange]:
    """The server refuses an exchange; what is sent after the pause."""
    del driver.open[exchange.seq]
    assert sent(driver.see(Rejected(exchange.seq, "so"))) == [], "never at once"
    return sent(driver.tick())


def refuse(driver: Driver, exchange: Exchange) -> list[Exchange]:
    """Something between refuses an exchange; what is sent after the pause."""
    del driver.open[exchange.seq]
    assert sent(driver.see(Rejected(exchange.seq, "<html>", is_sure=False))) == [], "never at once"
    return sent(driver.tick())


def with_reports(exchanges: list[Exchange]) -> Exchange:
    (found,) = [exchange for exchange in exchanges if exchange.reports or exchange.batches]
    return found


def test_reports_of_a_rejected_exchange_go_one_by_one_without_its_tails_and_tags() -> None:
    driver = Driver(Capacity(4))
    driver.begin(lease(1), lease(2))
    for n in (1, 2):
        driver.agent.reports[f"r1.{n}#1@1"] = done(n)
        driver.agent.running.pop(f"r1.{n}#1@1")
    driver.see(Noticed({"bad": "tag"}))
    (exchange,) = sent(driver.see(Wrote((LogPiece("r1.1#1@1", "stdout", "x"),))))
    assert (len(exchange.reports), len(exchange.tails), len(exchange.tags)) == (2, 1, 1)
    first = with_reports(reject(driver, exchange))
    driver.answer(first.seq)
    (second,) = [e for e in driver.open.values() if e.reports]
    assert [[r.attempt for r in e.reports] for e in (first, second)] == [["r1.1#1@1"], ["r1.2#1@1"]]
    assert not (first.tails or first.tags or second.tails or second.tags)
    driver.answer(second.seq)
    assert only(driver.did, Settle) == [Settle("r1.1#1@1", True), Settle("r1.2#1@1", True)]
    assert driver.open and not any(e.reports or e.tails or e.tags for e in driver.open.values())


def test_one_refusal_costs_a_report_nothing() -> None:
    """Also the server's own word may be wrong once: the report is said again, alone, with all it had."""
    driver = Driver()
    driver.begin(lease(1))
    long = done(1, last_line="l", new_files=["f"], message="m" * 5000)
    (exchange,) = sent(driver.see(Ended(long)))
    again = with_reports(reject(driver, exchange))
    assert again.reports == [long] and again.seq > exchange.seq
    driver.answer(again.seq)
    assert only(driver.did, Settle) == [Settle("r1.1#1@1", True)]


def test_a_report_that_the_server_refuses_again_and_again_ends_as_a_failure_with_a_cause() -> None:
    driver = Driver()
    driver.begin(lease(1))
    long = done(1, "failed", last_line="l", stderr_tail="e", new_files=["f"], message="m" * 5000, exit_code=3)
    (exchange,) = sent(driver.see(Ended(long)))
    alone = with_reports(reject(driver, exchange))
    bare = with_reports(reject(driver, alone))
    (report,) = bare.reports
    assert (report.last_line, report.stderr_tail, report.new_files, len(report.message)) == ("", "", [], 200)
    assert (report.outcome, report.exit_code) == ("failed", 3)
    least = with_reports(reject(driver, bare))
    (report,) = least.reports
    assert (report.outcome, report.cause, report.message) == (
        "failed",
        "host_unfit",
        "the server refused the report: so",
    )
    assert only(driver.did, Settle) == [Settle("r1.1#1@1", False)], "its outputs are not published"
    (complaint,) = only(driver.did, Complain)
    assert "r1.1#1@1" in complaint.message
    assert Held("r1.1#1@1", "done") in least.held
    driver.answer(least.seq)
    assert not driver.agent.reports


def test_an_attempt_of_which_no_report_is_taken_is_given_back_when_it_comes_again() -> None:
    """The server asks for it [promise I8], because nobody holds it; it is not begun again, and not forgotten."""
    driver = Driver()
    driver.begin(lease(1))
    (exchange,) = sent(driver.see(Ended(done(1))))
    for _ in range(3):
        exchange = with_reports(reject(driver, exchange))
    later = reject(driver, exchange)
    assert not driver.agent.reports and not any(e.held or e.reports for e in later)
    actions = driver.answer(min(driver.open), leases=[lease(1)])
    assert only(actions, Begin) == []
    (report,) = with_reports(sent(actions)).reports
    assert (report.attempt, report.outcome, report.started) == ("r1.1#1@1", "returned", 0.0)


def test_what_refuses_without_being_the_server_costs_nothing_however_often() -> None:
    driver = Driver(Capacity(4))
    driver.begin(lease(1), lease(2))
    (exchange,) = sent(driver.see(Ended(done(1, last_line="one", message="x"))))
    for _ in range(40):
        exchange = with_reports(refuse(driver, exchange))
    assert [report.last_line for report in exchange.reports] == ["one"]
    assert only(driver.did, Settle) == [] and only(driver.did, Complain) == []
    driver.answer(exchange.seq)
    assert only(driver.did, Settle) == [Settle("r1.1#1@1", True)]


def test_a_report_that_something_between_never_takes_does_not_stop_the_others() -> None:
    driver = Driver(Capacity(4))
    driver.begin(lease(1), lease(2))
    driver.see(Ended(done(1, last_line="bad", message="x")))
    driver.see(Ended(done(2, last_line="good", message="x")))
    for _ in range(30):
        for seq, exchange in list(driver.open.items()):
            if any(report.last_line == "bad" for report in exchange.reports):
                del driver.open[seq]
                driver.see(Rejected(seq, "<html>", is_sure=False))
            elif exchange.reports:
                driver.answer(seq)
        if not any(exchange.reports for exchange in driver.open.values()):
            driver.tick()
    assert list(driver.agent.reports) == ["r1.1#1@1"]
    assert only(driver.did, Settle) == [Settle("r1.2#1@1", True)]


def test_an_empty_exchange_that_is_rejected_is_followed_by_a_pause() -> None:
    driver = Driver()
    (exchange,) = driver.open.values()
    del driver.open[exchange.seq]
    assert sent(driver.see(Rejected(exchange.seq))) == []
    due = driver.agent.deadline()
    assert due is not None and 0 < due - driver.now <= BACKOFF_MOST
    (again,) = sent(driver.tick())
    assert again.seq > exchange.seq


# --- leases that came before
def test_a_lease_that_was_seen_and_is_not_here_any_more_is_given_back() -> None:
    """The server's memory was rolled back: it takes for leased what was reported and acknowledged long ago."""
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Ended(done(1)))
    driver.settle()
    assert not driver.agent.reports
    actions = driver.answer(min(driver.open), leases=[lease(1)])
    assert only(actions, Begin) == []
    (report,) = with_reports(sent(actions)).reports
    assert (report.outcome, report.started) == ("returned", 0.0)


def test_a_lease_that_is_here_is_not_given_back_when_it_comes_again() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    driver.answer(min(driver.open), leases=[lease(1), lease(2)])
    driver.see(Ended(done(1)))
    driver.answer(min(seq for seq, e in driver.open.items() if not e.reports), leases=[lease(1), lease(2)])
    assert {report.outcome for e in driver.open.values() for report in e.reports} <= {"succeeded"}
    assert list(driver.agent.reports) == ["r1.1#1@1"]


def test_the_same_number_of_another_history_is_another_attempt() -> None:
    driver = Driver(Capacity(4))
    old, new = lease(1), replace(lease(1), attempt="r1.1#1@1~" + "5" * 16)
    driver.begin(old)
    (begun,) = only(driver.answer(min(driver.open), leases=[new]), Begin)
    assert begun.lease.attempt == new.attempt


# --- streams
def piece(offset: int, text: str = "x", stream: str = "stdout") -> LogPiece:
    return LogPiece("r1.1#1@1", stream, text, offset)


def test_pieces_of_a_stream_ride_on_one_exchange_at_a_time() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (first,) = sent(driver.see(Wrote((piece(0),))))
    assert first.tails == [piece(0)]
    driver.answer(min(driver.open))
    (poke,) = sent(driver.see(Wrote((piece(1), piece(0, stream="stderr")))))
    assert poke.tails == [piece(0, stream="stderr")], "a parked exchange is answered when a newer one comes"
    (second,) = sent(driver.answer(first.seq))
    assert second.tails == [piece(1)]


def test_pieces_sent_in_vain_come_first_and_in_order() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (first,) = sent(driver.see(Wrote((piece(0), piece(1)))))
    driver.see(Wrote((piece(2),)))
    driver.open.clear()
    driver.see(Disowned(first.seq))
    (again,) = sent(driver.see(Joined(REGISTERED)))
    assert again.tails == [piece(0), piece(1), piece(2)]


def test_who_leaves_waits_until_the_last_piece_is_heard() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Leave("bye"))
    driver.see(Ended(done(1), (piece(0),), more=True))
    for _ in range(4):
        driver.answer()
    assert only(driver.did, Finish) == []
    driver.see(Wrote((piece(1),)))
    driver.answer_to_the_end()
    assert only(driver.did, Finish) == [Finish(0, "bye")]
    assert [t for e in sent(driver.did) for t in e.tails] == [piece(0), piece(1)]


# --- room and devices
def test_what_does_not_fit_waits_in_order() -> None:
    driver = Driver(Capacity(4))
    actions = driver.answer(leases=[lease(1, 3), lease(2, 2), lease(3, 1)])
    assert [b.lease.attempt for b in only(actions, Begin)] == ["r1.1#1@1"], (
        "the second must not starve behind the third"
    )
    actions = driver.see(Ended(done(1)))
    assert [b.lease.attempt for b in only(actions, Begin)] == ["r1.2#1@1", "r1.3#1@1"]


def test_memory_is_counted() -> None:
    driver = Driver(Capacity(4, memory=8))
    actions = driver.answer(leases=[lease(1, memory=5), lease(2, memory=5)])
    assert len(only(actions, Begin)) == 1


def test_free_room_counts_what_runs_and_what_waits() -> None:
    driver = Driver(Capacity(4, memory=8))
    driver.answer(leases=[lease(1, 3, memory=1), lease(2, 2, memory=1)])
    assert driver.agent._slots.free() == Capacity(0, 6)


def test_every_task_gets_devices_of_its_own() -> None:
    driver = Driver(Capacity(8, gpus=4))
    actions = driver.answer(leases=[lease(1, gpus=2), lease(2, gpus=1), lease(3), lease(4, gpus=2)])
    begun = {b.lease.attempt: b.gpus for b in only(actions, Begin)}
    assert begun == {"r1.1#1@1": (0, 1), "r1.2#1@1": (2,), "r1.3#1@1": ()}
    (after,) = only(driver.see(Ended(done(1))), Begin)
    assert after.lease.attempt == "r1.4#1@1"
    assert len(set(after.gpus)) == 2
    assert 2 not in after.gpus


# --- orders
def test_a_running_attempt_is_stopped_and_reported_cancelled() -> None:
    driver = Driver()
    driver.begin(lease(1))
    order = Order("cancel", "r1.1#1@1", "cancelled by the user")
    assert only(driver.answer(orders=[order]), Stop) == [Stop("r1.1#1@1", "cancelled by the user")]
    assert only(driver.answer(orders=[order]), Stop) == [], "once is enough"
    driver.see(Ended(done(1, "failed", cause="signal", signal=15)))
    report = driver.agent.reports["r1.1#1@1"]
    assert (report.outcome, report.cause, report.message) == ("cancelled", "cancelled", "cancelled by the user")


def test_a_success_that_was_faster_than_the_stop_is_a_success() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.answer(orders=[Order("cancel", "r1.1#1@1", "x")])
    driver.see(Ended(done(1)))
    assert driver.agent.reports["r1.1#1@1"].outcome == "succeeded"


@pytest.mark.parametrize("outcome", ["checkpointed", "failed"])
def test_a_moved_attempt_goes_on_elsewhere_or_is_given_back(outcome: str) -> None:
    driver = Driver()
    driver.begin(replace(lease(1), checkpoint=["state"]), lease(2), lease(3))
    orders = [Order("move", f"r1.{number}#1@1", "slow here") for number in (1, 2, 3)]
    assert only(driver.answer(orders=orders), Stop) == [Stop("r1.1#1@1", "slow here", keep=True)]
    driver.see(Ended(Report("r1.1#1@1", outcome, "cancelled" if outcome == "failed" else "")))
    assert driver.agent.reports["r1.1#1@1"].outcome == ("returned" if outcome == "failed" else outcome)
    assert "r1.2#1@1" not in driver.agent.reports, "it can keep nothing, so it stays"
    assert driver.agent.reports["r1.3#1@1"].outcome == "returned", "it had not begun"


def test_a_waiting_attempt_is_cancelled_without_ever_running() -> None:
    driver = Driver(Capacity(1))
    driver.answer(leases=[lease(1), lease(2)])
    actions = driver.answer(orders=[Order("cancel", "r1.2#1@1", "x")])
    assert only(actions, Stop) == []
    assert driver.agent.reports["r1.2#1@1"].outcome == "cancelled"
    assert driver.agent.reports["r1.2#1@1"].started is None
    driver.see(Ended(done(1)))
    assert [b.lease.attempt for b in only(driver.did, Begin)] == ["r1.1#1@1"]


def test_an_order_about_nothing_of_ours_is_no_problem() -> None:
    driver = Driver()
    assert only(driver.answer(orders=[Order("cancel", "r9.9#1@1", "x"), Order("dance")]), Stop) == []


def test_a_signal_goes_to_what_runs_and_to_nothing_else() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    orders = [Order("signal", f"r1.{n}#1@1", signal=10) for n in (1, 2, 3)]
    assert only(driver.answer(orders=orders), Signal) == [Signal("r1.1#1@1", 10)]


def test_streams_of_what_runs_are_watched_on_demand() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    orders = [Order("tail", f"r1.{n}#1@1", stream="stderr") for n in (1, 2)]
    assert only(driver.answer(orders=orders), Watch) == [Watch("r1.1#1@1", "stderr")]


# --- renewal
def renewing(driver: Driver) -> None:
    """The server orders another pilot and it comes."""
    assert only(driver.answer(orders=[Order("renew", why=DIGEST)]), Fetch) == [Fetch(DIGEST)]
    driver.see(Fetched(DIGEST, True))


def test_an_idle_pilot_fetches_the_new_one_says_farewell_and_becomes_it() -> None:
    driver = Driver()
    renewing(driver)
    exchange = driver.open[max(driver.open)]
    assert exchange.leaving and not exchange.held
    driver.answer(exchange.seq)
    (finish,) = only(driver.did, Finish)
    assert (finish.code, finish.renew) == (0, DIGEST)


def test_a_busy_pilot_renews_itself_when_nothing_is_left_to_do_or_say() -> None:
    driver = Driver()
    driver.begin(lease(1))
    assert only(driver.answer(orders=[Order("renew", why=DIGEST)]), Fetch) == []
    assert only(driver.see(Ended(done(1))), Fetch) == []
    driver.settle()
    assert only(driver.did, Fetch) == [Fetch(DIGEST)]


def test_work_that_comes_before_the_new_pilot_is_done_first() -> None:
    driver = Driver()
    driver.answer(orders=[Order("renew", why=DIGEST)])
    driver.begin(lease(1))
    driver.see(Fetched(DIGEST, True))
    assert not driver.agent.leaving
    driver.see(Ended(done(1)))
    driver.settle()
    assert driver.agent.leaving


def test_work_that_comes_after_the_farewell_is_given_back_before_the_end() -> None:
    driver = Driver()
    renewing(driver)
    driver.answer(max(driver.open), leases=[lease(1)])
    assert driver.agent.reports["r1.1#1@1"].outcome == "returned"
    assert only(driver.did, Finish) == []
    driver.answer_to_the_end()
    assert only(driver.did, Finish)[0].renew == DIGEST


def test_another_zip_than_ordered_is_not_taken_and_not_asked_for_again() -> None:
    driver = Driver()
    driver.answer(orders=[Order("renew", why=DIGEST)])
    driver.see(Fetched(DIGEST, False))
    assert not driver.agent.leaving
    assert only(driver.answer(orders=[Order("renew", why=DIGEST)]), Fetch) == []
    assert only(driver.answer(orders=[Order("renew", why="b" * 64)]), Fetch) == [Fetch("b" * 64)]


def test_who_is_told_to_end_meanwhile_does_not_become_another() -> None:
    driver = Driver()
    renewing(driver)
    driver.see(Leave("SIGTERM received"))
    driver.answer_to_the_end()
    assert only(driver.did, Finish) == [Finish(0, "SIGTERM received")]


# --- leaving
def test_who_is_not_listened_to_any_more_stops_everything_and_says_nothing() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    actions = driver.see(Leave("revoked", now=True, mute=True))
    assert only(actions, Stop) == [Stop("r1.1#1@1", "revoked")]
    assert sent(actions) == []
    assert only(driver.see(NoAnswer(min(driver.open))), Send) == []
    (finish,) = driver.see(Ended(done(1, "failed")))
    assert isinstance(finish, Finish) and finish.code == 4


def test_who_is_not_listened_to_and_has_nothing_ends_at_once() -> None:
    driver = Driver(join=False)
    driver.see(Tick())
    assert driver.see(Leave("false server", now=True, mute=True)) == [Finish(0, "false server")]


def test_who_leaves_gives_back_what_waits_finishes_what_runs_and_says_farewell() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    driver.answer(orders=[Order("drain", why="maintenance")])
    assert driver.agent.reports["r1.2#1@1"].outcome == "returned"
    assert driver.agent.leaving == "maintenance"
    driver.settle()
    assert not only(driver.did, Finish), "one still runs"
    assert only(driver.did, Stop) == []
    driver.see(Ended(done(1)))
    for _ in range(5):
        if driver.agent.ended:
            break
        driver.answer()
    assert only(driver.did, Finish) == [Finish(0, "maintenance")]
    assert not driver.agent.reports


def test_who_is_stopped_has_checkpoints_written_and_stops_the_rest_when_its_time_is_over() -> None:
    driver = Driver(Capacity(2))
    driver.begin(replace(lease(1), checkpoint=["state"]), lease(2))
    actions = driver.answer(orders=[Order("stop", why="stopped by the user", within=30.0)])
    assert [stop.attempt for stop in only(actions, Stop)] == ["r1.1#1@1"], "the other has no checkpoint"
    assert driver.agent.deadline() is not None
    driver.now += 29.0
    assert only(driver.see(Tick()), Stop) == []
    driver.now += 1.5
    assert [stop.attempt for stop in only(driver.see(Tick()), Stop) if stop.attempt == "r1.2#1@1"] == ["r1.2#1@1"]
    driver.see(Ended(done(2, "failed")))
    assert driver.agent.reports["r1.2#1@1"].outcome == "returned", "it goes on elsewhere, and has not failed"


def test_a_drain_with_a_time_lets_tasks_finish_within_it_and_a_later_order_may_only_shorten_it() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1))
    assert only(driver.answer(orders=[Order("drain", why="maintenance", within=100.0)]), Stop) == []
    driver.answer(orders=[Order("drain", why="maintenance", within=10.0)])
    driver.answer(orders=[Order("drain", why="maintenance", within=500.0)])
    driver.now += 11.0
    assert [stop.attempt for stop in only(driver.see(Tick()), Stop)] == ["r1.1#1@1"]


def test_questions_about_files_go_to_the_attempt_and_their_answers_to_the_server() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    look = Order("read_file", "r1.1#1@1", path="x", count=10, request="q1")
    assert only(driver.answer(orders=[look]), Look) == [Look(look)]
    (exchange,) = sent(driver.see(Looked(FileAnswer("q1", data="eA==", size=1))))
    assert [answer.request for answer in exchange.files] == ["q1"]
    driver.answer()
    assert not driver.agent.outbox.has_file


def test_a_question_about_an_attempt_that_does_not_run_here_is_answered_at_once() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    for attempt in ("r1.2#1@1", "r1.9#1@1"):
        (exchange,) = sent(driver.answer(orders=[Order("list_files", attempt, request="q")]))[:1]
        assert [(answer.request, answer.code) for answer in exchange.files] == [("q", "not_running")]


def test_every_exchange_of_who_leaves_says_so() -> None:
    driver = Driver()
    driver.begin(lease(1))
    (exchange,) = sent(driver.see(Leave("SIGTERM")))
    assert exchange.leaving == "SIGTERM"


def test_leases_that_come_too_late_are_given_back() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Leave("bye"))
    actions = driver.answer(leases=[lease(2)])
    assert only(actions, Begin) == []
    assert driver.agent.reports["r1.2#1@1"].outcome == "returned"
    assert driver.agent.reports["r1.2#1@1"].started is None


def test_who_must_leave_now_stops_what_runs_and_gives_it_back() -> None:
    driver = Driver()
    driver.begin(lease(1), lease(2))
    actions = driver.see(Leave("walltime", now=True))
    assert [s.attempt for s in only(actions, Stop)] == ["r1.1#1@1", "r1.2#1@1"]
    driver.see(Ended(done(1, "failed", cause="signal")))
    assert driver.agent.reports["r1.1#1@1"].outcome == "returned"
    assert driver.agent.reports["r1.1#1@1"].message == "walltime"


def test_who_leaves_with_nothing_ends_after_one_answer() -> None:
    driver = Driver()
    driver.see(Leave("bye"))
    assert not driver.agent.ended
    driver.answer(2)
    assert only(driver.did, Finish) == [Finish(0, "bye")]
    assert driver.agent.deadline() is None
    assert driver.see(Tick()) == []


def test_the_answer_to_an_exchange_from_before_is_no_farewell() -> None:
    driver = Driver()
    driver.see(Leave("bye"))
    driver.answer(1)
    assert not driver.agent.ended


def test_who_leaves_and_is_disowned_with_nothing_left_just_ends() -> None:
    driver = Driver()
    driver.see(Leave("bye"))
    assert only(driver.see(Disowned(2)), Finish) == [Finish(0, "bye")]


def test_who_leaves_does_not_wait_long_for_a_silent_server() -> None:
    driver = Driver()
    driver.see(Leave("bye"))
    start = driver.now
    for seq in list(driver.open):
        driver.see(NoAnswer(seq))
    while not driver.agent.ended:
        for exchange in sent(driver.tick()):
            driver.see(NoAnswer(exchange.seq))
    assert driver.now - start <= 2 * REGISTERED.beat + BACKOFF_MOST
    assert only(driver.did, Finish) == [Finish(0, "bye")]


def test_who_must_leave_now_says_what_could_not_be_delivered() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Leave("SIGTERM twice", now=True))
    driver.see(Ended(done(1, "failed")))
    for seq in list(driver.open):
        driver.see(NoAnswer(seq))
    while not driver.agent.ended:
        for exchange in sent(driver.tick()):
            driver.see(NoAnswer(exchange.seq))
    (finish,) = only(driver.did, Finish)
    assert finish.code == 4
    assert "1 reports could not be delivered" in finish.why


def test_who_leaves_with_reports_waits_for_the_server() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Leave("bye"))
    driver.see(Ended(done(1)))
    for seq in list(driver.open):
        driver.see(NoAnswer(seq))
    start = driver.now
    while driver.now < start + 3_600:
        for exchange in sent(driver.tick()):
            driver.see(NoAnswer(exchange.seq))
    assert not driver.agent.ended
    assert list(driver.agent.reports) == ["r1.1#1@1"]


# --- patience
def alone(driver: Driver) -> float:
    """No answer ever comes again: how long the agent stays."""
    start = driver.now
    for seq in list(driver.open):
        driver.see(NoAnswer(seq))
    for _ in range(100_000):
        if driver.agent.ended:
            break
        for action in driver.tick():
            if isinstance(action, Send):
                driver.see(NoAnswer(action.exchange.seq))
            elif isinstance(action, Join):
                driver.see(NoAnswer(0))
    assert driver.agent.ended
    return driver.now - start


def test_without_contact_and_with_nothing_it_ends_after_ten_minutes() -> None:
    driver = Driver()
    assert 600.0 <= alone(driver) <= 606.0
    (finish,) = only(driver.did, Finish)
    assert finish.code == 4
    assert "no contact" in finish.why


def test_with_reports_it_stays_a_day() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(Ended(done(1)))
    assert 86_400.0 <= alone(driver) <= 86_406.0


def test_with_tasks_left_in_the_window_of_its_mesh_it_stays_a_day() -> None:
    driver = Driver()
    driver.see(Reserved(-1, 0, 5))
    assert 86_400.0 <= alone(driver) <= 86_406.0


# --- the window of the mesh
def test_what_the_mesh_gives_begins_while_the_server_is_away_and_is_reported_later() -> None:
    driver = Driver()
    (seq,) = driver.open
    driver.see(NoAnswer(seq))
    given = replace(lease(7), proof="of the mesh")
    (begin,) = only(driver.see(Assigned((given,))), Begin)
    assert begin.lease.attempt == given.attempt
    assert only(driver.see(Assigned((given,))), Begin) == [], "once"
    driver.see(Started(given.attempt))
    driver.see(Ended(done(7)))
    driver.answer()
    reported = [exchange for exchange in sent(driver.did) if exchange.reports]
    assert [report.attempt for report in reported[-1].reports] == [given.attempt]
    assert [proof.proof for proof in reported[-1].proofs] == ["of the mesh"]


def test_its_exchanges_say_what_the_mesh_keeps() -> None:
    driver = Driver()
    driver.settle()
    driver.see(Reserved(3, 2, 3))
    assert (sent(driver.did)[-1].window, sent(driver.did)[-1].window_seen) == (3, 2)
    driver.answer()
    driver.see(Reserved(-1, 0, 0))
    driver.answer()
    assert sent(driver.did)[-1].window == -1


def test_who_never_got_in_ends_after_ten_minutes() -> None:
    driver = Driver(join=False)
    driver.see(Tick())
    driver.see(NoAnswer(0))
    assert 600.0 <= alone(driver) <= 606.0


def test_what_runs_is_never_left_for_want_of_contact() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.see(NoAnswer(min(driver.open)))
    driver.now += 1_000_000.0
    driver.see(Tick())
    assert not driver.agent.ended


def test_contact_counts_from_the_sending_of_what_was_answered() -> None:
    driver = Driver()
    driver.now += 9.0
    assert only(driver.answer(), Contact) == [Contact(100.0)]


def test_time_does_not_run_backwards_with_answers_out_of_order() -> None:
    driver = Driver()
    driver.begin(lease(1))
    driver.now += 5.0
    (late,) = sent(driver.see(Ended(done(1))))
    first = min(driver.open)
    assert only(driver.answer(late.seq), Contact) == [Contact(105.0)]
    assert only(driver.answer(first), Contact) == [Contact(105.0)]


# --- no busy loop
def test_after_every_event_the_deadline_lies_ahead_once_its_tick_is_handled() -> None:
    rng = Random(5)
    for round_ in range(300):
        driver = Driver(Capacity(rng.randint(1, 4)), join=rng.random() < 0.9)
        number = 0
        for _ in range(40):
            choice = rng.random()
            if choice < 0.3 and driver.open:
                leases = []
                for _ in range(rng.randint(0, 2)):
                    number += 1
                    leases.append(lease(number))
                orders = [Order("renew", why=DIGEST)] if rng.random() < 0.2 else []
                driver.answer(rng.choice(list(driver.open)), leases=leases, orders=orders)
            elif choice < 0.45 and driver.open:
                driver.see(NoAnswer(rng.choice(list(driver.open)), rng.choice([None, 30.0])))
            elif choice < 0.6 and driver.agent.running:
                attempt = rng.choice(list(driver.agent.running))
                driver.see(Started(attempt) if rng.random() < 0.5 else Ended(Report(attempt, "succeeded")))
            elif choice < 0.62:
                driver.see(Wrote((piece(number),), more=rng.random() < 0.2))
            elif choice < 0.63:
                driver.see(Fetched(DIGEST, rng.choice([True, False, None])))
            elif choice < 0.65:
                driver.see(Noticed({"x": number}))
            elif choice < 0.68 and driver.open:
                driver.see(Disowned(rng.choice(list(driver.open))))
                driver.open.clear()
            elif choice < 0.71 and driver.open:
                seq = rng.choice(list(driver.open))
                del driver.open[seq]
                driver.see(Outdated(seq) if rng.random() < 0.5 else Rejected(seq))
            elif choice < 0.73:
                driver.see(Leave("bye", now=rng.random() < 0.5))
            elif choice < 0.8 and driver.agent.registered is None:
                driver.see(Joined(REGISTERED) if rng.random() < 0.5 else NoAnswer(0))
            else:
                driver.now += rng.choice([0.01, 0.5, 5.0, 100.0])
            if driver.agent.deadline() is not None:
                driver.tick()
            due = driver.agent.deadline()
            assert due is None or due > driver.now, f"round {round_}: a loop without rest"
            assert len(driver.agent._in_flight.underway) <= MAX_IN_FLIGHT


# --- checkpoints
def test_one_sigterm_of_a_batch_system_has_tasks_write_their_checkpoint_at_once_and_finishes_the_others() -> None:
    driver = Driver(Capacity(4))
    driver.begin(replace(lease(1), checkpoint=["state"]), lease(2))
    actions = driver.see(Leave("SIGTERM received", checkpoint=True))
    assert [action for action in actions if isinstance(action, Stop)] == [
        Stop("r1.1#1@1", "SIGTERM received", keep=True)
    ]
    driver.see(Ended(replace(done(1), outcome="failed", cause="cancelled")))
    assert driver.agent.reports["r1.1#1@1"].outcome == "returned", "it was not its fault"
    assert not driver.agent.ended and "r1.2#1@1" in driver.agent.running
    actions = driver.see(Leave("SIGTERM received", now=True, checkpoint=True))
    assert [action.attempt for action in actions if isinstance(action, Stop)] == ["r1.2#1@1"]


def test_a_checkpoint_is_told_at_once_and_again_if_the_session_ended() -> None:
    driver = Driver()
    driver.begin(replace(lease(1), checkpoint=["state"]))
    (exchange,) = sent(driver.see(Saved("r1.1#1@1", {"state": "a"})))
    assert [c.files for c in exchange.checkpoints] == [{"state": "a"}]
    assert sent(driver.see(Saved("r1.1#1@1", {"state": "b"}))) == [], "one at a time"
    driver.see(Disowned(exchange.seq))
    driver.open.clear()
    (again,) = sent(driver.see(Joined(REGISTERED)))
    assert [c.files for c in again.checkpoints] == [{"state": "b"}]
    assert sent(driver.see(Saved("r1.9#1@1", {"state": "a"}))) == [], "it does not run here"


# --- tasks that wait for others
def test_a_wait_is_told_at_once_and_frees_the_core_for_the_next_lease() -> None:
    driver = Driver(Capacity(1))
    driver.begin(lease(1), lease(2))
    driver.settle()
    actions = driver.see(Waits("r1.1#1@1", "r1.1#1", True))
    assert [begin.lease.attempt for begin in only(actions, Begin)] == ["r1.2#1@1"]
    assert [exchange.waits for exchange in sent(actions)] == [["r1.1#1@1"]]
    driver.settle()
    assert [exchange.waits for exchange in sent(driver.see(Waits("r1.1#1@1", "r1.1#1", False)))] == [[]]
    assert sent(driver.see(Waits("r1.1#1@1", "r1.9#1", True))) == []  # of a call that is not here


def test_calls_behind_one_that_waits_leave_its_piece_and_cancelled_ones_are_reported() -> None:
    driver = Driver(Capacity(1))
    piece = replace(lease(1), command=[], function="gAU=", calls=["a", "b", "c"], count=3)
    driver.begin(piece)
    driver.settle()
    assert only(driver.see(Waits("r1.1#1@1", "r1.1#1", True)), Shorten) == [Shorten("r1.1#1@1")]
    driver.answer(orders=[Order("cancel", "r1.2#1@1", "by ann")])
    begun = only(driver.see(Shortened("r1.1#1@1", 1)), Begin)
    assert [(begin.lease.attempt, begin.lease.calls) for begin in begun] == [("r1.3#1@1", ["c"])]
    assert driver.agent.reports["r1.2#1@1"].outcome == "cancelled"
