"""Arguments and the work directory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from shoal.pilot import lifecycle, main


def test_a_server_is_needed_in_one_of_four_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.parse(["--server-file", "f"]).server_file == "f"
    assert main.parse(["--server", "u", "--token-file", "t", "--cores", "2"]).cores == 2
    assert main.parse(["--join-fd", "0"]).join_fd == 0
    assert main.parse(["--join-file", "f"]).join_file == "f"
    for wrong in (
        [], ["--server", "u"], ["--token-file", "t"], ["--server-file", "f", "--server", "u"], ["--join-fd", "-1"],
        ["--join-fd", "3", "--join-file", "f"], ["--join-fd", "0", "--server-file", "f"],
        ["--join-fd", "3", "--token-file", "t"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            main.parse(wrong)
        assert caught.value.code == 2
    with pytest.raises(SystemExit):
        main.parse(["--server-file", "f", "--cores", "0"])


def test_a_lifetime_counts_from_the_start_and_the_earlier_end_counts() -> None:
    now = time.time()
    options = main.parse(["--server-file", "f", "--lifetime", "3600"])
    assert now + 3600 <= options.until <= time.time() + 3600
    assert main.parse(["--server-file", "f", "--lifetime", "3600", "--until", str(now + 60)]).until == now + 60
    assert main.parse(["--server-file", "f"]).until is None
    for wrong in (
        ["--lifetime", "0"],
        ["--lifetime", "nan"],
        ["--lifetime", "inf"],
        ["--until", "5"],
        ["--until", "nan"],
    ):
        with pytest.raises(SystemExit) as caught:
            main.parse(["--server-file", "f", *wrong])
        assert caught.value.code == 2


def test_the_default_work_directory_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    first, second = lifecycle.choose_work_dir(None), lifecycle.choose_work_dir(None)
    assert first != second
    folder = tmp_path / f"shoal-{os.getuid()}"
    assert Path(first).parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_where_a_folder_is_someone_elses_another_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / f"shoal-{os.getuid()}"
    (tmp_path / "else").mkdir()
    folder.symlink_to(tmp_path / "else")
    linked = Path(lifecycle.choose_work_dir(None)).parent
    folder.unlink()
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    opened = Path(lifecycle.choose_work_dir(None)).parent
    folder.rmdir()
    folder.touch()
    for beside in (linked, opened, Path(lifecycle.choose_work_dir(None)).parent):
        assert beside.name.startswith(f"{folder.name}-") and beside.stat().st_mode & 0o777 == 0o700
    assert not list((tmp_path / "else").iterdir())


def test_a_given_work_directory_keeps_its_other_content(tmp_path: Path) -> None:
    assert Path(lifecycle.choose_work_dir(str(tmp_path))).parent == tmp_path


def test_tags_are_checked_and_a_bad_one_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--server-file", "f", "--tag", "disk=ssd", "--tag", "rack=7"]
    assert main.parse(words).tag == ["disk=ssd", "rack=7"]
    with pytest.raises(SystemExit) as caught:
        main.parse([*words, "--tag", "9=1"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("pilot.pyz: --tag: '9' is not a name of a tag") and said.count("\n") == 1
