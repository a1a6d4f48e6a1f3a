from __future__ import annotations

from shoal.model.limits import FETCHED_KEPT, MAX_FETCHERS
from shoal.server.blobs.fetchers import CLAIM, SLOWEST, Fetchers, Known

KEY = ("uni", "anna", "sha256:1")
MEGA = 1 << 20


def alive(name: str) -> bool:
    return True


def test_of_many_that_ask_at_once_one_fetches_and_the_others_wait_for_it() -> None:
    fetchers = Fetchers()
    assert fetchers.ask(KEY, "p1", MEGA, 0.0, alive) == Known([], False)
    assert fetchers.ask(KEY, "p2", MEGA, 0.1, alive) == Known(["p1"], True)
    assert fetchers.ask(KEY, "p1", MEGA, 0.2, alive) == Known([], False), "it does not wait for itself"
    assert fetchers.ask(("uni", "bob", KEY[2]), "p3", MEGA, 0.2, alive) == Known([], False), "another mesh"


def test_nobody_waits_for_long_for_one_that_does_not_get_on() -> None:
    fetchers = Fetchers()
    size = 80 * MEGA
    fetchers.ask(KEY, "p1", size, 0.0, alive)
    due = CLAIM + size / SLOWEST
    assert fetchers.ask(KEY, "p2", size, due - 0.1, alive).wait
    assert fetchers.ask(KEY, "p2", size, due + 0.1, alive) == Known(["p1"], False), "the second fetches it now"
    assert fetchers.ask(KEY, "p3", size, due + 0.2, alive) == Known(["p2", "p1"], True)


def test_dead_pilots_are_forgotten() -> None:
    fetchers = Fetchers()
    fetchers.ask(KEY, "p1", MEGA, 0.0, alive)
    assert fetchers.ask(KEY, "p2", MEGA, 0.1, lambda name: name != "p1") == Known([], False)


def test_who_cannot_serve_waits_for_others_and_is_waited_for_by_nobody() -> None:
    fetchers = Fetchers()
    assert fetchers.ask(KEY, "p1", MEGA, 0.0, alive, may_serve=False) == Known([], False)
    assert fetchers.ask(KEY, "p2", MEGA, 0.1, alive) == Known([], False)
    assert fetchers.ask(KEY, "p1", MEGA, 0.2, alive, may_serve=False) == Known(["p2"], True)


def test_what_is_remembered_is_bounded() -> None:
    fetchers = Fetchers()
    known = [fetchers.ask(KEY, f"p{at}", 0, at * 2 * CLAIM, alive) for at in range(MAX_FETCHERS + 5)]
    assert len(known[-1].pilots) == MAX_FETCHERS
    for at in range(FETCHED_KEPT):
        fetchers.ask(("uni", "anna", f"sha256:x{at}"), "p1", 0, 0.0, alive)
    assert fetchers.ask(KEY, "q", 0, 1e9, alive) == Known([], False), "the oldest went"
