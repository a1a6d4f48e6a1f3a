"""A person at a terminal whose server answers what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.cli.main import invoke
from tests.unit.client.fake_server import Authority, FakeServer

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Type a command in an empty home: its exit status, output and errors."""
    for name in ("SHOAL_SERVER", "SHOAL_TOKEN", "SHOAL_CA"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)

    def type_(*words: str) -> tuple[int, str, str]:
        status = invoke(words)
        seen = capsys.readouterr()
        return status, seen.out, seen.err

    return type_


@pytest.fixture
def server(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """The server that commands go to."""
    with FakeServer() as found:
        monkeypatch.setenv("SHOAL_SERVER", found.url)
        monkeypatch.setenv("SHOAL_TOKEN", "secret")
        yield found


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The CA of a server that is reached over https."""
    return Authority(tmp_path_factory.mktemp("ca"))
