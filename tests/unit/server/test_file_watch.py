"""Which files a server finds for the rules of a run [ADR 0058]."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.db.sqlite import Database
from shoal.engine.commands import Submit
from shoal.engine.tasks.growth import Growth
from shoal.model.timing import Timing
from shoal.server.disk_reserve import Reserve
from shoal.server.file_watch import FileWatch, find_files
from shoal.server.service import Service
from shoal.wire.submission import parse_submission

RULE = {"name": "reco", "files": "*.dat", "command": ["reco", "{file}"], "watch": "1h"}
Looks = Callable[[], Awaitable[Growth]]


def play(folder: Path, story: Callable[[Service, Looks], Awaitable[None]], *tasks: dict[str, Any], **more: Any) -> None:
    """Have a story happen to a server with a run in a directory, at which it looks twice when the story says so."""

    async def main() -> None:
        (folder / "state").mkdir()
        service = Service(
            Database.open(folder / "state" / "shoal.db", durability="normal"), folder, Timing(), "own", Reserve(folder)
        )
        watch = FileWatch(service)
        body = {"tasks": list(tasks), "rules": [{**RULE, **more}], "cwd": str(folder)}
        done = await service.command(Submit(parse_submission(body), "ann", "d"))
        run = service.engine.state.runs[int(done["run"][1:])]
        service.accept(run.number, 1, run.total)

        async def looks() -> Growth:
            assert run.growth is not None
            for _ in range(2):
                await watch._look(run, run.growth)
            await service.writer.settled()
            return run.growth

        try:
            await story(service, looks)
        finally:
            await service.close()

    asyncio.run(main())


def test_plain_files_that_fit_are_found_with_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "raw" / "deep.dat").mkdir(parents=True)
    (tmp_path / "raw" / "a.dat").write_text("abc", encoding="utf-8")
    (tmp_path / "raw" / ".b.dat").write_text("abc", encoding="utf-8")
    (tmp_path / "raw" / "gone.dat").symlink_to(tmp_path / "nowhere")
    found = find_files(str(tmp_path), ["raw/*.dat", "other/*"])
    assert {name: size for name, (size, _) in found.items()} == {"raw/a.dat": 3}
    assert find_files(str(tmp_path / "missing"), ["*"]) == {}


def test_a_name_that_no_task_can_have_is_passed_over_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files beside it were not taken, and the engine was rebuilt with every look."""
    (tmp_path / "a.dat").touch()
    with open(os.fsencode(tmp_path) + b"/caf\xe9.dat", "wb"):
        pass

    async def story(service: Service, looks: Looks) -> None:
        with caplog.at_level(logging.WARNING):
            growth = await looks()
            await looks()
        assert growth.rules[0].seen == {"a.dat"} and service.contained == 0
        (told,) = [one.getMessage() for one in caplog.records if "passed over" in one.getMessage()]
        assert "caf\\udce9.dat: files: is not UTF-8" in told

    play(tmp_path, story)


def test_a_half_written_output_of_a_task_is_left_to_its_report(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("from outside", encoding="utf-8")
    (tmp_path / "b.dat").write_text("first, and", encoding="utf-8")

    async def story(service: Service, looks: Looks) -> None:
        assert (await looks()).rules[0].seen == {"a.dat"}
        before = service.writer.commits
        await looks()
        assert service.writer.commits == before, "it is not told again and again"

    play(tmp_path, story, {"command": ["write"], "name": "write", "outputs": ["b.dat"]})
