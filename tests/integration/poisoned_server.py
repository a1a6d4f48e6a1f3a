"""A server with a planted defect: a report that says "poison" ends by an exception after it has changed the engine.

Run as `python poisoned_server.py -m shoal.server ...`; the product itself has no way to be made to fail.
"""

from __future__ import annotations

import sys

from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.tasks import reports
from shoal.engine.tasks.reports import judge
from shoal.server.main import main
from shoal.wire.messages import Report


def judge_and_fail(state: State, pilot: Pilot, report: Report) -> str:
    """Carry the report out, then fail."""
    verdict = judge(state, pilot, report)
    if report.message == "poison":
        raise RuntimeError("a planted defect")
    return verdict


if __name__ == "__main__":
    vars(reports)["judge"] = judge_and_fail
    sys.argv = sys.argv[2:]
    sys.exit(main())
