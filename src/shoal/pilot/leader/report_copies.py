"""Which of a pilot's reports have copies elsewhere, and which have to get some [promise I18; ADR 0062]. Pure.

A copy holds the reports that came since the one before it, and never changes. It is needed until the server has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Union

from shoal.model.limits import MAX_COPY, MAX_REPORTS
from shoal.wire.batches import weigh_batch
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Exchange, Proof, Report


class ReportsToCopy(NamedTuple):
    """Reports that go into one copy."""

    reports: list[Report]
    batches: list[Batch]

    def keys(self) -> list[str]:
        """The attempts by which they are known here: of a batch its first."""
        return [*(report.attempt for report in self.reports), *(batch.attempt for batch in self.batches)]


class ReportCopies:
    """The copies that were made of our reports."""

    def __init__(self) -> None:
        self._copied: set[str] = set()
        self._copies: dict[str, list[str]] = {}  # seal -> attempts in it
        self._number = 0

    def missing(self, reports: Mapping[str, Report], batches: Mapping[str, Batch]) -> Iterator[ReportsToCopy]:
        """What has no copy yet, cut into pieces."""
        piece, size = ReportsToCopy([], []), 0
        fresh: list[tuple[int, Union[Report, Batch]]] = []
        for report in reports.values():
            if report.attempt not in self._copied:
                fresh.append((_weigh(report), report))
        fresh += [(weigh_batch(batch), batch) for batch in batches.values() if batch.attempt not in self._copied]
        count = 0
        for weight, one in fresh:
            count_of = one.count if isinstance(one, Batch) else 1
            if (piece.reports or piece.batches) and (size + weight > MAX_COPY or count + count_of > MAX_REPORTS):
                yield piece
                piece, size, count = ReportsToCopy([], []), 0, 0
            if isinstance(one, Batch):
                piece.batches.append(one)
            else:
                piece.reports.append(one)
            size, count = size + weight, count + count_of
        if piece.reports or piece.batches:
            yield piece

    def message(self, pilot: str, piece: ReportsToCopy, proofs: Iterable[Proof]) -> Exchange:
        """A copy as the message in which the server reads it: an exchange that was never sent."""
        self._number += 1
        return Exchange(
            PROTOCOL, pilot, "", self._number, 0, Capacity(), reports=piece.reports, batches=piece.batches,
            proofs=list(proofs),
        )  # fmt: skip

    def made(self, seal: str, piece: ReportsToCopy) -> None:
        """There is a copy of these."""
        self._copies[seal] = piece.keys()
        self._copied.update(self._copies[seal])

    def needless(self, reports: Mapping[str, Report], batches: Mapping[str, Batch]) -> list[str]:
        """The seals of copies of which the server has everything; they are forgotten here."""
        done = [
            seal for seal, keys in self._copies.items() if not any(key in reports or key in batches for key in keys)
        ]
        for seal in done:
            self._copied.difference_update(self._copies.pop(seal))
        return done


def _weigh(report: Report) -> int:
    texts = (report.last_line, report.stderr_tail, report.message, report.result, report.emitted, *report.new_files)
    return 500 + sum(map(len, texts))
