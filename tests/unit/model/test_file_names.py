from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.model.file_names import beside


def test_a_temporary_name_tells_what_it_is_for() -> None:
    assert beside("/a/b/out", "r1.2-3.part") == "/a/b/out.r1.2-3.part"
    assert beside("out", "7.part") == "out.7.part"


@pytest.mark.parametrize("name", ["x" * 255, "x" * 99 + "é" * 78, "\udcff" * 255, "漢" * 85])
def test_a_temporary_name_is_short_however_long_the_name_is(tmp_path: Path, name: str) -> None:
    final = str(tmp_path / name)
    assert len(os.fsencode(name)) == 255
    part = beside(final, "r123456.1234567-12.part-link")
    assert os.path.dirname(part) == str(tmp_path) and len(os.fsencode(os.path.basename(part))) <= 143
    os.fsencode(part).replace(b"\xff", b"").decode()  # no character is cut
    with open(part, "x", encoding="utf-8"):
        os.replace(part, final)


def test_names_that_begin_alike_have_temporary_names_of_their_own() -> None:
    assert beside("x" * 254 + "a", "part") != beside("x" * 254 + "b", "part")
