"""The way by a leader that works, answers nothing, breaks off, alters, repeats, or has too much to do: real connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from shoal.dht.peers import Forward, Forwarded
from shoal.dht.routing_table import Contact
from shoal.model.credentials import digest
from shoal.model.limits import MAX_SEALED
from shoal.pilot.leader import way as ways
from shoal.pilot.leader.way import LeaderWay
from shoal.pilot.uplink.uplink import Answer
from shoal.wire import codec
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Leadership, Sealed
from shoal.wire.seal import ANSWER, EXCHANGE, YOURSELF, SealedAnswer, is_genuine, seal
from tests.unit.pilot.mesh.peers_here import Here, here

SESSION = "shoal_ses_" + "a" * 43
KEY = digest(SESSION)


def exchange(seq: int, leaving: str = "") -> Exchange:
    return Exchange(PROTOCOL, "p1", SESSION, seq, 0, Capacity(), leaving=leaving)


def answered(seq: int, text: str = "{}", status: int = 200, key: str = KEY) -> Forwarded:
    return Forwarded(seal(key, ANSWER, "p1", SealedAnswer(seq, status, text).pack()))


class Leader:
    """One that does as a test says."""

    def __init__(self, peer: Here) -> None:
        self.asked: list[Forward] = []
        self.do: Callable[[Forward], Iterable[Forwarded]] = lambda message: [answered(message.seq)]
        peer.listener.handlers[Forward] = self._on_forward
        self.named = Leadership(3, f"{peer.contact.id:064x}", peer.contact.address)

    def _on_forward(self, sender: Contact, message: Forward) -> Iterable[Forwarded]:
        self.asked.append(message)
        return self.do(message)


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Here]]:
    with here(Path(tmp_path_factory.mktemp("ca")), 1, 2) as found:
        yield found


@pytest.fixture
def leader(peers: list[Here]) -> Leader:
    return Leader(peers[0])


class Clock:
    """Real time, and what a test adds."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def way(peers: list[Here], leader: Leader, clock: Clock) -> LeaderWay:
    found = LeaderWay(lambda: peers[1].links, Random(1), clock)
    found.follow(leader.named)
    return found


def test_the_leader_hands_an_exchange_on_and_never_sees_the_session(leader: Leader, way: LeaderWay) -> None:
    leader.do = lambda message: [Forwarded(waits=True), Forwarded(waits=True), answered(message.seq, '{"seq":7}', 409)]
    assert way.ask(exchange(7)) == Answer(409, b'{"seq":7}')
    (message,) = leader.asked
    assert (message.term, message.seq) == (3, 7)
    assert is_genuine(KEY, EXCHANGE, message.sealed)
    assert SESSION not in message.sealed.body
    assert codec.decode(Exchange, message.sealed.body.encode()).seq == 7
    assert way.handed_on == 1


@pytest.mark.parametrize(
    "lie",
    [
        lambda message: [answered(message.seq, key=digest("another"))],
        lambda message: [answered(message.seq - 1)],  # an old answer once more
        lambda message: [Forwarded(seal(KEY, EXCHANGE, "p1", SealedAnswer(message.seq, 200).pack()))],
        lambda message: [Forwarded(Sealed("p1", SealedAnswer(message.seq, 200, "{}").pack(), "0" * 64))],
        lambda message: [Forwarded(Sealed("p1", "nothing", ""))],
    ],
)
def test_an_altered_or_repeated_answer_is_none_and_its_leader_is_left_for_long(
    lie: Callable[[Forward], Iterable[Forwarded]], leader: Leader, way: LeaderWay, clock: Clock
) -> None:
    leader.do = lie
    assert way.ask(exchange(7)) is None
    assert way.ask(exchange(8)) is None
    assert len(leader.asked) == 1
    clock.ahead = 10 * ways.AGAIN
    assert way.ask(exchange(9)) is None
    assert len(leader.asked) == 1


def test_what_is_to_go_itself_does_so_without_blame(leader: Leader, way: LeaderWay) -> None:
    leader.do = lambda message: [Forwarded(Sealed("p1", SealedAnswer(message.seq, YOURSELF).pack(), ""))]
    assert way.ask(exchange(7)) is None
    leader.do = lambda message: [answered(message.seq)]
    assert way.ask(exchange(8)) == Answer(200, b"{}")


@pytest.mark.parametrize("silent", [lambda message: [], lambda message: [Forwarded()]])
def test_a_leader_that_does_not_hand_on_is_left_for_a_while(
    silent: Callable[[Forward], Iterable[Forwarded]],
    leader: Leader,
    way: LeaderWay,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ways, "SIGN_WITHIN", 1.0)
    leader.do = silent
    assert way.ask(exchange(7)) is None
    assert way.ask(exchange(8)) is None
    assert len(leader.asked) == 1
    leader.do = lambda message: [answered(message.seq)]
    clock.ahead = 2 * ways.AGAIN
    assert way.ask(exchange(9)) == Answer(200, b"{}"), "and then it is asked once more"


def test_one_that_only_says_that_it_waits_has_its_time(
    leader: Leader, way: LeaderWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "READ_MARGIN", 0.0)
    way.beat = 0.2

    def waits(message: Forward) -> Iterator[Forwarded]:
        while True:
            time.sleep(0.05)
            yield Forwarded(waits=True)

    leader.do = waits
    assert way.ask(exchange(7)) is None


def test_nobody_is_asked_who_does_not_lead_or_cannot_be_reached(leader: Leader, way: LeaderWay) -> None:
    way.follow(None)
    assert way.ask(exchange(7)) is None
    way.follow(Leadership(4, leader.named.id, "127.0.0.1:1"))
    assert way.ask(exchange(7)) is None
    way.follow(Leadership(5, "f" * 64, leader.named.address))  # another peer is there
    assert way.ask(exchange(7)) is None
    assert leader.asked == []
    way.follow(leader.named)
    assert way.ask(exchange(7)) is not None, "another leader is asked at once"


def test_what_is_too_large_does_not_pass(leader: Leader, way: LeaderWay) -> None:
    assert way.ask(exchange(7, "x" * MAX_SEALED)) is None
    assert leader.asked == []
    quotes = '"' * (MAX_SEALED // 3)
    assert way.ask(exchange(8, quotes)) is not None, "JSON in JSON in a message: it still fits"
