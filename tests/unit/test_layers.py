"""The rules of the rooms (docs/architecture.md), read from the source with `ast`.

Each rule is a function from a tree of files to a list of complaints. The first half of the tests holds the
rules on src/shoal; the second half plants one violation at a time in a small false tree, to prove that each
rule can fail.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SHOAL = Path(__file__).resolve().parents[2] / "src" / "shoal"

# A room imports itself and rooms of earlier layers. Rooms of one layer do not import each other.
LAYERS = (
    ("model",),
    ("wire",),
    ("sched", "flow", "data", "dht"),
    ("engine",),
    ("db", "provision", "storage"),
    ("server", "pilot", "client"),
    ("provisioner", "bridge"),
    ("report",),
    ("sim", "web"),
    ("cli",),
    ("testing",),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
HIDDEN = {"pilot": {"engine", "db", "provision"}, "client": {"engine", "db", "provision"}}
FRONT_FILES = {"__init__.py", "__main__.py", "joblib.py"}  # the only files outside rooms

# Path prefixes of code that only decides.
THOUGHT = ("model/", "wire/", "sched/", "flow/", "data/", "dht/", "engine/", "pilot/agent/")
# The one way to connect that client and pilot share; no pure module imports it.
NOT_PURE = {"wire/http/connection.py", "wire/http/streamed.py"}
# Clock, chance, disk, network, threads, processes, logs: thought is handed what it needs.
# A name covers what is below it.
HANDS = (
    *("time", "random", "secrets", "uuid"),
    *("os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "fcntl", "mmap"),
    *("sqlite3", "dbm", "shelve"),
    *("socket", "socketserver", "ssl", "select", "selectors", "asyncio", "ftplib", "smtplib"),
    *("http.client", "http.server", "urllib.request", "xmlrpc"),
    *("threading", "_thread", "queue", "sched", "concurrent", "multiprocessing"),
    *("subprocess", "signal", "pty", "ctypes", "resource", "platform", "pwd", "grp", "getpass"),
    *("logging", "warnings"),
)
HANDS_ALLOWED = {"random.Random"}  # the type of a generator that is passed in
HANDS_BUILTIN = {"open", "io.open", "print", "input"}
CLOCK_READS = {"now", "utcnow", "today"}

STDLIB_ONLY = {"model", "wire", "sched", "data", "dht", "pilot", "flow"}
STDLIB_EXCEPTIONS = {  # path prefix -> packages it may use
    "wire/codec_fast.py": {"msgspec"},
    "sched/vector/": {"numpy", "scipy"},
}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What the engine's state is made of: a parameter of such a type is the state, too.
STATE_TYPES = {
    "State",
    "Run",
    "Array",
    "Task",
    "Attempt",
    "Pilot",
    "EndedPilot",
    "Accounting",
    "Ledger",
    "Tree",
    "Queue",
}
COPIES = {"list", "tuple", "sorted", "reversed", "iter", "next", "enumerate"}
MUTATORS = {
    *(
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
    ),
    *("remove", "reverse", "setdefault", "sort", "update", "__setitem__", "__setattr__"),
    # methods of the engine's own types
    *(
        "account",
        "capacity",
        "change",
        "count_final",
        "count_live",
        "count_slots",
        "drop_attempt",
        "emit",
        "end",
        "enter",
    ),
    *(
        "hold",
        "keep",
        "learn",
        "load",
        "make_final",
        "note_class",
        "offer",
        "order",
        "queued",
        "remember",
        "reshape",
        "rest",
    ),
    *("set_rule", "settle_pilot", "spend", "start", "stir", "stored", "strike", "touch_places", "wake", "write_run"),
}

MAX_LINES = 600
LONG_FILES: dict[str, str] = {}  # path -> why it may be longer than MAX_LINES
EMPTY_NAMES = {"util", "utils", "common", "helper", "helpers", "misc", "manager"}


@dataclass(frozen=True)
class Import:
    """One imported name: `from shoal.model import ids` has target `shoal.model.ids`, base `shoal.model`."""

    target: str
    base: str
    line: int


@dataclass(frozen=True)
class Source:
    """One Python file of the tree; `room` is empty for the files outside rooms."""

    path: str
    module: str
    room: str
    tree: ast.Module
    lines: int


@cache
def parse(text: str) -> ast.Module:
    """The tree of a file; the rules only read it, so they share it."""
    return ast.parse(text)


def read_sources(shoal: Path) -> list[Source]:
    """Read every Python file under the package folder `shoal`."""
    found = []
    for file in sorted(shoal.rglob("*.py")):
        inner = file.relative_to(shoal)
        text = file.read_text(encoding="utf-8")
        module = ".".join(("shoal", *inner.with_suffix("").parts))
        room = inner.parts[0] if len(inner.parts) > 1 else ""
        found.append(Source(inner.as_posix(), module, room, parse(text), len(text.splitlines())))
    return found


def read_imports(tree: ast.AST, module: str) -> Iterator[Import]:
    """Every import in a file, wherever it stands.

    `module` is the dotted name of the file; that of a package ends in `.__init__`.
    """
    for vertex in ast.walk(tree):
        if isinstance(vertex, ast.Import):
            for alias in vertex.names:
                yield Import(alias.name, alias.name, vertex.lineno)
        elif isinstance(vertex, ast.ImportFrom):
            base = vertex.module or ""
            if vertex.level:
                above = module.split(".")[: -vertex.level]
                base = ".".join([*above, base]) if base else ".".join(above)
            for alias in vertex.names:
                yield Import(base if alias.name == "*" else f"{base}.{alias.name}", base, vertex.lineno)
        elif isinstance(vertex, ast.Call) and vertex.args:
            first = vertex.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                called = ast.unparse(vertex.func)
                if called in {"__import__", "import_module", "importlib.import_module"}:
                    yield Import(first.value, first.value, vertex.lineno)


def is_below(target: str, name: str) -> bool:
    """Is the dotted `target` the thing called `name`, or inside it?"""
    return target == name or target.startswith(name + ".")


def check_rooms(shoal: Path) -> list[str]:
    """Only known rooms, and only the front files outside them."""
    complaints = []
    for entry in sorted(shoal.iterdir()):
        if entry.is_dir() and entry.name != "__pycache__" and entry.name not in LEVEL:
            complaints.append(f"{entry.name}/: unknown room")
        if entry.suffix == ".py" and entry.name not in FRONT_FILES:
            complaints.append(f"{entry.name}: stands outside the rooms")
    return complaints


def check_layers(shoal: Path) -> list[str]:
    """Imports go to earlier layers only; the pilot and the client do not see the server's inside."""
    complaints = []
    for source in read_sources(shoal):
        for item in read_imports(source.tree, source.module):
            parts = item.target.split(".")
            if parts[0] != "shoal" or len(parts) == 1:
                continue
            where, room = f"{source.path}:{item.line}", parts[1]
            if room not in LEVEL:
                if item.base != "shoal":  # `from shoal import __version__` names no room
                    complaints.append(f"{where}: imports unknown room {room}")
            elif source.path == "__init__.py":
                complaints.append(f"{where}: shoal/__init__.py imports {room}, so every room would")
            elif source.room in LEVEL and room != source.room:
                if LEVEL[room] >= LEVEL[source.room]:
                    complaints.append(f"{where}: {source.room} imports {room}")
                elif room in HIDDEN.get(source.room, set()):
                    complaints.append(f"{where}: {source.room} must not see {room}")
    return complaints


def is_pure(path: str) -> bool:
    """Is this a file, or what is imported from one, that only decides?"""
    return path.startswith(THOUGHT) and not path.startswith(tuple(name.removesuffix(".py") for name in NOT_PURE))


def check_thought(shoal: Path) -> list[str]:
    """Code that decides has no clock, chance, disk, network, thread or log, and imports none of ours that has."""
    complaints = []
    for source in read_sources(shoal):
        if not is_pure(source.path):
            continue
        part = next(prefix for prefix in THOUGHT if source.path.startswith(prefix)).rstrip("/")
        for item in read_imports(source.tree, source.module):
            is_ours = item.target.startswith("shoal.") and item.base != "shoal"
            if is_ours and not is_pure(item.target.removeprefix("shoal.").replace(".", "/") + "/"):
                complaints.append(f"{source.path}:{item.line}: {part} imports {item.target}")
            if item.target not in HANDS_ALLOWED and any(is_below(item.target, name) for name in HANDS):
                complaints.append(f"{source.path}:{item.line}: {part} imports {item.target}")
        for vertex in ast.walk(source.tree):
            if isinstance(vertex, ast.Call):
                called = ast.unparse(vertex.func)
                owner, _, last = called.rpartition(".")
                reads_clock = last in CLOCK_READS and owner.split(".")[-1] in {"datetime", "date"}
                if called in HANDS_BUILTIN or reads_clock:
                    complaints.append(f"{source.path}:{vertex.lineno}: {part} calls {called}")
    return complaints


def check_stdlib_only(shoal: Path) -> list[str]:
    """What travels in the pilot zip, and what decides for it, needs nothing installed."""
    complaints = []
    for source in read_sources(shoal):
        if source.room not in STDLIB_ONLY:
            continue
        allowed = {"shoal"}.union(
            *(packages for prefix, packages in STDLIB_EXCEPTIONS.items() if source.path.startswith(prefix))
        )
        for item in read_imports(source.tree, source.module):
            package = item.target.split(".")[0]
            if package not in allowed and package not in sys.stdlib_module_names:
                complaints.append(f"{source.path}:{item.line}: {source.room} imports {package}")
    return complaints


def check_size(shoal: Path, exceptions: dict[str, str]) -> list[str]:
    """No file is longer than one can hold in mind, and no exception stays when it is no longer needed."""
    lines = {source.path: source.lines for source in read_sources(shoal)}
    long = {path for path, count in lines.items() if count > MAX_LINES}
    complaints = [f"{path}: {lines[path]} lines, more than {MAX_LINES}" for path in sorted(long - set(exceptions))]
    complaints += [f"{path}: exception not needed" for path in sorted(set(exceptions) - long)]
    complaints += [f"{path}: exception without a reason" for path, reason in exceptions.items() if not reason]
    return complaints


def check_names(shoal: Path) -> list[str]:
    """No file or folder has a name that says nothing about what is in it."""
    return [
        f"{source.path}: empty name"
        for source in read_sources(shoal)
        if EMPTY_NAMES & set(Path(source.path).with_suffix("").parts)
    ]


def check_state_writes(shoal: Path) -> list[str]:
    """The server changes the engine's state by commands and methods of the engine: it writes to nothing it reached
    through `engine.state`, whether in one expression, by a local name, a loop or a parameter of the engine's types."""
    complaints = []
    for source in read_sources(shoal):
        if source.room == "server":
            complaints += [f"{source.path}:{line}: writes to {text}" for line, text in _state_writes(source.tree)]
    return complaints


def _state_writes(tree: ast.Module) -> list[tuple[int, str]]:
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))]
    found: set[tuple[int, str]] = set()
    for scope in scopes:
        known = _names_of_state(scope)
        for node in _inside(scope):
            if not isinstance(node, (ast.stmt, ast.expr)):
                continue
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                targets = [node.target]
            elif isinstance(node, ast.Delete):
                targets = node.targets
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
                targets = [node.func]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"setattr", "delattr"}:
                found |= {(node.lineno, ast.unparse(one)) for one in node.args[:1] if _is_state(one, known)}
            for target in _flat(targets):
                # A plain name is only bound anew; what it named before is not changed.
                if isinstance(target, (ast.Attribute, ast.Subscript)) and _is_state(target.value, known):
                    found.add((node.lineno, ast.unparse(target)))
    return sorted(found)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function or module, without those of functions inside it but with their closures' lambdas."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from _inside(child)


def _flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _flat(target.elts)
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def _names_of_state(scope: ast.AST) -> set[str]:
    """Local names bound to the engine's state or to something inside it."""
    known: set[str] = set()
    if isinstance(scope, FUNCTIONS):
        arguments = scope.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            named = ast.unparse(argument.annotation) if argument.annotation is not None else ""
            if STATE_TYPES & set(re.findall(r"\w+", named)):
                known.add(argument.arg)
    while True:
        before = len(known)
        for node in _inside(scope):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                pairs = [(node.target, node.value)]
            elif isinstance(node, (ast.For, ast.comprehension)):
                pairs = [(node.target, node.iter)]
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    known |= {
                        name.id
                        for name, part in zip(target.elts, value.elts, strict=False)
                        if isinstance(name, ast.Name) and _is_state(part, known)
                    }
                elif _is_state(value, known):
                    known |= {name.id for name in _flat([target]) if isinstance(name, ast.Name)}
        if len(known) == before:
            return known


def _is_state(value: ast.expr, known: set[str]) -> bool:
    """Is this expression the engine's state, or reached from it by attributes, subscripts, calls or `or`?"""
    if isinstance(value, ast.Name):
        return value.id in known
    if isinstance(value, ast.Attribute):
        owner = ast.unparse(value.value)
        return (value.attr == "state" and owner.split(".")[-1] == "engine") or _is_state(value.value, known)
    if isinstance(value, (ast.Subscript, ast.Starred)):
        return _is_state(value.value, known)
    if isinstance(value, ast.Call):
        if ast.unparse(value.func) in COPIES:  # another list of the same objects
            return any(_is_state(argument, known) for argument in value.args)
        return _is_state(value.func, known)
    if isinstance(value, (ast.BoolOp, ast.IfExp)):
        parts = value.values if isinstance(value, ast.BoolOp) else [value.body, value.orelse]
        return any(_is_state(part, known) for part in parts)
    return False


# --- the rules hold on the product ---


def expect_none(complaints: list[str]) -> None:
    """Fail with one complaint per line."""
    assert not complaints, "\n".join(["", *complaints])


def test_there_is_something_to_check() -> None:
    assert [source.path for source in read_sources(SHOAL)]


def test_every_folder_is_a_known_room() -> None:
    expect_none(check_rooms(SHOAL))


def test_imports_go_to_earlier_layers_only() -> None:
    expect_none(check_layers(SHOAL))


def test_rooms_that_decide_have_no_hands() -> None:
    expect_none(check_thought(SHOAL))


def test_the_server_writes_nothing_into_the_engines_state() -> None:
    expect_none(check_state_writes(SHOAL))


def test_left_rooms_and_pilot_need_only_the_standard_library() -> None:
    expect_none(check_stdlib_only(SHOAL))


def test_no_file_is_too_long() -> None:
    expect_none(check_size(SHOAL, LONG_FILES))


def test_no_file_has_an_empty_name() -> None:
    expect_none(check_names(SHOAL))


# --- each rule catches a planted violation, and lets good code pass ---

Rule = Callable[[Path], list[str]]


def plant(shoal: Path, path: str, text: str) -> None:
    """Write one file of a false tree."""
    file = shoal / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("model/task.py", "from shoal.wire import codec", "model/task.py:1: model imports wire"),
        ("model/task.py", "import shoal.wire.codec as c", "model/task.py:1: model imports wire"),
        ("model/task.py", "from shoal import wire", "model/task.py:1: model imports wire"),
        ("model/task.py", "from shoal.wire import *", "model/task.py:1: model imports wire"),
        ("model/task.py", "from ..wire.codec import decode", "model/task.py:1: model imports wire"),
        ("model/task.py", "from .. import wire", "model/task.py:1: model imports wire"),
        ("model/__init__.py", "from ..wire import codec", "model/__init__.py:1: model imports wire"),
        ("model/deep/task.py", "from ...wire import codec", "model/deep/task.py:1: model imports wire"),
        (
            "model/deep/__init__.py",
            "from ...wire import codec",
            "model/deep/__init__.py:1: model imports wire",
        ),
        (
            "model/task.py",
            "def f():\n    from shoal.wire import codec",
            "model/task.py:2: model imports wire",
        ),
        (
            "model/task.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shoal.wire",
            "model/task.py:3: model imports wire",
        ),
        (
            "model/task.py",
            "import importlib\nimportlib.import_module('shoal.wire')",
            "model/task.py:2: model imports wire",
        ),
        ("sched/fit.py", "import shoal.dht.key", "sched/fit.py:1: sched imports dht"),
        ("sched/fit.py", "import shoal.engine", "sched/fit.py:1: sched imports engine"),
        ("db/sqlite.py", "import shoal.storage", "db/sqlite.py:1: db imports storage"),
        ("server/http/app.py", "import shoal.client", "server/http/app.py:1: server imports client"),
        ("server/http/app.py", "import shoal.report", "server/http/app.py:1: server imports report"),
        ("sim/world.py", "import shoal.web", "sim/world.py:1: sim imports web"),
        ("cli/main.py", "import shoal.testing", "cli/main.py:1: cli imports testing"),
        ("pilot/agent/agent.py", "import shoal.engine", "pilot/agent/agent.py:1: pilot must not see engine"),
        ("pilot/agent/agent.py", "from shoal.db import sqlite", "pilot/agent/agent.py:1: pilot must not see db"),
        (
            "client/client.py",
            "from ..provision import ssh",
            "client/client.py:1: client must not see provision",
        ),
        ("cli/main.py", "import shoal.attic", "cli/main.py:1: imports unknown room attic"),
        (
            "__init__.py",
            "from .client import Client",
            "__init__.py:1: shoal/__init__.py imports client, so every room would",
        ),
    ],
)
def test_an_import_to_the_right_is_caught(tmp_path: Path, path: str, text: str, complaint: str) -> None:
    plant(tmp_path, path, text)
    assert check_layers(tmp_path) == [complaint]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "wire/codec.py",
            "from shoal.model import ids\nfrom ..model.task import Task\nfrom . import messages",
        ),
        ("engine/tasks.py", "import shoal.sched.fit, shoal.dht.key\nfrom shoal.flow import dag"),
        ("pilot/agent/agent.py", "from shoal import __version__\nimport shoal\nfrom shoal.storage import posix"),
        ("testing/kit.py", "import shoal.cli.main, shoal.engine"),
        ("__main__.py", "from shoal.cli.main import main"),
    ],
)
def test_an_import_to_the_left_passes(tmp_path: Path, path: str, text: str) -> None:
    plant(tmp_path, path, text)
    assert check_layers(tmp_path) == []


def test_an_unknown_room_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, "attic/trunk.py", "")
    (tmp_path / "__pycache__").mkdir()
    assert check_rooms(tmp_path) == ["attic/: unknown room"]


def test_a_file_outside_the_rooms_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, "__init__.py", "")
    plant(tmp_path, "stray.py", "")
    assert check_rooms(tmp_path) == ["stray.py: stands outside the rooms"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import time", "1: sched imports time"),
        ("from time import monotonic", "1: sched imports time.monotonic"),
        ("import os.path", "1: sched imports os.path"),
        ("import random", "1: sched imports random"),
        ("from random import Random, choice", "1: sched imports random.choice"),
        ("from urllib import request", "1: sched imports urllib.request"),
        ("import concurrent.futures", "1: sched imports concurrent.futures"),
        ("def f():\n    import logging", "2: sched imports logging"),
        ("__import__('sqlite3')", "1: sched imports sqlite3"),
        ("import datetime\ndatetime.datetime.now()", "2: sched calls datetime.datetime.now"),
        ("from datetime import date\ndate.today()", "2: sched calls date.today"),
        ("open('x')", "1: sched calls open"),
        ("print('x')", "1: sched calls print"),
    ],
)
def test_hands_in_a_room_that_decides_are_caught(tmp_path: Path, text: str, complaint: str) -> None:
    plant(tmp_path, "sched/fit.py", text)
    assert check_thought(tmp_path) == [f"sched/fit.py:{complaint}"]


def test_every_room_that_decides_is_watched(tmp_path: Path) -> None:
    for prefix in THOUGHT:
        plant(tmp_path, f"{prefix}x.py", "import socket")
    assert check_thought(tmp_path) == [f"{p}x.py:1: {p.rstrip('/')} imports socket" for p in sorted(THOUGHT)]


@pytest.mark.parametrize(
    ("path", "text", "target"),
    [
        ("pilot/agent/agent.py", "from shoal.pilot.host import disk_space", "shoal.pilot.host.disk_space"),
        ("pilot/agent/agent.py", "from ..uplink.latency import Latency", "shoal.pilot.uplink.latency.Latency"),
        ("pilot/agent/agent.py", "import shoal.pilot.loop", "shoal.pilot.loop"),
        ("wire/codec.py", "from shoal.wire.http import connection", "shoal.wire.http.connection"),
        ("engine/core.py", "from shoal.wire.http.connection import Connect", "shoal.wire.http.connection.Connect"),
    ],
)
def test_code_that_decides_imports_no_code_that_acts(tmp_path: Path, path: str, text: str, target: str) -> None:
    plant(tmp_path, path, text)
    plant(tmp_path, "pilot/loop.py", "import time\nfrom shoal.pilot.host import disk_space")
    plant(tmp_path, "wire/http/connection.py", "import socket")
    part = path.rpartition("/")[0]
    assert check_thought(tmp_path) == [f"{path}:1: {part} imports {target}"]


def test_pure_imports_in_a_room_that_decides_pass(tmp_path: Path) -> None:
    text = "from random import Random\nimport hashlib, timeit\nfrom urllib.parse import urlsplit\nself.now()\n"
    plant(tmp_path, "sched/fit.py", text + "from shoal.sched import rank\nfrom . import share")
    plant(tmp_path, "pilot/agent/x.py", "from shoal import __version__\nfrom shoal.pilot.agent import events")
    plant(tmp_path, "pilot/agent/y.py", "from shoal.wire.messages import Lease\nfrom . import x")
    plant(tmp_path, "server/loops.py", "import time, socket\nprint(time.time())")
    assert check_thought(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("context.service.engine.state.trouble = 'x'", "1: writes to context.service.engine.state.trouble"),
        ("a = self.engine.state.keeper = 'x'", "1: writes to self.engine.state.keeper"),
        ("engine.state.next_run += 1", "1: writes to engine.state.next_run"),
        ("del engine.state.runs[3]", "1: writes to engine.state.runs[3]"),
        ("engine.state.runs.pop(3)", "1: writes to engine.state.runs.pop"),
        ("engine.state.accounting.ledger.stored('ann', 5)", "1: writes to engine.state.accounting.ledger.stored"),
        ("setattr(engine.state, 'now', 3.0)", "1: writes to engine.state"),
        ("def f(s):\n    state = s.engine.state\n    state.now = 1.0", "3: writes to state.now"),
        ("def f(s):\n    state, now = s.engine.state, 1.0\n    state.now = now", "3: writes to state.now"),
        ("def f(s):\n    runs = s.engine.state.runs\n    runs[1] = None", "3: writes to runs[1]"),
        (
            "def f(s):\n    for pilot in list(s.engine.state.pilots.values()):\n        pilot.tags.update(a=1)",
            "3: writes to pilot.tags.update",
        ),
        (
            "def f(s):\n    pilot = s.engine.state.pilots.get('p')\n    pilot.seen, x = 1.0, 2",
            "3: writes to pilot.seen",
        ),
        ("def f(pilot: Pilot | None):\n    pilot.live.clear()", "2: writes to pilot.live.clear"),
        ("count = lambda owner, n: engine.state.groups.update({owner: n})", "1: writes to engine.state.groups.update"),
    ],
)
def test_a_write_to_the_engines_state_is_caught(tmp_path: Path, text: str, complaint: str) -> None:
    plant(tmp_path, "server/handlers/x.py", text)
    assert check_state_writes(tmp_path) == [f"server/handlers/x.py:{complaint}"]


def test_reading_the_engines_state_and_changing_other_things_passes(tmp_path: Path) -> None:
    text = (
        "def f(self, state: State, rows: list[dict]):\n"
        "    living, counts = self.engine.state.pilots, {}\n"
        "    for pilot in living.values():\n"
        "        counts[pilot.token] = counts.get(pilot.token, 0) + 1\n"
        "        self.context.tokens.update(counts)\n"
        "    pilot = living.get('p')\n"
        "    rows.append({'live': pilot.held})\n"
        "    self.engine.describe_server(trouble='')\n"
        "    state = None\n"
    )
    plant(tmp_path, "server/handlers/x.py", text)
    plant(tmp_path, "sim/x.py", "engine.state.now = 1.0")
    assert check_state_writes(tmp_path) == []


def test_third_party_imports_in_left_rooms_are_caught(tmp_path: Path) -> None:
    for room in STDLIB_ONLY:
        plant(tmp_path, f"{room}/x.py", "def f():\n    import msgspec.json")
    expected = [f"{room}/x.py:2: {room} imports msgspec" for room in sorted(STDLIB_ONLY)]
    assert check_stdlib_only(tmp_path) == expected


def test_third_party_imports_pass_only_where_they_are_named(tmp_path: Path) -> None:
    plant(tmp_path, "wire/codec_fast.py", "import msgspec, json")
    plant(
        tmp_path,
        "sched/vector/rank.py",
        "import numpy as np\nfrom numpy.typing import NDArray",
    )
    plant(tmp_path, "server/http/app.py", "import httptools")
    assert check_stdlib_only(tmp_path) == []
    plant(tmp_path, "wire/codec_fast.py", "import numpy")
    plant(tmp_path, "sched/vector/rank.py", "import msgspec")
    assert check_stdlib_only(tmp_path) == [
        "sched/vector/rank.py:1: sched imports msgspec",
        "wire/codec_fast.py:1: wire imports numpy",
    ]


def test_a_long_file_is_caught_unless_a_reason_is_given(tmp_path: Path) -> None:
    plant(tmp_path, "model/full.py", "x = 1\n" * MAX_LINES)
    assert check_size(tmp_path, {}) == []
    plant(tmp_path, "model/long.py", "x = 1\n" * (MAX_LINES + 1))
    assert check_size(tmp_path, {}) == [f"model/long.py: {MAX_LINES + 1} lines, more than {MAX_LINES}"]
    assert check_size(tmp_path, {"model/long.py": "one table"}) == []
    assert check_size(tmp_path, {"model/long.py": ""}) == ["model/long.py: exception without a reason"]


def test_an_exception_that_is_not_needed_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, "model/short.py", "x = 1\n")
    assert check_size(tmp_path, {"model/short.py": "was long once"}) == ["model/short.py: exception not needed"]


@pytest.mark.parametrize("path", ["model/utils.py", "cli/common.py", "server/manager.py", "sim/helpers/queue.py"])
def test_an_empty_name_is_caught(tmp_path: Path, path: str) -> None:
    plant(tmp_path, path, "")
    plant(tmp_path, "model/commons.py", "")
    assert check_names(tmp_path) == [f"{path}: empty name"]


@pytest.mark.parametrize(
    "rule", [check_rooms, check_layers, check_thought, check_state_writes, check_stdlib_only, check_names]
)
def test_a_tree_with_missing_rooms_passes(tmp_path: Path, rule: Rule) -> None:
    plant(tmp_path, "__init__.py", '__version__ = "0"\n')
    assert rule(tmp_path) == []
