"""The way of a follower's exchanges: by the leader of its mesh while that answers, else to the server itself
[LBO D8; promise I18; ADR 0062].

An exchange that got no answer by way of the leader is sent to the server as it is: its number makes the repetition harmless.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from random import Random
from typing import Callable, Optional

from shoal.dht.key import parse_key
from shoal.dht.peers import Forward, Forwarded
from shoal.dht.routing_table import Contact
from shoal.model.credentials import digest
from shoal.model.limits import MAX_SEALED
from shoal.pilot.mesh import frames
from shoal.pilot.mesh.links import Link, Links
from shoal.pilot.uplink.uplink import READ_MARGIN, Answer
from shoal.wire import codec
from shoal.wire.messages import Exchange, Leadership, Sealed
from shoal.wire.seal import ANSWER, EXCHANGE, YOURSELF, is_genuine, parse_answer, seal

log = logging.getLogger(__name__)

SIGN_WITHIN = 5.0  # seconds for a sign of life of the leader, which gives one every two
AGAIN = 30.0  # seconds after which a leader that did not answer is asked once more
FORGED = 3_600.0  # seconds for which one is not asked that altered what it hands on


class LeaderWay:
    """Asks the server by way of the leader."""

    def __init__(
        self, links: Callable[[], Optional[Links]], rng: Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._links, self._rng, self._clock = links, rng, clock
        self.beat = 10.0
        self._leader: Optional[Leadership] = None
        self._not_before = 0.0
        self._mutex = threading.Lock()
        self.handed_on = 0  # exchanges that were answered this way

    def follow(self, leader: Optional[Leadership]) -> None:
        """This pilot leads the mesh; None: nobody does, or we do."""
        with self._mutex:
            if leader != self._leader:
                self._leader, self._not_before = leader, 0.0

    def ask(self, exchange: Exchange) -> Optional[Answer]:
        """The server's answer; None: the server has to be asked directly."""
        with self._mutex:
            leader, links = self._leader, self._links()
            if leader is None or links is None or self._clock() < self._not_before:
                return None
        body = codec.encode(replace(exchange, session="")).decode()
        if len(body) > MAX_SEALED // 4 and len(body.encode()) > MAX_SEALED:
            return None
        session = digest(exchange.session)
        message = Forward(leader.term, exchange.seq, seal(session, EXCHANGE, exchange.pilot, body))
        try:
            contact = Contact(parse_key(leader.id), leader.address)
            forwarded = links.talk(contact, lambda link: self._ask(link, message))
        except (OSError, ValueError) as error:
            log.info("the leader at %s does not answer: %s", leader.address, error)
            forwarded = None
        if forwarded is None:
            self._turn_away(leader, AGAIN)
            return None
        return self._read(leader, exchange, session, forwarded)

    def _ask(self, link: Link, message: Forward) -> Optional[Sealed]:
        until = self._clock() + self.beat + READ_MARGIN
        link.stream.settimeout(SIGN_WITHIN)
        frames.send(link.stream, message)
        while self._clock() < until:
            answer = frames.receive(link.stream)
            if not isinstance(answer, Forwarded):
                raise frames.Broken("that is no answer to an exchange")
            if not answer.waits:
                return answer.sealed
        raise frames.Broken("the leader had its time")

    def _read(self, leader: Leadership, exchange: Exchange, session: str, sealed: Sealed) -> Optional[Answer]:
        answer = parse_answer(sealed.body)
        if answer is not None and answer.status == YOURSELF:
            return None
        if answer is None or answer.seq != exchange.seq or not is_genuine(session, ANSWER, sealed):
            log.error("the leader at %s altered the answer to exchange seq=%d", leader.address, exchange.seq)
            self._turn_away(leader, FORGED)
            return None
        self.handed_on += 1
        return Answer(answer.status, answer.text.encode())

    def _turn_away(self, leader: Leadership, seconds: float) -> None:
        """Do not ask this leader for a while."""
        with self._mutex:
            if self._leader == leader:
                self._not_before = self._clock() + seconds * self._rng.uniform(0.8, 1.2)
