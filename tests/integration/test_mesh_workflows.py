"""Workflows of two steps on pilots of two sites that keep and share files: serial, splitting and merging, as in the papers
[CMS V; LBO IV], with real processes, real files and `after`.

One site is in mode `tracked`, the other in mode `central`. Of the pilots of a site some share a host, and so its cache, and
others get files as peers. Nobody but the server sees the submitter's files. Some pilots are killed in the middle. With
SHOAL_PROVE=1 there are 40 pilots and files of 5 MB.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal.cli.output.kept_outputs import outputs_of
from shoal.model.errors import Refused
from shoal.report.data_source import HttpSource
from tests.integration.cluster import PROVE, Cluster
from tests.integration.mesh_site import Site, missing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_800 if PROVE else 300)]
Json = dict[str, Any]
SIZE = 5_000_000 if PROVE else 200_000  # bytes of every file
HOSTS, SHARED = (14, 6) if PROVE else (3, 1)  # of a site; how many of them have two pilots
FIRST = 48 if PROVE else 6  # tasks in the first step of a workflow
KILLED = 4 if PROVE else 1  # pilots of each site
FILES_CACHED = 30 if PROVE else 12  # that a host has place for: fewer than it reads
WITHIN = 900.0 if PROVE else 120.0
MODES = {"east": "tracked", "west": "central"}
# Writes a file of a size that follows from what it reads: outputs can be known without running it.
PROGRAM = """
import hashlib, sys
size, target, sources = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
found = hashlib.sha256()
for name in sources:
    with open(name, "rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
with open(target, "wb") as file:
    file.write((found.digest() * (size // 32 + 1))[:size])
"""


def made_of(*sources: bytes) -> bytes:
    """What the program writes."""
    return (hashlib.sha256(b"".join(sources)).digest() * (SIZE // 32 + 1))[:SIZE]


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Workflow(NamedTuple):
    """A run of two tables, and what all of its outputs must be."""

    tables: list[Json]
    outputs: dict[str, str]  # name -> digest


def workflow(kind: str, site: Site, name: str) -> Workflow:
    """The second step reads each file of the first once, twice (splitting), or two of them together (merging)."""
    inputs = {f"in-{x}": made_of(f"{name} {kind} {x}".encode()) for x in range(1, FIRST + 1)}
    with site.cluster.client() as client:
        content = {key: f"{client.put_blob([data])} 644 {SIZE}" for key, data in inputs.items()}
    middle = {f"mid-{key[3:]}": made_of(data) for key, data in inputs.items()}
    run = [sys.executable, "-I", "-S", "-c", PROGRAM, str(SIZE)]
    first = {
        "name": "first", "command": [*run, "mid-{x}", "in-{x}"], "inputs": ["in-{x}"], "outputs": ["mid-{x}"],
        "params": {"x": f"1..{FIRST}"}, "content": content, "site": name,
    }  # fmt: skip
    rows: list[Json]
    if kind == "merging":
        rows = [{"o": f"out-{x}", "a": f"mid-{x}", "b": f"mid-{x + 1}"} for x in range(1, FIRST, 2)]
        reads = ["{a}", "{b}"]
    else:
        copies = 2 if kind == "splitting" else 1
        rows = [{"o": f"out-{x}-{y}", "a": f"mid-{x}"} for x in range(1, FIRST + 1) for y in range(copies)]
        reads = ["{a}"]
    second = {
        "name": "second", "after": ["first"], "command": [*run, "{o}", *reads], "inputs": reads, "outputs": ["{o}"],
        "params": rows, "site": name,
    }  # fmt: skip
    outputs = {str(row["o"]): digest(made_of(*(middle[row[key]] for key in ("a", "b") if key in row))) for row in rows}
    return Workflow([first, second], outputs | {key: digest(data) for key, data in middle.items()})


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    if PROVE:  # 40 pilots on a few processors are silent now and then
        cluster.timing = {"beat": 2.0, "suspect": 8.0, "lease": 30.0, "hold": 10.0, "margin": 2.0}
    made = Site(cluster)
    with cluster.client() as client:
        client.set_policy({"data": {"sites": MODES}}, client.policy()["version"])
    yield made


def start(site: Site) -> dict[str, list[Any]]:
    """The pilots of both sites."""
    limit = ("--cache-max", str(FILES_CACHED * SIZE + 1), "--cache-reserve", "1")
    found: dict[str, list[Any]] = {name: [] for name in MODES}
    for name in MODES:
        join = site.join_file(site=name)
        for number in range(HOSTS):
            for _ in range(2 if number < SHARED else 1):
                found[name].append(site.host(*limit, join=join, at=f"{name}{number}"))
    return found


def submit(cluster: Cluster, flow: Workflow, key: str) -> int:
    """The run of a workflow; with many pilots that join and people that send files the server says to come back later."""

    def sent() -> int:
        with contextlib.suppress(Refused):
            return cluster.submit(*flow.tables, key=key)
        return 0

    return cluster.until(sent, "the workflow is accepted")


def held(cache: Path) -> int:
    """Bytes of a host's cache, at one moment: nobody changes it while its lock is held."""
    with contextlib.suppress(FileNotFoundError), (cache / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum(path.stat().st_size for folder in ("files", "parts") for path in (cache / folder).iterdir())
    return 0


def test_workflows_share_files_inside_their_sites_while_pilots_die(site: Site) -> None:
    pilots, cluster = start(site), site.cluster
    flows = {(name, kind): workflow(kind, site, name) for name in MODES for kind in ("serial", "splitting", "merging")}
    before = site.downloads
    with cluster.client() as client:
        asked = exchanges(client.metrics())
    began = time.monotonic()
    runs = {key: submit(cluster, flow, "-".join(key)) for key, flow in flows.items()}
    caches = sorted(cluster.folder.glob("host*/cache"))
    most = 0
    doomed = [pilot for number in range(KILLED) for name in MODES for pilot in pilots[name][-1 - number :][:1]]
    total = sum(len(flow.outputs) for flow in flows.values())
    due = [total * (2 + at) // (4 + len(doomed)) for at in range(len(doomed))]  # tasks that end before each dies

    def is_over() -> bool:
        nonlocal most
        most = max([most, *map(held, caches)])
        done = sum(cluster.succeeded(run) for run in runs.values())
        while doomed and done >= due[len(due) - len(doomed)]:
            doomed.pop(0).kill()
        return all(cluster.run_row(run)["finished"] is not None for run in runs.values())

    cluster.until(is_over, "all runs end", WITHIN)
    took = time.monotonic() - began
    assert not doomed, "they were killed in the middle"
    assert SIZE < most <= FILES_CACHED * SIZE, "the limit of a host's disk is never crossed"
    for key, run in runs.items():
        counts = cluster.run_row(run)["counts"]
        wrong = [row["message"] for row in cluster.rows(run) if row["state"] != "succeeded"][:3]
        assert counts == {"succeeded": len(flows[key].outputs)}, (key, counts, wrong, cluster.story(10))
        with cluster.client() as client:
            kept = {one.name: one.file.digest for one in outputs_of(HttpSource(client), f"r{run}")}
        assert kept == flows[key].outputs, "every output is what it must be"
    with cluster.client() as client:
        for wanted in {*flows["east", "merging"].outputs.values()} if not PROVE else ():
            assert digest(bytes(client.get_blob(wanted))) == wanted
        per_task = (exchanges(client.metrics()) - asked) / total
    lines = [f"{total} tasks in {took:.0f} s: {per_task:.2f} exchanges a task, {site.downloads - before} blob requests"]
    for name in MODES:
        reads: Counter[str] = Counter()
        for (where, _), run in runs.items():
            if where == name:
                reads += origins(cluster, run)
        hits, all_bytes = reads["cache"], sum(reads.values())
        inside = hits + reads["peer"]
        lines.append(
            f"{name} ({MODES[name]}): {hits / all_bytes:.0%} of what the second steps read from the cache of the host, "
            f"{inside / all_bytes:.0%} from inside the site"
        )
        assert hits / all_bytes > 0.2, lines  # what a killed pilot had alone comes from the server
        assert inside / all_bytes > (0.6 if PROVE else 0.4), lines
    print("\n".join(lines))
    beats = took / cluster.timing["beat"] * len(cluster.pilots) / total  # that idle pilots send at most
    assert per_task < 5.0 + beats, "the papers' systems need five to twelve requests for each task [GWP G1]"


def origins(cluster: Cluster, run: int) -> Counter[str]:
    """Where the tasks of a second step had their inputs from, in bytes, by the journal."""
    found: Counter[str] = Counter()
    for event in cluster.events("task_finished", run=run):
        if event["task"] > FIRST:
            for step in event["data"].get("steps", ()):
                found.update(step["origins"])
    return found


def exchanges(metrics: str) -> int:
    """Exchanges that the server answered so far."""
    line = next(line for line in metrics.splitlines() if line.startswith("shoal_exchanges_total"))
    return int(float(line.split()[-1]))
