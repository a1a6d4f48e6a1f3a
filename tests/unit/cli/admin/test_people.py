"""`shoal user`, `group`, `token`, `audit`, `join`, `hosts`: what is asked, and what people see."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from shoal.cli.commands import COMMANDS, cli
from shoal.model.credentials import ENROL, SUBMIT, make
from shoal.wire.join import Join, bootstrap_line, parse_join
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer

FINGERPRINT = "ab" * 32
LOGIN, ENROLMENT = make(SUBMIT, "A" * 43), make(ENROL, "B" * 43)


@pytest.fixture
def token(server: FakeServer) -> dict[str, object]:
    answer: dict[str, object] = {
        "id": "t3f9c01", "token": LOGIN, "expires": time.time() + 7 * 86_400 + 60, "addresses": ["box:8443", "10.0.0.5:8443"],
        "fingerprint": FINGERPRINT, "pilot_sha256": "cd" * 32,
    }  # fmt: skip
    server.answers["/v1/tokens"] = answer
    return answer


def test_a_person_is_added_and_the_next_step_told(typed: Typed, server: FakeServer) -> None:
    status, out, _ = typed("user", "add", "anna", "--group", "phys", "--role", "manager")
    assert (status, server.sent("/v1/users")) == (0, [{"name": "anna", "group": "phys", "role": "manager"}])
    assert "shoal token new --user anna" in out


def test_a_group_is_added_and_the_next_step_told(typed: Typed, server: FakeServer) -> None:
    status, out, _ = typed("group", "add", "phys")
    assert (status, server.sent("/v1/groups")) == (0, [{"name": "phys"}])
    assert "shoal user add anna --group phys" in out


@pytest.mark.parametrize("name", ["", "../x", "Anna", "root", "a" * 65, "\u0430nna", "-x", "a b", "a\n"])
@pytest.mark.parametrize(
    "command", [("user", "add"), ("group", "add"), ("token", "new", "--user"), ("join", "--owner")]
)
def test_a_name_that_cannot_be_one_is_refused_here(
    typed: Typed, server: FakeServer, command: tuple[str, ...], name: str
) -> None:
    """Row 76."""
    status, _, err = typed(*command, "--", name) if command[1] == "add" else typed(*command, name)
    assert (status, err.count("\n"), server.requests) == (2, 1, [])
    assert "a to z, 0 to 9" in err


def test_people_and_groups_are_listed(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/users"] = {
        "users": [
            {"name": "anna", "group": "phys", "role": "user", "created": 1.0},
            {"name": "ben", "group": "", "role": "admin", "created": 1.0},
        ]
    }
    _, out, _ = typed("user", "list")
    assert out.splitlines()[1].split()[:3] == ["anna", "phys", "user"]
    assert out.splitlines()[2].split()[:3] == ["ben", "-", "admin"]
    server.answers["/v1/groups"] = {"groups": [{"name": "phys", "users": 2}]}
    assert "phys" in typed("group", "list")[1]
    assert json.loads(typed("group", "list", "--json")[1]) == {"groups": [{"name": "phys", "users": 2}]}


def test_a_login_string_is_printed_once_with_what_to_do_with_it(
    typed: Typed, server: FakeServer, token: dict[str, object]
) -> None:
    status, out, err = typed(
        "token", "new", "--user", "anna", "--scope", "read", "--scope", "cancel", "--note", "laptop"
    )
    assert status == 0
    assert out == f"box:8443,10.0.0.5:8443#{FINGERPRINT}#{LOGIN}\n"
    assert parse_join(out).token == LOGIN
    assert "only once" in err
    assert "anna runs `shoal login -`" in err
    assert LOGIN not in err
    assert server.sent("/v1/tokens") == [
        {"kind": "submit", "owner": "anna", "scopes": ["read", "cancel"], "note": "laptop"}
    ]
    document = json.loads(typed("token", "new", "--json")[1])
    assert (document["id"], document["login"]) == ("t3f9c01", out.strip())


@pytest.mark.parametrize(
    "words", [("token", "new", "--expires", "91d"), ("join", "--expires", "8d"), ("join", "--expires", "x")]
)
def test_a_token_that_would_live_too_long_is_refused_here(
    typed: Typed, server: FakeServer, words: tuple[str, ...]
) -> None:
    status, _, err = typed(*words)
    assert (status, server.requests) == (2, [])
    assert "--expires" in err


def test_a_server_for_this_machine_only_says_how_to_open_it(
    typed: Typed, server: FakeServer, token: dict[str, object]
) -> None:
    token.update(addresses=[], fingerprint="")
    _, out, err = typed("token", "new")
    assert out == f"{server.url}##{LOGIN}\n"
    assert "--listen :8443" in err


def test_tokens_are_listed_with_everything_but_their_secret(typed: Typed, server: FakeServer) -> None:
    now = time.time()
    server.answers["/v1/tokens"] = {"tokens": [
        {"token": "t1", "kind": "submit", "owner": "anna", "group": "", "site": "", "scopes": "submit read", "max_pilots": None,
         "uses": None, "pilots": 0, "note": "evil\x1b[31m", "expires": now + 86_460, "revoked": None, "used": now - 60,
         "address": "10.0.0.9"},
        {"token": "t2", "kind": "enrol", "owner": "ben", "group": "phys", "site": "box", "scopes": "", "max_pilots": 10,
         "pilots": 3, "uses": 1, "note": "", "expires": now, "revoked": now, "used": None, "address": ""},
    ]}  # fmt: skip
    status, out, _ = typed("token", "list", "--all")
    assert status == 0
    assert server.requests[0].target == "/v1/tokens?all=1"
    head, first, second = out.splitlines()
    assert "last used" in head
    for part in ("t1", "submit", "anna", "submit read", "in 1d0h", "1m00s ago", "10.0.0.9", "evil\\x1b[31m"):
        assert part in first
    for part in ("t2", "enrol", "@phys", "box", "revoked", "3/10", "never"):
        assert part in second
    server.answers["/v1/tokens"] = {"tokens": []}
    assert "shoal token new" in typed("token", "list")[1]


def test_revoking_says_how_many_tokens_and_pilots_ended(typed: Typed, server: FakeServer) -> None:
    server.answers["/v1/tokens/revoke"] = {"revoked": 2, "pilots": 1}
    assert typed("token", "revoke", "t1", "t2")[1] == "2 tokens revoked, 1 pilot ended\n"
    for words in (("--user", "anna"), ("--site", "box"), ("--all",)):
        assert typed("token", "revoke", *words)[0] == 0
    assert server.sent("/v1/tokens/revoke") == [
        {"tokens": ["t1", "t2"]},
        {"user": "anna"},
        {"site": "box"},
        {"all": True},
    ]
    server.answers["/v1/tokens/revoke"] = {"revoked": 0, "pilots": 0}
    assert "nothing to revoke" in typed("token", "revoke", "t9")[1]


@pytest.mark.parametrize("words", [(), ("t1", "--all"), ("--user", "anna", "--site", "box")])
def test_what_to_revoke_is_said_in_one_way(typed: Typed, server: FakeServer, words: tuple[str, ...]) -> None:
    status, _, err = typed("token", "revoke", *words)
    assert (status, err.count("\n"), server.requests) == (2, 1, [])
    assert "--site NAME" in err


def test_the_audit_is_shown_page_by_page(typed: Typed, server: FakeServer) -> None:
    row = {"seq": 3, "time": 1.0, "token": "t1", "owner": "anna", "address": "10.0.0.9", "what": "POST /v1/runs",
           "about": "r12", "outcome": "200", "times": 1}  # fmt: skip
    server.answers["/v1/audit"] = [{"audit": [row], "next": 3}, {"audit": [{**row, "seq": 2}], "next": None}]
    status, out, _ = typed("audit", "--user", "anna", "--limit", "0")
    assert (status, len(out.splitlines())) == (0, 3)
    for part in ("anna", "t1", "10.0.0.9", "POST /v1/runs", "r12"):
        assert part in out
    assert [request.target for request in server.requests] == [
        "/v1/audit?limit=1000&owner=anna", "/v1/audit?limit=1000&before=3&owner=anna",
    ]  # fmt: skip


def test_one_line_lets_another_host_work(typed: Typed, server: FakeServer, token: dict[str, object]) -> None:
    token["token"] = ENROLMENT
    status, out, err = typed(
        "join", "--site", "box", "--group", "phys", "--max-pilots", "5", "--expires", "1d", "--cores", "4",
        "--idle-end", "600", "--note", "n", "--tag", "disk=ssd", "--tag", "note=a b", "--storage", "data/=/lustre/",
    )  # fmt: skip
    assert status == 0
    string = Join(("box:8443", "10.0.0.5:8443"), FINGERPRINT, ENROLMENT)
    options = ("--cores", "4", "--idle-end", "600", "--site", "box", "--tag", "disk=ssd", "--tag", "note=a b")
    line = bootstrap_line(string, "cd" * 32, (*options, "--storage", "data/=/lustre/"))
    assert out == line + "\n"
    assert out.count("\n") == 1
    assert "Python 3.9" in err
    assert "at most 5 pilots" in err
    assert ENROLMENT not in err
    assert server.sent("/v1/tokens") == [
        {"kind": "enrol", "group": "phys", "site": "box", "max_pilots": 5, "expires": "1d", "note": "n"}
    ]


def test_join_for_one_pilot_and_for_programs(typed: Typed, server: FakeServer, token: dict[str, object]) -> None:
    token["token"] = ENROLMENT
    status, out, _ = typed("join", "--once", "--json")
    document = json.loads(out)
    assert (status, document["id"], document["fingerprint"]) == (0, "t3f9c01", FINGERPRINT)
    assert parse_join(document["join"]).token == ENROLMENT
    assert document["join"] in document["line"]
    assert server.sent("/v1/tokens") == [{"kind": "enrol", "uses": 1}]
    assert typed("join", "--owner", "anna", "--group", "phys")[0] == 2


def test_without_a_server_for_others_the_way_to_one_is_told(typed: Typed, tmp_path: Path) -> None:
    for words in (("join",), ("user", "list"), ("token", "new"), ("audit",), ("group", "add", "phys")):
        status, _, err = typed(*words)
        assert (status, err.count("\n")) == (4, 1)
        assert "shoal server start --listen :8443" in err
    assert not (tmp_path / "xdg_state_home").exists(), "no embedded server was started"


def test_a_server_of_ones_own_is_found_without_any_setting(
    typed: Typed, server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SHOAL_SERVER")
    monkeypatch.delenv("SHOAL_TOKEN")
    place = tmp_path / "xdg_state_home" / "shoal" / "server"
    place.mkdir(parents=True)
    (place / "server.json").write_text(json.dumps({"url": server.url, "token": "mine", "pid": os.getpid()}))
    server.answers |= {"/v1/health": {"ok": True}, "/v1/whoami": {"owner": "me", "role": "admin"}}
    assert typed("group", "add", "phys")[0] == 0
    assert "me (admin)" in typed("whoami")[1]
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer mine"}


def test_hosts_are_listed_with_what_they_did(typed: Typed, server: FakeServer) -> None:
    now = time.time()
    server.answers["/v1/hosts"] = {"hosts": [
        {"host": "n017", "site": "box", "owner": "anna", "group": "", "pilots": 3, "living": 1, "succeeded": 40, "failed": 2,
         "lost": 1,
         "busy": 7200.0, "first": now - 86_400, "seen": now - 60},
    ]}  # fmt: skip
    status, out, _ = typed("hosts")
    assert status == 0
    for part in ("n017", "box", "anna", "40", "2h00m", "1m00s ago"):
        assert part in out
    server.answers["/v1/hosts"] = {"hosts": []}
    assert "shoal join" in typed("hosts")[1]


def test_every_command_inside_a_group_explains_itself_with_examples(typed: Typed) -> None:
    context = cli.make_context("shoal", ["--version"])
    for name in COMMANDS:
        group = cli.get_command(context, name)
        for inner in getattr(group, "commands", {}):
            status, out, _ = typed(name, inner, "--help")
            assert status == 0
            assert f"  shoal {name} {inner}" in out


@pytest.mark.parametrize("command", [("token", "new"), ("join",)])
def test_without_a_time_the_server_chooses_one_that_the_makers_token_allows(
    typed: Typed, server: FakeServer, token: dict[str, object], command: tuple[str, ...]
) -> None:
    """A user whose token lives 30 days, like the new one by default, could make none."""
    token["token"] = LOGIN if command[0] == "token" else ENROLMENT
    assert typed(*command)[0] == 0
    assert typed(*command, "--expires", "2d")[0] == 0
    first, second = server.sent("/v1/tokens")
    assert "expires" not in first and second["expires"] == "2d"
