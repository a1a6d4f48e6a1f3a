"""Reduction: tasks whose results an earlier run has are not run again [SPHINX S2; ADR 0052]. Only if that was asked for, by
`--resume`."""

from __future__ import annotations

from shoal.db.reader import Reader
from shoal.engine.records import Run
from shoal.model.task.spec import Submission
from shoal.server.planning.steps import Found
from shoal.server.service import Service
from shoal.server.submission.resume import Reused, find_earlier
from shoal.wire.submission import parse_submission


class Reduce:
    """Takes a run from `unreduced`."""

    async def take(self, service: Service, run: Run) -> Found:
        """Find what is there already."""
        data = run.plan.data if run.plan is not None else {}
        if not data.get("resume"):
            return Found({"reused": 0})
        written = tuple(tuple(table) for table in data.get("written") or ())
        renamed = tuple(tuple(tuple(dates) for dates in table) for table in data.get("renamed") or ())

        def look(reader: Reader) -> Reused:
            return find_earlier(reader, run.owner, submission_of(reader, run), run.signature, written, renamed)[1]

        reused = await service.query(look)
        return Found({"reused": len(reused)}, reused)


def submission_of(reader: Reader, run: Run) -> Submission:
    """What was submitted, of its rows: on the reader's thread, for there may be many."""
    row = reader.run(run.number)
    assert row is not None
    tables = [array["task"] for array in row["arrays"]]
    return parse_submission({"tasks": tables, "name": run.name, "cwd": run.cwd, "seed": run.seed})
