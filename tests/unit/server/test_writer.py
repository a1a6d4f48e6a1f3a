"""The writer's thread when the disk is full, gives errors, or the database is taken away."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from shoal.db.sqlite import Database
from shoal.model.event import Event
from shoal.server import writer as writing
from shoal.server.disk_reserve import Reserve
from shoal.server.writer import DEFECT, Writer

FULL, FSYNC, READ = sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_READ


class Exited(BaseException):
    """Instead of the end of the process."""


def trouble(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("trouble")
    error.sqlite_errorcode = code
    return error


class Failing:
    """A question that fails so often, then is answered."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __call__(self, database: Database) -> str:
        if self.codes:
            raise trouble(self.codes.pop(0))
        return "answered"


@pytest.fixture
def reserve(tmp_path: Path) -> Reserve:
    reserve = Reserve(tmp_path, 1 << 20)
    assert reserve.open() == ""
    return reserve


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def leave(code: int) -> NoReturn:
        codes.append(code)
        raise Exited

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(writing, "GOODBYE", 0.0)
    return codes


def has(reserve: Reserve) -> bool:
    return reserve.path.stat().st_blocks > 0


@pytest.mark.parametrize(("codes", "is_noted"), [((), True), ((FULL,), True), ((FULL, FULL), False), ((FSYNC,), False)])
def test_the_end_is_noted_with_the_reserve_if_need_be_and_the_database_closed_in_any_case(
    tmp_path: Path,
    reserve: Reserve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    codes: tuple[int, ...],
    is_noted: bool,
) -> None:
    failing, real = Failing(*codes), Database.end_in_order

    def end(database: Database) -> None:
        failing(database)
        real(database)

    monkeypatch.setattr(Database, "end_in_order", end)

    async def live() -> None:
        database = Database.open(tmp_path / "shoal.db", durability="normal")
        writer = Writer(database, asyncio.get_running_loop(), reserve)
        writer.start()
        await writer.stop()

    asyncio.run(live())
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == (0 if is_noted else 1)
    assert has(reserve) == (FULL not in codes)
    with Database.open(tmp_path / "shoal.db") as database:  # its lock is free
        assert database._meta("ended") == int(is_noted)


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ((FULL,), "answered"),
        ((FULL, FULL), "failed"),
        ((READ,), "failed"),
        ((FSYNC,), "ended"),
        ((FULL, FSYNC), "ended"),
    ],
)
def test_a_question_whose_writing_failed_ends_the_server(
    tmp_path: Path, reserve: Reserve, exits: list[int], codes: tuple[int, ...], outcome: str
) -> None:
    async def live(database: Database) -> str:
        loop = asyncio.get_running_loop()
        writer, answer = Writer(database, loop, reserve), loop.create_future()
        try:
            writer._answer(answer, Failing(*codes))
        except Exited:
            return "ended"
        try:
            return str(await answer)
        except sqlite3.OperationalError:
            return "failed"

    with Database.open(tmp_path / "shoal.db") as database:
        assert asyncio.run(live(database)) == outcome
    assert exits == ([DEFECT] if outcome == "ended" else [])


def test_a_rescue_has_the_space_of_the_reserve(
    tmp_path: Path, reserve: Reserve, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    had: list[bool] = []
    real = Database.rescue

    def rescue(database: Database) -> str:
        had.append(has(reserve))
        return real(database)

    monkeypatch.setattr(Database, "rescue", rescue)

    async def live(database: Any) -> None:
        writer = Writer(database, asyncio.get_running_loop(), reserve)
        with pytest.raises(Exited):
            writer._leave()

    with Database.open(tmp_path / "shoal.db") as database:
        asyncio.run(live(database))
    assert had == [False] and exits == [DEFECT]


class Crowd:
    """Answers that wait for commits, each with an event of its own."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.loop = writer, asyncio.get_running_loop()
        self.seq = 0

    def put(self, *, may_wait: bool = False) -> asyncio.Future[None]:
        self.seq += 1
        done: asyncio.Future[None] = self.loop.create_future()
        event = Event(self.seq, 1.0, "server_started")
        self.writer.put([event], lambda: done.set_result(None), may_wait=may_wait)
        return done

    async def exchange(self, times: int) -> None:
        for _ in range(times):
            await self.put()


def test_answers_of_many_exchanges_at_work_share_a_commit_and_one_alone_does_not_wait(
    tmp_path: Path, reserve: Reserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Database.apply

    def slow(database: Database, changes: Any) -> None:
        time.sleep(0.005)  # meanwhile the answers of a crowd are waited for
        real(database, changes)

    monkeypatch.setattr(Database, "apply", slow)

    async def live(database: Database) -> None:
        writer = Writer(database, asyncio.get_running_loop(), reserve)
        writer.start()
        crowd = Crowd(writer)
        await asyncio.gather(*(crowd.exchange(3) for _ in range(40)))
        assert writer.commits <= 8, "what the loop has at hand goes together"
        await crowd.exchange(2)
        before = writer.commits
        for _ in range(3):
            answer = crowd.put()
            assert not writer._gathered, "nobody else is at work: it is handed over at once"
            await answer
        assert writer.commits == before + 3
        assert writer.is_settled
        await writer.stop()

    with Database.open(tmp_path / "shoal.db", durability="normal") as database:
        asyncio.run(live(database))


def test_what_is_gathered_is_neither_kept_for_long_nor_lost_at_the_end(
    tmp_path: Path, reserve: Reserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(database: Database) -> list[bool]:
        writer = Writer(database, asyncio.get_running_loop(), reserve)
        writer.start()
        crowd = Crowd(writer)
        writer._is_crowded = True
        crowd.put()
        assert writer._gathered
        assert await writer.ask(lambda db: db._one("last_event")) == 1, "a question comes behind it"
        writer._is_crowded = True
        monkeypatch.setattr(writing, "GATHER", 0.0)
        crowd.put(), crowd.put()
        assert not writer._gathered, "a loop that is at work for long does not keep it"
        monkeypatch.undo()
        writer._is_crowded = True
        last = crowd.put()
        await writer.stop()
        return [last.done()]

    path = tmp_path / "shoal.db"
    assert asyncio.run(live(Database.open(path, durability="normal"))) == [True]
    with Database.open(path) as database:
        assert database._one("last_event") == 4


def waits(writer: Writer) -> bool:
    return writer._patience is not None


def test_what_may_wait_shares_the_commit_of_what_comes_next_and_waits_for_it_only_a_moment(
    tmp_path: Path, reserve: Reserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(database: Database) -> None:
        writer = Writer(database, asyncio.get_running_loop(), reserve)
        writer.start()
        crowd = Crowd(writer)
        monkeypatch.setattr(writing, "UNDERWAY", 3600.0)
        submission = crowd.put(may_wait=True)
        crowd.writer.put([Event(99, 1.0, "server_started")])  # nobody waits for this one
        assert len(writer._gathered) == 2, "neither of them makes a commit of its own"
        report = crowd.put()
        await report
        assert submission.done() and writer.commits == 1, "the report's commit is the submission's, too"
        crowd.put(may_wait=True)
        assert await writer.ask(lambda db: db._one("last_event")) == 99, "a question comes behind it"
        monkeypatch.setattr(writing, "UNDERWAY", 0.001)
        await crowd.put(may_wait=True)  # nothing comes: it is committed all the same
        monkeypatch.setattr(writing, "UNDERWAY", 3600.0)
        for _ in range(writing.IN_VAIN):
            await crowd.put(may_wait=True)  # that was in vain: the next ones do not wait
        crowd.put(may_wait=True)
        assert waits(writer), "then it is tried again"
        await crowd.put()
        writer._is_crowded = True
        crowd.put(may_wait=True)
        assert not waits(writer), "where many are at work the next commit comes anyway"
        writer._is_crowded = False
        last = crowd.put(may_wait=True)
        await writer.stop()
        assert last.done() and writer.is_settled, "the end loses nothing"

    path = tmp_path / "shoal.db"
    asyncio.run(live(Database.open(path, durability="normal")))
