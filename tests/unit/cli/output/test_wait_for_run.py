"""Waiting: the first failure at once, why nothing runs, a server that dies, Ctrl-C, the end and its exit status."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from shoal.cli.output import wait_for_run
from shoal.cli.output.live_forecast import LiveForecast
from shoal.cli.output.progress_display import Status
from shoal.cli.output.wait_for_run import Watch, detach, end_in_words, exit_status, wait_for
from shoal.cli.session import Session
from shoal.model.errors import Unreachable
from tests.unit.cli.fake_client import Clock, FakeClient, Step
from tests.unit.report.fake_source import FakeSource, run_info, task_row

SWEEP = {"command": ["./sim", "{i}"], "array": "1-10"}


class Screen:
    """A display that keeps what it was shown."""

    def __init__(self) -> None:
        self.statuses: list[Status] = []
        self.notes: list[str] = []

    def update(self, status: Status) -> None:
        self.statuses.append(status)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


def finished(task: int, state: str = "succeeded", **data: Any) -> dict[str, Any]:
    return {
        "seq": task,
        "kind": "task_finished",
        "run": 1,
        "task": task,
        "data": {"state": state, "duration": 1.0, **data},
    }


END = {"seq": 99, "kind": "run_finished", "run": 1, "data": {}}


def watch(client: FakeClient, clock: Clock | None = None, **more: Any) -> tuple[Watch, Screen]:
    screen, clock = Screen(), clock or Clock()
    session = Session("unix:/run/shoal-9")
    return Watch(session, client, "r1", screen, clock=clock, sleep=clock.sleep, **more), screen


def test_the_first_failure_is_shown_at_once_with_its_tail_and_no_other() -> None:
    boom = finished(1, "failed", cause="task_error", message="exit code 1", stderr_tail="a\nboom \x1b[31m\n")
    client = FakeClient(FakeSource(run_info([SWEEP])), [[boom], [finished(2, "failed", cause="signal")], [END]])
    watched, screen = watch(client)
    watched.follow()
    assert len(screen.notes) == 1
    lines = screen.notes[0].splitlines()
    assert lines[0] == "shoal: r1.1 failed (task_error): exit code 1"
    assert lines[1:] == ["  | a", "  | boom \\x1b[31m"]
    assert screen.statuses[-1].failed == 2


def test_progress_counts_and_rates_come_from_the_run() -> None:
    client = FakeClient(FakeSource(run_info([SWEEP])), [[finished(n)] for n in range(1, 5)] + [[END]])
    clock = Clock()
    watched, screen = watch(client, clock)
    clock.now = 50.0
    watched.follow()
    assert [status.succeeded for status in screen.statuses] == [1, 2, 3, 4, 4]
    assert screen.statuses[-1].total == 10
    assert screen.statuses[-1].elapsed < 10


def test_why_nothing_runs_is_asked_after_two_quiet_seconds() -> None:
    source = FakeSource(run_info([SWEEP]), reasons=[{"text": "no pilot is connected", "fix": "shoal pilot start"}])
    clock = Clock()

    class Slow(FakeClient):
        def events(self, *words: Any, **more: Any) -> dict[str, Any]:
            clock.now += 1.0
            return super().events(*words, **more)

    watched, screen = watch(Slow(source, [[], [], [], [], [END]]), clock)
    watched.follow()
    assert [bool(status.reason) for status in screen.statuses] == [False, False, True, True, False]
    assert screen.statuses[2].reason == "no pilot is connected (shoal pilot start)"


def test_running_tasks_are_those_that_fit_and_the_server_knows_first() -> None:
    clock = Clock()
    clock.now = 1.0
    facts = {"pilots": 2, "slots": 8, "live": 100, "open_runs": 1}
    watched, screen = watch(FakeClient(FakeSource(run_info([SWEEP])), [[END]], facts), clock)
    watched._facts = facts
    watched.follow()
    assert screen.statuses[0].running == 8


def test_a_dead_embedded_server_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource(run_info([SWEEP]))
    second = FakeClient(source, [[finished(2)], [END]])
    first = FakeClient(source, [[finished(1)], Unreachable("gone")])
    watched, screen = watch(first)
    monkeypatch.setattr(Session, "is_embedded", True)
    monkeypatch.setattr(Session, "client", lambda self: second)
    watched.follow()
    assert watched.client is second
    assert "started again" in screen.notes[0]
    assert watched.tally.states["succeeded"] == 2


def test_another_server_is_waited_for_and_its_return_is_told() -> None:
    steps: list[Step] = [[finished(1)], Unreachable("no answer"), Unreachable("no answer"), [finished(2)], [END]]
    watched, screen = watch(FakeClient(FakeSource(run_info([SWEEP])), steps))
    watched.follow()
    assert screen.notes[0].startswith("shoal: no answer; trying again")
    assert screen.notes[1] == "shoal: the server answers again"
    assert len(screen.notes) == 2


def test_a_run_whose_row_is_finished_first_is_read_to_its_end() -> None:
    info = run_info([{"command": ["x"], "array": "1-3"}])

    class Hasty(FakeClient):
        def runs(self, *_: Any, **__: Any) -> dict[str, Any]:
            info["finished"] = 110.0
            return super().runs()

    watched, _ = watch(Hasty(FakeSource(info), [[finished(1)], [finished(2)], [finished(3), END]]))
    watched.follow()
    assert watched.tally.states["succeeded"] == 3
    assert watched.tally.finished


def test_a_journal_without_the_end_of_a_finished_run_is_not_waited_for_for_ever() -> None:
    info = run_info([{"command": ["x"], "array": "1-3"}], finished=110.0)
    client = FakeClient(FakeSource(info), [[finished(3)], []])
    watched, _ = watch(client)
    watched.follow()
    assert client.steps == []
    assert not watched.tally.finished


def test_an_earlier_end_of_a_run_that_was_opened_again_is_not_its_end() -> None:
    again = {"seq": 100, "kind": "run_reopened", "run": 1, "data": {"tasks": 1}}
    info = run_info([{"command": ["x"], "array": "1-2"}])

    class Open(FakeClient):
        def runs(self, *_: Any, **__: Any) -> dict[str, Any]:
            info["finished"] = 110.0 if not self.steps else None
            return super().runs()

    watched, _ = watch(Open(FakeSource(info), [[finished(1, "failed"), END], [again], [finished(1), END]]))
    watched.follow()
    assert watched.tally.states["succeeded"] == 1


TOO_LARGE = {
    "code": "too_large",
    "text": "a: 3 tasks: no pilot is large enough: it needs 99 cores, has 2",
    "fix": "ask for less",
}
BEHIND = {"code": "parents", "text": "b: 1 tasks: it waits for a", "fix": ""}
BUSY = {"code": "busy", "text": "c: 1 tasks: all slots are busy", "fix": "wait"}


@pytest.mark.parametrize(
    ("reasons", "embedded", "status"),
    [
        ([TOO_LARGE], True, 3),
        ([{**TOO_LARGE, "code": "requirement"}], True, 3),
        ([{**TOO_LARGE, "code": "cannot_run"}], True, 3),
        ([{**TOO_LARGE, "code": "no_licence"}], True, 3),
        ([{**TOO_LARGE, "code": "requirement_now"}], True, 1),
        ([BEHIND, TOO_LARGE], True, 3),
        ([TOO_LARGE, BUSY], True, 1),
        ([BEHIND], True, 1),
        ([TOO_LARGE], False, 1),
    ],
)
def test_what_can_never_run_here_is_not_waited_for(
    reasons: list[dict[str, Any]], embedded: bool, status: int,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    clock = Clock()

    class Slow(FakeClient):
        def events(self, *words: Any, **more: Any) -> dict[str, Any]:
            clock.now += 1.0
            return super().events(*words, **more)

    client = Slow(FakeSource(run_info([SWEEP]), reasons=reasons), [[] for _ in range(12)])
    monkeypatch.setattr(Session, "is_embedded", embedded)
    monkeypatch.setattr(wait_for_run, "Watch", partial(Watch, clock=clock, sleep=clock.sleep))
    assert wait(client, monkeypatch) == status
    seen = capsys.readouterr()
    if status == 3:
        assert seen.out == ""
        assert seen.err.count("\n") == 1
        assert seen.err.startswith("shoal: r1 cannot run here: a: 3 tasks: no pilot is large enough")
        assert "ask for less" in seen.err
        assert "shoal cancel r1" in seen.err
        assert 6 < clock.now < 10


# --- the whole of it


def wait(client: FakeClient, monkeypatch: pytest.MonkeyPatch, **more: Any) -> int:
    screen = Screen()
    monkeypatch.setattr(wait_for_run, "choose_display", lambda quiet: screen)
    return wait_for(Session("unix:/run/shoal-9"), client, "r1", **more)


def test_the_summary_and_the_status_of_a_good_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = run_info([{"command": ["x"], "array": "1-2"}], name="scan")
    client = FakeClient(FakeSource(info), [[finished(1), finished(2), END]])
    assert wait(client, monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("r1 scan: 2 tasks: 2 succeeded in 10.0s")
    assert "1.0s (median)" in out


def test_what_was_done_before_the_waiting_is_no_progress_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came back to a run read a rate far above its own, and an end far too soon."""
    info = run_info([{"command": ["x"], "array": "1-9"}], counts={"succeeded": 7})
    screen = Screen()
    monkeypatch.setattr(wait_for_run, "choose_display", lambda quiet: screen)
    wait_for(Session("unix:/run/shoal-9"), FakeClient(FakeSource(info), [[finished(8)], [finished(9), END]]), "r1")
    assert {status.earlier for status in screen.statuses} == {7}


def test_any_failure_makes_the_status_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    info = run_info([{"command": ["x"], "array": "1-2"}])
    bad = finished(2, "failed", cause="task_error", exit_code=3)
    assert wait(FakeClient(FakeSource(info), [[finished(1), bad, END]]), monkeypatch) == 1
    assert "1 task_error (exit code 3), e.g. r1.2  ->  shoal logs r1.2 --stderr" in capsys.readouterr().out


def test_a_finished_run_is_told_without_waiting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = run_info([{"command": ["x"]}], counts={"cancelled": 1}, finished=101.0)
    cancelled = finished(1, "cancelled", cause="cancelled")
    client = FakeClient(FakeSource(info, events=[cancelled]), [[cancelled], []])
    info["counts"] = {"cancelled": 0}
    assert wait(client, monkeypatch) == 1
    assert "1 cancelled" in capsys.readouterr().out


def test_json_at_the_end_is_one_document(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient(FakeSource(run_info([{"command": ["x"]}])), [[finished(1), END]])
    assert wait(client, monkeypatch, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run"], document["counts"], document["seconds"]) == ("r1", {"succeeded": 1}, 10.0)


class SlowClient(FakeClient):
    """Pages of events that come ten seconds apart."""

    clock: Clock

    def events(self, *words: Any, **more: Any) -> dict[str, Any]:
        self.clock.now += 10.0
        return super().events(*words, **more)


def patiently(monkeypatch: pytest.MonkeyPatch, as_json: bool, quiet: bool = False) -> tuple[SlowClient, Screen]:
    """Wait for a sweep of ten tasks, two at a time, each of which takes ten seconds."""
    info = run_info([SWEEP], created=100.0, counts={"running": 2})
    pages: list[Step] = [[finished(n, duration=10.0, started=None) for n in (two, two + 1)] for two in range(1, 11, 2)]
    client, screen = SlowClient(FakeSource(info), [*pages, [END]], {"pilots": 1, "slots": 2}), Screen()
    client.clock = Clock()
    wall = lambda: 100.0 + client.clock.now  # noqa: E731  # the clock of the run
    monkeypatch.setattr(wait_for_run, "choose_display", lambda quiet: screen)
    monkeypatch.setattr(wait_for_run, "Watch", partial(Watch, clock=client.clock, sleep=client.clock.sleep))
    monkeypatch.setattr(wait_for_run, "LiveForecast", partial(LiveForecast, clock=client.clock, wall=wall))
    wait_for(Session("unix:/run/shoal-9"), client, "r1", quiet=quiet, as_json=as_json)
    return client, screen


def test_the_time_left_is_shown_and_shrinks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, screen = patiently(monkeypatch, as_json=False)
    told = [status.left.about for status in screen.statuses if status.left is not None and status.left.about]
    assert len(told) >= 3
    assert told == sorted(told, reverse=True) and told[0] > 2 * told[-1]


def test_json_tells_the_forecast_that_was_made_at_a_quarter_and_what_came_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, screen = patiently(monkeypatch, as_json=True)
    forecast = json.loads(capsys.readouterr().out)["forecast"]
    assert set(forecast) == {"made_at", "p10", "p50", "p90", "took", "held"}
    assert 0 < forecast["p10"] <= forecast["p50"] <= forecast["p90"]
    assert {status.left for status in screen.statuses} == {None}


def test_a_quiet_wait_makes_no_forecast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    client, screen = patiently(monkeypatch, as_json=False, quiet=True)
    assert {status.left for status in screen.statuses} == {None}
    assert not [asked for asked in client.source.asked if asked[0] == "tasks"]


def test_json_of_a_short_run_has_no_forecast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = run_info([SWEEP], created=time.time())
    client = FakeClient(FakeSource(info), [[finished(n) for n in range(1, 11)], [END]])
    assert wait(client, monkeypatch, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["forecast"] is None


def test_a_single_command_feels_like_running_it(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = {("r1.1", "stdout"): b"out\xff\n", ("r1.1", "stderr"): b"err\n"}
    bad = task_row(1, state="failed", cause="task_error", exit_code=3)
    client = FakeClient(FakeSource(run_info([{"command": ["x"]}]), [bad], logs=logs), [[finished(1, "failed"), END]])
    assert wait(client, monkeypatch, single=True, own_status=True) == 3
    seen = capfdbinary.readouterr()
    assert seen.out == b"out\xff\n"
    assert seen.err == b"err\nshoal: r1.1 failed: the command ended with exit code 3\n"


@pytest.mark.parametrize(
    ("quiet", "state"), [(False, "failed"), (True, "failed"), (False, "succeeded"), (True, "succeeded")]
)
def test_a_note_begins_a_line_of_its_own(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, quiet: bool, state: str
) -> None:
    row = task_row(1, state=state, cause="task_error" if state == "failed" else None, exit_code=int(state == "failed"))
    source = FakeSource(
        run_info([{"command": ["x"]}]), [row], logs={("r1.1", "stdout"): b"", ("r1.1", "stderr"): b"err"}
    )
    wait(FakeClient(source, [[finished(1, state), END]]), monkeypatch, single=True, quiet=quiet)
    said = capfdbinary.readouterr().err
    assert said.startswith(b"err\nshoal: r1.1 ") if not quiet or state == "failed" else said == b"err"


def test_ctrl_c_detaches_and_says_how_to_come_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    client = FakeClient(FakeSource(run_info([SWEEP])), [[finished(1)], KeyboardInterrupt])
    monkeypatch.setattr(wait_for_run, "detach", lambda client, run: detach(client, run, naps.append))
    assert wait(client, monkeypatch) == 130
    said = capsys.readouterr().err
    assert "shoal wait r1" in said
    assert "shoal cancel r1" in said
    assert naps == [2.0]
    assert client.cancelled == []


def test_a_second_ctrl_c_cancels(capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient(FakeSource(run_info([SWEEP])))

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    assert detach(client, "r1", interrupted) == 130
    assert client.cancelled == ["r1"]
    assert "cancelled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"cause": "task_error", "exit_code": 3}, "the command ended with exit code 3"),
        ({"cause": "signal", "signal": 9, "message": ""}, "it was ended by signal 9"),
        ({"cause": "signal", "signal": 9, "message": "killed by signal 9 (SIGKILL)"}, "killed by signal 9 (SIGKILL)"),
        ({"cause": "over_time", "signal": 15, "message": "too long"}, "too long (ended by signal 15)"),
        ({"cause": "over_time", "message": "it ran longer than 5s"}, "it ran longer than 5s"),
        ({"cause": "dependency_failed"}, "dependency_failed"),
        ({}, "it did not run"),
    ],
)
def test_the_end_of_a_task_in_words(row: dict[str, Any], words: str) -> None:
    assert end_in_words(row) == words


@pytest.mark.parametrize(
    ("state", "row", "status"),
    [
        ("succeeded", {"exit_code": 0}, 0),
        ("succeeded", {"exit_code": 0, "message": "12 bytes of its stdout were left out"}, 125),
        ("failed", {"exit_code": 2, "cause": "task_error"}, 2),
        ("failed", {"exit_code": 127, "cause": "task_error"}, 127),
        ("failed", {"signal": 9, "cause": "out_of_memory"}, 137),
        ("failed", {"exit_code": 0, "cause": "output_missing"}, 125),
        ("cancelled", None, 125),
        ("lost", {"cause": "pilot_lost"}, 125),
    ],
)
def test_the_exit_status_of_a_single_command_is_its_own(state: str, row: dict[str, Any] | None, status: int) -> None:
    assert exit_status({"state": state, "task": row}) == status
