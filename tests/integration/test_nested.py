"""Tasks that submit tasks and wait for them: calls with executors of their own, commands that call `shoal`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal
from tests.integration import nested_functions
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
SOON = 90.0
SHOAL = [sys.executable, "-m", "shoal.cli"]


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A server; executors find it by the environment."""
    cluster.start_server()
    monkeypatch.setenv("SHOAL_SERVER", cluster.address()["url"])
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    yield cluster


def test_six_calls_with_executors_of_their_own_on_two_cores(pool: Cluster) -> None:
    pool.start_pilot(2)
    with shoal.Executor(attach=False) as ex:
        assert list(ex.map(nested_functions.outer, range(6), timeout=SOON)) == [2 * n + 1 for n in range(6)]
