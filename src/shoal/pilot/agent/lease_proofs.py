"""Proofs of leases that the server may yet lose in a crash: sent with each exchange until it cannot [ADR 0015]."""

from __future__ import annotations

from collections import OrderedDict

from shoal.model.limits import MAX_PROOFS
from shoal.wire.messages import Exchange, Lease, Proof


class LeaseProofs:
    """Proofs by the first attempt of their lease, oldest first."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Proof] = OrderedDict()

    def take(self, lease: Lease) -> None:
        """Keep the proof of a received lease."""
        if lease.proof:
            self._all[lease.attempt] = Proof(lease.attempt, lease.count, lease.proof)

    def to_send(self) -> list[Proof]:
        """The newest proofs, for the next exchange; the leases of older ones were most likely committed long ago."""
        return list(self._all.values())[-MAX_PROOFS:]

    def answered(self, exchange: Exchange) -> None:
        """Drop what an answered exchange with reports proved. The server answers it after a commit, so it has stored
        these leases, or has seen their proofs since it lost them."""
        if exchange.reports or exchange.batches:
            for proof in exchange.proofs:
                self._all.pop(proof.attempt, None)
