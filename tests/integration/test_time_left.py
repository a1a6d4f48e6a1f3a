"""The time left of real runs, as a person sees it on a terminal, in a log and in `shoal ps`, and its score for programs."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time

import pytest

from tests.integration.test_command_line import SHOAL, Terminal, terminal

__all__ = ["terminal"]
pytestmark = pytest.mark.integration

LEFT = re.compile(r"about (\d+)s left")


def on_a_terminal(terminal: Terminal, *words: str) -> str:
    """What a command draws on a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    env = {**terminal.env, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [*SHOAL, *words], cwd=terminal.cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs
    ) as child:
        os.close(theirs)
        drawn = b""
        try:
            while part := os.read(ours, 65_536):
                drawn += part
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
        assert child.wait(timeout=60.0) == 0
    return drawn.decode(errors="replace")


def test_a_run_that_somebody_comes_back_to_tells_when_it_will_end(terminal: Terminal) -> None:
    """24 tasks of 1.6 s on average, two at a time: after 4 s about 15 s are left; a list, a terminal and a program say so."""
    run = terminal.submit("-j", "2", "x=1..24", "--shell", "--", "sleep $(( {x} % 3 )).6")
    time.sleep(4.0)
    listed = terminal.good("ps").out.splitlines()[1]
    assert re.search(r"\d+s( \(9 in 10: \d+s\))?$", listed), listed
    other = terminal.start("wait", run, "--json")
    drawn = on_a_terminal(terminal, "wait", run)
    told = [int(found) for found in LEFT.findall(drawn)]
    assert told, drawn
    assert 2 <= max(told) <= 40 and told[-1] <= 3
    assert "9 in 10 within" in drawn
    out, _ = other.communicate(timeout=60.0)
    forecast = json.loads(out)["forecast"]
    assert forecast["p10"] <= forecast["p50"] <= forecast["p90"]
    assert 0.5 * forecast["p50"] < forecast["took"] < 2 * forecast["p50"]
    assert forecast["held"] == (forecast["took"] <= forecast["p90"])


def test_before_the_first_task_has_ended_a_log_says_that_the_end_is_not_known(terminal: Terminal) -> None:
    said = terminal.good("sweep", "-j", "2", "x=1..3", "--", "sleep", "7")
    lines = [line for line in said.err.splitlines() if "0/3" in line]
    assert lines and "time left not known yet" in lines[-1]
    assert "left" not in lines[0]  # nothing is computed in the first seconds
    assert LEFT.search(said.err), said.err


def test_a_short_run_imports_nothing_for_it(terminal: Terminal) -> None:
    said = terminal.run("sweep", "x=1..3", "--json", "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert said.status == 0 and said.json()["forecast"] is None
    assert "shoal.sched.vector.time_left" in said.err and "numpy" not in said.err
