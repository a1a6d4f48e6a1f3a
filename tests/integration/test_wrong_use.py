"""Wrong use of every command, and wrong task files: one line that names the mistake and the fix, nothing submitted.

Tables by row of the bad-input catalogue [input E0]; row 0 is wrong use that the catalogue does not list.
Exit status: 2 what was typed or written is wrong, 3 refused, 4 no answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.cli.main import invoke
from tests.integration.test_command_line import Said, Terminal, terminal

pytestmark = pytest.mark.integration
__all__ = ["terminal"]  # the fixture: one server for the cases that need one

LONG = "n" * 300
# row, words, exit status, what the line says
TYPED: list[tuple[int, list[str], int, str]] = [
    # --- run, sweep, submit
    (0, ["rnu"], 2, "did you mean run"),
    (0, ["run"], 2, "shoal run -- COMMAND"),
    (0, ["run", "echo", "hi"], 2, "shoal run -- echo hi"),
    (0, ["run", "python3", "x.py", "--seeds", "1"], 2, "shoal run -- python3 x.py --seeds 1"),
    (0, ["run", "x=1", "--", "echo", "{x}"], 2, "shoal sweep x=1 -- echo '{x}'"),
    (0, ["run", "word", "--", "echo"], 2, "stands before --"),
    (0, ["run", "none.toml"], 2, "No such file"),
    (0, ["run", "--cores", "2", "tasks.toml"], 2, "--cores does not go with a task file"),
    (0, ["sweep", "--", "echo"], 2, "at least one parameter"),
    (0, ["sweep", "x=1..3"], 2, "-- COMMAND"),
    (0, ["sweep", "x", "--", "echo"], 2, "is not a parameter"),
    (0, ["sweep", "x=1..3", "--", "echo", "{y}"], 2, "known: x"),
    (0, ["sweep", "x=1", "x=2", "--", "echo", "{x}"], 2, "given twice"),
    (0, ["sweep", "tasks.toml"], 2, "put -- before the command"),
    (0, ["submit"], 2, "-- COMMAND"),
    (13, ["run", "--core", "2", "--", "echo"], 2, "did you mean --cores"),
    (13, ["sweep", "--retry", "2", "x=1..2", "--", "echo"], 2, "did you mean --retries"),
    (14, ["run", "--"], 2, "there is no command after --"),
    (15, ["run", "--", ""], 2, "the command is empty"),
    (15, ["run", "--shell", "--", " "], 2, "the command is empty"),
    (18, ["run", "--", "echo", *["x" * 100_000] * 11], 2, "the command is too long"),
    (19, ["run", "--env", "A", "--", "echo"], 2, "--env NAME=VALUE"),
    (19, ["run", "--env", "A B=1", "--", "echo"], 2, "cannot be set"),
    (19, ["run", "--env", "LD_PRELOAD=x", "--", "echo"], 2, "LD_PRELOAD"),
    (19, ["run", "--env", "SHOAL_TASK=x", "--", "echo"], 2, "SHOAL_*"),
    (20, ["run", "--name", LONG, "--", "echo"], 2, "longer than 256 bytes"),
    (23, ["run", "--cores", "0", "--", "echo"], 2, "1 to 65536"),
    (23, ["run", "--cores", "-1", "--", "echo"], 2, "1 to 65536"),
    (23, ["run", "--cores", "0.5", "--", "echo"], 2, "not a valid integer"),
    (23, ["run", "--cores", "1000000000", "--", "echo"], 2, "1 to 65536"),
    (23, ["run", "--gpus", "-1", "--", "echo"], 2, "0 to 1024"),
    (24, ["run", "--memory", "4 Gb", "--", "echo"], 2, '"4G"'),
    (24, ["run", "--memory", "4XB", "--", "echo"], 2, '"4G"'),
    (24, ["server", "start", "--blob-quota", "much"], 2, '"4G"'),
    (24, ["run", "--memory", "-1", "--", "echo"], 2, '"4G"'),
    (24, ["run", "--disk", "1e30", "--", "echo"], 2, '"4G"'),
    (25, ["run", "--time", "0", "--", "echo"], 2, '"15m"'),
    (25, ["run", "--time", "-5", "--", "echo"], 2, '"15m"'),
    (25, ["run", "--time", "1:2:3:4", "--", "echo"], 2, '"15m"'),
    (25, ["run", "--time", "1000000000000", "--", "echo"], 2, '"15m"'),
    (26, ["run", "--priority", "nan", "--", "echo"], 2, "is not a priority"),
    (26, ["run", "--priority", "1e400", "--", "echo"], 2, "is not a priority"),
    (26, ["run", "--priority", "high", "--", "echo"], 2, "not a valid float"),
    (32, ["run", "--retries", "-1", "--", "echo"], 2, "0 to 100"),
    (32, ["run", "--retries", "1000000", "--", "echo"], 2, "0 to 100"),
    (36, ["sweep", "x=5..1", "--", "echo", "{x}"], 2, "swap the ends"),
    (36, ["sweep", "x=1..5:0", "--", "echo", "{x}"], 2, "the step is 0"),
    (36, ["sweep", "x=0..1000000000000", "--", "echo", "{x}"], 2, "at most 10000000"),
    (36, ["sweep", "x=", "--", "echo", "{x}"], 2, "1..10"),
    (36, ["run", "--array", "5-1", "--", "echo"], 2, "swap the ends"),
    (36, ["run", "--array", "1-9%0", "--", "echo"], 2, "as in Slurm"),
    (36, ["run", "--array", "a-b", "--", "echo"], 2, "as in Slurm"),
    (36, ["submit", "x=1..2", "--array", "1-3", "--", "echo"], 2, "give one of them"),
    (44, ["run", "--input", "none.txt", "--", "cat", "none.txt"], 2, "'none.txt'"),
    (44, ["run", "--stdin", "none.txt", "--", "cat"], 2, "'none.txt'"),
    (45, ["run", "--input", "/dev/zero", "--", "ls"], 2, "plain file or a directory"),
    (46, ["run", "--output", "../x", "--", "ls"], 2, "relative, without .."),
    (46, ["run", "--output", "/x", "--", "ls"], 2, "relative, without .."),
    (48, ["run", "--output", "a", "--output", "a", "--", "ls"], 2, "named twice"),
    (0, ["run", "--cwd", "nowhere", "--", "ls"], 2, "there is no directory"),
    (0, ["run", "--", "no-such-program-here"], 127, "check the spelling"),
    (0, ["run", "--", "./no-such-program"], 127, "there is no program"),
    (0, ["run", "--", "./plain.txt"], 126, "chmod +x"),
    (0, ["run", "--rerun", "sometimes", "--", "ls"], 2, "safe, exclusive or never"),
    (0, ["run", "--rerun", "never", "--retries", "1", "--", "ls"], 2, "leave it out"),
    (0, ["run", "--max-fail", "0", "--", "ls"], 2, "from 1 to"),
    (0, ["run", "--seed", "-1", "--", "ls"], 2, "from 0 to"),
    (0, ["run", "--label", "k", "--", "ls"], 2, "--label NAME=VALUE"),
    (0, ["run", "--key", "k" * 200, "--", "ls"], 2, "longer than 128 bytes"),
    (0, ["run", "--server", "box", "--", "ls"], 2, "shoal server list"),
    (0, ["run", "--server", "http://example.org:80", "--", "ls"], 2, "show your token"),
    (0, ["run", "--server", "http://127.0.0.1:1", "--", "ls"], 2, "whoever listens there"),
    (0, ["run", "--server", "https://127.0.0.1:1", "--", "ls"], 125, "is the server running?"),
    (0, ["run", "--server", "unix:/none", "--", "ls"], 125, "is the server running?"),
    # --- looking
    (0, ["ps", "x1"], 2, "a run looks like r12"),
    (0, ["ps", "r1"], 3, "shoal run -- echo hello"),
    (0, ["ps", "--state", "done"], 2, "open or finished"),
    (54, ["ps", "r1", "--state", "done"], 2, "known: "),
    (69, ["ps", "--limit", "-1"], 2, "--limit"),
    (69, ["results", "r1", "--limit", "x"], 2, "--limit"),
    (0, ["ps", "r1", "--name", "x"], 2, "leave it or r1 out"),
    (0, ["show"], 3, "shoal run -- echo hello"),
    (0, ["show", "foo"], 2, "a task like r12.7"),
    (0, ["show", "p99x"], 2, "a pilot like p3f9c"),
    (0, ["show", "r0"], 2, "a task like r12.7"),
    (0, ["show", "r1.1"], 3, "there is no r1.1"),
    (0, ["show", "pdead"], 3, "see `shoal pilots --all`"),
    (0, ["why", "everything"], 2, "a task like r12.7"),
    (0, ["why", "r1"], 3, "there is no r1"),
    (0, ["logs"], 2, "e.g. shoal logs r12.7"),
    (0, ["logs", "r1"], 2, "e.g. r1.1"),
    (0, ["logs", "r1.1", "--attempt", "0"], 2, "--attempt"),
    (0, ["logs", "r1.1"], 3, "there is no r1.1"),
    (0, ["results", "r1.1"], 2, "name its run: r1"),
    (0, ["results", "r1", "--csv", "--json"], 2, "give one of them"),
    (0, ["results", "r1"], 3, "there is no r1"),
    (0, ["results"], 3, "shoal run -- echo hello"),
    # --- acting
    (0, ["wait"], 3, "shoal run -- echo hello"),
    (0, ["wait", "r1.1"], 2, "r1.1 is a task (name its run: r1)"),
    (0, ["wait", "r1"], 3, "there is no r1"),
    (84, ["cancel", "r1"], 3, "there is no r1"),
    (0, ["cancel"], 2, "shoal cancel needs RUN|TASK (e.g. shoal cancel r12)"),
    (0, ["cancel", "all"], 2, "a task like r12.7"),
    (0, ["retry", "r1"], 3, "there is no r1"),
    (0, ["retry", "r1.x"], 2, "a task like r12.7"),
    (25, ["prune", "--older-than", "soon"], 2, '"15m"'),
    (24, ["prune", "--keep", "much"], 2, '"4G"'),
    # --- pilots and servers
    (0, ["pilots", "--state", "idel"], 2, "did you mean idle"),
    (0, ["pilot"], 2, "start, build"),
    (0, ["pilot", "strat"], 2, "start"),
    (0, ["pilot", "start", "--cores", "0"], 2, "--cores"),
    (0, ["pilot", "start", "--server", "unix:/none"], 4, "is the server running?"),
    (0, ["pilot", "build", "-o", "."], 2, "is a directory"),
    (0, ["pilot", "build", "-o", "plain.txt/pilot.pyz"], 3, "cannot write"),
    (0, ["server"], 2, "start, "),
    (0, ["server", "status"], 4, "no server is running"),
    (0, ["server", "status", "--state", "nowhere"], 2, "there is no directory"),
    (0, ["server", "stop", "--state", ".", "--server", "unix:/none"], 2, "give one of them"),
    (0, ["server", "stop", "--server", "unix:/none"], 4, "no answer"),
    (0, ["server", "start", "--port", "8443"], 2, "--port"),
    (78, ["server", "start", "--state", "plain.txt"], 3, "state directory"),
    (0, ["--server", "unix:/none", "ps"], 2, "behind the command"),
]  # fmt: skip

HEAD = '[[tasks]]\nname = "a"\n'
GOOD = HEAD + 'command = ["echo"]\n'
# row, task file, exit status, what the line says (besides the file's name)
WRITTEN: list[tuple[int, str, int, str]] = [
    (0, "", 2, "expected a list of tasks"),
    (0, "tasks = 3\n", 2, "expected a list of tasks"),
    (0, "tasks = [3]\n", 2, "expected a table"),
    (0, "this is not toml\n", 2, "tasks.toml:1: not TOML"),
    (13, GOOD + "core = 1\n", 2, "did you mean cores"),
    (13, 'nmae = "x"\n' + GOOD, 2, "did you mean name"),
    (14, HEAD, 2, "the command is missing"),
    (15, HEAD + "command = []\n", 2, "the command is empty"),
    (15, HEAD + 'command = [""]\n', 2, "the command is empty"),
    (16, HEAD + 'command = "echo hi"\n', 2, "use the field `shell`"),
    (17, HEAD + 'command = ["echo", "a\\u0000"]\n', 2, "command[1]: holds a NUL character"),
    (19, GOOD + 'env = { "" = "x" }\n', 2, "cannot be set"),
    (20, f'[[tasks]]\nname = "{LONG}"\ncommand = ["echo"]\n', 2, "longer than 256 bytes"),
    (23, GOOD + 'cores = "4"\n', 2, "1 to 65536"),
    (23, GOOD + "cores = true\n", 2, "1 to 65536"),
    (24, GOOD + 'memory = "4XB"\n', 2, "is not a size"),
    (25, GOOD + "time = 1e12\n", 2, "is not a duration"),
    (26, GOOD + "priority = inf\n", 2, "is not a priority"),
    (32, GOOD + "retries = 101\n", 2, "0 to 100"),
    (33, "tasks = []\n", 2, "there is no task in it"),
    (34, "[[tasks]]\ncommand = ['echo']\n" * 100_001, 3, "at most 100000"),
    (35, "[[tasks]]\ncommand = ['echo']\n" * 99 + "[[tasks]]\ncommand = []\n", 2, "tasks[99]"),
    (36, GOOD + 'array = "5-1"\n', 2, "swap the ends"),
    (37, GOOD + 'after = ["b"]\n[[tasks]]\nname = "b"\ncommand = ["echo"]\nafter = ["a"]\n', 2, "a -> b -> a"),
    (38, GOOD + 'after = ["a"]\n', 2, "a -> a"),
    (39, GOOD + 'after = ["none"]\n', 3, "there is no task 'none'"),
    (40, GOOD + GOOD, 2, "two tasks are named 'a'"),
    (44, GOOD + 'inputs = ["none.txt"]\n', 2, "'none.txt'"),
    (44, GOOD + 'stdin = "none.txt"\n', 2, "'none.txt'"),
    (45, GOOD + 'inputs = ["/dev/zero"]\n', 2, "plain file"),
    (46, GOOD + 'outputs = ["-rf"]\n', 2, "is not a path below the task's directory"),
    (88, GOOD + '[[tasks]]\ncommand = ["echo"]\nrole = "final"\nafter = ["a"]\n', 2, "a final task waits for nothing"),
    (88, GOOD + 'role = "service"\n[[tasks]]\ncommand = ["echo"]\nafter = ["a"]\n', 2, "nothing waits for it"),
    (88, GOOD + 'category = "io%2"\n[[tasks]]\ncommand = ["echo"]\ncategory = "io%3"\n', 2, "limits 2 and 3"),
    (0, GOOD + 'container = "$(image)"\n', 2, "is not an image"),
    (0, HEAD + 'command = ["no-such-program-here"]\n', 3, "check the spelling"),
]  # fmt: skip


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A shell where nothing was ever submitted, and nothing may be."""
    shell = Terminal(tmp_path_factory.mktemp("newcomer"))
    (shell.cwd / "plain.txt").write_text("not a program\n", encoding="utf-8")
    return shell


def expect_one_line(said: Said, status: int, words: str) -> None:
    """The form of every refusal."""
    assert said.status == status, said
    assert said.out == "", said
    assert said.err.count("\n") == 1, said
    assert said.err.startswith("shoal: ")
    assert words in said.err, said
    assert "Traceback" not in said.err
    assert len(said.err) < 700, "nobody reads so much"


def shown(value: object) -> str | None:
    return " ".join(map(str, value))[:60] if isinstance(value, list) else None


Here = Callable[..., Said]


@pytest.fixture
def here(newcomer: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run a command line in this process, as the newcomer: a hundred wrong words in the time of ten processes."""
    for name in os.environ.keys() - newcomer.env.keys():
        monkeypatch.delenv(name)
    for name, value in newcomer.env.items():
        monkeypatch.setenv(name, value)

    def run(*words: str, cwd: Path = newcomer.cwd) -> Said:
        monkeypatch.chdir(cwd)
        status = invoke(words)
        seen = capsys.readouterr()
        return Said(status, seen.out, seen.err)

    return run


@pytest.mark.parametrize(("row", "words", "status", "line"), TYPED, ids=shown)
def test_wrong_words_are_refused_in_one_line(
    newcomer: Terminal, here: Here, row: int, words: list[str], status: int, line: str
) -> None:
    expect_one_line(here(*words), status, line)
    assert not (newcomer.state / "shoal.db").exists(), "something was started"


@pytest.mark.parametrize(("row", "words", "status", "line"), TYPED[::12], ids=shown)
def test_the_command_itself_says_the_same(
    newcomer: Terminal, row: int, words: list[str], status: int, line: str
) -> None:
    expect_one_line(newcomer.run(*words), status, line)
    assert not (newcomer.state / "shoal.db").exists()


@pytest.mark.parametrize(("row", "text", "status", "line"), WRITTEN)
def test_wrong_task_files_are_refused_in_one_line(
    newcomer: Terminal, here: Here, tmp_path: Path, row: int, text: str, status: int, line: str
) -> None:
    (tmp_path / "tasks.toml").write_text(text, encoding="utf-8")
    for command in ("run", "submit"):
        said = here(command, "tasks.toml", cwd=tmp_path)
        expect_one_line(said, status, line)
        if row not in (44, 45) and "program" not in said.err:
            assert "tasks.toml" in said.err
    assert not (newcomer.state / "shoal.db").exists()


# what stands in w.dag beside a good a.sub, and what the line says (besides the file and its line)
WRONG_DAGS: list[tuple[str, str]] = [
    ("JBO A a.sub\n", "w.dag:1: there is no command 'JBO' (did you mean JOB)"),
    ("JOB A a.sub\nPARENT A CHILD B\n", "w.dag:2: there is no node 'B'"),
    ("JOB A none.sub\n", "w.dag:1: cannot read none.sub"),
    ("JOB A bad.sub\n", "bad.sub:2: 'what' is no line of a submit description"),
    ("JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\nPARENT B CHILD A\n", "tasks wait for each other"),
    ("INCLUDE w.dag\n", "w.dag:1: w.dag is inside itself"),
    ("# nothing\n", "there is no node in it"),
]


@pytest.mark.parametrize(("text", "line"), WRONG_DAGS)
def test_wrong_workflows_are_refused_in_one_line(
    newcomer: Terminal, here: Here, tmp_path: Path, text: str, line: str
) -> None:
    """Row 86."""
    files = {"w.dag": text, "a.sub": "executable = /bin/true\nqueue\n", "bad.sub": "executable = /bin/true\nwhat\n"}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for command in ("dag", "run", "submit"):
        expect_one_line(here(command, "w.dag", cwd=tmp_path), 2, line)
    assert not (newcomer.state / "shoal.db").exists()


def test_a_wrong_configuration_is_refused_by_every_command(newcomer: Terminal, tmp_path: Path) -> None:
    """Row 77."""
    (tmp_path / "shoal.toml").write_text('serve = "x"\n', encoding="utf-8")
    for words in (["ps"], ["submit", "--", "echo"], ["pilots"], ["server", "status"]):
        expect_one_line(
            newcomer.run(*words, cwd=tmp_path), 2, "shoal.toml:1: unknown key 'serve' (did you mean server)"
        )


# --- what only a server can know


@pytest.mark.parametrize(
    ("row", "words", "status", "line"),
    [
        (39, ["show", "r999"], 3, "there is no run r999"),
        (39, ["show", "r1.99"], 3, "there is no task r1.99"),
        (39, ["why", "r999.1"], 3, "there is no task r999.1"),
        (39, ["logs", "r1.99"], 3, "there is no task r1.99"),
        (39, ["results", "r999"], 3, "there is no run r999"),
        (39, ["wait", "r1", "r999"], 3, "there is no run r999"),
        (42, ["submit", "--key", "used", "--", "echo", "other"], 2, "use a new key"),
        (84, ["cancel", "r999"], 3, "there is no run r999"),
        (84, ["cancel", "r1", "r1.99"], 3, "there is no task r1.99"),
        (84, ["retry", "r999"], 3, "there is no run r999"),
        (0, ["show", "pdead"], 3, "see `shoal pilots --all`"),
        (0, ["logs", "r1.1", "--attempt", "7"], 3, "had only 1 attempt"),
        (25, ["prune", "--older-than", "0s"], 2, '"15m"'),
    ],
    ids=shown,
)
def test_a_server_refuses_in_one_line_too(
    terminal: Terminal, row: int, words: list[str], status: int, line: str
) -> None:
    if not (terminal.state / "shoal.db").exists():
        terminal.good("run", "-q", "--key", "used", "--", "echo", "first")
    before = terminal.good("ps", "--json").json()["runs"]
    expect_one_line(terminal.run(*words), status, line)
    assert len(terminal.good("ps", "--json").json()["runs"]) == len(before)


def test_a_wrong_token_is_refused_in_one_line(terminal: Terminal) -> None:
    """Row 61."""
    terminal.good("run", "-q", "--", "true")
    url = terminal.good("server", "status", "--json").json()["url"]
    said = terminal.run("ps", "--server", url, env={"SHOAL_TOKEN": "shoal_wrong"})
    expect_one_line(said, 3, "token")
    assert "shoal_wrong" not in said.err


def test_a_database_that_is_none_is_refused_in_one_line(newcomer: Terminal, tmp_path: Path) -> None:
    """Row 78."""
    state = tmp_path / "shoal"
    state.mkdir()
    (state / "shoal.db").write_text("this is not a database, though it is long enough to look\n" * 50, encoding="utf-8")
    env = {"XDG_STATE_HOME": str(tmp_path)}
    expect_one_line(newcomer.run("ps", env=env), 3, "is not a database")
    expect_one_line(newcomer.run("submit", "--", "echo", env=env), 3, "is not a database")
