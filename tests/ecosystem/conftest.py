"""What the tests with other people's software share. It is installed by `make test-ecosystem`; elsewhere they skip."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.executor import executor
from shoal.pilot.build_zip import build
from tests.integration.cluster import Cluster

NEEDED = {
    "test_joblib": ("joblib", "sklearn"),
    "test_notebook": ("nbclient", "ipykernel"),
    "test_snakemake": ("snakemake",),
}
SLOTS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs something that is not installed, and say so."""
    for item in items:
        missing = [name for name in NEEDED.get(item.path.stem, ()) if importlib.util.find_spec(name) is None]
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed: run `make test-ecosystem`"))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server and a pilot with three slots; executors find them by the environment."""
    folder = tmp_path_factory.mktemp("pool")
    build(folder / "pilot.pyz")
    cluster = Cluster(folder / "cluster", folder / "pilot.pyz")
    patch = pytest.MonkeyPatch()
    try:
        cluster.start_server()
        cluster.start_pilot(SLOTS)
        patch.setenv("SHOAL_SERVER", cluster.address()["url"])
        patch.setenv("SHOAL_TOKEN", cluster.address()["token"])
        yield cluster
    finally:
        gc.collect()  # an executor without references closes its run, for which it needs its server
        for stream in list(executor._streams):
            stream.closed.wait(5.0)
        patch.undo()
        cluster.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A folder in which payloads leave one file for each thing that they did."""
    folder = tmp_path / "ledger"
    os.mkdir(folder)
    return folder
