"""What integration tests share: a cluster of real processes, gone without a trace at the end of each test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot.build_zip import build
from tests.integration.batch import grid_engine as real_grid_engine
from tests.integration.batch import slurm as real_slurm
from tests.integration.batch import sshd as real_sshd
from tests.integration.batch.grid_engine import GridEngine
from tests.integration.batch.person import Person
from tests.integration.batch.slurm import SlurmCluster
from tests.integration.batch.sshd import SshServer
from tests.integration.cluster import Cluster


@pytest.fixture(scope="session")
def pilot_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pilot's zip, built once."""
    path = tmp_path_factory.mktemp("zip") / "pilot.pyz"
    build(path)
    return path


@pytest.fixture
def cluster(tmp_path: Path, pilot_zip: Path) -> Iterator[Cluster]:
    """An empty cluster: start its server and pilots with its methods; all of it is ended and checked for leaks."""
    made = Cluster(tmp_path / "cluster", pilot_zip)
    try:
        yield made
    finally:
        made.close()


# --- real batch systems: one for each process that runs tests, started by the first test that asks for it
@pytest.fixture(scope="session")
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := real_slurm.why_not():
        pytest.skip(reason)
    made = SlurmCluster()
    try:
        made.start(tmp_path_factory.mktemp("slurm"))
        yield made
    finally:
        made.stop()


@pytest.fixture
def slurm(_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm with two idle hosts and no jobs; jobs, limits and drained hosts of a test are gone after it."""
    try:
        yield _slurm
    finally:
        _slurm.reset()


@pytest.fixture(scope="session")
def _grid_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridEngine]:
    if reason := real_grid_engine.why_not():
        pytest.skip(reason)
    made = GridEngine()
    try:
        made.start(tmp_path_factory.mktemp("grid_engine"))
        yield made
    finally:
        made.stop()


@pytest.fixture
def grid_engine(_grid_engine: GridEngine) -> Iterator[GridEngine]:
    """A real Grid Engine with one host and no jobs; jobs of a test are gone after it."""
    try:
        yield _grid_engine
    finally:
        _grid_engine.reset()


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[Callable[..., SshServer]]:
    """Starts a real ssh server: `ssh_server(user, env, namespace=..., options=...)`, all of which may be left out."""
    if reason := real_sshd.why_not():
        pytest.skip(reason)
    with ExitStack() as stack:

        def start(*arguments: Any, **more: Any) -> SshServer:
            made = SshServer(*arguments, **more)
            stack.callback(made.stop)
            made.start(tmp_path / f"sshd{secrets.token_hex(2)}")
            return made

        yield start


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """Makes persons: `person(SLURM_CONF=...)`; whatever they left is ended after the test."""
    made: list[Person] = []

    def make(**env: str) -> Person:
        made.append(Person(tmp_path / f"person{len(made)}", env))
        return made[-1]

    yield make
    for one in made:
        one.end()
