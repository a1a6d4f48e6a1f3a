"""The preamble of a connection to a relay: both sides prove that they have the site's key [protocol 9].

A relay on a login host copies bytes between pilots and the end of a tunnel. Before TLS begins, it sends a number that
is never used again, and gets one; what is sent then is an HMAC of both, so that a listener learns nothing to be used
again. `provision/relay.py` and the line of `shoal join` have to work alone and repeat this.
"""

from __future__ import annotations

import hashlib
import hmac
import re

GREETING = b"shoal-relay/1 "
NONCE = 64  # hexadecimal digits of 32 random bytes
CONNECT, QUIT = b"join", b"quit"  # what a caller wants: a connection, or that this relay makes way for the next
OPEN, DOWN, FULL = b"open", b"down", b"full"  # what the relay says, once it believes the caller
GREETING_SIZE = len(GREETING) + NONCE + 1
PROOF_SIZE = 4 + 1 + NONCE + 1 + 64 + 1
VERDICT_SIZE = 4 + 1 + 64 + 1
_GREETING = re.compile(rb"shoal-relay/1 ([0-9a-f]{64})\n")
_VERDICT = re.compile(rb"(open|down|full) ([0-9a-f]{64})\n")
_WHY = {DOWN: "the tunnel behind it is down", FULL: "it has as many connections as it may"}


def proof(key: str, word: bytes, theirs: bytes, ours: bytes) -> bytes:
    """The HMAC that goes with a word; `theirs` is the nonce of the relay, `ours` that of the caller."""
    return hmac.new(key.encode(), b" ".join((word, theirs, ours)), hashlib.sha256).hexdigest().encode()


def answer(key: str, greeting: bytes, ours: bytes) -> bytes:
    """What a caller sends after the relay's greeting; OSError if that is none."""
    found = _GREETING.fullmatch(greeting)
    if found is None:
        raise OSError("what answers there is no relay")
    return b" ".join((CONNECT, ours, proof(key, CONNECT, found[1], ours))) + b"\n"


def check_verdict(key: str, greeting: bytes, ours: bytes, verdict: bytes) -> None:
    """OSError unless the relay has the key, too, and opened the connection."""
    found, theirs = _VERDICT.fullmatch(verdict), greeting[len(GREETING) :].strip()
    if found is None or not hmac.compare_digest(found[2], proof(key, found[1], theirs, ours)):
        raise OSError("the relay refused, or is not the one of this site")
    if found[1] != OPEN:
        raise OSError(f"the relay cannot go on: {_WHY[found[1]]}")
