"""The ledger of a site: nothing is forgotten, nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

from shoal.provision.backend import ENDED, QUEUED, RUNNING, Status
from shoal.provisioner.ledger import UNSEEN, Allocation, Ledger


def test_an_allocation_that_nobody_remembers_is_adopted_and_its_name_is_not_used_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    ledger.update([Status("812", "shoal-a1b2-hpc-7", RUNNING), Status("811", "shoal-a1b2-hpc-6", ENDED)], 100.0)
    assert ledger.allocations["shoal-a1b2-hpc-7"].id == "812"
    assert "shoal-a1b2-hpc-6" not in ledger.allocations, "it is over"
    assert ledger.next == 8
    assert Ledger(tmp_path / "hpc.json").next == 8, "on disk, too"


def test_a_submission_that_was_interrupted_is_found_by_its_name_or_given_up_after_a_while(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    for number in (1, 2):
        ledger.put(Allocation(f"shoal-a1b2-hpc-{number}", 1, 60.0, 100.0))
    started, ended = ledger.update([Status("7", "shoal-a1b2-hpc-1", QUEUED, "Priority")], 101.0)
    assert (started, ended) == ([], [])
    assert ledger.allocations["shoal-a1b2-hpc-1"].id == "7"
    assert ledger.committed == 120.0, "both may be there, so both are reserved"
    _, ended = ledger.update([Status("7", "shoal-a1b2-hpc-1", QUEUED)], 101.0 + UNSEEN)
    assert [one.name for one in ended] == ["shoal-a1b2-hpc-2"]
    assert ledger.committed == 60.0
