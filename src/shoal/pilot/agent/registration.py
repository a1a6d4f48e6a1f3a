"""When to register with the server, and under which former name."""

from __future__ import annotations

from random import Random
from typing import Optional

from shoal.pilot.agent.events import Join
from shoal.wire.messages import FormerPilot, Registered

BACKOFF_FIRST, BACKOFF_MOST = 0.2, 5.0  # seconds


def back_off(rng: Random, failures: int) -> float:
    """Seconds until the next try."""
    return rng.uniform(0.5, 1.0) * min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** min(failures, 10))


def nonce(rng: Random) -> str:
    """A text that no two messages share."""
    return f"{rng.getrandbits(128):032x}"


def patience(registered: Optional[Registered], unacknowledged: int) -> float:
    """Seconds to go on without contact [protocol 5]; longer with reports that were not acknowledged."""
    if unacknowledged:
        return registered.spool_end if registered is not None else 86_400.0
    return registered.idle_end if registered is not None else 600.0


class Registration:
    """Whether and when to register."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._is_pending, self._at, self._nonce = False, 0.0, ""
        self.is_new = False  # we are registered, and no exchange has been answered yet
        self._former: Optional[FormerPilot] = None
        self._times = 0  # registrations since the last answered exchange: bounds how often a server may disown us

    def on_joined(self) -> None:
        """The registration succeeded."""
        self._is_pending, self._nonce, self.is_new = False, "", True
        self._times += 1

    def on_answered(self) -> None:
        """An exchange was answered."""
        self._times, self.is_new = 0, False

    def postpone(self, retry_at: float) -> None:
        """No answer came: register again at that time."""
        self._is_pending, self._at = False, retry_at

    def on_disowned(self, registered: Optional[Registered], now: float) -> None:
        """The session is over: register anew."""
        self._is_pending, self._nonce = False, ""
        self._at = now if self._times < 2 else now + back_off(self._rng, self._times)
        if registered is not None:
            self._former = FormerPilot(registered.pilot, registered.session)

    def deadline(self) -> list[float]:
        """When to register, unless an answer is awaited."""
        return [] if self._is_pending else [self._at]

    def begin(self, now: float) -> list[Join]:
        """Register, if it is time; the nonce stays the same while one registration is repeated."""
        if self._is_pending or now < self._at:
            return []
        self._is_pending, self._nonce = True, self._nonce or nonce(self._rng)
        return [Join(self._former, self._nonce)]
