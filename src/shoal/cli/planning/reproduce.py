"""`shoal reproduce`: the papers' experiments, theirs and ours side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.output.step_progress import StepProgress
from shoal.cli.output.tables import pairs, print_json, print_lines, table
from shoal.cli.session import json_option, say
from shoal.model.errors import BadInput, Refused, echo
from shoal.model.quantities import many, show_duration

if TYPE_CHECKING:  # numpy is imported when an experiment is listed or run
    from shoal.sim.papers.experiment import Experiment
    from shoal.sim.papers.findings import Findings
    from shoal.sim.papers.waits import Waits

MAX_SEEDS = 1_000


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--seeds", type=click.IntRange(1, MAX_SEEDS), default=3, show_default=True, metavar="N", help="Repetitions."
)
@click.option(
    "--output", metavar="DIR", default="reproduce", show_default=True, help="Where data and plots go: DIR/ID/."
)
@click.option("--waits", metavar="FILE", help="Own queue waits in place of the thesis': seconds, one number per line.")
@click.option("--parameters", is_flag=True, help="Show every parameter and its source, too.")
@click.option("--page", metavar="FILE", help="Write the tables to a Markdown page, too: docs/reproduction.md.")
@json_option
def reproduce(
    ids: tuple[str, ...], seeds: int, output: str, waits: str | None, parameters: bool, page: str | None, as_json: bool
) -> None:
    """Run experiments of the papers, and show what they print beside what comes out here.

    Without ID: the list of experiments. An ID may be the beginning of several: `u` is all of the thesis on DIANE, `g` all of
    GWpilot. Each writes data.csv, plot.png and plot.svg to reproduce/ID/, for which matplotlib is needed: pip install
    'shoal[plot]'. A printed number agrees within the printed spread, else within 15 %. With own waits nothing is judged.

    \b
    Examples:
      shoal reproduce
      shoal reproduce u.start
      shoal reproduce u g --seeds 20 --page docs/reproduction.md
    """
    from shoal.sim.papers.registry import EXPERIMENTS, select

    if not ids:
        _list(list(EXPERIMENTS.values()), as_json)
        return
    from shoal.report.plotting import require_matplotlib
    from shoal.sim.papers.findings import document, run

    chosen = select(ids)
    if "" in ids:
        raise BadInput("an ID is empty", field="ID", hint="`shoal reproduce` lists them")
    require_matplotlib("reproduce")
    own = None if waits is None else _read_waits(waits, chosen)
    all_found = []
    for experiment in chosen:
        with StepProgress(experiment.id, quiet=as_json) as progress:
            found = run(experiment, seeds, progress.update, own)
        all_found.append(found)
        _write(found, Path(output) / experiment.id)
        if not as_json:
            print_lines(_lines(found, parameters))
    if page is not None:
        _write_page(all_found, Path(page))
    if as_json:
        print_json({"experiments": [document(found) for found in all_found]})
    elif len(all_found) > 1:
        print_lines(_total(all_found))


def _list(experiments: list[Experiment], as_json: bool) -> None:
    if as_json:
        print_json(
            [{"id": one.id, "title": one.title, "section": one.section, "seconds": one.seconds} for one in experiments]
        )
        return
    rows = [[one.id, one.title, one.section, show_duration(one.seconds)] for one in experiments]
    print_lines(table(["id", "title", "section", "a seed takes about"], rows))


def _read_waits(path: str, chosen: list[Experiment]) -> Waits:
    from shoal.sim.papers.waits import read_waits

    others = [one.id for one in chosen if not one.takes_waits]
    if others:
        raise BadInput(f"{', '.join(others)} takes no queue waits", field="--waits", hint="leave it out")
    return read_waits(path)


def _lines(found: Findings, with_parameters: bool) -> Iterator[str]:
    """The findings as text."""
    from shoal.sim.papers import findings

    experiment = found.experiment
    agree, judged = found.counts
    yield f"{experiment.id}: {experiment.title} [{experiment.section}], {many(len(found.seeds), 'seed')}"
    head, rows = findings.table(found)
    yield from table([f"  {head[0]}", *head[1:]], [[f"  {row[0]}", *row[1:]] for row in rows], cut=None)
    for row in found.rows:
        if row.claim.note and not found.own_waits:
            yield f"  {row.claim.what}: {row.claim.note}"
    for names, cells in (
        (findings.SENSITIVITY, findings.sensitivity(found)),
        (findings.ABLATIONS, findings.ablation_rows(found)),
        (findings.PARAMETERS, findings.parameters(experiment) if with_parameters else []),
    ):
        if cells:
            yield ""
            yield from table([f"  {names[0]}", *names[1:]], [[f"  {row[0]}", *row[1:]] for row in cells], cut=None)
    yield "  own waits: nothing is judged" if found.own_waits else f"  {agree} of {many(judged, 'judged row')} agree"
    yield ""


def _total(all_found: list[Findings]) -> Iterator[str]:
    yield from pairs((found.experiment.id, "{} of {} agree".format(*found.counts)) for found in all_found)


def _write(found: Findings, folder: Path) -> None:
    """data.csv and the plots."""
    from shoal.sim.papers.drawing import draw

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("seed", *found.experiment.columns))
    writer.writerows(found.data)
    files = {"data.csv": text.getvalue().encode(), **{f"plot.{kind}": draw(found, kind) for kind in ("png", "svg")}}
    for name, data in files.items():
        _put(folder / name, data)
    say(f"{found.experiment.id}: {folder}/data.csv, plot.png, plot.svg")


def _write_page(all_found: list[Findings], page: Path) -> None:
    from shoal.sim.papers.page import write_page

    try:
        before = page.read_text(encoding="utf-8") if page.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"cannot read {echo(str(page))}: {error}", code="unreadable") from None
    _put(page, write_page(all_found, before).encode())
    say(f"page: {page}")


def _put(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise Refused(f"cannot write {echo(str(path))}: {error.strerror}", code="unwritable") from None
