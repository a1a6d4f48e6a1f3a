"""How long does a plan of 300 kinds of tasks on 30 sites take, and what does the heuristic lose that needs no scipy? [SPHINX S5]

Sites have cores, some may bring more after a while; kinds read data that is at some of the sites and run at half of them or
more. Process time, since the plan is made on a thread beside the server's loop; scipy is loaded before.
"""

from __future__ import annotations

import statistics
import time
from random import Random

from bench.serving import report
from shoal.sched.placement.question import Kind, Place, Question, round_robin
from shoal.sched.vector.placement import GREEDY, HIGHS, completion_time, plan, value_of

KINDS, SITES, ROUNDS = 300, 30, 7


def question(seed: int) -> Question:
    """A pool that is drawn anew with each seed."""
    rng = Random(seed)
    names = [f"site{at}" for at in range(SITES)]
    places = [
        Place(
            name, rng.choice([16, 64, 256]), rng.uniform(0.0, 600.0), rng.choice([0, 64, 512]), rng.uniform(60.0, 3600.0),
            rng.uniform(0.5, 2.0), rng.uniform(1e6, 1e8), 0.1, rng.uniform(0.0, 0.2),
        )
        for name in names
    ]  # fmt: skip
    kinds = [
        Kind(
            at, rng.randint(1, 2000), rng.choice([1, 1, 1, 4, 8]), rng.lognormvariate(5.0, 1.0),
            {name: rng.choice([0.0, 0.0, 1e8, 1e9]) for name in names},
            frozenset(rng.sample(names, rng.randint(SITES // 2, SITES))),
        )
        for at in range(KINDS)
    ]  # fmt: skip
    return Question(kinds, places)


def main() -> None:
    """Both ways in turns, on questions of their own."""
    plan(question(0), completion_time, HIGHS)
    times: dict[str, list[float]] = {HIGHS: [], GREEDY: []}
    lost, turns = [], []
    for seed in range(1, ROUNDS + 1):
        asked, values = question(seed), {}
        for solver, found in times.items():
            began = time.process_time()
            made = plan(asked, completion_time, solver)
            found.append(1e3 * (time.process_time() - began))
            values[solver] = value_of(asked, completion_time, made)
        lost.append(values[GREEDY] / values[HIGHS] - 1.0)
        turns.append(value_of(asked, completion_time, round_robin(asked)) / values[HIGHS])
    what = f"{KINDS} kinds x {SITES} sites, completion time, process time"
    report("plan_300x30_ms", statistics.median(times[HIGHS]), "ms", f"{what}, HiGHS")
    report("plan_greedy_300x30_ms", statistics.median(times[GREEDY]), "ms", f"{what}, without scipy")
    report("plan_greedy_gap", statistics.median(lost), "", "what the heuristic ends later than the program, as a part")
    report("plan_round_robin_x", statistics.median(turns), "x", "end of round robin over that of the program")


if __name__ == "__main__":
    main()
