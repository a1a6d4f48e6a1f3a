"""Reason codes: every reason that the code gives has one of the table, and the table has none that nothing gives."""

from __future__ import annotations

import ast
from pathlib import Path

import shoal
from shoal.engine.why import reason

SOURCE = Path(shoal.__file__).parent
CONSTANTS = {"TOO_LARGE": reason.TOO_LARGE, "PARENTS": reason.PARENTS, "NOT_VISIBLE": reason.NOT_VISIBLE}


def codes_in(text: str) -> list[str]:
    """The codes that a module gives: first arguments of Reason, codes in a choice, and what is assigned to `code`."""
    found: list[str] = []
    for vertex in ast.walk(ast.parse(text)):
        given: list[ast.expr] = []
        if isinstance(vertex, ast.Call) and isinstance(vertex.func, ast.Name) and vertex.func.id == "Reason":
            given = vertex.args[:1]
        elif isinstance(vertex, ast.Assign) and "code" in {n.id for n in ast.walk(vertex) if isinstance(n, ast.Name)}:
            given = [*getattr(vertex.value, "elts", [vertex.value])]
        for value in given:
            choices = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
            found += [c.value for c in choices if isinstance(c, ast.Constant) and isinstance(c.value, str) and c.value]
            found += [CONSTANTS[c.id] for c in choices if isinstance(c, ast.Name) and c.id in CONSTANTS]
    return found


def given_codes() -> set[str]:
    """All codes of the engine, and those that are given without it."""
    files = [*(SOURCE / "engine" / "why").glob("*.py"), SOURCE / "report" / "database_source.py"]
    found = {code for path in files for code in codes_in(path.read_text(encoding="utf-8"))}
    return found | {"gone", "final"}  # db/end_reasons.py


def test_every_code_that_is_given_is_in_the_table_and_the_other_way_round() -> None:
    assert given_codes() == set(reason.CODES)


def test_a_planted_code_is_found() -> None:
    assert codes_in('return Reason("planted", "text")') == ["planted"]
    assert codes_in('return [Reason("a" if x else "b", text)]') == ["a", "b"]
    assert codes_in('parts, code = [], "leased"') == ["leased"]


def test_what_no_pilot_can_ever_run_is_told_from_what_waits() -> None:
    for code in reason.IMPOSSIBLE:
        assert reason.is_impossible([code]) and reason.is_impossible([code, reason.PARENTS])
        assert not reason.is_impossible([code, "busy"])
    for codes in ([], [reason.PARENTS], ["busy"], ["requirement_now"], ["no_pilot"], ["licences_in_use"]):
        assert not reason.is_impossible(codes)
    assert set(reason.CODES) >= reason.IMPOSSIBLE
