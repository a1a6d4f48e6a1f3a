"""`shoal site policy`: by which policy sites are asked for pilots, chosen by name or by file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Typed


def test_a_policy_is_chosen_by_name_and_its_numbers_by_a_file(typed: Typed, tmp_path: Path) -> None:
    assert typed("site", "policy") == (0, "your sites are asked for pilots by shoal\n", "")
    assert typed("site", "policy", "guided")[0] == 0
    assert "by guided\n" in typed("site", "policy")[1]
    (tmp_path / "careful.toml").write_text('[provision]\npolicy = "simple"\npool = 12\nover = 0.5\n')
    assert typed("site", "policy", "careful.toml")[1] == "your sites are asked for pilots by simple with pool = 12\n"
    found = json.loads(typed("site", "policy", "--json")[1])
    assert (found["policy"], found["pool"], found["max_pending"]) == ("simple", 12, 0)


@pytest.mark.parametrize(("text", "line"), [
    ("[provision]\novr = 1\n", "provision.ovr is not known (did you mean over)"),
    ("[provision]\nover = 11\n", "provision.over has to be a number from 0 to 10, not 11"),
    ("[provision]\npool = 1.5\n", "provision.pool has to be a whole number from 0 to 100,000, not 1.5"),
    ('[provision]\npolicy = "best"\n', "provision.policy has to be one of shoal, "),
    ("[provision]\n[[site]]\n", "site is not known"),
    ("over = 1\n", "provision is missing"),
    ("[provision\n", "is no valid TOML"),
])  # fmt: skip
def test_what_is_wrong_in_a_file_is_named_and_changes_nothing(
    typed: Typed, tmp_path: Path, text: str, line: str
) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    status, _, errors = typed("site", "policy", "wrong.toml")
    assert status != 0 and line in errors
    assert typed("site", "policy")[1] == "your sites are asked for pilots by shoal\n"


def test_what_is_neither_a_policy_nor_a_file_is_refused_with_a_guess(typed: Typed) -> None:
    status, _, errors = typed("site", "policy", "gided")
    assert status != 0 and "neither a policy nor a file" in errors and "did you mean guided" in errors
