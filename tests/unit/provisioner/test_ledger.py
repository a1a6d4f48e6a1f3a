"""The memory of a site: what was asked for, what it took, and how the site did."""

from __future__ import annotations

from pathlib import Path

from shoal.provision.backend import ENDED, QUEUED, RUNNING, Status
from shoal.provisioner.ledger import UNEXPLAINED, UNSEEN, Allocation, Ledger


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


def test_an_allocation_without_a_reason_is_unexplained_for_a_moment_only(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    ledger.put(Allocation("s-1", 1, 60.0, 100.0, id="7"))
    assert ledger.is_unexplained(103.0)
    assert not ledger.is_unexplained(100.0 + UNEXPLAINED), "it is asked about as seldom as all others"
    ledger.update([Status("7", "s-1", QUEUED, "Priority")], now=106.0)
    assert not ledger.is_unexplained(106.0)
    ledger.put(Allocation("s-2", 1, 60.0, 106.0))
    assert not ledger.is_unexplained(106.0), "its submission was interrupted: it may not be there"


def test_cores_of_all_hosts_are_reserved_and_then_settled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    ledger.put(Allocation("s-1", cores=8, seconds=3600.0, submitted=0.0, id="7", hosts=2))
    assert ledger.committed == 8 * 3600.0
    ledger.update([Status("7", "s-1", RUNNING)], now=100.0)
    ledger.update([Status("7", "s-1", ENDED)], now=200.0)
    assert (ledger.committed, ledger.used) == (1600.0, 1600.0), "nobody looked before: it may have begun at once"
    again = Ledger(tmp_path / "hpc.json")
    assert (again.used, again.allocations) == (1600.0, {})


def test_an_allocation_whose_pilots_were_released_is_not_held_against_the_site(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    for name, more in (("s-1", {"released": True}), ("s-2", {"cancelled": True}), ("s-3", {})):
        ledger.put(Allocation(name, 1, 60.0, 0.0, name, **more))  # type: ignore[arg-type]  # booleans all
        ledger.update([], now=10.0)
    assert (ledger.empty, ledger.empty_at) == (1, 10.0)


def test_who_reads_while_another_thread_changes_sees_one_moment(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    ledger.put(Allocation("s-1", 1, 60.0, 0.0))
    for _ in ledger.allocations.values():
        ledger.put(Allocation(f"s-{len(ledger.allocations) + 1}", 1, 60.0, 0.0))
        ledger.drop("s-1")
    assert list(ledger.allocations) == ["s-2"]


def test_waits_and_errors_outlive_the_process_and_a_removed_site_begins_anew(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    for wait in (5.0, 100.0, 20.0):
        ledger.note_wait(wait)
    for at in range(9):
        ledger.note_error(f"error {at % 7}", float(at))
    again = Ledger(tmp_path / "hpc.json")
    assert again.wait == 20.0
    assert again.errors == [(4.0, "error 4"), (5.0, "error 5"), (6.0, "error 6"), (7.0, "error 0"), (8.0, "error 1")]
    again.next = 4
    again.forget()
    assert (Ledger(tmp_path / "hpc.json").next, Ledger(tmp_path / "hpc.json").errors) == (4, [])


def test_what_ran_while_nobody_looked_is_counted_so_that_a_budget_is_never_crossed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    ledger.update([], 50.0)
    ledger.put(Allocation("s-1", 2, 3600.0, 100.0, "7"))
    ledger.update([Status("7", "s-1", QUEUED)], 130.0)
    ledger.update([], 20_000.0)  # the laptop slept: it may have run for all of its hour
    assert ledger.used == 2 * 3600.0
    ledger.put(Allocation("s-2", 2, 3600.0, 20_010.0, "8"))
    ledger.update([Status("8", "s-2", RUNNING)], 20_030.0)
    assert ledger.allocations["s-2"].started == 20_010.0, "no later than it did"
    ledger.put(Allocation("s-3", 1, 3600.0, 20_040.0))
    ledger.update([Status("8", "s-2", RUNNING)], 20_030.0 + 2 * UNSEEN)
    assert ledger.used == 2 * 3600.0, "one that no batch system ever knew took nothing"
    assert ledger.empty == 1


def test_an_unknown_allocation_reserves_the_most_that_it_may_have_and_a_lost_ledger_is_looked_after(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    assert not ledger.looked
    ledger.note_error("no answer", 10.0)
    assert not Ledger(tmp_path / "hpc.json").looked, "an error is no look"
    ledger.update([Status("9", "s-4", RUNNING)], 100.0, unknown=(8, 3600.0))
    assert ledger.committed == 8 * 3600.0
    assert Ledger(tmp_path / "hpc.json").looked == 100.0


def test_a_system_that_tells_ids_only_is_understood(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    ledger.put(Allocation("s-1", 1, 60.0, 0.0, "7"))
    started, ended = ledger.update([Status("7", "", RUNNING), Status("66", "", RUNNING)], 10.0)
    assert [one.name for one in started] == ["s-1"] and not ended
    assert list(ledger.allocations) == ["s-1"]


def test_a_pilot_that_was_killed_soon_after_it_came_is_not_taken_for_one_without_work(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "hpc.json")
    for number, lived in enumerate((2.0, 29.0, 61.0), 1):
        ledger.put(Allocation(f"s-{number}", 1, 3600.0, 100.0, str(number), RUNNING, started=100.0, pilots=1))
        ledger.update([], 100.0 + lived)
    assert ledger.empty == 1, "only the one that had a minute for it"
