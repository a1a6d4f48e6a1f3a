"""The submitter's environment: what goes along, and the file it rests in when the server is elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from shoal.client.environment import KEPT, environment, environment_field, keep
from shoal.model.errors import Refused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "shoal" / "env"


def test_the_environment_goes_without_our_secrets_and_what_is_not_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TOKEN", "secret")
    monkeypatch.setenv("SHOAL_ANYTHING", "x")
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setitem(os.environ, "BROKEN", "\udcff")
    found = environment()
    assert found["MINE"] == "yes"
    assert not [name for name in found if name.startswith("SHOAL_")]
    assert "BROKEN" not in found
    assert "secret" not in found.values()


def test_only_a_server_on_this_machine_gets_the_environment_itself(folder: Path) -> None:
    for url in ("unix:/run/shoal-1", "unix:/run/shoal"):
        assert environment_field(url) == {"environment": environment()}
    assert not folder.exists()
    told = environment_field("https://box:8443")
    assert list(told) == ["environment_file"]
    assert json.loads(Path(str(told["environment_file"])).read_bytes()) == environment()


def test_it_rests_for_this_user_alone_under_the_digest_of_its_bytes(folder: Path) -> None:
    old = os.umask(0o002)
    try:
        file = keep({"B": "é", "A": "1"})
    finally:
        os.umask(old)
    assert file.is_absolute()
    assert file == folder / f"{hashlib.sha256(file.read_bytes()).hexdigest()}.json"
    assert json.loads(file.read_bytes()) == {"A": "1", "B": "é"}
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)


def test_it_is_written_once_and_use_keeps_it_young(folder: Path) -> None:
    file = keep({"A": "1"}, now=1000.0)
    inode = file.stat().st_ino
    assert keep({"A": "1"}, now=2000.0) == file
    assert (file.stat().st_ino, file.stat().st_mtime) == (inode, 2000.0)
    assert keep({"A": "2"}) != file


def test_a_file_that_was_tampered_with_is_written_anew(folder: Path) -> None:
    file = keep({"A": "1"})
    file.write_bytes(b"{}")
    assert json.loads(keep({"A": "1"}).read_bytes()) == {"A": "1"}


def test_what_nobody_used_for_a_month_goes_and_the_servers_own_files_stay(folder: Path) -> None:
    old, young = keep({"A": "1"}, now=0.0), keep({"A": "2"}, now=100.0)
    server = folder / "r12.json"
    server.write_text("{}", encoding="utf-8")
    os.utime(server, (0, 0))
    keep({"A": "3"}, now=KEPT + 50.0)
    assert (old.exists(), young.exists(), server.exists()) == (False, True, True)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(Refused, match="XDG_STATE_HOME"):
        keep({})
