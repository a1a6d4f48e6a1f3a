"""Which modules travel, and when their sources are read."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client.pickling import user_modules as module
from shoal.client.pickling.user_modules import UserModules, imports_of
from shoal.wire.module_sources import ModuleSource, of_bytes


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the search path; what is imported from it is forgotten at the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()


def found(modules: UserModules, folder: Path) -> dict[str, ModuleSource]:
    """The modules of a folder that travel."""
    all_found = of_bytes(modules.sources()).modules
    return {one.name: one for one in all_found if str(folder) in one.path or str(folder) in "".join(one.folders or [])}


def test_modules_of_the_user_travel_and_no_others(project: Path) -> None:
    write(project, late_m="def f(): pass", late_pkg__sub__deep="x = 1")
    (project / "late_pkg" / "sub" / "__init__.py").touch()
    for name in ("late_m", "late_pkg.sub.deep"):
        importlib.import_module(name)
    modules = UserModules()
    mine = found(modules, project)
    assert set(mine) == {"late_m", "late_pkg", "late_pkg.sub", "late_pkg.sub.deep"}
    assert mine["late_m"] == ModuleSource("late_m", str(project / "late_m.py"), None, "def f(): pass")
    assert mine["late_pkg"] == ModuleSource("late_pkg", "", [str(project / "late_pkg")], None)  # a namespace
    assert mine["late_pkg.sub"].folders == [str(project / "late_pkg" / "sub")]
    tops = {one.name.partition(".")[0] for one in of_bytes(modules.sources()).modules}
    assert not tops & {"json", "pytest", "numpy", "shoal", "__main__"}


def test_the_source_is_that_of_the_first_look_until_a_reload(project: Path) -> None:
    write(project, late_m="x = 1")
    loaded: Any = importlib.import_module("late_m")
    modules = UserModules()
    first = modules.sources()
    write(project, late_m="x = 2")
    assert modules.sources() is first
    importlib.reload(loaded)
    assert found(modules, project)["late_m"].source == "x = 2"
    importlib.reload(loaded)
    second = modules.sources()
    write(project, late_m="x = (")
    with contextlib.suppress(SyntaxError):
        importlib.reload(loaded)
    assert modules.sources() == second  # what runs here is still what was loaded before


def test_a_module_that_is_replaced_or_new_is_seen(project: Path) -> None:
    write(project, late_m="x = 1")
    importlib.import_module("late_m")
    modules = UserModules()
    first = modules.sources()
    del sys.modules["late_m"]
    write(project, late_m="x = 2", late_n="y = 1")
    importlib.import_module("late_n")  # as many modules as before
    assert modules.sources() is not first
    assert set(found(modules, project)) == {"late_n"}


def test_a_module_that_is_only_named_follows_its_file(project: Path) -> None:
    write(
        project,
        late_m="def f():\n    from late_pkg import a as b, c\n    import late_b.deep",
        late_pkg__c="import late_d",
    )
    write(project, late_pkg__a="x = 1", late_d="x = 2", late_b__deep="x = 3", late_unused="x = 4")
    (project / "late_b" / "__init__.py").write_text("from . import other; from .other import thing")
    write(project, late_b__other="x = 5")
    importlib.import_module("late_m")
    modules = UserModules()
    assert set(found(modules, project)) == {
        "late_m", "late_pkg", "late_pkg.a", "late_pkg.c", "late_d", "late_b", "late_b.deep", "late_b.other",
    }  # fmt: skip
    before = (project / "late_d.py").stat()
    (project / "late_d.py").write_text("x = 9")
    os.utime(project / "late_d.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(modules, project)["late_d"].source == "x = 9"
    (project / "late_d.py").unlink()
    assert "late_d" not in found(modules, project)


def test_what_a_function_of_the_script_imports_travels(project: Path) -> None:
    write(project, late_one="x = 1", late_two="x = 2", late_three="x = 3", late_four="x = 4")
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "def inner():\n  import late_one\n"
        "class C:\n  def m(self):\n    from late_two import x\n"
        "def outer(c=C):\n  def deep():\n    import late_three\n  return inner, deep, C\n",
        space,
    )
    assert {"late_one", "late_two", "late_two.x", "late_three"} == set(imports_of(space["outer"]))
    modules = UserModules()
    assert not found(modules, project)
    modules.add_imports_of(space["outer"])
    assert set(found(modules, project)) == {"late_one", "late_two", "late_three"}


def test_a_module_of_a_zip_travels_and_what_is_no_source_is_told(project: Path) -> None:
    with zipfile.ZipFile(project / "late.zip", "w") as file:
        file.writestr("late_zipped.py", "x = 1")
    sys.path.insert(0, str(project / "late.zip"))
    (project / "late_pkg").mkdir()
    (project / "late_pkg" / "__init__.py").touch()
    (project / "late_pkg" / "fast.so").touch()
    importlib.import_module("late_zipped")
    loaded = importlib.import_module("late_pkg")
    fast: Any = type(sys)("late_pkg.fast")
    fast.__spec__ = importlib.machinery.ModuleSpec("late_pkg.fast", None, origin=str(project / "late_pkg" / "fast.so"))
    fast.__spec__.has_location = True
    sys.modules["late_pkg.fast"] = fast
    assert loaded.__name__ == "late_pkg"
    modules = UserModules()
    assert found(modules, project)["late_zipped"].source == "x = 1"
    assert of_bytes(modules.sources()).incomplete == ("late_pkg",)


def test_more_than_may_travel_is_said_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, late_small="x = 1", late_large="#" * 5_000_000)
    for name in ("late_small", "late_large"):
        importlib.import_module(name)
    monkeypatch.setattr(module, "MAX_MODULES", 4_500_000)
    modules = UserModules()
    assert set(found(modules, project)) == {"late_small"}
    write(project, late_third="x = 1")
    importlib.import_module("late_third")
    modules.sources()
    assert capsys.readouterr().err.count("your modules are larger than 4.3M: the largest are read where calls run") == 1


def test_installed_packages_are_part_of_it(project: Path) -> None:
    def installed() -> str:
        return str(json.loads(UserModules().sources())[0])

    before = installed()
    (project / "site-packages" / "late-1.0.dist-info").mkdir(parents=True)
    sys.path.append(str(project / "site-packages"))
    assert installed() != before


def test_asking_is_cheap_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = UserModules()
    first = modules.sources()
    monkeypatch.setattr(modules, "_look", lambda: pytest.fail("looked again"))
    assert modules.sources() is first
