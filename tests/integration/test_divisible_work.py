"""Divisible work from outside: real server, pilots and payloads; every unit is done once, whoever is killed [ADR 0043]."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
UNITS = 300
# Writes down the units that it has done, in one write, at its very end.
PIECE = (
    'sleep $(echo "{count} 0.01" | awk "{{{{print \\$1 * \\$2}}}}"); echo "{first} {count} $SHOAL_ATTEMPT" >> {book}'
)


def divisible(book: Path) -> Json:
    """Divisible work that keeps a book of its own."""
    return {"name": "work", "shell": PIECE.replace("{book}", str(book)), "units": UNITS}


def done_units(book: Path) -> list[int]:
    """Every unit as often as it was done, in order."""
    lines = [line.split() for line in book.read_text(encoding="utf-8").splitlines()]
    return sorted(unit for first, count, _ in lines for unit in range(int(first), int(first) + int(count)))


def test_every_unit_is_done_once_though_server_and_pilot_are_killed(cluster: Cluster) -> None:
    cluster.start_server()
    first, _ = cluster.start_pilot(1), cluster.start_pilot(1)
    book = cluster.cwd / "book"
    run = cluster.submit(divisible(book), {"name": "merge", "command": ["true"], "after": ["work"]})
    cluster.wait_succeeded(run, 4)
    cluster.kill_server()
    cluster.start_server()
    before = cluster.succeeded(run)
    cluster.wait_succeeded(run, before + 2)

    def runs_of_first() -> bool:
        return any(row["state"] == "running" and row["pilot"] == first.name for row in cluster.rows(run))

    cluster.until(runs_of_first, "the pilot runs a piece")
    first.kill()  # its guard ends the piece before that writes its line
    cluster.start_pilot(1)
    counts = cluster.wait_run(run, 60.0)
    assert (counts["units"], counts["units_done"]) == (UNITS, UNITS) and set(counts) <= {
        "succeeded", "units", "units_done", "live",
    }  # fmt: skip
    assert done_units(book) == list(range(UNITS)), "by the payloads' own book"
    row = cluster.run_row(run)
    parts = [array["task"]["units"] for array in row["arrays"] if array["name"] == "work"]
    assert all(part["cut"] for part in parts) and sum(part["count"] for part in parts) == UNITS
    assert len(parts) == row["total"] - 1 > 6
