"""The places where a file is looked for: their order, their time, and what becomes of one that fails."""

from __future__ import annotations

import pytest

from shoal.data.sources import (
    DEMOTED,
    HOST,
    LEAST_RATE,
    MOST_DEMOTED,
    ORIGIN,
    PEER,
    SERVER,
    STORAGE,
    TIMEOUTS,
    Place,
    Places,
    Rule,
    parse_rule,
    places_of,
)

ALL = [Place(kind, kind) for kind in (ORIGIN, SERVER, STORAGE, PEER, HOST)]


def test_nearer_places_come_first() -> None:
    assert [ALL[at].kind for at in Places().order(ALL, 0.0)] == [HOST, PEER, STORAGE, SERVER, ORIGIN]


def test_a_place_that_failed_is_tried_last_for_a_while_that_grows() -> None:
    places, peer = Places(), Place(PEER, "p1")
    places.failed(peer, "d", "it lied", 0.0)
    assert [ALL[at].kind for at in places.order([*ALL], 1.0)][1] == PEER, "another peer is not to blame"
    assert places.order([peer, Place(SERVER, "s")], 1.0) == [1, 0]
    assert places.order([peer, Place(SERVER, "s")], DEMOTED) == [0, 1]
    places.failed(peer, "d", "it lied", DEMOTED)
    assert places.is_demoted(peer, 2.9 * DEMOTED) and not places.is_demoted(peer, 3 * DEMOTED)
    for _ in range(20):
        places.failed(peer, "d", "it lied", 0.0)
    assert not places.is_demoted(peer, MOST_DEMOTED)
    places.succeeded(peer)
    places.failed(peer, "d", "again", 0.0)
    assert not places.is_demoted(peer, DEMOTED), "what it did before a success is forgotten"


def test_failures_are_taken_once_to_be_reported() -> None:
    places = Places()
    places.failed(ALL[0], "sha256:1", "it stalled", 3.0)
    assert [(one.place, one.digest, one.why, one.at) for one in places.take_failures()] == [
        (ALL[0], "sha256:1", "it stalled", 3.0)
    ]
    assert places.take_failures() == []


def test_the_time_of_a_place_grows_with_the_file_and_the_last_one_has_no_end() -> None:
    places, size = Places(), int(10 * LEAST_RATE)
    assert places.deadline(Place(PEER, "p"), size, 5.0, is_last=False) == 5.0 + TIMEOUTS[PEER] + 10.0
    assert places.deadline(Place(PEER, "p"), size, 5.0, is_last=True) == float("inf")
    assert places.deadline(Place(SERVER, "s"), size, 5.0, is_last=False) == float("inf")


def test_names_lead_to_places_of_the_site_by_the_longest_prefix() -> None:
    rules = [Rule("", "/store/"), Rule("data/", "https://se.example.org/data/")]
    assert places_of("data/a.root", rules) == ["https://se.example.org/data/a.root", "/store/data/a.root"]
    assert places_of("b", rules) == ["/store/b"]
    assert places_of("b", []) == []


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "", "a/./b", "a\0b"])
def test_a_name_that_leads_out_has_no_place(name: str) -> None:
    assert places_of(name, [Rule("", "/store/")]) == []


def test_rules_are_read_from_text() -> None:
    assert parse_rule("data/=/lustre/data/") == Rule("data/", "/lustre/data/")
    assert parse_rule("=https://se.example.org/x?y=1") == Rule("", "https://se.example.org/x?y=1")
    for wrong in ("data", "data/=", "data/=relative", "x=ftp://old"):
        with pytest.raises(ValueError, match=r"."):
            parse_rule(wrong)
