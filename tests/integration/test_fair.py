"""Priority and share with real processes while short tasks are queued [protocol 5.3]: by the payloads' own ledger.

Each task writes its name into one file as its first deed; the file's order is the order of starts.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.client.client import Client
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
GROUP = "lab"


def ledger(cluster: Cluster) -> list[str]:
    """What began so far, in order."""
    file = cluster.folder / "ledger"
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def says(cluster: Cluster, word: str, then: str = "true") -> dict[str, str]:
    """A task that writes a word into the ledger."""
    return {"shell": f"echo {word} >> {cluster.folder}/ledger; {then}"}


def queue(cluster: Cluster, client: Client, count: int, seconds: float) -> str:
    """Many short tasks; returns when some of them are over, and the pilot knows how short they are."""
    task = {**says(cluster, "short", f"sleep {seconds}"), "array": f"1-{count}"}
    run: str = client.submit(cluster.submission(task))["run"]
    cluster.until(lambda: len(ledger(cluster)) >= count // 8, "some of the short ones began")
    return run


def check_first(cluster: Cluster, before: int, count: int, word: str) -> None:
    """It began before most of what was left of the queue."""
    cluster.until(lambda: word in ledger(cluster), f"{word} began")
    began = ledger(cluster).index(word) - before
    assert began < (count - before) // 3, f"{began} short ones began before it, of {count - before}"


@pytest.mark.parametrize(("count", "seconds"), [(600, 0.01), (80, 0.1)])
def test_a_higher_priority_starts_before_the_short_tasks_that_are_queued(
    cluster: Cluster, count: int, seconds: float
) -> None:
    """Was: 15 s behind 2,400 x 0.01 s, 11 s behind 240 x 0.1 s: after the last of them."""
    cluster.start_server()
    cluster.start_pilot(2)
    with cluster.client() as client:
        short = queue(cluster, client, count, seconds)
        before = len(ledger(cluster))
        client.submit(cluster.submission({**says(cluster, "urgent"), "priority": 10}))
        check_first(cluster, before, count, "urgent")
        client.submit(cluster.submission({**says(cluster, "alone"), "priority": 20, "rerun": "exclusive"}))
        check_first(cluster, before, count, "alone")
        client.cancel([short])


def test_another_owners_first_task_starts_before_the_short_tasks_that_are_queued(cluster: Cluster) -> None:
    """Was: one `echo` waited until 300 x 0.2 s of somebody else were through."""
    count = 80
    cluster.start_server()
    tokens: dict[str, str] = {}
    with cluster.client() as client:
        client.add_group(GROUP)
        for name in ("ada", "bea"):
            client.add_user(name, GROUP)
            tokens[name] = client.new_token("submit", owner=name)["token"]
        enrol = client.new_token("enrol", group=GROUP, site="here")["token"]
    told = cluster.address()
    file = cluster.folder / "group.json"
    file.write_text(json.dumps({**told, "token": enrol, "enrol": enrol}), encoding="utf-8")
    file.chmod(0o600)
    cluster.start_pilot(2, server_file=Path(file))
    with Client(told["url"], tokens["ada"]) as ada, Client(told["url"], tokens["bea"]) as bea:
        short = queue(cluster, ada, count, 0.2)
        before = len(ledger(cluster))
        bea.submit(cluster.submission(says(cluster, "guest")))
        check_first(cluster, before, count, "guest")
        ada.cancel([short])
