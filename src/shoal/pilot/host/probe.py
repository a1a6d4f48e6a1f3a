"""What this host is: fit or not, its capacity, the tags that describe it.

`check` runs first in a pilot: a host that fails it takes no task [CMS C1; input E81].
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

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
_NO_LIMIT = 1 << 60  # cgroups of version 1 have such a value where there is none


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
    """True if less is free in the directory than one more task needs; of a small disk an eighth will do."""
    try:
        space = os.statvfs(work_dir)
    except OSError:
        return False
    return space.f_bavail < min(needed // space.f_frsize, space.f_blocks // 8)


# --- capacity
def measure(work_dir: str, env: Optional[Mapping[str, str]] = None, root: str = "/") -> Capacity:
    """What of this machine is ours: the least of what hardware, cgroup and batch system allow."""
    env = os.environ if env is None else env
    cores = _cores(env, root)
    return Capacity(cores, _memory(env, root, cores), shutil.disk_usage(work_dir).free, len(devices(env, root)))


def _cores(env: Mapping[str, str], root: str) -> int:
    counts = [len(os.sched_getaffinity(0))]
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "NSLOTS", *_batch_cores(env)):
        counts += _positive(env.get(name))
    quotas = [_quota(is_v2, folder) for is_v2, folder in _cgroups(root, "cpu")]
    counts += [max(1, int(quota + 0.01)) for quota in quotas if quota]
    return max(1, min(counts))


def _batch_cores(env: Mapping[str, str]) -> Iterator[str]:
    """Variables that name our cores only inside of a job of their batch system; others use the same names."""
    if "PBS_JOBID" in env:
        yield from ("NCPUS", "PBS_NCPUS", "PBS_NUM_PPN")  # OpenPBS, its older releases, and Torque
    if "LSB_JOBID" in env and len(set(env.get("LSB_HOSTS", "").split())) < 2:
        yield "LSB_DJOB_NUMPROC"  # of all hosts together


def _memory(env: Mapping[str, str], root: str, cores: int) -> int:
    sizes: list[int] = []
    for line in read_text(os.path.join(root, "proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            sizes.append(int(line.split()[1]) * 1024)
    sizes += [mebi * _MEBI for mebi in _positive(env.get("SLURM_MEM_PER_NODE"))]
    sizes += [mebi * _MEBI * cores for mebi in _positive(env.get("SLURM_MEM_PER_CPU"))]
    for is_v2, folder in _cgroups(root, "memory"):
        limit = _bytes(folder, "memory.max" if is_v2 else "memory.limit_in_bytes")
        sizes += [limit] if limit else []
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


def _cgroups(root: str, controller: str) -> Iterator[tuple[bool, str]]:
    """The folders of our cgroup and every one above it that limits what a controller counts; True: of version 2.

    In a container only the mount itself may exist.
    """
    mount = os.path.join(root, "sys/fs/cgroup")
    for names, path in memberships(root):
        tops = {mount} if not names else {os.path.join(mount, name) for name in (",".join(names), controller)}
        parts = [part for part in path.split("/") if part not in ("", "..")]
        if not names or controller in names:
            for top in tops:
                for length in range(len(parts), -1, -1):
                    yield not names, os.path.join(top, *parts[:length])


def _quota(is_v2: bool, folder: str) -> Optional[float]:
    """Processors that a cgroup may use; None where it is not limited."""
    if is_v2:
        values = read_text(os.path.join(folder, "cpu.max")).split()
    else:
        values = [read_text(os.path.join(folder, f"cpu.cfs_{name}_us")).strip() for name in ("quota", "period")]
    is_limited = len(values) == 2 and all(value.isdigit() for value in values) and int(values[1])
    return int(values[0]) / int(values[1]) if is_limited else None


def _bytes(folder: str, name: str) -> Optional[int]:
    text = read_text(os.path.join(folder, name)).strip()
    return int(text) if text.isdigit() else None


def memory_left(root: str = "/") -> Optional[float]:
    """Bytes that the limits of our cgroup and those above it leave; None where none is limited."""
    left: list[float] = []
    for is_v2, folder in _cgroups(root, "memory"):
        limit = _bytes(folder, "memory.max" if is_v2 else "memory.limit_in_bytes")
        used = _bytes(folder, "memory.current" if is_v2 else "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _NO_LIMIT:
            for line in read_text(os.path.join(folder, "memory.stat")).splitlines():
                if line.startswith("inactive_file " if is_v2 else "total_inactive_file "):
                    used -= int(line.split()[1])  # the kernel takes it back when it needs to
            left.append(limit - used)
    return max(0.0, min(left)) if left else None


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
    """Until the allocation we run in ends; None where there is none. The batch script's and Slurm's own end may differ."""
    env = os.environ if env is None else env
    ends = _positive(env.get("SLURM_JOB_END_TIME")) + _positive(env.get("SHOAL_ALLOCATION_ENDS"))
    return max(0.0, min(ends) - time.time()) if ends else None
