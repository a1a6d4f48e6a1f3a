"""Batch systems that are known by three commands."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.provision.backend import BackendError, Order, Result, Shape, Status
from shoal.provision.command import CommandBackend

COMMANDS = {"submit": "sub -n '{name} x' {script} {cores}", "status": "stat --all={ids} {ids}", "cancel": "kill {ids}"}


def test_placeholders_are_replaced_inside_of_arguments() -> None:
    backend = CommandBackend(COMMANDS)
    order = Order("shoal-x-1", Shape(4, 60), "/data/shoal", ("true",), {})
    assert backend.submit(order, "/data/shoal/x.sh").argv == ("sub", "-n", "shoal-x-1 x", "/data/shoal/x.sh", "4")
    assert backend.status("shoal-x", ["1", "2"]).argv == ("stat", "--all=1,2", "1", "2")
    with pytest.raises(BackendError):
        backend.cancel(["$(x)"])


def test_patterns_of_ones_own_read_other_forms() -> None:
    patterns = {"id_pattern": r"ticket=(\w+)", "line_pattern": r"(?P<name>\S+)/(?P<id>\d+) is (?P<state>\w+)"}
    backend = CommandBackend({**COMMANDS, **patterns})
    assert backend.parse_submit(Result(0, "ok ticket=77 thanks", "")) == "77"
    text = "NAME/ID\nshoal-x-1/77 is running\nother/78 is running\n"
    assert backend.parse_status(Result(0, text, ""), "shoal-x", []) == [Status("77", "shoal-x-1", "running")]


@pytest.mark.parametrize(
    "options",
    [
        {"submit": "x"},
        {**COMMANDS, "submit": "sub 'x"},
        {**COMMANDS, "submit": "sub {ids}"},
        {**COMMANDS, "cancle": "x"},
        {**COMMANDS, "id_pattern": "("},
        {**COMMANDS, "line_pattern": ".*"},
    ],
)
def test_wrong_templates_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadInput) as caught:
        CommandBackend(options)
    assert caught.value.field
