"""What a run of measure.py wrote: the values of each figure by round, and why others are missing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure
from bench.provenance import Provenance

# A call of Shoal against the better of the two that answer soonest, in the same round.
ROUND_TRIP = Figure(
    "roundtrip_vs_best_peer",
    "round trip p50 of a call through Shoal over the smaller of Ray's and Parsl's, round by round",
    "<= 1.2, stretch 0.8",
)
DISTURBED = 0.2  # cores used by others from which on a note mentions it


@dataclass
class Results:
    """All lines of a run."""

    provenance: Provenance
    rounds: int
    limit: float
    scale: float = 1.0
    seconds: float | None = None  # None: it was broken off
    values: dict[str, dict[int, float]] = field(default_factory=dict)  # by name and round
    units: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # by system and measure
    versions: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> list[float]:
        """The values of a figure, round by round."""
        return list(self.values.get(name, {}).values())

    def note(self, name: str) -> str:
        """How many of what, and whether others disturbed."""
        others = self.others.get(name, 0.0)
        parts = (self.notes.get(name, ""), f"others used up to {others:.1f} cores" if others >= DISTURBED else "")
        return "; ".join(part for part in parts if part)

    def ratios(self, upper: str, lower: Iterable[str]) -> list[float]:
        """A figure over the smallest of others, in each round that has all of them."""
        uppers, lowers = self.values.get(upper, {}), [self.values.get(name, {}) for name in lower]
        complete = [number for number in uppers if all(number in some for some in lowers)]
        return [uppers[number] / min(some[number] for some in lowers) for number in complete]

    def round_trip_ratios(self) -> list[float]:
        """Of Shoal over the better of Ray and Parsl."""
        return self.ratios("shoal.round_trip_p50_ms", ("ray.round_trip_p50_ms", "parsl.round_trip_p50_ms"))


def read(path: Path) -> Results:
    """The lines of a run that is over, or was broken off."""
    first, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    results = Results(Provenance(**first["provenance"]), first["rounds"], first["limit"], first["scale"])
    for line in lines:
        if "seconds" in line:
            results.seconds = line["seconds"]
            continue
        name = line["name"]
        if name.endswith(".version"):
            results.versions[name.removesuffix(".version")] = line["note"]
        elif line["value"] is None:
            results.problems[name] = line["note"]
        else:
            results.values.setdefault(name, {})[line["round"]] = line["value"]
            results.units[name], results.notes[name] = line["unit"], line["note"]
            results.others[name] = max(results.others.get(name, 0.0), line.get("others", 0.0))
    return results
