"""The shape of the tree: how many modules a folder may hold, and that unit tests mirror the packages.

Each rule is a function from a tree to a list of complaints; the second half plants violations and sees them caught.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 16  # in one folder, `__init__` and `__main__` not counted; beyond it a level is missing

# Unit tests about a behaviour of several modules of a package; all others are named for the module they test.
TOPICS = {
    "cli/test_commands.py",
    "cli/admin/test_people.py",
    "cli/pool/test_pilots.py",
    "cli/tasks/test_run_options.py",
    "client/test_durability.py",
    "client/executor/test_executor_hooks.py",
    "client/executor/test_executor_session.py",
    "db/test_queries.py",
    "engine/matching/test_crowds.py",
    "engine/tasks/test_early_start.py",
    "engine/tasks/test_roles.py",
    "engine/policy/test_accounts.py",
    "engine/policy/test_quotas.py",
    "engine/policy/test_shares.py",
    "engine/pilots/test_evidence.py",
    "engine/pilots/test_hostile_exchange.py",
    "engine/pilots/test_identity.py",
    "engine/pilots/test_outward.py",
    "engine/matching/test_ranks.py",
    "engine/matching/test_tags.py",
    "engine/why/test_why_situations.py",
    "server/test_rebuild.py",
}


def check_folder_sizes(shoal: Path) -> list[str]:
    """No folder holds more modules than a reader can overlook."""
    complaints = []
    for folder in sorted([shoal, *(path for path in shoal.rglob("*") if path.is_dir())]):
        modules = [file for file in folder.glob("*.py") if not file.stem.startswith("__")]
        if len(modules) > MOST_MODULES:
            complaints.append(
                f"{folder.relative_to(shoal).as_posix()}: {len(modules)} modules, more than {MOST_MODULES}"
            )
    return complaints


def check_mirror(shoal: Path, unit: Path, topics: set[str]) -> list[str]:
    """A unit test lies in the folder of its module and is named for it, or is listed as a topic of that folder."""
    complaints = []
    for test in sorted(unit.rglob("test_*.py")):
        name = test.relative_to(unit)
        if name.parent == Path() or name.parts[0] == "bench":
            continue  # about the repository or the benchmarks, not about a package
        if not (shoal / name.parent).is_dir():
            complaints.append(f"{name.as_posix()}: there is no package {name.parent.as_posix()}")
        elif name.as_posix() not in topics and not (shoal / name.parent / name.name.removeprefix("test_")).is_file():
            complaints.append(f"{name.as_posix()}: named for no module of {name.parent.as_posix()}")
    complaints += [
        f"{name}: listed as a topic, but there is no such file"
        for name in sorted(topics)
        if not (unit / name).is_file()
    ]
    return complaints


def test_no_folder_holds_too_many_modules() -> None:
    assert check_folder_sizes(ROOT / "src" / "shoal") == []


def test_unit_tests_mirror_the_packages() -> None:
    assert check_mirror(ROOT / "src" / "shoal", ROOT / "tests" / "unit", TOPICS) == []


# --- each rule catches a planted violation


def plant(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("", encoding="utf-8")
    return folder


def test_a_folder_with_one_module_too_many_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, "pilot/__init__.py", *(f"pilot/host/m{number}.py" for number in range(MOST_MODULES)))
    assert check_folder_sizes(tmp_path) == []
    plant(tmp_path, "pilot/host/one_more.py")
    assert check_folder_sizes(tmp_path) == ["pilot/host: 17 modules, more than 16"]


def test_a_unit_test_in_the_wrong_folder_or_of_no_module_is_caught(tmp_path: Path) -> None:
    shoal = plant(tmp_path / "shoal", "db/sqlite.py", "db/reader.py")
    unit = plant(tmp_path / "unit", "test_layers.py", "db/test_reader.py", "db/test_speed.py", "dbx/test_sqlite.py")
    assert check_mirror(shoal, unit, {"db/test_gone.py"}) == [
        "db/test_speed.py: named for no module of db",
        "dbx/test_sqlite.py: there is no package dbx",
        "db/test_gone.py: listed as a topic, but there is no such file",
    ]
    assert check_mirror(shoal, plant(tmp_path / "good", "db/test_speed.py"), {"db/test_speed.py"}) == []
