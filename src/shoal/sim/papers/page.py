"""docs/reproduction.md: a section for each experiment, written by the command and never by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from shoal.model.quantities import many
from shoal.sim.papers.findings import (
    ABLATIONS,
    PARAMETERS,
    SENSITIVITY,
    Findings,
    ablation_rows,
    parameters,
    sensitivity,
    table,
)
from shoal.sim.papers.registry import EXPERIMENTS

HEAD = """# The papers' experiments, reproduced

Written by `shoal reproduce ID ... --page docs/reproduction.md`; do not edit. A section is replaced when its experiment is run.
How to read it, and how to run it: [howto/reproduce-the-papers.md](howto/reproduce-the-papers.md). The short names of the
papers are in [papers.md](papers.md). "Shoal" is the mean and the standard deviation over the seeds. A printed number agrees
within the printed spread, else within 15 %; the rule of each row was written before its first run. "Shoal as it is" is the
product's own engine and agents on a virtual clock.
"""
_MODEL = re.compile(r"(?<![`\w])([GU][0-3])(?![`\w])")
_SECTION = re.compile(r"^## (\S+): ", re.M)


def write_page(found: Iterable[Findings], before: str = "") -> str:
    """The page with these findings; sections of other experiments are taken from what the page was before."""
    starts = [(match[1], match.start()) for match in _SECTION.finditer(before)]
    ends = [*(at for _, at in starts[1:]), len(before)]
    sections = {name: before[at:end].rstrip() for (name, at), end in zip(starts, ends, strict=False)}
    sections |= {one.experiment.id: plain("\n".join(_section(one))) for one in found}
    return "\n\n".join([HEAD.rstrip(), *(sections[name] for name in EXPERIMENTS if name in sections)]) + "\n"


def _section(found: Findings) -> Iterator[str]:
    experiment = found.experiment
    agree, judged = found.counts
    yield f"## {experiment.id}: {experiment.title}"
    yield f"{experiment.section}. {many(len(found.seeds), 'seed')}; {agree} of {many(judged, 'judged row')} agree."
    if experiment.modelled:
        yield experiment.modelled
    head, rows = table(found)
    rules = [row.claim.rule.words(row.claim.unit) for row in found.rows]
    yield ""
    yield from markdown([*head, "rule"], [[*row, rule] for row, rule in zip(rows, rules, strict=True)])
    notes = [f"- {row.claim.what}: {row.claim.note}" for row in found.rows if row.claim.note]
    if notes:
        yield ""
        yield from notes
    for title, names, cells in (
        ("Chosen and fitted parameters changed by half, first seed:", SENSITIVITY, sensitivity(found)),
        ("Mechanisms switched off, first seed:", ABLATIONS, ablation_rows(found)),
        ("Parameters:", PARAMETERS, parameters(experiment)),
    ):
        if cells:
            yield f"\n{title}\n"
            yield from markdown(names, cells)


def plain(text: str) -> str:
    """Text for the page: names of models are marked, since `U1` alone is a capability of docs/papers.md."""
    return _MODEL.sub(r"`\1`", text)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table as Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
