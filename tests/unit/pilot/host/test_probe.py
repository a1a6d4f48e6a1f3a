"""Fitness, room and facts of a host."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from shoal.pilot.host import probe


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A false /proc and /sys."""
    plant(tmp_path, "proc/meminfo", "MemFree: 1 kB\nMemTotal:       8388608 kB\n")
    return tmp_path


def plant(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


def measure(root: Path, **env: str) -> tuple[int, int, int]:
    room = probe.measure(str(root), env, str(root))
    assert room.disk > 0
    return room.cores, room.memory >> 20, room.gpus


def test_without_limits_the_whole_machine_is_ours(root: Path) -> None:
    assert measure(root) == (16, 8192, 0)


@pytest.mark.parametrize(
    ("env", "cores"),
    [
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "8"}, 4),
        ({"SLURM_CPUS_ON_NODE": "8"}, 8),
        ({"NSLOTS": "3"}, 3),
        ({"NSLOTS": "64"}, 16),
        ({"NSLOTS": "many", "SLURM_CPUS_ON_NODE": "4(x2)"}, 16),
        ({"NSLOTS": "0"}, 16),
        ({"PBS_JOBID": "1.pbs", "NCPUS": "4"}, 4),
        ({"PBS_JOBID": "1.pbs", "PBS_NUM_PPN": "2"}, 2),
        ({"NCPUS": "4"}, 16),  # of nobody knows whom
        ({"LSB_JOBID": "7", "LSB_DJOB_NUMPROC": "8", "LSB_HOSTS": "a a"}, 8),
        ({"LSB_JOBID": "7", "LSB_DJOB_NUMPROC": "8", "LSB_HOSTS": "a a b b"}, 16),  # of both hosts
        ({"LSB_DJOB_NUMPROC": "8"}, 16),
        ({"OMP_NUM_THREADS": "1"}, 16),  # says how programs compute, not what is ours
    ],
)
def test_batch_systems_limit_cores(root: Path, env: dict[str, str], cores: int) -> None:
    assert measure(root, **env)[0] == cores


def test_batch_systems_limit_memory(root: Path) -> None:
    assert measure(root, SLURM_MEM_PER_NODE="2048")[1] == 2048
    assert measure(root, SLURM_MEM_PER_CPU="100", NSLOTS="2")[1] == 200


@pytest.mark.parametrize(
    ("quota", "cores"), [("200000 100000", 2), ("150000 100000", 1), ("5000 100000", 1), ("max 100000", 16)]
)
def test_a_cgroup_of_version_2_limits_cores(root: Path, quota: str, cores: int) -> None:
    plant(root, "proc/self/cgroup", "0::/user/job\n")
    plant(root, "sys/fs/cgroup/user/job/cpu.max", quota)
    assert measure(root)[0] == cores


def test_the_tightest_cgroup_on_the_way_up_counts(root: Path) -> None:
    plant(root, "proc/self/cgroup", "0::/user/job\n")
    plant(root, "sys/fs/cgroup/user/job/memory.max", "max\n")
    plant(root, "sys/fs/cgroup/user/memory.max", str(512 << 20))
    plant(root, "sys/fs/cgroup/cpu.max", "300000 100000")
    assert measure(root)[:2] == (3, 512)


def test_a_cgroup_of_version_1_limits_cores_and_memory(root: Path) -> None:
    plant(root, "proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n")
    plant(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n")
    plant(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
    plant(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", str(1 << 30))
    assert measure(root)[:2] == (4, 1024)
    plant(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n")
    plant(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
    assert measure(root)[:2] == (16, 8192)


def test_graphics_devices_keep_the_names_they_were_given(root: Path) -> None:
    assert probe.devices({"CUDA_VISIBLE_DEVICES": "2, GPU-ab"}, str(root)) == ["2", "GPU-ab"]
    assert probe.devices({"CUDA_VISIBLE_DEVICES": ""}, str(root)) == []
    assert probe.devices({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, str(root)) == ["1"]
    assert probe.devices({}, str(root)) == []
    plant(root, "proc/driver/nvidia/gpus/0000:01/information", "")
    plant(root, "proc/driver/nvidia/gpus/0000:02/information", "")
    assert probe.devices({}, str(root)) == ["0", "1"]


# --- fitness ---


def test_a_good_place_is_fit_and_stays_clean(tmp_path: Path) -> None:
    work = tmp_path / "new" / "work"
    assert probe.check(str(work)) == []
    assert work.is_dir() and list(work.iterdir()) == []
    assert work.stat().st_mode & 0o077 == 0
    assert probe.lost_fitness(str(work)) == ""


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/x"])
def test_a_place_that_cannot_be_made_is_named_with_the_fix(place: str) -> None:
    (reason,) = probe.check(place)
    assert place in reason and "--work-dir" in reason


def test_a_place_that_runs_no_programs_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def refuse(argv: list[str], **more: object) -> object:
        if argv[0].startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied")
        return run(argv, check=False)

    monkeypatch.setattr(subprocess, "run", refuse)
    (reason,) = probe.check(str(tmp_path))
    assert "noexec" in reason
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1 << 20

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage)
    (reason,) = probe.check(str(tmp_path))
    assert "only 1 MiB" in reason and "64" in reason


def test_a_place_that_is_gone_is_no_longer_fit(tmp_path: Path) -> None:
    assert "host_unfit" in probe.lost_fitness(str(tmp_path / "gone"))


# --- facts ---


def test_the_identity_is_of_the_machine_and_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = probe.identity()
    assert mine == probe.identity()
    assert len(mine) == 32 and int(mine, 16)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert probe.identity() != mine


def test_a_host_describes_itself(root: Path) -> None:
    plant(root, "etc/os-release", 'PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n')
    plant(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU\ncpu MHz\t\t: 2399.999\n")
    plant(root, "proc/driver/nvidia/gpus/0000:01/information", "Model: \t\t First\nIRQ: 7\n")
    plant(root, "proc/driver/nvidia/gpus/0000:02/information", "Model: \t\t Second\nIRQ: 8\n")
    for name in ("podman", "docker"):
        plant(root, f"bin/{name}", "#!/bin/sh\n")
        (root / "bin" / name).chmod(0o755)
    tags = probe.tags("/scratch/1", {"CUDA_VISIBLE_DEVICES": "1"}, str(root), str(root / "bin"))
    assert (tags["os"], tags["os_version"], tags["cpu"], tags["cpu_mhz"]) == ("debian", 12, "Fast CPU", 2400)
    assert (tags["gpu"], tags["containers"], tags["scratch"]) == ("Second", "podman", "/scratch/1")
    assert (tags["kernel"], tags["pid"]) == (os.uname().release, os.getpid())
    assert tags["arch"] and tags["python"] and tags["user"] and tags["hostname"]
    plant(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3600000\n")
    plant(root, "var/run/docker.sock", "")
    tags = probe.tags("", {}, str(root), str(root / "bin"))
    assert (tags["cpu_mhz"], tags["gpu"], tags["containers"]) == (3600, "First", "podman docker")
    assert "scratch" not in tags


def test_a_host_that_tells_nothing_of_itself_has_fewer_tags(tmp_path: Path) -> None:
    tags = probe.tags("", {}, str(tmp_path), str(tmp_path))
    assert tags["os"] == "linux"
    assert {"os_version", "cpu", "cpu_mhz", "gpu", "containers"}.isdisjoint(tags)


@pytest.mark.parametrize("version", [1, 2])
def test_memory_that_is_left_is_that_of_the_tightest_cgroup(root: Path, version: int) -> None:
    top = "sys/fs/cgroup" if version == 2 else "sys/fs/cgroup/memory"
    files = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
    limit, used = files[version]
    spare = "inactive_file" if version == 2 else "total_inactive_file"
    plant(root, "proc/self/cgroup", "0::/a/b\n" if version == 2 else "4:memory:/a/b\n")
    assert probe.memory_left(str(root)) is None
    plant(root, f"{top}/a/{limit}", "1000\n")
    plant(root, f"{top}/a/{used}", "700\n")
    plant(root, f"{top}/a/memory.stat", f"anon 5\n{spare} 200\n")
    plant(root, f"{top}/a/b/{limit}", "max\n" if version == 2 else f"{2**63 - 4096}\n")
    plant(root, f"{top}/a/b/{used}", "600\n")
    assert probe.memory_left(str(root)) == 500
    plant(root, f"{top}/a/{used}", "1500\n")
    assert probe.memory_left(str(root)) == 0


def test_the_end_of_an_allocation_is_known() -> None:
    assert probe.seconds_left({}) is None
    left = probe.seconds_left({"SLURM_JOB_END_TIME": str(int(time.time()) + 100)})
    assert left is not None and 90 < left <= 100
    assert probe.seconds_left({"SLURM_JOB_END_TIME": "1000"}) == 0.0


def test_the_earlier_end_of_batch_script_and_slurm_counts() -> None:
    soon, late = str(int(time.time()) + 100), str(int(time.time()) + 9000)
    for env in (
        {"SHOAL_ALLOCATION_ENDS": soon},
        {"SHOAL_ALLOCATION_ENDS": soon, "SLURM_JOB_END_TIME": late},
        {"SHOAL_ALLOCATION_ENDS": late, "SLURM_JOB_END_TIME": soon},
        {"SHOAL_ALLOCATION_ENDS": soon, "SLURM_JOB_END_TIME": "never"},
    ):
        left = probe.seconds_left(env)
        assert left is not None and 90 < left <= 100
    assert probe.seconds_left({"SHOAL_ALLOCATION_ENDS": "$((1+1))"}) is None


def test_an_unfit_host_describes_itself_without_room() -> None:
    message = probe.describe("site", None, unfit=["full"])
    assert (message.unfit, message.room.cores, message.site) == (["full"], 0, "site")
