"""The tokens of the account that the server runs under: made at the first start, renewed before they end, kept 0600.

`token` is the administrator's, `enrol` enrols pilots of this account. They are the only secrets in files, because a
command of the same person must find them; the database has their digests only.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from shoal.model.credentials import ENROL, LONGEST, SCOPES, SUBMIT, digest
from shoal.model.file_names import ENROL_FILE, TOKEN_FILE
from shoal.model.people import ADMIN
from shoal.server.auth.authentication import Authentication, Caller
from shoal.server.private_files import write_private
from shoal.wire.http.requests import NewToken, NewUser

FILES = {SUBMIT: TOKEN_FILE, ENROL: ENROL_FILE}


def local_tokens(access: Authentication, state_dir: Path, owner: str, now: float) -> dict[str, str]:
    """The secrets by kind; new ones where the old are missing, revoked or past half of their lives."""
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
            site = "local" if kind == ENROL else ""
            request = NewToken(kind, owner, site=site, expires=LONGEST[kind], scopes=scopes, note="this machine's own")
            _, secret = access.mint(maker, request, now, secrets.token_urlsafe)
            write_private(path, f"{secret}\n".encode())
        found[kind] = secret
    return found


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()
    return ""
