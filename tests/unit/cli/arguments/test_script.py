"""Scripts with `#SHOAL` lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.arguments.script import command_of, directives, is_script
from tests.unit.cli.conftest import Typed

HEAD = "#!/bin/sh -e\n"


@pytest.fixture
def folder(typed: Typed, tmp_path: Path) -> Path:
    """The directory in which commands are typed."""
    return tmp_path


def write(folder: Path, text: str, name: str = "job.sh", mode: int = 0o644) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(mode)
    return name


def planned(typed: Typed, *words: str) -> tuple[str, list[str]]:
    """Needs and commands as a dry run shows them."""
    status, out, err = typed("run", "--dry-run", *words)
    assert (status, err) == (0, "")
    head, *commands = out.splitlines()[1:]
    return head.strip(), [line.strip() for line in commands]


def test_directives_are_read_up_to_the_first_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = write(
        folder,
        HEAD + "# about\n#SHOAL --cores 2 # two\n\n#SHOAL\n#SHOALS --no\n  #SHOAL --no\n#SHOAL --env 'A=b c'\n"
        "true\n#SHOAL --cores 9\n",
    )
    assert directives(name) == [(3, ["--cores", "2"]), (5, []), (8, ["--env", "A=b c"])]
    said = f"shoal: note: {name}:10: this #SHOAL line is not read: it stands behind the first command\n"
    assert capsys.readouterr().err == said


def test_options_come_from_the_script_and_the_command_line_wins(typed: Typed, folder: Path) -> None:
    name = write(folder, HEAD + "#SHOAL --cores 2 --memory 1G --name mine\n#SHOAL --retries 1\necho\n")
    needs, commands = planned(typed, name, "1", "--cores", "x")
    assert needs.startswith("1 x 2 cores, 1.0G memory, 1 retry")
    assert commands == ["/bin/sh -e ./job.sh 1 --cores x"]  # behind the script everything is the script's
    assert planned(typed, "--cores", "3", name)[0].startswith("1 x 3 cores, 1.0G memory, 1 retry")


def test_a_script_that_may_be_executed_is_the_command(folder: Path) -> None:
    assert command_of(write(folder, HEAD, mode=0o755)) == ["./job.sh"]
    assert command_of(write(folder, "#!/usr/bin/env python3\n", "p.py")) == ["/usr/bin/env", "python3", "./p.py"]
    (folder / "sub").mkdir()
    assert command_of(write(folder, HEAD, "sub/j", 0o755)) == ["sub/j"]


def test_a_script_in_any_language_goes_with_a_sweep(typed: Typed, folder: Path) -> None:
    name = write(folder, "#!/usr/bin/env python3\n#SHOAL --time 1h\nprint()\n", "p.py")
    status, out, err = typed("sweep", "--dry-run", "--json", "x=1..2", name, "{x}")
    assert (status, err) == (0, "")
    assert json.loads(out)["specs"][0]["commands"] == [f"/usr/bin/env python3 ./p.py {x}" for x in (1, 2)]


def test_only_what_begins_with_an_interpreter_is_a_script(folder: Path) -> None:
    assert is_script(write(folder, HEAD))
    assert not is_script(write(folder, "echo\n", "plain.sh"))
    assert not is_script(write(folder, HEAD, "tasks.toml"))
    assert not is_script("gone.sh")
    assert not is_script(".")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SHOAL --core 2", "there is no option --core (did you mean --cores)"),
        ("#SHOAL --time soon", "time: 'soon' is not a duration (write seconds, or for example"),
        ("#SHOAL --cores two", "Invalid value for '--cores': 'two' is not a valid integer (see `shoal run --help`)"),
        ("#SHOAL --memory", "Option '--memory' requires an argument"),
        ("#SHOAL ./sim", "'./sim' is no option (a #SHOAL line has options only)"),
        ("#SHOAL --name 'a", "no closing quotation (close the quotes)"),
        ("#SHOAL --help", "--help is not for scripts (leave it out)"),
        ("#SHOAL --env A", "--env 'A' is not a pair (write --env NAME=VALUE)"),
    ],
)
def test_a_wrong_line_is_named(typed: Typed, folder: Path, line: str, said: str) -> None:
    status, out, err = typed("run", write(folder, f"{HEAD}\n{line}\ntrue\n"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"shoal: job.sh:3: {said}")


def test_a_script_without_an_interpreter_and_one_for_slurm_are_told(typed: Typed, folder: Path) -> None:
    assert typed("run", "-q", write(folder, "echo\n", "x.sh"), "a b") == (
        2, "", "shoal: x.sh does not begin with #! (begin it with #!/bin/sh, or write: shoal run -q -- sh x.sh 'a b')\n",
    )  # fmt: skip
    _, _, err = typed("run", "--dry-run", write(folder, HEAD + "#SBATCH --time 1\ntrue\n"))
    assert err == "shoal: note: job.sh:2: #SBATCH lines are not read; write #SHOAL with options of `shoal run`\n"
