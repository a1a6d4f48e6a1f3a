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

ROUNDS = 3  # at least
MOST_ROUNDS = 7  # before a process is said to cost too much


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
        246,
        NEVER | {"asyncio", "sqlite3", "msgspec", "ssl", "tomllib", "tempfile"},
    ),
    "server": Budget(
        "import shoal.server.main", (), 27.0, 484, NEVER - {"email"} | {"click", "shoal.server.http.openapi"}
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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for byte code, which all tests here share: most of them import the same modules."""
    return tmp_path_factory.mktemp("cache")


def prefix_and_env(budget: Budget, cache: Path) -> tuple[list[str], dict[str, str]]:
    """How its processes are started."""
    # -X, because the isolated pilot reads no variables; and byte code is written whatever the environment says.
    prefix = [sys.executable, "-X", f"pycache_prefix={cache}", *budget.flags]
    return prefix, {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def wrong_modules(budget: Budget, cache: Path) -> list[str]:
    """What is imported and should not be, and whether that is too much; also compiles all of it."""
    prefix, env = prefix_and_env(budget, cache)
    listing = cache / "modules"
    quiet = f"import sys; sys.stdout = open({str(listing)!r}, 'w'); {budget.code}{SHOW}"
    cpu([*prefix, "-c", quiet], env)
    modules = set(listing.read_text().split())
    found = [f"{name} is imported" for name in sorted(budget.never & modules)]
    if len(modules) > budget.modules:
        found.append(f"{len(modules)} modules, not {budget.modules}")
    return found


def wrong_cost(budget: Budget, cache: Path) -> list[str]:
    """Whether what is imported costs too much, once it is compiled."""
    prefix, env = prefix_and_env(budget, cache)
    bare, whole, units = [], [], 0.0
    for number in range(1, MOST_ROUNDS + 1):
        bare.append(cpu([sys.executable, "-c", "pass"], env))
        whole.append(cpu([*prefix, "-c", budget.code], env))
        units = min(whole) / min(bare)
        if number >= ROUNDS and units <= budget.most:
            return []
    return [f"{units:.1f} starts of an interpreter, not {budget.most}"]


@pytest.mark.parametrize("process", BUDGETS)
def test_what_a_process_imports_stays_within_its_budget(process: str, cache: Path) -> None:
    assert not wrong_modules(BUDGETS[process], cache)
    assert not wrong_cost(BUDGETS[process], cache)


def test_a_library_that_is_not_wanted_is_found(cache: Path) -> None:
    budget = BUDGETS["pilot"]
    assert wrong_modules(budget._replace(code=budget.code + ", http.client"), cache)[0] == "email is imported"


def test_imports_that_cost_too_much_are_found(cache: Path) -> None:
    budget = BUDGETS["shoal run"]
    both = budget._replace(code=f"{budget.code}, shoal.server.main, numpy", never=frozenset(), modules=10_000)
    assert not wrong_modules(both, cache)
    assert any("starts of an interpreter" in complaint for complaint in wrong_cost(both, cache))


def test_too_many_modules_are_found(cache: Path) -> None:
    budget = BUDGETS["pilot"]._replace(never=frozenset())
    (complaint,) = wrong_modules(budget._replace(code=f"{budget.code}, asyncio, unittest.mock"), cache)
    assert "modules, not 285" in complaint
