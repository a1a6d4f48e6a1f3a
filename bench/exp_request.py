"""What does one pilot's request cost the engine: a report of a finished task in, a new lease out?

Does it matter how much is queued (100,000 tasks or 1,000, in 50 classes), and what do 10,000 classes cost, each with a
requirement and a rank of its own? Process time of `Engine.handle` alone: no socket, no database.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from bench.serving import report
from shoal.engine.commands import Accept, Enrol, Submit, Talk
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.timing import Timing
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Held, Register, Report, TagValue
from shoal.wire.submission import parse_submission

ROUNDS, BLOCK = 9, 25  # what is compared is measured in turns, so many requests at a time
CLASSES = 10_000
SLOTS, MEMORY_MB = 8, 64_000
ENOUGH = 1_500  # tasks that fit
SPENT = 9_000  # classes that are through before the last case is measured
LATE = "all match, 9 of 10 are through"
WIDE = "all match, two cores are left and each needs three"
CASES = {
    "all match": range(CLASSES),
    "1 % match": range(CLASSES - CLASSES // 100, CLASSES),
    "one matches": range(CLASSES - 1, CLASSES),
    LATE: range(CLASSES),
    WIDE: range(CLASSES),
}
LASTS = 60.0  # seconds: nothing is fetched ahead
PART = 10_000  # tasks of a submission
CAPACITY = Capacity(SLOTS, MEMORY_MB << 20, 1 << 40, 0)
TAGS: dict[str, TagValue] = {"arch": "x86_64", "cpu_mhz": 2600, "load": 0.5}
REQUIRE = 'memory_mb >= {least} and arch == "x86_64" and has(disk_mb)'
RANK = "cpu_mhz * 0.5 - load * {weight}"


class EngineWithPilot:
    """An engine and its one pilot."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self.engine = Engine(Snapshot(), Timing(), Random(1), 0.0)
        self.now, self.seq = 1_000.0, 0
        self.held: deque[str] = deque()
        for at in range(0, len(tasks), PART):
            submission = parse_submission({"tasks": tasks[at : at + PART], "cwd": "/"})
            digest = hashlib.sha256(str(at).encode()).hexdigest()
            run = self.engine.handle(Submit(submission, "ann", digest), self.now).result["run"]
            self.engine.handle(Accept(int(run[1:])), self.now)
        register = Register(PROTOCOL, "bench", "bench", "bench", CAPACITY, tags=TAGS)
        self.pilot = self.engine.handle(Enrol(register, "ann", "here"), self.now).result
        self._send([], {})
        self.full = len(self.held)

    def _send(self, reports: list[Report], tags: dict[str, TagValue]) -> float:
        """One exchange; seconds of this process that it took."""
        self.seq, self.now = self.seq + 1, self.now + 0.01
        free = Capacity(SLOTS - len(self.held), CAPACITY.memory, CAPACITY.disk, 0)
        held = [Held(attempt, "running") for attempt in self.held]
        exchange = Exchange(
            PROTOCOL, self.pilot.pilot, self.pilot.session, self.seq, self.seq - 1, free, held, reports, tags,
            nonce=str(self.seq),
        )  # fmt: skip
        began = time.process_time()
        out = self.engine.handle(Talk(exchange), self.now)
        took = time.process_time() - began
        for answer in out.answers:  # also to an exchange before, if that was parked
            self.held += [lease.attempt for lease in answer.reply.leases]
        return took

    def request(self, tags: dict[str, TagValue] | None = None) -> float:
        """One report in, one lease out."""
        done = self.held.popleft()
        took = self._send([Report(done, "succeeded", exit_code=0, duration=LASTS, cpu=LASTS)], tags or {})
        assert len(self.held) == self.full, "one lease for each report"
        return took

    def beat(self) -> float:
        """The pilot is full and has nothing to report."""
        return self._send([], {})


def few_classes(count: int, classes: int = 50) -> list[dict[str, Any]]:
    """Tasks that are all different, each with a spec of its own, in so many classes."""
    return [{"command": ["true", f"--number={n}"], "require": REQUIRE.format(least=n % classes)} for n in range(count)]


def many_classes(matching: range, cores: int = 1) -> list[dict[str, Any]]:
    """10,000 classes with expressions of their own; those in this range fit on the pilot, and have tasks enough."""
    made = []
    for number in range(CLASSES):
        fits = number in matching
        least = number if fits else MEMORY_MB + 1 + number
        task = {"cores": cores, "require": REQUIRE.format(least=least), "rank": RANK.format(weight=number)}
        made += [{"command": ["true", str(at)], **task} for at in range(ENOUGH // len(matching) + 1 if fits else 1)]
    return made


def in_turns(*ways: Callable[[], float]) -> list[list[float]]:
    """The medians of blocks of requests in each of these ways, round by round."""
    for way in ways:
        for _ in range(BLOCK):
            way()
    found: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for at, way in enumerate(ways):
            found[at].append(statistics.median(way() for _ in range(BLOCK)))
    return found


def growth() -> None:
    """A hundred thousand against a thousand queued tasks."""
    large, small = EngineWithPilot(few_classes(100_000)), EngineWithPilot(few_classes(1_000))
    gc.freeze()
    ones, others = in_turns(large.request, small.request)
    ratio = statistics.median(a / b for a, b in zip(ones, others, strict=True))
    us = f"{1e6 * statistics.median(ones):.0f} over {1e6 * statistics.median(others):.0f} us"
    report("request_cost_growth", ratio, "ratio", f"100,000 over 1,000 queued tasks in 50 classes, {us}")


def classes() -> None:
    """Ten thousand classes of which all, a few or one can be run."""
    figures: dict[str, dict[str, float]] = {
        f"request_{name}_ms": {} for name in ("10k_classes", "10k_full", "new_tags")
    }
    for name, matching in CASES.items():
        pair = EngineWithPilot(many_classes(matching, 3 if name == WIDE else 1))
        gc.freeze()
        for _ in range(SPENT if name == LATE else 0):
            pair.request()
        loads = itertools.count(1)
        ways = (pair.request, pair.beat, lambda: pair.request({"load": next(loads)}))  # noqa: B023  # used at once
        for found, times in zip(figures.values(), in_turns(*ways), strict=True):
            found[name] = 1e3 * statistics.median(times)
    for figure, found in figures.items():
        report(figure, max(found.values()), "ms", ", ".join(f"{name}: {ms:.3f}" for name, ms in found.items()))


def main() -> None:
    """Measure and print."""
    growth()
    classes()


if __name__ == "__main__":
    main()
