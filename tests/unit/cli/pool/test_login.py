"""`shoal login`, `logout`, `whoami` at a real https server."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.credentials import SUBMIT, make
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import Authority, FakeServer

TOKEN = make(SUBMIT, "A" * 43)
ANNA = {"owner": "anna", "group": "phys", "role": "user", "kind": "submit", "scopes": ["submit", "read"], "token": "t1"}


@pytest.fixture
def box(authority: Authority) -> Iterator[FakeServer]:
    with FakeServer(authority.context(), authority.pem) as found:
        found.answers["/v1/whoami"] = {**ANNA, "expires": time.time() + 30 * 86_400 + 60}
        yield found


@pytest.fixture
def string(box: FakeServer, authority: Authority) -> str:
    return f"127.0.0.1:1,{box.address}#{authority.fingerprint}#{TOKEN}"


def paste(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_the_string_is_read_from_standard_input_and_kept(
    typed: Typed, box: FakeServer, string: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paste(monkeypatch, f"  {string}\n")
    status, out, err = typed("login", "-")
    assert (status, err) == (0, "")
    assert out.startswith(f"logged in to {box.url} as anna (user, group phys); the token ends ")
    assert "(in 30d0h)" in out
    status, out, _ = typed("whoami")
    assert status == 0
    for part in (box.url, "anna (user, group phys)", "t1 (submit)", "submit, read", "in 30d0h"):
        assert part in out
    assert TOKEN not in out
    assert (tmp_path / "xdg_config_home" / "shoal" / "token").read_text(encoding="utf-8") == TOKEN + "\n"


def test_a_string_in_the_open_is_taken_with_a_note(typed: Typed, box: FakeServer, string: str) -> None:
    status, out, err = typed("login", string, "--json")
    assert status == 0
    assert json.loads(out)["owner"] == "anna"
    assert "shell's history" in err
    assert TOKEN not in out + err


def test_nothing_on_standard_input_is_one_line(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    paste(monkeypatch, "\n")
    status, _, err = typed("login")
    assert (status, err.count("\n")) == (2, 1)
    assert "no login string" in err


def test_another_server_is_not_replaced_without_force(
    typed: Typed, box: FakeServer, string: str, tmp_path: Path
) -> None:
    config = tmp_path / "xdg_config_home" / "shoal" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('server = "https://old:8443"\n', encoding="utf-8")
    status, _, err = typed("login", string)
    assert status == 3
    assert "https://old:8443" in err
    assert box.requests == []
    assert typed("login", string, "--force")[0] == 0
    assert box.url in config.read_text(encoding="utf-8")


def test_a_login_that_something_nearer_hides_is_told(
    typed: Typed, box: FakeServer, string: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_SERVER", "unix:/run/shoal-9")
    assert "$SHOAL_SERVER names unix:/run/shoal-9, which goes before this login" in typed("login", string)[2]


def test_a_wrong_fingerprint_is_refused_and_nothing_is_kept(typed: Typed, box: FakeServer, tmp_path: Path) -> None:
    status, _, err = typed("login", f"{box.address}#{'0' * 64}#{TOKEN}")
    assert status == 3
    assert "server certificate does not match" in err
    assert not (tmp_path / "xdg_config_home").exists()
    assert TOKEN not in err + str(box.requests)


def test_a_refused_token_says_so_and_nothing_is_kept(
    typed: Typed, box: FakeServer, string: str, tmp_path: Path
) -> None:
    box.answers["/v1/whoami"] = (401, b"{}", {})
    status, _, err = typed("login", string)
    assert status == 3
    assert "shoal login" in err
    assert not (tmp_path / "xdg_config_home").exists()


def test_logging_out_forgets_the_server(typed: Typed, box: FakeServer, string: str) -> None:
    typed("login", string)
    assert typed("logout")[1] == f"logged out of {box.url}\n"
    assert typed("logout")[1].startswith("no login in ")
    assert "whoami needs a running server" in typed("whoami")[2]


def test_over_https_the_environment_stays_at_home(
    typed: Typed, box: FakeServer, string: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed("login", string)
    monkeypatch.setenv("MY_SECRET", "canary")
    box.answers["/v1/runs"] = {"run": "r1", "tasks": 1, "reused": 0, "reruns": [], "again": False}
    assert typed("submit", "--", "echo", "x")[:2] == (0, "r1\n")
    (sent,) = box.sent("/v1/runs")
    assert "environment" not in sent
    assert "canary" not in json.dumps(sent)
    file = Path(sent["environment_file"])
    assert file.parent == tmp_path / "xdg_state_home" / "shoal" / "env"
    assert json.loads(file.read_bytes())["MY_SECRET"] == "canary"
