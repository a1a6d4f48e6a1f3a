"""`shoal results`: one row per task, as a table, CSV or JSON. Works with a server and without one."""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_lines, table
from shoal.cli.session import LIMIT_OPTION, Session, say, server_option
from shoal.model.quantities import many
from shoal.report.data_source import Json, latest_run
from shoal.report.results import TIMES, Page, columns_of, iterate, value_pages
from shoal.report.run_names import find_run

TABLE_ROWS = 100
MAX_MEMBERS = 8  # of a result that the table shows as columns
CSV_PEEK = 1_000  # rows whose results decide the columns of a CSV
WRITTEN = 1_000  # rows that are written together: where Python's output is unbuffered each write is a system call


@click.command()
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a header.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one row each.")
@LIMIT_OPTION
@server_option
def results(run: str | None, as_csv: bool, as_json: bool, limit: int | None, server: str | None) -> None:
    """One row per task: its parameters, state, exit code, duration, host and the last line it printed.

    Without a run, of the latest one.
    A call of an executor has its arguments and the value that it returned, if it is small.
    A last line that is JSON is parsed. In CSV the members of a JSON object are columns of their own too.
    In Python, `pandas.DataFrame(shoal.results("r12"))` gives the same rows.

    \b
    Examples:
      shoal results r12
      shoal results r12 --csv > results.csv
      shoal results r12 --json | jq .result
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json together (give one of them)")
    with Session(server).bulk_source() as source:
        run = latest_run(source, say) if run is None else find_run(source, run, say)
        info = source.run(run)
        if as_csv:
            _write_csv(columns_of(info), _limited(value_pages(source, run, flat=True), limit or None))
            return
        rows: Iterator[Json] = itertools.islice(iterate(source, run, flat=not as_json), limit or None)
        if as_json:
            while block := list(itertools.islice(rows, WRITTEN)):
                sys.stdout.write("".join([json.dumps(row, separators=(",", ":")) + "\n" for row in block]))
        else:
            _print_results(info, rows, limit)


def _limited(pages: Iterator[Page], limit: int | None) -> Iterator[Page]:
    """So many rows of them."""
    for columns, rows in pages:
        yield Page(columns, rows[:limit])
        if limit is not None:
            limit -= len(rows)
            if limit <= 0:
                return


def _write_csv(columns: list[str], pages: Iterator[Page]) -> None:
    peeked, seen = [], 0
    for page in pages:
        peeked.append(page)
        seen += len(page.rows)
        if seen >= CSV_PEEK:
            break
    # Members that only later rows have are still in the `result` column, which holds the whole line.
    names = list(dict.fromkeys([*columns, *itertools.chain.from_iterable(page.columns for page in peeked)]))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(names)
    count = 0
    for page in itertools.chain(peeked, pages):
        if page.columns == names:
            writer.writerows(page.rows)
        else:
            writer.writerows([*map(dict(zip(page.columns, row, strict=True)).get, names)] for row in page.rows)
        count += len(page.rows)
        if count >= WRITTEN:
            sys.stdout.write(written.getvalue())
            written.seek(0)
            written.truncate()
            count = 0
    sys.stdout.write(written.getvalue())


def _print_results(info: Json, rows: Iterator[Json], limit: int | None) -> None:
    columns = columns_of(info)
    if limit is None:
        rows = itertools.islice(rows, TABLE_ROWS)
    peeked = list(itertools.islice(rows, TABLE_ROWS))
    extra = [name for name in dict.fromkeys(itertools.chain.from_iterable(peeked)) if name not in columns]
    if extra and len(extra) <= MAX_MEMBERS:
        # Results are objects: their members say more as columns than as one text. Others are shown as they are.
        others = any(row.get("result") is not None and not row.keys() & set(extra) for row in peeked)
        columns = [*columns[:-1], *extra, *columns[-1:] * others]
    columns = [name for name in columns if name not in TIMES]  # seconds since 1970 are for programs
    shown = itertools.chain(peeked, rows)
    print_lines(table(columns, ([row.get(name) for name in columns] for row in shown)))
    if limit is None and info["total"] > TABLE_ROWS:
        left = info["total"] - TABLE_ROWS
        click.echo(f"... {many(left, 'more row')}: --limit 0, --csv or --json")
