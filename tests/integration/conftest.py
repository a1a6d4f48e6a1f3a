"""What integration tests share: a cluster of real processes, gone without a trace at the end of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.pilot.build_zip import build
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
