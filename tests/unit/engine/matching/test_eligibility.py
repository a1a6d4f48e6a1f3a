"""What a pilot can run, kept between its requests: however much of it is kept, it gets what it would get without."""

from __future__ import annotations

import pytest

from shoal.engine.matching import eligibility
from shoal.engine.matching.eligibility import eligibility_of
from shoal.wire.messages import Lease
from tests.unit.engine.stand import OWNER, Stand, good

MANY = 250  # classes, so that numpy is asked and memories of what did not fit are kept


def ranked(number: int, **more: object) -> dict[str, object]:
    """A task in a class of its own; the greater the number, the better it suits."""
    require = f"memory_mb >= {number} and has(cores)"
    return {"command": ["true", str(number)], "require": require, "rank": f"{number} + load", **more}


def numbers(leases: list[Lease]) -> list[int]:
    """Which of these tasks they are."""
    return [int(lease.command[1]) for lease in leases]


def test_a_menu_made_with_numpy_is_the_one_made_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()
    tasks = [ranked(n * 40) for n in range(MANY)] + [{"require": "my.x == 1"}, {"cores": 3}, {"priority": 2.0}]
    stand.submit(*tasks)
    state, pilot = stand.engine.state, stand.pilot(2, tags={"load": 1.5})
    line, known = state.queue.owners[OWNER], state.pilots[pilot.name]
    known.eligibilities.clear()
    by_numpy = eligibility_of(state, known, OWNER)
    assert line.class_filter is not None
    monkeypatch.setattr(eligibility, "MANY", 10_000)
    known.eligibilities.clear()
    one_by_one = eligibility_of(state, known, OWNER)
    assert by_numpy.ranked == one_by_one.ranked
    assert by_numpy.fits == one_by_one.fits
    assert 0 < len(by_numpy.ranked) < MANY


def test_classes_that_were_through_are_found_again_in_their_place_when_they_have_work() -> None:
    stand = Stand()
    stand.submit(*[ranked(n) for n in range(MANY)])
    pilot = stand.pilot(1, tags={"load": 0.0})
    leases = pilot.pull()
    seen = numbers(leases)
    for _ in range(150):
        leases = pilot.talk(good(leases[0].attempt, duration=60.0)).leases
        seen += numbers(leases)
    assert seen == list(range(MANY - 1, MANY - 152, -1)), "the best first"
    stand.submit(ranked(240), ranked(3))
    again: list[int] = []
    for _ in range(3):
        leases = pilot.talk(good(leases[0].attempt, duration=60.0)).leases
        again += numbers(leases)
    assert again == [240, MANY - 152, MANY - 153]
    assert stand.sound()


def test_that_nothing_fitted_is_forgotten_when_something_new_comes_or_more_is_free() -> None:
    stand = Stand()
    stand.submit(*[ranked(n, cores=3) for n in range(MANY)])
    pilot = stand.pilot(4, tags={"load": 0.0})
    first = pilot.pull()
    assert numbers(first) == [MANY - 1], "one core is left"
    assert stand.engine.state.pilots[pilot.name].eligibilities[OWNER].tight is not None
    assert pilot.pull() == []
    stand.submit(ranked(7))
    assert numbers(pilot.took()) == [7], "it is small enough"
    assert numbers(pilot.talk(good(first[0].attempt, duration=60.0)).leases) == [MANY - 2], "three are free again"
    assert stand.sound()


def test_another_organisations_server_gets_commands_that_may_run_again_and_name_its_site() -> None:
    """[SPHINX S9; ADR 0060]"""
    stand = Stand()
    stand.submit({"command": ["plain"]}, {"command": ["named"], "site": "lab,local"})
    stand.submit({"command": ["once"], "site": "lab", "rerun": "never"})
    pilot = stand.pilot(8, site="lab", tags={"bridge": True})
    assert [lease.command for lease in pilot.pull()] == [["named"]]
    assert "name its site" in stand.why(1, 1).text
