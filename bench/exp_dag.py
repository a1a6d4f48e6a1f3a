"""How fast do workflows come in and go through?

A DAGMan file of 100,000 nodes in 100 levels by `shoal submit`, from the start of the command to the acceptance, and the memory
of the server then. And workflows of functions that do nothing, each call a durable task of its own: one before 5,000 before
one, and 50 chains of 100, on two slots; from the submission to the end of the run.
"""

from __future__ import annotations

import base64
import os
import pickle
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.serving import REPETITIONS, Serving, report, serving
from shoal.flow.dag import Vertex, build, document

NODES, LEVELS = 100_000, 100
WIDE = 5_000
CHAINS, LONG = 50, 100
ROUNDS = int(os.environ.get(REPETITIONS, "3"))


def write_dag(folder: Path) -> None:
    """A file with a line for each node and each edge, and one submit description."""
    width = NODES // LEVELS
    lines = [f'JOB J{at} one.sub\nVARS J{at} x="{at}"\n' for at in range(NODES)]
    lines += [f"PARENT J{at - width} CHILD J{at}\n" for at in range(width, NODES)]
    (folder / "big.dag").write_text("".join(lines), encoding="utf-8")
    (folder / "one.sub").write_text("executable = /bin/true\narguments = $(x)\nqueue\n", encoding="utf-8")


def accept(server: Serving) -> tuple[float, float]:
    """Seconds of the whole command, and the server's memory afterwards."""
    folder = server.state.parent
    write_dag(folder)
    env = {**os.environ, "SHOAL_SERVER": server.url, "SHOAL_TOKEN": server.token}
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "shoal.cli", "submit", "big.dag"],
        cwd=folder,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.monotonic() - began, server.rss_mb()


def call(count: int = 1) -> dict[str, Any]:
    """A table of calls that do nothing."""
    function = base64.b64encode(pickle.dumps(bool)).decode()
    argument = base64.b64encode(pickle.dumps(((), {}))).decode()
    return {"function": function, "calls": [argument] * count, "python": sys.executable}


def fan() -> list[Vertex]:
    """1-5,000-1."""
    last = Vertex("last", call(), ("wide",))
    return [Vertex("first", call()), Vertex("wide", call(WIDE), ("first",), tasks=WIDE), last]


def chains() -> list[Vertex]:
    """50 chains of 100."""
    places = [(chain, at) for at in range(LONG) for chain in range(CHAINS)]
    return [Vertex(f"c{chain}.{at}", call(), (f"c{chain}.{at - 1}",) if at else ()) for chain, at in places]


def rate(server: Serving, vertices: list[Vertex]) -> float:
    """Tasks a second, from the submission to the end of the run."""
    submitted, tasks = document(build(vertices)), sum(vertex.tasks for vertex in vertices)
    client = server.client
    began = time.monotonic()
    run = server.submit(submitted["tasks"])
    for page in client.pages(run, wait=5.0, kinds=("run_finished",)):
        if page:
            break
    took = time.monotonic() - began
    if client.run(run)["counts"]["succeeded"] != tasks:
        raise RuntimeError(f"{run}: {client.run(run)['counts']} of {tasks} tasks")
    return tasks / took


def main() -> None:
    """Measure and print."""
    accepted = []
    for _ in range(ROUNDS):
        with serving() as server:
            accepted.append(accept(server))
    what = f"{NODES:,} nodes, {NODES - NODES // LEVELS:,} edges, the whole command"
    report("dag_100k_accept_s", statistics.median(seconds for seconds, _ in accepted), "s", what)
    report("dag_100k_rss_mb", statistics.median(size for _, size in accepted), "MB", "of the server with that workflow")
    with serving("--pilot") as server:
        for name, made, about in (("fan", fan(), f"1-{WIDE:,}-1"), ("chains", chains(), f"{CHAINS} chains of {LONG}")):
            rate(server, made)
            found = statistics.median(rate(server, made) for _ in range(ROUNDS))
            report(
                f"dag_{name}_per_s", found, "1/s", f"{about} calls that do nothing, each its own row and event, FULL"
            )


if __name__ == "__main__":
    main()
