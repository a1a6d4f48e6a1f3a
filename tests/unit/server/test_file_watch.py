"""Which files a server finds for the rules of a run [ADR 0058]."""

from __future__ import annotations

from pathlib import Path

from shoal.server.file_watch import find_files


def test_plain_files_that_fit_are_found_with_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "raw" / "deep.dat").mkdir(parents=True)
    (tmp_path / "raw" / "a.dat").write_text("abc", encoding="utf-8")
    (tmp_path / "raw" / ".b.dat").write_text("abc", encoding="utf-8")
    (tmp_path / "raw" / "gone.dat").symlink_to(tmp_path / "nowhere")
    found = find_files(str(tmp_path), ["raw/*.dat", "other/*"])
    assert {name: size for name, (size, _) in found.items()} == {"raw/a.dat": 3}
    assert find_files(str(tmp_path / "missing"), ["*"]) == {}
