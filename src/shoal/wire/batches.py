"""Batches of reports: successes of neighbours as one message of columns, and back to single reports [ADR 0009]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional

from shoal.model.ids import parse_attempt
from shoal.wire.chunk import shift
from shoal.wire.messages import Batch, Report

_COLUMNS = ("started", "duration", "cpu", "max_rss", "last_line", "result", "out", "err", "emitted")


def report_of(batch: Batch, at: int) -> Report:
    """One of a batch as a report of its own; an empty column stands for the default of its field."""
    columns: dict[str, Any] = {name: column[at] for name in _COLUMNS if (column := getattr(batch, name))}
    attempt = str(shift(parse_attempt(batch.attempt), at))
    return Report(attempt, "succeeded", exit_code=None if batch.result else 0, **columns)


def merge(reports: Sequence[Report]) -> tuple[list[Report], list[Batch]]:
    """Split reports into those sent one by one and batches of the others, whatever the order in which they ended."""
    alone: list[Report] = []
    plain: list[tuple[int, str, int, int, int, Report]] = []
    for report in reports:
        good = report.outcome == "succeeded" and report.exit_code == 0 and report.started is not None
        if good and not (report.new_files or report.message or report.result or report.staging or report.sizes):
            run, element, number, incarnation, nonce = parse_attempt(report.attempt)
            plain.append((run, nonce, number, incarnation, element, report))
        else:
            alone.append(report)
    plain.sort(key=lambda item: item[:5])
    batches: list[Batch] = []
    row: list[Report] = []
    due: Optional[tuple[int, str, int, int, int]] = None  # what would continue the row
    for run, nonce, number, incarnation, element, report in plain:
        if (run, nonce, number, incarnation, element) != due:
            _put(row, alone, batches)
            row = []
        row.append(report)
        due = (run, nonce, number, incarnation, element + 1)
    _put(row, alone, batches)
    return alone, batches


def _put(row: list[Report], alone: list[Report], batches: list[Batch]) -> None:
    if len(row) > 1:
        batches.append(_batch(row))
    else:
        alone += row


def _batch(run: Sequence[Report]) -> Batch:
    columns = {name: [getattr(report, name) for report in run] for name in ("started", "duration", "cpu", "max_rss")}
    for name in ("last_line", "out", "err", "emitted"):
        column = [getattr(report, name) for report in run]
        columns[name] = column if any(column) else []
    return Batch(run[0].attempt, len(run), **columns)


def cut(batch: Batch, most: int) -> Iterator[Batch]:
    """The batch in parts of at most so many bytes, or of one each."""
    if weigh_batch(batch) <= most or batch.count == 1:
        yield batch
        return
    first, low = parse_attempt(batch.attempt), 0
    while low < batch.count:
        high, weight = low, 0
        while high < batch.count and (high == low or weight + _weigh_one(batch, high) <= most):
            weight += _weigh_one(batch, high)
            high += 1
        columns = {name: getattr(batch, name)[low:high] for name in _COLUMNS}
        yield Batch(str(shift(first, low)), high - low, **columns)
        low = high


def _weigh_one(batch: Batch, at: int) -> int:
    return 100 + sum(len(column[at]) for column in (batch.result, batch.last_line, batch.emitted) if column)


def weigh_batch(batch: Batch) -> int:
    """About how many bytes it takes in a message."""
    texts = (*batch.result, *batch.last_line, *batch.emitted)
    return 100 * batch.count + sum(map(len, texts))
