"""The commands that the documents show are run, and say what the documents say.

In a ```console block a line that begins with `$ ` is a command; `# exit N` behind it is the exit status that is
expected, else 0. Every other line must be among what the command printed; lines may be left out. Blanks count as one.
Times, rates and decimal numbers stand for any such number, `...` for anything, `laptop` for the name of this host.
A block with a file name behind its kind (```toml work.toml) is that file. Blocks below a heading `Install` are not run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shoal.client.connection.embedded_server import is_alive
from shoal.model.file_names import SERVER_FILE

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
HOST = "laptop"
PATIENCE = 60.0
FENCE = re.compile(r"^```(\w*) ?(\S*)$")
EXIT = re.compile(r"\s+# exit (\d+)$")
TIME = r"(?:\d[\d.]*(?:ms|s)|\d+[dhm]\d+[hms])"
RATE = r"\d[\d.,]*/(?:s|min|h)"
VARIES = re.compile(rf"(?<![\w.])(?:({RATE})|({TIME})|(\d+\.\d+)|(\.\.\.))(?!\w)")


# --- reading a document
@dataclass
class Command:
    """A command of a document, and what it should do."""

    words: str
    line: int
    status: int = 0
    shown: list[str] = field(default_factory=list)


@dataclass
class File:
    """A file that a document asks the reader to save."""

    name: str
    text: str


Step = Command | File


def read_steps(text: str) -> list[Step]:
    """What a reader does, in order."""
    steps: list[Step] = []
    heading, kind, name = "", "", ""
    inside: list[tuple[int, str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            kind, name, inside = fence[1], fence[2], []
        elif inside is None:
            heading = line.lstrip("#").strip() if line.startswith("#") else heading
        elif line == "```":
            if heading != "Install":
                steps += read_block(kind, name, inside)
            inside = None
        else:
            inside.append((number, line))
    assert inside is None, "a block without an end"
    return steps


def read_block(kind: str, name: str, lines: list[tuple[int, str]]) -> list[Step]:
    """The steps of one block."""
    if name:
        return [File(name, "".join(f"{line}\n" for _, line in lines))]
    commands: list[Command] = []
    for number, line in lines if kind == "console" else []:
        if line.startswith("$ "):
            status = EXIT.search(line)
            commands.append(Command(EXIT.sub("", line[2:]), number, int(status[1]) if status else 0))
        else:
            assert commands, f"line {number}: output without a command"
            commands[-1].shown.append(line)
    return list(commands)


def pattern_of(shown: str) -> re.Pattern[str]:
    """A line of a document as a pattern of what may be printed for it."""
    parts: list[str] = []
    end = 0
    line = " ".join(shown.split())
    for found in VARIES.finditer(line):
        parts.append(re.escape(line[end : found.start()]))
        parts.append(RATE if found[1] else TIME if found[2] else r"\d+(?:\.\d+)?" if found[3] else ".*")
        end = found.end()
    return re.compile("".join([*parts, re.escape(line[end:])]))


def missing_lines(shown: list[str], printed: str) -> list[str]:
    """Lines of a document that were not printed."""
    host = re.escape(os.uname().nodename)
    lines = [" ".join(re.sub(rf"\b{host}\b", HOST, line).split()) for line in printed.splitlines()]
    return [line for line in shown if not any(pattern_of(line).fullmatch(said) for said in lines)]


# --- a reader at work
class Shell:
    """An empty directory and a state of its own, with `shoal` first on the path."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.state = folder / "state" / "shoal"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "XDG_"))}
        self.env |= {
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "120",
        }

    def run(self, words: str) -> subprocess.CompletedProcess[str]:
        """Run one line; both streams are what a person sees."""
        return subprocess.run(
            ["bash", "-c", words], cwd=self.cwd, env=self.env, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def follow(self, steps: list[Step]) -> list[str]:
        """Do what a document says; returns what was not as it says."""
        wrong: list[str] = []
        for step in steps:
            if isinstance(step, File):
                (self.cwd / step.name).write_text(step.text, encoding="utf-8")
                continue
            done = self.run(step.words)
            what = f"line {step.line}: {step.words}"
            if done.returncode != step.status:
                wrong.append(f"{what}\n  exit status {done.returncode}, not {step.status}\n{done.stdout}")
            wrong += [
                f"{what}\n  not printed: {line}\n{done.stdout}" for line in missing_lines(step.shown, done.stdout)
            ]
        return wrong

    def close(self) -> None:
        """Stop the server and its pilot, in order if they will, else not."""
        pids = self._pids()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + 5.0
        for pid in pids:
            while is_alive(pid) and time.monotonic() < end:
                time.sleep(0.02)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pids(self) -> list[int]:
        """Processes of this state directory that live."""
        found: list[int] = []
        for place in (self.state, self.state / "server"):  # the embedded one, and one of the reader's own
            with contextlib.suppress(OSError, ValueError, KeyError):
                found.append(int(json.loads((place / SERVER_FILE).read_text(encoding="utf-8"))["pid"]))
        with contextlib.suppress(OSError, ValueError):
            found.append(int((self.state / "pilot.pid").read_text(encoding="utf-8")))
        return [pid for pid in found if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return str(self.state).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.close()


def list_documents() -> list[Path]:
    """Documents with commands in them; the reference has none to be followed in order."""
    names = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
    found = [ROOT / name for name in names if not name.startswith("docs/reference/")]
    return [path for path in found if path.is_file() and "```console" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("document", list_documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_of_a_document_do_what_it_says(shell: Shell, document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    steps = read_steps(text)
    if "$ shoal submit examples/" in text:  # it is read in a checkout
        shutil.copytree(ROOT / "examples", shell.cwd / "examples")
    assert any(isinstance(step, Command) for step in steps)
    wrong = shell.follow(steps)
    assert not wrong, "\n\n".join(["", *wrong])


def test_the_tutorial_is_among_the_documents() -> None:
    assert ROOT / "docs" / "tutorial" / "first-tasks.md" in list_documents()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(shell: Shell, example: Path) -> None:
    shutil.copytree(ROOT / "examples", shell.cwd / "examples")
    done = shell.run(f"shoal run examples/{example.name}")
    assert done.returncode == 0, done.stdout


# --- the reading itself
PAGE = """\
## Install
```console
$ rm -rf everything
```
## Use
```toml work.toml
name = "work"
```
```console
$ false  # exit 1
$ echo 'took 3ms on laptop'
took 12.5s on laptop
```
```
$ not run
```
"""


def test_commands_files_and_exits_are_read() -> None:
    assert read_steps(PAGE) == [
        File("work.toml", 'name = "work"\n'),
        Command("false", 10, 1),
        Command("echo 'took 3ms on laptop'", 11, 0, ["took 12.5s on laptop"]),
    ]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("r2: 3 tasks: 3 succeeded in 110ms (27.3/s)", "r2: 3 tasks: 3 succeeded in 1m02s (3.0/min)"),
        ("r2.1  7  0.024  laptop", f"r2.1       7      0  {os.uname().nodename}"),
        ("from ... to 9", "from here, and there, to 9"),
        ("  | indented", "| indented"),
    ],
)
def test_what_differs_between_machines_may_differ(shown: str, printed: str) -> None:
    assert missing_lines([shown], f"before\n{printed}\nafter") == []


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("r2: 3 tasks: 3 succeeded in 110ms", "r2: 3 tasks: 2 succeeded in 110ms"),
        ("r2.1 succeeded", "r2.2 succeeded"),
        ("hello", "hello, world"),
        ("exit code 1", "exit code 2"),
        ("took 3ms", "took long"),
    ],
)
def test_what_is_wrong_in_a_document_is_caught(shown: str, printed: str) -> None:
    assert missing_lines([shown], printed) == [shown]


def test_a_wrong_exit_status_and_a_missing_line_are_told(shell: Shell) -> None:
    wrong = shell.follow([Command("exit 3", 1), Command("echo one", 2, 0, ["one", "two"])])
    assert [text.splitlines()[:2] for text in wrong] == [
        ["line 1: exit 3", "  exit status 3, not 0"],
        ["line 2: echo one", "  not printed: two"],
    ]
