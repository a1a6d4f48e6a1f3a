"""Proofs of leases that the server may yet forget in a crash: said with each exchange until it cannot [ADR 0015]. Pure,
like `agent`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from shoal.model.limits import MAX_PROOFS
from shoal.wire.messages import Exchange, Lease, Proof


class LeaseProofs:
    """Proofs by the first attempt of their lease, oldest first."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Proof] = OrderedDict()

    def take(self, lease: Lease) -> None:
        """A lease came."""
        if lease.proof:
            self._all[lease.attempt] = Proof(lease.attempt, lease.count, lease.proof)

    def to_say(self) -> Sequence[Proof]:
        """What the next exchange says: the newest, for the older ones were most likely written long ago."""
        return list(self._all.values())[-MAX_PROOFS:]

    def answered(self, said: Exchange) -> None:
        """An exchange with reports was answered, which the server does after a commit: it has written down the leases
        that came before it, or has seen their proofs since it forgot them."""
        if said.reports or said.batches:
            for proof in said.proofs:
                self._all.pop(proof.attempt, None)
