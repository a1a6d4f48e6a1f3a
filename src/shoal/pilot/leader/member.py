"""One member of a mesh: whom it follows or leads, and what it starts while the server is away. Pure: `handle(event, now)` returns
the actions to perform, `deadline()` says when the next `Tick` is due.

Rules: (1) a greater term replaces a smaller one; what a smaller one says is refused [promise I17]. (2) The server names leaders;
where it does not answer, members elect one: a majority of those they know has to vote for it, each once in a term, and the
lowest id wins where several ask. (3) A task is begun only by the member that it was given to, and only when a majority knows
that it was: whoever is elected later hears of it from one of its voters. (4) Nothing is given while the server answers the leader
or most of its followers [LBO III.B; ADR 0056].
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.leader.bidding import Kind, assigned, bids_of, kinds_of
from shoal.pilot.leader.candidacy import ELECT_AGAIN, Candidacy
from shoal.pilot.leader.events import (
    Action,
    Answered,
    Ask,
    Asked,
    Contact,
    Ended,
    Event,
    Failed,
    Granted,
    Kept,
    Named,
    Note,
    Say,
    Start,
    State,
    Tick,
)
from shoal.pilot.leader.messages import GIVEN, GONE, LEFT, MEMBER, TASK, Elect, Entry, Follow, KindBid, Lead, Vote
from shoal.pilot.leader.replica import Replica, fitting
from shoal.sched.fit import take
from shoal.wire.messages import Capacity, Lease

CUT_OFF_BEATS = 3.0  # beats without an answer of the server after which we count as cut off
HOLD_BEATS = 0.5  # for which the leader holds the answer to a follower
PATIENCE = 1.5  # seconds beyond that: until a leader that does not answer is given up, and a follower counts no more
RETRY = 0.25  # seconds until a request to the leader that failed is sent again
GATHER = 0.05  # seconds from the last bid of a round to its end;
MOST_GATHER = 0.25  # and from the first: each round is told to every member, and two hundred bids take a while to come
MOST_EXACT = 64  # bidders in a round that is assigned exactly; larger ones greedily, as in the paper


@dataclass
class Follower:
    """A member as its leader sees it."""

    address: str
    seq: int = 0
    version: int = 0
    told: int = 0  # committed, as it was told
    heard: float = 0.0
    is_cut_off: bool = False
    free: Capacity = Capacity()
    bids: Any = ()
    ticket: Optional[int] = None  # of its request, which waits for its answer
    until: float = 0.0


class Member:
    """The state and rules of one member."""

    def __init__(self, id: str, address: str, beat: float, rng: Any, now: float) -> None:
        self.id, self.address, self.rng = id, address, rng
        self.set_beat(beat)
        self.term, self.leader, self.leader_address = 0, "", ""
        self.replica = Replica()
        self._former: list[Replica] = []  # of earlier terms, until all of this one is here
        self.committed = 0
        self.taken: dict[str, None] = {}  # tasks of windows that we began, under whichever leader
        self.rounds = 0
        self._contact = now
        self._state = State(Capacity(), {}, False)
        self._seq = 0  # of what we ask our leader
        self._asking = 0  # seq of the newest request under way; 0: none
        self._said: Optional[tuple[Any, ...]] = None  # what the leader was told of us last
        self._ask_at = now
        self._has_more_to_say = False
        self._failed_at: Optional[float] = None  # since when the leader does not answer
        self._is_elected = True  # False: we voted for the leader, which does not lead yet
        self._candidacy: Optional[Candidacy] = None
        self._voted: Optional[list[Entry]] = None  # what we tell the candidate that we voted for in this term, in pages
        self._told_at = 0.0  # when it had a page of that last
        self._elect_at, self._proposed = 0.0, 0  # the greatest term that somebody asked to lead in
        # of a leader
        self._followers: dict[str, Follower] = {}
        self._changes: deque[tuple[str, str, str]] = deque()  # of members: each is added when that before is committed
        self._member_entry = 0  # number of the last of them
        self._batches: deque[tuple[int, int]] = deque()  # numbers of the server's changes, and of their last entries
        self.seen = 0
        self._round_at: Optional[float] = None
        self._lonely_since, self._gather_until = now, 0.0
        self._kept: Optional[Kept] = None
        self._parked: dict[int, float] = {}  # requests of those who voted for us, and until when they wait
        self._kinds: tuple[Any, OrderedDict[str, Kind]] = (None, OrderedDict())

    def set_beat(self, beat: float) -> None:
        """The server's beat, by which all waits are measured."""
        self.cut_after, self.hold = CUT_OFF_BEATS * beat, HOLD_BEATS * beat
        self.patience = self.hold + PATIENCE

    # --- facts
    @property
    def is_leader(self) -> bool:
        """True if we lead, as far as we know."""
        return self.leader == self.id and self._is_elected

    @property
    def is_placed(self) -> bool:
        """True if we know who the members are, and so find another leader by ourselves."""
        return bool(self._merged().members)

    def come_without_server(self, now: float) -> None:
        """We start while the server is away: it has never answered us."""
        self._contact = now - self.cut_after - 0.001

    def is_cut_off(self, now: float) -> bool:
        """True if the server has not answered us for a while."""
        return now > self._contact + self.cut_after

    def may_give(self, now: float) -> bool:
        """True if a majority, with us, is led by us and cut off as we are."""
        if not (self.is_leader and self.is_cut_off(now)):
            return False
        members, since = self.replica.members, now - self.hold - 1.0
        with_us = [id for id, one in self._followers.items() if id in members and one.is_cut_off and one.heard >= since]
        return len(with_us) + 1 >= self.replica.majority

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event; returns what to do."""
        actions: list[Action] = []
        _RULES[type(event)](self, event, now, actions)
        self._on_time(now, actions)
        self._keep(actions)
        return actions

    def deadline(self, now: float) -> Optional[float]:
        """When the next `Tick` is due."""
        times = [one.until for one in self._followers.values() if one.ticket is not None]
        times += self._parked.values()
        if self.term:
            if not self.is_cut_off(now):
                times.append(self._contact + self.cut_after + 0.001)
            if not self.is_leader and self.leader and (not self._asking or self._has_more_to_say):
                times.append(self._ask_at)
            if self._is_lost(now) and self.is_cut_off(now):
                times += [self._elect_at] if self._candidacy is None else []
            elif self._failed_at is not None and self.is_cut_off(now):
                times.append(self._failed_at + self.patience + 0.001)
            if self.is_leader and self.is_cut_off(now):
                times.append(self._lonely_since + (1.0 if self.may_give(now) else 2 * self.patience + 0.001))
        if self._candidacy is not None:
            times.append(self._candidacy.until)
        if self._round_at is not None:
            times.append(self._round_at)
        return min(times, default=None)

    # --- from the server
    def _on_named(self, event: Named, now: float, actions: list[Action]) -> None:
        said = event.leadership
        if said.term <= self.term:
            return
        self._adopt(said.term, said.id, said.address, now, actions)
        self._former.clear()  # tasks of earlier windows have other numbers now
        if self.is_leader:
            self._lead(actions, now)

    def _on_granted(self, event: Granted, now: float, actions: list[Action]) -> None:
        if not self.is_leader:
            return
        for attempt in event.gone:
            self.replica.add(GONE, attempt)
        for lease in event.leases:
            self.replica.add(TASK, lease.attempt, lease=lease)
        self._batches.append((event.number, self.replica.version))
        self._commit(now, actions)
        self._tell(now, actions)

    def _on_ended(self, event: Ended, now: float, actions: list[Action]) -> None:
        if self.is_leader:
            for id in event.ids:
                self._remove(id)
            self._commit(now, actions)
            self._tell(now, actions)

    def _on_contact(self, event: Contact, now: float, actions: list[Action]) -> None:
        was_cut_off = self.is_cut_off(now)
        self._contact = max(self._contact, event.at)
        if was_cut_off and not self.is_cut_off(now):
            self._candidacy, self._round_at = None, None
            if self.term:
                actions.append(Note("the server answers again"))

    def _on_state(self, event: State, now: float, actions: list[Action]) -> None:
        self._state = event

    # --- terms
    def _adopt(self, term: int, leader: str, address: str, now: float, actions: list[Action]) -> None:
        """Follow another leader, or lead."""
        self._give_up(actions)
        self.term, self.leader, self.leader_address = term, leader, address
        self._former.append(self.replica)
        self.replica, self.committed = Replica(term), 0
        self._candidacy, self._failed_at, self._is_elected, self._voted = None, None, True, None
        self._asking, self._ask_at, self._said = 0, now, None
        actions.append(Note(f"term={term} leader={leader[:12] or 'none'}{' (we)' if leader == self.id else ''}"))

    def _give_up(self, actions: list[Action]) -> None:
        """Lead no more: who waits for us hears that."""
        for one in self._followers.values():
            if one.ticket is not None:
                actions.append(Say(one.ticket, Lead(self.term, "")))
        actions += [Say(ticket, Lead(self.term, "")) for ticket in self._parked]
        self._followers, self._parked = {}, {}
        self._changes.clear()
        self._batches.clear()
        self.seen, self._round_at, self._member_entry = 0, None, 0

    def _lead(self, actions: list[Action], now: float) -> None:
        """Lead from now on, with what the replica has."""
        self.leader, self.leader_address, self._is_elected = self.id, self.address, True
        self._lonely_since = now
        if self.id not in self.replica.members:
            self._member_entry = self.replica.add(MEMBER, self.id, self.address)
        self._commit(now, actions)

    # --- followers ask
    def _on_asked(self, event: Asked, now: float, actions: list[Action]) -> None:
        if isinstance(event.message, Elect):
            actions.append(Say(event.ticket, self._vote(event, event.message, now, actions)))
        else:
            self._on_follow(event, event.message, now, actions)

    def _on_follow(self, event: Asked, message: Follow, now: float, actions: list[Action]) -> None:
        if message.term == self.term and self._candidacy is not None and self._candidacy.term == self.term:
            self._parked[event.ticket] = now + self.hold  # it voted for us: we may lead in a moment
            return
        if message.term != self.term or not self.is_leader:
            # An older term: the sender learns the new one. A newer one, ours by the server's word, comes to us later.
            leader = self.leader if self._is_elected and self.term > message.term else ""
            actions.append(Say(event.ticket, Lead(self.term, leader, self.leader_address)))
            return
        one = self._followers.setdefault(event.sender, Follower(event.address))
        if message.seq <= one.seq:
            actions.append(Say(event.ticket, Lead(self.term, self.id, self.address, committed=one.told)))
            return
        if one.ticket is not None:
            actions.append(Say(one.ticket, Lead(self.term, self.id, self.address, committed=one.told)))
        one.seq, one.version, one.heard, one.address = message.seq, message.version, now, event.address
        one.is_cut_off, one.free, one.bids = message.is_cut_off, message.free, message.bids
        one.ticket, one.until = event.ticket, now + self.hold
        if message.bids and self._round_at is not None:
            self._round_at = max(self._round_at, min(now + GATHER, self._gather_until))
        if message.leaving:
            self._remove(event.sender)
        elif self.replica.members.get(event.sender) != event.address:
            self._changes = deque(change for change in self._changes if change[1] != event.sender)
            self._changes.append((MEMBER, event.sender, event.address))
        self._commit(now, actions)
        self._tell(now, actions)

    def _remove(self, id: str) -> None:
        self._changes = deque(change for change in self._changes if change[1] != id)
        if id in self.replica.members and id != self.id:
            self._changes.append((LEFT, id, ""))

    def _commit(self, now: float, actions: list[Action]) -> None:
        """What a majority has is committed; then the next change of the members may come."""
        while True:
            members = self.replica.members
            versions = [self.replica.version if id == self.id else self._version_of(id) for id in members]
            reached = sorted(versions, reverse=True)[self.replica.majority - 1] if versions else self.replica.version
            self.committed = max(self.committed, reached)
            if not self._changes or self.committed < self._member_entry:
                break
            self._member_entry = self.replica.add(*self._changes.popleft())
        while self._batches and self._batches[0][1] <= self.committed:
            self.seen = self._batches.popleft()[0]
        self._begin_own(actions)

    def _version_of(self, id: str) -> int:
        return self._followers[id].version if id in self._followers else 0

    def _tell(self, now: float, actions: list[Action]) -> None:
        """Answer followers for which there is news; those that lack the same get the same object, which is encoded once."""
        same: dict[int, Lead] = {}
        for id, one in self._followers.items():
            if one.ticket is None:
                continue
            awaits = any(one.told < number <= self.committed for number in self.replica.given_to.get(id, {}).values())
            if one.version < self.replica.version or awaits or now >= one.until:
                if one.version not in same:
                    entries, more = self.replica.since(one.version)
                    same[one.version] = Lead(self.term, self.id, self.address, entries, self.committed, more)
                one.told = self.committed
                actions.append(Say(one.ticket, same[one.version]))
                one.ticket = None

    def _begin_own(self, actions: list[Action]) -> None:
        """Begin what was given to us and is committed."""
        leases = []
        for attempt, number in self.replica.given_to.get(self.id, {}).items():
            if number <= self.committed and attempt not in self.taken and attempt in self.replica.tasks:
                self.taken[attempt] = None
                leases.append(self.replica.tasks[attempt])
        if leases:
            self._state = self._state._replace(free=_less(self._state.free, leases))
            actions.append(Start(tuple(leases)))

    # --- we follow
    def _follow(self, now: float, actions: list[Action]) -> None:
        is_cut_off = self.is_cut_off(now)
        bids = []
        if is_cut_off and not self._state.leaving:
            bids = self._bids()
        said = (is_cut_off, self._state.free if bids else None, bids, self._state.leaving, self.replica.version)
        self._has_more_to_say = not self._asking or said != self._said
        if not self._has_more_to_say or now < self._ask_at:
            return
        self._has_more_to_say = False
        self._seq += 1
        self._said, self._asking = said, self._seq
        self._ask_at = now + 0.02  # a newer one may overtake it, but not all the time
        message = Follow(
            self.term, self._seq, self.replica.version, is_cut_off, self._state.free, bids, self._state.leaving
        )
        actions.append(Ask(self.leader, self.leader_address, message, self.hold))

    def _unstarted(self) -> OrderedDict[str, Kind]:
        """The tasks of the window that were given to nobody, by kind."""
        which = self.replica, self.replica.version
        if self._kinds[0] != which:
            self._kinds = which, kinds_of(self.replica.tasks, self.replica.unstarted())
        return self._kinds[1]

    def _bids(self) -> list[KindBid]:
        return bids_of(self._unstarted(), self._state.free, self._state.tags, int(self.id[:8], 16))

    def _on_answered(self, event: Answered, now: float, actions: list[Action]) -> None:
        if isinstance(event.message, Vote):
            self._on_vote(event.sender, event.message, now, actions)
            return
        lead = event.message
        if lead.term > self.term and lead.leader:
            if lead.leader != self.id:
                self._adopt(lead.term, lead.leader, lead.address, now, actions)
            return
        if event.sender != self.leader or self.is_leader or event.asked.term != self.term:
            return
        is_newest = isinstance(event.asked, Follow) and event.asked.seq == self._asking
        self._asking = 0 if is_newest else self._asking
        if lead.term != self.term or lead.leader != self.leader:
            if (
                not lead.leader
                and lead.term == self.term
                and not self._is_elected
                and now < self._told_at + ELECT_AGAIN
            ):
                self._ask_at, self._said = now + RETRY, None  # it still asks us for the rest of our vote
                return
            if not self._is_elected:
                self.leader = ""  # nor was it elected
            self._fail(now)  # it does not lead, or does not know yet that it does
            return
        self._failed_at, self._is_elected = None, True
        self._ask_at = now
        for entry in lead.entries:
            self.replica.take(entry)
        if self.replica.version and not lead.more:
            self._former, self._voted = [], None
        self.committed = max(self.committed, min(lead.committed, self.replica.version))
        self._begin_own(actions)

    def _on_failed(self, event: Failed, now: float, actions: list[Action]) -> None:
        is_ours = isinstance(event.message, Follow) and event.sender == self.leader and event.message.term == self.term
        if is_ours and getattr(event.message, "seq", 0) == self._asking:
            self._asking = 0
            self._fail(now)

    def _fail(self, now: float) -> None:
        self._failed_at = now if self._failed_at is None else self._failed_at
        self._ask_at, self._said = now + RETRY, None

    def _is_lost(self, now: float) -> bool:
        """True if there is no leader, or it has not answered for too long."""
        if self.is_leader:
            return False
        return not self.leader or (self._failed_at is not None and now >= self._failed_at + self.patience)

    # --- elections
    def _merged(self) -> Replica:
        """What we know of this term and of those before it, of which not all came to us with this one."""
        if not self._former:
            return self.replica
        merged = Replica()
        for one in (*self._former, self.replica):
            for entry in one.said():
                merged.hear(entry)
            for attempt, lease in one.tasks.items():
                merged.add(TASK, attempt, lease=lease)
        return merged

    def _vote(self, event: Asked, message: Elect, now: float, actions: list[Action]) -> Vote:
        """Who votes for a candidate takes nothing of the leader before it any more."""
        is_voted = message.term == self.term and self.leader == event.sender and not self.is_leader
        if not (is_voted and message.after and self._voted is not None):
            refused = Vote(self.term, False, self.leader if self._is_elected else "", self.leader_address)
            is_free = (self._is_lost(now) or event.sender == self.leader) and self.is_cut_off(now)
            self._proposed = max(self._proposed, message.term)
            if message.term > self.term and self.may_give(now) and now >= self._elect_at:
                # It voted for somebody in a greater term than ours and cannot go back: we lead on in a greater one.
                self._elect(now, actions)
                return refused
            if message.term <= self.term or not is_free or event.sender not in self._merged().members:
                return refused
            if self.id < event.sender != self.leader and self._candidacy is None and self.address:
                self._elect_at = min(self._elect_at, now)  # we ask ourselves, at once
                return refused
            self._adopt(message.term, event.sender, event.address, now, actions)
            self._is_elected = False
            self._voted = self._merged().said()  # once: a vote on many tasks has many pages
        self._told_at = now
        entries, more = fitting(islice(self._voted or (), message.after, None))
        return Vote(self.term, True, event.sender, event.address, entries, more)

    def _elect(self, now: float, actions: list[Action]) -> None:
        """Ask to lead."""
        self._elect_at = now + ELECT_AGAIN * (1.0 + self.rng.random())
        known = self._merged()
        if self.id not in known.members or not self.address:
            return
        before, self._proposed = self.term, max(self.term, self._proposed) + 1
        self._adopt(self._proposed, "", "", now, actions)
        self._candidacy = Candidacy(self.term, {self.id}, known, {}, now + ELECT_AGAIN, before)
        actions.append(Note(f"term={self.term} we ask to lead"))
        for id, address in known.members.items():
            if id != self.id and address:
                self._candidacy.counts[id] = 0
                actions.append(Ask(id, address, Elect(self.term), 0.0))
        self._win(now, actions)

    def _on_vote(self, sender: str, vote: Vote, now: float, actions: list[Action]) -> None:
        candidacy = self._candidacy
        self._proposed = max(self._proposed, vote.term)
        is_led = not vote.granted and vote.leader not in ("", self.id)
        if is_led and vote.term > (candidacy.before if candidacy is not None else self.term):
            self._candidacy = None
            self._adopt(vote.term, vote.leader, vote.address, now, actions)  # there is one that we did not hear of
            return
        if candidacy is None or not vote.granted or vote.term != candidacy.term or sender not in candidacy.counts:
            return
        candidacy.take(sender, vote, now)
        if vote.more:
            address = candidacy.known.members[sender]
            actions.append(Ask(sender, address, Elect(candidacy.term, candidacy.counts[sender]), 0.0))
        self._win(now, actions)

    def _win(self, now: float, actions: list[Action]) -> None:
        """Lead, if a majority votes for us of the members that we and our voters know."""
        candidacy = self._candidacy
        assert candidacy is not None
        known = candidacy.known
        if len(candidacy.votes.intersection(known.members)) < known.majority:
            return
        self._candidacy = None
        for id, address in known.members.items():
            self.replica.add(MEMBER, id, address)
        self._member_entry = self.replica.version
        for attempt, lease in known.tasks.items():
            self.replica.add(TASK, attempt, lease=lease)
        for attempt, id in known.given.items():
            self.replica.add(GIVEN, attempt, id)
        for entry in known.said():
            if entry.kind == GONE:
                self.replica.add(GONE, entry.name)
        self._former.clear()
        parked, self._parked = self._parked, {}
        self._lead(actions, now)
        waiting = len(self.replica.unstarted())
        actions.append(Note(f"term={self.term} we lead {len(known.members)} members, {waiting} tasks wait"))
        actions += [Say(ticket, Lead(self.term, self.id, self.address)) for ticket in parked]

    # --- rounds and time
    def _round(self, now: float, actions: list[Action]) -> None:
        """Give tasks of the window to whoever bids for them."""
        self._round_at = None
        kinds = self._unstarted()
        bidders: dict[str, tuple[Capacity, list[Any]]] = {}
        for id, one in self._followers.items():
            if one.bids and one.is_cut_off and one.ticket is not None and id in self.replica.members:
                on_way = [
                    self.replica.tasks[attempt]
                    for attempt, number in self.replica.given_to.get(id, {}).items()
                    if number > min(one.version, one.told) and attempt in self.replica.tasks
                ]
                bidders[id] = _less(one.free, on_way), list(one.bids)
        if not self._state.leaving:
            on_way = [
                self.replica.tasks[attempt]
                for attempt in self.replica.given_to.get(self.id, ())
                if attempt not in self.taken and attempt in self.replica.tasks
            ]
            bidders[self.id] = _less(self._state.free, on_way), self._bids()
        pairs = assigned(kinds, bidders, is_exact=len(bidders) <= MOST_EXACT)
        for member, attempt in pairs:
            self.replica.add(GIVEN, attempt, member)
        if pairs:
            self.rounds += 1
            actions.append(Note(f"round={self.rounds} bidders={len(bidders)} given={len(pairs)}"))
            self._commit(now, actions)
            self._tell(now, actions)

    def _wants_round(self) -> bool:
        """True if somebody could begin a task that nobody was given."""
        if not self._unstarted():
            return False
        if any(one.bids and one.ticket is not None for one in self._followers.values()):
            return True
        return not self._state.leaving and bool(self._bids())

    def _on_time(self, now: float, actions: list[Action]) -> None:
        if not self.term:
            return
        for ticket in [ticket for ticket, until in self._parked.items() if now >= until]:
            del self._parked[ticket]
            actions.append(Say(ticket, Lead(self.term, "")))
        if self._candidacy is not None and now >= self._candidacy.until:
            self._give_up(actions)
            self.term, self._candidacy = self._candidacy.before, None
        if self.is_leader:
            self._tell(now, actions)
            self._lead_on(now, actions)
        elif self._is_lost(now):
            if self.is_cut_off(now) and self._candidacy is None:
                self._stand(now, actions)
            elif self.leader and not self.is_cut_off(now):
                self._follow(now, actions)
        elif self.leader:
            self._follow(now, actions)

    def _stand(self, now: float, actions: list[Action]) -> None:
        if self._elect_at < now - 2 * self.patience:  # lost just now: those with lower ids come first
            place = sum(1 for id in self._merged().members if id < self.id)
            self._elect_at = now + 0.1 * min(place, 10) + 0.05 * self.rng.random()
        if now >= self._elect_at:
            self._elect(now, actions)

    def _lead_on(self, now: float, actions: list[Action]) -> None:
        """Rounds while we are cut off; and doubt, if no majority follows us then: there may be another leader."""
        if self.may_give(now):
            self._lonely_since = now
            if self._round_at is None and self._wants_round():
                self._round_at, self._gather_until = now + GATHER, now + MOST_GATHER
            elif self._round_at is not None and now >= self._round_at:
                self._round(now, actions)
            return
        self._round_at = None
        if not self.is_cut_off(now):
            self._lonely_since = now
        elif now >= self._lonely_since + 2 * self.patience:
            self._lonely_since = now
            heard = [id for id, one in self._followers.items() if now <= one.heard + self.patience]
            if len(self.replica.members.keys() & heard) + 1 < self.replica.majority:
                self._elect(now, actions)

    def _keep(self, actions: list[Action]) -> None:
        """Say what the exchanges have to say of the window, if that changed."""
        window = len(self.replica.tasks) if self.is_leader else -1
        kept = Kept(window, self.seen if self.is_leader else 0, len(self.replica.unstarted()))
        if kept != self._kept:
            self._kept = kept
            actions.append(kept)


def _less(free: Capacity, leases: Iterable[Lease]) -> Capacity:
    for lease in leases:
        free = take(free, lease.room)
    return free


_RULES: dict[type, Any] = {
    Named: Member._on_named,
    Granted: Member._on_granted,
    Ended: Member._on_ended,
    Contact: Member._on_contact,
    State: Member._on_state,
    Asked: Member._on_asked,
    Answered: Member._on_answered,
    Failed: Member._on_failed,
    Tick: lambda member, event, now, actions: None,
}
