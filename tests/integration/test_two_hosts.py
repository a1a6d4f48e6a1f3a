"""A server on one host, pilots and people on another: two network namespaces, real processes, real TLS.

The far host has a Python and nothing of ours: its temporary directories are empty, its environment is, and what makes
it work is the one line of `shoal join`, pasted into a shell. Everything that must be refused is, in words.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shoal.client.client import Client
from shoal.client.connection.tls import fetch_ca
from shoal.model.ids import parse_attempt
from tests.integration import namespaces
from tests.integration.cluster import FAST, clean_env, comm, is_dead
from tests.integration.namespaces import NEAR, Namespace

pytestmark = [pytest.mark.integration, pytest.mark.slow]
T = TypeVar("T")
Json = dict[str, Any]
PATIENCE = 90.0  # for what takes a few seconds on an idle machine
SHOAL = (sys.executable, "-m", "shoal.cli")
BARE = ("/tmp", "/var/tmp", "/dev/shm")  # what a program may leave things in; empty on the far host
CHAIN = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n+"
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+-----END [A-Z ]*PRIVATE KEY-----"
)
SESSION = re.compile(rb'"session":"(shoal_ses_[A-Za-z0-9_-]{43})"')


def until(condition: Callable[[], T], what: Callable[[], str] | str, within: float = PATIENCE) -> T:
    """Wait until something is true, and return it."""
    end = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return found


# --- the far host
class FarPilot:
    """A pilot on the far host, as a person starts it: a line pasted into a shell with an empty environment."""

    def __init__(self, far: Namespace, log: Path, line: str, hidden: Sequence[str] = BARE) -> None:
        self.far, self.log = far, log
        with log.open("wb") as out:
            self.shell = subprocess.Popen(
                far.argv("env", "-i", "/bin/sh", hidden=[Path(folder) for folder in hidden]),
                stdin=subprocess.PIPE, stdout=out, stderr=out, cwd="/", start_new_session=True,
            )  # fmt: skip
        assert self.shell.stdin is not None
        look = f"find {' '.join(hidden)} -mindepth 1" if hidden == BARE else ":"
        self.shell.stdin.write(f'{line}\necho "status $?"\n{look}\necho "that is all"\n'.encode())
        self.shell.stdin.close()

    @property
    def words(self) -> str:
        """What it said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def name(self) -> str:
        """Its name now."""
        names = re.findall(r"joined pilot=(p[0-9a-f]+)", self.words) or re.findall(
            r"pilot (p[0-9a-f]+) joined", self.words
        )
        return str(names[-1]) if names else ""

    @property
    def pid(self) -> int:
        """The pilot itself, below the shell."""
        return next(pid for pid in _below(self.shell.pid) if comm(pid) == "shoal-pilot")

    def wait_joined(self) -> FarPilot:
        """Wait until the server has taken it in."""
        until(lambda: self.name or self.shell.poll() is not None, lambda: f"it joins\n{self.words}")
        assert self.name, self.words
        return self

    def wait_end(self, within: float = PATIENCE) -> int:
        """Its exit status, as the shell saw it."""
        self.shell.wait(within)
        found = re.search(r"^status (\d+)$", self.words, re.MULTILINE)
        assert found is not None, self.words
        return int(found[1])

    @property
    def left(self) -> list[str]:
        """Files that were there when it had ended."""
        return self.words.partition("status ")[2].splitlines()[1:-1]

    def close(self) -> None:
        """End it, if it has not ended: by SIGTERM, so that the server knows. It gives tasks to a killed one for 75 s more."""
        for patience in (1.0, 30.0):  # the second SIGTERM stops what runs
            if self.shell.poll() is None:
                with contextlib.suppress(StopIteration, ProcessLookupError, subprocess.TimeoutExpired):
                    os.kill(self.pid, signal.SIGTERM)
                    self.shell.wait(patience)
        if self.shell.poll() is None:
            for pid in [*_below(self.shell.pid), self.shell.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.shell.wait(PATIENCE)


def _below(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{one}/task").glob("*/children"):
                found += [int(word) for word in path.read_text().split()]
    return found[1:]


# --- both hosts
class Hosts:
    """The two networks, a server as people start one, and a second one with short times."""

    def __init__(self, near: Namespace, far: Namespace, folder: Path) -> None:
        self.near, self.far, self.folder = near, far, folder
        self.pilots: list[FarPilot] = []
        self._numbers = itertools.count(1)
        self.anna = ""  # her token

    def env(self, where: str) -> dict[str, str]:
        """A person's environment on one of the hosts."""
        home = self.folder / where
        home.mkdir(exist_ok=True)
        names = {"HOME": home, "XDG_STATE_HOME": home / "state", "XDG_CONFIG_HOME": home / "config"}
        return {**clean_env(), **{name: str(path) for name, path in names.items()}}

    def popen(self, where: str, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Start a command of Shoal on one of the hosts."""
        network = self.near if where == "near" else self.far
        return subprocess.Popen(
            network.argv(*SHOAL, *words), env=self.env(where), cwd=self.folder / where, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip

    def shoal(self, where: str, *words: str, said: str = "", status: int = 0) -> str:
        """What a command prints; its complaints, if it is to fail."""
        self.env(where)
        with self.popen(where, *words) as process:
            out, err = process.communicate(said, timeout=PATIENCE)
        assert process.returncode == status, (words, process.returncode, out, err)
        return err if status else out

    def join(self, *words: str) -> str:
        """Anna, on the far host, asks for a line."""
        return self.shoal("far", "join", *words)

    def paste(self, line: str, hidden: Sequence[str] = BARE) -> FarPilot:
        """Paste a line into a shell on the far host."""
        pilot = FarPilot(self.far, self.folder / f"far-pilot{next(self._numbers)}.log", line, hidden)
        self.pilots.append(pilot)
        return pilot

    def as_anna(self, work: Callable[[Client], T]) -> T:
        """Something that Anna does, on the far host, without the command line."""

        def there() -> T:
            with Client(f"https://{NEAR}:8443", self.anna, self.fingerprint) as client:
                return work(client)

        return self.far.do(there)

    @property
    def fingerprint(self) -> str:
        """The server's."""
        return str(json.loads(self.shoal("near", "server", "status", "--json"))["fingerprint"])

    def row(self, run: str) -> Json:
        """A run, as Anna sees it."""
        return self.as_anna(lambda client: client.run(run))

    def wait_state(self, task: str, state: str) -> Json:
        """Wait until a task is in a state; returns all that is known of it."""

        def look() -> Json:
            found = self.as_anna(lambda client: client.task(task))
            return found if found["state"] == state else {}

        return until(look, f"{task} is {state}")


@pytest.fixture(scope="module")
def networks() -> Iterator[tuple[Namespace, Namespace]]:
    """Two networks with a cable between them."""
    reason = namespaces.missing()
    if reason:
        pytest.skip(f"{reason}: two hosts were NOT tested")
    with namespaces.joined() as ends:
        yield ends


@pytest.fixture(scope="module")
def hosts(networks: tuple[Namespace, Namespace], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A server started as the handbook says, with its usual times, and Anna logged in on the far host."""
    made = Hosts(*networks, tmp_path_factory.mktemp("hosts"))
    try:
        told = made.shoal("near", "server", "start", "--listen", f"{NEAR}:8443")
        url = next(line.split()[1] for line in told.splitlines() if line.startswith("server"))
        home = made.folder / "near" / "config" / "shoal"
        home.mkdir(parents=True)
        (home / "config.toml").write_text(f'server = "{url}"\n')
        made.shoal("near", "user", "add", "anna")
        login = made.shoal("near", "token", "new", "--user", "anna").strip()
        made.anna = login.rpartition("#")[2]
        answer = made.shoal("far", "login", "-", said=login)
        assert answer.startswith(f"logged in to https://{NEAR}:8443 as anna (user)"), answer
        yield made
    finally:
        for pilot in made.pilots:
            pilot.close()
        made.shoal("near", "server", "stop")


@pytest.fixture(autouse=True)
def no_pilot_stays(hosts: Hosts) -> Iterator[None]:
    """What a failed test leaves does not work for the next."""
    yield
    for pilot in hosts.pilots:
        pilot.close()


# --- the whole way
def test_a_pasted_line_makes_a_bare_host_run_500_tasks_once_each_and_leaves_nothing_there(hosts: Hosts) -> None:
    """From the line to the last file, over a network, as a user."""
    assert hosts.far.pids() == [] and hosts.far.sockets() == []
    line = hosts.join("--site", "box", "--cores", "4")
    assert "\n" not in line.strip()
    pilot = hosts.paste(line).wait_joined()
    out = hosts.shoal("far", "sweep", "--json", "-q", "x=1..500", "--", "sh", "-c", "echo line; echo {x}")
    run = json.loads(out.splitlines()[-1])["run"]
    results = [json.loads(text) for text in hosts.shoal("far", "results", run, "--json", "--limit", "0").splitlines()]
    assert len(results) == 500
    assert all(row["state"] == "succeeded" and row["result"] == row["x"] for row in results), [
        row for row in results if row["result"] != row["x"]
    ][:5]
    assert {row["x"] for row in results} == set(range(1, 501))
    events = [json.loads(text) for text in hosts.shoal("near", "events", "--json").splitlines()]
    of_run = [event for event in events if event["run"] == run]
    finals = Counter(event["task"] for event in of_run if event["kind"] == "task_finished")
    assert finals == Counter(f"{run}.{n}" for n in range(1, 501))
    assert sum(event["kind"] == "run_finished" for event in of_run) == 1
    leases = [event["data"] for event in events if event["kind"] == "tasks_leased"]
    leased = [attempt for data in leases for attempt in data["attempts"]]
    for first, count in [chunk for data in leases for chunk in data.get("chunks", [])]:
        attempt = parse_attempt(first)
        leased += [str(attempt._replace(element=attempt.element + n)) for n in range(count)]
    names = Counter(parse_attempt(attempt).text for attempt in leased)
    assert names == Counter(f"{run}.{n}#1" for n in range(1, 501)), "one lease each"

    _follow_and_signal(hosts)

    hosts.as_anna(lambda client: client.drain([pilot.name]))
    assert pilot.wait_end() == 0, pilot.words
    assert pilot.left == []
    until(lambda: hosts.far.pids() == [], lambda: f"no process is left: {hosts.far.pids()}")
    assert hosts.far.sockets() == []


def _follow_and_signal(hosts: Hosts) -> None:
    """What runs on the far host is read along, and hears a signal."""
    script = "trap 'echo heard it; exit 0' USR1; echo begun; while :; do sleep 0.1; done"
    with hosts.popen("far", "run", "--json", "-q", "--", "sh", "-c", script) as running:
        task = until(
            lambda: next((row["run"] for row in hosts.as_anna(lambda c: c.runs(state="open"))["runs"]), 0),
            "it is there",
        )
        name = f"{task}.1"
        hosts.wait_state(name, "running")
        with hosts.popen("far", "logs", name, "--follow") as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "begun\n"
            assert hosts.as_anna(lambda client: client.task(name))["state"] == "running"
            hosts.shoal("far", "signal", "USR1", name)
            assert follower.stdout.read() == "heard it\n"
            assert follower.wait(PATIENCE) == 0
        out, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, (out, err)


# --- refusals
def test_lines_that_must_not_work_are_refused_in_words(hosts: Hosts, pilot_zip: Path) -> None:
    """A wrong fingerprint [input E62], an expired, a used-up token [input E61], another site [input E63]: each ends
    with 4 and says why."""
    short = hosts.join("--expires", "1s")
    born = time.monotonic()
    good = hosts.join("--site", "box")
    once = hosts.join("--site", "box", "--once")
    mark = _joins(good).split("#")[1]
    wrong = good.replace(mark, "0" * 64)
    first = hosts.paste(once).wait_joined()
    time.sleep(max(0.0, 1.2 - (time.monotonic() - born)))
    refused = {
        "server certificate does not match": [hosts.paste(wrong), _bare_pilot(hosts, pilot_zip, _joins(wrong))],
        "refused: 401": [hosts.paste(short)],
        " expired on ": [_bare_pilot(hosts, pilot_zip, _joins(short))],
        "the server refused this pilot: the token is missing, wrong or expired": [hosts.paste(once)],
        "the server refused this pilot: this token is for site box": [hosts.paste(good.replace("--site box", "--site attic"))],
    }  # fmt: skip
    for words, pilots in refused.items():
        for pilot in pilots:
            assert pilot.wait_end() == 4, (words, pilot.words)
            assert words in pilot.words
            assert "Traceback" not in pilot.words and "shoal_enr_" not in pilot.words
    hosts.as_anna(lambda client: client.drain([first.name]))
    assert first.wait_end() == 0


def _joins(line: str) -> str:
    found = re.search(r"printf '%s\\n' '([^']+)'", line) or re.search(r"printf '%s\\n' (\S+)", line)
    assert found is not None, line
    return found[1]


def _bare_pilot(hosts: Hosts, zipped: Path, join: str) -> FarPilot:
    """The pilot itself, without the line's own checks before it."""
    line = f"printf '%s\\n' '{join}' | /usr/bin/python3 -I {zipped} --join-fd 0"
    return hosts.paste(line, hidden=())


def test_a_revoked_enrolment_sends_its_pilots_away_and_their_work_goes_on_elsewhere(
    hosts: Hosts, record_property: Callable[[str, object], None]
) -> None:
    """Within a minute [security S17]; with the usual times it is the next exchange."""
    answer = json.loads(hosts.join("--site", "box", "--cores", "1", "--json"))
    victim = hosts.paste(answer["line"]).wait_joined()
    with hosts.popen(
        "far",
        "run",
        "--json",
        "-q",
        "--",
        "sh",
        "-c",
        "echo $SHOAL_ATTEMPT; case $SHOAL_ATTEMPT in *#1) sleep 600;; esac; echo done",
    ) as running:
        task = until(
            lambda: next((row["run"] for row in hosts.as_anna(lambda c: c.runs(state="open"))["runs"]), 0),
            "it is there",
        )
        name = f"{task}.1"
        hosts.wait_state(name, "running")
        other = hosts.paste(hosts.join("--site", "attic", "--cores", "1")).wait_joined()
        began = time.monotonic()
        told = hosts.shoal("near", "token", "revoke", answer["id"])
        assert "1 token revoked, 1 pilot ended" in told
        assert victim.wait_end(60.0) == 4, victim.words
        took = time.monotonic() - began
        record_property("revocation_seconds", round(took, 2))
        print(f"\nrevocation: the pilot was gone after {took:.2f} s")
        assert took < 60.0
        assert "its enrolment token was revoked" in victim.words
        out, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, (out, err)
    row = hosts.as_anna(lambda client: client.task(name))["task"]
    assert (row["pilot"], row["attempt"], row["state"]) == (other.name, 2, "succeeded")
    assert hosts.paste(answer["line"]).wait_end() == 4
    assert "refused: 401" in hosts.pilots[-1].words
    hosts.as_anna(lambda client: client.drain([other.name]))
    assert other.wait_end() == 0


def test_a_revoked_submit_token_is_refused_with_the_next_command(hosts: Hosts) -> None:
    """The client ends with 3 and says what to do."""
    answer = json.loads(hosts.shoal("near", "token", "new", "--user", "anna", "--json"))
    env = {**hosts.env("far"), "SHOAL_TOKEN": answer["token"]}
    words = hosts.far.argv(*SHOAL, "ps")
    before = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert before.returncode == 0, before.stderr
    hosts.shoal("near", "token", "revoke", answer["id"])
    after = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert after.returncode == 3
    assert f"the token {answer['id']} was revoked on" in after.stderr and "shoal login" in after.stderr
    assert answer["token"] not in after.stderr + after.stdout


def test_a_pilot_too_many_waits_and_comes_in_when_there_is_room(hosts: Hosts) -> None:
    """429 `site_full` [input E63], said once; then it comes in by itself."""
    line = hosts.join("--site", "box", "--max-pilots", "1", "--cores", "1")
    first = hosts.paste(line).wait_joined()
    second = hosts.paste(line)
    until(lambda: "lets no more pilots in now" in second.words, lambda: f"it is told to wait\n{second.words}")
    assert "this token lets 1 pilot in at a time" in second.words
    assert second.shell.poll() is None and not second.name
    hosts.as_anna(lambda client: client.drain([first.name]))
    assert first.wait_end() == 0
    second.wait_joined()
    assert second.words.count("lets no more pilots in now") == 1
    hosts.as_anna(lambda client: client.drain([second.name]))
    assert second.wait_end() == 0


# --- a server with short times
@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    json: Json

    @property
    def code(self) -> str:
        """The word of a refusal."""
        return str(self.json["error"]["code"])


@dataclass
class Thief:
    """Whoever has a session and perhaps a certificate, and says what a test has it say, over TLS from the far host."""

    quick: Quick
    name: str
    session: str
    chain: bytes = b""
    held: tuple[Json, ...] = ()

    def exchange(self, seq: int, nonce: str, **more: Any) -> Answer:
        """One exchange."""
        said = {
            "protocol": 4, "pilot": self.name, "session": self.session, "seq": seq, "ack": seq - 1, "free": {"cores": 0},
            "held": list(self.held), "nonce": nonce, **more,
        }  # fmt: skip
        return self.quick.ask("POST", f"/v1/pilots/{self.name}/exchange", said, self.session, self.chain)

    def enrol_again(self, token: str = "") -> Answer:
        """As a pilot does that was disowned: by its session, or by the token it came with."""
        said = {**self.quick.register(), "former": {"pilot": self.name, "session": self.session}}
        return self.quick.ask("POST", "/v1/pilots", said, token or self.session, b"" if token else self.chain)


class Quick:
    """A server that gives a silent pilot up after three seconds."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.state = hosts, hosts.folder / "quick"
        self.log = hosts.folder / "quick.log"
        words = ["--state", str(self.state), "--listen", f"{NEAR}:9443", "--no-pilot", "--timing", json.dumps(FAST)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                hosts.near.argv(sys.executable, "-m", "shoal.server", *words), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd="/", env=clean_env(), start_new_session=True,
            )  # fmt: skip
        until(self._answers, lambda: self.log.read_text())
        self.fingerprint = str(self.admin(lambda client: client.server())["fingerprint"])
        self._nonces = itertools.count(1)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError, ValueError):
            return self.admin(lambda client: client.health())
        return False

    def admin(self, work: Callable[[Client], T]) -> T:
        """Something that its administrator does, on its host."""
        told = json.loads((self.state / "server.json").read_text())

        def there() -> T:
            with Client(told["url"], told["token"]) as client:
                return work(client)

        return self.hosts.near.do(there)

    def line(self, *options: str) -> str:
        """A line for the far host."""
        told = json.loads((self.state / "server.json").read_text())
        env = {**self.hosts.env("near"), "SHOAL_TOKEN": told["token"]}
        words = self.hosts.near.argv(*SHOAL, "join", "--server", told["url"], *options)
        return subprocess.run(
            words, env=env, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout

    def enrol_token(self) -> str:
        """One more enrolment token."""
        return str(self.admin(lambda client: client.new_token("enrol", site="box"))["token"])

    def register(self) -> Json:
        """What an emulated pilot says when it comes."""
        return {
            "protocol": 4, "version": "0", "host": "far", "identity": "far", "room": {"cores": 1, "memory": 2**30},
            "nonce": f"nonce-{next(self._nonces)}",
        }  # fmt: skip

    def thief(self, enrol: str) -> Thief:
        """An emulated pilot, properly enrolled over TLS."""
        answer = self.ask("POST", "/v1/pilots", self.register(), enrol)
        assert answer.status == 200, answer
        made = answer.json
        return Thief(self, made["pilot"], made["session"], (made["certificate"] + "\n" + made["key"]).encode())

    def ask(self, method: str, path: str, body: Json, token: str, chain: bytes = b"") -> Answer:
        """One request over TLS from the far host, under this certificate."""

        def there() -> Answer:
            authority = fetch_ca(f"https://{NEAR}:9443", NEAR, 9443, self.fingerprint, 10.0)
            context = ssl.create_default_context(cadata=authority)
            if chain:
                handle = os.memfd_create("chain")
                os.write(handle, chain)
                context.load_cert_chain(f"/proc/self/fd/{handle}")
                os.close(handle)
            with (
                socket.create_connection((NEAR, 9443), 10.0) as plain,
                context.wrap_socket(plain, server_hostname="shoal-server") as link,
            ):
                connection = http.client.HTTPConnection(NEAR, 9443)
                connection.sock = link
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                connection.request(method, path, json.dumps(body), {**headers, "Host": "shoal-server"})
                answer = connection.getresponse()
                return Answer(answer.status, json.loads(answer.read()))

        return self.hosts.far.do(there)

    def submit(self, *tasks: Json) -> str:
        """A run of the administrator's."""
        return str(self.admin(lambda client: client.submit({"tasks": list(tasks)}))["run"])

    def wait_finished(self, run: str) -> list[Json]:
        """The rows of a run that is over."""
        until(
            lambda: self.admin(lambda c: c.run(run))["finished"],
            lambda: f"{run} is over\n{self.log.read_text()[-2000:]}",
        )
        return list(self.admin(lambda client: client.tasks(run))["tasks"])

    def running(self, run: str) -> list[Json]:
        """The tasks of a run that run."""
        return list(self.admin(lambda client: client.tasks(run, states=["running"]))["tasks"])

    def events(self, run: str, *kinds: str) -> list[Json]:
        """Its journal."""
        return list(self.admin(lambda client: client.events(run=run, kinds=kinds))["events"])

    def drain(self, *pilots: FarPilot) -> None:
        """Have them end as they should."""
        living = {
            row["pilot"] for row in self.admin(lambda client: client.pilots())["pilots"] if row["state"] != "gone"
        }
        self.admin(lambda client: client.drain(sorted(living)))
        for pilot in pilots:
            assert pilot.wait_end() == 0, pilot.words

    def close(self) -> None:
        """End it as it should."""
        assert self.process.poll() is None, self.log.read_text()
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0


@pytest.fixture(scope="module")
def quick(hosts: Hosts) -> Iterator[Quick]:
    """The second server."""
    made = Quick(hosts)
    try:
        yield made
        made.close()
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait(10)


def test_a_replayed_exchange_gets_the_stored_reply_and_an_older_one_none(quick: Quick) -> None:
    """The stored reply, or a refusal [input E60]."""
    pilot = quick.thief(quick.enrol_token())
    replies = [pilot.exchange(seq, f"n{seq}") for seq in range(1, 5)]
    assert [reply.status for reply in replies] == [200] * 4
    assert pilot.exchange(4, "n4") == replies[3] and pilot.exchange(3, "n3") == replies[2]
    old = pilot.exchange(1, "n1")
    assert (old.status, old.code) == (409, "replay")
    assert pilot.exchange(5, "n5").status == 200, "it goes on"


def test_a_session_counts_only_under_its_own_certificate(quick: Quick) -> None:
    """[security S3]: neither without a certificate nor under another pilot's, and not for enrolling again either."""
    owner, other = quick.thief(quick.enrol_token()), quick.thief(quick.enrol_token())
    assert owner.exchange(1, "n1").status == 200
    bare = Thief(quick, owner.name, owner.session)
    dressed = Thief(quick, owner.name, owner.session, other.chain)
    for thief in (bare, dressed):
        refusals = [thief.exchange(2, "m2"), thief.enrol_again()]
        assert [(answer.status, answer.code) for answer in refusals] == [(401, "unauthorised")] * 2
    assert owner.exchange(2, "n2").status == 200, "its owner was not disturbed"


def test_a_cloned_session_ends_for_both_and_each_task_is_recorded_once(quick: Quick) -> None:
    """[input E59]: root copies the session and the certificate out of a running pilot's memory, as a cloned machine
    would."""
    hosts = quick.hosts
    line = quick.line("--cores", "2")
    pilot = hosts.paste(line, hidden=[str(quick.state)]).wait_joined()
    tale = hosts.folder / "clone-tale"
    shell = f"echo $SHOAL_TASK $SHOAL_ATTEMPT >> {tale}; sleep 1.5; echo {{i}}"
    run = quick.submit({"shell": shell, "array": "1-6"})
    until(lambda: len(quick.running(run)) == 2, "two run")
    stolen = steal(quick, pilot)
    pilots_before = pilot.name
    seen = []
    for seq in range(1, 10_000):  # those long past are replays; the first that is remembered meets the pilot's own
        answer = stolen.exchange(seq, "the clone's")
        seen.append((answer.status, answer.code if answer.status != 200 else ""))
        if seen[-1] != (409, "replay"):
            break
    assert seen[-1] == (409, "session_in_use"), seen[-3:]
    until(lambda: pilot.name != pilots_before, lambda: f"the pilot enrols again\n{pilot.words}")
    until(lambda: {row["pilot"] for row in quick.running(run)} == {pilot.name}, "it has its work back")
    refused = stolen.enrol_again()
    assert (refused.status, refused.code) == (401, "unauthorised"), "one came back by this session, and no other does"
    again = stolen.enrol_again(_joins(line).rpartition("#")[2])  # as a clone does: it has the line's token, too
    assert again.status == 200, again
    told = again.json
    clone = Thief(quick, told["pilot"], told["session"], (told["certificate"] + "\n" + told["key"]).encode())
    assert clone.name not in (pilot.name, pilots_before)
    clone.held = tuple({"attempt": f"{run}.{n}#1@1", "stage": "running"} for n in (1, 2))  # as a clone would say
    answer = clone.exchange(1, "c1")
    cancelled = {order["attempt"] for order in answer.json["orders"] if order["kind"] == "cancel"}
    assert answer.status == 200 and cancelled == {f"{run}.{n}#1@1" for n in (1, 2)}, "whoever was first has the work"
    clone.held = ()
    assert clone.exchange(2, "c2", leaving="the clone goes").status == 200
    rows = quick.wait_finished(run)
    assert [(row["element"], row["state"], row["last_line"]) for row in rows] == [
        (n, "succeeded", str(n)) for n in range(1, 7)
    ]
    assert Counter(event["task"] for event in quick.events(run, "task_finished")) == Counter(range(1, 7))
    starts = Counter(line.split()[0] for line in tale.read_text().splitlines())
    assert set(starts.values()) == {1}, f"nothing ran twice: {starts}"
    quick.drain(pilot)


def steal(quick: Quick, pilot: FarPilot) -> Thief:
    """The session and the certificate of a running pilot, read out of its memory; only root can."""
    session, chain = b"", b""
    pid = pilot.pid
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            low, high = (int(part, 16) for part in span.split("-"))
            if not rights.startswith("rw") or high - low > 1 << 28:
                continue
            with contextlib.suppress(OSError, ValueError):
                memory.seek(low)
                data = memory.read(high - low)
                session = session or next(iter(SESSION.findall(data)), b"")
                chain = chain or next(iter(CHAIN.findall(data)), b"")
    assert session and chain, "nothing was found in its memory"
    return Thief(quick, pilot.name, session.decode(), chain)


def test_a_cut_cable_loses_nothing_and_late_results_are_adopted(quick: Quick) -> None:
    """Eight seconds without a link, where a pilot is given up after three: what ran meanwhile counts."""
    hosts = quick.hosts
    tale = hosts.folder / "cut-tale"
    pilot = hosts.paste(quick.line("--cores", "4"), hidden=[str(quick.state)]).wait_joined()
    name = pilot.name
    shell = f"echo $SHOAL_TASK $SHOAL_ATTEMPT >> {tale}; sleep 2; echo {{i}}"
    run = quick.submit({"shell": shell, "array": "1-12"})
    until(lambda: len(quick.running(run)) == 4, "four run")
    hosts.far.set_link(up=False)
    try:
        cut = time.monotonic()
        until(lambda: quick.events(run, "task_lost_pilot"), "the server gives the pilot up", 15.0)
        time.sleep(max(0.0, 8.0 - (time.monotonic() - cut)))
        assert quick.admin(lambda client: client.run(run))["finished"] is None
        assert not is_dead(pilot.pid)
    finally:
        hosts.far.set_link(up=True)
    rows = quick.wait_finished(run)
    assert [(row["element"], row["state"], row["last_line"]) for row in rows] == [
        (n, "succeeded", str(n)) for n in range(1, 13)
    ]
    assert Counter(event["task"] for event in quick.events(run, "task_finished")) == Counter(range(1, 13))
    adopted = quick.events(run, "task_adopted")
    assert adopted, "a result that came late was taken"
    starts = Counter(line.split()[0] for line in tale.read_text().splitlines())
    assert set(starts.values()) == {1}, f"nothing ran twice: {starts}\n{pilot.words}"
    assert pilot.name != name, "it came back under a new name"
    quick.drain(pilot)
