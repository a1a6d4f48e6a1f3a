"""Rules make tasks of files, each file once, and a run with rules is over when nothing can come any more [CMS C8; ADR 0058]."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

import pytest

from shoal.engine.commands import Accept, AdvancePlan, Cancel, Submit, TellFiles
from shoal.model.errors import BadInput, Conflict
from shoal.wire.messages import Lease
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import OWNER, FakePilot, Stand, bad, good

READ = {"command": ["read", "{n}"], "name": "read", "params": {"n": [1, 2, 3]}, "outputs": ["raw/{n}.dat"]}
RECO = {"name": "reco", "files": "raw/*.dat", "command": ["reco", "{file}"], "outputs": ["reco/{file.stem}.out"]}
MERGE = {
    "name": "merge", "files": "reco/*.out", "gather": 2, "command": ["cat", "{files}"], "inputs": ["{files}"],
    "outputs": ["merged/{number}.out"],
}  # fmt: skip
WATCH = {**RECO, "watch": "1h"}


def settle(stand: Stand, *pilots: FakePilot) -> list[Lease]:
    """Make durable what the last command brought, and have it accepted as the server does; what waiting pilots get by that."""
    grown, leases = stand.last.offers, []
    stand.commit()
    for run, first, count in grown:
        stand.do(Accept(run, first, count))
        leases += [lease for pilot in pilots for lease in pilot.took()]
    assert stand.sound()
    return leases


def work_off(stand: Stand, pilot: FakePilot, *held: Lease) -> list[list[str]]:
    """Have a pilot do what it holds and whatever comes until nothing does: the commands, in order."""
    done: list[list[str]] = []
    waiting = [*held]
    while waiting or (waiting := pilot.pull()):
        lease = waiting.pop(0)
        done.append(lease.command)
        waiting += pilot.talk(good(lease.attempt)).leases
        waiting += settle(stand, pilot)
    return done


def tell(stand: Stand, run: int, *names: str, end: bool = False) -> Any:
    told = stand.do(TellFiles(run, tuple((name, 10) for name in names), end)).result
    settle(stand)
    return told


def test_outputs_make_tasks_and_what_is_left_is_merged_at_the_end() -> None:
    stand = Stand()
    run = stand.submit(READ, rules=[RECO, MERGE])
    commands = work_off(stand, stand.pilot(1))
    assert sorted(c for c in commands if c[0] == "reco") == [["reco", f"raw/{n}.dat"] for n in (1, 2, 3)]
    merges = [c[1:] for c in commands if c[0] == "cat"]
    assert [len(files) for files in merges] == [2, 1]
    assert sorted(file for files in merges for file in files) == [f"reco/{n}.out" for n in (1, 2, 3)]
    assert stand.engine.state.runs[run].finished is not None
    found = stand.reader.run(run)
    assert found is not None and found["total"] == 8
    assert [(rule["name"], rule["files"], rule["waiting"], rule["tasks"]) for rule in found["rules"]] == [
        ("reco", 3, 0, 3), ("merge", 3, 0, 2),
    ]  # fmt: skip


def test_an_output_is_where_the_directory_of_its_own_task_is() -> None:
    stand = Stand()
    read = {**READ, "cwd": "sub/{n}", "outputs": ["o.dat"]}
    run = stand.submit(read, rules=[{**RECO, "files": "sub/*/o.dat", "watch": "1h"}])
    assert tell(stand, run, "sub/1/o.dat", "sub/4/o.dat")["files"] == 1, "one is an output of a task"
    commands = work_off(stand, stand.pilot(1))
    assert sorted(c[1] for c in commands if c[0] == "reco") == [f"sub/{n}/o.dat" for n in (1, 2, 3, 4)]


def test_a_task_of_a_rule_is_offered_only_once_it_is_durable() -> None:
    stand = Stand()
    stand.submit({**READ, "params": {"n": [1]}}, rules=[RECO])
    pilot = stand.pilot(2)
    (lease,) = pilot.pull()
    assert pilot.talk(good(lease.attempt)).leases == [], "it is not written yet"
    settle(stand)
    assert [one.command for one in pilot.pull()] == [["reco", "raw/1.dat"]]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_crash_after_a_report_loses_no_file_and_takes_none_twice(is_committed: bool) -> None:
    stand = Stand()
    run = stand.submit({**READ, "params": {"n": [1, 2]}}, rules=[RECO, {**MERGE, "gather": 5}])
    pilot = stand.pilot(2)
    one, two = pilot.pull()
    stand.commit()
    pilot.talk(good(one.attempt))
    if is_committed:
        stand.commit()
    stand.crash()
    leases = [*pilot.talk(good(one.attempt), good(two.attempt)).leases, *settle(stand, pilot)]
    commands = Counter(map(tuple, work_off(stand, pilot, *leases)))
    assert commands["reco", "raw/1.dat"] == commands["reco", "raw/2.dat"] == 1
    assert sum(1 for command in commands if command[0] == "cat") == 1
    assert stand.engine.state.runs[run].finished is not None


def test_files_from_outside_are_taken_once_however_often_they_are_told() -> None:
    stand = Stand()
    run = stand.submit(rules=[WATCH, MERGE])
    assert tell(stand, run, "raw/a.dat", "raw/b.dat", "raw/.c.dat", "other/d.dat", "raw/deep/e.dat")["tasks"] == 2
    assert tell(stand, run, "raw/a.dat", "raw/b.dat") == {"run": f"r{run}", "files": 0, "tasks": 0}
    stand.restart()
    assert tell(stand, run, "raw/b.dat", "raw/f.dat")["tasks"] == 1
    pilot = stand.pilot(4)
    commands = work_off(stand, pilot)
    assert sorted(c[1] for c in commands if c[0] == "reco") == ["raw/a.dat", "raw/b.dat", "raw/f.dat"]
    assert sum(c[0] == "cat" for c in commands) == 1, "one file waits for more of them"
    assert stand.engine.state.runs[run].finished is None
    assert "merge has 1 file" in stand.engine.why(run, stand.now)[1][0].text
    stand.do(TellFiles(run, end=True))
    assert [len(c) - 1 for c in work_off(stand, pilot, *settle(stand, pilot))] == [1]
    assert stand.engine.state.runs[run].finished is not None
    with pytest.raises(Conflict):
        stand.do(TellFiles(run, (("raw/g.dat", 1),)))


def test_a_watch_ends_when_no_file_came_for_its_time_and_a_quiet_run_is_over() -> None:
    stand = Stand()
    run = stand.submit(rules=[WATCH])
    stand.pass_time(3_000)
    tell(stand, run, "raw/a.dat")
    work_off(stand, stand.pilot(1))
    stand.pass_time(3_000)
    assert stand.engine.state.runs[run].finished is None
    stand.pass_time(700)
    assert stand.engine.state.runs[run].finished is not None
    assert [event.data for event in stand.events("watch_ended")] == [{"files": 1}]


def test_time_in_which_the_server_is_away_ends_no_watch() -> None:
    stand = Stand()
    run = stand.submit(rules=[WATCH])
    stand.commit()
    stand.now += 5 * 3_600
    stand.restart()
    stand.pass_time(1)
    assert tell(stand, run, "raw/a.dat")["tasks"] == 1, "it came meanwhile"
    work_off(stand, stand.pilot(1))
    stand.pass_time(3_700)
    assert stand.engine.state.runs[run].finished is not None


def test_no_watch_ends_before_its_run_is_planned() -> None:
    stand = Stand()
    body = {"tasks": [], "rules": [WATCH], "plan": 0.9}
    run = int(stand.do(Submit(parse_submission(body), OWNER, "d", plan={"accept": 0.9})).result["run"][1:])
    settle(stand)
    for _ in range(3):
        stand.pass_time(3_000)
    due = stand.engine.deadline()
    assert due is not None and due > stand.now and stand.events("watch_ended") == []
    stand.do(AdvancePlan(run, "unreduced", "unfinished"))
    settle(stand)
    stand.pass_time(3_000)
    assert tell(stand, run, "raw/a.dat")["tasks"] == 1
    stand.pass_time(3_700)
    assert len(stand.events("watch_ended")) == 1
    assert work_off(stand, stand.pilot(1)) == [["reco", "raw/a.dat"]]


def test_bytes_or_time_are_enough_for_a_merge() -> None:
    stand = Stand()
    gather = {"gather": 100, "gather_size": 1_000, "gather_within": "5m"}
    run = stand.submit(READ, rules=[{**MERGE, **gather, "files": "raw/*.dat"}])
    pilot = stand.pilot(1)
    leases: list[Lease] = []
    for size in (400, 600, 10):
        (lease,) = [*pilot.pull(), *leases][:1]
        assert lease.measure
        leases = pilot.talk(good(lease.attempt, sizes=[size])).leases
        settle(stand)
    growth = stand.engine.state.runs[run].growth
    assert growth is not None
    assert [len(files) for files in (growth.rules[0].tasks, growth.rules[0].waiting)] == [1, 1]
    stand.pass_time(301)
    settle(stand)
    assert [len(files) for files in (growth.rules[0].tasks, growth.rules[0].waiting)] == [2, 0]


def test_a_size_beyond_all_bounds_in_a_result_is_not_written_to_the_database() -> None:
    stand = Stand()
    run = stand.submit({**READ, "params": {"n": [1]}}, rules=[RECO])
    pilot = stand.pilot(1)
    (lease,) = pilot.pull()
    pilot.talk(good(lease.attempt, result=f'{{"kept":{{"raw/1.dat":["sha256:{"a" * 64}",{10**30},420]}}}}'))
    settle(stand)  # SQLite has no number of this size
    assert work_off(stand, pilot) == [["reco", "raw/1.dat"]]
    assert stand.engine.state.runs[run].finished is not None


def test_no_file_comes_back_to_a_rule() -> None:
    stand = Stand()
    again = {**RECO, "files": "raw/*.dat", "outputs": ["raw/x{file.stem}.dat"]}
    run = stand.submit(READ, rules=[again])
    assert len(work_off(stand, stand.pilot(1))) == 6
    assert stand.engine.state.runs[run].finished is not None


def test_what_a_task_of_the_run_writes_does_not_come_from_outside_before_it_is_done() -> None:
    stand = Stand()
    run = stand.submit(READ, rules=[WATCH])
    pilot = stand.pilot(1)
    (lease,) = pilot.pull()
    assert tell(stand, run, "raw/1.dat", "raw/2.dat", "raw/4.dat")["files"] == 1, "two are half written, or will be"
    stand.restart()
    assert tell(stand, run, "raw/1.dat")["files"] == 0
    leases = [*pilot.talk(bad(lease.attempt)).leases, *settle(stand, pilot)]
    assert tell(stand, run, "raw/1.dat")["files"] == 0, "an attempt that failed left it"
    done = work_off(stand, pilot, *leases)
    assert sorted(c[1] for c in done if c[0] == "reco") == ["raw/2.dat", "raw/3.dat", "raw/4.dat"]


def test_what_a_watching_rule_writes_does_not_come_back_to_it_from_outside() -> None:
    stand = Stand()
    run = stand.submit(rules=[{**RECO, "files": "*.dat", "outputs": ["{file.stem}.out.dat"], "watch": "1h"}])
    assert tell(stand, run, "a.dat")["tasks"] == 1
    work_off(stand, stand.pilot(1))
    assert tell(stand, run, "a.dat", "a.out.dat")["tasks"] == 0


def test_outputs_of_very_large_sweeps_are_known_by_their_shape() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-300000", "outputs": ["raw/{i}.dat"]}, rules=[{**WATCH, "files": "raw/*"}])
    assert tell(stand, run, "raw/7.dat", "raw/x.txt")["files"] == 1


def test_a_failed_task_of_a_rule_is_retried_by_hand_and_what_it_writes_goes_on() -> None:
    stand = Stand()
    run = stand.submit({**READ, "params": {"n": [1]}}, rules=[RECO, MERGE])
    pilot = stand.pilot(1)
    (read,) = pilot.pull()
    pilot.talk(good(read.attempt))
    settle(stand)
    (reco,) = pilot.pull()
    pilot.talk(bad(reco.attempt))
    settle(stand)
    assert stand.engine.state.runs[run].finished is not None
    assert stand.retry(run) == 1
    assert [command[0] for command in work_off(stand, pilot)] == ["reco", "cat"]
    assert stand.engine.state.runs[run].finished is not None


def test_a_cancelled_run_grows_no_more_until_it_is_retried() -> None:
    stand = Stand()
    run = stand.submit(READ, rules=[WATCH, MERGE])
    stand.cancel(run)
    settle(stand)
    assert stand.engine.state.runs[run].finished is not None
    with pytest.raises(Conflict):
        stand.do(TellFiles(run, (("raw/g.dat", 1),)))
    stand.retry(run)
    tell(stand, run, end=True)
    assert Counter(c[0] for c in work_off(stand, stand.pilot(1))) == {"read": 3, "reco": 3, "cat": 2}


def spared(stand: Stand, pilot: FakePilot, run: int) -> None:
    """One task of a run runs, the run is cancelled but for it, and it succeeds."""
    attempt = pilot.work()
    stand.do(Cancel((run,), unless_running=True))
    settle(stand)
    pilot.talk(good(attempt))
    settle(stand)
    assert stand.engine.state.runs[run].finished is not None and stand.engine.state.runs[run].total == 3


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_task_that_ran_on_in_a_cancelled_run_has_its_files_taken_with_the_retry(is_restarted: bool) -> None:
    stand = Stand()
    run = stand.submit(READ, rules=[RECO, MERGE])
    pilot = stand.pilot(1)
    spared(stand, pilot, run)
    if is_restarted:
        stand.restart()
    assert stand.retry(run) == 2
    commands = work_off(stand, pilot, *settle(stand, pilot))
    assert sorted(c[1] for c in commands if c[0] == "reco") == ["raw/1.dat", "raw/2.dat", "raw/3.dat"]
    assert stand.engine.state.runs[run].finished is not None


@pytest.mark.parametrize("gather", [{}, {"gather": 2, "command": ["reco", "{files}"], "outputs": []}])
def test_a_retry_makes_tasks_of_files_that_wait_though_none_failed(gather: dict[str, Any]) -> None:
    stand = Stand()
    run = stand.submit({**READ, "params": {"n": [1]}}, rules=[{**RECO, **gather}])
    pilot = stand.pilot(1)
    attempt = pilot.work()
    stand.do(Cancel((run,), unless_running=True))
    pilot.talk(good(attempt))
    settle(stand)
    assert stand.engine.state.runs[run].finished is not None
    assert stand.retry(run) == 1
    assert work_off(stand, pilot, *settle(stand, pilot)) == [["reco", "raw/1.dat"]]
    assert stand.engine.state.runs[run].finished is not None
    assert stand.retry(run) == 0


def test_files_wait_while_a_quota_has_no_room_for_more_tasks() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": "ann", "queued": 3}])
    run = stand.submit(READ, rules=[{**RECO, "watch": "1h"}])
    tell(stand, run, "raw/a.dat")
    assert stand.engine.state.runs[run].total == 3
    assert any("quota" in reason.text for reason in stand.engine.why(run, stand.now)[1])
    pilot = stand.pilot(1)
    (lease,) = pilot.pull()
    pilot.talk(good(lease.attempt))
    settle(stand)
    stand.pass_time(1)
    settle(stand)
    assert stand.engine.state.runs[run].total == 4


def test_final_tasks_wait_for_everything_that_grows() -> None:
    stand = Stand()
    run = stand.submit(READ, {"command": ["sum"], "role": "final"}, rules=[RECO, MERGE])
    assert work_off(stand, stand.pilot(1))[-1] == ["sum"]
    assert stand.engine.state.runs[run].finished is not None


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({"shell": "cat {files}"}, 4), ({"shell": "cat {files}", "gather_within": "3s"}, 4),
        ({"command": ["cat", "{files}"], "inputs": ["{files}", "x.cfg"]}, 2),
        ({"command": ["cat", "{files}"], "inputs": ["{files}", "x.cfg"], "gather_size": 10**6}, 2),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_into_one_task_make_several(change: dict[str, Any], least: int) -> None:
    """A parameter has 4,096 bytes, and `inputs` 1,000 names: 1,000 files with long names made the server end itself."""
    stand = Stand()
    run = stand.submit(rules=[{"name": "merge", "files": "raw/*", "gather": 1_000, "watch": "1h", **change}])
    names = [f"raw/{at:04}-{'long' * 9}" for at in range(1_000)]
    for at in range(0, 1_000, 100):
        tell(stand, run, *names[at : at + 100])
    stand.restart()
    stand.pass_time(4.0)
    settle(stand)
    tell(stand, run, end=True)
    pilot, taken = stand.pilot(16), Counter[str]()
    waiting = pilot.pull()
    while waiting:
        taken += Counter(name for one in waiting for name in one.command or shlex.split(one.shell))
        leases = pilot.talk(*[good(one.attempt) for one in waiting]).leases
        waiting = [*leases, *settle(stand, pilot)] or pilot.pull()
    assert [taken[name] for name in names] == [1] * 1_000
    growth = stand.engine.state.runs[run].growth
    assert growth is not None and stand.events("growth_stopped") == []
    assert sum(growth.rules[0].tasks.values()) == 1_000 and len(growth.rules[0].tasks) >= least
    assert stand.engine.state.runs[run].finished is not None


def test_a_file_of_which_no_task_can_be_made_stops_the_rules_and_refuses_no_report() -> None:
    stand = Stand()
    run = stand.submit({**READ, "params": {"n": ["x" * 4_090]}}, rules=[RECO])
    pilot = stand.pilot(1)
    (lease,) = pilot.pull()
    assert pilot.verdict(good(lease.attempt)) == "recorded"
    settle(stand)
    (event,) = stand.events("growth_stopped")
    assert "reco can make no task of raw/x" in event.data["why"] and event.data["waiting"] == 1
    assert stand.engine.state.runs[run].finished is not None
    stand.restart()
    assert stand.sound()


def test_names_with_spaces_braces_and_quotes_stay_one_word_each() -> None:
    stand = Stand()
    shell = {"name": "merge", "files": "raw/*", "gather": 3, "shell": "cat {files} > all"}
    run = stand.submit(
        rules=[{**MERGE, "files": "raw/*", "gather": 3, "watch": "1h"}, {**shell, "name": "m2", "watch": "1h"}]
    )
    tell(stand, run, "raw/a b", "raw/{c}", "raw/d'e", end=True)
    leases = stand.pilot(9).pull()
    commands = [lease.command for lease in leases if lease.command]
    assert sorted(word for command in commands for word in command[1:]) == ["raw/a b", "raw/d'e", "raw/{c}"]
    (text,) = [lease.shell for lease in leases if lease.shell]
    assert shlex.split(text) == ["cat", "raw/a b", "raw/{c}", "raw/d'e", ">", "all"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"files": "/raw/*"}, "no pattern of files below"), ({"files": "raw/**"}, "no pattern"),
        ({"name": "read"}, "two tables are named"), ({"files": ""}, "files is missing"),
        ({"params": {"x": [1]}}, "a rule has no params"), ({"gather_within": "5m"}, "nothing is gathered"),
        ({"gather": 3, "command": ["x"], "outputs": []}, "do not read what is gathered"),
        ({"command": ["x", "{fil}"]}, "not a parameter"),
        ({"colour": 1}, "unknown field"), ({"outputs": ["../{file}"]}, ".."), ({"gather": 0}, "0"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_submission({"tasks": [READ], "rules": [{**RECO, **change}]})
    assert words in str(refused.value) and "rules[0]" in refused.value.field


def test_an_open_run_has_no_rules() -> None:
    with pytest.raises(BadInput):
        parse_submission({"tasks": [], "open": True, "rules": [RECO]})
