"""Kills and freezes of everything, in a random order from a seed, with the payloads' own ledger as the truth.

Lost, doubled, overlapping, left behind: each must be 0. SHOAL_PROVE=1 does more than 300 deeds; the table in
docs/promises.md is this test's last line.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from shoal.model.limits import POISON_LOSSES
from tests.integration.cluster import Cluster, PilotProcess, is_dead

PROVE = os.environ.get("SHOAL_PROVE") == "1"
pytestmark = [pytest.mark.integration, pytest.mark.timeout(3_000 if PROVE else 300)]
DEEDS = 320 if PROVE else 8
PILOTS = 3
PLAIN = ("--no-pid-namespace", "--no-cgroup")  # as on a host that permits neither
CORES = 2
TIMING = {"beat": 0.5, "suspect": 1.0, "lease": 3.0, "hold": 6.0, "margin": 1.0, "quarantine": 3.0, "grace": 1.0}


@dataclass
class Chaos:
    """One cluster under attack."""

    cluster: Cluster
    rng: random.Random
    options: tuple[str, ...] = ()  # of its pilots
    deeds: Counter[str] = field(default_factory=Counter)
    runs: dict[int, list[str]] = field(default_factory=dict)  # run -> the re-run class of each element

    # --- work
    def submit(self) -> None:
        """A few tasks of every re-run class, from some milliseconds to two seconds."""
        classes = [self.rng.choice(["safe", "safe", "exclusive", "never"]) for _ in range(6)]
        waits = [self.rng.choice([0.01, 0.1, 0.5, 2.0]) for _ in classes]
        tasks = [self.cluster.telling(wait, rerun=rerun) for wait, rerun in zip(waits, classes, strict=True)]
        self.runs[self.cluster.submit(*tasks, key=f"k{len(self.runs)}")] = classes

    # --- deeds
    def deed(self) -> None:
        """Do one thing to one of them, and have everybody back."""
        deeds = [
            self.kill_server, self.freeze_server, self.kill_pilot, self.kill_guard, self.kill_both, self.kill_group,
            self.freeze_pilot, self.freeze_guard,
        ]  # fmt: skip
        # Every kind comes once before any comes twice, so that a short run meets them all.
        least = min(self.deeds[deed.__name__] for deed in deeds)
        deed = self.rng.choice([deed for deed in deeds if self.deeds[deed.__name__] == least])
        self.deeds[deed.__name__] += 1
        deed()
        while len(self.living()) < PILOTS:
            self.cluster.start_pilot(CORES, *self.options)

    def living(self) -> list[PilotProcess]:
        return [pilot for pilot in self.cluster.pilots if pilot.is_alive]

    def kill_server(self) -> None:
        self.cluster.kill_server()
        time.sleep(self.rng.choice([0.0, 0.3, 4.0]))
        self.cluster.start_server()

    def freeze_server(self) -> None:
        pid = self.cluster.server_pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.rng.choice([0.2, 2.0, 8.0]))
        os.kill(pid, signal.SIGCONT)

    def kill_pilot(self) -> None:
        self.pick().kill()

    def kill_guard(self) -> None:
        pilot = self.pick()
        with contextlib.suppress(StopIteration):
            os.kill(pilot.guard, signal.SIGKILL)
            pilot.process.wait(60.0)

    def kill_both(self) -> None:
        pilot = self.pick()
        with contextlib.suppress(StopIteration):
            guard = pilot.guard
            os.kill(pilot.pid, signal.SIGSTOP)  # neither may see the other die
            os.kill(guard, signal.SIGSTOP)
            os.kill(guard, signal.SIGKILL)
        pilot.kill()

    def kill_group(self) -> None:
        self.pick().kill_group()

    def freeze_pilot(self) -> None:
        pilot = self.pick()
        pilot.stop()
        time.sleep(self.rng.choice([0.2, 2.0, 9.0]))
        pilot.cont()

    def freeze_guard(self) -> None:
        pilot = self.pick()
        with contextlib.suppress(StopIteration):
            guard = pilot.guard
            os.kill(guard, signal.SIGSTOP)
            time.sleep(self.rng.choice([0.2, 2.0]))
            os.kill(guard, signal.SIGCONT)

    def pick(self) -> PilotProcess:
        return self.rng.choice(self.living())

    # --- the account
    def account(self) -> dict[str, list[str]]:
        """What went wrong, by kind; each list must be empty."""
        lost: list[str] = []
        failed: list[str] = []
        doubled: list[str] = []
        for run, classes in self.runs.items():
            rows = {row["element"]: row for row in self.cluster.rows(run)}
            finals = Counter(event["task"] for event in self.cluster.events("task_finished", run=run))
            for element, rerun in enumerate(classes, 1):
                name, state = f"r{run}.{element}", rows.get(element, {}).get("state", "")
                started = self.cluster.lives(name)
                row = rows.get(element, {})
                if row.get("cause") == "poison" and row["losses"] >= POISON_LOSSES:
                    continue  # chance killed three pilots under it, and nobody can know that it was chance
                if state not in ("succeeded", "lost") or (state == "lost" and rerun != "never"):
                    (failed if state == "failed" else lost).append(f"{name} {rerun} {row}")
                if finals[element] != 1 or (rerun == "never" and len(started) > 1):
                    doubled.append(f"{name} {rerun}: {finals[element]} ends, {started}")
        exclusive = {f"r{run}.{e}" for run, cs in self.runs.items() for e, c in enumerate(cs, 1) if c != "safe"}
        overlapping = [str(life) for life in self.cluster.lives() if life.task in exclusive and not life.alone]
        return {"lost": lost, "failed": failed, "doubled": doubled, "overlapping": overlapping}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4) if PROVE else range(1))
@pytest.mark.parametrize("options", [(), PLAIN] if PROVE else [()], ids=["as permitted", "plain"][: 1 + PROVE])
def test_kills_and_freezes_of_everything_lose_double_overlap_and_leave_nothing(
    cluster: Cluster, seed: int, options: tuple[str, ...]
) -> None:
    cluster.timing = dict(TIMING)
    cluster.start_server()
    chaos = Chaos(cluster, random.Random(seed), options=options)
    for _ in range(PILOTS):
        cluster.start_pilot(CORES, *options)
    for _ in range(DEEDS // 8 if PROVE else DEEDS):
        chaos.submit()
        chaos.deed()
    for run in chaos.runs:
        cluster.wait_run(run, 120)
    wrong = chaos.account()
    for pilot in chaos.living():
        pilot.process.terminate()
    cluster.until(lambda: not chaos.living(), "the pilots end")
    payloads = {life.pid for life in cluster.lives()}
    wrong["left behind"] = [str(pid) for pid in payloads if not is_dead(pid)]
    wrong["left behind"] += [str(path) for path in cluster.work.glob("*/*") if path.is_dir() and any(path.iterdir())]
    tasks = sum(map(len, chaos.runs.values()))
    counts = {kind: len(found) for kind, found in wrong.items()}
    deeds = f"{sum(chaos.deeds.values())} kills and freezes {dict(chaos.deeds)}"
    print(f"\nseed {seed} {' '.join(options)}: {tasks} tasks, {counts}, {deeds}")
    assert not any(wrong.values()), "\n".join(f"{kind}: {line}" for kind, lines in wrong.items() for line in lines[:5])
