"""Run simulated worlds from the command line: `python -m shoal.sim --seed 7`, or `--seeds 0-199`."""

from __future__ import annotations

import argparse
import re
import sys

from shoal.sim.proof.faults import Tally
from shoal.sim.proof.ledger import BrokenPromise
from shoal.sim.proof.world import World


def main() -> int:
    """Run the worlds that the options name; 1 if any broke a promise."""
    parser = argparse.ArgumentParser(
        prog="shoal.sim", description="Simulate worlds with faults and check every promise."
    )
    parser.add_argument("--seed", type=int, help="one world, with its trace")
    parser.add_argument("--seeds", default="0-19", help="a range of worlds, e.g. 0-199")
    options = parser.parse_args()
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", options.seeds)
    seeds = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    if not seeds:
        parser.error(f"--seeds {options.seeds!r} is no range (write for example 0-199)")
    tally, broken = Tally(), 0
    for seed in seeds:
        world = World(seed)
        try:
            digest = world.run()
        except BrokenPromise as error:
            broken += 1
            print(error, file=sys.stderr)
            continue
        tally.update(world.tally)
        if options.seed is not None:
            print("\n".join(world.trace))
        print(f"seed {seed}: {world.steps} steps, {digest[:16]}")
    print(f"{len(seeds)} worlds, {broken} broken, faults: {dict(sorted(tally.items()))}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
