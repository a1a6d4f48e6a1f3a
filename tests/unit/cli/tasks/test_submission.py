"""From words, options and task files to a submission; wrong task files are told with file and line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest

from shoal.cli.tasks.submission import draft_command, draft_file, find_line, with_sent_input
from shoal.model.errors import BadInput, NotFound, ShoalError

NONE: dict[str, Any] = {
    **dict.fromkeys(("name", "max_fail", "seed", "key", "array", "cores", "memory", "disk", "gpus", "time", "retries")),
    **dict.fromkeys(("rerun", "priority", "cwd", "stdin")),
    **dict.fromkeys(("label", "env", "inputs", "outputs"), ()),
    "shell": False,
}  # fmt: skip


def options(**given: Any) -> dict[str, Any]:
    return {**NONE, **given}


def test_words_after_the_dashes_are_the_command_verbatim() -> None:
    draft = draft_command(["./sim", "--name", "", "a b", "{x}"], [], options())
    assert draft.document["tasks"] == [{"command": ["./sim", "--name", "", "a b", "{x}"]}]
    assert draft.document["cwd"] == os.getcwd()
    assert draft.submission.count == 1


def test_options_become_fields_of_the_task_and_of_the_run() -> None:
    given = options(
        name="scan", max_fail=3, seed=7, key="k", label=("a=b=c",), cores=2, memory="1G", time="5m", retries=1,
        env=("A=1", "B=x=y"), cwd="own", inputs=("i",), outputs=("o",), priority=1.5, rerun="safe", stdin="in",
    )  # fmt: skip
    draft = draft_command(["x"], [], given)
    task = draft.document["tasks"][0]
    assert task["env"] == {"A": "1", "B": "x=y"}
    assert (task["cwd"], task["inputs"], task["outputs"], task["stdin"]) == ("own", ["i"], ["o"], "in")
    assert draft.submission.labels == {"a": "b=c"}
    assert (draft.submission.name, draft.submission.seed, draft.submission.key) == ("scan", 7, "k")


def test_where_when_and_in_which_surroundings_are_options_too() -> None:
    given = options(
        require="cores > 1", rank="cores", deadline="2h", order="-x", setup=("module load gcc", "true"), container="debian:12",
        licences=("matlab", "idl=2"), checkpoint=("a.dat", "b.dat"),
    )  # fmt: skip
    (spec,) = draft_command(["x", "{x}"], ["x=1..3"], given).submission.specs
    assert (spec.require, spec.rank, spec.deadline, spec.order) == ("cores > 1", "cores", (7_200.0, None), "-x")
    assert (spec.setup, spec.container, spec.checkpoint) == (
        ("module load gcc", "true"),
        "debian:12",
        ("a.dat", "b.dat"),
    )
    assert spec.needs.licences == (("idl", 2), ("matlab", 1))


@pytest.mark.parametrize("word", ["=2", "matlab=", "matlab=x", "matlab=-1"])
def test_a_licence_without_a_name_or_number_is_wrong_use(word: str) -> None:
    with pytest.raises(click.UsageError, match="--licence"):
        draft_command(["x"], [], options(licences=(word,)))


def test_an_expression_that_cannot_be_read_is_told_before_anything_is_sent() -> None:
    for field in ("require", "rank"):
        with pytest.raises(BadInput) as found:
            draft_command(["x"], [], options(**{field: "cores >"}))
        assert (found.value.code, found.value.field) == ("bad_expression", field)


def test_a_directory_is_made_absolute_where_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draft = draft_command(["x"], ["x=1..2"], options(cwd="out/{x}"))
    assert draft.document["tasks"][0]["cwd"] == f"{tmp_path}/out/{{x}}"


def test_parameters_become_a_sweep() -> None:
    draft = draft_command(["./sim", "{x}", "{mode}"], ["x=1..3", "mode=a,b=c"], options())
    sweep = draft.submission.specs[0].sweep
    assert sweep is not None
    assert sweep.count == 6
    assert sweep.at(1) == {"x": 1, "mode": "b=c"}


@pytest.mark.parametrize(
    "axes", [["x=1..2", "x=3"], ["x=5..1"], ["x=1..10:0"], ["=1"], ["x="], ["9=1"], ["x=0..1000000000000"]]
)
def test_wrong_parameters_are_refused(axes: list[str]) -> None:
    with pytest.raises(BadInput):
        draft_command(["echo"], axes, options())


def test_a_shell_text_is_one_text() -> None:
    assert draft_command(["sort a | uniq"], [], options(shell=True)).document["tasks"] == [{"shell": "sort a | uniq"}]


@pytest.mark.parametrize("words", ["X", "=x"])
def test_a_pair_without_a_name_or_value_is_wrong_use(words: str) -> None:
    with pytest.raises(click.UsageError, match="--env"):
        draft_command(["x"], [], options(env=(words,)))


# --- task files


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "tasks.toml").write_text(text, encoding="utf-8")
    return str(tmp_path / "tasks.toml")


def test_a_task_file_is_the_submission(tmp_path: Path) -> None:
    file = write(tmp_path, 'name = "a"\n[[tasks]]\ncommand = ["x"]\n[[tasks]]\nshell = "y"\narray = "1-3"\n')
    draft = draft_file(file, options(name="b", label=("k=v",)))
    assert (draft.submission.name, draft.submission.count, draft.origin) == ("b", 4, file)
    assert draft.submission.labels == {"k": "v"}


ONE = '[[tasks]]\nname = "a"\n'
WRONG = [
    # catalogue row, text, line, what the message says
    (13, ONE + 'command = ["x"]\ncore = 2\n', 4, "did you mean cores"),
    (13, 'nmae = "x"\n' + ONE + 'command = ["x"]\n', 1, "did you mean name"),
    (14, ONE, 1, "the command is missing"),
    (15, ONE + "command = []\n", 3, "the command is empty"),
    (15, ONE + 'command = [""]\n', 3, "the command is empty"),
    (15, ONE + 'shell = " "\n', 3, "the command is empty"),
    (16, ONE + 'command = "x y"\n', 3, "use the field `shell`"),
    (17, ONE + 'command = ["a\\u0000b"]\n', 3, "NUL"),
    (19, ONE + 'command = ["x"]\nenv = { "A=B" = "1" }\n', 4, "cannot be set"),
    (19, ONE + 'command = ["x"]\n[tasks.env]\nLD_PRELOAD = "x"\n', 4, "LD_PRELOAD"),
    (20, f'[[tasks]]\ncommand = ["x"]\nname = "{"n" * 300}"\n', 3, "longer than 256 bytes"),
    (23, ONE + 'command = ["x"]\ncores = 0\n', 4, "1 to 65536"),
    (23, ONE + 'command = ["x"]\ncores = 0.5\n', 4, "1 to 65536"),
    (23, ONE + 'command = ["x"]\ncores = "4"\n', 4, "1 to 65536"),
    (23, ONE + 'command = ["x"]\ncores = true\n', 4, "1 to 65536"),
    (24, ONE + 'command = ["x"]\nmemory = "4 Gb"\n', 4, "is not a size"),
    (24, ONE + 'command = ["x"]\nmemory = -1\n', 4, "is not a size"),
    (25, ONE + 'command = ["x"]\ntime = "1:2:3:4"\n', 4, "is not a duration"),
    (25, ONE + 'command = ["x"]\ntime = 0\n', 4, "is not a duration"),
    (26, ONE + 'command = ["x"]\npriority = nan\n', 4, "is not a priority"),
    (26, ONE + 'command = ["x"]\npriority = "high"\n', 4, "is not a priority"),
    (32, ONE + 'command = ["x"]\nretries = -1\n', 4, "0 to 100"),
    (32, ONE + 'command = ["x"]\nretries = 1000000\n', 4, "0 to 100"),
    (33, 'name = "nothing"\ntasks = []\n', 2, "there is no task in it"),
    (33, 'name = "nothing"\n', 0, "expected a list of tasks"),
    (35, ONE + 'command = ["x"]\n\n[[tasks]]\nname = "b"\ncommand = ["y"]\ncores = 0\n', 8, "tasks[1] (b).cores"),
    (36, ONE + 'command = ["x"]\narray = "5-1"\n', 4, "is empty"),
    (36, ONE + 'command = ["x"]\narray = "1-5:0"\n', 4, "the step is 0"),
    (36, ONE + 'command = ["x"]\narray = "0-1000000000000"\n', 4, "too many"),
    (36, ONE + 'command = ["x", "{x}"]\nparams = { x = "5..1" }\n', 4, "is empty"),
    (37, ONE + 'command = ["x"]\nafter = ["b"]\n[[tasks]]\nname = "b"\ncommand = ["y"]\nafter = ["a"]\n', 4, "a -> b -> a"),
    (38, ONE + 'command = ["x"]\nafter = ["a"]\n', 4, "a -> a"),
    (40, ONE + 'command = ["x"]\n' + ONE + 'command = ["y"]\n', 5, "two tasks are named 'a'"),
    (46, ONE + 'command = ["x"]\noutputs = ["../x"]\n', 4, "is not a path below the task's directory"),
    (77, ONE + "command = [x]\n", 3, "not TOML"),
    (77, ONE + 'command = ["x"]\ncommand = ["y"]\n', 4, "not TOML"),
    (0, ONE + 'command = ["x", "{y}"]\nparams = { x = "1..2" }\n', 3, "{y} is not a parameter"),
    (29, ONE + 'command = ["x"]\nrequire = "().__class__"\n', 4, "at column"),
    (30, ONE + 'command = ["x"]\nrank = "9**9**9"\n', 4, "write a product"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "text", "line", "words"), WRONG)
def test_a_wrong_task_file_is_told_with_file_and_line(
    tmp_path: Path, row: int, text: str, line: int, words: str
) -> None:
    with pytest.raises(ShoalError) as caught:
        draft_file(write(tmp_path, text), options())
    said = caught.value.line
    assert words in said
    assert (f"tasks.toml:{line}: " if line else "tasks.toml: ") in said
    assert "\n" not in said


def test_an_unknown_parent_is_not_found_and_the_nearest_is_named(tmp_path: Path) -> None:
    """Row 39."""
    text = '[[tasks]]\nname = "prepare"\ncommand = ["x"]\n[[tasks]]\ncommand = ["y"]\nafter = ["prepaer"]\n'
    with pytest.raises(NotFound) as caught:
        draft_file(write(tmp_path, text), options())
    assert caught.value.code == "unknown_task"
    assert "tasks.toml:6" in caught.value.line
    assert "did you mean prepare" in caught.value.line


def test_options_of_a_task_do_not_go_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--cores does not go with a task file"):
        draft_file("tasks.toml", options(cores=2))
    with pytest.raises(click.UsageError, match="--input does not go"):
        draft_file("tasks.toml", options(inputs=("x",)))


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        draft_file(str(tmp_path / "no.toml"), options())
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(BadInput, match="not a regular file"):
        draft_file(str(tmp_path / "dir.toml"), options())
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="UTF-8"):
        draft_file(str(tmp_path / "bin.toml"), options())


def test_deep_nesting_is_refused_not_a_crash(tmp_path: Path) -> None:
    """Row 8."""
    with pytest.raises(BadInput, match=r"nested|not TOML"):
        draft_file(write(tmp_path, "tasks = " + "[" * 50_000), options())


def test_a_line_is_found_or_left_out() -> None:
    assert find_line("tasks = [{command = 1}]", BadInput("x", field="command")) == 0


WRITER = 'cwd = "%s"\n[workflow]\nedges = "files"\n[[tasks]]\nname = "a"\ncommand = ["a"]\n%s\n'


@pytest.mark.parametrize(
    "writes", ['outputs = ["mid.txt"]', 'stdout = "mid.txt"', 'outputs = ["d"]', 'cwd = "."\noutputs = ["mid.txt"]']
)
def test_standard_input_that_a_task_before_writes_is_not_what_was_there_at_submission(
    tmp_path: Path, writes: str
) -> None:
    name = "d/mid.txt" if '"d"' in writes else "mid.txt"
    (tmp_path / "d").mkdir()
    (tmp_path / name).write_text("of an earlier run")
    (tmp_path / "static.txt").write_text("static")
    text = WRITER % (tmp_path, writes.replace('"."', f'"{tmp_path}"'))
    for reader, stdin in (("b", name), ("c", "static.txt"), ("e", "none.txt")):
        text += f'[[tasks]]\nname = "{reader}"\ncommand = ["x"]\nstdin = "{stdin}"\nafter = ["a"]\n'
    sent = with_sent_input(draft_file(write(tmp_path, text), options()))
    found = [{key: task[key] for key in ("stdin", "stdin_data") if key in task} for task in sent.document["tasks"]]
    assert found == [{}, {"stdin": name}, {"stdin_data": "c3RhdGlj"}, {"stdin": "none.txt"}]


def test_standard_input_of_a_task_that_waits_for_nothing_has_to_be_there(tmp_path: Path) -> None:
    text = f'cwd = "{tmp_path}"\n[[tasks]]\ncommand = ["x"]\nstdin = "none.txt"\n'
    with pytest.raises(BadInput, match=r"none\.txt"):
        with_sent_input(draft_file(write(tmp_path, text), options()))
