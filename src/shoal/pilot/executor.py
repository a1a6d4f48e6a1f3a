"""The interface by which the loop runs leases: one executor for commands, one for calls of functions."""

from __future__ import annotations

from typing import Optional, Protocol

from shoal.pilot.agent.events import Begin, Signal, Stop, Watch
from shoal.wire.messages import Registered, Report

GUARD_GONE = "host_unfit: the guard process died"


def given_back(attempt: str, why: str, started: Optional[float]) -> Report:
    """The report on an attempt for whose end this host is to blame; 0 as its start: it may have begun."""
    return Report(attempt, "returned", "host_unfit", why, started=started)


class Executor(Protocol):
    """Runs the attempts of one kind of lease. All methods are called on the loop's thread, and none of them blocks
    except `close`; what becomes of the attempts goes back to the loop as events of the agent."""

    def on_joined(self, registered: Registered) -> None:
        """Apply the settings that come with a registration."""

    def begin(self, action: Begin) -> None:
        """Start the attempts of a lease."""

    def stop(self, action: Stop) -> bool:
        """End an attempt, or keep it from starting; False if it is not here."""

    def signal(self, action: Signal) -> bool:
        """Send a signal to an attempt if it runs; False if it is not here."""

    def watch(self, action: Watch) -> bool:
        """Upload for a while what an attempt writes, as it writes it; False if it is not here."""

    def directory(self, attempt: str) -> Optional[str]:
        """The directory that an attempt runs in; None if it is not here or has not begun."""

    def fileno(self) -> int:
        """The file descriptor that is readable when `receive` has something to do."""

    def receive(self) -> None:
        """Process the messages that arrived from child processes."""

    def on_guard_lost(self) -> None:
        """The guard died, and every child process with it: give every attempt back."""

    def deadline(self) -> Optional[float]:
        """The time at which `tick` is due at the latest."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def close(self) -> None:
        """End every child process and wait for open work on files."""
