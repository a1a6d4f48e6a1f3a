"""Short commands are queued in the guard, each behind the one whose slot it takes over; those of an array in pieces, of
which one runs in a slot and one is queued behind it [ADR 0033].

The guard then fills a slot the moment it is free, without a message between two processes. A command that is queued
behind one that turns out to be long, while another slot is idle, is recalled; of a piece, whoever waits for the slot.
"""

from __future__ import annotations

from typing import Optional

from shoal.wire.messages import Lease

SHORT = 0.02  # seconds; commands are queued while their mean duration is less
LONG = 0.1  # seconds after which a running command holds up those behind it
AHEAD = 8  # queued commands for each slot


class GuardQueue:
    """Whether it pays to queue commands, by how long they took lately."""

    def __init__(self) -> None:
        self._mean: Optional[float] = None

    def record(self, duration: float) -> None:
        """Take the duration of a command into the mean."""
        self._mean = duration if self._mean is None else 0.8 * self._mean + 0.2 * duration

    @property
    def is_worthwhile(self) -> bool:
        """True while commands are short."""
        return self._mean is not None and self._mean < SHORT


def may_queue(lease: Lease) -> bool:
    """True if a command may be queued, or have another behind it: it moves no files, may start twice, and does not take
    long by its nature."""
    return lease.rerun == "safe" and not (
        lease.precedence or lease.function or lease.own or not lease.cwd or lease.checkpoint or lease.container
    )


def may_piece(lease: Lease) -> bool:
    """True if commands of this lease may be given to the guard as a piece: such as need nothing made or looked at for
    each of them but arguments, environment and the two streams that are kept."""
    special = (
        lease.shell is not None or lease.stdin is not None or lease.stdin_data or lease.inputs or lease.outputs
        or lease.setup or lease.stdout or lease.stderr or lease.restored or lease.room.gpus
    )  # fmt: skip
    return may_queue(lease) and not special
