"""Which server: the order of who decides, and configurations that are refused with file, line and fix [input E77]."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.client.config import Target, durability, find_target, find_trust, read_config, read_token, state_home
from shoal.model.errors import BadInput, Refused

A, B, C = "unix:/run/shoal-1001", "unix:/run/shoal-1002", "unix:/run/shoal-1003"


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return {
        "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def user_config(env: dict[str, str], text: str) -> Path:
    return write(Path(env["XDG_CONFIG_HOME"]) / "shoal" / "config.toml", text)


def test_the_embedded_server_is_used_when_nobody_names_one(env: dict[str, str]) -> None:
    assert find_target(None, env) == Target(None, "", "default")


def test_the_nearest_word_wins(env: dict[str, str]) -> None:
    user_config(env, f'server = "{A}"')
    assert find_target(None, env).url == A
    write(Path("shoal.toml"), f'server = "{B}"')
    assert find_target(None, env).url == B
    env["SHOAL_SERVER"] = C
    assert find_target(None, env) == Target(C, "", "$SHOAL_SERVER")
    assert find_target(A, env) == Target(A, "", "--server")
    assert find_target("embedded", env).url is None


def test_the_token_comes_from_the_environment_or_the_file_named_beside_the_server(env: dict[str, str]) -> None:
    config = user_config(env, f'server = "{A}"\ntoken_file = "token"')
    write(config.parent / "token", "secret\n")
    assert find_target(None, env).token == "secret"
    assert find_target(B, env).token == ""  # a token is never sent to another server
    env["SHOAL_TOKEN"] = "other"
    assert find_target(None, env).token == "other"


def test_the_token_of_a_server_of_ours_is_found_beside_its_address(env: dict[str, str]) -> None:
    told = {"url": A, "token": "mine", "pid": 1}
    write(Path(env["XDG_STATE_HOME"]) / "shoal" / "server" / "server.json", json.dumps(told))
    assert find_target(A, env).token == "mine"
    assert find_target(B, env).token == ""


def test_a_server_file_may_be_the_token_file(tmp_path: Path) -> None:
    assert read_token(write(tmp_path / "server.json", '{"url": "x", "token": "t", "pid": 1}')) == "t"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('# mine\nserve = "x"', 2, "did you mean server"),
        ('server = "x"\n\nzebra = 1', 3, "known: ca, durability, server, token_file"),
        ("server = 8443", 1, "must be a text"),
        ('[server]\nurl = "x"', 1, "must be a text"),
        ('server = "x"\nserver = "y"', 2, "not TOML"),
        ("server = x", 1, "not TOML"),
        ("server =", 1, "not TOML"),
    ],
)
def test_a_wrong_configuration_is_refused_with_file_and_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    file = write(tmp_path / "config.toml", text)
    with pytest.raises(BadInput) as caught:
        read_config(file)
    assert f"config.toml:{line}:" in caught.value.line
    assert words in caught.value.line


def test_trust_comes_from_the_own_file_only(env: dict[str, str]) -> None:
    """Somebody else of the group may write into the directory of a project, and trust lets their code run."""
    assert find_trust(env) is None
    user_config(env, 'trust = "a.b:C"')
    write(Path("shoal.toml"), f'server = "{A}"')
    assert find_trust(env) == "a.b:C"
    for text in ('# ours\ntrust = "group"', '\n"trust" = "own"'):
        write(Path("shoal.toml"), text)
        for read in (find_trust, durability, lambda env: find_target(None, env)):
            with pytest.raises(BadInput) as caught:
                read(env)
            assert "shoal.toml:2: trust is not taken from a directory's file" in caught.value.line
            assert "move it to ~/.config/shoal/config.toml" in caught.value.line and "\n" not in caught.value.line


def test_an_empty_or_missing_configuration_says_nothing(tmp_path: Path) -> None:
    assert read_config(write(tmp_path / "empty.toml", "")) == {}
    assert read_config(tmp_path / "missing.toml") == {}


def test_a_configuration_that_is_a_directory_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_config(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="UTF-8"):
        read_config(tmp_path / "binary")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="chmod 600"):
        read_token(write(tmp_path / "token", "secret", 0o644))


@pytest.mark.parametrize("text", ["", "\n", "{}", "{broken"])
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="no token"):
        read_token(write(tmp_path / "token", text))


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        read_token(tmp_path / "nowhere")


def test_a_relative_state_home_is_ignored_as_the_standard_says(tmp_path: Path) -> None:
    assert state_home({"XDG_STATE_HOME": "rel", "HOME": "/h"}) == Path("/h/.local/state/shoal")


PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
HTTPS = "https://box:8443"


def test_the_ca_comes_from_the_environment_or_the_file_named_beside_the_server(env: dict[str, str]) -> None:
    config = user_config(env, f'server = "{HTTPS}"\nca = "ca.pem"')
    write(config.parent / "ca.pem", PEM, 0o644)
    assert find_target(None, env).ca == PEM
    assert find_target("https://other:8443", env).ca == ""  # another server is not known by it
    assert find_target(A, env).ca == ""
    env["SHOAL_CA"] = "sha256:" + "AB:" * 31 + "AB"
    assert find_target(None, env).ca == "ab" * 32


@pytest.mark.parametrize(
    ("value", "words"),
    [("sha256:abc", "64 hexadecimal digits"), ("nowhere.pem", "nowhere.pem"), ("config.toml", "holds no certificate")],
)
def test_a_wrong_ca_is_refused_with_what_to_write(env: dict[str, str], value: str, words: str) -> None:
    user_config(env, f'server = "{HTTPS}"\nca = "{value}"')
    with pytest.raises(BadInput, match=words) as caught:
        find_target(None, env)
    assert caught.value.code == "bad_ca"
