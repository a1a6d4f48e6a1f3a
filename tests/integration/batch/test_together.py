"""A physicist overnight: a laptop, a box over ssh and a Slurm account work on one sweep, and everything is given back."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.batch.daemons import until
from tests.integration.batch.person import Person
from tests.integration.batch.slurm import ACCOUNT, SlurmCluster
from tests.integration.batch.sshd import SshServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorial" / "your-machines.md"
COMMAND = ("./sim", "--E", "{E}", "--seed", "{seed}", "-o", "out/{E}_{seed}.json")
ENERGIES, SEEDS = tuple(range(10, 101, 10)), tuple(range(1, 31))


def test_laptop_box_and_slurm_do_one_sweep_together(
    person: Callable[..., Person], slurm: SlurmCluster, ssh_server: Callable[..., SshServer], tmp_path: Path
) -> None:
    login, box = ssh_server(env=slurm.settings), ssh_server()
    anna = person()
    (anna.work / "sim").write_text(block("sh sim"))
    (anna.work / "sim").chmod(stat.S_IRWXU)
    typed = [
        ("site", "add", "box", "ssh://box", "--cores", "1", "--max-pilots", "1"),
        ("site", "add", "hpc", "slurm+ssh://login", "--account", ACCOUNT, "--cores", "1", "--max-pilots", "3"),
        ("sweep", "--deadline", "1h", "E=10..100:10", f"seed=1..{SEEDS[-1]}", "--", *COMMAND),
    ]
    own = [  # of this test: whose ssh configuration, and where files go
        ("--ssh-config", str(box.client_config()), "--directory", str(tmp_path / "box")),
        ("--ssh-config", str(login.client_config()), "--directory", str(tmp_path / "hpc")),
        (),
    ]
    said = [anna.shoal(*words[:4], *more, *words[4:]) for words, more in zip(typed, own, strict=True)]
    assert "test pilot" in said[0] and "by a tunnel over ssh" in said[0]
    assert "test pilot" in said[1] and "by a tunnel over ssh" in said[1]
    wanted = {(energy, seed) for energy in ENERGIES for seed in SEEDS}
    assert f"{len(wanted)} succeeded" in said[2]
    ran = Counter(tuple(map(int, line.split())) for line in (anna.work / "ledger").read_text().splitlines())
    assert ran == Counter(wanted), "each exactly once, by the simulation's own ledger"
    rows = [json.loads(line) for line in anna.shoal("results", "r1", "--json").splitlines()]
    assert {(row["E"], row["seed"]): row["result"]["value"] for row in rows} == {one: one[0] * one[1] for one in wanted}
    assert all((anna.work / "out" / f"{energy}_{seed}.json").exists() for energy, seed in wanted)
    done = {row["site"]: row["tasks"] for row in anna.json("acct", "--by", "site")["rows"]}
    assert set(done) == {"box", "hpc", "local"} and all(done.values()), f"all three took part: {done}"
    whole = r"box \d+/1 .*hpc \d+/[1-3].* local \d+/\d"  # once the pilots of both have come
    assert any(re.search(whole, line) for line in said[2].splitlines()), said[2]
    until(lambda: not slurm.run("squeue", "-h").stdout.strip(), "allocations are given back")
    anna.wait_for(lambda: all(row["pilots"] == 0 for row in anna.json("site", "list")["own"]))
    terminal = "\n".join(f"$ shoal {shown(words)}\n{text}" for words, text in zip(typed, said, strict=True))
    if record := os.environ.get("SHOAL_RECORD"):
        Path(record).write_text(terminal)
    lines = [line for line in block("text").splitlines() if "test pilot waits" not in line]  # it may be there at once
    steady = [line for line in lines if line.startswith(("$ ", "shoal: ", "r1: "))]
    assert len(steady) > 10
    printed = {shape(line) for line in terminal.splitlines()}
    assert not [line for line in steady if shape(line) not in printed], "the page shows what the terminal did"


def block(head: str) -> str:
    """The block of the page that begins with these words."""
    found = re.search(rf"^```{head}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    return found[1]


def shown(words: tuple[str, ...]) -> str:
    """A command as a person types it."""
    return " ".join(f"'{word}'" if "=" in word else word for word in words)


def shape(line: str) -> str:
    """A line without what differs from machine to machine: numbers, names of pilots and hosts, directories."""
    line = re.sub(r"host [\w.-]+$", "host H", line)
    line = re.sub(r"pilot p[0-9a-f]{8}", "pilot P", re.sub(r"(?<= )[~/]\S*", "DIR", line))
    return re.sub(r"\d[\d.,]*(?:/s|/min|/h|ms|s)?", "N", re.sub(r"\d+[hm]\d+[ms]", "N", line))
