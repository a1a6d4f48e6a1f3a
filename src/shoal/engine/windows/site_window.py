"""What the server remembers of the leader of one mesh, and of its window. Data; the rules are in `leaders` and `windows`."""

from __future__ import annotations

import math
from dataclasses import field
from typing import NamedTuple

from shoal.model.ids import AttemptId
from shoal.model.lazy_dataclass import dataclass
from shoal.wire.messages import Leadership, Lease

ENDED_KEPT = 1_000  # allocations that are remembered to be over: their pilots are missed a minute later


class Silent(NamedTuple):
    """A pilot that was lost by its silence: it may live, and go on with the window of its mesh."""

    since: float
    allocation: str  # of a batch system, by its name; empty: none


@dataclass
class SiteWindow:
    """One mesh: who leads it, and which attempts it was granted."""

    leadership: Leadership = Leadership(0, "", "")
    pilot: str = ""  # that leads
    named: int = 0  # how many leaders there were since the server started
    told: dict[str, int] = field(
        default_factory=dict
    )  # pilot -> the reply that told it of the leader; 0: its registration
    spoken: dict[str, None] = field(default_factory=dict)  # pilots that said what they hold since they heard of it
    granted: dict[AttemptId, int] = field(default_factory=dict)  # in the window -> serial of their class
    leaving: dict[AttemptId, int] = field(default_factory=dict)  # asked back -> the change that says so
    closing: dict[AttemptId, None] = field(default_factory=dict)  # of leaders before this one
    number: int = 0  # of the last change that was sent
    sent: int = 0  # the reply that carried it
    changed_at: float = float("-inf")  # when it was last looked at whether to grow or to shrink
    may_grow: bool = False  # the last change brought as much as one may
    pressed_at: float = float("-inf")  # and whether its leader has to ask at once
    silent: dict[str, Silent] = field(default_factory=dict)  # pilots that were lost by their silence
    ended: dict[str, None] = field(default_factory=dict)  # allocations that are over, by the word of their batch system
    adopted: int = 0  # attempts that members had begun, since this leader was named
    alone_since: float = math.inf  # when its members were heard last, before they were missed or the server was away
    copies_until: float = float("-inf")  # until when members may deliver what a dead one finished while they were alone
    back_at: float = 0.0  # when it was heard first of an attempt that they had begun

    def note_adopted(self, attempt: AttemptId, now: float) -> None:
        """A member says that it began an attempt while the server was away."""
        self.adopted += 1
        self.back_at = self.back_at or now
        self.closing.pop(attempt, None)

    def note_ended(self, allocation: str) -> None:
        """A batch system says that an allocation is over: its pilots are gone."""
        self.ended[allocation] = None
        while len(self.ended) > ENDED_KEPT:
            del self.ended[next(iter(self.ended))]
        for name in [name for name, one in self.silent.items() if one.allocation == allocation]:
            del self.silent[name]


class WindowChange(NamedTuple):
    """What a reply tells the leader of its window."""

    leases: list[Lease]
    gone: list[str]
    number: int


NO_CHANGE = WindowChange([], [], 0)
