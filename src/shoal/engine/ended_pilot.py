"""What is remembered of pilots that ended."""

from __future__ import annotations

from shoal.model.lazy_dataclass import dataclass


@dataclass(slots=True)
class EndedPilot:
    """What is remembered of a pilot that ended: it may come back for what it held, if it can prove its identity."""

    session: str
    former: list[str]
    holder: str
    token: str
    ended: float
    reason: str
    revoked: bool
    bound: bool = False  # its session was good over TLS only
    heir: str = ""  # the pilot as which it came back: no other can
    host: str = ""  # where it ran, and for whom: reports of it may come when it is gone
    identity: str = ""
    site: str = ""
