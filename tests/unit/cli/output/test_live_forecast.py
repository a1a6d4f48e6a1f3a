"""A forecast while somebody waits: not for short runs, now and then, counted down in between, scored at the end."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.output.live_forecast import LiveForecast
from shoal.cli.output.progress_display import TimeLeft
from tests.unit.cli.fake_client import Clock, FakeClient
from tests.unit.report.fake_source import FakeSource, finished, run_info, task_row

BAG = [{"command": ["x"], "array": "1-40"}]
CREATED = 100.0  # of the run


class Waiting:
    """A run of 40 tasks of 10 s in two slots that somebody waits for since it was submitted."""

    def __init__(self, is_shown: bool = True) -> None:
        self.clock = Clock()
        self.info = run_info(BAG, counts={"running": 2})
        self.source = FakeSource(self.info)
        self.client = FakeClient(self.source)
        self.forecast = LiveForecast(is_shown, self.clock, lambda: CREATED + self.clock.now)
        self.done = 0

    def go(self, seconds: float) -> TimeLeft | None:
        """Let time pass; every 10 s two tasks end and two begin."""
        self.clock.now += seconds
        while self.done < 2 * int(self.clock.now / 10.0):
            self.done += 1
            self.forecast.take([self.end(self.done)], is_new=True)
        self.info["counts"]["succeeded"] = self.done
        began = CREATED + 10.0 * int(self.clock.now / 10.0)
        self.source.all_rows = [task_row(self.done + n, state="running", leased=began, started=None) for n in (1, 2)]
        return self.forecast.look(self.client, self.info, 2, 2)

    def end(self, task: int) -> dict[str, Any]:
        moment = CREATED + 10.0 * ((task + 1) // 2)
        return {**finished(task, duration=10.0, started=moment - 10.0), "time": moment}


def test_nothing_is_computed_in_the_first_seconds_of_a_run() -> None:
    waiting = Waiting()
    assert waiting.go(1.0) is None and waiting.go(1.9) is None
    assert waiting.source.asked == []


def test_before_the_first_end_it_says_that_it_does_not_know() -> None:
    assert Waiting().go(5.0) == TimeLeft(None, None)


def test_the_forecast_counts_down_between_two_and_asks_seldom() -> None:
    waiting = Waiting()
    first = waiting.go(100.0)
    asked = len(waiting.source.asked)
    second = waiting.go(1.0)
    assert first is not None and first.about is not None and second is not None and second.about is not None
    assert first.about == pytest.approx(100.0, rel=0.1)
    assert second.about == pytest.approx(first.about - 1.0)
    assert len(waiting.source.asked) == asked
    waiting.go(1.1)
    assert len(waiting.source.asked) > asked


def test_what_was_told_never_becomes_negative() -> None:
    waiting = Waiting()
    waiting.go(195.0)
    waiting.forecast._next = 1e9
    assert waiting.go(100.0) == TimeLeft(0.0, 0.0)


def test_a_single_task_is_not_forecast() -> None:
    info = run_info([{"command": ["x"]}])
    assert LiveForecast(True, Clock(), lambda: 1_000.0).look(FakeClient(FakeSource(info)), info, 1, 2) is None


def test_a_forecast_that_takes_long_is_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting()
    waiting.go(100.0)  # the first one imports what it takes, which does not count
    tasks = waiting.source.tasks

    def slow(*words: Any) -> dict[str, Any]:
        waiting.clock.now += 1.0
        return tasks(*words)

    monkeypatch.setattr(waiting.source, "tasks", slow)
    waiting.go(3.0)
    asked = len(waiting.source.asked)
    waiting.go(25.0)
    assert len(waiting.source.asked) == asked
    waiting.go(6.0)
    assert len(waiting.source.asked) == asked + 1


def test_the_first_forecast_from_a_quarter_on_is_scored() -> None:
    waiting = Waiting()
    for _ in range(6):
        waiting.go(8.0)  # 8 tasks of 40 have ended
    assert waiting.forecast.document(None) is None
    waiting.go(3.0)
    waiting.go(60.0)
    document = waiting.forecast.document(CREATED + 200.0)
    assert document is not None
    assert document["made_at"] == CREATED + 51.0
    assert document["took"] == 149.0
    assert document["p10"] < 149.0 < document["p90"] and document["held"] is True
    later = waiting.forecast.document(CREATED + 400.0)
    assert later is not None and later["held"] is False


def test_if_nothing_is_shown_only_the_forecast_that_is_scored_is_made() -> None:
    waiting = Waiting(is_shown=False)
    for _ in range(4):
        assert waiting.go(10.0) is None
    assert waiting.source.asked == []
    waiting.go(10.0)
    assert len(waiting.source.asked) == 1
    for _ in range(5):
        waiting.go(10.0)
    assert len(waiting.source.asked) == 1


def test_the_clock_of_a_server_elsewhere_may_be_wrong() -> None:
    waiting = Waiting()
    waiting.forecast._wall = lambda: waiting.clock.now - 5_000.0
    told = waiting.go(100.0)
    assert told is not None and told.about == pytest.approx(100.0, rel=0.1)


def test_a_slot_that_is_between_two_tasks_is_still_there() -> None:
    waiting = Waiting()
    both = waiting.go(100.0)
    waiting.source.all_rows = waiting.source.all_rows[:1]
    waiting.info["counts"]["running"] = 1
    told = []
    for _ in range(2):
        waiting.clock.now += 2.1
        told.append(waiting.forecast.look(waiting.client, waiting.info, 1, 2))
    soon, later = told
    assert both is not None and both.about and soon is not None and soon.about and later is not None and later.about
    assert soon.about < 1.1 * both.about
    assert later.about > 1.6 * both.about


def test_a_forecast_between_two_rounds_of_equal_tasks_counts_all_slots() -> None:
    """The ends of a round are what wakes those who wait, so it is made just when nothing runs."""
    waiting = Waiting(is_shown=False)
    waiting.go(49.0)
    waiting.clock.now = 50.0
    waiting.forecast.take([waiting.end(n) for n in (9, 10)], is_new=True)
    waiting.info["counts"] = {"succeeded": 10, "running": 0}
    waiting.source.all_rows = []
    waiting.forecast.look(waiting.client, waiting.info, 0, 2)
    document = waiting.forecast.document(CREATED + 200.0)
    assert document is not None and document["p50"] == pytest.approx(150.0, rel=0.1)


def test_of_a_run_with_a_long_history_some_ends_are_read_from_rows() -> None:
    waiting = Waiting()
    waiting.source.all_rows = [task_row(n, duration=10.0) for n in range(1, 21)]
    waiting.info["counts"] |= {"succeeded": 20, "running": 2}
    waiting.forecast.read_ends(waiting.client, waiting.info)
    waiting.clock.now = 50.0
    told = waiting.forecast.look(waiting.client, waiting.info, 2, 2)
    assert told is not None and told.about == pytest.approx(100.0, rel=0.15)
