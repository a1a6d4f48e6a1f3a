"""When a batch system is asked."""

from __future__ import annotations

from shoal.provisioner.schedule import EVERY, SOON, QuerySchedule


def test_a_batch_system_is_asked_seldom_and_once_more_after_news() -> None:
    schedule = QuerySchedule()
    schedule.note_query(100.0, is_good=True)
    assert not schedule.is_due(100.0 + EVERY - 1.0, is_open=True)
    schedule.note_news(105.0)
    schedule.note_news(107.0)
    assert not schedule.is_due(105.0 + SOON - 0.1, is_open=True)
    assert schedule.is_due(105.0 + SOON, is_open=True), "the first news counts"
    schedule.note_query(108.0, is_good=True)
    assert not schedule.is_due(110.0, is_open=True)
    assert schedule.is_due(108.0 + EVERY, is_open=True)
    assert not schedule.is_due(10_000.0, is_open=False), "there is nothing to ask about"


def test_a_batch_system_that_fails_is_asked_less_often_until_it_takes_a_submission() -> None:
    schedule = QuerySchedule()
    for _ in range(3):
        schedule.note_query(100.0, is_good=False)
    schedule.note_news(101.0)
    assert not schedule.is_due(100.0 + EVERY, is_open=True)
    schedule.note_answer()
    assert schedule.is_due(101.0 + SOON, is_open=True)
