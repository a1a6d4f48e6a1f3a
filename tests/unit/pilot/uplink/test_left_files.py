"""Files that are left for other pilots: whole, and of our account alone."""

from __future__ import annotations

from pathlib import Path

from shoal.pilot.uplink.left_files import MAX_FILE, read, write


def test_a_file_is_replaced_whole_and_read_within_a_bound(tmp_path: Path) -> None:
    folder = str(tmp_path / "ours")
    write(folder, "name", "x" * (MAX_FILE + 1))
    write(folder, "name", "y" * (MAX_FILE + 2))
    assert read(folder, "name") == "y" * MAX_FILE
    assert [path.name for path in Path(folder).iterdir()] == ["name"], "no part is left"
    assert Path(folder).stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_or_read_nothing_happens(tmp_path: Path) -> None:
    write(str(tmp_path / "no" / "folder"), "name", "x")
    (tmp_path / "file").write_text("x")
    write(str(tmp_path / "file"), "name", "x")
    assert read(str(tmp_path / "no" / "folder"), "name") == "" == read(str(tmp_path / "file"), "name")
