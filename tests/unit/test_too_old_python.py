"""A Python that is too old for the pilot says so in one sentence: with the zip, and with the line of `shoal join`."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.pilot import build_zip
from shoal.wire import join
from shoal.wire.join import Join, bootstrap_line

TOO_OLD = ("2.7", "3.6", "3.7", "3.8")
LINE = bootstrap_line(Join(("localhost:1",), "0" * 64, "token"), "0" * 64, ("--cores", "1"))


def find(version: str) -> str | None:
    """An interpreter of this version, from the path or from pyenv."""
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(path) for path in (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")]
    for candidate in filter(None, candidates):
        code = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
        said = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        if said.returncode == 0 and said.stdout == version:
            return candidate
    return None


@pytest.fixture(params=TOO_OLD)
def old(request: pytest.FixtureRequest) -> Iterator[str]:
    """A Python that is too old."""
    found = find(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} here: its sentence was NOT tried")
    yield found


def test_the_first_words_are_read_by_every_python() -> None:
    for text in (build_zip._MAIN.decode(), join._CHECK):
        ast.parse(text, feature_version=(3, 4))  # the oldest that this Python knows; 2.7 is tried below
        assert not {"print", "f'", 'f"', ":="} & set(text.split())


def test_the_zip_says_one_sentence(old: str, tmp_path: Path) -> None:
    build_zip.build(tmp_path / "pilot.pyz")
    said = subprocess.run([old, str(tmp_path / "pilot.pyz"), "--version"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 1
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert line.startswith("shoal: this pilot needs Python 3.9 or newer, and this is ")
    assert line.endswith(" (start it with a newer one: python3.11 pilot.pyz ...)")


def test_the_line_of_join_says_one_sentence(old: str, tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(old)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run(["sh", "-c", LINE], capture_output=True, text=True, env=env, timeout=60)
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert line.startswith("shoal: a pilot needs Python 3.9 or newer, and python3 on this host is ")
    assert line.endswith(" (put a newer one before it in PATH)")
