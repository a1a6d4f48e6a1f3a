"""One answer to "which server": every command, client and executor uses the same one, by one rule, and says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.cluster import PATIENCE, clean_env, free_port
from tests.unit.client.fake_server import FakeServer

pytestmark = pytest.mark.integration
# Commands with the words that they need. Those that change something name the server on standard error.
CHANGES = (
    ("run", "--", "true"), ("sweep", "x=1..2", "--", "true", "{x}"), ("submit", "--", "true"), ("cancel", "r1"), ("retry", "r1"),
    ("signal", "USR1", "r1.1"), ("prune",), ("user", "add", "anna"), ("group", "add", "phys"), ("token", "new", "--user", "anna"),
    ("token", "revoke", "t1"), ("site", "share", "box", "anna"), ("share", "set", "anna", "2"), ("join",),
    ("quota", "set", "--who", "anna", "--cores", "4"), ("quota", "drop", "--who", "anna"), ("policy", "apply", "policy.toml"),
    ("pilot", "start"), ("server", "stop"),
)  # fmt: skip
LOOKS = (
    ("ps",), ("show", "r1"), ("why", "r1"), ("logs", "r1.1"), ("results", "r1"), ("wait", "r1"), ("events",), ("pilots",),
    ("hosts",), ("server", "status"), ("whoami",), ("user", "list"), ("group", "list"), ("token", "list"), ("site", "list"),
    ("share", "list"), ("quota", "list"), ("policy", "show"), ("acct",), ("audit",),
)  # fmt: skip
ALL = """
import contextlib, io, json, os, sys
from shoal.cli.main import invoke
found = []
for words in json.loads(sys.argv[1]):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        status = invoke(words)
    found.append([words, status, err.getvalue()])
json.dump(found, sys.stdout)
"""


class Refusing(FakeServer):
    """A server that notes what it is asked, and lets nobody do anything but submit, add groups and stop it."""

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        runs = {"run": "r1", "tasks": 1, "runs": [], "next": None}
        found = {"/v1/runs": runs, "/v1/health": {"ok": True}, "/v1/groups": {"group": "phys", "groups": []}}
        if path in found:
            return 200, json.dumps(found[path]).encode(), {}
        return 403, b'{"error": {"code": "forbidden", "message": "not you"}}', {}


class Person:
    """Somebody with a home of their own, in which the servers are named in some way."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cwd = folder, folder / "cwd"
        self.cwd.mkdir(parents=True)
        self.state, self.config = folder / "state" / "shoal", folder / "config" / "shoal"
        self.config.mkdir(parents=True)
        (self.cwd / "policy.toml").write_text("[share]\n")
        self.env = {
            **clean_env(), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip

    def python(self, code: str, *words: str, **env: str) -> str:
        """What a Python program prints."""
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=3 * PATIENCE, check=False,
            env={**self.env, **env}, cwd=self.cwd, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type_all(self, *lines: tuple[str, ...], **env: str) -> list[tuple[list[str], int, str]]:
        """Several commands in one process, since starting an interpreter is what takes time: words, status, complaints."""
        return [(words, status, err) for words, status, err in json.loads(self.python(ALL, json.dumps(lines), **env))]

    def type(self, *words: str, **env: str) -> tuple[int, str]:
        """One command: status and complaints."""
        ((_, status, err),) = self.type_all(words, **env)
        return status, err

    def target(self, **env: str) -> str:
        """The server that a client and an executor would use."""
        code = "from shoal.client.config import find_target; t = find_target(); print(t.url, t.origin, sep='|')"
        return self.python(code, **env).strip()

    def runs_here(self, server: FakeServer, state: Path) -> None:
        """Write the file of a server that runs on a state directory of this account."""
        state.mkdir(parents=True, exist_ok=True)
        (state / "server.json").write_text(json.dumps({"url": server.url, "token": "secret", "pid": os.getpid()}))


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """A new account."""
    return Person(tmp_path)


@pytest.fixture
def servers() -> Iterator[list[FakeServer]]:
    """Four servers."""
    with Refusing() as a, Refusing() as b, Refusing() as c, Refusing() as d:
        yield [a, b, c, d]


SETUPS = ("option", "environment", "directory", "chosen", "running")  # from the strongest to the weakest


@pytest.mark.parametrize("strongest", range(len(SETUPS)))
def test_every_command_talks_to_the_server_of_the_strongest_setting(
    person: Person, servers: list[FakeServer], strongest: int
) -> None:
    """All weaker settings name other servers; not one of them is asked anything, whatever is typed."""
    wanted, env, extra = servers[0], dict[str, str](), tuple[str, ...]()
    others = iter([*servers[1:], *servers[1:]])
    for rank, setup in enumerate(SETUPS):
        if rank < strongest:
            continue
        server = wanted if rank == strongest else next(others)
        if setup == "option":
            extra = ("--server", server.url)
        elif setup == "environment":
            env["SHOAL_SERVER"] = server.url
        elif setup == "directory":
            (person.cwd / "shoal.toml").write_text(f'server = "{server.url}"\n')
        elif setup == "chosen":
            (person.config / "config.toml").write_text(f'server = "{server.url}"\n')
        else:
            person.runs_here(server, person.state / "server")

    def with_option(words: tuple[str, ...]) -> tuple[str, ...]:
        at = words.index("--") if "--" in words else len(words)
        return (*words[:at], *extra, *words[at:])

    done = person.type_all(*map(with_option, [*CHANGES, *LOOKS]), **env)
    for words, status, err in done:
        assert status in (0, 3, 125) and "internal" not in err, (words, status, err)
    asked = {urlsplit(request.target).path for request in wanted.requests}
    assert len(asked) > 15, asked
    for other in servers[1:]:
        assert [request.target for request in other.requests] == []
    said = {words[0] for words, _, err in done if f"shoal: server {wanted.url} (" in err}
    assert {"run", "sweep", "submit", "group"} <= said <= {words[0] for words in CHANGES}, done


def test_client_and_executor_follow_the_same_rule(person: Person, servers: list[FakeServer]) -> None:
    """The rule is one function; step by step from the weakest setting to the strongest."""
    a, b, c, d = servers
    assert person.target() == "None|default"
    person.runs_here(a, person.state / "server")
    assert person.target() == f"{a.url}|a running server of yours"
    assert person.type("server", "use", "embedded") == (0, "")
    assert person.target() == f"None|{person.config / 'config.toml'}"
    assert person.type("server", "use", "own") == (0, "")
    assert person.target() == f"{a.url}|{person.config / 'config.toml'}"
    (person.config / "config.toml").write_text(f'trust = "own"\nserver = "{b.url}"\n')
    assert person.target() == f"{b.url}|{person.config / 'config.toml'}"
    (person.cwd / "shoal.toml").write_text(f'server = "{c.url}"\n')
    assert person.target() == f"{c.url}|shoal.toml"
    assert person.target(SHOAL_SERVER=d.url) == f"{d.url}|$SHOAL_SERVER"
    status, err = person.type("server", "use", "--default")
    assert (status, err) == (0, "shoal: note: ./shoal.toml goes before it here\n")
    assert (person.config / "config.toml").read_text() == 'trust = "own"\n', "other settings stay"
    (person.cwd / "shoal.toml").unlink()
    assert person.target() == f"{a.url}|a running server of yours"
    executor = "import shoal; e = shoal.Executor(); print(e._link.target.url)"
    assert person.python(executor).strip() == a.url


def test_servers_are_listed_with_what_is_used_and_why_and_chosen_by_name(
    person: Person, servers: list[FakeServer]
) -> None:
    """A login that another choice replaces can be chosen again, with its token."""
    a, b, *_ = servers
    person.runs_here(a, person.state / "server")
    (person.config / "config.toml").write_text(f'server = "{b.url}"\ntoken_file = "token"\n')
    (person.config / "token").write_text("of-b\n")
    (person.config / "token").chmod(0o600)

    def listed() -> dict[str, tuple[str, bool, str]]:
        code = "import sys; from shoal.cli.main import invoke; sys.exit(invoke(['server', 'list', '--json']))"
        rows = json.loads(person.python(code))["servers"]
        return {row["name"]: (row["address"], row["up"], row["why"]) for row in rows}

    found = listed()
    name = next(name for name, (address, _, _) in found.items() if address == b.url)
    assert found[name] == (b.url, True, str(person.config / "config.toml"))
    assert found["own"] == (a.url, True, "") and found["embedded"][1:] == (False, "")
    person.type_all(("server", "use", "own"), ("server", "use", name))
    assert listed()[name] == (b.url, True, str(person.config / "config.toml"))
    b.requests.clear()
    person.type("whoami")
    assert [request.headers["authorization"] for request in b.requests] == ["Bearer of-b"]
    assert (person.config / "servers.toml").stat().st_mode & 0o777 == 0o600
    status, err = person.type("server", "use", "bux")
    assert status == 2 and "there is no server 'bux'" in err and "shoal server list" in err
    person.type("server", "use", "own")
    assert person.type("logout", name)[0] == 0 and name not in listed()


def test_after_server_start_every_command_uses_it_until_it_stops(person: Person) -> None:
    """From the outside, with real processes: submitted without a word of configuration, it is in the group's server."""
    started, submitted, looked, stopped, after = person.type_all(
        ("server", "start", "--listen", f"127.0.0.1:{free_port()}"),
        ("submit", "--", "true"), ("policy", "show"), ("server", "stop"), ("ps",),
    )  # fmt: skip
    url = f"unix:{person.state / 'server' / 'sock'}"
    assert started[1] == 0, started
    assert submitted[1:] == (0, f"shoal: server {url} (a running server of yours)\n")
    assert looked[1] == 0 and stopped[1] == 0, (looked, stopped)
    assert not (person.state / "shoal.db").exists(), "the embedded server was never needed"
    assert after[1] == 0
