"""Removal of finished runs: nothing else of the books changes."""

from __future__ import annotations

import pytest

from shoal.engine.commands import Remove
from shoal.model.errors import Conflict
from tests.unit.engine.stand import Stand, good


def finished(stand: Stand) -> int:
    """A run that is over, and ran on a pilot."""
    run = stand.submit({"array": "1-3", "command": ["x", "{i}"]})
    pilot = stand.pilot(cores=3)
    for lease in pilot.pull():
        pilot.run(lease.attempt)
        pilot.talk(good(lease.attempt))
    stand.bury(pilot)  # it takes nothing of the next
    return run


def test_a_removed_run_is_gone_with_its_rows_and_its_number_is_not_used_again() -> None:
    stand = Stand()
    run = finished(stand)
    spent = sum(account.useful for account in stand.accounts)
    assert stand.do(Remove((run,))).result == {"runs": 1, "tasks": 3}
    stand.commit()
    while stand.database.drop_tasks(run, 2):
        pass
    tables = ("runs", "arrays", "tasks", "spans")
    assert [stand.database.connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables] == [0] * 4
    assert stand.database.connection.execute("SELECT sum(useful) FROM acct").fetchone()[0] == spent > 0
    assert [event.run for event in stand.events("run_removed")] == [run]
    seqs = [seq for (seq,) in stand.database.connection.execute("SELECT seq FROM events ORDER BY seq")]
    assert seqs == list(range(1, len(seqs) + 1)), "the journal has no gap"
    stand.restart()
    assert stand.submit({}) == run + 1
    assert stand.sound()


def test_rows_that_a_crash_left_of_a_removed_run_are_found_and_deleted() -> None:
    stand = Stand()
    run, other = finished(stand), finished(stand)
    stand.do(Remove((run,)))
    stand.commit()
    stand.restart()
    while stand.database.drop_tasks(limit=2):
        pass
    assert {row for (row,) in stand.database.connection.execute("SELECT run FROM tasks")} == {other}


def test_a_run_that_is_not_over_stays_and_so_do_those_named_with_it() -> None:
    stand = Stand()
    done, open_ = finished(stand), stand.submit({"array": "1-2"})
    with pytest.raises(Conflict, match=f"r{open_} is not over: 2 tasks to go .`shoal cancel r{open_}` ends it"):
        stand.do(Remove((done, open_)))
    assert done in stand.engine.state.runs


def test_a_run_whose_exclusive_task_is_still_being_stopped_stays() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    stand.pilot().work()
    stand.cancel(run)
    with pytest.raises(Conflict, match="still being stopped"):
        stand.do(Remove((run,)))


def test_a_late_report_on_a_removed_run_is_unknown() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.cancel(run)
    stand.do(Remove((run,)))
    assert pilot.verdict(good(attempt)) == "unknown"
    assert stand.sound()
