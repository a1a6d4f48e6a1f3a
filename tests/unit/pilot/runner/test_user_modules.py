"""Imports inside a runner: from what travelled, else from files without `.pyc`."""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import py_compile
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot.runner.user_modules import UserModules
from shoal.wire.module_sources import ModuleSource, ModuleSources, to_bytes


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "cache").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def install(project: Path, *modules: ModuleSource, incomplete: tuple[str, ...] = ()) -> UserModules:
    made = UserModules(str(project / "cache"))
    made.install(to_bytes(ModuleSources("", incomplete, modules)))
    return made


def load(name: str) -> Any:
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_what_travelled_is_executed_whatever_the_file_says(project: Path) -> None:
    path = project / "early_m.py"
    path.write_text("x = 'file'")
    install(project, ModuleSource("early_m", str(path), None, "x = 'sent'\ndef f():\n    raise KeyError(x)\n"))
    module = load("early_m")
    assert module.x == "sent" and module.__file__ == str(path)
    assert module.__cached__ == importlib.util.cache_from_source(str(path))
    assert inspect.getsource(module.f).startswith("def f")
    try:
        module.f()
    except KeyError:
        assert "raise KeyError(x)" in traceback.format_exc()
    linecache.checkcache()
    assert linecache.getline(str(path), 1) == "x = 'sent'\n"


def test_packages_namespaces_and_files_beside_them(project: Path) -> None:
    away = "/no/such/folder"
    (project / "early_space").mkdir()
    (project / "early_space" / "here.py").write_text("x = 'here'")
    install(
        project,
        ModuleSource("early_p", f"{away}/early_p/__init__.py", [f"{away}/early_p"], "from .part import x"),
        ModuleSource("early_p.part", f"{away}/early_p/part.py", None, "x = __package__"),
        ModuleSource("early_space", "", [f"{away}/early_space"], None),
        ModuleSource("early_space.far", f"{away}/early_space/far.py", None, "x = 'far'"),
    )
    assert load("early_p").x == "early_p" and load("early_p").__path__ == [f"{away}/early_p"]
    assert load("early_space.far").x == "far"
    assert load("early_space.here").x == "here"  # a part of it that this host has


def test_an_incomplete_package_of_another_host_is_left_to_this_one(project: Path) -> None:
    (project / "early_p").mkdir()
    (project / "early_p" / "__init__.py").write_text("x = 'of this host'")
    sent = ModuleSource("early_p", "/no/such/early_p/__init__.py", ["/no/such/early_p"], "x = 'sent'")
    install(project, sent, incomplete=("early_p",))
    assert load("early_p").x == "of this host"


def test_a_file_is_read_without_its_compiled_form_and_watched(project: Path) -> None:
    path = project / "early_f.py"
    path.write_text("x = 1")
    py_compile.compile(str(path))
    before = path.stat()
    path.write_text("x = 2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    modules = install(project)
    assert load("early_f").x == 2
    assert not modules.is_stale()
    now = path.stat()
    path.write_text("x = 3")
    os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns))
    assert modules.is_stale()


def test_installed_modules_are_not_ours(project: Path) -> None:
    folder = project / "site-packages"
    folder.mkdir()
    (folder / "early_installed.py").write_text("x = 1")
    sys.path.insert(0, str(folder))
    modules = install(project)
    module = load("early_installed")
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")
    (folder / "early_installed.py").unlink()
    assert not modules.is_stale()


def test_code_is_compiled_once_for_all_runners(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = ModuleSource("early_m", str(project / "early_m.py"), None, "x = 'sent'")
    install(project, sent)
    load("early_m")
    (kept,) = (project / "cache").iterdir()
    del sys.modules["early_m"]
    again = install(project, sent)
    monkeypatch.setattr("builtins.compile", lambda *_, **__: pytest.fail("compiled again"))
    assert again.code_of(b"x = 'sent'", str(project / "early_m.py")).co_consts[0] == "sent"
    monkeypatch.undo()
    kept.write_bytes(b"damaged")
    assert again.code_of(b"x = 'sent'", str(project / "early_m.py")).co_consts[0] == "sent"
