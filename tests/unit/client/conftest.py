"""Certificates for tests of https, made once."""

from __future__ import annotations

import pytest

from tests.unit.client.fake_server import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The CA of a server."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another CA, with the same name."""
    return Authority(tmp_path_factory.mktemp("stranger"))
