"""Which pilot the server wants us to be, and how often we try."""

from __future__ import annotations

import pytest

from shoal.pilot.agent.events import Fetched
from shoal.pilot.agent.renewal import RETRY, Renewal

A, B = "a" * 64, "b" * 64


def test_what_is_wanted_is_fetched_once() -> None:
    renewal = Renewal()
    assert renewal.fetch(0.0) == ""
    renewal.order(A)
    renewal.order(A)
    assert [renewal.fetch(0.0), renewal.fetch(0.0)] == [A, ""]
    renewal.take(Fetched(A, True), 1.0)
    assert renewal.ready == A
    assert renewal.fetch(2.0) == ""


def test_what_did_not_come_is_asked_for_again_after_a_while() -> None:
    renewal = Renewal()
    renewal.order(A)
    renewal.fetch(0.0)
    assert renewal.deadline() is None
    renewal.take(Fetched(A, None), 5.0)
    assert renewal.deadline() == 5.0 + RETRY
    assert renewal.fetch(5.0 + RETRY - 0.1) == ""
    assert renewal.fetch(5.0 + RETRY) == A


def test_what_is_something_else_is_never_asked_for_again() -> None:
    renewal = Renewal()
    renewal.order(A)
    renewal.fetch(0.0)
    renewal.take(Fetched(A, False), 0.0)
    renewal.order(A)
    assert (renewal.fetch(1e9), renewal.ready) == ("", "")


def test_a_newer_wish_replaces_an_older_one() -> None:
    renewal = Renewal()
    renewal.order(A)
    renewal.fetch(0.0)
    renewal.order(B)
    renewal.take(Fetched(A, True), 1.0)
    assert renewal.ready == ""
    assert renewal.fetch(1.0) == B


@pytest.mark.parametrize("digest", ["", "x", "A" * 64, "a" * 63, "../" * 21 + "a"])
def test_what_is_no_digest_is_no_order(digest: str) -> None:
    renewal = Renewal()
    renewal.order(digest)
    assert renewal.fetch(0.0) == ""
