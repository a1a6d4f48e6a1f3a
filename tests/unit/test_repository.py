"""The repository itself: a short README, no path of one machine, a clean lock, no loose ends in src."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = "requirements.lock"
OLDEST_LOCK = "requirements-oldest.lock"
README_LINES = 120
UNTRACKED = {
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "dist",
}

# Directories that belong to one person or one machine: home directories, and what is below /scratch and /data.
PERSONAL = r"(?:home|Users|scratch|data)/[A-Za-z_]|root/"
# Invented ones, which help pages and tests use.
EXAMPLES = ("/tmp/shoal", "/data/shoal", "/data/me", "/data/out", "/data/tree", "/data/tool.sif", "/data/a", "/data/p")
# A checkout in one of these says nothing about the machine.
SHARED = {"/", "/data", "/home", "/mnt", "/opt", "/scratch", "/srv", "/tmp", "/usr/src", "/var/tmp"}
MACHINE_PATH_ALLOWED = {LOCK, OLDEST_LOCK, "tests/unit/test_repository.py"}
HOST_OR_INDEX = re.compile(
    r"://|^\s*-(?!-hash)|--(?!hash)[a-z]|\bpypi\b|\bpythonhosted\b|\b[a-z0-9-]+\.(?:com|dev|io|net|org)\b",
    re.I,
)
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==[^\s;]+(?: ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
LOOSE_END = re.compile(r"\b(?:TODO|FIXME)\b")


def list_files(root: Path) -> list[str]:
    """The files that are or would be tracked: git's answer, or a walk where there is no git."""
    argv = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        answer = subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout
        names = [os.fsdecode(name) for name in answer.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
        names = [name for name in names if not UNTRACKED & set(name.split("/"))]
    return sorted(name for name in set(names) if (root / name).is_file())


def find_lines(root: Path, names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Every line of these files that the pattern is found in."""
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name in names
        for number, line in enumerate((root / name).read_text("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]


def machine_path(root: Path) -> re.Pattern[str]:
    """Absolute paths of somebody's machine: personal directories, this checkout, and the directory that it is in."""
    own = [path for path in (str(root), str(root.parent)) if path not in SHARED]
    own_paths, examples = ([rf"{re.escape(path[1:])}(?![\w-])" for path in paths] for paths in (own, EXAMPLES))
    # What stands before a path must not make it the end of a longer one.
    return re.compile(rf"(?<![\w.~*}}\])>-])/(?!{'|'.join(examples)})(?:{'|'.join([PERSONAL, *own_paths])})")


def check_machine_paths(root: Path) -> list[str]:
    names = [name for name in list_files(root) if name not in MACHINE_PATH_ALLOWED]
    return find_lines(root, names, machine_path(root))


def check_loose_ends(root: Path) -> list[str]:
    return find_lines(root, [name for name in list_files(root) if name.startswith("src/")], LOOSE_END)


def check_lock(text: str) -> list[str]:
    """Only pinned names and their digests; no index, host, address or path."""
    complaints = []
    for number, line in enumerate(text.splitlines(), 1):
        if HOST_OR_INDEX.search(line):
            complaints.append(f"{LOCK}:{number}: names an index or a host: {line}")
        elif not PINNED.match(line) and not HASH.match(line):
            complaints.append(f"{LOCK}:{number}: neither a pinned name nor a digest: {line}")
    return complaints


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def expect_none(complaints: list[str]) -> None:
    """Fail with one complaint per line."""
    assert not complaints, "\n".join(["", *complaints])


# --- the rules hold on this repository ---


def test_readme_is_short() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("no README.md yet")
    assert len(readme.read_text(encoding="utf-8").splitlines()) < README_LINES


def test_no_file_names_a_path_of_one_machine() -> None:
    expect_none(check_machine_paths(ROOT))


def test_source_has_no_loose_ends() -> None:
    expect_none(check_loose_ends(ROOT))


def test_lock_has_only_pinned_names_and_digests() -> None:
    expect_none(check_lock((ROOT / LOCK).read_text(encoding="utf-8")))


def test_lock_holds_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    matches = map(PINNED.match, (ROOT / LOCK).read_text(encoding="utf-8").splitlines())
    locked = {normalise(match["name"]) for match in matches if match}
    assert {normalise(re.split(r"[^\w.-]", name, maxsplit=1)[0]) for name in wanted} - locked == set()


def test_the_oldest_lock_has_the_lower_bound_of_every_dependency() -> None:
    """What `make test-oldest` tries is what pyproject.toml promises: `click>=8.1` is click 8.1.0 there."""
    text = (ROOT / OLDEST_LOCK).read_text(encoding="utf-8")
    expect_none(check_lock(text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    for wanted in project["dependencies"]:
        name, _, bound = wanted.partition(">=")
        assert bound, f"{wanted} has no lower bound"
        assert f"{locked[normalise(name)]}.0.".startswith(f"{bound}."), (
            f"{wanted}: {locked[normalise(name)]}; run make lock"
        )


# --- each rule catches a planted violation ---


@pytest.mark.parametrize(
    "text",
    [
        "see /home/ann/x", "/Users/ann", "cd /scratch/ann", "(/data/ann/7)", "file:///scratch/ann/x", "A=/root/x",
        "x = '/root/.cache'", "/data/shoal2/x",
    ],
)  # fmt: skip
def test_a_path_of_one_machine_is_caught(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes.md").write_text(f"fine\n{text}\n", encoding="utf-8")
    assert check_machine_paths(tmp_path) == [f"notes.md:2: {text}"]


@pytest.mark.parametrize("text", ["cd {}", "see {}/src", "A={}/x", "'{}'", "in {}."])
@pytest.mark.parametrize("up", [0, 1])
def test_the_directory_of_this_checkout_is_caught(tmp_path: Path, text: str, up: int) -> None:
    root = tmp_path / "ann" / "checkout"
    root.mkdir(parents=True)
    text = text.format([root, root.parent][up])
    (root / "notes.md").write_text(f"fine\n{text}\n", encoding="utf-8")
    assert check_machine_paths(root) == [f"notes.md:2: {text}"]


@pytest.mark.parametrize("checkout", ["/src/shoal", "/tmp/shoal", "/data/shoal"])
def test_the_rule_holds_wherever_the_checkout_is(checkout: str) -> None:
    names = [name for name in list_files(ROOT) if name not in MACHINE_PATH_ALLOWED]
    expect_none(find_lines(ROOT, names, machine_path(Path(checkout))))


@pytest.mark.parametrize(
    "text", ["x/scratch/ann", "$TMP/data/ann", "{base}/root/x", "/database/1", "/home", "/rooted", "/data/shoal/x"]
)
def test_a_path_inside_another_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes.md").write_text(text, encoding="utf-8")
    assert check_machine_paths(tmp_path) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="no git: what it ignores was not tried")
def test_a_new_file_counts_and_an_ignored_one_does_not(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=60)
    (tmp_path / ".gitignore").write_text("out/\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "log").write_text("/root/x", encoding="utf-8")
    (tmp_path / "new.py").write_text("/root/x", encoding="utf-8")
    assert list_files(tmp_path) == [".gitignore", "new.py"]
    assert check_machine_paths(tmp_path) == ["new.py:1: /root/x"]


def test_a_loose_end_is_caught_in_the_source_only(tmp_path: Path) -> None:
    for folder in ("src", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text("x = 1  # FIXME later\n", encoding="utf-8")
    assert check_loose_ends(tmp_path) == ["src/x.py:1: x = 1  # FIXME later"]


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "-i simple",
        "--find-links wheels",
        "    --extra-index-url mirror",
        "# from pypi.org",
        "shoal @ file:///tmp/shoal",
        "click>=8",
        "click==8.1.7",
        "    --hash=md5:00",
    ],
)
def test_a_lock_line_with_an_index_a_path_or_no_digest_is_caught(line: str) -> None:
    good = "click==8.1.7 ; python_version >= '3.11' \\\n    --hash=sha256:" + "0" * 64
    assert check_lock(good) == []
    assert len(check_lock(f"{good}\n{line}\n")) == 1


def test_every_promise_names_tests_that_exist() -> None:
    """docs/promises.md: `path` or `path::test`."""
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    named = re.findall(r"`((?:tests|bench)/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).is_file() or (test and f"def {test}(" not in (ROOT / path).read_text("utf-8"))
    ]
    assert not missing
