"""One member of a mesh: whom it believes, and what it begins [promise I17; LBO III.B]. Of whole meshes: `tests/sim`."""

from __future__ import annotations

from random import Random

from shoal.pilot.leader.events import (
    Action,
    Answered,
    Ask,
    Asked,
    Contact,
    Failed,
    Granted,
    Kept,
    Named,
    Say,
    Start,
    State,
    Tick,
)
from shoal.pilot.leader.member import Member
from shoal.pilot.leader.messages import GIVEN, GONE, MEMBER, TASK, Elect, Entry, Follow, KindBid, Lead, Vote
from shoal.wire.messages import Capacity, Leadership, Lease

ME, OTHER, THIRD = "1" * 64, "2" * 64, "3" * 64
TERM = 1 << 40
BEAT = 10.0
AWAY = 100.0  # when the server has been away for long


def member(id: str = ME) -> Member:
    return Member(id, f"{id[:1]}:1", BEAT, Random(1), 0.0)


def lease(element: int) -> Lease:
    return Lease(f"r1.{element}#1@1~ab", Capacity(1), "safe", ["true"])


def of(kind: type, actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def leader() -> Member:
    """A leader with two tasks, which is alone."""
    one = member()
    one.handle(Named(Leadership(TERM, ME, "1:1")), 1.0)
    one.handle(Granted(1, (lease(1), lease(2)), ()), 1.0)
    return one


def follower() -> Member:
    """A follower with two tasks of the window; another one is a member, too."""
    one = member()
    one.handle(Named(Leadership(TERM, OTHER, "2:1")), 1.0)
    entries = [Entry(at, MEMBER, id, f"{id[:1]}:1") for at, id in enumerate((OTHER, ME, THIRD), 1)]
    entries += [Entry(4, TASK, lease(1).attempt, lease=lease(1)), Entry(5, TASK, lease(2).attempt, lease=lease(2))]
    answered(one, Lead(TERM, OTHER, "2:1", entries, 5), 1.0)
    return one


def answered(one: Member, lead: Lead, now: float) -> list[Action]:
    return one.handle(Answered(OTHER, Follow(TERM, one._seq, 0), lead), now)


def test_while_the_server_answers_a_leader_gives_nothing() -> None:
    one = leader()
    one.handle(Contact(4.0), 5.0)
    assert not of(Start, one.handle(State(Capacity(2), {}, False), 6.0))
    assert not of(Start, one.handle(Tick(), 7.0))


def test_a_leader_that_is_cut_off_and_alone_begins_what_it_has_space_for() -> None:
    one = leader()
    one.handle(State(Capacity(1), {}, False), AWAY)
    (begun,) = of(Start, one.handle(Tick(), AWAY + 1.0))
    assert isinstance(begun, Start)
    assert [each.attempt for each in begun.leases] == [lease(1).attempt]
    assert not of(Start, one.handle(Tick(), AWAY + 2.0)), "its slot is taken"


def test_a_leader_says_what_a_majority_keeps() -> None:
    one = leader()
    (first,) = of(Kept, one.handle(Granted(2, (lease(3),), ()), 2.0))
    assert first == Kept(3, 2, 3)
    one.handle(Asked(OTHER, "2:1", Follow(TERM, 1, 0), 7), 3.0)
    (kept,) = of(Kept, one.handle(Granted(3, (lease(4),), ()), 4.0))
    assert kept == Kept(4, 2, 4), "of two members, one is no majority"
    (kept,) = of(Kept, one.handle(Asked(OTHER, "2:1", Follow(TERM, 2, one.replica.version), 8), 5.0))
    assert kept == Kept(4, 3, 4)


def test_a_follower_begins_what_was_given_to_it_when_a_majority_knows() -> None:
    one = follower()
    attempt = lease(1).attempt
    given = Lead(TERM, OTHER, "2:1", [Entry(6, GIVEN, attempt, ME)], 5)
    assert not of(Start, answered(one, given, 50.0))
    (begun,) = of(Start, answered(one, Lead(TERM, OTHER, "2:1", [], 6), 50.1))
    assert isinstance(begun, Start)
    assert [each.attempt for each in begun.leases] == [attempt]
    assert not of(Start, answered(one, Lead(TERM, OTHER, "2:1", [], 6), 50.2)), "once"


def test_an_older_leader_is_refused() -> None:
    one = follower()
    one.handle(Named(Leadership(TERM + 5, THIRD, "3:1")), 60.0)
    given = Lead(TERM, OTHER, "2:1", [Entry(6, GIVEN, lease(1).attempt, ME)], 6)
    assert not of(Start, one.handle(Answered(OTHER, Follow(TERM, 1, 0), given), 61.0))
    one.handle(Named(Leadership(TERM, OTHER, "2:1")), 62.0)
    assert one.leader == THIRD


def test_a_leader_answers_a_follower_of_an_older_term_with_the_new_one() -> None:
    one = leader()
    (said,) = of(Say, one.handle(Asked(OTHER, "2:1", Follow(TERM - 1, 1, 0), 7), 3.0))
    assert isinstance(said, Say)
    assert said.message == Lead(TERM, ME, "1:1")


def test_nobody_votes_while_its_leader_or_the_server_answers() -> None:
    one = follower()
    (said,) = of(Say, one.handle(Asked(THIRD, "3:1", Elect(TERM + 1), 7), AWAY))
    assert isinstance(said, Say) and isinstance(said.message, Vote)
    assert not said.message.granted
    assert said.message.leader == OTHER


def test_a_vote_tells_what_was_given_and_is_given_once_in_a_term() -> None:
    one = Member(THIRD, "3:1", BEAT, Random(1), 0.0)
    one.handle(Named(Leadership(TERM, OTHER, "2:1")), 1.0)
    entries = [Entry(at, MEMBER, id, f"{id[:1]}:1") for at, id in enumerate((OTHER, ME, THIRD), 1)]
    entries += [Entry(4, TASK, lease(1).attempt, lease=lease(1)), Entry(5, GIVEN, lease(1).attempt, OTHER)]
    answered(one, Lead(TERM, OTHER, "2:1", entries, 5), AWAY)
    one._failed_at = AWAY
    now = AWAY + one.patience + 0.01
    (said,) = of(Say, one.handle(Asked(ME, "1:1", Elect(TERM + 9), 7), now))
    assert isinstance(said, Say) and isinstance(said.message, Vote)
    assert said.message.granted
    assert (GIVEN, lease(1).attempt, OTHER) in {(e.kind, e.name, e.value) for e in said.message.entries}
    (again,) = of(Say, one.handle(Asked(OTHER, "2:1", Elect(TERM + 9), 8), now + 0.1))
    assert isinstance(again, Say) and isinstance(again.message, Vote)
    assert not again.message.granted


def test_who_lost_its_leader_asks_all_others_and_leads_with_a_majority() -> None:
    one = follower()
    asked: list[Ask] = []
    now = AWAY
    while not asked:
        now += 0.25
        assert now < AWAY + 20.0, "a new leader within 20 s"
        found = one.handle(Failed(OTHER, Follow(one.term, one._asking, 0)), now)
        asked = [ask for ask in of(Ask, found) if isinstance(ask, Ask) and isinstance(ask.message, Elect)]
    assert {ask.to for ask in asked} == {OTHER, THIRD}
    term = asked[0].message.term
    given = [Entry(TERM, GIVEN, lease(1).attempt, OTHER)]
    one.handle(Answered(THIRD, asked[0].message, Vote(term, True, ME, "1:1", given)), now)
    assert one.is_leader
    assert one.replica.unstarted() == [lease(2).attempt], "what was given under the last leader is not given again"


def test_after_many_tasks_there_is_a_new_leader_however_many_pages_a_vote_has() -> None:
    """Every page comes 0.5 s after it was asked for, three times as long altogether as a try may wait for one of them."""
    voter, one = Member(THIRD, "3:1", BEAT, Random(1), 0.0), follower()
    voter.handle(Named(Leadership(TERM, OTHER, "2:1")), 1.0)
    entries = [Entry(at, MEMBER, id, f"{id[:1]}:1") for at, id in enumerate((OTHER, ME, THIRD), 1)]
    entries += [Entry(at, GONE, lease(at).attempt) for at in range(4, 1_000)] + [Entry(1_000, GONE, lease(1).attempt)]
    answered(voter, Lead(TERM, OTHER, "2:1", entries, 1_000), 1.0)
    voter._failed_at = now = AWAY
    asked: list[Ask] = []
    while not asked:
        now += 0.25
        found = one.handle(Failed(OTHER, Follow(one.term, one._asking, 0)), now)
        asked = [ask for ask in of(Ask, found) if isinstance(ask, Ask) and ask.to == THIRD]
        asked = [ask for ask in asked if isinstance(ask.message, Elect)]
    begun, pages, told = now, 0, None
    while asked:
        pages += 1
        now += 0.5
        (said,) = of(Say, voter.handle(Asked(ME, "1:1", asked[0].message, pages), now))
        assert isinstance(said, Say) and isinstance(said.message, Vote) and said.message.granted
        told = told or voter._voted
        assert voter._voted is told, "it is put together once"
        follows = Follow(voter.term, voter._seq, 0)  # meanwhile the voter hears that there is no leader yet
        voter.handle(Answered(ME, follows, Lead(voter.term, "")), now)
        found = one.handle(Answered(THIRD, asked[0].message, said.message), now)
        asked = [ask for ask in of(Ask, found) if isinstance(ask, Ask) and isinstance(ask.message, Elect)]
    assert one.is_leader and pages > 5 and now > begun + 2.0
    assert one.replica.unstarted() == [lease(2).attempt], "what is gone is not given"
    voter.handle(Answered(ME, Follow(voter.term, voter._seq, 0), Lead(voter.term, "")), now + 2.0)
    assert voter.leader == "", "nor is a candidate waited for that asks no more"


def test_a_round_gives_to_bidders_and_counts_what_is_on_its_way() -> None:
    one = leader()
    one.handle(Asked(OTHER, "2:1", Follow(TERM, 1, 0), 7), 3.0)
    one.handle(Asked(OTHER, "2:1", Follow(TERM, 2, one.replica.version), 8), 4.0)
    kind = next(iter(one._unstarted()))
    bid = Follow(TERM, 3, one.replica.version, True, Capacity(1), [KindBid(kind, 1.0)])
    one.handle(Asked(OTHER, "2:1", bid, 9), AWAY)
    one.handle(Tick(), AWAY + 0.1)
    assert one.replica.given == {lease(1).attempt: OTHER}
    bid = Follow(TERM, 4, one.replica.version - 1, True, Capacity(1), [KindBid(kind, 1.0)])
    one.handle(Asked(OTHER, "2:1", bid, 10), AWAY + 0.2)
    one.handle(Tick(), AWAY + 0.4)
    assert one.replica.given == {lease(1).attempt: OTHER}, "it has one slot, and does not know yet that it is taken"


def test_a_deadline_stays_until_it_is_handled() -> None:
    """The clock asks for it again and again: one that moved along with the time would never come."""
    alone = leader()
    for one in (alone, follower()):
        for now in (2.0, AWAY, AWAY + 100.0):
            one.handle(Tick(), now)
            due = one.deadline(now)
            if due is None:
                assert one is not alone, "a follower may wait for an answer, which comes or fails"
                continue
            assert one.deadline(now + 0.001) == due
            one.handle(Tick(), due)
            after = one.deadline(due)
            assert after is None or after > due


def test_who_comes_while_the_server_is_away_bids_at_once_and_finds_its_leader_by_itself_once_it_knows_members() -> None:
    """[ADR 0065]."""
    one = member()
    one.come_without_server(AWAY)
    one.handle(Named(Leadership(TERM, OTHER, "2:1")), AWAY)
    assert one.is_cut_off(AWAY)
    one.handle(Answered(THIRD, Follow(0, 1, 0), Lead(TERM + 1, THIRD, "3:1")), AWAY)
    assert (one.term, one.leader, one.is_placed) == (TERM + 1, THIRD, False), "who was said to lead had died"
    one.handle(Answered(OTHER, Follow(0, 1, 0), Lead(TERM, OTHER, "2:1")), AWAY)
    assert one.leader == THIRD, "that was an older one"
    entries = [Entry(1, MEMBER, THIRD, "3:1"), Entry(2, MEMBER, ME, "1:1")]
    asked = Follow(TERM + 1, one._seq, 0)
    one.handle(Answered(THIRD, asked, Lead(TERM + 1, THIRD, "3:1", entries, 2)), AWAY)
    knows_members = one.is_placed
    assert knows_members
    for at in range(1, 200):
        assert not of(Start, one.handle(Tick(), AWAY + at / 10)), "alone it is no majority"
