"""Secrets by their looks: kinds, prefixes, how long each may live, and how every one of them is kept out of words
[security S1, S12].

A secret is `shoal_KIND_` and 256 random bits. The database knows only its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from typing import Optional

SUBMIT, ENROL, SESSION = "submit", "enrol", "session"
PREFIXES = {SUBMIT: "shoal_sub_", ENROL: "shoal_enr_", SESSION: "shoal_ses_"}
LONGEST = {SUBMIT: 90 * 86_400.0, ENROL: 7 * 86_400.0, SESSION: 3_600.0}  # seconds; a session is renewed by each beat
SCOPES = ("submit", "read", "cancel", "metrics", "admin")  # of submit tokens
_BODY = "[A-Za-z0-9_-]{43}"
_WHOLE = re.compile(f"(?:{'|'.join(PREFIXES.values())}){_BODY}")
_PART = re.compile(f"({'|'.join(PREFIXES.values())})[A-Za-z0-9_-]{{4,}}")
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def make(kind: str, random: str) -> str:
    """A secret of a kind; `random` is `secrets.token_urlsafe(32)`."""
    return PREFIXES[kind] + random


def kind_of(secret: str) -> Optional[str]:
    """What kind of secret this looks like; None if it is none of ours."""
    if _WHOLE.fullmatch(secret) is None:
        return None
    return next(kind for kind, prefix in PREFIXES.items() if secret.startswith(prefix))


def digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def redact(text: str) -> str:
    """The text without any secret of ours in it."""
    return _PEM.sub("[key]", _PART.sub(r"\1[...]", text))
