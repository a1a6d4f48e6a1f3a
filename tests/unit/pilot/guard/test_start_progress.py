"""How far a script came, and the container that a killed runtime leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.pilot.guard.start_progress import StartStage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3\n", ("3", "")),
        ("command\n", ("command", "")),
        ("command /opt/my tools/podman\n", ("command", "/opt/my tools/podman")),
        ("none\n", ("none", "")),
        ("", ("", "")),
        ("nonsense\n", ("", "")),
        ("-1\n", ("", "")),
    ],
)
def test_the_mark_says_where_the_script_is(tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
    (tmp_path / "mark").write_text(text)
    assert StartStage(str(tmp_path / "mark")).reached() == expected


def test_without_a_mark_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert StartStage(str(tmp_path / "mark")).reached() == StartStage(str(tmp_path / "bytes")).reached() == ("", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command /bin/podman", ["/bin/podman", "rm", "--force", "--time=0", "--ignore", "box"]),
        ("command /bin/docker", ["/bin/docker", "rm", "--force", "box"]),
        ("command /bin/apptainer", None),
        ("image /bin/docker", None),
        ("command", None),
    ],
)
def test_only_what_outlives_its_runtime_is_removed(tmp_path: Path, text: str, expected: list[str] | None) -> None:
    (tmp_path / "mark").write_text(text)
    assert StartStage(str(tmp_path / "mark"), name="box").removal() == expected


def test_a_runtime_that_hangs_or_is_gone_is_said(tmp_path: Path) -> None:
    start_stage = StartStage(str(tmp_path / "mark"), name="box")
    slow = tmp_path / "docker"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    (tmp_path / "mark").write_text(f"command {slow}")
    assert "container box could not be removed" in start_stage.remove({"PATH": "/bin:/usr/bin"}, patience=0.1)
    slow.unlink()
    assert "container box could not be removed" in start_stage.remove({})
    (tmp_path / "mark").unlink()
    assert start_stage.remove({}) == ""
