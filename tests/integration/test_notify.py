"""Notices with real processes: a receiver on loopback, a command, and who may be told what [ADR 0054]."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from shoal.model.errors import BadInput, Refused
from tests.integration.cluster import Cluster, Json, clean_env

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SHOAL = str(Path(sys.executable).with_name("shoal"))


class Receiver(HTTPServer):
    """Keeps what it is told; it may answer with something else than 200 for a while."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[Json] = []
        self.statuses: list[int] = []  # of the next answers
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.place}/hook?secret=abc"

    def what(self) -> list[str]:
        return [one["what"] for one in self.told]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = receiver.statuses.pop(0) if receiver.statuses else 204
        receiver.told.append(
            {**document, "path": self.path, "header": self.headers["X-Shoal-Notice"], "status": status}
        )
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.shutdown()
    made.server_close()
    made.thread.join(10.0)


def allow(cluster: Cluster, *hosts: str) -> None:
    with cluster.client() as client:
        client.set_policy({"notify": {"hosts": list(hosts)}}, client.policy()["version"])


def kinds(cluster: Cluster, run: int) -> list[str]:
    with cluster.client() as client:
        return [event["kind"] for event in client.events(run=f"r{run}")["events"] if event["kind"].startswith("notice")]


def test_a_url_is_told_of_the_first_failure_and_of_the_end_and_again_after_errors(
    cluster: Cluster, receiver: Receiver
) -> None:
    cluster.start_server()
    allow(cluster, receiver.place)
    receiver.statuses = [503]
    cluster.start_pilot(1)
    run = cluster.submit({"command": ["false"], "array": "1-3"}, name="night", notify=[receiver.url])
    cluster.wait_run(run)
    cluster.until(lambda: len(receiver.told) >= 3, "both were told, one of them twice")
    failure, end = ([one for one in receiver.told if one["what"] == what] for what in ("first_failure", "end"))
    assert len({one["id"] for one in receiver.told}) == 2, "a repetition has the same id"
    assert all(one["header"] == one["id"] and one["path"] == "/hook?secret=abc" for one in receiver.told)
    assert failure[0]["data"]["cause"] == "task_error" and failure[0]["run"] == f"r{run}"
    assert end[-1]["data"]["counts"] == {"failed": 3} and end[-1]["text"] == f"Shoal: r{run} (night) is over: 3 failed"
    cluster.until(lambda: kinds(cluster, run) == ["notice_sent", "notice_sent"], "both are in the journal")
    with cluster.client() as client:
        journal = json.dumps(client.events(run=f"r{run}")["events"])
        assert "secret" not in journal + json.dumps(client.run(f"r{run}")), "an address may hold a secret"


def test_what_was_not_told_before_a_kill_is_told_after_it(cluster: Cluster, receiver: Receiver) -> None:
    cluster.start_server()
    allow(cluster, receiver.place)
    cluster.start_pilot(1)
    receiver.statuses = [500] * 2
    run = cluster.submit({"command": ["true"]}, notify=[receiver.url])
    cluster.until(lambda: receiver.told, "it was tried")
    cluster.kill_server()
    receiver.statuses = []
    cluster.start_server()
    cluster.until(lambda: receiver.told[-1]["status"] == 204, "it was told at last")
    assert set(receiver.what()) == {"end"} and len({one["id"] for one in receiver.told}) == 1
    cluster.until(lambda: kinds(cluster, run) == ["notice_sent"], "once")


def test_a_server_of_several_people_tells_only_hosts_that_its_policy_names(
    cluster: Cluster, receiver: Receiver
) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    task: Json = {"command": ["true"]}
    with pytest.raises(Refused, match=f"sends no notices to http://{receiver.place}"):
        cluster.submit(task, notify=[receiver.url])
    with pytest.raises(Refused, match="runs no commands"):
        cluster.submit(task, notify=["touch /tmp/never"])
    for wrong in ("ftp://x/y", "http://u:p@h/", "http://", "http://h h/"):
        with pytest.raises(BadInput):
            cluster.submit(task, notify=[wrong])
    allow(cluster, receiver.place)
    receiver.statuses = [302]
    run = cluster.submit(task, notify=[receiver.url])
    cluster.until(lambda: kinds(cluster, run) == ["notice_failed"], "a redirect is not followed, nor tried again")
    gate = cluster.folder / "gate"
    run = cluster.submit(cluster.telling(gate), notify=[receiver.url])
    cluster.wait_running(run)
    allow(cluster)
    gate.touch()
    cluster.until(lambda: kinds(cluster, run) == ["notice_failed"], "what is no longer allowed is not told")
    assert len(receiver.told) == 1


def test_the_server_of_one_person_runs_their_command_in_their_directory(tmp_path: Path, receiver: Receiver) -> None:
    env = {**clean_env(), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "PATH": os.environ["PATH"]}

    def shoal(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SHOAL, *argv], capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL
        )

    try:
        command = 'cat > told.json; echo "$SHOAL_EVENT $SHOAL_RUN $SHOAL_TEXT" > told'
        done = shoal("run", "--notify", command, "--notify", receiver.url, "--", "true")
        assert done.returncode == 0, done.stderr
        end = time.monotonic() + 60.0
        while not ((tmp_path / "told").exists() and receiver.told) and time.monotonic() < end:
            time.sleep(0.05)
        assert (tmp_path / "told").read_text() == "end r1 Shoal: r1 is over: 1 succeeded\n"
        assert json.loads((tmp_path / "told.json").read_text())["data"]["counts"] == {"succeeded": 1}
        assert receiver.what() == ["end"]
    finally:
        shoal("server", "stop")
