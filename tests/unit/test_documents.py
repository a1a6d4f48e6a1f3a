"""Documents name files, packages and message fields that exist; none of them can lag behind a move."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from shoal.wire import messages
from tests.unit.test_repository import expect_none

ROOT = Path(__file__).resolve().parents[2]
SHOAL = ROOT / "src" / "shoal"
MAPS = ("docs/architecture.md", "docs/protocol.md", "docs/papers.md")
PATH = re.compile(r"`([a-z_]+(?:/[\w.-]+)*(?:\.(?:py|md|sql)|/))`")  # a file, or a folder with / behind it
MESSAGES = ("Register", "Registered", "Exchange", "Reply", "Lease", "Report", "Batch")
WISHES = 40  # rows of "I want to ..." at least


def find_missing(text: str, folders: Iterable[Path]) -> list[str]:
    """Paths that a document names and that none of these folders has."""
    return [path for path in PATH.findall(text) if not any((folder / path).exists() for folder in folders)]


def section(text: str, title: str) -> str:
    """The part of a document below a heading."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def list_packages(shoal: Path) -> set[str]:
    """Every package below src/shoal, as a document names it."""
    return {f"{file.parent.relative_to(shoal).as_posix()}/" for file in shoal.rglob("__init__.py")} - {"./"}


def fields_in(text: str, message: str) -> set[str]:
    """The fields in the first column of a message's table."""
    table = text.split(f"\n| `{message}` | |\n", 1)[1].split("\n\n", 1)[0]
    return {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize("name", MAPS)
def test_every_file_that_a_map_names_exists(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert len(PATH.findall(text)) > 20
    expect_none([f"{name}: {path}" for path in find_missing(text, (SHOAL, ROOT, ROOT / "docs"))])


def test_the_map_has_a_line_for_each_package() -> None:
    named = set(PATH.findall(section((ROOT / "docs/architecture.md").read_text("utf-8"), "Packages")))
    expect_none([f"docs/architecture.md has no line for {package}" for package in sorted(list_packages(SHOAL) - named)])


def test_every_wish_leads_to_a_file() -> None:
    rows = section((ROOT / "docs/architecture.md").read_text("utf-8"), "I want to ...").strip().splitlines()[2:]
    assert len(rows) >= WISHES
    expect_none([row for row in rows if not PATH.search(row)])


@pytest.mark.parametrize("message", MESSAGES)
def test_the_protocol_page_names_the_fields_of_each_message(message: str) -> None:
    said = fields_in((ROOT / "docs/protocol.md").read_text("utf-8"), message)
    assert said == {field.name for field in dataclasses.fields(getattr(messages, message))}


def test_the_protocol_page_names_every_order_and_version() -> None:
    text = (ROOT / "docs/protocol.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (\d) \|", text, re.M)) == {k: str(v) for k, v in messages.ORDERS.items()}
    assert f"Version **{messages.PROTOCOL}** is spoken, version **{messages.PROTOCOL - 1}** is still" in text


def test_the_promises_page_has_as_many_seeds_as_the_test() -> None:
    seeds = re.search(
        r"^SEEDS = ([\d_]+) if PROVE else ([\d_]+)$", (ROOT / "tests/sim/test_worlds.py").read_text("utf-8"), re.M
    )
    assert seeds is not None
    many, few = (f"{int(number):,}" for number in seeds.groups())
    assert f"{few} seeds in `make test`, {many} in `make prove`" in (ROOT / "docs/promises.md").read_text("utf-8")


# --- each rule catches a planted violation
def test_a_file_that_is_not_there_is_caught(tmp_path: Path) -> None:
    (tmp_path / "db" / "queries").mkdir(parents=True)
    (tmp_path / "db" / "sqlite.py").touch()
    text = "`db/sqlite.py`, `db/queries/`, `db/attic.py`, `attic/`, `make check`, `r12.7`, `a/b`"
    assert find_missing(text, [tmp_path]) == ["db/attic.py", "attic/"]


def test_a_package_without_a_line_is_caught(tmp_path: Path) -> None:
    for package in ("db", "server/http"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    assert list_packages(tmp_path) == {"db/", "server/http/"}


def test_a_field_that_is_missing_or_too_much_is_seen() -> None:
    text = (
        "\n\n| `Lease` | |\n|---|---|\n| `attempt`, `count` | `room` is named here only |\n| `proof` | |\n\nmore `x`\n"
    )
    assert fields_in(text, "Lease") == {"attempt", "count", "proof"}
