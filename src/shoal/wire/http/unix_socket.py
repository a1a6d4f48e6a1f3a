"""Servers on this machine: the Unix socket that they are reached by, and who may be at its other end [protocol 9].

A port of 127.0.0.1 proves nothing: once its server is gone, any account of the machine may listen there. For a Unix
socket the kernel tells the account of the process at the other end, and both sides check it before a byte is sent.
"""

from __future__ import annotations

import re
import struct
from urllib.parse import quote, unquote

SCHEME = "unix:"
LONGEST_PATH = 107  # bytes of a path that the kernel takes as the name of a socket, besides the final zero
ROOT = 0
CREDENTIALS = struct.Struct("iII")  # struct ucred, as SO_PEERCRED gives it: pid, uid, gid
_JOINED = re.compile(r"unix:/[A-Za-z0-9._~/%@+=:-]{1,4096}")


def peer_uid(credentials: bytes) -> int:
    """The account in what SO_PEERCRED gave."""
    uid: int = CREDENTIALS.unpack(credentials)[1]
    return uid


def is_trusted(uid: int, own: int) -> bool:
    """True if the process at the other end is of our own account, or of root, who reads our files anyway."""
    return uid in (own, ROOT)


def to_address(path: str) -> str:
    """The socket as an address in a join string, in which `#` and `,` have a meaning of their own."""
    return SCHEME + quote(path, safe="/~@+=:")


def is_address(text: str) -> bool:
    """True if a text is the address of a socket in a join string."""
    return _JOINED.fullmatch(text) is not None


def to_url(address: str) -> str:
    """The URL of a socket's address in a join string."""
    return SCHEME + unquote(address[len(SCHEME) :])


def direct_path(path: str, folder: int) -> str:
    """A name for the socket that the kernel takes however long its path is; `folder` is its directory, opened."""
    return f"/proc/self/fd/{folder}/{path.rpartition('/')[2]}"
