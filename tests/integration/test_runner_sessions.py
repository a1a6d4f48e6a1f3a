"""Runners of sessions, as real interpreters: none serves two, a spare one is ready, files that change are noticed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

from shoal.model.limits import MAX_INLINE
from shoal.pilot.functions import runners
from shoal.wire.messages import Capacity
from shoal.wire.module_sources import ModuleSource, ModuleSources, to_bytes
from tests.integration.test_runners import World, to_text
from tests.integration.test_runners import world as world  # the fixture

pytestmark = pytest.mark.integration
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def spoil(word: str) -> int:
    """Leave behind all that a function can leave behind in its process."""
    import json

    os.environ["LEFT"] = word
    os.umask(0)
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    vars(json)["left"] = word
    return os.getpid()


def look() -> tuple[Any, ...]:
    import json

    mask = os.umask(0o22)
    os.umask(mask)
    handler = signal.getsignal(signal.SIGTERM)
    return os.getpid(), os.environ.get("LEFT"), mask, os.getcwd(), handler == signal.SIG_DFL, hasattr(json, "left")


def spare_of(world: World, *others: int) -> int:
    """The process of the spare runner, once there is one."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [pid for pid in world.processes() if pid not in others]
        return len(found) == 1 and world.runners._spare is not None and world.runners._spare.connection is not None

    world.until(is_there)
    return found[0]


def test_nothing_leaks_from_one_session_into_the_next(world: World) -> None:
    (first,) = world.values(spoil, [("word",)], session="one")
    assert world.values(look, [()], session="one")[0][:2] == (first, "word")
    ((second, left, mask, cwd, handles, patched),) = world.values(look, [()], session="two")
    assert second != first
    assert (left, mask, cwd, handles, patched) == (None, 0o077, str(world.folder), True, False)


def test_the_next_session_gets_a_runner_that_has_started_already(world: World) -> None:
    def all_of_it() -> tuple[Any, ...]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        inner = os.popen("env").read()  # what a child sees
        seen = dict(
            line.split("=", 1) for line in inner.splitlines() if not line.startswith(("SHOAL_", "_=", "SHLVL="))
        )
        return os.getpid(), env, {k: v for k, v in seen.items() if k not in ("PWD", "OLDPWD")}, os.getcwd(), sys.path

    world.env = {**world.env, "PWD": "/one", "SHLVL": "1"}
    ((cold, *first),) = world.values(all_of_it, [()], session="one")
    spare = spare_of(world, cold)
    world.env = {**world.env, "PWD": str(world.folder), "OLDPWD": "/"}
    del world.env["SHLVL"]
    ((taken, *second),) = world.values(all_of_it, [()], session="two")
    assert taken == spare
    assert {**first[0], "PWD": str(world.folder), "OLDPWD": "/", "SHLVL": None} == {**second[0], "SHLVL": None}
    assert "SHLVL" not in second[0] and first[1:] == second[1:]
    another = spare_of(world, cold, taken)
    for change in ({"env": {"LANG": "C"}}, {"room": Capacity(cores=1, memory=1 << 30)}):
        assert world.values(os.getpid, [()], session="three", **change)[0] != another  # it would have started otherwise


def test_a_spare_runner_takes_no_slot_and_ends_unused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = {world.values(os.getpid, [()], session=str(number))[0] for number in range(4)}
    assert len(pids) == 4
    world.until(lambda: len(world.processes()) <= 3)  # two cores, and the spare one
    monkeypatch.setattr(runners, "IDLE", 0.1)
    for one in world.runners._runners.values():
        world.runners._plan(one, 0.0)
    world.until(lambda: not world.processes())


def test_a_spare_runner_that_died_is_not_the_fault_of_a_call(world: World) -> None:
    (first,) = world.values(os.getpid, [()], session="one")
    spare = spare_of(world, first)
    os.kill(spare, signal.SIGKILL)
    (second,) = world.values(os.getpid, [()], session="two")
    assert second not in (first, spare)


def test_a_session_whose_directory_is_gone_says_so_as_before(world: World) -> None:
    world.values(os.getpid, [()], session="one")
    prepare = world.runners._prepare
    world.runners._prepare = lambda lease: (prepare(lease)[0], "/no/such/folder")
    (report,) = world.run(os.getpid, [()], session="two")
    assert report.outcome != "succeeded" and "/no/such/folder" in report.message


@pytest.mark.parametrize("size", [10, MAX_INLINE])
def test_modules_travel_to_a_host_that_has_none(world: World, size: int) -> None:
    text = f"# {'x' * size}\nWORD = 'sent'\ndef tell():\n    return WORD\ndef fail():\n    raise KeyError(WORD)\n"
    source = ModuleSource("sent_only", "/no/such/sent_only.py", None, text)
    data = to_bytes(ModuleSources("", (), (source,)))
    modules = world.blob(data) if size == MAX_INLINE else to_text(data)

    def call(what: str) -> Any:
        import sent_only  # type: ignore[import-not-found]

        return getattr(sent_only, what)()

    assert world.values(call, [("tell",)], modules=modules) == ["sent"]
    (report,) = world.run(call, [("fail",)], modules=modules)
    assert report.outcome == "failed" and "raise KeyError(WORD)" in report.stderr_tail
    missing = world.run(call, [("tell",)], modules="sha256:" + "0" * 64)
    assert [(one.outcome, one.cause) for one in missing] == [("failed", "stage_in")]


def test_a_file_that_changed_gets_a_new_runner(world: World) -> None:
    folder = world.folder / "project"
    folder.mkdir()
    path = folder / "found_here.py"

    def call() -> tuple[int, str]:
        import importlib

        return os.getpid(), importlib.import_module("found_here").WORD

    def write(word: str) -> None:
        before = path.stat() if path.exists() else None
        path.write_text(f"WORD = {word!r}\n")
        if before is not None:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    search = {"SHOAL_PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    seen: list[tuple[int, str]] = []
    for word in ("one", "two", "two", "six"):
        if not seen or seen[-1][1] != word:
            write(word)
        seen += world.values(call, [()], env=search)
    assert [word for _, word in seen] == ["one", "two", "two", "six"]
    assert seen[1][0] == seen[2][0] and len({pid for pid, _ in seen}) == 3
    with contextlib.suppress(OSError):
        Path(path).unlink()
    (report,) = world.run(call, [()], env=search)
    assert "found_here" in report.message
