"""Files of a run, published and looked up by peers."""

from __future__ import annotations

from shoal.sim.papers.lbo.table_replay import FileEvent, Lookups, replay

PILOTS = [(number, number // 6) for number in range(12)]


def test_a_file_is_found_by_peers_of_its_site_after_it_was_published() -> None:
    events = [
        FileEvent(1.0, 0, 0, 7, False),
        FileEvent(5.0, 0, 3, 7, True),  # found
        FileEvent(6.0, 1, 8, 7, True),  # of another site
        FileEvent(7.0, 0, 3, 8, True),  # nobody has it
    ]
    assert replay(events, PILOTS, 1) == Lookups(3, 1)


def test_nothing_to_look_for_is_nothing_missed() -> None:
    assert replay([FileEvent(1.0, 0, 0, 7, False)], PILOTS, 1).ratio == 1.0
