"""`shoal simulate` and `shoal replay` as people type them; a replay against what really happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, clean_env

pytestmark = pytest.mark.integration
WORLDS = Path(__file__).resolve().parents[2] / "worlds"
WORLD = "[pilots]\ncount = 3\n[[site]]\nslots = 2\nwait = { exponential = 30 }\n"
WORK = "[[bag]]\ntasks = 60\nseconds = { uniform = [5, 15] }\n"


def shoal(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder, where no server is known."""
    env = clean_env() | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "none"), "PATH": os.environ["PATH"]} | more
    argv = [sys.executable, "-m", "shoal.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=env, cwd=folder, timeout=120, check=False)


def test_a_workload_is_simulated_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(WORLD)
    (tmp_path / "work.toml").write_text(WORK)
    words = ("simulate", "work.toml", "--world", "world.toml", "--seeds", "4", "--json")
    first, second = (shoal(tmp_path, *words) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    told = json.loads(first.stdout)
    assert told["tasks"] == 60
    # 60 tasks of 10 s on 6 slots: 100 s, and what waiting for pilots and the tail add
    assert 100.0 < told["seconds"]["p10"] <= told["seconds"]["p50"] <= told["seconds"]["p90"] < 400.0
    assert len({one["trace"] for one in told["simulations"]}) == 4
    assert all(one["succeeded"] == 60 for one in told["simulations"])
    more = json.loads(shoal(tmp_path, *words, "--pilots", "12").stdout)
    assert more["seconds"]["p50"] < told["seconds"]["p50"]


def test_the_text_and_the_figure_of_a_simulation(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "world.toml").write_text(WORLD)
    (tmp_path / "work.toml").write_text(WORK)
    words = ("simulate", "work.toml", "--world", "world.toml", "--seeds", "2", "-o", "plan.svg")
    found = shoal(tmp_path, *words)
    assert found.returncode == 0, found.stderr
    for word in ("P10", "P90", "utilisation", "wasted", "useful", "submission", "tail", "busy"):
        assert word in found.stdout
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("simulate", "none.toml", "--world", "world.toml"), "cannot read none.toml"),
        (("simulate", "work.toml"), "--world"),
        (("simulate", "work.toml", "--world", "bad.toml"), "bad.toml: pilots.cuont is not known (did you mean count)"),
        (("simulate", "flow.json", "--world", "world.toml"), "flow.json is no workflow in WfFormat"),
        (("simulate", "work.toml", "--world", "world.toml", "-o", "plan.pdf"), "plan.pdf"),
        (("replay", "--policy", "often"), "often is no rule of matching"),
        (("replay", "--slots", "4"), "--slots"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    (tmp_path / "world.toml").write_text(WORLD)
    (tmp_path / "work.toml").write_text(WORK)
    (tmp_path / "bad.toml").write_text("[pilots]\ncuont = 3\n")
    (tmp_path / "flow.json").write_text("{}")
    found = shoal(tmp_path, *words)
    assert found.returncode == 2
    assert told in found.stderr
    assert "Traceback" not in found.stderr
    assert not list(tmp_path.glob("plan.*"))


def test_a_replay_takes_as_long_as_the_run_did(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    run = cluster.submit(cluster.telling(0.5, array="1-12%2"))
    cluster.wait_run(run)
    address = cluster.address()
    server = {"SHOAL_SERVER": address["url"], "SHOAL_TOKEN": address["token"]}
    found = shoal(cluster.folder, "replay", f"r{run}", "--pilots", "1", "--slots", "6", "--json", **server)
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    replayed, wider = told["replayed"]["seconds"]["p50"], told["changed"]["seconds"]["p50"]
    lives = cluster.lives()
    spent = sum(life.end - life.start for life in lives if life.end is not None)  # by the payloads' own ledger
    assert len(lives) == 12
    assert 0.9 * spent / 2 <= replayed <= 1.1 * told["measured"]
    assert wider < 0.6 * replayed
    text = shoal(cluster.folder, "replay", f"r{run}", "--order", "longest", **server).stdout
    assert "replayed" in text
    assert "would have finished" in text
    assert "not in the replay: the run's %N of an array\n" in text


def test_a_run_that_goes_on_is_not_replayed(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    run = cluster.submit({"command": ["sleep", "60"]})
    began = time.monotonic()
    address = cluster.address()
    server = {"SHOAL_SERVER": address["url"], "SHOAL_TOKEN": address["token"]}
    found = shoal(cluster.folder, "replay", f"r{run}", **server)
    assert found.returncode != 0
    assert f"r{run} has not finished" in found.stderr
    assert time.monotonic() - began < 50
