"""Does everybody get what is due? The real engine, emulated pilots with 20 slots, a virtual clock [promise I13].

Prints the worst difference between used and due over all windows of max(10 min, 20 mean task times), Jain's index for
equal shares, and how long newcomers wait. Writes bench/out/shares.json, of which scripts/plot_shares.py makes the figure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.serving import report
from bench.simulated_shares import Owner, Result, Setting, jain, mixed_owners, simulate, worst_difference

COUNTS = (2, 5, 10, 20, 50)
KINDS = ("equal", "all")
SECONDS, LONGER = 2_400.0, 150.0  # at least, and for each owner
OUT = Path(__file__).parent / "out" / "shares.json"
SMOOTH = 24  # looks: two minutes
FIVE = {"ada": 1.0, "bea": 1.0, "cyd": 2.0, "dan": 3.0, "eve": 5.0}


def five_and_others() -> Setting:
    """A group of five with different shares beside three others; one of the five comes after twenty minutes."""
    owners = {
        name: Owner(share, "five", mean, 0.8, arrives=1_200.0 if name == "dan" else 0.0)
        for (name, share), mean in zip(FIVE.items(), (10.0, 60.0, 20.0, 30.0, 40.0), strict=True)
    }
    owners |= {f"other{at}": Owner(mean=mean, group="others") for at, mean in enumerate((15.0, 30.0, 90.0))}
    return Setting(owners, 3_600.0, shares={"five": 2.0, "others": 1.0})


def rows_of(result: Result) -> dict[str, Any]:
    """Used and due part of each of the five and of the others together, over two minutes back."""
    lines: dict[str, dict[str, list[float]]] = {name: {"used": [], "due": []} for name in (*FIVE, "others")}
    times = []
    for at in range(SMOOTH, len(result.samples), 4):
        first, last = result.samples[at - SMOOTH], result.samples[at]
        span = (last.time - first.time) * result.all_slots
        times.append(last.time)
        for kind in ("used", "due"):
            parts = {name: (getattr(last, kind)[name] - getattr(first, kind)[name]) / span for name in last.used}
            for name in FIVE:
                lines[name][kind].append(round(parts[name], 4))
            lines["others"][kind].append(round(sum(parts[name] for name in parts if name not in FIVE), 4))
    return {"seconds": times, "shares": FIVE, "lines": lines}


def main() -> None:
    """Measure, print and write."""
    worst_jain = 1.0
    beyond: list[float] = []
    for count in COUNTS:
        differences, waits = [], []
        for kind in KINDS:
            result = simulate(mixed_owners(count, kind, max(SECONDS, LONGER * count)))
            differences.append((worst_difference(result), result.width))
            waits.append(max(result.first.values()))
            if kind == "equal":
                worst_jain = min(worst_jain, jain(list(result.samples[-1].used.values())))
        off, width = max(differences)
        beyond += [difference - task for difference, task in differences]
        note = f"used - due, part of 20 slots; at most 0.05 + one task ({width:.3f}); newcomers waited for {max(waits)} slots"
        report(f"share_difference_{count}_owners", off, "part", note)
    report(
        "share_beyond_one_task", max(beyond), "part", "used - due - one task, the worst of all of these; at most 0.05"
    )
    report("share_jain", worst_jain, "index", "equal shares, 2 to 50 owners, task lengths 10 s to 120 s; at least 0.98")
    result = simulate(five_and_others())
    report("share_difference_group_of_five", worst_difference(result), "part", f"one task is {result.width:.3f}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(rows_of(result)), encoding="utf-8")


if __name__ == "__main__":
    main()
