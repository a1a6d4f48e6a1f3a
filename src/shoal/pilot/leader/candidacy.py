"""A try to be elected: what the voters have told so far, page by page. Pure."""

from __future__ import annotations

from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.leader.messages import LEFT, MEMBER, Vote
from shoal.pilot.leader.replica import Replica

ELECT_AGAIN = 1.0  # seconds between two tries to be elected, about; and for which a try waits for more of a vote


@dataclass
class Candidacy:
    """A try to be elected."""

    term: int
    votes: set[str]  # of members all of whose entries came
    known: Replica  # by us and by them
    counts: dict[str, int]  # of members that were asked: how many entries came
    until: float
    before: int  # our term, which we go back to if we are not elected: only we voted for us

    def take(self, sender: str, vote: Vote, now: float) -> None:
        """Take a page of a vote. After many tasks there are many pages: who sends them is waited for."""
        self.counts[sender] += len(vote.entries)
        if vote.entries:
            self.until = now + ELECT_AGAIN
        for entry in vote.entries:
            if entry.kind not in (MEMBER, LEFT) or entry.name not in self.known.members:
                self.known.hear(entry)
        if not vote.more:
            self.votes.add(sender)
