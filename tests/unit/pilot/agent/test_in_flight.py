"""Two exchanges under way: one asks, one brings reports; and when a pilot has to speak."""

from __future__ import annotations

from shoal.pilot.agent.in_flight import InFlight
from shoal.pilot.agent.send_schedule import BATCH_DELAY, POLL_DELAY, START_DELAY, STARTS_AWAITED, SendSchedule
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Lease, Report


def send(in_flight: InFlight, *reports: Report) -> Exchange:
    exchange = Exchange(PROTOCOL, "p1", "s", in_flight.next_number(), in_flight.ack, Capacity(), reports=list(reports))
    in_flight.add(exchange, 1.0)
    return exchange


def test_one_asks_beside_one_that_brings_reports() -> None:
    in_flight = InFlight()
    assert in_flight.may_poll(is_new=False)
    send(in_flight, Report("r1.1#1@1", "succeeded"))
    assert in_flight.carries and in_flight.may_poll(is_new=False)
    send(in_flight)
    assert not in_flight.has_capacity and not in_flight.may_poll(is_new=False)


def test_one_that_brings_reports_and_asks_stands_for_both() -> None:
    in_flight = InFlight()
    number = in_flight.next_number()
    reports = [Report("r1.1#1@1", "succeeded")]
    in_flight.add(Exchange(PROTOCOL, "p1", "s", number, 0, Capacity(), reports=reports, asks=True), 1.0)
    assert not in_flight.may_poll(is_new=False), "it waits for work already"
    assert not in_flight.carries and in_flight.has_capacity, "whatever is urgent goes beside it, and ends its wait"


def test_a_new_server_hears_first_what_we_had() -> None:
    in_flight = InFlight()
    assert in_flight.may_poll(is_new=True), "nothing to say: so ask"
    send(in_flight, Report("r1.1#1@1", "succeeded"))
    assert not in_flight.may_poll(is_new=True)


def test_ack_is_up_to_where_every_exchange_was_answered() -> None:
    in_flight = InFlight()
    asking, first = send(in_flight), send(in_flight, Report("r1.1#1@1", "succeeded"))
    in_flight.remove(first.seq)
    assert in_flight.ack == 0, "the one before it still waits"
    second = send(in_flight, Report("r1.2#1@1", "succeeded"))
    assert second.ack == 0
    in_flight.remove(asking.seq)
    assert in_flight.ack == 2
    in_flight.remove(second.seq)
    assert in_flight.ack == 3


def test_what_got_no_answer_is_sent_again_at_its_time_or_when_the_server_is_back() -> None:
    in_flight = InFlight()
    first = send(in_flight)
    in_flight.postpone(first.seq, 5.0, 0.0)
    assert in_flight.failed and in_flight.due(4.0) == [] and in_flight.times() == [5.0]
    in_flight.retry_now(4.0)
    assert in_flight.due(4.0) == [first] and not in_flight.failed


def test_a_report_of_an_idle_pilot_is_said_at_once_and_of_a_busy_one_in_company() -> None:
    schedule = SendSchedule()
    schedule.add_report(1.0, is_busy=True)
    assert not schedule.is_due(1.0) and schedule.is_due(1.0 + BATCH_DELAY)
    schedule.add_report(1.0, is_busy=False)
    assert schedule.is_due(1.0)
    schedule.on_sent(1.0, has_more=False, has_unreported=False)
    assert not schedule.is_due(9.0)


def test_asking_says_nothing_of_reports() -> None:
    schedule = SendSchedule()
    schedule.add_report(1.0, is_busy=True)
    schedule.on_polled(1.0, has_unreported=False)
    assert schedule.is_due(1.0 + BATCH_DELAY)


def test_a_call_that_has_just_begun_is_told_a_little_later() -> None:
    schedule = SendSchedule()
    schedule.on_polled(1.0, has_unreported=True)
    assert not schedule.is_due(1.0) and schedule.is_due(1.0 + START_DELAY)


def test_an_answer_without_leases_does_not_end_the_wait_for_starts() -> None:
    """That of the exchange with the report of the task before."""
    schedule = SendSchedule()
    schedule.await_starts(1.0)
    schedule.on_answered(1.01, [])
    assert schedule.times(carries=False, polls=False) == [1.0 + STARTS_AWAITED]
    schedule.on_started(1.02, are_all=False)
    assert schedule.poll_at == 1.0 + STARTS_AWAITED
    schedule.on_started(1.03, are_all=True)
    assert schedule.poll_at == 1.03


def test_after_a_few_calls_it_asks_a_little_later() -> None:
    schedule = SendSchedule()
    schedule.on_answered(1.0, [Lease("r1.1#1@1", Capacity(1), "safe", function="f")])
    assert schedule.times(carries=False, polls=False) == [1.0 + POLL_DELAY]
    assert schedule.times(carries=False, polls=True) == []
