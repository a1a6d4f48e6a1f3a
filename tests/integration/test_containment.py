"""A message must not end the server: what one pilot sends costs that pilot, and nobody else [ADR 0016]."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import poisoned_server
from tests.integration.cluster import FAST, Cluster
from tests.unix_http import UnixHTTPConnection

pytestmark = pytest.mark.integration
Json = dict[str, Any]


class PoisonedCluster(Cluster):
    """A cluster whose server has a planted defect."""

    def server_argv(self, *more: str, state: Path | None = None) -> list[str]:
        """The same server, started by the script that plants it."""
        python, *words = super().server_argv(*more, state=state)
        return [python, poisoned_server.__file__, *words]


@pytest.fixture
def poisoned(tmp_path: Path, pilot_zip: Path) -> Iterator[PoisonedCluster]:
    """Such a cluster, ended and checked for leaks."""
    made = PoisonedCluster(tmp_path / "cluster", pilot_zip, {**FAST, "beat": 50.0, "suspect": 60.0, "lease": 90.0})
    try:
        yield made
    finally:
        made.close()


class Guest:
    """Somebody with a token of their own, and a pilot that says what the test has it say."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.seq, self.held = cluster, 0, dict[str, str]()
        admin = cluster.address()["token"]
        self.do("POST", "/v1/users", {"name": name}, admin)
        self.token = str(self.do("POST", "/v1/tokens", {"owner": name}, admin)["token"])
        self.enrol = str(self.do("POST", "/v1/tokens", {"kind": "enrol"}, self.token)["token"])
        room = {"cores": 8, "memory": 2**30, "disk": 2**30}
        said = {"protocol": 5, "version": "0", "host": name, "identity": name, "room": room, "nonce": name}
        made = self.do("POST", "/v1/pilots", said, self.enrol)
        self.pilot, self.session = made["pilot"], made["session"]

    def ask(self, method: str, path: str, body: Json | None, token: str) -> tuple[int, Json]:
        """Status and answer."""
        line = UnixHTTPConnection(self.cluster.address()["url"])
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            line.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = line.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            line.close()

    def do(self, method: str, path: str, body: Json, token: str) -> Json:
        """The answer to what must be granted."""
        status, found = self.ask(method, path, body, token)
        assert status < 300, found
        return found

    def exchange(self, **more: Any) -> tuple[int, Json]:
        """Say the next thing as the pilot."""
        self.seq += 1
        held = [{"attempt": attempt, "stage": stage} for attempt, stage in self.held.items()]
        said = {"protocol": 5, "pilot": self.pilot, "session": self.session, "seq": self.seq, "ack": self.seq - 1,
            "free": {"cores": 0}, "held": held, **more}  # fmt: skip
        status, answer = self.ask("POST", f"/v1/pilots/{self.pilot}/exchange", said, self.session)
        for lease in answer.get("leases", ()):
            run, _, rest = lease["attempt"].partition(".")
            first, _, tail = rest.partition("#")
            for element in range(int(first), int(first) + lease["count"]):
                self.held[f"{run}.{element}#{tail}"] = "running"
        return status, answer

    def work(self, count: int) -> list[str]:
        """Ask until so many tasks came."""
        end = time.monotonic() + 60
        while len(self.held) < count and time.monotonic() < end:
            assert self.exchange(free={"cores": 8})[0] == 200
        assert len(self.held) >= count
        return list(self.held)


def goes_on(cluster: Cluster, run: int, total: int) -> None:
    """Another's run comes to its end, each task once, in the same process."""
    assert cluster.wait_run(run) == {"succeeded": total}
    cluster.check_recorded_once(run, total)
    assert [event["data"]["incarnation"] for event in cluster.events("server_started")] == [1]


def test_a_report_over_time_of_a_task_without_a_limit_ends_nobody(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot()
    run = cluster.submit(cluster.telling(0.1, array="1-20"))
    guest = Guest(cluster, "mallory")
    told = guest.do("POST", "/v1/runs", {"tasks": [{"command": ["true"], "array": "1-6"}]}, guest.token)
    *others, last = guest.work(6)
    fine = [{"attempt": attempt, "outcome": "succeeded", "exit_code": 0} for attempt in others]
    assert guest.exchange(reports=fine, held=[])[0] == 200
    over = {"attempt": last, "outcome": "failed", "cause": "over_time", "duration": 10.0}
    status, answer = guest.exchange(reports=[over], held=[])
    assert (status, [verdict["verdict"] for verdict in answer["verdicts"]]) == (200, ["recorded"])
    assert cluster.row(int(told["run"][1:]), 6)["cause"] == "task_error"
    goes_on(cluster, run, 20)


def test_a_command_that_meets_a_defect_costs_its_sender_only(poisoned: PoisonedCluster) -> None:
    """The hostile pilot is refused, then shut out; a parked exchange is answered, and everyone's work goes on."""
    cluster = poisoned
    cluster.start_server()
    cluster.start_pilot()
    mallory, innocent = Guest(cluster, "mallory"), Guest(cluster, "ida")
    told = mallory.do("POST", "/v1/runs", {"tasks": [{"command": ["true"]}]}, mallory.token)
    (attempt,) = mallory.work(1)
    run = cluster.submit(cluster.telling(0.1, array="1-30"))
    cluster.wait_succeeded(run, 3)
    heard: list[tuple[int, Json]] = []
    waiting = threading.Thread(target=lambda: heard.append(innocent.exchange()))
    waiting.start()

    def parked() -> bool:
        with cluster.client() as client:
            return any(
                row["pilot"] == innocent.pilot and row["seen"] > row["joined"] for row in client.pilots()["pilots"]
            )

    cluster.until(parked, "the innocent pilot waits for work")
    poison = [{"attempt": attempt, "outcome": "succeeded", "exit_code": 0, "message": "poison"}]
    statuses: list[tuple[int, Json]] = []

    def is_heard() -> bool:
        statuses.append(mallory.exchange(reports=poison))
        return statuses[-1][0] != 429

    for _ in range(2):
        cluster.until(is_heard, "it is heard while nothing is rebuilt")
    assert [(status, said["error"]["code"]) for status, said in statuses if status != 429] == [
        (500, "internal_error")
    ] * 2
    waiting.join(30)  # its beat is longer: only the rebuild answers it
    assert heard[0][0] == 200 and heard[0][1]["verdicts"] == []

    def shut_out() -> bool:
        status, answer = mallory.exchange(reports=poison)
        assert status == 429, answer
        return bool(answer["error"]["code"] == "locked_out")

    cluster.until(shut_out, "it is shut out")
    assert cluster.row(int(told["run"][1:]), 1)["state"] == "leased"  # what it said has changed nothing
    goes_on(cluster, run, 30)
    assert "planted defect" in str([event["data"]["why"] for event in cluster.events("engine_rebuilt")])
    assert len(cluster.events("engine_rebuilt")) == 2
    page = UnixHTTPConnection(cluster.address()["url"])
    page.request("GET", "/metrics", headers={"Authorization": f"Bearer {cluster.address()['token']}"})
    figures = page.getresponse().read().decode()
    page.close()
    assert "shoal_commands_contained_total 2.0" in figures, figures[:2_000]
    assert cluster.server_log.read_text().count("a command met a defect") == 2
