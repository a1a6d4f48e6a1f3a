"""Proofs of leases: how a pilot shows that it got attempts which the server forgot in a crash [ADR 0015].

The first lease of a task may be sent before its commit [protocol 10]. After a crash in that gap the server knows nothing
of it, and must not trust any pilot that names any task. So such a lease carries a message authentication code over the
pilot, the first attempt and their count, made with a key that only the database has; the pilot sends it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest

from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.rangeset import RangeSet
from shoal.wire.messages import Proof

_PROOF_BYTES = 16


def make_proof(key: bytes, pilot: str, first: str, count: int) -> str:
    """The proof that `count` attempts from this one on were given to a pilot."""
    return blake2b(f"{pilot} {first} {count}".encode(), key=key, digest_size=_PROOF_BYTES).hexdigest()


class Proofs:
    """The proofs of one exchange; checked only if the server does not know an attempt, which is rare."""

    def __init__(self, key: bytes, names: Sequence[str], proofs: Sequence[Proof]) -> None:
        self._key, self._names, self._proofs = key, names, proofs
        self._ranges: dict[AttemptId, RangeSet] | None = None  # by attempt, as if on element 0

    def covers(self, attempt: AttemptId) -> bool:
        """True if it is proven that this attempt was leased to this pilot, under whatever name it had then."""
        if not self._proofs:
            return False
        if self._ranges is None:
            self._ranges = {}
            for proof in self._proofs:
                if self._is_ours(proof):
                    first = parse_attempt(proof.attempt)
                    known = self._ranges.setdefault(first._replace(element=0), RangeSet())
                    known.add_range(first.element, first.element + proof.count)
        return attempt.element in self._ranges.get(attempt._replace(element=0), ())

    def _is_ours(self, proof: Proof) -> bool:
        made = (make_proof(self._key, name, proof.attempt, proof.count) for name in self._names)
        return any(compare_digest(one.encode(), proof.proof.encode("utf-8", "replace")) for one in made)
