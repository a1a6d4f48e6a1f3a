"""The pilot zip: one file of standard-library Python that runs on Python 3.9, built the same each time."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from shoal import __version__
from shoal.pilot.build_zip import build, list_modules
from tests.unit.test_layers import read_imports

SRC = Path(__file__).resolve().parents[2] / "src"
OLDEST = "3.9"
MODULES = list_modules()
ENTRY_POINTS = ("shoal.pilot.main", "shoal.pilot.runner.main")

IMPORT_ALL = """
import importlib, json, sys
zip_path, names = sys.argv[1], sys.argv[2:]
sys.path.insert(0, zip_path)
before = set(sys.modules)
for name in names:
    importlib.import_module(name)
files = {name: getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before}
print(json.dumps(files))
"""


def packages_above(modules: Iterable[str]) -> set[str]:
    """The packages that must be in the zip for these modules to be importable."""
    return {name.rsplit(".", up)[0] for name in modules for up in range(1, name.count(".") + 1)}


def find_file(src: Path, module: str) -> Path:
    """The source file of a module or package; the module's path when there is none."""
    path = src.joinpath(*module.split("."))
    package = path / "__init__.py"
    return package if package.is_file() else path.with_suffix(".py")


def find_files(src: Path, modules: Iterable[str]) -> dict[str, Path]:
    """The files of the zip: the modules, and the packages above them that have a file."""
    named = {name: find_file(src, name) for name in modules}
    above = {name: find_file(src, name) for name in packages_above(modules)}
    return {**{name: path for name, path in above.items() if path.is_file()}, **named}


def find_closure(src: Path, modules: Iterable[str]) -> set[str]:
    """These modules, everything of ours that they import, directly or not, and the packages above."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        path = find_file(src, name)
        here = f"{name}.__init__" if path.name == "__init__.py" else name
        imports = list(read_imports(ast.parse(path.read_text(encoding="utf-8")), here))
        named = {target for item in imports for target in (item.target, item.base)} | packages_above([name])
        waiting += [target for target in named if target.split(".")[0] == "shoal" and find_file(src, target).is_file()]
    return found


def check_imports(src: Path, modules: Iterable[str]) -> list[str]:
    """Every import is of the standard library or stays inside the zip."""
    complaints = []
    files = find_files(src, modules)
    inside = set(files) | packages_above(files)
    for name, path in files.items():
        here = f"{name}.__init__" if path.name == "__init__.py" else name
        for item in read_imports(ast.parse(path.read_text(encoding="utf-8")), here):
            if item.target.split(".")[0] in sys.stdlib_module_names or item.target in inside:
                continue
            is_module = find_file(src, item.target).is_file()
            if is_module or item.base not in inside:  # else it is a name defined in a module of the zip
                complaints.append(f"{name}:{item.line}: imports {item.target}")
    return complaints


def check_unions(path: Path) -> list[str]:
    """`X | Y` in an annotation is an error on 3.9 unless annotations are not evaluated."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if "__future__.annotations" in {item.target for item in read_imports(tree, "x")}:
        return []
    notes: list[ast.expr | None] = []
    for vertex in ast.walk(tree):
        if isinstance(vertex, ast.AnnAssign | ast.arg):
            notes.append(vertex.annotation)
        elif isinstance(vertex, ast.FunctionDef | ast.AsyncFunctionDef):
            notes.append(vertex.returns)
    return [
        f"{path.name}:{inner.lineno}: `|` in an annotation"
        for note in notes
        if note is not None
        for inner in ast.walk(note)
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.BitOr)
    ]


def run(argv: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with nothing of this environment but the working directory."""
    return subprocess.run(
        argv,
        cwd=cwd,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_vermin(paths: Iterable[Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Ask vermin whether the files run on the oldest Python we promise."""
    vermin = str(Path(sys.executable).with_name("vermin"))
    argv = [sys.executable, vermin, f"-t={OLDEST}-", "--no-tips", "--violations"]
    return run(argv + [str(path) for path in paths], cwd)


@functools.cache
def find_oldest_python() -> str | None:
    """A real Python 3.9, if this machine has one that starts."""
    candidates = [shutil.which(f"python{OLDEST}")]
    versions = Path.home() / ".pyenv" / "versions"
    candidates += [str(path) for path in sorted(versions.glob(f"{OLDEST}*/bin/python"))]
    for candidate in filter(None, candidates):
        try:
            seen = run([candidate, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], Path("/"))
        except OSError:
            continue
        if seen.returncode == 0 and seen.stdout.strip() == OLDEST:
            return candidate
    return None


@pytest.fixture(params=["this Python", f"Python {OLDEST}"])
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter to run the zip with: the running one, and the oldest we promise."""
    if request.param == "this Python":
        return sys.executable
    oldest = find_oldest_python()
    if oldest is None:
        pytest.skip(f"no Python {OLDEST} on PATH or in ~/.pyenv: the zip was NOT tried on the oldest Python")
    return oldest


@pytest.fixture(scope="module")
def pilot_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "pilot.pyz"
    build(path)
    return path


# --- the zip ---


def test_the_modules_of_the_zip_are_what_the_pilot_and_its_runner_import() -> None:
    assert sorted(set(MODULES)) == MODULES
    missing = [name for name in MODULES if not find_file(SRC, name).is_file()]
    assert not missing
    needed = find_closure(SRC, ENTRY_POINTS)
    assert {"missing": needed - set(MODULES), "never imported": set(MODULES) - needed} == {
        "missing": set(),
        "never imported": set(),
    }


def test_every_import_in_the_zip_is_standard_library_or_in_the_zip() -> None:
    complaints = check_imports(SRC, MODULES)
    assert not complaints, "\n".join(["", *complaints])


def test_every_module_in_the_zip_is_valid_on_the_oldest_python(tmp_path: Path) -> None:
    files = find_files(SRC, MODULES).values()
    verdict = run_vermin(files, tmp_path)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert [complaint for path in files for complaint in check_unions(path)] == []


def test_the_zip_holds_the_listed_modules(pilot_zip: Path) -> None:
    with zipfile.ZipFile(pilot_zip) as archive:
        names = set(archive.namelist())
    wanted = {path.relative_to(SRC).as_posix() for path in find_files(SRC, MODULES).values()}
    assert "__main__.py" in names
    assert wanted - names == set()


def test_the_zip_tells_its_version(pilot_zip: Path, python: str, tmp_path: Path) -> None:
    said = run([python, "-I", "-S", str(pilot_zip), "--version"], tmp_path)
    assert said.returncode == 0, said.stderr
    assert __version__ in said.stdout
    assert said.stderr == ""


def test_every_module_imports_from_the_zip_alone(pilot_zip: Path, python: str, tmp_path: Path) -> None:
    names = [name for name in MODULES if not name.endswith("__main__")]
    done = run([python, "-I", "-S", "-c", IMPORT_ALL, str(pilot_zip), *names], tmp_path)
    assert done.returncode == 0, done.stderr
    files: dict[str, str | None] = json.loads(done.stdout)
    assert set(names) <= set(files)
    for name, path in files.items():
        if name.split(".")[0] == "shoal":
            assert path is None or path.startswith(str(pilot_zip)), f"{name} came from {path}"
        else:
            assert "site-packages" not in (path or ""), f"{name} came from {path}"


def test_two_builds_are_the_same_bytes_and_the_digest_is_theirs(tmp_path: Path) -> None:
    first, second = tmp_path / "first.pyz", tmp_path / "else" / "second.pyz"
    second.parent.mkdir()
    digests = {build(first), build(second)}
    assert first.read_bytes() == second.read_bytes()
    assert digests == {hashlib.sha256(first.read_bytes()).hexdigest()}
    assert re.fullmatch("[0-9a-f]{64}", digests.pop())


# --- each check catches a planted violation ---


def plant(src: Path, path: str, text: str) -> None:
    """Write one file of a false source tree."""
    file = src / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import msgspec", "imports msgspec"),
        ("from shoal.wire import codec_fast", "imports shoal.wire.codec_fast"),
        ("from shoal.wire.codec_fast import decode", "imports shoal.wire.codec_fast.decode"),
        ("from ...wire import codec_fast", "imports shoal.wire.codec_fast"),
        ("import shoal.wire.codec_fast", "imports shoal.wire.codec_fast"),
        ("import shoal.gone", "imports shoal.gone"),
    ],
)
def test_an_import_that_leaves_the_zip_is_caught(tmp_path: Path, text: str, complaint: str) -> None:
    for path in (
        "shoal/__init__.py",
        "shoal/wire/__init__.py",
        "shoal/wire/codec.py",
        "shoal/wire/codec_fast.py",
    ):
        plant(tmp_path, path, "")
    plant(tmp_path, "shoal/pilot/agent/agent.py", f"import json\nfrom shoal.wire import codec\n{text}")
    found = check_imports(tmp_path, ["shoal.wire.codec", "shoal.pilot.agent.agent"])
    assert found == [f"shoal.pilot.agent.agent:3: {complaint}"]


def test_the_closure_has_what_is_imported_and_the_packages_above_and_nothing_else(tmp_path: Path) -> None:
    plant(tmp_path, "shoal/__init__.py", "")
    plant(tmp_path, "shoal/pilot/__init__.py", "from . import log")
    plant(tmp_path, "shoal/pilot/main.py", "def f():\n    from shoal.wire.codec import decode")
    for name in ("pilot/log", "pilot/unused", "wire/__init__", "wire/codec"):
        plant(tmp_path, f"shoal/{name}.py", "import json")
    found = find_closure(tmp_path, ["shoal.pilot.main"])
    assert found == {"shoal", "shoal.pilot", "shoal.pilot.log", "shoal.pilot.main", "shoal.wire", "shoal.wire.codec"}


def test_imports_of_a_package_file_count_though_it_is_not_listed(tmp_path: Path) -> None:
    plant(tmp_path, "shoal/__init__.py", "import rich")
    plant(tmp_path, "shoal/model/ids.py", "from shoal import __version__")
    assert check_imports(tmp_path, ["shoal.model.ids"]) == ["shoal:1: imports rich"]


@pytest.mark.parametrize(
    "text",
    [
        "match 1:\n    case 1:\n        pass",
        "import tomllib",
        "zip([], [], strict=True)",
        "from typing import Self",
        "try:\n    pass\nexcept* OSError:\n    pass",
    ],
)
def test_newer_python_is_caught(tmp_path: Path, text: str) -> None:
    plant(tmp_path, "new.py", text)
    verdict = run_vermin([tmp_path / "new.py"], tmp_path)
    assert verdict.returncode != 0
    assert "Target versions not met" in verdict.stdout


def test_evaluated_unions_are_caught_and_unevaluated_ones_pass(tmp_path: Path) -> None:
    text = "x: int | None = None\ndef f(a: 'str', *b: int | str) -> list[int | None]: ...\n"
    plant(tmp_path, "new.py", text)
    plant(tmp_path, "old.py", "from __future__ import annotations\n" + text)
    lines = [complaint.split(":")[1] for complaint in check_unions(tmp_path / "new.py")]
    assert sorted(lines) == ["1", "2", "2"]
    assert check_unions(tmp_path / "old.py") == []
