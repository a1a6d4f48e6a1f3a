"""What this host is: fit or not, its capacity, the tags that describe it.

`check` runs first in a pilot: a host that fails it takes no task [CMS C1; input E81].
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import math
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from shoal import __version__
from shoal.pilot.guard.cgroup import memberships
from shoal.pilot.guard.proctree import read_text
from shoal.pilot.host.tags import value_of
from shoal.wire.messages import PROTOCOL, Capacity, FormerPilot, Register, TagValue

MIN_FREE = 64 * 1024 * 1024  # to begin with
LEAST_FREE = 8 * 1024 * 1024  # to take one more task
RUNTIMES = ("apptainer", "podman", "docker")
_MEBI = 1024 * 1024
_TEXT = 1024  # characters of one tag
_NO_LIMIT = 1 << 60  # so the old cgroups say that there is none


# --- fit or not
def check(work_dir: str) -> list[str]:
    """Why this host should take no task: one plain sentence each, with the fix; empty if it is fit."""
    return [*_check_platform(), *_check_shell(), *_check_work_dir(work_dir)]


def _check_platform() -> list[str]:
    reasons = []
    if not sys.platform.startswith("linux"):
        reasons.append(f"this is {sys.platform}, not Linux: start the pilot on a Linux host")
    try:
        import ctypes  # noqa: F401
    except ImportError:
        reasons.append("this Python has no ctypes, without which tasks cannot be guarded: use another Python")
    if not os.path.isdir("/proc/self"):
        reasons.append("/proc is not mounted: mount it, or start the pilot outside this container")
    return reasons


def _check_shell() -> list[str]:
    try:
        done = subprocess.run(["/bin/sh", "-c", "exit 7"], stdin=subprocess.DEVNULL, timeout=30, check=False)
    except FileNotFoundError:
        return ["/bin/sh does not exist: install a shell"]
    except (OSError, subprocess.SubprocessError) as error:
        return [f"this host cannot start processes ({error}): check the limits shown by `ulimit -a`"]
    return [] if done.returncode == 7 else [f"/bin/sh does not work (exit code {done.returncode}): repair it"]


def _check_work_dir(work_dir: str) -> list[str]:
    other = "give another directory with --work-dir"
    try:
        os.makedirs(work_dir, mode=0o700, exist_ok=True)
    except OSError as error:
        return [f"work directory {work_dir} cannot be made ({error.strerror}): {other}"]
    script = os.path.join(work_dir, f".probe-{os.getpid()}")
    try:
        fd = os.open(script, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        try:
            os.write(fd, b"#!/bin/sh\nexit 7\n")
        finally:
            os.close(fd)
    except OSError as error:
        return [f"work directory {work_dir} is not writable ({error.strerror}): {other}"]
    reasons = []
    try:
        done = subprocess.run([script], stdin=subprocess.DEVNULL, timeout=30, check=False)
        if done.returncode != 7:
            reasons.append(f"a script in {work_dir} ends with {done.returncode} instead of 7: {other}")
    except PermissionError:
        reasons.append(f"work directory {work_dir} does not allow programs to run (noexec): {other}")
    except (OSError, subprocess.SubprocessError) as error:
        reasons.append(f"a script in {work_dir} cannot be run ({error}): {other}")
    finally:
        with contextlib.suppress(OSError):
            os.unlink(script)
    free = shutil.disk_usage(work_dir).free
    if free < MIN_FREE:
        reasons.append(
            f"only {free // _MEBI} MiB are free in {work_dir}, {MIN_FREE // _MEBI} are needed: make room, or {other}"
        )
    return reasons


def lost_fitness(work_dir: str) -> str:
    """Why this host is unfit for good, although it was fit at the start; empty while it is fit."""
    try:
        os.statvfs(work_dir)
    except OSError as error:
        return f"host_unfit: work directory {work_dir} is gone ({error.strerror})"
    return ""


def is_short(work_dir: str, needed: int = LEAST_FREE) -> bool:
    """True if less is free in the work directory than one more task needs."""
    try:
        room = os.statvfs(work_dir)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < needed


# --- capacity
def measure(work_dir: str, env: Optional[Mapping[str, str]] = None, root: str = "/") -> Capacity:
    """What of this machine is ours: the least of what hardware, cgroup and batch system allow."""
    env = os.environ if env is None else env
    cores = _cores(env, root)
    return Capacity(cores, _memory(env, root, cores), shutil.disk_usage(work_dir).free, len(devices(env, root)))


def _cores(env: Mapping[str, str], root: str) -> int:
    counts = [len(os.sched_getaffinity(0))]
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "NSLOTS"):
        counts += _positive(env.get(name))
    quota = _least(_cgroup_values(root, "cpu", "cpu.max", _quota_v2, _quota_v1))
    if quota is not None:
        counts.append(max(1, int(quota + 0.01)))
    return max(1, min(counts))


def _memory(env: Mapping[str, str], root: str, cores: int) -> int:
    sizes: list[int] = []
    for line in read_text(os.path.join(root, "proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            sizes.append(int(line.split()[1]) * 1024)
    sizes += [mebi * _MEBI for mebi in _positive(env.get("SLURM_MEM_PER_NODE"))]
    sizes += [mebi * _MEBI * cores for mebi in _positive(env.get("SLURM_MEM_PER_CPU"))]
    limit = _least(_cgroup_values(root, "memory", "memory.max", _bytes_v2, _bytes_v1))
    if limit is not None:
        sizes.append(int(limit))
    return min(sizes) if sizes else 0


def devices(env: Optional[Mapping[str, str]] = None, root: str = "/") -> list[str]:
    """Names of the graphics devices we may use, as CUDA_VISIBLE_DEVICES wants them."""
    env = os.environ if env is None else env
    named = env.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",")]
        # The first that is empty or -1 ends the list, as CUDA reads it.
        for at, name in enumerate(names):
            if not name or name == "-1" or name == "NoDevFiles":
                return names[:at]
        return names
    try:
        return [str(at) for at in range(len(os.listdir(os.path.join(root, "proc/driver/nvidia/gpus"))))]
    except OSError:
        return []


def _cgroup_values(
    root: str,
    controller: str,
    file_v2: str,
    read_v2: Callable[[str], Optional[float]],
    read_v1: Callable[[str], Optional[float]],
) -> list[Optional[float]]:
    """The values of a limit in our cgroup and every one above it."""
    mount = os.path.join(root, "sys/fs/cgroup")
    found: list[Optional[float]] = []
    for names, path in memberships(root):
        if not names:
            found += [read_v2(os.path.join(folder, file_v2)) for folder in _upwards(mount, path)]
        elif controller in names:
            for top in {os.path.join(mount, ",".join(names)), os.path.join(mount, controller)}:
                found += [read_v1(folder) for folder in _upwards(top, path)]
    return found


def _upwards(mount: str, path: str) -> list[str]:
    """The folder of a cgroup and those above; in a container only the mount itself may exist."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [os.path.join(mount, *parts[:length]) for length in range(len(parts), -1, -1)]


def _quota_v2(path: str) -> Optional[float]:
    words = read_text(path).split()
    if len(words) != 2 or not words[0].isdigit():
        return None
    return int(words[0]) / int(words[1])


def _quota_v1(folder: str) -> Optional[float]:
    quota, period = (read_text(os.path.join(folder, f"cpu.cfs_{name}_us")).strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _bytes_v2(path: str) -> Optional[float]:
    text = read_text(path).strip()
    return float(text) if text.isdigit() else None


def _bytes_v1(folder: str) -> Optional[float]:
    return _bytes_v2(os.path.join(folder, "memory.limit_in_bytes"))


def memory_left(root: str = "/") -> Optional[float]:
    """Bytes that the limits of our cgroup and those above it leave; None where none is limited."""
    left = _cgroup_values(root, "memory", "memory.max", _left_v2, _left_v1)
    known = [value for value in left if value is not None]
    return max(0.0, min(known)) if known else None


def _left_v2(path: str) -> Optional[float]:
    return _left(os.path.dirname(path), _bytes_v2(path), "memory.current", "inactive_file ")


def _left_v1(folder: str) -> Optional[float]:
    return _left(folder, _bytes_v1(folder), "memory.usage_in_bytes", "total_inactive_file ")


def _left(folder: str, limit: Optional[float], used_file: str, spare: str) -> Optional[float]:
    used = _bytes_v2(os.path.join(folder, used_file))
    if limit is None or used is None or limit >= _NO_LIMIT:
        return None
    for line in read_text(os.path.join(folder, "memory.stat")).splitlines():
        if line.startswith(spare):
            used -= int(line.split()[1])  # the kernel takes it back when it needs to
    return limit - used


def _least(values: list[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    return min(known) if known else None


def _positive(text: Optional[str]) -> list[int]:
    return [int(text)] if text and text.isdigit() and int(text) > 0 else []


# --- tags
def describe(
    site: str,
    room: Optional[Capacity],
    former: Optional[FormerPilot] = None,
    unfit: Sequence[str] = (),
    nonce: str = "",
    digest: str = "",
    facts: Optional[Mapping[str, TagValue]] = None,
) -> Register:
    """How this host presents itself to the server."""
    return Register(
        PROTOCOL,
        __version__,
        socket.gethostname(),
        identity(),
        room or Capacity(),
        site,
        tags() if facts is None else dict(facts),
        former,
        list(unfit),
        seconds_left(),
        nonce,
        digest,
    )


def identity() -> str:
    """The same for every pilot of this user on this machine, and not to be guessed back."""
    machine = read_text("/etc/machine-id").strip() or read_text("/var/lib/dbus/machine-id").strip()
    return hashlib.sha256(f"{machine or socket.gethostname()}:{os.getuid()}".encode()).hexdigest()[:32]


def tags(
    work_dir: str = "", env: Optional[Mapping[str, str]] = None, root: str = "/", search: Optional[str] = None
) -> dict[str, TagValue]:
    """What does not change while the pilot lives [GWP table 2]; what is not known here is left out."""
    name, version = _os(root)
    facts: dict[str, TagValue] = {
        "arch": platform.machine(),
        "os": name,
        "os_version": version,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "hostname": socket.gethostname(),
        "user": _user(),
        "pid": os.getpid(),
        "cpu": _cpu(root, "model name"),
        "cpu_mhz": _cpu_mhz(root),
        "gpu": _gpu(os.environ if env is None else env, root),
        "containers": " ".join(runtime for runtime in RUNTIMES if _can_use(runtime, root, search)),
        "scratch": work_dir,
    }
    return {name: value[:_TEXT] if isinstance(value, str) else value for name, value in facts.items() if value}


def _os(root: str) -> tuple[str, TagValue]:
    """The short name of the system and its version, as in os-release: debian, 12."""
    values = {}
    for line in read_text(os.path.join(root, "etc/os-release")).splitlines():
        name, _, value = line.partition("=")
        values[name] = value.strip("\"'")
    return values.get("ID") or platform.system().lower(), value_of(values.get("VERSION_ID", ""))


def _cpu(root: str, what: str) -> str:
    for line in read_text(os.path.join(root, "proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == what:
            return value.strip()
    return ""


def _cpu_mhz(root: str) -> int:
    """The highest clock rate; where that is unknown, the present one."""
    most = _positive(read_text(os.path.join(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")).strip())
    if most:
        return most[0] // 1000
    now = value_of(_cpu(root, "cpu mhz"))
    return round(now) if isinstance(now, (int, float)) else 0


def _gpu(env: Mapping[str, str], root: str) -> str:
    """The model of the first graphics device that we may use."""
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    ours = devices(env, root)
    try:
        names = sorted(os.listdir(folder)) if ours else []
    except OSError:
        return ""
    at = int(ours[0]) if ours and ours[0].isdigit() else 0
    for line in read_text(os.path.join(folder, names[at], "information")).splitlines() if at < len(names) else ():
        if line.startswith("Model:"):
            return line.partition(":")[2].strip()
    return ""


def _can_use(runtime: str, root: str, search: Optional[str]) -> bool:
    """True if this container runtime is here. Docker's command alone is of no use without access to its daemon."""
    if shutil.which(runtime, path=search) is None:
        return False
    return runtime != "docker" or os.access(os.path.join(root, "var/run/docker.sock"), os.W_OK)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container without this user in its passwd


def seconds_left(env: Optional[Mapping[str, str]] = None) -> Optional[float]:
    """Until the allocation we run in ends; None where there is none."""
    end = _positive((os.environ if env is None else env).get("SLURM_JOB_END_TIME"))
    return max(0.0, end[0] - time.time()) if end else None
