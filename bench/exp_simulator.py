"""How fast is the simulator, with the product's own engine and agents in it?

1,500 pilots of one slot and 10,000 tasks of 200 s, without beats that bring no news; then 1,000,000 tasks of 20 s on 1,000
pilots with all beats, in a process of its own so that its memory can be told. The large one runs once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from bench.serving import repetitions, report, report_median

CHILD = """
import json, resource, time
from shoal.sim.distributions import Constant
from shoal.sim.planning.description import Description, Pilots, Site
from shoal.sim.planning.workloads import Bag
from shoal.sim.planning.world import PlanningWorld
description = Description((Site(slots=1),), Pilots({pilots}), beats={beats})
began = time.perf_counter()
found = PlanningWorld(description, [Bag({tasks}, Constant({seconds}))], 1).run()
took = time.perf_counter() - began
assert found.succeeded == {tasks}, found.stuck
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([took, found.steps, memory, found.makespan]))
"""


def simulate(pilots: int, tasks: int, seconds: float, beats: bool) -> tuple[float, int, float, float]:
    """Simulate a bag in a process of its own: seconds it took, events, MB, virtual seconds."""
    text = CHILD.format(pilots=pilots, tasks=tasks, seconds=seconds, beats=beats)
    found = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, check=True, text=True)
    took, steps, memory, makespan = json.loads(found.stdout)
    return took, steps, memory, makespan


def main() -> None:
    """Measure both."""
    small = [simulate(1_500, 10_000, 200.0, beats=False) for _ in range(repetitions())]
    report_median("sim_1500x10k_s", [one[0] for one in small], "s", "beats without news skipped")
    report_median("sim_events_per_s", [one[1] / one[0] for one in small], "1/s", "of the same")
    began = time.perf_counter()
    took, steps, memory, makespan = simulate(1_000, 1_000_000, 20.0, beats=True)
    report("sim_1m_bag_s", took, "s", f"{steps:,} events, {makespan:,.0f} virtual seconds, beats kept")
    report("sim_1m_bag_mb", memory, "MB", f"{time.perf_counter() - began:.0f} s with its start")


if __name__ == "__main__":
    main()
