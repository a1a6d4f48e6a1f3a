"""The hook is told of bans in variables, bounded in every way, and its failures harm nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from shoal.engine.changes import Notice
from shoal.server.hooks import ban_hook, child_command
from shoal.server.hooks.ban_hook import AT_ONCE, MINUTE, PER_MINUTE, BanHook, variables

BANNED = Notice("banned", "host", "n017", "3 failures in a row", 1234.5)


class Stand:
    """Hooks with a clock that stands still."""

    def __init__(self, folder: Path, *command: str, within: float = 30.0) -> None:
        self.command, self.now = command, 1000.0
        self.hooks = BanHook(lambda: self.command, lambda: self.now, folder, within)

    async def drained(self) -> None:
        """Until no command runs or waits."""
        while self.hooks._running:
            await asyncio.gather(*self.hooks._running, return_exceptions=True)
            await asyncio.sleep(0)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_hook_finds_what_happened_in_its_variables(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script = 'echo "$SHOAL_EVENT $SHOAL_PLACE_KIND $SHOAL_PLACE $SHOAL_UNTIL: $SHOAL_REASON" > told; echo done; pwd'

    async def work() -> None:
        stand = Stand(tmp_path, "/bin/sh", "-c", script)
        stand.hooks.notify([BANNED])
        await stand.drained()

    run(work)
    assert (tmp_path / "told").read_text() == "banned host n017 1234: 3 failures in a row\n"
    assert f"the ban hook printed: done\\n{tmp_path}" in caplog.text


def test_what_comes_from_pilots_is_text_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOAL_TOKEN", "secret")
    evil = Notice("banned", "host", "$(touch evil)`touch evil`", "a\0b\udcff" + "x" * 5_000, 0.0)
    told = variables(evil)
    assert told["SHOAL_PLACE"] == "$(touch evil)`touch evil`" and "\0" not in told["SHOAL_REASON"]
    assert len(told["SHOAL_REASON"]) <= ban_hook.MAX_VALUE and "secret" not in told.values()

    async def work() -> None:
        stand = Stand(tmp_path, "/bin/sh", "-c", 'printf %s "$SHOAL_PLACE" > told')
        stand.hooks.notify([evil])
        await stand.drained()

    run(work)
    assert (tmp_path / "told").read_text() == "$(touch evil)`touch evil`"
    assert not (tmp_path / "evil").exists()


def test_nobody_is_told_where_there_is_no_hook(tmp_path: Path) -> None:
    async def work() -> None:
        stand = Stand(tmp_path)
        stand.hooks.notify([BANNED])
        assert not stand.hooks._running

    run(work)


def test_failures_are_logged_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        stand = Stand(tmp_path, "/bin/sh", "-c", "exit 3")
        stand.hooks.notify([BANNED] * 5)
        await stand.drained()
        assert [record.message for record in caplog.records] == [
            "the ban hook ended with status 3 (banned host n017); failures=1"
        ]
        stand.now += MINUTE
        stand.command = ("/nonexistent/hook",)
        stand.hooks.notify([BANNED])
        await stand.drained()
        assert "cannot be started" in caplog.records[-1].message and caplog.records[-1].message.endswith("failures=5")

    run(work)


def test_a_hook_that_hangs_is_ended_with_all_it_started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        for within in (0.5, 5.0, 30.0):  # on a busy machine the shell may not have begun before it is ended
            stand = Stand(tmp_path, "/bin/sh", "-c", "sleep 600 & echo $! > pid; wait", within=within)
            stand.hooks.notify([BANNED])
            await stand.drained()
            assert f"was ended after {within:g} s" in caplog.text
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
                return

    run(work)
    pid = (tmp_path / "pid").read_text().strip()
    assert ") Z" in _stat(pid), "gone, or waiting for whoever inherited it"


def test_few_run_at_once_and_few_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running, most, total = 0, 0, 0

    async def work() -> None:
        stand = Stand(tmp_path, "hook")

        async def pretend(notice: Notice) -> None:
            nonlocal running, most, total
            running, total = running + 1, total + 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        monkeypatch.setattr(stand.hooks, "_run", pretend)
        stand.hooks.notify([BANNED] * (PER_MINUTE + 30))
        await stand.drained()
        assert (most, total) == (AT_ONCE, PER_MINUTE)
        stand.now += MINUTE
        stand.hooks.notify([BANNED])
        await stand.drained()
        assert total == PER_MINUTE + 1

    run(work)
    assert "the ban hook did not run for notices=30" in caplog.text


def test_much_output_is_read_and_little_of_it_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        stand = Stand(tmp_path, "/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2")
        stand.hooks.notify([BANNED])
        await stand.drained()

    run(work)
    (record,) = caplog.records
    assert len(record.message) < child_command.MAX_OUTPUT + 100 and "status" not in record.message


def test_the_end_of_the_server_ends_its_hooks(tmp_path: Path) -> None:
    async def work() -> None:
        stand = Stand(tmp_path, "/bin/sh", "-c", "touch $$; exec sleep 600")
        stand.hooks.notify([BANNED] * 9)
        while len(list(tmp_path.iterdir())) < AT_ONCE:
            await asyncio.sleep(0.01)
        await stand.hooks.close()
        assert not stand.hooks._running and not stand.hooks._waiting

    run(work)
    pids = [path.name for path in tmp_path.iterdir()]
    assert len(pids) == AT_ONCE, "those that waited were never started"
    assert not [pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and ") Z" not in _stat(pid)]


def _stat(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ") Z"  # gone meanwhile
