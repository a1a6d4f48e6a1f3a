"""The Tier-0 chain of the examples, with a server that is killed in its middle: by the payload's own book every file went into
one task, and no event is lost [CMS C8; ADR 0058]."""

from __future__ import annotations

import os
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tests.integration.cluster import PROVE, Cluster, Json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
FILES, EVENTS = (60, 100) if PROVE else (6, 20)
KILLS = 6 if PROVE else 2


def feed(cluster: Cluster, number: int) -> None:
    """A raw file appears, whole at once."""
    raw = cluster.cwd / "tier0" / "raw"
    events = range(number * EVENTS, (number + 1) * EVENTS)
    (raw / ".next").write_text("".join(f"{event}\n" for event in events), encoding="utf-8")
    os.rename(raw / ".next", raw / f"run{number}.dat")


def book(cluster: Cluster) -> dict[tuple[str, str], set[str]]:
    """Rule and file -> the tasks that had it, as the payloads wrote it down."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in (cluster.cwd / "tier0" / "book").read_text(encoding="utf-8").splitlines():
        rule, task, *files = line.split()
        for file in files:
            found[rule, file].add(task)
    return found


def test_the_tier0_chain_takes_every_file_once_though_the_server_is_killed(cluster: Cluster) -> None:
    chain: Json = tomllib.loads((ROOT / "examples" / "tier0" / "chain.toml").read_text(encoding="utf-8"))
    cluster.start_server("--embedded", "--linger", "600", "--no-pilot")
    cluster.start_pilot(2)
    run = cluster.submit(*chain["tasks"], rules=chain["rules"])
    cluster.wait_succeeded(run, 1)
    for number in range(FILES):
        feed(cluster, number)
        if number % (FILES // KILLS) == 0:
            cluster.until(lambda known=number: _files(cluster, run, "repack") > known, "the file is found")  # type: ignore[misc]
            cluster.kill_server()
            cluster.start_server("--embedded", "--linger", "600", "--no-pilot")
    cluster.until(lambda: _files(cluster, run, "repack") == FILES, "all files are found")
    with cluster.client() as client:
        client.tell_files(f"r{run}", {}, end=True)
    cluster.wait_run(run, 120.0)
    row = cluster.run_row(run)
    assert set(row["counts"]) == {"succeeded"} and row["total"] == 1 + sum(rule["tasks"] for rule in row["rules"])
    done = book(cluster)
    assert {file for rule, file in done if rule == "repack"} == {f"tier0/raw/run{n}.dat" for n in range(FILES)}
    assert [one for one, tasks in done.items() if len(tasks) != 1] == [], "a file in two tasks"
    assert all(rule["files"] == sum(1 for name, _ in done if name == rule["name"]) for rule in row["rules"])
    store = cluster.cwd / "tier0" / "store"
    events = [
        line.split()[0] for path in store.glob("*.reco") for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(map(int, events)) == list(range(FILES * EVENTS))
    kept = [line.split()[0] for path in store.glob("*.cal") for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(map(int, kept)) == [event for event in range(FILES * EVENTS) if event % 10 == 0]


def test_more_names_than_one_command_holds_do_not_end_the_server(cluster: Cluster) -> None:
    """They were refused to nobody in a step of time, which ended the server, and every one that was started after it."""
    names = [f"raw/{at:03}-{'long' * 9}.dat" for at in range(120)]
    (cluster.cwd / "raw").mkdir()
    for name in names:
        (cluster.cwd / name).touch()
    with open(os.fsencode(cluster.cwd) + b"/raw/caf\xe9.dat", "wb"):
        pass
    cluster.start_server("--embedded", "--linger", "600", "--no-pilot")
    cluster.start_pilot(1)
    rule = {"name": "merge", "files": "raw/*", "gather": 1_000, "gather_within": "1s", "watch": "1h"}
    run = cluster.submit(rules=[{**rule, "shell": "for file in {files}; do echo $file; done >> book"}])
    cluster.until(lambda: _files(cluster, run, "merge") == 120, "all files are found")
    cluster.until(lambda: cluster.run_row(run)["rules"][0]["waiting"] == 0, "all files are in tasks")
    with cluster.client() as client:
        client.tell_files(f"r{run}", {}, end=True)
    cluster.wait_run(run)
    assert sorted((cluster.cwd / "book").read_text(encoding="utf-8").splitlines()) == names
    cluster.stop_server()  # and not by itself
    assert cluster.events("engine_rebuilt", "growth_stopped") == []


def test_a_retry_takes_files_of_a_spared_task_though_no_task_failed(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    rule = {"name": "copy", "files": "raw", "shell": "cp {file} copied"}
    until = "until test -e go; do sleep 0.05; done; echo 5 > raw"
    run = cluster.submit({"name": "read", "shell": until, "outputs": ["raw"]}, rules=[rule])
    cluster.wait_running(run)
    with cluster.client() as client:
        client.cancel([f"r{run}"], unless_running=True)
        (cluster.cwd / "go").touch()
        cluster.wait_run(run)
        assert client.retry([f"r{run}"])["tasks"] == 1
    cluster.wait_succeeded(run, 2)
    assert (cluster.cwd / "copied").read_text(encoding="utf-8") == "5\n"


def _files(cluster: Cluster, run: int, name: str) -> int:
    return int(next(rule["files"] for rule in cluster.run_row(run)["rules"] if rule["name"] == name))
