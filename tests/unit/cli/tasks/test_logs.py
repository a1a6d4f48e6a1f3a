"""`shoal logs --follow`: as it comes, through retries, to the end, and without half letters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.cli.tasks.logs import PATIENCE, follow, terminal_writer
from shoal.client.client import Client, LogPart
from shoal.model.errors import Unreachable
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer


class Script(Client):
    """A client whose answers are given: parts of the log, and states of the task as (state, attempt)."""

    def __init__(self, parts: list[LogPart | Exception], states: list[tuple[str, int]]) -> None:
        super().__init__("unix:/run/shoal-9")
        self.parts, self.states, self.asked = parts, states, list[tuple[int | None, int]]()

    def logs(
        self, task: str, stream: str = "stdout", attempt: int | None = None, offset: int = 0, wait: float = 0.0
    ) -> LogPart:
        self.asked.append((attempt, offset))
        part = self.parts.pop(0) if self.parts else LogPart(b"", offset, False)
        if isinstance(part, Exception):
            raise part
        return part

    def task(self, task: str) -> dict[str, Any]:
        state, attempt = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"task": {"attempt": attempt, "reused": ""} if attempt else None, "state": state}


def run(client: Script, attempt: int | None = None) -> tuple[bytes, list[float]]:
    out, naps = bytearray(), list[float]()
    assert follow(client, "r1.1", "stdout", attempt, out.extend, naps.append) == len(out)
    return bytes(out), naps


def test_it_goes_on_until_the_task_is_final_and_nothing_more_comes() -> None:
    parts = [LogPart(b"a", 1, True), LogPart(b"", 1, True), LogPart(b"b", 2, False), LogPart(b"", 2, False)]
    client = Script([*parts, LogPart(b"late", 6, False)], [("running", 1), ("succeeded", 1)])
    assert run(client)[0] == b"ablate"
    assert client.asked[:4] == [(1, 0), (1, 1), (1, 1), (1, 2)]


def test_a_task_that_has_not_started_is_waited_for() -> None:
    client = Script(
        [LogPart(b"", 0, False), LogPart(b"", 0, False), LogPart(b"x", 1, False)],
        [("ready", 0), ("ready", 0), ("ready", 0), ("running", 1), ("running", 1), ("succeeded", 1)],
    )
    out, naps = run(client)
    assert (out, naps[:1]) == (b"x", [1.0])


def test_a_retry_is_followed_from_its_own_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    client = Script(
        [LogPart(b"first", 5, False), LogPart(b"", 5, False), LogPart(b"second", 6, False)],
        [("running", 1), ("running", 2), ("succeeded", 2)],
    )
    assert run(client)[0] == b"firstsecond"
    assert client.asked[:3] == [(1, 0), (1, 5), (2, 0)]
    assert capsys.readouterr().err == "shoal: attempt 1 of r1.1 is over, attempt 2 follows\n"


@pytest.mark.parametrize(("state", "attempt"), [("running", 3), ("failed", 2), ("failed", 1)])
def test_one_attempt_is_followed_to_its_own_end(state: str, attempt: int) -> None:
    client = Script([LogPart(b"x", 1, False)], [(state, attempt)])
    assert run(client, attempt=2)[0] == b"x"
    assert {number for number, _ in client.asked} == {2}


def test_a_lost_server_is_waited_for_but_not_for_ever() -> None:
    client = Script([LogPart(b"a", 1, True), Unreachable("x"), LogPart(b"b", 2, False)], [("succeeded", 1)])
    assert run(client)[0] == b"ab"
    with pytest.raises(Unreachable):
        run(Script([Unreachable("gone")] * int(PATIENCE + 2), [("running", 1)]))


def test_a_letter_cut_in_two_is_whole_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    write = terminal_writer()
    for piece in ("é".encode()[:1], "é".encode()[1:] + b"\x1b[31m!\n", b"no newline"):
        write(piece)
    assert capsys.readouterr().out == "é[31m!\nno newline"


def test_following_goes_through_the_server(typed: Typed, server: FakeServer) -> None:
    task = {"task": {"attempt": 1, "reused": ""}, "state": "succeeded"}
    server.answers["/v1/tasks/r1.1"] = task
    server.answers["/v1/tasks/r1.1/logs"] = [
        (200, b"hello\n", {"X-Shoal-Next": "6", "X-Shoal-More": "1"}),
        (200, b"", {"X-Shoal-Next": "6"}),
    ]
    assert typed("logs", "r1.1", "--follow") == (0, "hello\n", "")
    assert "/v1/tasks/r1.1/logs?stream=stdout&attempt=1&offset=6&wait=10" in [r.target for r in server.requests]


def test_following_what_never_ran_says_why(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/tasks/r1.1"] = {"task": None, "span": {"message": "2 failed"}, "state": "cancelled"}
    server.answers["/v1/tasks/r1.1/logs"] = (200, b"", {})
    status, out, err = typed("logs", "r1.1", "-f")
    assert (status, out) == (3, "")
    assert "never ran, it is cancelled: 2 failed" in err


def test_following_without_a_server_says_that_it_needs_one(typed: Typed) -> None:
    for words in (("logs", "r1.1", "--follow"), ("events", "--follow")):
        status, _, err = typed(*words)
        assert (status, err.count("\n")) == (4, 1)
        assert "--follow needs a running server" in err


def test_ctrl_c_ends_it_without_a_traceback(typed: Typed, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.cli.tasks.logs.follow", interrupt)
    status, _, err = typed("logs", "r1.1", "--follow")
    assert (status, err.strip()) == (130, "")


def test_a_log_longer_than_a_page_is_read_whole(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/tasks/r1.1/logs"] = [
        (200, b"one ", {"X-Shoal-Next": "4", "X-Shoal-More": "1"}),
        (200, b"two", {"X-Shoal-Next": "7", "X-Shoal-More": "1"}),
        (200, b"", {"X-Shoal-Next": "7", "X-Shoal-More": "0"}),
    ]
    assert typed("logs", "r1.1")[1] == "one two"
    assert json.dumps([request.target for request in server.requests]).count("offset") == 2


def test_bytes_that_never_came_from_their_host_are_told(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/tasks/r1.1/logs"] = [
        (200, b"one ", {"X-Shoal-Next": "4", "X-Shoal-More": "0", "X-Shoal-Missing": "1234"}),
    ]
    status, out, err = typed("logs", "r1.1")
    assert (status, out) == (3, "one ")
    assert "1,234 bytes of it never came from its host" in err
