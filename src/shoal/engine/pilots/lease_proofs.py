"""Proofs of leases: how a pilot shows that it got attempts which the server forgot in a crash [ADR 0015].

The first lease of a task may leave before its commit [protocol 10]. After a crash in that gap the server knows nothing
of it, and
a pilot's word alone would let any pilot claim any task. So such a lease carries a message authentication code over the
pilot, the first attempt and their count, made with a key that only the database has; the pilot says it back.
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
    """Those of one exchange. They are looked at only if the server does not know an attempt, which is rare."""

    def __init__(self, key: bytes, names: Sequence[str], proofs: Sequence[Proof]) -> None:
        self._key, self._names, self._proofs = key, names, proofs
        self._ranges: dict[AttemptId, RangeSet] | None = None  # by attempt, as if on element 0

    def covers(self, attempt: AttemptId) -> bool:
        """Is it proven that this attempt was given to this pilot, under whatever name it had then?"""
        if not self._proofs:
            return False
        if self._ranges is None:
            self._ranges = {}
            for said in self._proofs:
                if self._is_ours(said):
                    first = parse_attempt(said.attempt)
                    known = self._ranges.setdefault(first._replace(element=0), RangeSet())
                    known.add_range(first.element, first.element + said.count)
        return attempt.element in self._ranges.get(attempt._replace(element=0), ())

    def _is_ours(self, said: Proof) -> bool:
        made = (make_proof(self._key, name, said.attempt, said.count) for name in self._names)
        return any(compare_digest(one.encode(), said.proof.encode("utf-8", "replace")) for one in made)
