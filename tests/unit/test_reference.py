"""The reference pages say what the code says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from scripts import make_reference
from shoal.model.timing import Timing
from shoal.server.http.routes import ROUTES
from shoal.sim.proof.faults import KINDS

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"`(GET|HEAD|POST|PUT|DELETE|PATCH) (/[^`?\s]*)")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def list_routes() -> set[tuple[str, str]]:
    """Method and path of every route of the server."""
    return {(route.method, route.path) for route in ROUTES}


def list_calls(text: str) -> set[tuple[str, str]]:
    """Method and path of every call that a page names, with examples where the routes have names."""
    return set(CALL.findall(text))


def is_call_of(call: tuple[str, str], route: tuple[str, str]) -> bool:
    """Is this call an example of that route?"""
    pattern = re.sub(r"\\\{\w+\\\}", r"[^/]+", re.escape(route[1]))
    return call[0] == route[0] and re.fullmatch(pattern, call[1]) is not None


def compare(calls: set[tuple[str, str]], routes: set[tuple[str, str]]) -> list[str]:
    """What the page and the server do not have in common."""
    wrong = [f"not in the page: {' '.join(r)}" for r in routes if not any(is_call_of(c, r) for c in calls)]
    wrong += [f"no such route: {' '.join(c)}" for c in calls if not any(is_call_of(c, r) for r in routes)]
    return sorted(wrong)


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_generated_page_is_fresh(name: str) -> None:
    page = make_reference.REFERENCE / name
    assert page.is_file(), f"run python scripts/make_reference.py: {name} is missing"
    assert page.read_text(encoding="utf-8") == make_reference.render(name), "run python scripts/make_reference.py"


def test_check_names_a_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_reference, "REFERENCE", tmp_path)
    monkeypatch.setattr(
        make_reference, "PAGES", {name: make_reference.PAGES[name] for name in ("limits.md", "task.md")}
    )
    assert make_reference.main([]) == 0
    assert make_reference.main(["--check"]) == 0
    (tmp_path / "limits.md").write_text("old", encoding="utf-8")
    assert make_reference.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("docs/reference/limits.md is stale")


def test_a_name_without_its_sentence_is_refused() -> None:
    with pytest.raises(SystemExit, match="without a sentence: \\['b'\\]; no longer there: \\['c'\\]"):
        make_reference.sentences("letters", ["a", "b"], {"a": "first", "c": "third"})


def test_http_page_names_every_route_and_no_other() -> None:
    page = (make_reference.REFERENCE / "http.md").read_text(encoding="utf-8")
    assert compare(list_calls(page), list_routes()) == []


def test_a_missing_and_an_invented_route_are_caught() -> None:
    page = "| `GET /v1/runs?limit=1` | `POST /v1/pilots/ID/exchange`, `GET /v1/nothing` |"
    routes = {("GET", "/v1/runs"), ("POST", "/v1/runs"), ("POST", "/v1/pilots/{pilot}/exchange")}
    assert compare(list_calls(page), routes) == ["no such route: GET /v1/nothing", "not in the page: POST /v1/runs"]


def test_failure_page_has_the_times_of_the_code() -> None:
    page = (ROOT / "docs" / "explain" / "failure.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) s \|", page, re.M))
    times = {field.name: getattr(Timing(), field.name) for field in dataclasses.fields(Timing)}
    assert {name: float(value.replace(",", "")) for name, value in told.items()} == times


def test_simulator_page_names_every_fault() -> None:
    page = (ROOT / "docs" / "howto" / "run-the-simulator.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(KINDS)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings."""
    return {make_reference.anchor(title) for title in re.findall(r"^#+ (.+)$", page, re.M)}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)):
        place = page if not target else (page.parent / target).resolve()
        if not place.exists():
            broken.append(target)
        elif anchor and anchor[1:] not in anchors(place.read_text(encoding="utf-8")):
            broken.append(target + anchor)
    assert broken == []
