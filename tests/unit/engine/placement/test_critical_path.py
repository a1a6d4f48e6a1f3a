"""Of ready tasks of a workflow those go first that the longest way hangs on [SPHINX S5]."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.stand import Stand, good


def table(name: str, after: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": [name], "cores": 1, "after": after or [], **more}


def order_of(stand: Stand) -> list[str]:
    """Work through everything on one core; names in the order of their starts."""
    pilot, found = stand.pilot(cores=1), []
    leases = pilot.pull()
    while leases:
        found += [lease.command[0] for lease in leases]
        leases = [lease for one in leases for lease in pilot.talk(good(one.attempt, duration=60.0)).leases]
    assert stand.sound()
    return found


def test_the_longest_way_goes_first_by_the_number_of_tasks() -> None:
    stand = Stand()
    stand.submit(table("short"), table("a"), table("b", ["a"]), table("c", ["b"]), table("end", ["short", "c"]))
    assert order_of(stand) == ["a", "b", "short", "c", "end"], "behind short and c is as much"


def test_stated_durations_count() -> None:
    stand = Stand()
    stand.submit(
        table("two", time=60),
        table("three", ["two"], time=60),
        table("long", time=600),
        table("end", ["three", "long"], time=60),
    )
    assert order_of(stand)[0] == "long"


def test_what_was_learned_counts_for_later_runs() -> None:
    stand = Stand()
    stand.submit(table("long"))
    pilot = stand.pilot(cores=1)
    (lease,) = pilot.pull()
    pilot.talk(good(lease.attempt, duration=500.0))
    stand.submit(table("one"), table("two", ["one"]), table("long"), table("end", ["two", "long"]))
    assert [lease.command[0] for lease in pilot.took() or pilot.pull()] == ["long"]


def test_priority_and_the_order_of_runs_stay_before_it() -> None:
    stand = Stand()
    stand.submit(table("first"))
    stand.submit(table("a"), table("b", ["a"]), table("urgent", priority=5))
    assert order_of(stand) == ["urgent", "first", "a", "b"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=2, max_size=12))
def test_each_start_is_of_the_ready_task_with_the_longest_way(edges: list[list[int]]) -> None:
    after = [sorted({parent % at for parent in of}) if at else [] for at, of in enumerate(edges)]
    ways = [1.0] * len(after)
    for at in range(len(after) - 1, -1, -1):
        ways[at] = 1.0 + max((ways[child] for child, of in enumerate(after) if at in of), default=-0.0)
    if not any(after):
        ways = [0.0] * len(after)
    stand = Stand()
    # All are of one class: whatever is learned of it, the way is the number of tasks.
    stand.submit(
        *[{**table(f"v{at}", [f"v{one}" for one in of]), "command": ["true", f"v{at}"]} for at, of in enumerate(after)]
    )
    pilot, done = stand.pilot(cores=1), set[int]()
    leases = pilot.pull()
    while leases:
        (lease,) = leases
        at = int(lease.command[1][1:])
        ready = [one for one, of in enumerate(after) if one not in done and done.issuperset(of)]
        assert ways[at] == max(ways[one] for one in ready), (at, ready, ways)
        done.add(at)
        leases = pilot.talk(good(lease.attempt, duration=600.0)).leases
    assert len(done) == len(after) and stand.sound()
