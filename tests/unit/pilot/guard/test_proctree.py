"""Processes as the kernel shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shoal.pilot.guard import proctree


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], "SHOAL_ATTEMPT": "r1.1#1"}
    child = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo ready; wait"], env=env, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.stdout.close()
    os.killpg(child.pid, 9)
    child.wait()


def test_descendants_are_found_parents_first(sleeper: subprocess.Popen[bytes]) -> None:
    first, second = proctree.descend(sleeper.pid)
    assert first == sleeper.pid and proctree.parent(second) == first
    assert sleeper.pid in proctree.children(os.getpid())


def test_children_are_found_without_help_of_the_kernel(sleeper: subprocess.Popen[bytes]) -> None:
    assert sorted(proctree._children_by_scan(sleeper.pid)) == sorted(proctree.children(sleeper.pid))


def test_memory_session_and_mark_are_read(sleeper: subprocess.Popen[bytes]) -> None:
    pids = proctree.descend(sleeper.pid)
    assert proctree.resident(pids) > 0
    exact = proctree.proportional(pids)
    assert exact is not None and 0 < exact <= proctree.resident(pids)
    assert [proctree.session(pid) for pid in pids] == [sleeper.pid] * 2
    assert {proctree.mark(pid) for pid in pids} == {"r1.1#1"}
    assert not proctree.is_zombie(sleeper.pid)


def test_a_process_that_is_gone_is_no_error() -> None:
    gone = 2**22 + 1
    assert (proctree.children(gone), proctree.parent(gone), proctree.session(gone), proctree.mark(gone)) == (
        [],
        0,
        0,
        "",
    )
    assert (proctree.resident([gone]), proctree.proportional([gone]), proctree.is_zombie(gone)) == (0, 0, True)
    proctree.signal_group(gone, 9)


def test_all_descendants_can_be_ended() -> None:
    code = """
import os, subprocess, sys
from shoal.pilot.guard import proctree as tree
tree.become_subreaper()
subprocess.Popen(["sh", "-c", "trap '' TERM; (setsid setsid sleep 60 &) ; setsid sh -c 'sleep 60 & sleep 60' & sleep 60"])
while len(tree.descend(os.getpid())) < 6:
    pass
print(tree.kill_children(5.0), tree.children(os.getpid()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "True []\n", done.stderr


def test_our_own_children_are_seen_as_they_come_and_go(sleeper: subprocess.Popen[bytes]) -> None:
    child_list = proctree.ChildList()
    assert sorted(child_list.pids()) == sorted(proctree.children(os.getpid()))
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid in child_list.pids()  # a zombie is one too
    child.wait()
    assert child.pid not in child_list.pids() and sleeper.pid in child_list.pids()
    child_list._fd = -1  # a kernel without such files
    assert sleeper.pid in child_list.pids()
