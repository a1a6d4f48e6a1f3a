"""What goes with exchanges until one of them was answered: dead pilots of this host, peers that lie, reports that we kept for
others."""

from __future__ import annotations

from typing import Any

from shoal.model.limits import MAX_ACCUSATIONS, MAX_SEALED_BYTES, MAX_SEALED_REPORTS, MAX_SIBLINGS
from shoal.pilot.agent.events import Delivered
from shoal.wire.messages import Accusation, Exchange, Reply, Sealed


class Attachments:
    """Things to tell the server, in no order."""

    def __init__(self) -> None:
        self._outlived: dict[str, None] = {}  # dead pilots of this host
        self._accusations: dict[str, Accusation] = {}  # by peer
        self._copies: dict[str, Sealed] = {}  # of others' reports, by their seals

    def outlived(self, sessions: tuple[str, ...]) -> None:
        """These pilots are dead."""
        self._outlived.update(dict.fromkeys(sessions))

    def accuse(self, accusation: Accusation) -> None:
        """A peer gave wrong bytes."""
        self._accusations[accusation.peer] = accusation

    def deliver(self, copies: tuple[Sealed, ...]) -> None:
        """Bring these reports of others to the server."""
        self._copies.update((copy.seal, copy) for copy in copies)

    def pack(self, with_copies: bool) -> dict[str, Any]:
        """The fields of the next exchange."""
        copies: list[Sealed] = []
        size = 0
        for copy in self._copies.values() if with_copies else ():
            size += len(copy.body)
            if len(copies) == MAX_SEALED_REPORTS or (copies and size > MAX_SEALED_BYTES):
                break
            copies.append(copy)
        accusations = list(self._accusations.values())[:MAX_ACCUSATIONS]
        return {"ended": list(self._outlived)[:MAX_SIBLINGS], "accusations": accusations, "sealed": copies}

    def answered(self, exchange: Exchange, reply: Reply) -> list[Delivered]:
        """An exchange was answered: what it told need not be told again. Copies that the server did not take are offered
        again some time by whoever keeps them; returns what it took."""
        for session in exchange.ended:
            self._outlived.pop(session, None)
        for accusation in exchange.accusations:
            self._accusations.pop(accusation.peer, None)
        for copy in exchange.sealed:
            self._copies.pop(copy.seal, None)
        taken = tuple(copy for copy in exchange.sealed if copy.seal in reply.unsealed)
        return [Delivered(taken)] if taken else []

    def refused(self) -> None:
        """An exchange was refused: copies may be the reason, and stay where they are kept."""
        self._copies.clear()
