"""Two exchanges under way: one asks, one brings reports; and when a pilot has to speak."""

from __future__ import annotations

from shoal.pilot.agent.in_flight import InFlight
from shoal.pilot.agent.send_schedule import ASK_LATE, COMPANY, LAZY, SendSchedule
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Lease, Report


def send(flights: InFlight, *reports: Report) -> Exchange:
    exchange = Exchange(PROTOCOL, "p1", "s", flights.number(), flights.ack, Capacity(), reports=list(reports))
    flights.add(exchange, 1.0)
    return exchange


def test_one_asks_beside_one_that_brings_reports() -> None:
    flights = InFlight()
    assert flights.may_ask(is_new=False)
    send(flights, Report("r1.1#1@1", "succeeded"))
    assert flights.carries and flights.may_ask(is_new=False)
    send(flights)
    assert not flights.has_room and not flights.may_ask(is_new=False)


def test_a_new_server_hears_first_what_we_had() -> None:
    flights = InFlight()
    assert flights.may_ask(is_new=True), "nothing to say: so ask"
    send(flights, Report("r1.1#1@1", "succeeded"))
    assert not flights.may_ask(is_new=True)


def test_ack_is_up_to_where_every_exchange_was_answered() -> None:
    flights = InFlight()
    asking, first = send(flights), send(flights, Report("r1.1#1@1", "succeeded"))
    flights.land(first.seq)
    assert flights.ack == 0, "the one before it still waits"
    second = send(flights, Report("r1.2#1@1", "succeeded"))
    assert second.ack == 0
    flights.land(asking.seq)
    assert flights.ack == 2
    flights.land(second.seq)
    assert flights.ack == 3


def test_what_got_no_answer_is_sent_again_at_its_time_or_when_the_server_is_back() -> None:
    flights = InFlight()
    first = send(flights)
    flights.put_off(first.seq, 5.0, 0.0)
    assert flights.failed and flights.due(4.0) == [] and flights.times() == [5.0]
    flights.hurry(4.0)
    assert flights.due(4.0) == [first] and not flights.failed


def test_a_report_of_an_idle_pilot_is_said_at_once_and_of_a_busy_one_in_company() -> None:
    urges = SendSchedule()
    urges.report(1.0, is_busy=True)
    assert not urges.is_due(1.0) and urges.is_due(1.0 + COMPANY)
    urges.report(1.0, is_busy=False)
    assert urges.is_due(1.0)
    urges.said(1.0, has_more=False, has_untold=False)
    assert not urges.is_due(9.0)


def test_asking_says_nothing_of_reports() -> None:
    urges = SendSchedule()
    urges.report(1.0, is_busy=True)
    urges.asked(1.0, has_untold=False)
    assert urges.is_due(1.0 + COMPANY)


def test_a_call_that_has_just_begun_is_told_a_little_later() -> None:
    urges = SendSchedule()
    urges.asked(1.0, has_untold=True)
    assert not urges.is_due(1.0) and urges.is_due(1.0 + LAZY)


def test_after_a_few_calls_it_asks_a_little_later() -> None:
    urges = SendSchedule()
    urges.answered(1.0, [Lease("r1.1#1@1", Capacity(1), "safe", function="f")])
    assert urges.times(carries=False, asks=False) == [1.0 + ASK_LATE]
    assert urges.times(carries=False, asks=True) == []
