"""What each process imports before its first task costs no more CPU time than a budget, in starts of a bare interpreter.

A start waits for its imports, and one careless line adds a library to every command. CPU time over that of `python -c
pass`, the least of several runs in turns, holds on any machine and, with some slack, under load. The number of modules
is the same each time and has little slack; a list names what is never wanted. Byte code is compiled into a directory of
the test's own, as it is when Shoal is installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROUNDS = 7


class Budget(NamedTuple):
    """What a process imports at its start, and what that may cost."""

    code: str
    flags: tuple[str, ...]
    most: float  # CPU time, in starts of a bare interpreter
    modules: int
    never: frozenset[str]  # modules that only some of its work needs


SOURCE = Path(__file__).resolve().parents[2] / "src"
NEVER = frozenset(
    {"numpy", "cryptography", "rich", "cloudpickle", "http.client", "email", "zipfile", "multiprocessing"}
)
BUDGETS = {
    "shoal run": Budget(
        "import shoal.cli.main, shoal.cli.commands, shoal.cli.tasks.run, shoal.cli.output.wait_for_run",
        (),
        14.0,
        240,
        NEVER | {"asyncio", "sqlite3", "msgspec", "ssl", "tomllib", "tempfile"},
    ),
    "server": Budget(
        "import shoal.server.main", (), 27.0, 415, NEVER - {"email"} | {"click", "shoal.server.http.openapi"}
    ),
    "pilot": Budget(
        f"import sys; sys.path.append({str(SOURCE)!r}); import shoal.pilot.main, shoal.pilot.lifecycle",
        ("-I", "-S"),
        17.0,
        285,
        NEVER | {"asyncio", "sqlite3", "tempfile"},
    ),
}
SHOW = "; import sys; print(*sys.modules)"


def cpu(argv: list[str], env: dict[str, str]) -> float:
    """CPU seconds of one process, user and system."""
    _, status, used = os.wait4(os.posix_spawn(argv[0], argv, env), 0)
    assert status == 0, argv
    return used.ru_utime + used.ru_stime


def complaints(budget: Budget, cache: Path) -> list[str]:
    """What breaks a budget."""
    # -X, because the isolated pilot reads no variables; and byte code is written whatever the environment says.
    prefix = [sys.executable, "-X", f"pycache_prefix={cache}", *budget.flags]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    listing = cache / "modules"
    quiet = f"import sys; sys.stdout = open({str(listing)!r}, 'w'); {budget.code}{SHOW}"
    cpu([*prefix, "-c", quiet], env)  # compiles
    modules = set(listing.read_text().split())
    found = [f"{name} is imported" for name in sorted(budget.never & modules)]
    if len(modules) > budget.modules:
        found.append(f"{len(modules)} modules, not {budget.modules}")
    bare, whole = [], []
    for _ in range(ROUNDS):
        bare.append(cpu([sys.executable, "-c", "pass"], env))
        whole.append(cpu([*prefix, "-c", budget.code], env))
    units = min(whole) / min(bare)
    return found + ([f"{units:.1f} starts of an interpreter, not {budget.most}"] if units > budget.most else [])


@pytest.mark.parametrize("process", BUDGETS)
def test_what_a_process_imports_stays_within_its_budget(process: str, tmp_path: Path) -> None:
    assert not complaints(BUDGETS[process], tmp_path)


def test_a_library_that_is_not_wanted_is_found(tmp_path: Path) -> None:
    budget = BUDGETS["pilot"]
    assert complaints(budget._replace(code=budget.code + ", http.client"), tmp_path)[0] == "email is imported"


def test_imports_that_cost_too_much_are_found(tmp_path: Path) -> None:
    budget = BUDGETS["shoal run"]
    both = budget._replace(code=f"{budget.code}, shoal.server.main, numpy", never=frozenset(), modules=10_000)
    assert any("starts of an interpreter" in complaint for complaint in complaints(both, tmp_path))


def test_too_many_modules_are_found(tmp_path: Path) -> None:
    budget = BUDGETS["pilot"]._replace(never=frozenset(), most=1000.0)
    (complaint,) = complaints(budget._replace(code=f"{budget.code}, asyncio, unittest.mock"), tmp_path)
    assert "modules, not 285" in complaint
