"""A task that runs out of its memory is tried again with more: that is told at once, and can be forbidden."""

from __future__ import annotations

import sys

import pytest

from tests.integration.test_command_line import Terminal, terminal

__all__ = ["terminal"]  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
CODE = "b = bytearray(b'x') * 150_000_000; import time; time.sleep(1.5)"


def words(ledger: str) -> list[str]:
    return ["sh", "-c", f'echo start >> {ledger}; exec {sys.executable} -I -S -c "{CODE}"']


def test_each_raise_of_memory_is_told_at_once_and_at_the_end(terminal: Terminal) -> None:
    said = terminal.good("run", "-q", "--memory", "100M", "--", *words("told"))
    assert (terminal.cwd / "told").read_text().count("start") == 2
    assert ".1 ran out of memory and is tried again with " in said.err, said
    assert "needed more memory than stated" in said.err, said
    swept = terminal.good("sweep", "--memory", "100M", "x=1..2", "--", *words("swept"))
    assert "2 tasks each needed more memory than stated" in swept.out + swept.err, swept


def test_with_max_memory_as_memory_the_limit_holds_and_there_is_one_start(terminal: Terminal) -> None:
    said = terminal.run("run", "--memory", "100M", "--max-memory", "100M", "--", *words("held"))
    assert said.status == 137 and "max_memory" in said.err, said
    assert (terminal.cwd / "held").read_text().count("start") == 1
