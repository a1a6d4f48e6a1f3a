"""The policy as people see and change it, on a real server: who may, what they see, what is refused, and what holds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import clean_env
from tests.integration.guests import ANNA, BOSS, CHEM, MIKE, MONA, OLAF, PHYS, Answer, Guests, Json, leaks, serving

pytestmark = pytest.mark.integration
BYTES = "application/octet-stream"


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[Guests]:
    """Everyone, on a server of one's own."""
    with serving(tmp_path / "guests") as made:
        made.invite()
        yield made


def policy(guests: Guests, who: str = "") -> Json:
    """The policy as somebody (or the administrator) reads it."""
    return guests.do("GET", "/v1/policy", token=guests.people[who].token if who else None)


def change(guests: Guests, document: Json, version: int | None = None, **more: Any) -> Answer:
    """The administrator puts another policy in place."""
    base = policy(guests)["version"] if version is None else version
    return guests.ask("POST", "/v1/policy", {"version": base, "policy": document, **more}, token=guests.admin)


def put(guests: Guests, data: bytes, who: str) -> Answer:
    """Put a blob."""
    path = f"/v1/blobs/sha256:{hashlib.sha256(data).hexdigest()}"
    return guests.ask("PUT", path, data, token=guests.people[who].token, headers={"Content-Type": BYTES})


def test_a_policy_is_changed_kept_journaled_and_audited(guests: Guests) -> None:
    assert policy(guests)["version"] == 0
    document = {"share": {ANNA: 2, f"@{PHYS}": 3}, "quota": [{"who": ANNA, "when": "day", "core_hours": 5}]}
    told = change(guests, document)
    assert (told.status, told.json["version"]) == (200, 1)
    assert told.json["changes"] == [
        f"share.@{PHYS}: 1 -> 3", f"share.{ANNA}: 1 -> 2", f"+ quota of who={ANNA} when=day: core_hours 5",
    ]  # fmt: skip
    assert change(guests, policy(guests)["policy"]).json == {"version": 1, "changes": [], "notes": [], "dry_run": False}
    before = policy(guests)
    assert before["author"] == guests.people[BOSS].name and before["quotas"][0]["lifted"] is not None
    events = guests.do("GET", "/v1/events?kind=policy_changed")["events"]
    assert [(event["data"]["version"], event["data"]["author"]) for event in events] == [(1, before["author"])]
    line = next(line for line in guests.do("GET", "/v1/audit")["audit"] if line["about"].startswith("share."))
    assert (line["what"], line["outcome"], line["owner"]) == ("POST /v1/policy", "ok", before["author"])
    guests.stop()
    guests.start()
    after = policy(guests)
    assert after["changed"] == pytest.approx(before["changed"], abs=1.0)
    assert {**after, "changed": 0} == {**before, "changed": 0}
    users = guests.do("GET", "/v1/users")["users"]
    assert {row["name"]: row["share"] for row in users}[ANNA] == 2
    assert {row["name"]: row["share"] for row in guests.do("GET", "/v1/groups")["groups"]} == {PHYS: 3, CHEM: 1}


def test_a_dry_run_only_says_what_would_change(guests: Guests) -> None:
    told = change(guests, {"share": {ANNA: 2}}, dry_run=True).json
    assert told == {"version": 0, "changes": [f"share.{ANNA}: 1 -> 2"], "notes": [], "dry_run": True}
    assert policy(guests)["version"] == 0 and policy(guests)["policy"]["share"] == {}


def test_a_change_of_an_old_version_is_refused_and_says_whose_change_it_would_undo(guests: Guests) -> None:
    guests.do("POST", "/v1/policy/shares", {"shares": {ANNA: 2}}, token=guests.people[MONA].token)
    late = change(guests, {}, version=0)
    assert (late.status, late.code) == (409, "stale_policy")
    assert f"version 1, changed by {MONA}" in late.json["error"]["message"]
    assert change(guests, {}, version=0, dry_run=True).status == 409
    assert policy(guests)["policy"]["share"] == {ANNA: 2}


def test_of_changes_at_once_one_goes_through_and_none_is_lost(guests: Guests) -> None:
    answers: list[Answer] = []

    def set_share(number: int) -> None:
        answers.append(change(guests, {"share": {ANNA: number}}, version=0))

    threads = [threading.Thread(target=set_share, args=(number,)) for number in range(2, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [200, *[409] * 9]
    (won,) = [answer.json for answer in answers if answer.status == 200]
    assert policy(guests)["policy"]["share"][ANNA] == float(won["changes"][0].rpartition(" ")[2])


def test_each_reads_the_lines_that_concern_them(guests: Guests) -> None:
    document = {
        "share": {ANNA: 2, OLAF: 3, f"@{PHYS}": 4, f"@{CHEM}": 5},
        "quota": [{"who": who, "cores": 7} for who in ("*", ANNA, MIKE, OLAF, f"@{PHYS}", f"@{CHEM}")],
        "ban": {"hook": ["/zqboss-hook"]},
    }
    assert change(guests, document).status == 200
    sees = {
        ANNA: ({ANNA, f"@{PHYS}", "*"}, frozenset({ANNA, PHYS})),
        MONA: ({ANNA, MIKE, f"@{PHYS}", "*"}, frozenset({ANNA, MIKE, MONA, PHYS})),
        OLAF: ({OLAF, f"@{CHEM}", "*"}, frozenset({OLAF, CHEM})),
    }
    for who, (words, may_see) in sees.items():
        answer = guests.ask("GET", "/v1/policy", token=guests.people[who].token)
        assert not leaks(answer, may_see)
        assert {row["who"] for row in answer.json["policy"]["quota"]} == words
        assert {row["who"] for row in answer.json["quotas"]} == words
        assert answer.json["hidden"] == 1 + (4 - len(answer.json["policy"]["share"])) + (6 - len(words))
        shares = guests.ask("GET", "/v1/shares", token=guests.people[who].token)
        assert not leaks(shares, may_see)
        assert {row["owner"] for row in shares.json["shares"]} == may_see - {PHYS, CHEM}
        assert [row["group"] for row in shares.json["groups"]] == [PHYS if who != OLAF else CHEM]
    assert policy(guests)["policy"]["ban"]["hook"] == ["/zqboss-hook"] and policy(guests)["hidden"] == 0


def test_a_manager_divides_inside_the_group_and_nothing_else(guests: Guests) -> None:
    mona = guests.people[MONA].token

    def ask(shares: Json, token: str = mona) -> Answer:
        return guests.ask("POST", "/v1/policy/shares", {"shares": shares}, token=token)

    assert ask({ANNA: 2, MIKE: 0, MONA: 1}).json["changes"] == [f"share.{ANNA}: 1 -> 2", f"share.{MIKE}: 1 -> 0"]
    refused = {"nobody": ask({"nobody": 1}), OLAF: ask({OLAF: 1}), "both": ask({ANNA: 9, OLAF: 1})}
    for name, answer in refused.items():
        assert answer.status == 404, answer
        said = answer.body.decode().replace(OLAF, "nobody")
        assert said == refused["nobody"].body.decode(), name
    assert ask({f"@{CHEM}": 1}).status == 404 and ask({f"@{PHYS}": 9}).status == 403
    assert ask({ANNA: 0, MIKE: 0, MONA: 0}).code == "all_zero"
    for token in (guests.people[ANNA].token, guests.people[OLAF].token):
        assert ask({ANNA: 9}, token).status == 403
    assert guests.ask("POST", "/v1/policy", {"version": 1, "policy": {}}, token=mona).status == 403
    assert policy(guests)["policy"]["share"] == {ANNA: 2, MIKE: 0, MONA: 1}
    assert ask({OLAF: 4, f"@{PHYS}": 2}, guests.admin).status == 200
    assert policy(guests)["policy"]["share"][f"@{PHYS}"] == 2
    lines = [line for line in guests.do("GET", "/v1/audit")["audit"] if line["what"] == "POST /v1/policy/shares"]
    assert {(line["owner"], line["outcome"]) for line in lines} >= {(MONA, "ok"), (MONA, "404"), (ANNA, "403")}


# Whose share is changed, and by whom: the manager of the outer group, of the inner one, of another, a member, the
# administrator. A dash: as if it were not there.
BELOW = """
            mona ina  olaf anna admin
zqanna      Y    -    X    X    Y
inman       Y    Y    X    X    Y
ina         Y    Y    X    X    Y
deepman     Y    Y    X    X    Y
zqolaf      -    -    X    X    Y
@PHYS       X    X    X    X    Y
@PHYS.in    Y    X    X    X    Y
@PHYS.in.d  Y    Y    X    X    Y
@CHEM       -    -    X    X    Y
@PHYSicians -    -    X    X    Y
"""


def test_a_manager_sets_shares_below_their_group_and_never_of_or_beside_it(guests: Guests) -> None:
    for group in (f"{PHYS}.in", f"{PHYS}.in.d", f"{PHYS}icians"):
        guests.do("POST", "/v1/groups", {"name": group})
    ina = guests.add_person("ina", f"{PHYS}.in", "manager")
    guests.add_person("inman", f"{PHYS}.in")
    guests.add_person("deepman", f"{PHYS}.in.d")
    tokens = {
        "mona": guests.people[MONA].token, "ina": ina.token, "olaf": guests.people[OLAF].token,
        "anna": guests.people[ANNA].token, "admin": guests.admin,
    }  # fmt: skip
    head, *rows = (line.split() for line in BELOW.strip().splitlines())
    for number, (who, *cells) in enumerate(rows, 2):
        name = {"zqanna": ANNA, "zqolaf": OLAF}.get(who, who.replace("PHYS", PHYS).replace("CHEM", CHEM))
        for role, cell in zip(head, cells, strict=True):
            answer = guests.ask("POST", "/v1/policy/shares", {"shares": {name: number}}, token=tokens[role])
            assert answer.status == {"Y": 200, "-": 404, "X": 403}[cell], (role, who, answer)
    told = guests.do("GET", "/v1/shares", token=tokens["mona"])
    assert {row["owner"] for row in told["shares"]} == {ANNA, MIKE, MONA, "ina", "inman", "deepman"}
    assert {row["group"] for row in told["groups"]} == {PHYS, f"{PHYS}.in", f"{PHYS}.in.d"}
    told = guests.do("GET", "/v1/shares", token=tokens["anna"])
    assert {row["owner"] for row in told["shares"]} == {ANNA}
    lines = [line for line in guests.do("GET", "/v1/audit")["audit"] if line["what"] == "POST /v1/policy/shares"]
    assert {(line["owner"], line["outcome"]) for line in lines} >= {(MONA, "ok"), (MONA, "404"), ("ina", "403")}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"share": {ANNA: -1}}, "range"),
        ({"share": {ANNA: 1e307}}, "range"),
        ({"share": {ANNA: "2"}}, "range"),
        ({"share": {ANNA: True}}, "range"),
        ({"share": {"nobody": 1}}, "unknown_user"),
        ({"share": {"@nobody": 1}}, "unknown_group"),
        ({"share": {f"@{PHYS}": 1, ANNA: 0, MIKE: 0, MONA: 0}}, "all_zero"),
        ({"share": {"": 1}}, "bad_name"),
        ({"share": {"../x": 1}}, "bad_name"),
        ({"share": {"a" * 1024: 1}}, "bad_name"),
        ({"share": {"\u0430nna": 1}}, "bad_name"),
        ({"quota": [{"who": ANNA, "cores": -1}]}, "range"),
        ({"quota": [{"who": ANNA, "core_hours": 1e307}]}, "range"),
        ({"quota": [{"who": ANNA, "queued": 0.5}]}, "range"),
        ({"quota": [{"who": "nobody", "cores": 1}]}, "unknown_user"),
        ({"quota": [{"who": "root root", "cores": 1}]}, "bad_name"),
        ({"quota": [{"who": ANNA, "cores": 1, "when": "now"}]}, "bad_window"),
        ({"quotas": []}, "unknown_field"),
        ({"ban": {"hook": "rm"}}, "wrong_type"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_one_line(context: Guests, document: Json, code: str) -> None:
    """Rows 74 to 76."""
    answer = change(context, document)
    assert (answer.status, answer.code) == (422, code), answer
    assert "\n" not in answer.json["error"]["message"] and policy(context)["version"] == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"version": 0}', 422),
        ('{"policy": {}}', 422),
        ('{"version": "0", "policy": {}}', 422),
        ('{"version": 0, "policy": []}', 422),
        ('{"version": 0, "policy": {}, "force": true}', 422),
        ('{"version": 0, "policy": {}, "dry_run": 1}', 422),
        ('{"version": 0, "policy": {"share": {"zqanna": NaN}}}', 400),
        ('{"version": 0, "policy": {"quota": [{"who": "zqanna", "core_hours": 1e999}]}}', 400),
        ("[]", 400),
    ],
)
def test_a_change_that_is_none_is_refused(context: Guests, body: str, status: int) -> None:
    answer = context.ask("POST", "/v1/policy", body.encode(), token=context.admin)
    assert answer.status == status, answer
    assert policy(context)["version"] == 0


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """Everyone, for tests that change nothing."""
    with serving(tmp_path_factory.mktemp("policy") / "guests") as made:
        made.invite()
        yield made


# --- what holds
def test_a_limit_below_what_runs_stops_nothing_and_starts_nothing(guests: Guests) -> None:
    newt = guests.add_person("newt")
    alone = {"command": ["true"], "array": "1-4", "rerun": "exclusive"}  # none is fetched ahead
    run = guests.submit(newt.token, "newt", tasks=[alone])
    enrol = guests.mint("enrol", by=newt.token, site="pond")
    pilot = guests.join(enrol.secret, "newt")
    while len(pilot.held) < 2:
        pilot.lease()
    told = change(guests, {"quota": [{"who": "newt", "cores": 1}]}).json
    assert told["notes"] == ["quota of who=newt: 2 cores run now, nothing is stopped, nothing new starts"]
    (row,) = policy(guests, "newt")["quotas"]
    assert (row["kind"], row["limit"], row["used"]) == ("cores", 1, 2)
    idle = guests.join(enrol.secret, "newt", host="newt-idle", identity="newt-idle")
    for one in (pilot, idle) * 5:
        answer = one.talk(free={"cores": 0 if one is pilot else 2})
        assert (answer.json["leases"], answer.json["orders"]) == ([], []), "nothing starts, nothing is stopped"
    pilot.report(min(pilot.held), exit_code=0)
    assert pilot.talk(free={"cores": 1}).json["leases"] == [], "one runs, which is all that may"
    (share,) = [row for row in guests.do("GET", "/v1/shares")["shares"] if row["owner"] == "newt"]
    assert share["cores"] == 1 and 0.0 < share["used"] <= 1.0 and share["queued"] == 3
    assert change(guests, {}).status == 200
    assert idle.lease()["attempt"].startswith(run), "without the limit the others start"


def test_bytes_are_kept_within_a_quota_also_after_a_restart(guests: Guests) -> None:
    assert put(guests, b"a" * 600, ANNA).status == 200
    rule = {"who": f"@{PHYS}", "stored": 1_000}
    assert change(guests, {"quota": [rule]}).status == 200
    for who in (ANNA, MIKE):
        over = put(guests, b"b" * 500, who)
        assert (over.status, over.code) == (507, "quota")
        assert f"quota of who=@{PHYS}" in over.json["error"]["message"]
    assert put(guests, b"b" * 500, OLAF).status == 200, "who is in another group is not asked"
    assert put(guests, b"c" * 400, MIKE).status == 200
    guests.stop()
    guests.start()
    (row,) = policy(guests, ANNA)["quotas"]
    assert (row["kind"], row["used"], row["limit"]) == ("stored", 1_000, 1_000)
    assert put(guests, b"a" * 600, ANNA).status == 200, "what is held already is no more than before"
    assert put(guests, b"d", ANNA).code == "quota"


def test_too_many_tasks_are_refused_by_their_rule(guests: Guests) -> None:
    assert change(guests, {"quota": [{"who": ANNA, "queued": 5}]}).status == 200
    body = {"tasks": [{"command": ["true"], "array": "1-50"}]}
    over = guests.ask("POST", "/v1/runs", body, token=guests.people[ANNA].token)
    assert (over.status, over.code) == (409, "over_quota")
    assert f"quota of who={ANNA}" in over.json["error"]["message"]


# --- what a submission says of pilots
def test_expressions_are_read_when_they_come(context: Guests) -> None:
    """Rows 28 to 30."""
    token = context.people[ANNA].token
    for text, code in (
        ("cores >", "bad_expression"), ("task.colour == 1", "unknown_attribute"), ("().__class__", "bad_expression"),
        ("9**9**9", "expression_too_complex"), ("(" * 1_000 + "1" + ")" * 1_000, "expression_too_complex"),
    ):  # fmt: skip
        for field in ("require", "rank"):
            task = {"command": ["true"], field: text}
            answer = context.ask("POST", "/v1/runs", {"tasks": [task]}, token=token)
            assert (answer.status, answer.code, answer.json["error"]["field"]) == (422, code, field)
            run = context.submit(token, ANNA, open=True, tasks=[])
            answer = context.ask("POST", f"/v1/runs/{run}/tasks", {"first": 1, "tasks": [task]}, token=token)
            assert (answer.status, answer.code) == (422, code)
    done = context.do("POST", "/v1/runs", {"tasks": [{"command": ["true"], "require": "memry_mb > 1"}]}, token=token)
    assert done["warnings"] == ["no pilot has the tag memry_mb (did you mean memory_mb)"]


def test_strict_refuses_what_no_pilot_could_ever_run(context: Guests) -> None:
    """Row 27."""
    token = context.people[ANNA].token
    large = {"tasks": [{"command": ["true"], "cores": 64}], "key": "large"}
    answer = context.ask("POST", "/v1/runs", {**large, "strict": True}, token=token)
    assert (answer.status, answer.code) == (422, "never_fits")
    assert (
        "needs 64 cores, has 2" in answer.json["error"]["message"] and "zqanna-host" in answer.json["error"]["message"]
    )
    assert not leaks(answer, frozenset({ANNA, PHYS}))
    assert context.do("POST", "/v1/runs", {**large, "strict": False}, token=token)["warnings"] == []
    assert context.do("POST", "/v1/runs", large, token=token)["again"], "strict is no part of what is submitted"
    fits = {"tasks": [{"command": ["true"], "cores": 2}], "strict": True}
    assert context.do("POST", "/v1/runs", fits, token=token)["warnings"] == []
    assert context.ask("POST", "/v1/runs", {**fits, "strict": 1}, token=token).status == 422


# --- the hook
def test_a_hook_is_told_of_a_ban_and_of_its_end(guests: Guests, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f'echo "$SHOAL_EVENT $SHOAL_PLACE_KIND $SHOAL_PLACE" >> {told}; echo "heard of $SHOAL_PLACE"'
    document = {"ban": {"hook": ["/bin/sh", "-c", script], "longest": "1m", "scale": "1m"}}
    assert change(guests, document).status == 200
    anna = guests.people[ANNA]
    good = guests.join(anna.enrol.secret, ANNA, host="zqanna-good", identity="zqanna-good", protocol=4)
    bad = guests.join(anna.enrol.secret, ANNA, host="zqanna-bad", identity="zqanna-bad", protocol=4)
    guests.submit(anna.token, ANNA, tasks=[{"command": ["true"], "setup": ["true"], "array": "1-99", "retries": 9}])
    for _ in range(3):
        good.report(good.lease()["attempt"], exit_code=0)
    spare = bad.lease()["attempt"]
    for _ in range(20):
        while bad.held.keys() == {spare} and not told.exists():
            bad.talk(free={"cores": 1})
        attempt = next((held for held in bad.held if held != spare), "")
        if not attempt:
            break
        bad.report(attempt, "failed", cause="host_unfit", exit_code=1, message="module: not found")
    guests.until(lambda: told.exists() and "banned host zqanna-bad\n" in told.read_text(), "the hook is told")
    bad.report(spare, exit_code=0)
    guests.until(lambda: "lifted host zqanna-bad\n" in told.read_text(), "the hook is told of the end")
    guests.until(lambda: "heard of zqanna-bad" in guests.log.read_text(), "what it prints is in the log")
    assert not leaks(guests.ask("GET", "/v1/policy", token=anna.token), frozenset({ANNA, PHYS}))


# --- as a person types it
def test_the_commands_work_on_a_real_server(guests: Guests, tmp_path: Path) -> None:
    def shoal(*words: str, who: str = "") -> subprocess.CompletedProcess[str]:
        token = guests.people[who].token if who else guests.admin
        env = {**clean_env(), "HOME": str(tmp_path), "SHOAL_SERVER": str(guests.told["url"]), "SHOAL_TOKEN": token}
        argv = [sys.executable, "-m", "shoal.cli", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path, check=False)

    done = shoal("share", "set", ANNA, "2", who=MONA)
    assert (done.returncode, done.stdout) == (0, f"share.{ANNA}: 1 -> 2\nthe policy is at version 1\n"), done
    assert shoal("share", "set", OLAF, "2", who=MONA).returncode == 3
    done = shoal("quota", "set", "--who", f"@{PHYS}", "--cores", "10", "--core-hours", "2.5", "--when", "month")
    assert done.returncode == 0, done
    done = shoal("quota", "list", who=ANNA)
    assert f"@{PHYS}" in done.stdout and "core-hours" in done.stdout and "(in " in done.stdout, done
    (tmp_path / "policy.toml").write_text(shoal("policy", "show").stdout + '\n[[quota]]\nwho = "*"\nqueued = 100\n')
    done = shoal("policy", "apply", "policy.toml", "--dry-run")
    assert done.stdout.splitlines()[0] == "+ quota of everybody everywhere: queued 100", done
    done = shoal("policy", "apply", "policy.toml")
    assert done.stdout.splitlines()[-1] == "the policy is at version 3", done
    assert shoal("quota", "drop", "--who", "*").returncode == 0
    assert json.loads(shoal("policy", "show", "--json").stdout)["version"] == 4
    assert ANNA in shoal("share", "list", who=ANNA).stdout and OLAF not in shoal("share", "list", who=ANNA).stdout
