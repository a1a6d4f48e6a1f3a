"""Who hands on whose exchanges, as the server names leaders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.dht.peers import mesh_uri
from shoal.pilot.leader.role import Role
from shoal.wire.messages import Leadership, Registered

OWN, OTHER = "1" * 64, "2" * 64
ME = Registered("p1", "s", 1, 10, 75, 900, 720, 10, 600, 86400, peer=mesh_uri("uni", "anna", OWN))


class Noted:
    """In place of the bundler and the way: what they are told."""

    beat = 0.0

    def __init__(self) -> None:
        self.leads: int | None = None
        self.follows: Leadership | None = None

    def lead(self, term: int, registered: Registered) -> None:
        self.leads = term

    def rest(self) -> None:
        self.leads = None

    close = rest

    def follow(self, leader: Leadership | None) -> None:
        self.follows = leader


def test_we_lead_or_follow_as_the_latest_word_of_the_server_says() -> None:
    noted: Any = Noted()
    role = Role(noted, noted)
    role.on_leader(Leadership(1, OTHER, "h:1"))  # before we are anybody
    assert (noted.leads, noted.follows) == (None, None)
    role.on_joined(replace(ME, leader=Leadership(5, OTHER, "h:1")))
    assert (noted.leads, noted.follows) == (None, Leadership(5, OTHER, "h:1"))
    role.on_leader(Leadership(6, OWN, "h:2"))
    assert (noted.leads, noted.follows) == (6, None)
    role.on_leader(Leadership(5, OTHER, "h:1"))  # an old word
    assert noted.leads == 6
    role.on_leader(Leadership(7, "", ""))  # nobody leads
    assert (noted.leads, noted.follows) == (None, None)
    role.on_joined(replace(ME, leader=Leadership(2, OWN, "h:2")))  # another pilot now, perhaps of another server
    assert noted.leads == 2
    role.close()
    assert (noted.leads, noted.follows) == (None, None)


def test_without_a_certificate_nobody_is_followed() -> None:
    noted: Any = Noted()
    Role(noted, noted).on_joined(replace(ME, peer="", leader=Leadership(5, OTHER, "h:1")))
    assert (noted.leads, noted.follows) == (None, None)
