"""The kernel's count of processes that it ended for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.pilot.guard.oom import RECENT, OomKills

WAYS = {
    "v2": ("0::/user/job\n", "sys/fs/cgroup/user/job/memory.events", "low 0\noom 3\noom_kill {}\noom_group_kill 0\n"),
    "v2 in a container": ("0::/far/away\n", "sys/fs/cgroup/memory.events", "oom 3\noom_kill {}\n"),
    "v1": (
        "4:memory:/job\n0::/\n",
        "sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    ),
    "the host": ("", "proc/vmstat", "nr_free_pages 12\noom_kill {}\ndrop_pagecache 0\n"),
}


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_rise_is_seen_and_forgotten(tmp_path: Path, way: str) -> None:
    own, name, text = WAYS[way]
    write(tmp_path, "proc/self/cgroup", own)
    file = write(tmp_path, name, text.format(4))
    if way != "the host":
        write(tmp_path, "proc/vmstat", "oom_kill 100\n")
    oom_kills = OomKills(str(tmp_path))
    oom_kills.look(10.0)
    assert not oom_kills.is_recent(10.0), "what was before us does not count"
    file.write_text(text.format(5))
    assert not oom_kills.is_recent(10.5)
    oom_kills.look(11.0)
    assert oom_kills.is_recent(11.0) and oom_kills.is_recent(11.0 + RECENT)
    oom_kills.look(12.0 + RECENT)
    assert not oom_kills.is_recent(12.0 + RECENT)


def test_for_containers_the_hosts_counter_is_read(tmp_path: Path) -> None:
    own, name, text = WAYS["v2"]
    write(tmp_path, "proc/self/cgroup", own)
    write(tmp_path, name, text.format(4))
    host = write(tmp_path, "proc/vmstat", "oom_kill 1\n")
    oom_kills = OomKills(str(tmp_path), host=True)
    host.write_text("oom_kill 2\n")
    oom_kills.look(1.0)
    assert oom_kills.is_recent(1.0)


def test_where_nothing_can_be_read_there_is_no_evidence(tmp_path: Path) -> None:
    oom_kills = OomKills(str(tmp_path))
    oom_kills.look(1.0)
    assert not oom_kills.is_recent(1.0)


def test_a_counter_that_begins_anew_is_no_rise(tmp_path: Path) -> None:
    host = write(tmp_path, "proc/vmstat", "oom_kill 7\n")
    oom_kills = OomKills(str(tmp_path))
    host.write_text("oom_kill 0\n")
    oom_kills.look(1.0)
    assert not oom_kills.is_recent(1.0)
    host.write_text("oom_kill 1\n")
    oom_kills.look(2.0)
    assert oom_kills.is_recent(2.0)
