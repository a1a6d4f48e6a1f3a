"""Is there space, and what is said if not."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.pilot.functions import executor
from shoal.pilot.guard import outcome, proctree
from shoal.pilot.guard.messages import Ended
from shoal.pilot.host import disk_space
from shoal.wire.messages import Batch, Capacity, Lease, Report

LEASE = Lease("r1.1#1@1", Capacity(1), "safe", ["x"])
ENDED = Ended("r1.1#1@1", None, None, "", 1.0, 0.5, 1 << 20)


def test_a_good_trial_holds_for_a_moment_and_a_bad_one_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def trial(folder: str) -> int:
        tries.append(1)
        return errno.EDQUOT if len(tries) > 1 else 0

    monkeypatch.setattr(disk_space, "_try", trial)
    looks = disk_space.Space()
    assert looks.trouble(str(tmp_path), 1.0) == 0 == looks.trouble(str(tmp_path), 1.0 + disk_space.TRUST / 2)
    assert len(tries) == 1
    assert looks.trouble(str(tmp_path), 2.0) == errno.EDQUOT == looks.trouble(str(tmp_path), 2.0)
    assert len(tries) == 3


def test_with_little_left_every_look_is_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def trial(folder: str) -> int:
        tries.append(folder)
        return 0

    monkeypatch.setattr(disk_space, "_try", trial)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    looks = disk_space.Space()
    for _ in range(3):
        looks.trouble(str(tmp_path), 1.0)
    assert len(tries) == 3


@pytest.mark.parametrize("has_blanks", [True, False])
def test_a_trial_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_blanks: bool) -> None:
    if not has_blanks:
        really = os.open

        def open_(path: str, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "no such files here")
            return really(path, flags, mode)

        monkeypatch.setattr(os, "open", open_)
    assert disk_space._try(str(tmp_path)) == 0 and list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_yet_is_no_trouble(tmp_path: Path) -> None:
    assert disk_space.Space().trouble(str(tmp_path / "not" / "yet"), 1.0) == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("code", [0, 1])
def test_an_end_on_a_full_disk_is_the_hosts_failure_whatever_the_program_says(number: int, code: int) -> None:
    report = outcome.judge(LEASE, replace(ENDED, exit_code=code, no_space=number, folder="/logs"), 1.0)
    assert (report.outcome, report.cause, report.evidence) == ("returned", "host_unfit", "no_space")
    assert "/logs of " in report.message and "while the task wrote its output" in report.message


@pytest.mark.parametrize(
    ("why", "cause"), [("time", "over_time"), ("memory", "out_of_memory"), ("stopped", "cancelled")]
)
def test_what_we_ended_ourselves_is_told_as_that(why: str, cause: str) -> None:
    lease = Lease("r1.1#1@1", Capacity(1, 100 << 20), "safe", ["x"], time=1.0)
    assert outcome.judge(lease, replace(ENDED, why=why, no_space=errno.ENOSPC, folder="/logs"), 1.0).cause == cause


def test_files_in_memory_are_counted_once_and_not_with_what_is_mapped() -> None:
    import mmap

    file = os.memfd_create("test")
    try:
        os.write(file, b"x" * (8 << 20))
        files = proctree.memory_files([os.getpid(), os.getpid()])
        mine = os.fstat(file)
        assert files[mine.st_dev, mine.st_ino] >= 8 << 20
        before = proctree.proportional([os.getpid()], files)
        with mmap.mmap(file, 8 << 20) as mapped:
            assert sum(mapped[at] for at in range(0, 8 << 20, 4096)) > 0  # now it is resident as well
            after = proctree.proportional([os.getpid()], files)
            full = proctree.proportional([os.getpid()])
        assert before is not None and after is not None and full is not None
        assert after - before < 4 << 20 and full - after > 6 << 20
    finally:
        os.close(file)


def test_calls_that_ended_on_a_full_disk_are_given_back_but_not_what_was_stopped() -> None:
    batch = Batch("r1.1#1@1", 2, [1.0, 2.0], [0.1, 0.1], result=["a", "b"])
    stopped = Report("r1.3#1@1", "failed", "cancelled", "stopped")
    given = list(executor._give_back(batch, (stopped, Report("r1.4#1@1", "failed", "task_error")), "no space left"))
    assert [(report.attempt, report.outcome, report.cause) for report in given] == [
        ("r1.1#1@1", "returned", "host_unfit"),
        ("r1.2#1@1", "returned", "host_unfit"),
        ("r1.3#1@1", "failed", "cancelled"),
        ("r1.4#1@1", "returned", "host_unfit"),
    ]
