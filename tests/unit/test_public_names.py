"""The package as people see it at a prompt."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shoal


def test_dir_lists_the_public_names_without_importing_them() -> None:
    code = "import shoal, sys; print(*dir(shoal)); print('shoal.client' in sys.modules)"
    names, imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert set(shoal.__all__) <= set(names.split())
    assert [name for name in names.split() if not name.startswith("_")] == sorted(shoal.__all__)
    assert imported == "False"


def test_completion_finds_public_names() -> None:
    code = "import rlcompleter, shoal; c = rlcompleter.Completer({'shoal': shoal}).complete; print(c('shoal.Ex', 0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "shoal.Executor(\n"


def test_a_name_that_nobody_counts_is_refused_where_it_is_emitted() -> None:
    shoal.emit(E=1, values=[1, 2])
    shoal.emit({"E.total": 1})
    for name in ("bad name", "1x", "and", "x" * 65, ""):
        with pytest.raises(ValueError, match=r"letters, digits and _ .* at most 64 characters"):
            shoal.emit({name: 1})
