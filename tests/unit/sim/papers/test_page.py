"""docs/reproduction.md has the shape that the command writes."""

from __future__ import annotations

import re
from pathlib import Path

from shoal.sim.papers.findings import run
from shoal.sim.papers.page import HEAD, plain, write_page
from shoal.sim.papers.registry import EXPERIMENTS

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reproduction.md"
START = EXPERIMENTS["u.start"]


def section(text: str, name: str) -> str:
    begin = text.index(f"## {name}: ")
    end = text.find("\n## ", begin)
    return text[begin:] if end < 0 else text[begin:end]


def test_the_page_is_of_today_s_experiments_claims_rules_and_parameters() -> None:
    """No figure is compared: they are of the run that wrote the page."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD), "run shoal reproduce ID --page docs/reproduction.md"
    assert re.findall(r"^## (\S+): ", text, re.M) == list(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        told = section(text, name)
        for claim in experiment.claims:
            row = next(line for line in told.splitlines() if line.startswith(f"| {plain(claim.what)} |"))
            assert plain(claim.rule.words(claim.unit)) in row and claim.rule.printed(claim.unit) in row, name
            assert not claim.note or plain(claim.note) in told, name
        for parameter in experiment.parameters:
            assert f"| {parameter.name} |" in told and parameter.where in told, (name, parameter.name)
        assert not re.search(r"\b20\d\d-\d\d-\d\d\b|\b[0-9a-f]{12,40}\b", told), "no date and no commit"


def test_a_section_is_replaced_and_others_stay() -> None:
    found = run(START, 1)
    first = write_page([found])
    other = first + "\n## u.speedup: kept\nas it was\n"
    again = write_page([found], other)
    assert again.startswith(HEAD) and again.count("## u.start: ") == 1
    assert again.index("## u.speedup: kept\nas it was") < again.index("## u.start: ")
    assert write_page([found], again) == again
    assert "## u.nothing" not in write_page([found], first + "\n## u.nothing: gone\nold\n")
