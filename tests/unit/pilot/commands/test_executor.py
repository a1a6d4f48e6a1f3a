"""What the executor makes of the guard's reports on pieces."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.data.sources import ORIGIN, Place
from shoal.model.blobs import digest_of
from shoal.pilot.agent.events import Begin, Called, Event, Settle, Stop
from shoal.pilot.agent.events import Ended as AttemptEnded
from shoal.pilot.commands.executor import MAX_UNFIT, CommandExecutor
from shoal.pilot.commands.files import StageError
from shoal.pilot.commands.staging import PilotFacts, Staging
from shoal.pilot.files.fetch import Fetcher, NoBlob, Write
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.guard.messages import Ended, FromGuard, NotStarted, Ran, Start
from shoal.pilot.host import probe
from shoal.pilot.host.file_threads import THREADS, FileThreads
from shoal.wire.messages import Capacity, Lease

FIRST, SECOND = "r1.1#1@1", "r1.2#1@1"


class Guards:
    """Stands for the guards: reports what it is given."""

    closed, pids = False, [1]

    def __init__(self) -> None:
        self.reports: list[FromGuard] = []
        self.started: list[str] = []

    def start(self, message: Start, *_: object) -> None:
        self.started.append(message.attempt)

    def receive(self) -> list[FromGuard]:
        reports, self.reports = self.reports, []
        return reports

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: None


class World:
    """An executor with what is around it."""

    def __init__(self, folder: Path) -> None:
        self.fed: list[Event] = []
        self.unfit: list[str] = []
        self.guards = Guards()
        self.stage = Staging(PilotFacts(str(folder), {"PATH": "/bin"}))
        tails: Any = SimpleNamespace(
            add=lambda *args: None,
            end=lambda *args: None,
            settle=lambda *args: None,
            read=lambda now: [],
            has_more=False,
        )
        fetcher = Fetcher(HostCache(str(folder / "cache")), (), str(folder / "beside"))
        self.executor = CommandExecutor(
            self.guards,  # type: ignore[arg-type]  # stands for them
            self.stage, 0o77, self.fed.append, lambda work: work(), self.unfit.append, lambda why: None, tails,
            SimpleNamespace(fetcher=fetcher), lambda report: None,  # type: ignore[arg-type]  # no blobs
        )  # fmt: skip

    def begin(self, cwd: Path, count: int, after: str = "") -> None:
        lease = Lease(
            FIRST, Capacity(1), "safe", ["true"], cwd=str(cwd), count=count, seed=5, env_file=str(cwd / "env")
        )
        self.executor.begin(Begin(lease, after=after))

    def report(self, *reports: FromGuard) -> None:
        self.guards.reports += reports
        self.executor.receive()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(probe, "lost_fitness", lambda folder: "")
    monkeypatch.setattr(probe, "is_short", lambda folder, least: False)
    (tmp_path / "env").write_text("{}")
    return World(tmp_path)


def test_the_end_of_a_piece_of_which_nothing_began_does_not_make_a_host_fit(world: World, tmp_path: Path) -> None:
    """Each start failed for the host's sake, and the pilot went on asking for more."""
    for _ in range(MAX_UNFIT):
        world.begin(tmp_path, 2)
        no = [NotStarted(f"r1.{n}#1@1", "host_unfit", "no", errno=errno.EAGAIN, piece=FIRST) for n in (1, 2)]
        world.report(*no, Ran(FIRST, [], [], [], [], over=True))
    assert world.unfit


def test_the_output_of_one_of_a_piece_is_read_where_the_guard_wrote_it(world: World, tmp_path: Path) -> None:
    world.begin(tmp_path, 2)
    world.executor._log_dir = str(tmp_path / "elsewhere")  # the server restarted meanwhile, and its log folder is seen
    log = tmp_path / "logs/r1/0/1.1.out"
    log.parent.mkdir(parents=True)
    log.write_text("said\n")
    world.report(Ended(FIRST, 0, None, "", 0.1, 0.1, 1, ["stdout"], piece=FIRST, started=5.0))
    called = world.fed[-1]
    assert isinstance(called, Called) and [report.last_line for report in called.reports] == ["said"]


def test_a_piece_whose_commands_need_directories_of_their_own_is_taken_apart(world: World, tmp_path: Path) -> None:
    (tmp_path / "env").unlink()  # this host does not see what is the submitter's
    world.begin(tmp_path, 2)
    world.executor._file_threads.finish(60.0)
    assert world.fed == [Called(FIRST, None, (), over=True, apart=True)]
    assert not list((tmp_path / "tasks").iterdir()), "nothing is left of it"


def test_a_recalled_command_leaves_no_directory_to_be_removed_when_it_comes_again(world: World, tmp_path: Path) -> None:
    """A file thread removed the one that had just been made for it, and the task failed for want of its directory."""
    (tmp_path / "env").unlink()
    world.begin(tmp_path, 1, after="r1.9#1@1")
    world.executor._file_threads.finish(60.0)
    assert len(list((tmp_path / "tasks").iterdir())) == 1
    world.report(NotStarted(FIRST, "cancelled", "stopped"))
    world.executor.settle(Settle(FIRST, False))
    assert not list((tmp_path / "tasks").iterdir())


@pytest.mark.parametrize("is_slow", [False, True])
def test_an_attempt_has_an_end_whatever_goes_wrong_while_it_is_prepared(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(world.stage, "prepare", fail)
    monkeypatch.setattr(world.stage, "is_slow", lambda lease: is_slow)
    world.begin(tmp_path, 1)
    world.executor._file_threads.finish(60.0)
    (ended,) = world.fed
    assert isinstance(ended, AttemptEnded)
    assert (ended.report.outcome, ended.report.cause) == ("failed", "stage_in")
    assert "RecursionError: too deep" in ended.report.message


@pytest.mark.parametrize("unknown", [True, False])
def test_a_stopped_attempt_whose_input_comes_byte_by_byte_ends(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: bool
) -> None:
    """The last place for a file has no limit of time, and two of them held both threads."""
    begun, whole, fetcher = threading.Event(), threading.Event(), world.executor._blobs.fetcher

    class Trickle:
        place = Place(ORIGIN, "trickle")

        def fetch(self, digest: str, size: int | None, write: Write, deadline: float) -> None:
            for _ in range(3_000):
                write(b".")
                begun.set()
                time.sleep(0.01)
            whole.set()

    def prepare(*_: object) -> None:
        try:
            fetcher.fetch_unknown(Trickle(), "r1") if unknown else fetcher.fetch(digest_of([b"x"]), None, [Trickle()])
        except NoBlob as error:
            raise StageError("stage_in", str(error)) from None

    monkeypatch.setattr(world.stage, "prepare", prepare)
    monkeypatch.setattr(world.stage, "is_slow", lambda lease: True)
    world.begin(tmp_path, 1)
    assert begun.wait(60.0)
    assert world.executor.stop(Stop(FIRST, "by anna"))
    world.executor._file_threads.finish(60.0)
    assert not whole.is_set()
    ended = world.fed[-1]
    assert isinstance(ended, AttemptEnded)
    assert (ended.report.cause, ended.report.message) == ("cancelled", "by anna")
    assert not fetcher.take_failures(), "the place did nothing wrong"


def test_what_has_ended_does_not_wait_for_inputs_of_others(world: World, tmp_path: Path) -> None:
    (tmp_path / "env").unlink()  # so it has a directory of its own, which is emptied
    world.begin(tmp_path, 1)
    world.executor._file_threads.finish(60.0)
    world.executor._file_threads = FileThreads()
    hold = threading.Event()

    def wait() -> None:
        hold.wait(60.0)

    for _ in range(THREADS):
        world.executor._file_threads.do(wait)
    world.report(Ended(FIRST, 0, None, "", 0.1, 0.1, 1))
    world.executor._end_threads.finish(60.0)
    hold.set()
    assert isinstance(world.fed[-1], AttemptEnded)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_follows_one_that_is_still_staged_reaches_the_guard_after_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """The guard begins at once what waits for one that it does not know: there were more at once than slots."""
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(world.executor, "_file_threads", SimpleNamespace(do=later.append))
    monkeypatch.setattr(world.stage, "is_slow", lambda lease: lease.attempt == FIRST)
    world.begin(tmp_path, 1)
    second = Lease(SECOND, Capacity(1), "safe", ["true"], cwd=str(tmp_path), env_file=str(tmp_path / "env"))
    world.executor.begin(Begin(second, after=FIRST))
    assert world.guards.started == []
    if is_lost:
        monkeypatch.setattr(world.stage, "prepare", lambda *_: (_ for _ in ()).throw(StageError("stage_in", "gone")))
    later[0]()
    assert world.guards.started == ([SECOND] if is_lost else [FIRST, SECOND])
