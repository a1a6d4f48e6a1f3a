"""How a pilot comes to a server, and how it comes back: when to ask, and who it was before. Pure, like `agent`."""

from __future__ import annotations

from random import Random
from typing import Optional

from shoal.pilot.agent.events import Join
from shoal.wire.messages import FormerPilot, Registered

BACKOFF_FIRST, BACKOFF_MOST = 0.2, 5.0


def back_off(rng: Random, failures: int) -> float:
    """Seconds until the next try."""
    return rng.uniform(0.5, 1.0) * min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** min(failures, 10))


def nonce(rng: Random) -> str:
    """A word that no two messages share."""
    return f"{rng.getrandbits(128):032x}"


def patience(registered: Optional[Registered], unheard: int) -> float:
    """How long to go on without contact [protocol 5]; longer with reports that were not heard."""
    if unheard:
        return registered.spool_end if registered is not None else 86_400.0
    return registered.idle_end if registered is not None else 600.0


class Registration:
    """Whether and when to register."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._asked, self._at, self._nonce = False, 0.0, ""
        self.is_new = False  # the server took us in and has answered nothing yet
        self._former: Optional[FormerPilot] = None
        self._times = 0  # since the last answer: a server that takes us in and disowns us is not asked without end

    def joined(self) -> None:
        """The server took us in."""
        self._asked, self._nonce, self.is_new = False, "", True
        self._times += 1

    def answered(self) -> None:
        """And it knows us."""
        self._times, self.is_new = 0, False

    def put_off(self, again: float) -> None:
        """No answer came."""
        self._asked, self._at = False, again

    def disowned(self, registered: Optional[Registered], now: float) -> None:
        """The session that we had is over."""
        self._asked, self._nonce = False, ""
        self._at = now if self._times < 2 else now + back_off(self._rng, self._times)
        if registered is not None:
            self._former = FormerPilot(registered.pilot, registered.session)

    def deadline(self) -> list[float]:
        """When to ask, if we do not wait for an answer."""
        return [] if self._asked else [self._at]

    def ask(self, now: float) -> list[Join]:
        """Register, if it is time; the nonce is the same while one registration is repeated."""
        if self._asked or now < self._at:
            return []
        self._asked, self._nonce = True, self._nonce or nonce(self._rng)
        return [Join(self._former, self._nonce)]
