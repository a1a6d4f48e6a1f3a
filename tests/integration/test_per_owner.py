"""Bounds are an owner's, not a token's; what a token made ends with it; a session of TLS is no good without [ADR 0016]."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.limits import MAX_PER_KEY
from tests.integration.guests import Guests, serving
from tests.unix_http import connect

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """A server that also listens with TLS."""
    with serving(tmp_path_factory.mktemp("guests")) as found:
        found.add_person("mallory")
        found.add_person("ida")
        yield found


def held(guests: Guests, token: str) -> socket.socket:
    """A connection on which a request with this token was answered, kept open."""
    line = connect(guests.url)
    line.sendall(f"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert line.recv(65_536).startswith(b"HTTP/1.1 200")
    return line


def is_open(line: socket.socket) -> bool:
    """Has the server not closed it?"""
    line.setblocking(False)
    try:
        return line.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_all_tokens_of_one_owner_together_hold_no_more_connections_than_one(guests: Guests) -> None:
    """Each token had its own 128: one owner's held all there were."""
    tokens = [guests.mint(owner="mallory").secret for _ in range(4)]
    with contextlib.ExitStack() as stack:
        theirs = [stack.enter_context(held(guests, tokens[n % 4])) for n in range(MAX_PER_KEY + 40)]
        other = stack.enter_context(held(guests, guests.people["ida"].token))
        guests.until(lambda: sum(map(is_open, theirs)) <= MAX_PER_KEY, "the oldest are cut")
        assert sum(map(is_open, theirs)) == MAX_PER_KEY and is_open(other)


def test_revoking_a_token_ends_the_tokens_and_pilots_that_came_of_it(guests: Guests) -> None:
    stolen = guests.mint(owner="mallory")
    child = guests.mint(by=stolen.secret)
    enrol = guests.mint("enrol", by=child.secret, site="far")
    pilot = guests.join(enrol.secret, "guest")
    innocent = guests.join(guests.mint("enrol", by=guests.people["mallory"].token).secret, "other")
    assert pilot.talk(tails=[]).status == 200
    done = guests.do("POST", "/v1/tokens/revoke", {"tokens": [stolen.id]})
    assert done == {"revoked": 3, "pilots": 1}
    assert guests.ask("GET", "/v1/whoami", token=child.secret).status == 401
    assert guests.ask("POST", "/v1/pilots", guests.register("again"), token=enrol.secret).status == 401
    assert pilot.talk().status in (401, 403)
    assert guests.ask("GET", "/v1/whoami", token=guests.people["mallory"].token).status == 200
    assert innocent.talk(tails=[]).status == 200


def test_a_session_that_was_given_over_tls_is_no_good_on_the_plain_socket(guests: Guests) -> None:
    """Whoever read it from a pilot's memory, on another host, needs the certificate's key as well."""
    pilot = guests.join_tls(guests.mint("enrol", site="far").secret, "far", guests.secure())
    path = f"/v1/pilots/{pilot.name}/exchange"
    over_tls = guests.ask_tls(guests.secure(pilot), "POST", path, pilot.message(tails=[], published=[]), pilot.session)
    assert over_tls.status == 200
    assert pilot.talk().status == 401
    former = {"pilot": pilot.name, "session": pilot.session}
    back = guests.ask("POST", "/v1/pilots", guests.register("far", former=former), token=pilot.session)
    assert back.status == 401
    again = guests.ask_tls(guests.secure(pilot), "POST", path, pilot.message(), pilot.session)
    assert again.status == 200, again


def test_it_stays_bound_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as guests:
        pilot = guests.join_tls(guests.mint("enrol", site="far").secret, "far", guests.secure())
        guests.stop()
        guests.start()
        assert pilot.talk().status == 401
        path = f"/v1/pilots/{pilot.name}/exchange"
        assert guests.ask_tls(guests.secure(pilot), "POST", path, pilot.message(), pilot.session).status == 200
