"""What does it cost to place tasks by their data: 100,000 ready tasks, each with an input of its own, and 1,000 pilots whose
hosts have 100 of these files each?

One request is a report of a finished task, and of the file that it made, in and a new lease out, as in `exp_request`, in
turns over the pilots. Against the same with a tenth of both; and against tasks without inputs. Process time of
`Engine.handle` alone.
"""

from __future__ import annotations

import gc
import hashlib
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

from bench.exp_request import in_turns
from bench.serving import report
from shoal.engine.commands import Accept, Enrol, Submit, Talk
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.timing import Timing
from shoal.wire.messages import PROTOCOL, CachedFile, Capacity, Exchange, Held, Register, Registered, Report
from shoal.wire.submission import parse_submission

PILOTS, TASKS, SMALLER = 1_000, 100_000, 10
PART = 10_000  # tasks of a submission
SIZE = 700 << 20  # bytes of a file
LASTS = 60.0  # seconds: nothing is fetched ahead
CAPACITY = Capacity(1, 8 << 30, 1 << 40, 0)


def digest(number: int) -> str:
    """The digest of one of the files."""
    return f"sha256:{hashlib.sha256(str(number).encode()).hexdigest()}"


class Pool:
    """An engine, and pilots that each hold one task; `readers`: the tasks read files, of which the hosts have some."""

    def __init__(self, tasks: int, pilots: int, readers: bool) -> None:
        self.count = pilots
        self.engine = Engine(Snapshot(), Timing(), Random(1), 0.0)
        self.now, self.at, self.hits, self.leased = 1_000.0, 0, 0, 0
        self.files: list[set[str]] = []
        self.pilots: list[Registered] = []
        self.seqs = [0] * pilots
        self.held: list[str] = [""] * pilots
        each = tasks // pilots
        for at in range(pilots):
            register = Register(PROTOCOL, "bench", f"h{at}", f"id{at}", CAPACITY)
            self.pilots.append(self.engine.handle(Enrol(register, "ann", "here"), self.now).result)
            self.files.append({digest(at + pilots * place) for place in range(each)} if readers else set())
            if readers:
                self._send(at, [], [CachedFile(one, SIZE) for one in sorted(self.files[at])])
        for low in range(0, tasks, PART):
            table = [self._task(number, readers) for number in range(low, min(tasks, low + PART))]
            submission = parse_submission({"tasks": table, "cwd": "/"})
            out = self.engine.handle(Submit(submission, "ann", digest(low)), self.now)
            self._take(out.answers)
            self._take(self.engine.handle(Accept(int(out.result["run"][1:])), self.now).answers)
        for at in range(pilots):
            if not self.held[at]:
                self._send(at, [])
        assert all(self.held), "each has one"

    def _task(self, number: int, reads: bool) -> dict[str, Any]:
        task: dict[str, Any] = {"command": ["true", str(number)]}
        return {**task, "inputs": ["in"], "content": {"in": f"{digest(number)} 644"}} if reads else task

    def _take(self, answers: list[Any]) -> None:
        names = {pilot.pilot: at for at, pilot in enumerate(self.pilots)}
        for answer in answers:
            self._hear(names[answer.pilot], answer.reply)

    def _hear(self, at: int, reply: Any) -> None:
        for lease in reply.leases:
            self.held[at] = lease.attempt
            self.leased += 1
            self.hits += any(text.partition(" ")[0] in self.files[at] for text in lease.content.values())

    def _send(self, at: int, reports: list[Report], cached: list[CachedFile] | None = None) -> float:
        self.seqs[at], self.now = self.seqs[at] + 1, self.now + 0.01
        held = [Held(self.held[at], "running")] if self.held[at] else []
        free = CAPACITY if not held else Capacity(0, CAPACITY.memory, CAPACITY.disk, 0)
        pilot, seq = self.pilots[at], self.seqs[at]
        exchange = Exchange(
            PROTOCOL, pilot.pilot, pilot.session, seq, seq - 1, free, held, reports, nonce=str(seq), cached=cached or []
        )
        began = time.process_time()
        out = self.engine.handle(Talk(exchange), self.now)
        took = time.process_time() - began
        for answer in out.answers:
            if answer.pilot == pilot.pilot:
                self._hear(at, answer.reply)
        return took

    def request(self) -> float:
        """The next pilot reports its task, and gets another."""
        at, self.at = self.at, (self.at + 1) % self.count
        done, self.held[at] = self.held[at], ""
        made = [CachedFile(digest(-self.leased), SIZE)] if self.files[at] else []  # what the task wrote
        took = self._send(at, [Report(done, "succeeded", exit_code=0, duration=LASTS, cpu=LASTS)], made)
        assert self.held[at], "a lease for each report"
        return took


def timed(make: Callable[[], Pool]) -> tuple[Pool, float]:
    """A pool, and the seconds that it took to fill it."""
    began = time.process_time()
    return make(), time.process_time() - began


def main() -> None:
    """Measure and print."""
    large, filled = timed(lambda: Pool(TASKS, PILOTS, True))
    bare, filled_bare = timed(lambda: Pool(TASKS, PILOTS, False))
    small, small_bare = (Pool(TASKS // SMALLER, PILOTS // SMALLER, readers) for readers in (True, False))
    gc.freeze()
    ones, others, plain, small_plain = in_turns(large.request, small.request, bare.request, small_bare.request)
    us = 1e6 * statistics.median(ones)
    size = f"{TASKS:,} tasks with an input each, {PILOTS:,} pilots with {TASKS // PILOTS} files each"
    report("data_request_us", us, "us", f"{size}; {1e6 * statistics.median(plain):.0f} us without inputs")
    growth = statistics.median(a / b for a, b in zip(ones, others, strict=True))
    without = statistics.median(a / b for a, b in zip(plain, small_plain, strict=True))
    note = f"over {TASKS // SMALLER:,} tasks and {PILOTS // SMALLER} pilots; {without:.2f} without inputs"
    report("data_request_growth", growth, "ratio", note)
    report("data_hit_ratio", large.hits / large.leased, "ratio", f"{large.leased:,} tasks, the input was on the host")
    report(
        "data_submit_ratio",
        filled / filled_bare,
        "ratio",
        "pilots joined and tasks accepted, over tasks without inputs",
    )


if __name__ == "__main__":
    main()
