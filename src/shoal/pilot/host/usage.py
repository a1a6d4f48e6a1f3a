"""Resource usage of the host as tags: its load, what is free, what the tasks use [GWP table 2].

A measurement is a few reads of /proc every ten seconds, and rarer where there are so many processes that it takes long.
Only noticeable changes are sent to the server, with exchanges that happen anyway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Callable, Optional

from shoal.pilot.guard import proctree
from shoal.pilot.uplink.latency import Latency
from shoal.wire.messages import TagValue

MEASURE_EVERY = 10.0
SEND_EVERY = 30.0
SHARE = 0.005  # of our time that measurements may take
NOTICEABLE = 0.1  # of what was sent last, and at least so much:
_LEAST: dict[str, float] = {
    "load": 0.25,
    "memory_available_mb": 64,
    "disk_available_mb": 256,
    "task_memory_mb": 32,
    "task_cpu": 0.1,
    "lag_ms": 0.5,
    "cache_mb": 64,
    "cache_space_mb": 256,
    "cache_files": 10,
}
_MEBI = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


class HostUsage:
    """The latest measurement, and what the server was sent."""

    def __init__(
        self,
        work: str,
        guards: Sequence[int],
        network: Latency,
        limit: Optional[Callable[[], Optional[float]]] = None,
        clock: Callable[[], float] = proctree.now,
        root: str = "/",
        cache_tags: Callable[[], dict[str, TagValue]] = dict,
    ) -> None:
        self._work, self._guards, self._network, self._limit = work, guards, network, limit
        self._cache_tags = cache_tags
        self._clock, self._proc = clock, os.path.join(root, "proc")
        self._sent: dict[str, TagValue] = {}
        self._measure_at = self._send_at = 0.0
        self._cpu: Optional[tuple[float, float]] = None  # when, and how many seconds tasks had used by then

    def all(self) -> dict[str, TagValue]:
        """Everything, for a registration."""
        now = self._clock()
        self._sent = self._measure(now)
        self._send_at = now + SEND_EVERY
        return dict(self._sent)

    def changed(self) -> dict[str, TagValue]:
        """What the server should be sent; most often nothing."""
        now = self._clock()
        if now < self._measure_at or now < self._send_at:
            return {}
        changes = {name: value for name, value in self._measure(now).items() if self._is_change(name, value)}
        if changes:
            self._sent.update(changes)
            self._send_at = now + SEND_EVERY
        return changes

    def _is_change(self, name: str, value: TagValue) -> bool:
        before = self._sent.get(name)
        if not isinstance(before, (int, float)) or not isinstance(value, (int, float)):
            return before != value
        return abs(value - before) > max(NOTICEABLE * abs(before), _LEAST.get(name, 0.0))

    # --- measuring
    def _measure(self, now: float) -> dict[str, TagValue]:
        found: dict[str, TagValue] = {}
        load = self._read("loadavg").split()
        if load:
            found["load"] = float(load[0])
        free = self._memory()
        if free is not None:
            found["memory_available_mb"] = free // _MEBI
        try:
            space = os.statvfs(self._work)
            found["disk_available_mb"] = space.f_bavail * space.f_frsize // _MEBI
        except OSError:
            pass
        memory, cpu = self._tasks()
        found["task_memory_mb"] = memory // _MEBI
        since, before = self._cpu or (now, cpu)
        found["task_cpu"] = round(max(0.0, cpu - before) / max(0.01, now - since), 2)
        self._cpu = now, cpu
        found.update(self._network.tags())
        found.update(self._cache_tags())
        self._measure_at = now + max(MEASURE_EVERY, (self._clock() - now) / SHARE)
        return found

    def _memory(self) -> Optional[int]:
        """Bytes that could be had, on this machine and in our cgroup."""
        free: list[int] = []
        for line in self._read("meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) * 1024)
                break
        ours = self._limit() if self._limit is not None else None
        if ours is not None:
            free.append(max(0, int(ours)))
        return min(free) if free else None

    def _tasks(self) -> tuple[int, float]:
        """Bytes resident in all tasks, and seconds of CPU time of all there ever were: what ended is counted with
        who waited for it, in the end the guards."""
        memory, ticks = 0, 0
        for pid in (one for guard in self._guards for one in proctree.descend(guard)):
            # The second field is a name in parentheses and may hold anything.
            fields = self._read(f"{pid}/stat").rpartition(")")[2].split()
            if len(fields) < 22:
                continue
            ticks += int(fields[13]) + int(fields[14])
            if pid not in self._guards:
                ticks += int(fields[11]) + int(fields[12])
                memory += int(fields[21]) * _PAGE
        return memory, ticks / _TICK

    def _read(self, name: str) -> str:
        return proctree.read_text(os.path.join(self._proc, name))
