"""`shoal cache`: what a person sees of the files on this host."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from shoal.cli.pool.cache import cache
from shoal.model.blobs import digest_of
from shoal.pilot.files.host_cache import HostCache, Limits


def fill(folder: Path) -> HostCache:
    here = HostCache(str(folder), Limits(1 << 20, 0))
    for data in (b"one", b"three"):
        part = here.begin(digest_of([data]), len(data))
        assert part is not None
        part.write(data)
        part.finish().close()
    return here


def typed(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(cache, words, standalone_mode=False)
    assert done.exit_code == status, done.output
    return done.output


def test_files_are_listed_with_the_space_that_is_left(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    said = typed("ls", "--dir", str(tmp_path / "c"))
    assert digest_of([b"one"])[:20] in said and "2 files, 8B of 1.0M" in said and "free on the disk" in said
    answer = json.loads(typed("ls", "--dir", str(tmp_path / "c"), "--json"))
    assert answer["bytes"] == 8 and {row["bytes"] for row in answer["files"]} == {3, 5}


def test_where_there_is_no_cache_it_says_so(tmp_path: Path) -> None:
    assert "no files in" in typed("ls", "--dir", str(tmp_path / "c"))
    assert "0 files removed" in typed("clean", "--dir", str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


def test_what_is_in_use_or_was_used_lately_is_not_removed(tmp_path: Path) -> None:
    held = fill(tmp_path / "c").open(digest_of([b"one"]))
    assert "0 files removed" in typed("clean", "--dir", str(tmp_path / "c"), "--unused", "1h")
    assert "1 file removed" in typed("clean", "--dir", str(tmp_path / "c"))
    assert "yes" in typed("ls", "--dir", str(tmp_path / "c"))
    assert held is not None
