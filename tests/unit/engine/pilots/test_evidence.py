"""Whose word counts against whom: losses, pilots that give everything back, holders, and sites that fail alike
[promise I11, I12; SPHINX S8; ADR 0020]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import Accept, Expel, Submit
from shoal.model.credentials import alias, digest
from shoal.model.errors import BadInput, Conflict
from shoal.model.limits import MAX_RETURNS, MAX_SIBLINGS, POISON_LOSSES
from shoal.model.timing import Timing
from shoal.sched.retry import MAX_IDLE_PARTS
from shoal.wire.messages import Lease
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import FakePilot, Stand, back, bad, good, later

BLOB = "sha256:" + "0" * 64


def bans(stand: Stand, holder: str) -> set[tuple[str, str]]:
    """Places that are banned for one holder."""
    streaks = stand.engine.state.accounting.evidence_of(holder).places.streaks
    return {key for key, streak in streaks.items() if streak.was_banned}


def texts(stand: Stand, target: str) -> str:
    """All that `why` says."""
    return " ".join(f"{reason.text} {reason.fix}" for reason in stand.engine.why(target, stand.now)[1])


# --- pilots that die under their tasks
def kill_by(stand: Stand, killer: str, cores: int, rounds: int) -> tuple[int, list[str]]:
    """Pilots come, take what they get, and die if the killer is among it, else finish; how many died, and who finished."""
    died, finished = 0, []
    for _ in range(rounds):
        pilot = stand.pilot(cores)
        stand.pass_time(1)
        leases: list[Lease] = [*pilot.took(), *pilot.pull()]
        names = [lease.attempt.partition("#")[0] for lease in leases]
        if killer in names:
            died += 1
            stand.bury(pilot)
        else:
            pilot.talk(*(good(lease.attempt) for lease in leases), leaving="done")
            finished += names
        assert stand.sound()
    return died, finished


@pytest.mark.parametrize(
    "table",
    [{"command": ["x"], "array": "1-8"}, {"function": "gAU=", "calls": ["gAU="] * 8}],
    ids=["commands", "a chunk of calls"],
)
def test_poison_stops_after_three_pilots_and_what_was_leased_with_it_succeeds(table: dict[str, object]) -> None:
    stand = Stand()
    run = int(stand.do(Submit(parse_submission({"tasks": [table]}), "ann", "d")).result["run"][1:])
    stand.commit()
    stand.do(Accept(run))
    died, finished = kill_by(stand, f"r{run}.3", 4, 30)
    assert died == POISON_LOSSES
    assert stand.row(run, 3).cause == "poison"
    assert {stand.state(run, element) for element in range(1, 9) if element != 3} == {"succeeded"}
    assert len(finished) == 7


def test_a_suspect_gets_a_pilot_that_is_kept_free_for_it_and_says_so() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"}, {"array": "1-40"})
    for _ in range(POISON_LOSSES - 1):
        pilot = stand.pilot(3)
        assert len(pilot.pull()) == 3
        stand.bury(pilot)
    busy = stand.pilot(2, host="busy")
    assert [lease.attempt.partition("#")[0] for lease in busy.pull()] == [f"r{run}.1"], (
        "an empty pilot takes one at once"
    )
    assert busy.pull() == [], "and nothing beside it"
    assert "alone" in texts(stand, busy.name)
    other = stand.pilot(2, host="other")
    other.pull()
    first = list(other.held)
    stand.pass_time(1)
    busy.talk(good(*busy.held))
    stand.pass_time(1)
    for _ in range(6):
        stand.pass_time(1)
        for pilot in (busy, other):
            pilot.talk(*(good(attempt) for attempt in list(pilot.held)))
    assert {stand.state(run, element) for element in (1, 2, 3)} == {"succeeded"}
    assert first and stand.sound()


def test_a_suspect_waits_for_a_busy_pilot_to_be_cleared_with_a_reason() -> None:
    stand = Stand()
    busy = stand.pilot(2, host="busy")
    other = stand.submit({"array": "1-9"})
    assert len(busy.pull()) == 2
    run = stand.submit({"array": "1-2", "priority": 5})
    for _ in range(POISON_LOSSES - 1):
        pilot = stand.pilot(2)
        assert len(pilot.pull()) == 2
        stand.bury(pilot)
    stand.pass_time(1)
    assert "alone" in stand.why(run).text and busy.name in stand.why(run).text
    (first, second) = busy.held
    assert busy.talk(good(first)).leases == [], "nothing more until it is empty"
    (lease,) = busy.talk(good(second)).leases
    assert lease.attempt.startswith(f"r{run}.")
    stand.restart()
    busy.talk()
    assert busy.pull() == [], "it is alone after a restart, too"
    assert other and stand.sound()


def test_a_revoked_token_is_no_reason_to_suspect_what_its_pilots_held() -> None:
    stand = Stand()
    run = stand.submit({})
    for number in range(POISON_LOSSES):
        pilot = stand.pilot(token=f"t{number}")
        pilot.pull()
        stand.do(Expel((f"t{number}",), "revoked"))
    assert (stand.state(run), stand.task(run).losses) == ("ready", 0)


def test_a_living_copy_that_shows_up_takes_the_suspicion_back() -> None:
    stand = Stand()
    run = stand.submit({})
    pilots = []
    for _ in range(POISON_LOSSES - 1):
        pilots.append(stand.pilot())
        pilots[-1].work()
        stand.bury(pilots[-1])
    assert stand.task(run).differences.alone
    again = stand.pilot(former=pilots[-1])
    again.talk()
    task = stand.task(run)
    assert (task.losses, task.differences.alone, str(task.state)) == (POISON_LOSSES - 2, False, "running")
    assert stand.sound()


# --- pilots that begin nothing
def test_a_pilot_that_gives_everything_back_is_set_aside_and_why_tells() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-50"})
    pilot, leased = stand.pilot(2, host="lazy"), 0
    for _ in range(20):
        stand.now += 1
        leases = pilot.talk(*(back(attempt, message="I would rather not") for attempt in list(pilot.held))).leases
        leased += len(leases)
    assert 0 < leased <= 2 * (MAX_RETURNS + 1)
    assert ("pilot", pilot.name) in bans(stand, "ann")
    assert "gave back" in stand.why(run).text and "I would rather not" in stand.why(run).text
    assert "gave back" in texts(stand, pilot.name)
    stand.now += 600
    (probe,) = pilot.talk().leases
    pilot.talk(good(probe.attempt))
    assert bans(stand, "ann") == set(), "one that works again is not held back"


def test_what_was_asked_back_or_is_given_back_on_leaving_is_held_against_nobody() -> None:
    stand = Stand()
    stand.submit({"array": "1-50"})
    pilot = stand.pilot(2)
    for _ in range(MAX_RETURNS + 2):
        stand.now += 1
        pilot.pull()
        stand.engine.state.pilots[pilot.name].asked_back = stand.now
        pilot.talk(*(back(attempt) for attempt in list(pilot.held)), free=pilot.room)
    working = stand.pilot(2, host="other")
    working.pull()
    for _ in range(MAX_RETURNS + 2):
        stand.now += 1
        first, *rest = working.held
        working.run(first)
        working.talk(*(back(attempt) for attempt in rest))
        working.talk(good(first))
    assert bans(stand, "ann") == set()


def test_a_task_whose_checkpoint_never_changes_ends_with_a_cause() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"], "cwd": "own"})
    pilot = stand.pilot()
    parts, leases = 0, pilot.pull()
    while leases:
        parts += 1
        leases = pilot.talk(later(leases[0].attempt, BLOB, duration=0.01, exit_code=85)).leases
        assert parts < 50, "for ever"
    row = stand.row(run)
    assert (row.state, row.cause, parts) == ("failed", "task_error", 1 + MAX_IDLE_PARTS)
    assert "left its checkpoint as it was" in row.message


def test_a_checkpoint_that_changes_lets_a_task_go_on_as_often_as_it_likes() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"], "cwd": "own"})
    pilot = stand.pilot()
    leases = pilot.pull()
    for part in range(20):
        leases = pilot.talk(later(leases[0].attempt, f"sha256:{part // 2:064x}")).leases
    stand.restart()
    pilot.talk()
    pilot.talk(good(*pilot.held))
    assert stand.state(run) == "succeeded"


def test_a_checkpoint_that_was_never_declared_is_a_pilots_fault() -> None:
    stand = Stand()
    stand.submit({"array": "1-50"})
    pilot, leased = stand.pilot(host="liar"), 0
    for _ in range(20):
        stand.now += 1
        leased += len(pilot.talk(*(later(attempt, BLOB, started=None) for attempt in list(pilot.held))).leases)
    assert leased <= MAX_RETURNS + 1
    assert ("host", "liar") in bans(stand, "ann")


# --- holders
def lie(stand: Stand, liar: FakePilot, helper: FakePilot, rounds: int = 30) -> None:
    """Failures that are invented, and successes beside them that make them look like the host's fault."""
    for _ in range(rounds):
        stand.now += 1
        helper.talk(*(good(attempt, duration=0.1) for attempt in list(helper.held)))
        liar.talk(*(bad(attempt, duration=0.001, message="mallory was here") for attempt in list(liar.held)))


@pytest.mark.parametrize("victim", [{"owner": "bob"}, {"group": "phys"}])
def test_failures_that_one_holders_pilots_invent_ban_nothing_of_anothers(victim: dict[str, Any]) -> None:
    """Was: places were keyed by host and site as claimed, so nine invented failures banned another's site."""
    stand = Stand()
    stand.group("phys", "bob")
    stand.submit({"array": "1-500"}, owner="mallory")
    run = stand.submit({"array": "1-500"}, owner="bob")
    theirs = stand.pilot(2, host="node1", site="cluster", **victim)
    lie(
        stand,
        stand.pilot(2, host="node1", site="cluster", owner="mallory"),
        stand.pilot(2, host="good", site="elsewhere", owner="mallory"),
    )
    assert ("host", "node1") in bans(stand, "mallory"), "a lie harms the liar"
    holder = victim.get("owner", "@phys")
    assert bans(stand, holder) == set()
    assert len(theirs.pull()) == 2
    said = f"{texts(stand, theirs.name)} {stand.why(run, 400).text} " + " ".join(
        reason.text for reason in stand.engine.why_site("cluster", [theirs.name], stand.now)
    )
    assert "mallory" not in said and "banned" not in said
    for event in stand.events("place_banned"):
        assert event.owner == "mallory"


def test_a_members_own_pilots_do_not_speak_against_the_groups_but_the_groups_do_against_theirs() -> None:
    stand = Stand()
    stand.group("phys", "mallory")
    stand.submit({"command": ["a"], "array": "1-900"}, owner="mallory")
    group = [stand.pilot(1, host=f"node{n}", site="cluster", group="phys") for n in range(2)]
    own = stand.pilot(1, host="laptop", site="home", owner="mallory")
    for _ in range(20):
        stand.now += 1
        own.talk(*(good(attempt, duration=0.1) for attempt in list(own.held)))
        for pilot in group:
            pilot.talk(*(bad(attempt, duration=0.001) for attempt in list(pilot.held)))
    assert bans(stand, "@phys") == set(), "successes on the laptop may be made up"

    stand = Stand()
    stand.group("phys", "anna")
    stand.submit({"command": ["a"], "array": "1-900"}, owner="anna")
    own = stand.pilot(1, host="laptop", site="home", owner="anna")
    own.talk(*(bad(attempt) for attempt in [lease.attempt for lease in own.pull()]))
    node = stand.pilot(1, host="node", site="cluster", group="phys")
    for _ in range(20):
        stand.now += 1
        node.talk(*(good(attempt, duration=0.1) for attempt in list(node.held)))
        own.talk(*(bad(attempt, duration=0.001) for attempt in list(own.held)))
    assert ("host", "laptop") in bans(stand, "anna")
    assert bans(stand, "@phys") == set()


def test_a_groups_ban_does_not_show_one_members_words_to_another() -> None:
    stand = Stand()
    stand.group("phys", "anna", "bob")
    stand.submit({"array": "1-500"}, owner="anna")
    hole = stand.pilot(1, host="hole", site="cluster", group="phys")
    fine = stand.pilot(1, host="fine", site="cluster", group="phys")
    for _ in range(30):
        stand.now += 1
        fine.talk(*(good(attempt, duration=0.1) for attempt in list(fine.held)))
        hole.talk(
            *(bad(attempt, duration=0.001, message="cannot read the secret of anna") for attempt in list(hole.held))
        )
    assert ("host", "hole") in bans(stand, "@phys")
    assert "secret" not in texts(stand, hole.name) and "exit code 1" in texts(stand, hole.name)


def test_what_is_held_against_a_holders_places_survives_a_restart_as_theirs() -> None:
    stand = Stand()
    stand.submit({"array": "1-500"}, owner="mallory")
    liar = stand.pilot(2, host="node1", site="cluster", owner="mallory")
    lie(stand, liar, stand.pilot(2, host="good", site="elsewhere", owner="mallory"))
    before = bans(stand, "mallory")
    stand.restart()
    assert before and bans(stand, "mallory") == before
    assert bans(stand, "bob") == set()


# --- sites that fail alike
def play(stand: Stand, good_ones: list[FakePilot], bad_ones: list[FakePilot], rounds: int, **how: object) -> None:
    for _ in range(rounds):
        stand.now += 1
        for pilot in bad_ones:
            pilot.talk(*(bad(attempt, **how) for attempt in list(pilot.held)))
        for pilot in good_ones:
            pilot.talk(*(good(attempt, duration=1.0) for attempt in list(pilot.held)))
        stand.pass_time(0.1)


@pytest.mark.parametrize("is_first", [True, False])
def test_of_120_tasks_on_a_site_that_fails_everything_none_fails_for_good(is_first: bool) -> None:
    """Was: two hosts of one site were two witnesses, so the task was to blame, and two failed before the ban."""
    stand = Stand()
    run = stand.submit({"array": "1-120"})
    pit = [stand.pilot(4, host=f"pit{n}", site="pit") for n in range(3)]
    fine = [stand.pilot(2, host="fine", site="fine")]
    if is_first:
        play(stand, [], pit, 10, duration=0.001)
    play(stand, fine, pit, 90, duration=0.001)
    assert stand.engine.state.runs[run].finals == {"succeeded": 120}
    assert stand.sound()


def test_a_kind_that_fails_at_two_sites_is_the_tasks_own_and_bans_nobody() -> None:
    stand = Stand()
    run = stand.submit({"command": ["broken", "{i}"], "array": "1-40"})
    pilots = [stand.pilot(2, host=f"{site}{n}", site=site) for site in "ab" for n in range(2)]
    play(stand, [], pilots, 40)
    assert stand.engine.state.runs[run].finals == {"failed": 40}
    assert stand.events("place_banned") == []
    tries = sum(stand.row(run, element).attempt for element in range(1, 41))
    assert tries <= 40 + 2 * 5 * len(pilots), "once the kind is known to be bad, each of it is tried once"
    assert stand.sound()


def test_setup_that_fails_on_every_host_of_one_site_is_tried_at_another() -> None:
    stand = Stand()
    run = stand.submit({"setup": ["module load gcc"], "array": "1-6"})
    pit = [stand.pilot(1, host=f"pit{n}", site="pit") for n in range(4)]
    fine = stand.pilot(1, host="fine", site="fine")
    play(stand, [fine], pit, 30, cause="host_unfit", started=None, message="no module gcc")
    assert stand.engine.state.runs[run].finals == {"succeeded": 6}


def test_a_task_goes_back_when_its_second_site_is_gone() -> None:
    stand = Stand()
    run = stand.submit({})
    here, there = stand.pilot(host="here", site="a"), stand.pilot(host="there", site="b")
    (lease,) = here.pull()
    assert here.talk(bad(lease.attempt)).leases == []
    stand.bury(there)
    assert "site a" in stand.why(run).text
    stand.restart()
    here.talk()
    stand.pass_time(1)
    assert len([*here.took(), *here.pull()]) == 1
    assert stand.sound()


# --- sites that are slow
def test_a_site_where_everything_runs_over_its_time_is_banned_and_its_tasks_succeed_elsewhere() -> None:
    """Was: hosts were compared inside their site only, so nothing was ever held against a site that is slow as a whole."""
    stand = Stand()
    run = stand.submit({"array": "1-60", "time": "10s", "retries": 0})
    slow = [stand.pilot(2, host=f"slow{n}", site="slow") for n in range(3)]
    fast = stand.pilot(2, host="fast", site="fast")
    for _ in range(40):
        for pilot in slow:
            pilot.pull()
        for _ in range(5):
            stand.now += 2
            fast.talk(*(good(attempt, duration=2.0) for attempt in list(fast.held)))
        for pilot in slow:
            pilot.talk(*(bad(attempt, cause="over_time", duration=10.0) for attempt in list(pilot.held)))
        stand.pass_time(0.1)
    assert {stand.state(run, element) for element in range(1, 61)} == {"succeeded"}
    assert ("site", "slow") in {(e.data["place"], e.data["name"]) for e in stand.events("place_banned")}
    (event, *_) = [e for e in stand.events("place_banned") if e.data["place"] == "site"]
    assert "other sites" in event.data["reason"]
    wasted = [e for e in stand.events("task_retried") if e.site == "slow"]
    assert len(wasted) <= 3 * 6, "three waves at most, over six minutes"


def test_a_time_that_is_too_short_everywhere_is_the_tasks_own() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-12", "time": "10s"})
    pilots = [stand.pilot(2, host=f"h{site}", site=site) for site in "ab"]
    for _ in range(30):
        stand.now += 10
        for pilot in pilots:
            pilot.talk(*(bad(attempt, cause="over_time", duration=10.0) for attempt in list(pilot.held)))
    assert stand.engine.state.runs[run].finals == {"failed": 12}
    assert stand.events("place_banned") == []


def test_a_site_where_several_kinds_run_over_their_times_is_slow_whatever_they_do_elsewhere() -> None:
    stand = Stand()
    for kind in "abc":
        stand.submit({"command": [kind], "array": "1-3", "time": "100s", "require": "site == 'slow' or late == true"})
    slow = stand.pilot(3, host="slow", site="slow")
    stand.pilot(1, host="other", site="other", tags={"late": True})
    for _ in range(4):
        stand.now += 100
        slow.talk(*(bad(attempt, cause="over_time", duration=100.0) for attempt in list(slow.held)))
    assert ("site", "slow") in bans(stand, "ann")


# --- a loss that a neighbour saw
def test_a_joining_pilot_tells_which_pilots_of_its_host_are_dead_and_their_tasks_run_at_once() -> None:
    stand = Stand()
    run = stand.submit({})
    dead = stand.pilot(identity="box")
    dead.work()
    fresh = stand.pilot(identity="box", ended=[alias(dead.session)])
    assert (stand.state(run), dead.name in stand.engine.state.pilots) == ("ready", False)
    assert "is gone, says" in stand.events("pilot_gone")[0].data["reason"]
    assert len(fresh.pull()) == 1
    assert stand.sound()


def test_a_living_neighbour_tells_it_with_an_exchange() -> None:
    stand = Stand()
    run = stand.submit({})
    dead, living = stand.pilot(identity="box"), stand.pilot(identity="box", host="host")
    dead.work()
    assert len(living.talk(ended=[digest(dead.session)]).leases) == 1
    assert stand.task(run).losses == 1
    assert stand.sound()


@pytest.mark.parametrize(
    "teller",
    [
        {"identity": "box", "owner": "mallory"},
        {"identity": "another"},
        {"identity": "box", "owner": "", "group": "phys"},
    ],
    ids=["another holder", "another host", "a group"],
)
def test_nobody_is_believed_about_pilots_of_another_holder_or_host(teller: dict[str, Any]) -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot(identity="box")
    pilot.work()
    liar = stand.pilot(**teller, ended=[digest(pilot.session), "made up"])
    liar.talk(ended=[digest(pilot.session)])
    assert stand.state(run) == "running" and pilot.name in stand.engine.state.pilots


def test_the_right_of_an_exclusive_task_to_run_does_not_end_by_a_neighbours_word() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    dead = stand.pilot(identity="box")
    dead.work()
    fresh = stand.pilot(identity="box", ended=[digest(dead.session)])
    assert fresh.pull() == [] and stand.state(run) == "running"
    stand.pass_time(Timing().hold + Timing().margin + 1)
    fresh = stand.pilot(identity="box")
    assert len(fresh.pull()) == 1


def test_the_place_of_a_dead_pilot_is_free_for_its_successor_where_a_token_lets_in_so_many() -> None:
    stand = Stand()
    dead = stand.pilot(identity="box", token="t", max_pilots=1)
    with pytest.raises(Conflict, match="1 pilot in at a time"):
        stand.pilot(identity="box", token="t", max_pilots=1)
    stand.pilot(identity="box", token="t", max_pilots=1, ended=[digest(dead.session)])
    assert len(stand.engine.state.pilots) == 1


def test_too_many_dead_neighbours_at_once_are_refused() -> None:
    stand = Stand()
    with pytest.raises(BadInput):
        stand.pilot(ended=["0" * 64] * (MAX_SIBLINGS + 1))
    with pytest.raises(BadInput):
        stand.pilot().talk(ended=["0" * 64] * (MAX_SIBLINGS + 1))
