"""Options of an executor are checked where they are given."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import shoal
from shoal.client.executor import options
from shoal.client.executor.options import fields_of, own_arguments
from shoal.client.executor.script_session import INTERACTIVE
from shoal.model.errors import BadInput
from shoal.pilot.runner.main import arguments_of


def test_only_what_differs_from_the_default_is_sent() -> None:
    assert fields_of({"cores": 1, "require": None, "rank": None, "deadline": None}) == {}
    given = {"cores": 2, "require": "memory_mb >= 4000", "rank": "cpu_mhz", "deadline": "2h"}
    assert fields_of(given) == given


@pytest.mark.parametrize("field", ["require", "rank"])
@pytest.mark.parametrize("text", ["cores >", "().__class__", "task.colour"])
def test_an_expression_that_cannot_be_read_is_told_at_once(field: str, text: str) -> None:
    with pytest.raises(BadInput) as found:
        fields_of({field: text})
    assert found.value.field == field


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"env": {1: 2}}, "env: '1' cannot be set (letters, digits and _; not SHOAL_*, LD_PRELOAD, LD_AUDIT)"),
        ({"env": {"A": 2}}, "env.A: expected text, found '2' (put it in quotes)"),
        ({"env": "A=2"}, 'env: expected names with texts, found \'A=2\' (give env={"NAME": "text"})'),
        ({"labels": 3}, 'labels: expected names with texts, found \'3\' (give labels={"NAME": "text"})'),
        ({"cwd": "/nope"}, "cwd: there is no directory /nope (make it first)"),
        ({"cwd": "/etc/passwd"}, "cwd: /etc/passwd is not a directory (name the directory that the tasks run in)"),
    ],
)
def test_wrong_options_are_refused_when_the_executor_is_made(options: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput) as found:
        shoal.Executor(server="unix:/run/shoal-1", **options)
    assert found.value.line == line


def test_the_arguments_of_a_script_go_to_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "script", lambda: "/scripts/fit.py")
    monkeypatch.setattr(sys, "argv", ["fit.py", "a b", "\udcff"])
    found = own_arguments()["SHOAL_ARGV"]
    assert found.isascii() and arguments_of(found) == sys.argv
    monkeypatch.setattr(sys, "argv", ["fit.py", "x" * 100_000])
    assert own_arguments() == {}
    monkeypatch.setattr(options, "script", lambda: INTERACTIVE)
    monkeypatch.setattr(sys, "argv", ["kernel"])
    assert own_arguments() == {}


@pytest.mark.parametrize("text", ["", "x", "{}", "3"])
def test_without_arguments_they_are_those_of_a_text(text: str) -> None:
    assert arguments_of(text) == ["-c"]
