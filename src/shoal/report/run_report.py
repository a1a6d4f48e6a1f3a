"""The figures of a run's report: what `shoal report` prints, draws and gives to programs [DIANE U9]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from shoal.report.anatomy import LOST, Anatomy, Areas, dissect
from shoal.report.data_source import Json
from shoal.report.history import COUNTS, Attempt, PilotLife, Samples, Timeline, known_pilots, sample, timeline
from shoal.report.run_record import Found

PARTS = 120  # of a history that programs get
SHOWN = 5  # of the longest tasks, and of those that ended last


class RunReport(NamedTuple):
    """A run with its history and anatomy."""

    found: Found
    history: Timeline
    anatomy: Anatomy
    pilots: list[PilotLife]
    longest: list[Attempt]
    last: list[Attempt]
    median: float | None  # seconds of an attempt that counted

    @property
    def makespan(self) -> float:
        """Seconds from the submission to the end, or so far."""
        return self.found.record.end - self.found.record.start

    def samples(self, parts: int) -> Samples:
        """The history in so many parts."""
        return sample(self.history, self.found.record.endings, parts)


def make_report(found: Found, target: int = 0) -> RunReport:
    """The report of a run; `target`: the slots that were asked for, 0 if that is not known."""
    record = found.record
    history = timeline(record)
    anatomy = dissect(history, target)
    pilots = known_pilots(record.pilots, record.attempts)
    took = sorted(one.end - one.start for one in record.attempts if one.outcome in COUNTS)
    longest = sorted(record.attempts, key=lambda one: (one.start - one.end, one.task))[:SHOWN]
    tail = anatomy.phases[-1].start
    last = sorted((one for one in record.attempts if one.end > tail), key=lambda one: (-one.end, one.task))[:SHOWN]
    median = took[len(took) // 2] if took else None
    return RunReport(found, history, anatomy, pilots, longest, last, median)


def wasted_attempts(attempts: Iterable[Attempt]) -> Counter[str]:
    """How many attempts were for nothing, by what became of them."""
    return Counter(one.outcome for one in attempts if one.outcome not in COUNTS)


def document(report: RunReport) -> Json:
    """The report for programs; times are seconds since 1970, areas are seconds of slots."""
    info, record, anatomy = report.found.info, report.found.record, report.anatomy
    shown = report.samples(PARTS)
    return {
        "run": info["run"], "name": info["name"], "finished": info["finished"] is not None,
        "started": record.start, "ended": record.end, "makespan": report.makespan,
        "tasks": {"total": info["total"], "reused": len(report.found.reused), **report.found.states},
        "attempts": {"began": len(record.attempts), **Counter(one.outcome for one in record.attempts)},
        "pilots": len(report.pilots), "slots": anatomy.target, "most_slots": max(report.history.pool, default=0),
        "utilisation": anatomy.utilisation, "median_duration": report.median, "other_runs": report.found.other_runs,
        "slot_seconds": _areas(anatomy.areas, anatomy), "phases": [
            {
                "phase": phase.name, "from": phase.start - record.start, "to": phase.end - record.start,
                "seconds": phase.end - phase.start, **_areas(phase.areas, anatomy),
            }
            for phase in anatomy.phases
        ],
        "history": {
            "seconds": shown.width, "pool": _rounded(shown.pool), "busy": _rounded(shown.busy),
            "tasks_per_minute": _rounded(shown.rate),
        },
        "longest": [attempt_document(report, one) for one in report.longest],
        "last": [attempt_document(report, one) for one in report.last],
    }  # fmt: skip


def attempt_document(report: RunReport, one: Attempt) -> Json:
    """An attempt for programs."""
    start = report.found.record.start
    return {
        "task": f"{report.found.info['run']}.{one.task}", "attempt": one.number, "state": one.outcome, "pilot": one.pilot,
        "from": one.start - start, "to": one.end - start, "seconds": one.end - one.start,
    }  # fmt: skip


def _areas(areas: Areas, anatomy: Anatomy) -> Json:
    """Slot seconds by where they went, and the share of the run's slot time that was lost."""
    return {
        **areas._asdict(), "total": areas.total, "lost": areas.lost, "lost_share": anatomy.share(areas.lost),
        "lost_shares": {name: anatomy.share(getattr(areas, name)) for name in LOST},
    }  # fmt: skip


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 4) for value in values]
