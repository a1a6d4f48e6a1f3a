"""`shoal policy`, `share`, `quota`: what is asked, what people see, and one line for each thing that is wrong."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.admin.policy import to_toml
from shoal.model.policy import BanRule, DataRule, Policy, Rule, UsageRule
from shoal.wire.policy import dump_policy, parse_policy
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer

RICH = Policy(
    shares={"anna": 2.5, "@phys.hep": 3.0, "ben": 0.0},
    usage=UsageRule(half_life=5_400.0, window=604_800.0, buckets=7),
    quotas=(
        Rule("anna", cores=10, core_hours=0.1, stored=3 << 30),
        Rule("*", "eu.cern", "mon-fri 08-18", share=0.5),
        Rule("@phys", queued=100_000, stored=1_000_001),
    ),
    licences={"matlab": 5, "Odd.Name-1": 1},
    ban=BanRule(longest=90.5, hook=("/bin/tell", 'a "b" \\c', "tab\there", "caf\u00e9 \u202e")),
    data=DataRule("idle", 120.0, sites={"hpc": "tracked", "uni.b": "central"}),
)
CHANGED = {"version": 4, "changes": ["quota of who=anna: cores 10 -> 20"], "notes": [], "dry_run": False}


def answer(policy: Policy = RICH, **more: Any) -> dict[str, Any]:
    return {
        "version": 3, "author": "boss", "changed": 1.0, "policy": dump_policy(policy), "hidden": 0, "quotas": [], **more,
    }  # fmt: skip


@pytest.fixture
def pool(server: FakeServer) -> FakeServer:
    """A server with a policy."""
    server.answers |= {
        "/v1/policy": [answer(), CHANGED],
        "/v1/policy/shares": {**CHANGED, "changes": ["share.anna: 1 -> 2"]},
    }
    return server


# --- policy
@pytest.mark.parametrize("policy", [RICH, Policy()])
def test_what_is_shown_reads_back_as_the_same_policy(policy: Policy) -> None:
    text = to_toml(dump_policy(policy))
    assert parse_policy(tomllib.loads(text)) == policy
    assert text.replace("\n", "").isprintable(), "no character that plays with a terminal"


def test_the_policy_is_shown_as_a_document_to_be_changed(typed: Typed, pool: FakeServer) -> None:
    for words in ((), ("--toml",)):
        pool.answers["/v1/policy"] = answer(hidden=2)
        status, out, _ = typed("policy", "show", *words)
        assert status == 0
        assert out.startswith("# version 3, changed by boss ") and "# 2 lines that concern only others" in out
        assert parse_policy(tomllib.loads(out)) == RICH
        assert 'half_life = "90m"' in out and 'window = "7d"' in out and 'stored = "3G"' in out
    assert json.loads(typed("policy", "show", "--json")[1])["policy"] == dump_policy(RICH)
    assert typed("policy", "show", "--json", "--toml")[0] == 2


def test_a_file_is_applied_on_top_of_the_version_that_counts(typed: Typed, pool: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[share]\nanna = 2\n\n[[quota]]\nwho = "anna"\ncores = 20\n')
    pool.answers["/v1/policy"] = [answer(), {**CHANGED, "notes": ["quota of who=anna: 30 cores run now"]}]
    status, out, err = typed("policy", "apply", "p.toml")
    assert (status, out) == (0, "quota of who=anna: cores 10 -> 20\nthe policy is at version 4\n")
    assert "30 cores run now" in err
    document = {"share": {"anna": 2}, "quota": [{"who": "anna", "cores": 20}]}
    assert pool.sent("/v1/policy") == [{"version": 3, "policy": document}]


def test_a_dry_run_changes_nothing_and_says_so(typed: Typed, pool: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("")
    pool.answers["/v1/policy"] = {**CHANGED, "dry_run": True}
    status, out, _ = typed("policy", "apply", "p.toml", "--dry-run", "--based-on", "7")
    assert (status, out.splitlines()[-1]) == (0, "1 line would change; nothing was.")
    assert pool.sent("/v1/policy") == [{"version": 7, "policy": {}, "dry_run": True}]
    pool.answers["/v1/policy"] = {**CHANGED, "changes": []}
    assert "nothing changes" in typed("policy", "apply", "p.toml", "--based-on", "7")[1]


def test_what_another_changed_meanwhile_is_told(typed: Typed, pool: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("")
    said = {
        "code": "stale_policy",
        "message": "the policy is at version 5, changed by mona",
        "field": "version",
        "hint": "look",
    }
    pool.answers["/v1/policy"] = (409, json.dumps({"error": said}).encode(), {})
    status, _, err = typed("policy", "apply", "p.toml", "--based-on", "4")
    assert (status, err.count("\n")) == (3, 1)
    assert "changed by mona" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[share", "p.toml:1: not TOML"),
        ("[shares]\nanna = 1", "did you mean share"),
        ("[share]\nanna = -1", "share.anna: '-1' is out of range"),
        ("[share]\nanna = nan", "share.anna: 'nan' is out of range"),
        ('[share]\n"../x" = 1', "'../x' is not a name"),
        ("[[quota]]\nwho = 'anna'\ncores = -1", "quota[1].cores"),
        ("[[quota]]\nwho = 'anna'\ncore_hours = 1e308", "quota[1].core_hours"),
        ("[[quota]]\nwho = 'anna'", "limits nothing"),
        ("[[quota]]\nwho = 'anna'\ncores = 1\nwhen = 'sometimes'", "not a window of time"),
        ("[ban]\nhook = 'rm -rf'", "expected a list of texts"),
    ],
)
def test_a_file_with_a_mistake_is_refused_here_in_one_line(
    typed: Typed, pool: FakeServer, tmp_path: Path, text: str, words: str
) -> None:
    """Rows 74 to 76."""
    (tmp_path / "p.toml").write_text(text)
    status, _, err = typed("policy", "apply", "p.toml")
    assert (status, err.count("\n"), pool.requests) == (2, 1, [])
    assert words in err and err.startswith("shoal: p.toml")


def test_a_file_that_cannot_be_read_is_told(typed: Typed, pool: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    for name in ("nothing.toml", "bytes.toml", "."):
        status, _, err = typed("policy", "apply", name)
        assert (status, err.count("\n"), pool.requests) == (2, 1, [])


# --- shares
def test_a_share_is_set(typed: Typed, pool: FakeServer) -> None:
    for words, sent in (
        (("anna", "2"), {"anna": 2.0}),
        (("@phys.hep", "0.5"), {"@phys.hep": 0.5}),
        (("ben", "0"), {"ben": 0.0}),
    ):
        pool.requests.clear()
        status, out, _ = typed("share", "set", *words)
        assert (status, pool.sent("/v1/policy/shares")) == (0, [{"shares": sent}])
        assert out == "share.anna: 1 -> 2\nthe policy is at version 4\n"
    assert json.loads(typed("share", "set", "anna", "2", "--json")[1])["version"] == 4


@pytest.mark.parametrize("number", ["-1", "nan", "inf", "1e308", "two", "", "0x10"])
def test_a_number_that_is_no_share_is_refused_here(typed: Typed, pool: FakeServer, number: str) -> None:
    """Row 74."""
    status, _, err = typed("share", "set", "anna", number)
    assert (status, err.count("\n"), pool.requests) == (2, 1, [])
    assert "is not a share" in err and "0 runs when nobody else can" in err


@pytest.mark.parametrize("name", ["../x", "Anna", "a" * 65, "\u0430nna", "@", "@a..b", "*", "a b"])
def test_who_cannot_be_anybody_is_refused_here(typed: Typed, pool: FakeServer, name: str) -> None:
    """Row 76."""
    for words in (("share", "set", name, "1"), ("quota", "set", "--who", name, "--cores", "1")):
        if (name, words[0]) == ("*", "quota"):
            continue
        status, _, err = typed(*words)
        assert (status, err.count("\n"), pool.requests) == (2, 1, [])


def test_shares_are_listed_groups_first(typed: Typed, pool: FakeServer) -> None:
    row = {"share": 1.0, "due": None, "used": 0.0, "usage": 0.0, "part": 0.0, "cores": 0, "queued": 0}
    pool.answers["/v1/shares"] = {
        "groups": [{"group": "phys", **row, "share": 3.0}],
        "shares": [{"owner": "anna", "group": "phys", **row, "due": 0.6666, "used": 0.5, "usage": 7_200.0, "cores": 4,
                    "queued": 9}],
    }  # fmt: skip
    status, out, _ = typed("share", "list")
    assert status == 0
    _, first, second = out.splitlines()
    assert first.split() == ["@phys", "-", "3", "-", "0", "0", "0", "0"]
    assert second.split() == ["anna", "phys", "1", "66.7", "50", "2", "4", "9"]
    assert json.loads(typed("share", "list", "--json")[1])["shares"][0]["owner"] == "anna"


# --- quotas
def limit(**more: Any) -> dict[str, Any]:
    return {
        "who": "anna", "site": "*", "when": "always", "kind": "cores", "limit": 10, "used": 4, "open": True, "lifted": None,
        **more,
    }  # fmt: skip


def test_limits_are_listed_with_what_is_used_and_when_they_end(typed: Typed, pool: FakeServer) -> None:
    rows = [
        limit(),
        limit(kind="stored", limit=2 << 30, used=1 << 29),
        limit(who="@phys", kind="core_hours", when="day", lifted=1e10),
        limit(who="@phys", when="sat", open=False),
    ]
    pool.answers["/v1/policy"] = answer(quotas=rows)
    status, out, _ = typed("quota", "list")
    _, first, second, third, fourth = out.splitlines()
    assert status == 0
    assert first.split() == ["anna", "*", "always", "cores", "4", "10", "-"]
    assert "512.0M" in second and "2.0G" in second
    assert "core-hours" in third and "(in " in third
    assert "not now" in fourth
    assert len(typed("quota", "list", "--who", "@phys")[1].splitlines()) == 3
    assert json.loads(typed("quota", "list", "--json")[1])["quotas"] == rows
    assert "shoal quota set" in typed("quota", "list", "--who", "ben")[1]


def test_a_limit_is_set_beside_those_that_are_there(typed: Typed, pool: FakeServer) -> None:
    status, out, _ = typed("quota", "set", "--who", "anna", "--cores", "20", "--core-hours", "none", "--stored", "0")
    assert (status, out.splitlines()[-1]) == (0, "the policy is at version 4")
    (sent,) = pool.sent("/v1/policy")
    assert sent["version"] == 3
    after = parse_policy(sent["policy"])
    assert after.quotas == (Rule("anna", cores=20, stored=0), *RICH.quotas[1:])
    assert after.shares == RICH.shares and after.ban == RICH.ban, "nothing else changes"


def test_a_rule_at_another_place_is_another_rule(typed: Typed, pool: FakeServer) -> None:
    assert typed("quota", "set", "--who", "anna", "--site", "eu", "--when", "mon-fri  08-18", "--share", "0.25")[0] == 0
    (sent,) = pool.sent("/v1/policy")
    assert parse_policy(sent["policy"]).quotas == (*RICH.quotas, Rule("anna", "eu", "mon-fri 08-18", share=0.25))


def test_a_rule_that_limits_nothing_any_more_goes(typed: Typed, pool: FakeServer) -> None:
    assert (
        typed("quota", "set", "--who", "*", "--site", "eu.cern", "--when", "mon-fri 08-18", "--share", "none")[0] == 0
    )
    (sent,) = pool.sent("/v1/policy")
    assert parse_policy(sent["policy"]).quotas == (RICH.quotas[0], RICH.quotas[2])


def test_all_limits_at_a_place_are_dropped(typed: Typed, pool: FakeServer) -> None:
    assert typed("quota", "drop", "--who", "@phys")[0] == 0
    (sent,) = pool.sent("/v1/policy")
    assert parse_policy(sent["policy"]).quotas == RICH.quotas[:2]
    pool.answers["/v1/policy"] = answer()
    status, _, err = typed("quota", "drop", "--who", "@phys", "--site", "eu")
    assert (status, err.count("\n")) == (3, 1)
    assert "there is no quota of who=@phys site=eu" in err


def test_a_limit_below_what_runs_is_accepted_and_says_so(typed: Typed, pool: FakeServer) -> None:
    """Row 75."""
    note = "quota of who=anna: 12 cores run now, nothing is stopped, nothing new starts"
    pool.answers["/v1/policy"] = [answer(), {**CHANGED, "notes": [note]}]
    status, _, err = typed("quota", "set", "--who", "anna", "--cores", "10")
    assert (status, err) == (0, f"shoal: note: {note}\nshoal: server {pool.url} ($SHOAL_SERVER)\n")


@pytest.mark.parametrize(
    "words",
    [
        ("--cores", "-1"),
        ("--cores", "1.5"),
        ("--cores", "9" * 30),
        ("--core-hours", "-0.5"),
        ("--core-hours", "nan"),
        ("--core-hours", "1e308"),
        ("--queued", "many"),
        ("--stored", "-1G"),
        ("--stored", "lots"),
        ("--share", "1.5"),
        ("--share", "-1"),
        ("--cores", "1", "--when", "sometimes"),
        ("--cores", "1", "--site", "../x"),
        ("--queued", "1", "--site", "eu"),
        (),
    ],
)
def test_a_limit_that_cannot_be_one_is_refused_here_in_one_line(
    typed: Typed, pool: FakeServer, words: tuple[str, ...]
) -> None:
    """Row 75."""
    status, _, err = typed("quota", "set", "--who", "anna", *words)
    assert (status, err.count("\n"), pool.requests) == (2, 1, [])
    assert "(" in err and (not words or "--" in err)


def test_a_change_is_made_anew_on_top_of_another(typed: Typed, pool: FakeServer) -> None:
    stale: tuple[int, bytes, dict[str, str]] = (
        409,
        json.dumps({"error": {"code": "stale_policy", "message": "m", "field": "", "hint": ""}}).encode(),
        {},
    )
    newer = {**answer(Policy(quotas=(Rule("ben", cores=1),))), "version": 8}
    pool.answers["/v1/policy"] = [answer(), stale, newer, CHANGED]
    assert typed("quota", "set", "--who", "anna", "--cores", "5")[0] == 0
    first, second = pool.sent("/v1/policy")
    assert (first["version"], second["version"]) == (3, 8)
    assert parse_policy(second["policy"]).quotas == (Rule("ben", cores=1), Rule("anna", cores=5))


def test_without_rights_the_servers_word_is_one_line(typed: Typed, pool: FakeServer) -> None:
    said = {"code": "forbidden", "message": "only an administrator may", "field": "", "hint": ""}
    pool.answers["/v1/policy"] = [answer(), (403, json.dumps({"error": said}).encode(), {})]
    status, _, err = typed("quota", "set", "--who", "anna", "--cores", "5")
    assert (status, err) == (3, "shoal: only an administrator may\n")
