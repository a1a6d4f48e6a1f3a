"""A server that goes away and comes back, and lines that are cut from this side."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shoal.client.connection import reconnect
from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped
from shoal.client.executor.background import Background
from shoal.model.errors import NotFound, Unreachable
from tests.unit.client.fake_server import FakeServer

SOON = 20.0


def line_to(url: str, patience: float = 5.0) -> ServerConnection:
    return ServerConnection(Reconnecting(url, patience))


def test_a_question_is_repeated_while_the_server_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reconnect, "TELL_AFTER", 0.0)
    monkeypatch.setattr(reconnect, "LONGEST_PAUSE", 0.001)
    failures = [Unreachable("away")] * 5

    def ask(client: Any) -> str:
        if failures:
            raise failures.pop()
        return "here"

    assert line_to("unix:/run/shoal-1").ask(ask) == "here"
    assert capsys.readouterr().err.splitlines() == [
        "shoal: away; waiting for it, up to 5 s",
        "shoal: the server answers again",
    ]


def test_what_the_server_refuses_is_not_asked_again() -> None:
    asked: list[int] = []

    def ask(client: Any) -> None:
        asked.append(1)
        raise NotFound("no such run")

    with pytest.raises(NotFound):
        line_to("unix:/run/shoal-1").ask(ask)
    assert asked == [1]


def test_patience_ends() -> None:
    def ask(client: Any) -> None:
        raise Unreachable("away")

    for patience in (0.0, 0.05):
        with pytest.raises(Unreachable):
            line_to("unix:/run/shoal-1").ask(ask, patience)


def begin(do: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            do()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, raised


def test_a_line_that_waits_for_an_answer_can_be_cut() -> None:
    """Also on a kept connection, where a lost request would be repeated."""
    with (
        FakeServer() as server,
        socket.socket(socket.AF_UNIX) as mute,
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
    ):
        mute.bind(f"{folder}/sock")
        mute.listen()
        mute.settimeout(SOON)
        line = line_to(f"unix:{folder}/sock")
        thread, raised = begin(lambda: line.ask(lambda client: client.whoami()))
        with mute.accept()[0] as connection:
            assert connection.recv(10)
            line.cut()
            thread.join(SOON)
        assert isinstance(raised[0], Stopped)
        with pytest.raises(Stopped):
            line.ask(lambda client: client.whoami())
        kept = line_to(server.url)
        kept.ask(lambda client: client.whoami())
        kept.client.interrupt()
        with pytest.raises(Unreachable):
            kept.client.whoami()
        assert len(server.requests) == 1


def test_a_line_that_waits_for_a_lost_server_can_be_cut() -> None:
    asked = threading.Event()

    def ask(client: Any) -> None:
        asked.set()
        raise Unreachable("away")

    line = line_to("unix:/run/shoal-1")
    thread, raised = begin(lambda: line.ask(ask))
    assert asked.wait(SOON)
    line.cut()
    thread.join(SOON)
    assert isinstance(raised[0], Stopped)


def test_errands_are_run_in_order_and_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    background, done = Background("test"), list[int]()
    background.put(lambda: done.append(1))
    background.put(lambda: 1 // 0)  # type: ignore[arg-type]
    background.put(lambda: done.append(2))
    background.finish()
    assert done == [1, 2] and "work in the background failed" in caplog.text
    background.finish()


def test_errands_are_run_in_place_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    background = Background("test")
    background.put(lambda: done.append(1))
    assert done == [1]
    background.finish()
