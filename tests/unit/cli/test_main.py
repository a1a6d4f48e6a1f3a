"""The `shoal` command from its first moment on: Ctrl-C while it is still being imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED_IMPORT = """
import importlib.abc, signal, sys
interrupted = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == interrupted:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
from shoal.cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["click", "shoal.cli.commands", "shoal.cli.session", "shoal.cli.tasks.ps", "json"])
def test_ctrl_c_during_the_imports_ends_without_a_traceback(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, "ps"],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "SHOAL_SERVER": "embedded"},
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["--help"], ["server", "list", "--json"]])
def test_a_full_disk_under_standard_output_is_told_as_that(words: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=60.0, check=False,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "SHOAL_SERVER": "embedded"},
        )  # fmt: skip
    told = "shoal: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)
