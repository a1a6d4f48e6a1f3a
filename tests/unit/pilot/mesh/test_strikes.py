from __future__ import annotations

from shoal.dht.routing_table import Contact
from shoal.model.limits import MAX_STRIKES
from shoal.pilot.mesh.strikes import REST, Strikes

A, B, C = (Contact(id, f"h{id}:1") for id in (1, 2, 3))


def test_a_peer_that_gave_wrong_bytes_three_times_is_dropped_and_reported_once() -> None:
    strikes = Strikes()
    said = [strikes.note_wrong(A, f"sha256:{at}") for at in range(MAX_STRIKES + 2)]
    reported = [one for one in said if one is not None]
    assert len(reported) == 1
    assert said.index(reported[0]) == MAX_STRIKES - 1
    assert reported[0].peer == f"{1:064x}"
    assert "3 files with wrong bytes" in reported[0].why
    assert strikes.order([A, B], 0.0) == [B]


def test_who_failed_is_asked_last_for_a_while_and_longer_each_time() -> None:
    strikes = Strikes()
    strikes.note_failed(A, 0.0)
    assert strikes.order([A, B, C], 1.0) == [B, C, A]
    assert strikes.order([A, B], REST + 1.0) == [A, B]
    strikes.note_failed(A, 100.0)
    assert strikes.order([A, B], 100.0 + REST + 1.0) == [B, A]
    strikes.note_right(A)
    assert strikes.order([A, B], 101.0) == [A, B]


def test_who_lied_is_asked_after_those_that_only_failed() -> None:
    strikes = Strikes()
    strikes.note_wrong(A, "sha256:1")
    strikes.note_failed(B, 0.0)
    assert strikes.order([A, B, C], 1.0) == [C, B, A]
