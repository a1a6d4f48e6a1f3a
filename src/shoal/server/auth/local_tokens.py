"""The tokens of the account that the server runs under: made at first start, renewed before they end, kept 0600.

`token` is the administrator's, `enrol` lets pilots of this account in. They are the only secrets that lie in files,
because a command of the same person must find them; the database knows their digests only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from shoal.model.credentials import ENROL, LONGEST, SCOPES, SUBMIT, digest
from shoal.model.layout import ENROL_FILE, TOKEN_FILE
from shoal.model.people import ADMIN
from shoal.server.auth.authentication import Authentication, Caller
from shoal.wire.http.requests import NewToken, NewUser

FILES = {SUBMIT: TOKEN_FILE, ENROL: ENROL_FILE}


def local_tokens(access: Authentication, state_dir: Path, owner: str, now: float) -> dict[str, str]:
    """The secrets by kind; new ones where the old are gone, revoked or past half of their lives."""
    user = access.users.get(owner)
    if user is None or user.role != ADMIN:
        access.add_user(NewUser(owner, user.grp if user is not None else "", ADMIN), now, trusted=True)
    maker = Caller(SUBMIT, owner, role=ADMIN, scopes=frozenset(SCOPES))
    found = {}
    for kind, name in FILES.items():
        path = state_dir / name
        secret = _read(path)
        known = [row for row in access.tokens.values() if row.digest == digest(secret)]
        if not known or known[0].revoked is not None or known[0].expires - now < LONGEST[kind] / 2:
            scopes = list(SCOPES) if kind == SUBMIT else []
            note = "this machine's own"
            asked = NewToken(
                kind, owner, site="local" if kind == ENROL else "", expires=LONGEST[kind], scopes=scopes, note=note
            )
            _, secret = access.mint(maker, asked, now, secrets.token_urlsafe)
            write_private(path, secret + "\n")
        found[kind] = secret
    return found


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()
    return ""


def write_private(path: Path, text: str) -> None:
    """A file only its owner reads, whole or not at all, and never for a moment readable by others [security S12]."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
