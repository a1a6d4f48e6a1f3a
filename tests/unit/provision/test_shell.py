"""The shells: private files, clean environments, bounded commands; ssh by a stand-in that runs the command here."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shoal.provision import shell
from shoal.provision.backend import BackendError, Command
from shoal.provision.shell import LocalShell, SshShell
from shoal.provision.site_url import parse

FAKE_SSH = """#!/bin/sh
printf '%s\\n' "$*" >> "$HOME/calls"
if [ -f "$HOME/refuse" ]; then cat "$HOME/refuse" >&2; exit 255; fi
case " $* " in
*" -M "*) while [ "$1" != -S ]; do shift; done; : > "$2" ;;
*" -O exit "*) while [ "$1" != -S ]; do shift; done; rm "$2" ;;
*) for last; do :; done; echo welcome; eval "$last" ;;
esac
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)
    return {"PATH": f"{ssh.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "SHOAL_TOKEN": "secret", "A": "b"}


@pytest.fixture(params=["local", "ssh"])
def place(request: pytest.FixtureRequest, env: dict[str, str]) -> LocalShell | SshShell:
    return LocalShell(env) if request.param == "local" else SshShell(parse("ssh://anna@box:2222"), env)


def test_commands_get_their_input_and_a_clean_environment(place: LocalShell | SshShell) -> None:
    result = place.run(Command(("sh", "-c", 'cat; echo "$1" >&2; env; exit 7', "sh", "a 'b' $(c)"), "in\n"))
    assert (result.status, result.out.splitlines()[0], result.err) == (7, "in", "a 'b' $(c)\n")
    assert "secret" not in result.out and "\nA=" not in result.out
    place.close()


def test_files_are_private_and_whole(place: LocalShell | SshShell, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    place.make_directory(str(folder))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    folder.chmod(0o755)
    place.make_directory(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    ticket = folder / "ticket"
    for data in (b"\0secret\xff\n" * 1000, b""):
        place.put(str(ticket), data)
        assert ticket.read_bytes() == data
        assert stat.S_IMODE(ticket.stat().st_mode) == 0o600
    place.put(str(ticket), b"#!/bin/sh\n", 0o700)
    assert stat.S_IMODE(ticket.stat().st_mode) == 0o700
    assert place.read_tail(str(ticket), 4) == b"/sh\n"
    assert [file.name for file in folder.iterdir()] == ["ticket"]
    place.remove([str(ticket), str(ticket)])
    assert place.read_tail(str(ticket), 4) == b""
    with pytest.raises(ValueError, match="private"):
        place.put(str(ticket), b"", 0o644)
    with pytest.raises(BackendError):
        place.put(str(folder / "none" / "x"), b"")
    place.close()


def test_no_secret_is_in_an_argument_of_ssh(env: dict[str, str], tmp_path: Path) -> None:
    place = SshShell(parse("ssh://anna@box:2222"), env)
    place.put(str(tmp_path / "ticket"), b"very secret")
    socket = Path(place.socket)
    assert len(str(socket)) < shell.MAX_SOCKET_PATH
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    place.close()
    assert not socket.parent.exists()
    calls = (tmp_path / "calls").read_text()
    assert "very secret" not in calls
    assert "BatchMode=yes" in calls and "-p 2222 -- anna@box" in calls and "-O exit" in calls


def test_output_without_end_is_an_error(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MAX_OUTPUT", 100_000)
    with pytest.raises(BackendError, match="more than 100000"):
        LocalShell(env).run(Command(("yes",)))


def test_a_process_in_the_background_is_not_awaited(env: dict[str, str]) -> None:
    result = LocalShell(env).run(Command(("sh", "-c", "sleep 5 & echo done")), 4)
    assert (result.status, result.out) == (0, "done\n")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("anna@box: Permission denied (publickey).", "ssh-add"),
        ("Host key verification failed.", "log in once by hand"),
        ("ssh: Could not resolve hostname box: Name or service not known", "check the name"),
        ("ssh: connect to host box port 22: Connection refused", "host and port"),
        ("ssh: connect to host box port 22: Connection timed out", "VPN"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "administrators"),
        ("kex_exchange_identification: read: Connection reset by peer", "ssh box true"),
    ],
)
def test_what_ssh_said_and_how_to_fix_it_is_told(env: dict[str, str], tmp_path: Path, said: str, fix: str) -> None:
    (tmp_path / "refuse").write_text(said)
    place = SshShell(parse("ssh://box"), env)
    with pytest.raises(BackendError) as caught:
        place.run(Command(("true",)))
    place.close()
    assert said.splitlines()[-1] in caught.value.message
    assert fix in caught.value.hint
    assert caught.value.transient
