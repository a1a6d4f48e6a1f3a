"""World and workload files: what is read, and one clear line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.model.errors import BadInput
from shoal.sim.distributions import Constant, Exponential, LogNormal, Quantiles, Uniform
from shoal.sim.planning.description import Cut, Description, Downtime, Pilots
from shoal.sim.planning.workloads import Bag, TwoSteps
from shoal.sim.planning.world_file import read_workload, read_world, with_pilots

WORLDS = Path(__file__).resolve().parents[4] / "worlds"
LEAST = "[pilots]\ncount = 3\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as people name them: a long path would be cut in a message."""
    monkeypatch.chdir(tmp_path)


def read(text: str) -> Description:
    """Read a world from a text."""
    Path("world.toml").write_text(text)
    return read_world("world.toml")


@pytest.mark.parametrize("name", ["laptop", "cluster", "grid"])
def test_the_worlds_of_the_repository_can_be_read(name: str) -> None:
    assert read_world(str(WORLDS / f"{name}.toml")).pilots.count > 0


@pytest.mark.parametrize("name", ["bag", "two-steps"])
def test_the_workloads_of_the_repository_can_be_read(name: str) -> None:
    assert read_workload(str(WORLDS / f"{name}.toml"))


def test_everything_that_may_stand_in_a_world() -> None:
    world = read_world(str(WORLDS / "grid.toml"))
    north, south = world.sites
    assert world.pilots == Pilots(200, True, 1000.0)
    assert isinstance(world.link.latency, LogNormal)
    assert world.link.delay == Uniform(1.0, 20.0)
    assert isinstance(north.wait, Quantiles)
    assert (north.wall, north.hosts, north.share) == (86_400.0, 150, 2.0)
    assert north.downtimes == (Downtime(21_600.0, 28_800.0),)
    assert north.lifetime == Exponential(200_000.0)
    assert north.storage is not None
    assert north.storage.total == 500.0
    assert south.cuts[0] == Cut(7_200.0, 7_800.0)
    assert south.cuts[1].kinds == ("reply",)
    assert south.speed == Uniform(0.6, 1.1)
    assert with_pilots(world, 7).pilots.count == 7


def test_workloads() -> None:
    Path("work.toml").write_text(
        '[[bag]]\ntasks = 3\nseconds = "2m"\n[[two_steps]]\nkind = "merging"\nfirst = 4\nseconds = 5\n'
    )
    bag, steps = read_workload("work.toml")
    assert isinstance(bag, Bag)
    assert isinstance(steps, TwoSteps)
    assert bag.seconds == Constant(120.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "pilots is missing"),
        ("[pilots]\n", "pilots.count is missing"),
        ("[pilots]\ncount = 0\n", "not 0"),
        ("[pilots]\ncount = true\n", "not True"),
        ("[pilots]\ncount = 2\nkepe = true\n", "pilots.kepe is not known (did you mean keep)"),
        ("pilots = 3\n", "has to be a table"),
        (LEAST + "[site]\nslots = 2\n", "written as [[site]]"),
        (LEAST + "[[site]]\nslots = -1\n", "site[1].slots"),
        (LEAST + "[[site]]\nspeed = nan\n", "site[1].speed"),
        (LEAST + "[[site]]\nspeed = inf\n", "site[1].speed"),
        (LEAST + "[[site]]\nwait = { unifrom = [1, 2] }\n", "one of {uniform"),
        (LEAST + "[[site]]\nwait = { uniform = [2, 1] }\n", "wrong way round"),
        (LEAST + "[[site]]\nwait = { quantiles = [[0, 1], [0.5, 2]] }\n", "end at 1"),
        (LEAST + "[[site]]\nwait = { quantiles = [[0, 5], [1, 2]] }\n", "has to rise"),
        (LEAST + '[[site]]\nwait = { file = "none.txt" }\n', "cannot read"),
        (LEAST + '[[site]]\nwall = "soon"\n', 'has to be seconds or a text such as "90s"'),
        (LEAST + "[[site]]\ndowntimes = [[5, 2]]\n", "ends before it begins"),
        (LEAST + '[[site]]\ncuts = [[1, 2, "up"]]\n', "loses one of both, request, reply"),
        (LEAST + "[[site]]\nshare = 0\n", "gives no site a share"),
        (LEAST + '[[site]]\nname = "a"\n[[site]]\nname = "a"\n', "two sites named a"),
        (LEAST + "[[site]]\nstart_failure = 1.0\n", "start_failure"),
        (LEAST + "[[site]]\nwall = 0\n", "site[1].wall has to be more than 0"),
        (LEAST + "[[site]]\nlifetime = 0\n", "site[1].lifetime has to be more than 0"),
        (LEAST + "[[site]]\nlifetime = { uniform = [0, 0] }\n", "site[1].lifetime has to be more than 0"),
        (LEAST + "[link]\nloss = 2\n", "link.loss"),
        ("[pilots\n", "no valid TOML"),
    ],
)
def test_a_wrong_world_is_one_line_with_file_and_key(text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(text)
    message = str(caught.value)
    assert "world.toml" in message or "none.txt" in message
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no work in it"),
        ("[[bag]]\nseconds = 3\n", "bag[1].tasks"),
        ("[[bag]]\ntasks = 3\n", "bag[1].seconds is missing"),
        ("[[bag]]\ntasks = 3\nseconds = -1\n", "bag[1].seconds"),
        ("[[bag]]\ntasks = 3\nseconds = { lognormal = [1, 1000] }\n", "a spread of more than 10"),
        ('[[two_steps]]\nkind = "splitting"\nfirst = 100000\nfan = 100000\nseconds = 1\n', "10,000,000 at most"),
        ('[[two_steps]]\nkind = "fork"\nfirst = 1\nseconds = 1\n', "one of serial, splitting, merging"),
    ],
)
def test_a_wrong_workload_is_one_line(text: str, words: str) -> None:
    Path("work.toml").write_text(text)
    with pytest.raises(BadInput, match=r"work\.toml") as caught:
        read_workload("work.toml")
    assert words in str(caught.value)


def test_own_measured_waits() -> None:
    Path("waits.txt").write_text("# of last week\n10\n20.5  # seconds\n\n30\n")
    world = read(LEAST + '[[site]]\nwait = { file = "waits.txt" }\n')
    wait = world.sites[0].wait
    assert isinstance(wait, Quantiles)
    assert wait.at(1.0) == pytest.approx(30.0)
    Path("waits.txt").write_text("10\nlong\n")
    with pytest.raises(BadInput, match=r"waits.txt:2: long is no number"):
        read(LEAST + '[[site]]\nwait = { file = "waits.txt" }\n')


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[provision]\npolicy = "best"\n', "policy"),
        ("[provision]\ninterval = 0.1\n", "interval"),
        ("[provision]\nwish = 1\n", "wish"),
        ("[provision]\nguided = 2\n", "guided has to be a number from 0 to 1"),
        ("[provision]\n[[site]]\nmin_pilots = 11\n", "min_pilots"),
    ],
)
def test_a_provisioner_that_cannot_be_is_named(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "world.toml").write_text(text)
    with pytest.raises(BadInput, match=word):
        read_world(str(tmp_path / "world.toml"))


def test_a_world_may_have_a_provisioner_instead_of_pilots(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('[provision]\npolicy = "guided"\n[[site]]\nmax_pilots = 7\n')
    found = read_world(str(tmp_path / "world.toml"))
    assert found.provision is not None and found.provision.rule.policy == "guided"
    assert found.sites[0].limits.max_pilots == 7 and found.pilots.count == 0
