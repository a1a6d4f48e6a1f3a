"""Additions to open runs while the disk of the server's state is full, with a real database, without sockets."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.db.sqlite import Database
from shoal.engine.changes import Final, ResultRow
from shoal.engine.commands import Submit
from shoal.model.errors import Refused, TooBusy
from shoal.model.timing import Timing
from shoal.server import service as service_module
from shoal.server import writer as writer_module
from shoal.server.context import Context
from shoal.server.disk_reserve import Reserve
from shoal.server.handlers.open_runs import OpenRunsHandler
from shoal.server.http.request import Call
from shoal.server.service import Service
from shoal.wire.submission import parse_submission


def addition(first: int, text: str, after: int | None = None) -> Call:
    """The request that adds one call."""

    async def content(_: Any) -> Any:
        return first, parse_submission({"tasks": [{"function": "Zg==", "calls": [text]}]})

    found = SimpleNamespace(
        object=content, path_part=lambda _: "r1", number_or_none=lambda _: after,
        caller=SimpleNamespace(owner="anna", is_admin=False),
        request=SimpleNamespace(content_length=100),
    )  # fmt: skip
    return cast(Call, found)


def test_an_addition_that_waits_for_space_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added once there is space, so whoever sent it must repeat it: others in its place would be another's."""
    monkeypatch.setattr(service_module, "LOOK_STUCK", 0.02)
    monkeypatch.setattr(service_module, "MAX_STUCK", 0.05)
    monkeypatch.setattr(writer_module, "RETRY_FULL", 0.02)
    apply, is_full = Database.apply, [False]

    def write(self: Database, changes: Any) -> None:
        if is_full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        apply(self, changes)

    async def story() -> None:
        service = Service(Database.open(tmp_path / "shoal.db"), tmp_path, Timing(), "own", Reserve(tmp_path))
        monkeypatch.setattr(service.reserve, "has_space", lambda *_: True)
        blobs = SimpleNamespace(claim=lambda *_: None)
        context = SimpleNamespace(service=service, access=None, blobs=blobs, owner_of=lambda _: "anna")
        handler = OpenRunsHandler(cast(Context, context))
        try:
            await service.command(Submit(parse_submission({"tasks": [], "open": True}), "anna", "d"))
            monkeypatch.setattr(Database, "apply", write)
            for _ in range(2):  # the second one meets a server that takes nothing new
                with pytest.raises(TooBusy):
                    await handler.add(addition(1, "b25l"))
            with pytest.raises(Refused, match="full"):
                await handler.add(addition(2, "dHdv"))
            is_full.clear()
            await service.writer.settled()
            assert (await handler.add(addition(1, "b25l"))).status == 200
            assert service.engine.state.runs[1].total == 1 and service.engine.state.runs[1].arrays[0].accepted
        finally:
            is_full.clear()
            await service.close()

    asyncio.run(story())


def test_the_answer_to_an_addition_brings_what_has_become_final(tmp_path: Path) -> None:
    """If memory has it; nothing is read from the database for it [ADR 0066]."""

    async def story() -> None:
        service = Service(Database.open(tmp_path / "shoal.db"), tmp_path, Timing(), "own", Reserve(tmp_path))
        blobs = SimpleNamespace(claim=lambda *_: None)
        context = SimpleNamespace(service=service, access=None, blobs=blobs, owner_of=lambda _: "anna")
        handler = OpenRunsHandler(cast(Context, context))

        async def added(first: int, after: int | None) -> Any:
            return json.loads((await handler.add(addition(first, "b25l", after))).body)["page"]

        try:
            await service.command(Submit(parse_submission({"tasks": [], "open": True}), "anna", "d"))
            service.results.follow(1, 5)
            assert await added(1, 5) is None, "nothing is final"
            row = ResultRow(1, "succeeded", "gAU=", "", "", 1, "", 0, 0)
            service.results.add([Final(1, 9, row, "anna")])
            assert await added(2, None) is None, "nobody asked"
            page = await added(3, 5)
            assert page["results"] == [list(row)] and page["last"] == 9 and page["foreign"] == []
            assert page["nonce"] == service.engine.state.runs[1].nonce
            assert await added(4, 9) is None and await added(5, 3) is None, "it was read, or is not in memory any more"
        finally:
            await service.close()

    asyncio.run(story())
