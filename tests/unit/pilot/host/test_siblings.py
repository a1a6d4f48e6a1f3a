"""Locks by which pilots of a host know which of them are dead: real processes, real locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from shoal.model.credentials import digest
from shoal.pilot.host.siblings import KEPT, Siblings

HOLD = """
import sys, time
from shoal.pilot.host.siblings import Siblings
held = Siblings("server", sys.argv[1])
held.hold(sys.argv[2])
print("held", flush=True)
time.sleep(600)
"""


def holder(folder: Path, session: str) -> subprocess.Popen[str]:
    """Another process that is the pilot with this session."""
    words = [sys.executable, "-c", HOLD, str(folder), session]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()


def test_a_killed_pilot_is_seen_dead_once_and_a_living_one_is_not(tmp_path: Path) -> None:
    here = Siblings("server", str(tmp_path))
    here.hold("mine")
    one, two = holder(tmp_path, "one"), holder(tmp_path, "two")
    try:
        assert here.ended() == []
        kill(one)
        assert here.ended(is_sure=False) == here.ended() == [digest("one")]
        assert here.ended() == [], "told once"
        assert Siblings("server", str(tmp_path)).ended() == [digest("one")], "but everybody may tell"
        assert Siblings("another", str(tmp_path)).ended() == []
    finally:
        kill(two)
    assert here.ended() == [digest("two")]


def test_who_ends_in_order_leaves_nothing_behind_and_is_nobodys_news(tmp_path: Path) -> None:
    here = Siblings("server", str(tmp_path))
    here.hold("mine")
    here.hold("mine again")  # the server had forgotten us
    assert Siblings("server", str(tmp_path)).ended() == []
    here.close()
    here.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_boot_says_nothing_about_us(tmp_path: Path) -> None:
    before = Siblings("server", str(tmp_path), boot="before")
    before.hold("old")
    assert before._held is not None
    os.close(before._held)  # as if the machine had gone down
    assert Siblings("server", str(tmp_path), boot="now").ended() == []


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"shoal-{os.getuid()}").mkdir()
    (tmp_path / f"shoal-{os.getuid()}").chmod(0o777)
    here = Siblings("server", str(tmp_path))
    here.hold("mine")
    assert here._held is None and here.ended() == []
    here.close()


def test_what_the_dead_left_is_swept_after_a_while(tmp_path: Path) -> None:
    kill(holder(tmp_path, "one"))
    here = Siblings("another", str(tmp_path))
    here.hold("mine")
    (left,) = [path for path in tmp_path.rglob("*") if path.name == digest("one")]
    os.utime(left, (time.time() - 2 * KEPT,) * 2)
    here.hold("mine again")
    assert not left.exists() and not left.parent.exists()
