"""Senders whose requests meet defects: shut out for a growing time, unless everybody meets them."""

from __future__ import annotations

import pytest

from shoal.model.credentials import ENROL
from shoal.model.errors import TooBusy
from shoal.server.auth.authentication import Caller
from shoal.server.auth.lockout import LONGEST, SHORTEST, WINDOW, Lockouts, Sender
from shoal.server.http.app import _senders

NOW = 1_000.0


def sender(pilot: str, token: str = "t1") -> list[Sender]:
    return [Sender(f"pilot:{pilot}", 1), Sender(f"token:{token}", 8)]


def test_a_second_time_shuts_out_for_a_growing_time() -> None:
    lockouts, mine = Lockouts(), sender("p1")
    assert lockouts.strike(mine, NOW) == 0.0
    lockouts.check(mine, NOW)
    times = [lockouts.strike(mine, NOW + n) for n in range(1, 12)]
    assert times[:3] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST] and times[-1] == LONGEST
    with pytest.raises(TooBusy, match="pilot:p1") as caught:
        lockouts.check(mine, NOW + 12)
    assert caught.value.code == "locked_out" and 0.0 < caught.value.after <= LONGEST
    lockouts.check(sender("p2", "t2"), NOW + 12)
    lockouts.check(mine, NOW + 12 + LONGEST)


def test_another_name_under_the_same_token_does_not_help_for_long() -> None:
    lockouts = Lockouts()
    for number in range(8):
        assert lockouts.strike(sender(f"p{number}"), NOW) == 0.0
    assert lockouts.strike(sender("p9"), NOW) == SHORTEST
    with pytest.raises(TooBusy, match="token:t1"):
        lockouts.check(sender("p10"), NOW + 1)


def test_a_defect_that_everybody_meets_shuts_nobody_out() -> None:
    lockouts = Lockouts()
    for number in range(50):
        for pilot in range(3):
            assert lockouts.strike(sender(f"p{pilot}", f"t{pilot}"), NOW + number) in (0.0, SHORTEST)
            if number:
                lockouts.check(sender(f"p{pilot}", f"t{pilot}"), NOW + number + SHORTEST)


def test_what_is_long_ago_counts_no_more() -> None:
    lockouts = Lockouts()
    lockouts.strike(sender("p1"), NOW)
    assert lockouts.strike(sender("p1"), NOW + WINDOW) == 0.0


def test_groups_do_not_share_a_name() -> None:
    """Their enrolment tokens have no owner: one group's defects shut all groups' enrolments out."""
    names = [
        [sender.name for sender in _senders(Caller(ENROL, group=group, token=f"t-{group}"))]
        for group in ("phys", "chem")
    ]
    assert names == [["token:t-phys", "owner:@phys"], ["token:t-chem", "owner:@chem"]]
