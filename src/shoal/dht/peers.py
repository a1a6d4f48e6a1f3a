"""What pilots say to each other besides the messages of the table (`dht/messages.py`): who they are, files, dial-back
[protocol 12; ADR 0048].
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.wire.messages import Sealed

PEER_TAG = "peer"  # the tag of a pilot that takes part in the mesh of its site: where its listener is, or this:
CLIENT_ONLY = "client"  # other pilots do not reach it: it asks and fetches, and serves nothing
_NAME = re.compile(r"shoal://mesh/([^/]+/[^/]+)/([0-9a-f]{64})")


class PeerName(NamedTuple):
    """A peer as its certificate names it."""

    mesh: str  # site and owner or group
    id: str


def mesh_uri(site: str, holder: str, id: str) -> str:
    """The URI in a pilot's certificate that names its mesh and its id; the parts are quoted by the caller."""
    return f"shoal://mesh/{site}/{holder}/{id}"


def parse_mesh_uri(uri: str) -> Optional[PeerName]:
    """The parts of such a URI; None if it is another one."""
    found = _NAME.fullmatch(uri)
    return PeerName(found[1], found[2]) if found is not None else None


@dataclass(frozen=True)
class Hello:
    """The first message on a connection: where the sender is reached; empty: nowhere."""

    address: str = ""


@dataclass(frozen=True)
class DialBack:
    """Can you reach me at this address?"""

    address: str


@dataclass(frozen=True)
class DialedBack:
    """The answer: the sender tried to connect there."""

    reached: bool


@dataclass(frozen=True)
class GetFile:
    """Send the file with this digest from this byte on."""

    digest: str
    offset: int = 0


@dataclass(frozen=True)
class FileHead:
    """The file is here: as many bytes as are left of it follow."""

    size: int  # of the whole file


@dataclass(frozen=True)
class NoFile:
    """It is not sent; `is_busy`: not now, too many others are fetching."""

    is_busy: bool = False


@dataclass(frozen=True)
class Forward:
    """Hand this exchange on to the server: to the leader of the mesh, in that term."""

    term: int
    seq: int  # of the exchange
    sealed: Sealed


@dataclass(frozen=True)
class Forwarded:
    """The answer to an exchange that was handed on; `waits`: it has not come yet. Neither: it is not handed on."""

    sealed: Optional[Sealed] = None
    waits: bool = False


@dataclass(frozen=True)
class KeepReports:
    """Keep these copies of the sender's reports until the server has them."""

    copies: list[Sealed]


@dataclass(frozen=True)
class DropReports:
    """The server has these reports: their copies need not be kept. Named by their seals."""

    pilot: str
    seals: list[str]


@dataclass(frozen=True)
class ReportsKept:
    """The answer to both; not `done`: there is no space for them here."""

    done: bool
