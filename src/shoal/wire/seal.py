"""Seals: messages between a pilot and the server that other pilots hand on or keep [ADR 0062].

A seal is an HMAC-SHA256 over a message, its kind and its pilot, under a key made of the SHA-256 of the pilot's session. The
pilot has the session and the server that digest; nobody else has either. So who hands a sealed message on can delay, lose
or repeat it, and can neither alter it nor make one. A repetition is harmless: exchanges are numbered, and the attempt
number is the fence of reports.
"""

from __future__ import annotations

from hmac import compare_digest, digest
from typing import NamedTuple, Optional

from shoal.wire.messages import Sealed

EXCHANGE, ANSWER, KEPT = "exchange", "answer", "kept"  # what is sealed; a seal of one kind is none of another
YOURSELF = 0  # the status of an answer that is not to pass the leader: its pilot asks the server itself
_LABEL = b"shoal seal "


def seal(session: str, kind: str, pilot: str, body: str) -> Sealed:
    """Seal a message; `session` is the SHA-256 of the pilot's session, as the server has it."""
    return Sealed(pilot, body, _code(session, kind, pilot, body))


def is_genuine(session: str, kind: str, sealed: Sealed) -> bool:
    """True if the pilot that a message names, or the server, sealed it as it is."""
    made = _code(session, kind, sealed.pilot, sealed.body)
    return compare_digest(made.encode(), sealed.seal.encode("utf-8", "replace"))


def _code(session: str, kind: str, pilot: str, body: str) -> str:
    key = digest(session.encode(), _LABEL + kind.encode(), "sha256")
    return digest(key, f"{len(pilot)} {pilot}\n{body}".encode("utf-8", "replace"), "sha256").hex()


class SealedAnswer(NamedTuple):
    """The server's answer to a sealed exchange: as an HTTP response would be, and to which exchange."""

    seq: int
    status: int
    text: str = ""

    def pack(self) -> str:
        """As the body of a sealed message. Its first line is read by the leader, too, who hands it on."""
        return f"{self.seq} {self.status}\n{self.text}"


def parse_answer(body: str) -> Optional[SealedAnswer]:
    """The answer in a body; None if there is none."""
    head, _, text = body.partition("\n")
    seq, _, status = head.partition(" ")
    if not all(part.isascii() and part.isdigit() and len(part) <= 16 for part in (seq, status)):
        return None
    return SealedAnswer(int(seq), int(status), text)
