"""`why` on situations: it names the true cause, and the fix that it offers, applied, makes the task start."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from shoal.engine.commands import Accept
from shoal.engine.why.reason import Reason
from shoal.model.errors import Conflict
from shoal.wire.messages import Capacity
from tests.unit.engine.stand import OWNER, FakePilot, Stand, bad, good

HOUR = 3600.0
GIGA = 1 << 30


class Case(NamedTuple):
    """A task that waits, what must be said of it, and how what is offered is done; that may name another task."""

    run: int
    element: int
    words: tuple[str, ...]
    fix: str
    apply: Callable[[Reason], int | None]


Build = Callable[[Stand], Case]
SITUATIONS: list[Build] = []


def situation(build: Build) -> Build:
    """One line of the table."""
    SITUATIONS.append(build)
    return build


def again(stand: Stand, task: dict[str, Any]) -> Callable[[Reason], int]:
    """Submit the same with the requirement that the fix spells out."""

    def apply(reason: Reason) -> int:
        found = re.search(r"require = '(.*)'", reason.fix)
        if found is None:
            assert reason.fix.endswith("leave `require` out"), reason.fix
        return stand.submit(
            {**task, "require": found[1]} if found else {k: v for k, v in task.items() if k != "require"}
        )

    return apply


def pull(*pilots: FakePilot) -> None:
    for pilot in pilots:
        pilot.pull()


# --- requirements
@situation
def no_such_tag(stand: Stand) -> Case:
    pilot = stand.pilot(tags={"cluster": "blue"})
    task = {"require": "clutser == 'blue' and cores >= 1"}
    run = stand.submit(task)
    pilot.pull()
    return Case(run, 1, ("its requirement holds on no pilot", "clutser", "cluster"), "", again(stand, task))


@situation
def a_number_too_large(stand: Stand) -> Case:
    for at, mhz in enumerate((2100, 3200)):
        stand.pilot(host=f"n{at}", tags={"cpu_mhz": mhz}).pull()
    task = {"require": "cpu_mhz >= 4000 and site == 'local'"}
    run = stand.submit(task)
    words = ("`cpu_mhz >= 4000` holds on 0 of 2 pilots", "without it 2 would match")
    return Case(run, 1, words, "cpu_mhz >= 3200", again(stand, task))


@situation
def a_text_that_no_pilot_has(stand: Stand) -> Case:
    stand.pilot(tags={"arch": "x86_64"}).pull()
    task = {"require": "arch == 'arm64'"}
    return Case(stand.submit(task), 1, ("arch is", "x86_64"), "x86_64", again(stand, task))


@situation
def none_of_a_list(stand: Stand) -> Case:
    stand.pilot(site="desy").pull()
    task = {"require": "site in ['cern', 'gsi'] and cores < 100"}
    return Case(stand.submit(task), 1, ("site in", "desy"), "desy", again(stand, task))


@situation
def two_clauses_that_no_pilot_passes_together(stand: Stand) -> Case:
    stand.pilot(host="a", tags={"gpu": "a100", "mhz": 1000}).pull()
    stand.pilot(host="b", tags={"gpu": "none", "mhz": 3000}).pull()
    task = {"require": "gpu == 'a100' and mhz > 2000"}
    words = ('`gpu == "a100"` holds on 1 of 2 pilots', "`mhz > 2000` holds on 1 of 2 pilots")
    return Case(stand.submit(task), 1, words, "would let 1 pilot match", again(stand, task))


@situation
def a_text_compared_with_a_number(stand: Stand) -> Case:
    stand.pilot(tags={"python": "3.11"}).pull()
    task = {"require": "python >= 3"}
    return Case(stand.submit(task), 1, ("python", "text"), "", again(stand, task))


@situation
def a_requirement_that_does_not_hold_at_the_moment(stand: Stand) -> Case:
    stand.submit({"command": ["other"]})
    pilot = stand.pilot(2)
    first = pilot.work()
    run = stand.submit({"require": "free_cores == 2"})
    pilot.pull()
    words = ("does not hold anywhere at the moment", "free_cores = 1")
    return Case(run, 1, words, "wait", lambda _: pull_none(pilot.talk(good(first))))


def pull_none(_: object) -> None:
    return None


# --- size and kind
@situation
def memory_too_large_everywhere(stand: Stand) -> Case:
    stand.pilot(2).pull()
    run = stand.submit({"memory": "64G"})
    larger = Capacity(2, 128 * GIGA, 1 << 40)
    words = ("no pilot is large enough", "64.0G of memory, has 8.0G")
    return Case(run, 1, words, "start a larger pilot", lambda _: pull(stand.pilot(room=larger, host="big")))


@situation
def cores_too_many(stand: Stand) -> Case:
    pilot = stand.pilot(16, host="n17")
    pilot.pull()

    def apply(reason: Reason) -> int:
        found = re.search(r"needs 64 cores, has (\d+)", stand.why(run).text)
        assert found is not None
        assert "ask for less" in reason.fix
        return stand.submit({"cores": int(found[1])})

    run = stand.submit({"cores": 64})
    return Case(run, 1, ("no pilot is large enough", "64 cores", pilot.name), "ask for less", apply)


@situation
def a_container_without_a_runtime(stand: Stand) -> Case:
    stand.pilot().pull()
    run = stand.submit({"container": "debian:12"})

    def apply(_: Reason) -> None:
        pull(stand.pilot(host="with", tags={"containers": "podman"}))

    return Case(run, 1, ("neither apptainer nor podman nor docker",), "start a pilot where there is one", apply)


# --- quotas, licences
@situation
def over_the_quota_of_running_cores(stand: Stand) -> Case:
    stand.policy(quota=[{"who": OWNER, "cores": 1}])
    run = stand.submit({"array": "1-2"})
    pilot = stand.pilot(4)
    pilot.pull()
    words = ("over quota", "1 core", f"who={OWNER}")

    def apply(_: Reason) -> None:
        stand.policy(quota=[{"who": OWNER, "cores": 2}])
        pilot.pull()

    return Case(run, 2, words, "shoal quota set", apply)


@situation
def over_the_quota_of_a_groups_site(stand: Stand) -> Case:
    stand.group("phys.hep", OWNER)
    stand.policy(quota=[{"who": "@phys", "site": "eu", "cores": 0}])
    run = stand.submit({})
    stand.pilot(4, site="eu.cern", host="a").pull()
    words = ("over quota", "who=@phys", "site=eu")
    return Case(run, 1, words, "shoal quota list", lambda _: pull(stand.pilot(site="us", host="b")))


@situation
def over_the_quota_of_core_hours(stand: Stand) -> Case:
    stand.now = 10 * 24 * HOUR + 22 * HOUR
    stand.policy(quota=[{"who": OWNER, "when": "day", "core_hours": 1.0}])
    run = stand.submit({"array": "1-2", "time": "1h"})
    pilot = stand.pilot(4)
    first = pilot.work()
    stand.now += HOUR
    pilot.talk(good(first, duration=HOUR))

    def apply(_: Reason) -> None:
        stand.now += 1 * HOUR + 1
        pilot.pull()

    return Case(run, 2, ("over quota", "1 core hours", "lifted in 1h"), "wait", apply)


@situation
def the_site_may_run_no_more(stand: Stand) -> Case:
    stand.policy(match={"max_running": 1})
    run = stand.submit({"array": "1-2"})
    pilot = stand.pilot(4, site="eu")
    pilot.pull()
    words = ("site eu is full", "1 task of at most 1", "match.max_running")

    def apply(_: Reason) -> None:
        stand.policy(match={"max_running": 2})
        pilot.pull()

    return Case(run, 2, words, "shoal policy apply", apply)


@situation
def a_licence_that_nobody_has(stand: Stand) -> Case:
    stand.policy(licences={"matlab": 5})
    run = stand.submit({"licences": {"abaqus": 2}})
    stand.pilot().wait()

    def apply(reason: Reason) -> None:
        found = re.search(r"\[licences\] (\w+) = (\d+)", reason.fix)
        assert found is not None
        stand.policy(licences={"matlab": 5, found[1]: int(found[2])})

    return Case(run, 1, ("2 licences abaqus", "has 0", "matlab"), "shoal policy apply", apply)


@situation
def a_licence_that_is_in_use(stand: Stand) -> Case:
    stand.policy(licences={"matlab": 1})
    run = stand.submit({"array": "1-2", "licences": ["matlab"]})
    pilot = stand.pilot(4)
    first = pilot.work()
    return Case(run, 2, ("matlab", "1 of 1"), "wait", lambda _: pull_none(pilot.talk(good(first))))


# --- bad places
def _hole(stand: Stand, names: tuple[str, ...], site: str) -> list[FakePilot]:
    """Pilots that fail everything, while one elsewhere that is gone now did well."""
    run = stand.submit({"array": "1-900"})
    fine = stand.pilot(host="fine", site="fine")
    holes = [stand.pilot(host=name, site=site) for name in names]
    for _ in range(200):
        stand.now += 2
        for hole in holes:
            hole.talk(*(bad(attempt, duration=0.001, message="disk full") for attempt in list(hole.held)))
        fine.talk(*(good(attempt, duration=2.0) for attempt in list(fine.held)))
    stand.cancel(run)
    stand.bury(fine)
    for hole in holes:
        hole.held.clear()
        hole.talk()
    return holes


@situation
def the_host_is_banned(stand: Stand) -> Case:
    (hole,) = _hole(stand, ("hole",), "pit")
    run = stand.submit({"command": ["new"]})
    hole.pull()
    words = ("every fitting pilot is banned", "host hole", "disk full")
    return Case(run, 1, words, "start a pilot on another host", lambda _: pull(stand.pilot(host="other")))


@situation
def the_host_is_banned_and_the_ban_ends(stand: Stand) -> Case:
    (hole,) = _hole(stand, ("hole",), "pit")
    run = stand.submit({"command": ["new"]})

    def apply(_: Reason) -> None:
        for _at in range(100):
            stand.now += 40
            if hole.pull():
                return

    return Case(run, 1, ("banned", "host hole"), "one task is tried there when the ban is over", apply)


@situation
def the_site_is_banned(stand: Stand) -> Case:
    holes = _hole(stand, ("a", "b", "c"), "pit")
    stand.pilot(host="d", site="pit").pull()
    for hole in holes:
        stand.bury(hole)
    run = stand.submit({"command": ["new"]})
    words = ("every fitting pilot is banned", "site pit", "disk full")
    return Case(run, 1, words, "on another host", lambda _: pull(stand.pilot(host="e", site="other")))


@situation
def it_avoids_the_only_host(stand: Stand) -> Case:
    run = stand.submit({"retries": 3})
    one, two = stand.pilot(host="one"), stand.pilot(host="two")
    (lease,) = one.pull()
    one.talk(bad(lease.attempt))
    stand.bury(two)
    words = ("failed on one", "no other pilot can run it")
    return Case(run, 1, words, "start a pilot on another host", lambda _: pull(stand.pilot(host="three")))


@situation
def it_avoids_the_only_host_and_goes_back(stand: Stand) -> Case:
    run = stand.submit({"retries": 3})
    one, two = stand.pilot(host="one"), stand.pilot(host="two")
    (lease,) = one.pull()
    one.talk(bad(lease.attempt))
    stand.bury(two)

    def apply(_: Reason) -> None:
        stand.pass_time(1)
        one.pull()

    return Case(run, 1, ("failed on one",), "it goes back if none is left", apply)


@situation
def its_like_failed_there_and_nobody_knows_why(stand: Stand) -> Case:
    run = stand.submit({"array": "1-20"})
    one, two = stand.pilot(host="one"), stand.pilot(host="two")
    for _ in range(10):
        one.talk(*(bad(attempt) for attempt in list(one.held)))
    stand.pass_time(31)  # the other one is silent
    one.talk()

    def apply(_: Reason) -> None:
        for _at in range(20):
            stand.now += 30
            two.talk()
            one.talk(*(good(attempt, duration=9.0) for attempt in list(one.held)))
            stand.pass_time(31)  # the other one stays silent

    return Case(run, 20, ("failed several times in a row", "another host"), "wait a minute", apply)


# --- time
@situation
def no_pilot_lives_long_enough(stand: Stand) -> Case:
    stand.pilot(ends=1800.0).pull()
    run = stand.submit({"time": "2h"})
    words = ("no pilot lives long enough", "may take 2h", "30m")
    return Case(run, 1, words, "state a shorter `time`", lambda _: stand.submit({"time": "20m"}))


@situation
def no_pilot_lives_as_long_as_its_like_took(stand: Stand) -> Case:
    run = stand.submit({"array": "1-30"})
    long = stand.pilot(host="long")
    leases = long.pull()
    for _ in range(5):
        leases = long.talk(good(leases[0].attempt, duration=900.0)).leases
    stand.bury(long)
    stand.pilot(host="short", ends=600.0).pull()
    words = ("no pilot lives long enough", "took, of its like, 15m")
    return Case(run, 30, words, "a pilot that lives longer", lambda _: pull(stand.pilot(32, host="endless")))


# --- waiting
@situation
def it_waits_for_a_dependency(stand: Stand) -> Case:
    run = stand.submit({"name": "make"}, {"name": "use", "after": ["make"]})
    pilot = stand.pilot()
    first = pilot.work()
    return Case(
        run, 2, ("it waits for make",), "when they have succeeded", lambda _: pull_none(pilot.talk(good(first)))
    )


@situation
def all_slots_are_busy(stand: Stand) -> Case:
    run = stand.submit({"array": "1-3"})
    stand.pilot(2).pull()
    words = ("all slots are busy", "2 tasks on 2 cores of 1 pilot")
    return Case(run, 3, words, "shoal pilot start", lambda _: pull(stand.pilot(host="more")))


@situation
def its_array_is_throttled(stand: Stand) -> Case:
    run = stand.submit({"array": "1-3%1"})
    pilot = stand.pilot(4)
    pilot.pull()
    words = ("1 task of this array run", "its limit is 1")

    def apply(_: Reason) -> int:
        more = stand.submit({"array": "1-3%3"})
        pilot.pull()
        return more

    return Case(run, 2, words, "raise the number behind %", apply)


@situation
def its_run_is_full(stand: Stand) -> Case:
    run = stand.submit({"array": "1-3"}, max_running=1)
    pilot = stand.pilot(4)
    pilot.pull()
    words = ("1 task of this run run", "its limit is 1")

    def apply(_: Reason) -> int:
        more = stand.submit({"array": "1-3"}, max_running=3)
        pilot.pull()
        return more

    return Case(run, 2, words, "larger max_running", apply)


@situation
def no_pilot(stand: Stand) -> Case:
    run = stand.submit({})
    return Case(run, 1, ("no pilot is connected",), "shoal pilot start", lambda _: pull(stand.pilot()))


@situation
def no_pilot_and_why(stand: Stand) -> Case:
    run = stand.submit({})
    stand.engine.state.trouble = "sbatch: invalid partition"
    words = ("no pilot is connected", "sbatch: invalid partition")
    return Case(run, 1, words, "shoal pilot start", lambda _: pull(stand.pilot()))


@situation
def every_pilot_is_ending(stand: Stand) -> Case:
    run = stand.submit({})
    stand.drain(stand.pilot(), why="maintenance")
    words = ("every pilot is ending", "maintenance")
    return Case(run, 1, words, "shoal pilot start", lambda _: pull(stand.pilot(host="new")))


@situation
def every_pilot_is_silent(stand: Stand) -> Case:
    run = stand.submit({"cores": 2})
    pilot = stand.pilot(2)
    stand.pass_time(31)
    return Case(run, 1, ("silent",), "or come back", lambda _: pull(pilot))


@situation
def the_server_restarted(stand: Stand) -> Case:
    run = stand.submit({})
    pilot = stand.pilot()
    stand.restart()
    return Case(run, 1, ("the server restarted", "1 pilot"), "goes on by itself", lambda _: pull(pilot))


@situation
def matching_by_interval(stand: Stand) -> Case:
    stand.policy(match={"mode": "interval", "interval": "9s"})
    stand.pass_time(0.5)
    run = stand.submit({"array": "1-60"})
    pilot = stand.pilot(100)
    pilot.wait()
    stand.pass_time(9)
    pilot.took()
    pilot.wait()

    def apply(_: Reason) -> None:
        for _at in range(5):
            stand.pass_time(9)
            pilot.pull()

    return Case(run, 60, ("the next round of matching is in 9",), "nothing to do", apply)


@situation
def a_pilot_has_room(stand: Stand) -> Case:
    pilot = stand.pilot()
    run = stand.submit({})
    return Case(run, 1, ("takes it with its next exchange",), "nothing to do", lambda _: pull(pilot))


@situation
def its_submission_is_on_its_way_to_the_disk(stand: Stand) -> Case:
    pilot = stand.pilot()
    pilot.pull()
    run = int(stand.send_run({"rerun": "exclusive"})["run"][1:])

    def apply(_: Reason) -> None:
        stand.commit()
        stand.do(Accept(run))

    return Case(run, 1, ("on its way to the disk",), "goes on by itself", apply)


@pytest.mark.parametrize("build", SITUATIONS, ids=[build.__name__ for build in SITUATIONS])
def test_the_cause_is_true_and_the_fix_that_is_offered_helps(build: Build) -> None:
    stand = Stand()
    case = build(stand)
    assert stand.state(case.run, case.element) in ("ready", "waiting"), "it must wait for this to mean anything"
    reason = stand.why(case.run, case.element)
    for words in case.words:
        assert words in reason.text
    assert case.fix in reason.fix
    other = case.apply(reason)
    run, element = (case.run, case.element) if other is None else (other, 1)
    assert stand.state(run, element) in ("leased", "running", "succeeded")
    assert stand.sound()


def test_there_are_enough_situations() -> None:
    assert len(SITUATIONS) >= 18


# --- refusals, runs, pilots, sites, owners
def test_over_the_quota_of_queued_tasks_the_refusal_says_why_and_waiting_helps() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": OWNER, "queued": 1}])
    run = stand.submit({})
    pilot = stand.pilot()
    with pytest.raises(Conflict) as refused:
        stand.submit({})
    assert "at most 1 task may wait or run" in str(refused.value)
    assert "wait until some are done" in (refused.value.hint or "")
    pilot.talk(good(pilot.work()))
    assert stand.state(run) == "succeeded"
    pilot.pull()
    assert stand.state(stand.submit({})) == "leased"


def test_nothing_waits_at_all() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert stand.engine.why(run, stand.now)[1][0].text == "nothing waits: every task is final"
    (reason,) = stand.engine.why_owner(OWNER, stand.now)
    assert reason.text == "nothing of ann waits or runs"
    assert "shoal run" in reason.fix
    assert stand.engine.why(pilot.name, stand.now)[1][0].text == "no task is ready"


def test_an_owner_with_share_0_is_told_so_and_a_share_helps() -> None:
    stand = Stand()
    stand.group("g", "ann", "bob")
    stand.policy(share={"bob": 0})
    stand.submit({"array": "1-40"}, owner="ann")
    run = stand.submit({"array": "1-40"}, owner="bob")
    pilot = stand.pilot(2, group="g")
    pilot.pull()
    reasons = stand.engine.why_owner("bob", stand.now)
    assert any("share 0: 0% of the cores" in reason.text for reason in reasons)
    assert any("with share 0 it starts only what nobody else can use" in reason.fix for reason in reasons)
    stand.policy(share={"bob": 1})
    stand.now += 60
    pilot.talk(good(next(iter(pilot.held)), duration=60.0))
    assert stand.state(run) == "leased"


def test_an_owner_at_a_limit_is_told_which() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": OWNER, "cores": 2}])
    run = stand.submit({"array": "1-9"})
    pilot = stand.pilot(4)
    pilot.pull()
    texts = [reason.text for reason in stand.engine.why_owner(OWNER, stand.now)]
    assert texts[0] == "9 tasks of ann are not final, 2 of them with pilots"
    assert "at a limit: cores 2 of 2 (who=ann)" in texts
    assert any(text.startswith("its next task: over quota") for text in texts)
    stand.policy()
    pilot.pull()
    assert stand.state(run, 3) == "leased"


def test_an_idle_pilot_says_what_it_lacks() -> None:
    stand = Stand()
    pilot = stand.pilot(2, tags={"arch": "arm64"})
    run = stand.submit({"require": "arch == 'x86_64'"})
    pilot.pull()

    def told() -> str:
        return stand.engine.why(pilot.name, stand.now)[1][0].text

    assert told() == "no ready task fits it: a task requires `arch == 'x86_64'`"
    pilot.pull(tags={"arch": "x86_64"})
    assert stand.state(run) == "leased"
    assert told() == "it holds 1 attempt on 2 cores"


def test_an_idle_pilot_whose_owner_may_not_start_says_so() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": OWNER, "cores": 0}])
    pilot = stand.pilot()
    stand.submit({})
    pilot.pull()
    assert "a task waits: over quota" in stand.engine.why(pilot.name, stand.now)[1][0].text


def test_a_banned_pilot_and_one_on_trial_say_so() -> None:
    stand = Stand()
    (hole,) = _hole(stand, ("hole",), "pit")
    stand.submit({"command": ["new"]})
    hole.pull()
    assert "is banned for" in stand.engine.why(hole.name, stand.now)[1][0].text
    for _ in range(100):
        stand.now += 40
        if hole.pull():
            break
    assert "on trial with one task" in stand.engine.why(hole.name, stand.now)[1][0].text


def test_a_site_says_what_its_pilots_do() -> None:
    stand = Stand()
    busy = stand.pilot(2, host="a", site="eu")
    stand.submit({})
    busy.pull()
    idle = stand.pilot(2, host="b", site="eu")
    idle.pull()
    drained = stand.pilot(2, host="c", site="eu")
    stand.drain(drained)
    names = [busy.name, idle.name, drained.name]
    texts = [reason.text for reason in stand.engine.why_site("eu", names, stand.now)]
    assert texts[0] == "3 pilots with 6 cores hold 1 attempt"
    assert f"{idle.name} on b: no task is ready" in texts
    assert any(text.startswith(f"{drained.name} on c: it takes nothing new") for text in texts)
    (nobody,) = stand.engine.why_site("us", [], stand.now)
    assert nobody.text == "no pilot of site us is connected"


def test_a_banned_site_says_so() -> None:
    stand = Stand()
    holes = _hole(stand, ("a", "b", "c"), "pit")
    texts = [reason.text for reason in stand.engine.why_site("pit", [hole.name for hole in holes], stand.now)]
    assert any(text.startswith("the site is banned for") for text in texts)
