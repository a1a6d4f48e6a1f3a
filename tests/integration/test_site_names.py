"""Names that any pilot may claim bind nobody but those who let it in: sites belong to somebody, bans to their holder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.guests import Guests, Person, Pilot, serving

pytestmark = pytest.mark.integration


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[Guests]:
    with serving(tmp_path / "server") as made:
        yield made


def host(guests: Guests, person: Person, site: str, name: str) -> Pilot:
    """A pilot of a person under some names."""
    enrol = guests.mint("enrol", by=person.token, site=site)
    return guests.join(enrol.secret, person.word, host=name, identity=f"{person.word}-{name}")


def test_invented_failures_on_anothers_names_ban_nothing_of_theirs_and_are_not_shown_to_them(guests: Guests) -> None:
    """Was: nine invented failures banned another's site, with the first one's text in the other's `why`."""
    victim, liar = guests.add_person("vera"), guests.add_person("mallory")
    theirs = host(guests, victim, "cluster", "node1")
    taken = guests.ask("POST", "/v1/tokens", {"kind": "enrol", "site": "cluster"}, token=liar.token)
    assert (taken.status, taken.code) == (403, "site_taken")
    assert "vera" not in taken.text
    false = host(guests, liar, "mine", "node1")
    true = host(guests, liar, "also-mine", "other")
    guests.submit(liar.token, "mallory", tasks=[{"command": ["lie"], "array": "1-200"}])
    told = {"cause": "task_error", "exit_code": 1, "message": "mallory was here", "duration": 0.001}
    true.lease()
    false.lease()

    def lie() -> bool:
        for attempt in list(true.held):
            true.report(attempt, started=time.time(), duration=0.1)
        for attempt in list(false.held):
            false.report(attempt, "failed", started=time.time(), **told)
        return bool(guests.do("GET", "/v1/events?kind=place_banned", token=liar.token)["events"])

    guests.until(lie, "a lie harms the liar")
    run = guests.submit(victim.token, "vera")
    assert theirs.lease(2)["attempt"].startswith(f"{run}.")
    for path in (
        "/v1/why/node1",
        "/v1/why/cluster",
        f"/v1/why/{run}",
        f"/v1/why/{theirs.name}",
        "/v1/events",
        "/v1/hosts",
    ):
        answer = guests.ask("GET", path, token=victim.token)
        assert "mallory" not in answer.text and "banned" not in answer.text, path


def test_a_sites_name_is_shared_by_an_administrator_and_lost_when_it_is_given_away(guests: Guests) -> None:
    anna, olaf = guests.add_person("anna"), guests.add_person("olaf")
    enrol = guests.mint("enrol", by=anna.token, site="cluster")
    guests.join(enrol.secret, "anna")
    assert guests.ask("POST", "/v1/tokens", {"kind": "enrol", "site": "cluster"}, token=olaf.token).code == "site_taken"
    assert guests.ask("POST", "/v1/sites", {"name": "cluster", "holders": ["olaf"]}, token=olaf.token).status == 403
    guests.do("POST", "/v1/sites", {"name": "cluster", "holders": ["olaf"]})
    guests.join(guests.mint("enrol", by=olaf.token, site="cluster").secret, "olaf")
    assert guests.do("GET", "/v1/sites", token=olaf.token)["sites"][0]["holders"] == ["olaf"], "no others' names"
    guests.do("POST", "/v1/sites", {"name": "cluster", "holders": ["olaf"], "only": True})
    assert guests.ask("POST", "/v1/pilots", guests.register("anna"), token=enrol.secret).code == "site_taken"
    guests.stop()
    guests.start()
    assert guests.ask("POST", "/v1/pilots", guests.register("anna"), token=enrol.secret).code == "site_taken"
    assert guests.do("GET", "/v1/sites")["sites"][0]["holders"] == ["olaf"]
