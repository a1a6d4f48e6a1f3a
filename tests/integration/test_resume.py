"""`--resume` on a real server: a result is taken over only if nothing has changed that could change it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.test_command_line import Said, Terminal

pytestmark = pytest.mark.integration
TAKEN_OVER = "not run again"
PRINT = ("--", "sh", "-c", "cat; echo $A $SHOAL_SEED $OMP_NUM_THREADS; pwd")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    shell = Terminal(tmp_path_factory.mktemp("home"))
    for name in ("one", "two"):
        (shell.cwd / name).mkdir()
        (shell.cwd / f"{name}.txt").write_text(name, encoding="utf-8")
    try:
        yield shell
    finally:
        shell.close()


def is_taken_over(said: Said) -> bool:
    assert said.status == 0, said
    return TAKEN_OVER in said.err


def test_another_setup_line_runs(terminal: Terminal) -> None:
    def answer(value: int, *more: str) -> Said:
        return terminal.good("run", *more, "--setup", f"export A={value}", "--", "sh", "-c", "echo setup $A")

    assert answer(1).out.splitlines()[0] == "setup 1"
    second = answer(2, "--resume")
    assert not is_taken_over(second)
    assert second.out.splitlines()[0] == "setup 2"
    assert is_taken_over(answer(2, "--resume"))
    assert is_taken_over(answer(1, "--resume"))


@pytest.mark.parametrize(
    ("option", "before", "after"),
    [
        ("--setup", "true", "export B=1"),
        ("--env", "A=1", "A=2"),
        ("--stdin", "one.txt", "two.txt"),
        ("--input", "one.txt", "two.txt"),
        ("--cwd", "one", "two"),
        ("--cwd", "one", "own"),
        ("--seed", "1", "2"),
        ("--require", "cores >= 1", "cores >= 1 and memory_mb > 1"),
        ("--checkpoint", "a.state", "b.state"),
    ],
)
def test_what_can_change_the_result_runs(terminal: Terminal, option: str, before: str, after: str) -> None:
    words = ("--env", f"CASE={option}{after}", *PRINT)
    assert not is_taken_over(terminal.good("run", option, before, *words))
    assert not is_taken_over(terminal.good("run", "--resume", option, after, *words))
    assert is_taken_over(terminal.good("run", "--resume", option, after, *words))
    assert is_taken_over(terminal.good("run", "--resume", option, before, *words))


def test_what_cannot_change_the_result_is_taken_over(terminal: Terminal) -> None:
    words = ("--", "sh", "-c", "echo limits")
    terminal.good("run", "--time", "50s", "--memory", "1G", *words)
    again = ("--time", "60s", "--memory", "2G", "--retries", "2", "--priority", "3", "--name", "n", "--label", "a=b")
    assert is_taken_over(terminal.good("run", "--resume", *again, "--rank", "cores", "--max-fail", "1", *words))


def test_a_variable_of_the_submitter_runs_and_one_of_the_terminal_does_not(terminal: Terminal) -> None:
    def answer(env: dict[str, str], *more: str) -> Said:
        return terminal.good("run", *more, "--", "sh", "-c", "echo value $MY_VALUE", env=env)

    assert answer({"MY_VALUE": "1"}).out.splitlines()[0] == "value 1"
    second = answer({"MY_VALUE": "2"}, "--resume")
    assert second.out.splitlines()[0] == "value 2"
    assert "1 task runs again: the environment changed since they ran" in second.err
    assert is_taken_over(answer({"MY_VALUE": "2", "TERM": "other", "SSH_TTY": "/dev/pts/9"}, "--resume"))


def test_a_file_that_was_replaced_by_an_older_one_runs(terminal: Terminal) -> None:
    script = terminal.cwd / "step.sh"
    script.write_text("echo first\n", encoding="utf-8")
    words = ("--", "sh", "step.sh")
    assert terminal.good("run", *words).out.splitlines()[0] == "first"
    script.write_text("echo other\n", encoding="utf-8")
    os.utime(script, (1_000_000_000, 1_000_000_000))
    second = terminal.good("run", "--resume", *words)
    assert second.out.splitlines()[0] == "other"
    assert "1 task runs again: step.sh changed since they ran" in second.err


def test_elements_with_a_seed_are_told_by_their_number_too(terminal: Terminal) -> None:
    words = ("--", "sh", "-c", "echo {x} $SHOAL_SEED")
    terminal.good("sweep", "--seed", "5", "x=1..3", *words)
    assert "3 of 3 tasks are not run again" in terminal.good("sweep", "--resume", "--seed", "5", "x=1..3", *words).err
    shifted = terminal.good("sweep", "--resume", "--seed", "5", "x=2..3", *words)
    assert not is_taken_over(shifted)


def test_a_task_of_a_sweep_runs_again_if_the_file_that_its_parameter_names_changed(terminal: Terminal) -> None:
    for name in ("a", "b"):
        (terminal.cwd / f"{name}.dat").write_text("v1", encoding="utf-8")
    for words in (("--", "cat", "{f}"), ("--", "sh", "-c", "cat {f}"), ("--shell", "--", "cat {f}")):
        terminal.good("sweep", "f=*.dat", *words)
        (terminal.cwd / "a.dat").write_text(f"new {words}", encoding="utf-8")
        again = terminal.good("sweep", "--resume", "f=*.dat", *words)
        assert "1 of 2 tasks is not run again" in again.err
        assert "1 task runs again: files that their parameters name changed since they ran" in again.err
        assert f"new {words}" in terminal.good("logs", f"{again.run}.1").out
        assert "2 of 2 tasks are not run again" in terminal.good("sweep", "--resume", "f=*.dat", *words).err
    (terminal.cwd / "c.dat").write_text("third", encoding="utf-8")
    more = terminal.good("sweep", "--resume", "f=*.dat", "--", "cat", "{f}").err
    assert "1 task runs: not run before" in more and "c.dat" not in more


def test_a_task_runs_again_if_what_it_wrote_is_gone_or_was_altered_and_not_because_it_is_there(
    terminal: Terminal,
) -> None:
    sweep = ("x=1..3", "--stdout", "said-{x}.txt", "--", "sh", "-c", "echo {x} | tee made-{x}.txt")
    declared = ("--output", "made-{x}.txt", *sweep)
    terminal.good("sweep", "--resume", *declared)
    assert "3 of 3 tasks are not run again" in terminal.good("sweep", "--resume", *declared).err
    (terminal.cwd / "made-1.txt").unlink()
    (terminal.cwd / "said-2.txt").write_text("altered", encoding="utf-8")
    again = terminal.good("sweep", "--resume", *declared)
    assert "1 of 3 tasks is not run again" in again.err
    assert "1 task runs again: a file that they wrote is gone" in again.err
    assert "1 task runs again: a file that they wrote was altered since" in again.err
    assert (terminal.cwd / "made-1.txt").read_text(encoding="utf-8") == "1\n"
    assert (terminal.cwd / "said-2.txt").read_text(encoding="utf-8") == "2\n"
    assert "3 of 3 tasks are not run again" in terminal.good("sweep", "--resume", *declared).err


def test_an_argument_that_a_task_made_itself_is_no_reason_to_run_it_again(terminal: Terminal) -> None:
    words = ("x=1..2", "--", "cp", "one.txt", "copy-{x}.txt")
    terminal.good("sweep", *words)
    assert "2 of 2 tasks are not run again" in terminal.good("sweep", "--resume", *words).err
    (terminal.cwd / "copy-1.txt").write_text("by hand", encoding="utf-8")
    assert "1 of 2 tasks is not run again" in terminal.good("sweep", "--resume", *words).err


def test_a_single_task_runs_again_if_the_file_of_its_output_is_gone(terminal: Terminal) -> None:
    words = ("--stdout", "single.txt", "--", "echo", "single")
    terminal.good("run", *words)
    assert is_taken_over(terminal.good("run", "--resume", *words))
    (terminal.cwd / "single.txt").unlink()
    again = terminal.good("run", "--resume", *words)
    assert not is_taken_over(again) and "1 task runs again: a file that they wrote is gone" in again.err


def test_a_task_runs_again_if_an_older_file_was_put_in_the_place_of_its_output(terminal: Terminal) -> None:
    read, written, kept = (terminal.cwd / name for name in ("from.txt", "to.txt", "to.bak"))
    read.write_text("first", encoding="utf-8")
    words = ("--output", "to.txt", "--", "cp", "from.txt", "to.txt")
    terminal.good("run", *words)
    shutil.copy2(written, kept)
    time.sleep(0.3)  # the second attempt begins after the first one's file was written, by any clock
    read.write_text("second", encoding="utf-8")
    terminal.good("run", *words)
    os.link(written, terminal.cwd / "second name")
    assert is_taken_over(terminal.good("run", "--resume", *words))
    time.sleep(0.1)
    kept.rename(written)
    again = terminal.good("run", "--resume", *words)
    assert not is_taken_over(again) and "1 task runs again: a file that they wrote was altered since" in again.err
    assert written.read_text(encoding="utf-8") == "second"


STEPS = """
[[tasks]]
name = "make"
shell = "echo {{i}} > part-{{i}}.txt"
array = "1-{count}"

[[tasks]]
name = "join"
after = ["make"]
shell = "cat part-*.txt | wc -l"
"""


def test_a_task_runs_again_if_one_that_it_waits_for_runs(terminal: Terminal) -> None:
    def run(count: int, *more: str) -> tuple[Said, str]:
        (terminal.cwd / "steps.toml").write_text(STEPS.format(count=count), encoding="utf-8")
        said = terminal.good("run", *more, "steps.toml")
        return said, terminal.good("logs", f"{said.run}.{count + 1}").out.strip()

    assert run(2)[1] == "2"
    said, joined = run(3, "--resume")
    assert joined == "3"
    assert "2 of 4 tasks are not run again" in said.err
    assert "1 task runs again: tasks that they wait for run" in said.err
    assert "4 of 4 tasks are not run again" in run(3, "--resume")[0].err


def signatures(terminal: Terminal, change: str = "") -> list[Any]:
    (file,) = terminal.state.glob("*.db")
    with sqlite3.connect(file) as database:
        if change:
            database.execute(f"UPDATE runs SET signature = {change}")
        return [row[0] for row in database.execute("SELECT signature FROM runs WHERE signature <> ''")]


def test_a_signature_of_an_older_form_never_matches(tmp_path_factory: pytest.TempPathFactory) -> None:
    shell = Terminal(tmp_path_factory.mktemp("old"))
    words = ("--", "echo", "hi")
    try:
        shell.good("run", *words)
        assert is_taken_over(shell.good("run", "--resume", *words))
        shell.good("server", "stop")
        kept = signatures(shell)
        assert all(text.startswith("3:") for text in kept)
        for older in ("substr(signature, 3, 64)", "'1' || substr(signature, 2)"):
            signatures(shell, older)
            assert not is_taken_over(shell.good("run", "--resume", *words))
            shell.good("server", "stop")
    finally:
        shell.close()


def test_directories_names_within_words_and_urls_are_looked_into(terminal: Terminal) -> None:
    home = terminal.cwd
    for name in ("data/deep", "pkg"):
        (home / name).mkdir(parents=True)
    (home / "data/deep/a").write_text("a", encoding="utf-8")
    (home / "pkg/__main__.py").write_text("print(1)", encoding="utf-8")
    (home / "c.ini").write_text("1", encoding="utf-8")
    by_word = ("run", "--", "sh", "-c", "cat c.ini", "--config=c.ini", "pkg")
    by_input = ("sweep", "d=data", "--input", "{d}", "--input", f"file://{home}/c.ini", "--", "ls", "{d}")
    flow = home / "dirs.toml"
    flow.write_text(
        '[workflow]\nedges = "files"\n[[tasks]]\nname = "a"\ncommand = ["ls", "data"]\ninputs = ["data"]\n'
        '[[tasks]]\nname = "b"\nafter = ["a"]\ncommand = ["true"]\n',
        encoding="utf-8",
    )
    ways = (by_word, by_input, ("run", str(flow)))
    for words in ways:
        terminal.good(*words)
    for change, again in (
        (lambda: None, (False, False, False)),
        (lambda: (home / "data/deep/b").write_text("b"), (False, True, True)),
        (lambda: (home / "pkg/__main__.py").write_text("print(2)"), (True, False, False)),
        (lambda: (home / "c.ini").write_text("2"), (True, True, False)),
    ):
        change()
        assert tuple(not is_taken_over(terminal.good(words[0], "--resume", *words[1:])) for words in ways) == again
