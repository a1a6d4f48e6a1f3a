"""The network of a simulated world: messages take time, may be lost, come twice or overtake each other; parts of it may be cut.

A message is of a kind (`request` towards the server, `reply` from it) and has an end beside the server, by whose name links and
cuts are found. A cut of one kind only is a one-way cut; a partition cuts both kinds for several ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from shoal.sim.clock import Clock
from shoal.sim.distributions import Constant, Distribution

REQUEST, REPLY = "request", "reply"


class Link(NamedTuple):
    """How messages travel between the server and one end."""

    latency: Distribution
    bandwidth: float = 0.0  # bytes per second; 0: size does not matter
    loss: float = 0.0  # probability
    duplicate: float = 0.0
    slow: float = 0.0  # probability of a message that takes `delay` instead: others overtake it
    delay: Distribution = Constant(1.0)


class Network:
    """Carries messages; `timeout` is how long a sender waits before it knows that one was lost."""

    def __init__(
        self, clock: Clock, rng: Random, link_of: Callable[[str], Link], timeout: float, note: Callable[[str], None]
    ) -> None:
        self._clock, self._rng, self._link_of, self._timeout, self._note = clock, rng, link_of, timeout, note
        self._arrivals: dict[tuple[str, str], float] = {}  # when the last message sent so far arrives
        self._cuts: set[tuple[str, str]] = set()

    def send(self, kind: str, end: str, arrive: Callable[[], None], lost: Callable[[], None], size: int = 0) -> None:
        """Carry one message: `arrive` is called for each copy that gets there, `lost` if none does."""
        link, rng = self._link_of(end), self._rng
        if (kind, end) in self._cuts or rng.random() < link.loss:
            self._note(f"lose_{kind}")
            self._clock.after(self._timeout, lost)
            return
        latest = before = self._arrivals.get((kind, end), 0.0)
        for copy in range(2 if rng.random() < link.duplicate else 1):
            delay = link.latency.draw(rng)
            if copy:
                self._note(f"duplicate_{kind}")
            if rng.random() < link.slow:
                self._note("delay")
                delay = link.delay.draw(rng)
            if link.bandwidth:
                delay += size / link.bandwidth
            arrival = self._clock.now + delay
            if arrival < before:
                self._note("reorder")
            latest = max(latest, arrival)
            self._clock.at(arrival, arrive)
        self._arrivals[kind, end] = latest

    def cut(self, ends: Iterable[str], kinds: Iterable[str] = (REQUEST, REPLY)) -> None:
        """Lose every message of some ends from now on: of both kinds, or of one."""
        self._cuts.update((kind, end) for end in ends for kind in kinds)

    def mend(self, ends: Iterable[str]) -> None:
        """Carry the messages of these ends again."""
        gone = set(ends)
        self._cuts = {(kind, end) for kind, end in self._cuts if end not in gone}
