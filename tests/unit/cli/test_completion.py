"""`shoal completion`, and what a shell is answered."""

from __future__ import annotations

import click
import pytest

from shoal.cli.commands import cli
from shoal.cli.completion import SHELLS, VARIABLE, complete_runs
from tests.unit.cli.conftest import Typed
from tests.unit.client.fake_server import FakeServer


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(typed: Typed, shell: str) -> None:
    status, out, err = typed("completion", shell)
    assert (status, err) == (0, "")
    assert f"{VARIABLE}={shell}_complete" in out


def test_another_shell_is_told_which_there_are(typed: Typed) -> None:
    status, _, err = typed("completion", "tcsh")
    assert status == 2
    assert all(shell in err for shell in SHELLS)


@pytest.mark.parametrize(
    ("shell", "words", "position", "answer"),
    [
        ("bash", "shoal can", "1", "plain,cancel"),
        ("zsh", "shoal can", "1", "plain\ncancel\nCancel runs or tasks."),
        ("fish", "shoal can", "can", "plain,cancel\tCancel runs or tasks."),
        ("bash", "shoal run --ti", "2", "plain,--time"),
        ("bash", "shoal server sta", "2", "plain,start\nplain,status"),
        ("bash", "shoal show tr", "2", "plain,train"),
        ("bash", "shoal cancel r1", "2", "plain,r12"),
    ],
)
def test_words_are_completed(
    capsys: pytest.CaptureFixture[str],
    typed: Typed,
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
    words: str,
    position: str,
    answer: str,
) -> None:
    server.answers["/v1/runs"] = {"runs": [{"run": 12, "name": "train"}, {"run": 3, "name": ""}], "next": None}
    for name, value in (("COMP_WORDS", words), ("COMP_CWORD", position), (VARIABLE, f"{shell}_complete")):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        typed()
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, answer)


def test_where_runs_cannot_be_read_none_are_offered(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_SERVER", "unix:/nonexistent/sock")
    context = click.Context(cli)
    assert complete_runs(context, click.Argument(["run"]), "") == []
