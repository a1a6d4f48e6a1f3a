"""The writer's thread when the disk is full, gives errors, or the database is taken away."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any, NoReturn

import pytest

from shoal.db.sqlite import Database
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
