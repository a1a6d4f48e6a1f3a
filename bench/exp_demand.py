"""Does Shoal's own provisioning policy do at least as well as the papers' in random worlds?

    python -m bench.exp_demand [--worlds 3001-3050] [--again] [--write]

Worlds 1 to 30 were used for tuning; 1001 to 1004 showed defects of the policy that were mended; 2001 to 2015 were looked
at; 3001 to 3050 judge. Each policy runs in each world; where one costs less than 0.99 of what Shoal's own does, both run
again with other draws of the same world, and it wins if that is so beyond two standard errors of these repetitions. All
rows go to bench/out/demand.jsonl; `--write` puts the table into docs/explain/getting-machines.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence

from bench.figures import OUT, ROOT, put_between
from bench.provisioned_worlds import Result, World, draw_world, run_world
from bench.serving import percentile, report
from shoal.sched.demand import POLICIES

OWN = "shoal"
JUDGED = "3001-3050"
PAGE = ROOT / "docs" / "explain" / "getting-machines.md"
BEGIN, END = "<!-- policies: written by bench/exp_demand.py -->", "<!-- end of policies -->"
ROWS = OUT.with_name("demand.jsonl")
NOTICED = 0.99  # of the own policy's cost: below that it is looked at more closely
REPETITIONS = 4
ALIKE = 1.001  # times the least cost: as good as the best

Results = Mapping[str, Result]


def measure(world: World) -> dict[str, Result]:
    """What each policy makes of a world, with the same draws."""
    return {policy: run_world(world, policy, 0) for policy in POLICIES}


def wins(world: World, policy: str) -> bool:
    """True if a policy costs less than the own one in further repetitions of a world, beyond noise."""
    pairs = [(run_world(world, policy, at), run_world(world, OWN, at)) for at in range(1, REPETITIONS + 1)]
    gains = [math.log(own.cost / other.cost) for other, own in pairs]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return statistics.mean(gains) > max(2.0 * error, -math.log(NOTICED))


def ratios(rows: Sequence[Results], policy: str, field: str = "cost") -> list[float]:
    """The cost of a policy over the own one's, in each world that it brought to an end."""
    found = [getattr(row[policy], field) / getattr(row[OWN], field) for row in rows]
    return [value for value in found if math.isfinite(value)] or [math.inf]


def table(rows: Sequence[Results], won: Mapping[str, Sequence[int]]) -> str:
    """A line for each policy."""
    lines = [
        "| policy | mean cost over `shoal`'s | median (10 to 90 %) | mean makespan over | waste | as good as the best in | "
        "better than `shoal` beyond noise in | did not end in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for policy in POLICIES:
        costs, spans = ratios(rows, policy), ratios(rows, policy, "makespan")
        best = sum(row[policy].cost <= ALIKE * min(one.cost for one in row.values()) for row in rows)
        ended = [row[policy].waste for row in rows if math.isfinite(row[policy].cost)]
        cells = (
            f"`{policy}`", f"{statistics.mean(costs):.3f}",
            f"{statistics.median(costs):.3f} ({percentile(costs, 0.1):.3f} to {percentile(costs, 0.9):.3f})",
            f"{statistics.mean(spans):.3f}", f"{statistics.mean(ended or [0.0]):.1%}", str(best), str(len(won[policy])),
            str(len(rows) - len(ended)),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measure_all(first: int, last: int) -> None:
    """Run all worlds, and write a row for each."""
    ROWS.parent.mkdir(exist_ok=True)
    with ROWS.open("w", encoding="utf-8") as file:
        for number in range(first, last + 1):
            world = draw_world(number)
            row = measure(world)
            won = [p for p in POLICIES if row[p].cost < NOTICED * row[OWN].cost and wins(world, p)]
            results = {policy: found._asdict() for policy, found in row.items()}
            file.write(json.dumps({"world": number, "won": won, **results}) + "\n")
            file.flush()


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.exp_demand")
    parser.add_argument("--worlds", default=JUDGED, metavar="FIRST-LAST")
    parser.add_argument("--again", action="store_true", help="measure nothing: the table of the last run's rows")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    chosen = parser.parse_args()
    if not chosen.again:
        measure_all(*map(int, chosen.worlds.split("-")))
    lines = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    rows = [{policy: Result(**line[policy]) for policy in POLICIES} for line in lines]
    won = {policy: [line["world"] for line in lines if policy in line["won"]] for policy in POLICIES}
    for policy in POLICIES:
        if policy != OWN:
            note = f"{len(rows)} worlds; better than {OWN} beyond noise in {won[policy]}"
            report(
                f"demand_{policy.replace('-', '_')}", statistics.mean(ratios(rows, policy)), "cost over shoal's", note
            )
    print(found := table(rows, won))
    head = f"Worlds {lines[0]['world']} to {lines[-1]['world']}, by `python -m bench.exp_demand --write`:\n\n"
    return 0 if not chosen.write or put_between(PAGE, BEGIN, END, head + found) else 1


if __name__ == "__main__":
    sys.exit(main())
