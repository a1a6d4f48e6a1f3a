"""Files at an XRootD server, by a command that stands for `xrdcp`: a copy between its arguments, as that has them."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from shoal.data.sources import STORAGE, parse_rule, places_of
from shoal.pilot.files.fetch import Fetcher, NoBlob
from shoal.pilot.files.host_cache import HostCache, Limits
from shoal.pilot.files.site_storage import storage_of
from shoal.pilot.files.upload import store
from shoal.pilot.files.xrootd import XrootdSource

# xrdcp -s -f SOURCE TARGET, where one of the two is `-`; the server's files are in $STORE.
XRDCP = """#!/bin/sh
test "$1 $2" = "-s -f" || { echo "unknown option" >&2; exit 50; }
path() { echo "$STORE/$(basename "$1")"; }
case "$3" in
-) exec cat > "$(path "$4")" ;;
*slow*) exec sleep 100 ;;
*broken*) head -c 3 "$(path "$3")"; echo "[FATAL] Connection error" >&2; exit 51 ;;
*) test -e "$(path "$3")" || { echo "[ERROR] Server responded with an error: [3011] No such file" >&2; exit 54; }
   exec cat "$(path "$3")" ;;
esac
"""
DATA = b"of the store" * 1000
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the server."""
    folder, binaries = tmp_path / "store", tmp_path / "bin"
    folder.mkdir()
    binaries.mkdir()
    (binaries / "xrdcp").write_text(XRDCP)
    (binaries / "xrdcp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("STORE", str(folder))
    return folder


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(HostCache(str(tmp_path / "cache"), Limits(1 << 20, 0)))


def test_a_file_comes_from_there_and_an_output_goes_there(there: Path, fetcher: Fetcher, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    os.write(fd, DATA)
    store("root://host//data/out.dat", fd)
    os.close(fd)
    assert (there / "out.dat").read_bytes() == DATA
    found = fetcher.fetch(DIGEST, len(DATA), [XrootdSource("root://host//data/out.dat")])
    assert Path(found.held.path).read_bytes() == DATA and found.origin == "origin"
    found.held.close()


def test_the_storage_of_a_site_may_be_there(there: Path, fetcher: Fetcher) -> None:
    (there / "x").write_bytes(DATA)
    rules = [parse_rule("data/=root://host//store/")]
    assert places_of("data/x", rules) == ["root://host//store/x"]
    found = fetcher.fetch(DIGEST, None, storage_of("data/x", rules))
    assert found.origin == STORAGE
    found.held.close()


def test_what_is_wrong_is_said_in_the_commands_words(there: Path, fetcher: Fetcher) -> None:
    (there / "broken").write_bytes(DATA)
    for name, why in (("none", "3011"), ("broken", "Connection error")):
        with pytest.raises(NoBlob, match=why):
            fetcher.fetch(DIGEST, len(DATA), [XrootdSource(f"root://host//{name}")])
    assert [one.place.name for one in fetcher.take_failures()] == ["root://host//broken"], (
        "to have no file is no failure"
    )
    began = time.monotonic()
    with pytest.raises(Exception, match=r"no byte came|too slow"):
        XrootdSource("root://host//slow").fetch(DIGEST, None, lambda data: None, time.monotonic() + 0.2)  # type: ignore[arg-type]
    assert time.monotonic() - began < 30, "and the command is ended"


def test_without_the_command_there_is_no_such_place(
    fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBlob, match="there is no xrdcp on this host"):
        fetcher.fetch(DIGEST, None, [XrootdSource("root://host//x")])
