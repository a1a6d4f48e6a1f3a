"""Secrets: their kinds, prefixes and longest validity, and their redaction in texts [security S1, S12].

A secret is `shoal_KIND_` and 256 random bits. The database has only its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from typing import Optional

SUBMIT, ENROL, SESSION = "submit", "enrol", "session"
PREFIXES = {SUBMIT: "shoal_sub_", ENROL: "shoal_enr_", SESSION: "shoal_ses_"}
LONGEST = {SUBMIT: 90 * 86_400.0, ENROL: 7 * 86_400.0, SESSION: 3_600.0}  # seconds; each exchange renews a session
SCOPES = ("submit", "read", "cancel", "metrics", "admin")  # of submit tokens
RELAY_PREFIX = "shoal_rel_"  # of the key of a site's relay, which opens nothing but the way to the server
_BODY = "[A-Za-z0-9_-]{43}"
_WHOLE = re.compile(f"(?:{'|'.join(PREFIXES.values())}){_BODY}")
_PART = re.compile(f"({'|'.join((*PREFIXES.values(), RELAY_PREFIX))})[A-Za-z0-9_-]{{4,}}")
_RELAY = re.compile(RELAY_PREFIX + _BODY)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def make(kind: str, random: str) -> str:
    """Make a secret of a kind; `random` is `secrets.token_urlsafe(32)`."""
    return PREFIXES[kind] + random


def kind_of(secret: str) -> Optional[str]:
    """The kind of a secret by its form; None if it is not a secret of Shoal."""
    if _WHOLE.fullmatch(secret) is None:
        return None
    return next(kind for kind, prefix in PREFIXES.items() if secret.startswith(prefix))


def is_relay_key(text: str) -> bool:
    """True for the form of a relay's key: `RELAY_PREFIX + secrets.token_urlsafe(32)`."""
    return _RELAY.fullmatch(text) is not None


def digest(secret: str) -> str:
    """The SHA-256 by which a secret is stored."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def alias(secret: str) -> str:
    """The SHA-256 of that digest: it names a secret where others may read it. Seals are made of the digest itself."""
    return digest(digest(secret))


def redact(text: str) -> str:
    """The text with every secret of Shoal, and every private key, removed."""
    return _PEM.sub("[key]", _PART.sub(r"\1[...]", text))
