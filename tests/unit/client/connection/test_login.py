"""Logging in: which address, what is written and how, and what is not overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.client.config import find_target, write_private
from shoal.client.connection import login
from shoal.client.connection.login import check_free, parse_login, reach, remove_login, write_login
from shoal.model.credentials import ENROL, SUBMIT, make
from shoal.model.errors import BadInput, Conflict, Refused, Unreachable
from shoal.wire.join import Join
from tests.unit.client.fake_server import Authority, FakeServer

TOKEN, OTHER = make(SUBMIT, "A" * 43), make(SUBMIT, "B" * 43)
DEAD = "127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SHOAL_SERVER", "SHOAL_TOKEN", "SHOAL_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "shoal"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no login string"),
        (f"box:8443#{'a' * 64}", "shoal token new"),
        (f"box:8443#{'a' * 63}#{TOKEN}", "fingerprint"),
        (f"box:8443#{'a' * 64}#{TOKEN[:-1]}", "cut or mistyped"),
        (f"box:8443#{'a' * 64}#{make(ENROL, 'A' * 43)}", "lets pilots in, not people"),
    ],
)
def test_a_wrong_string_is_refused_without_showing_its_token(text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_login(text)
    assert words in caught.value.line
    assert "A" * 40 not in caught.value.line


def test_the_first_address_that_answers_is_taken(authority: Authority) -> None:
    with FakeServer(authority.context(), authority.pem) as server:
        server.answers["/v1/whoami"] = {"owner": "anna"}
        client, told = reach(Join((DEAD, server.address), authority.fingerprint, TOKEN))
        with client:
            assert (client.url, client.ca, told) == (server.url, authority.pem, {"owner": "anna"})


def test_no_answer_anywhere_names_all_addresses() -> None:
    with pytest.raises(Unreachable, match=r"none of 127\.0\.0\.1:1, 127\.0\.0\.1:2 answers"):
        reach(Join((DEAD, "127.0.0.1:2"), "a" * 64, TOKEN))


def test_a_stranger_at_the_first_address_ends_it(authority: Authority, stranger: Authority) -> None:
    with (
        FakeServer(stranger.context(), stranger.pem) as server,
        FakeServer(authority.context()) as other,
        pytest.raises(Refused, match="does not match"),
    ):
        reach(Join((server.address, other.address), authority.fingerprint, TOKEN))
    assert TOKEN not in str(server.requests)


def test_what_is_written_is_what_commands_use(folder: Path, authority: Authority) -> None:
    file = write_login("https://box:8443", TOKEN, authority.pem)
    assert file == folder / "config.toml"
    target = find_target()
    assert (target.url, target.token, target.ca) == ("https://box:8443", TOKEN, authority.pem)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "config.toml": 0o600, "token": 0o600, "ca.pem": 0o600,
    }  # fmt: skip
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_server_on_this_machine_needs_no_certificate(folder: Path, authority: Authority) -> None:
    write_login("https://box:8443", TOKEN, authority.pem)
    write_login("unix:/run/shoal-8443", OTHER, "")
    assert sorted(path.name for path in folder.iterdir()) == ["config.toml", "token"]
    assert find_target().token == OTHER


def test_a_failure_on_the_way_leaves_nobody_logged_in_rather_than_half(
    folder: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_login("https://old:8443", TOKEN, authority.pem)
    real = write_private

    def full(file: Path, data: bytes) -> None:
        if file.name == "ca.pem":
            raise OSError(28, "No space left on device")
        real(file, data)

    monkeypatch.setattr(login, "write_private", full)
    with pytest.raises(Refused, match="No space left"):
        write_login("https://new:8443", OTHER, authority.pem)
    assert find_target().url is None  # the new token never meets the old server


def test_another_servers_settings_are_not_overwritten(folder: Path, authority: Authority) -> None:
    join = Join(("box:8443", "10.0.0.5:8443"), authority.fingerprint, TOKEN)
    check_free(join, force=False)  # nothing there
    write_login("https://other:8443", TOKEN, "")
    with pytest.raises(Conflict, match="https://other:8443") as caught:
        check_free(join, force=False)
    assert "--force" in caught.value.hint
    check_free(join, force=True)
    write_login("https://box:8443", TOKEN, "")
    check_free(join, force=False)  # one of its own addresses
    write_login("https://moved:8443", TOKEN, authority.pem)
    check_free(join, force=False)  # the same CA under another address


def test_logging_out_removes_all_of_it(folder: Path, authority: Authority) -> None:
    assert remove_login() == ""
    write_login("https://box:8443", TOKEN, authority.pem)
    assert remove_login() == "https://box:8443"
    assert list(folder.iterdir()) == []
