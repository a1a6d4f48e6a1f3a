"""Acceptance: a person accepts what was predicted, changes the deadline, or withdraws the run [SPHINX S6]. A chance that is good
enough, and a run without a deadline, are accepted without asking."""

from __future__ import annotations

from shoal.engine.records import Run
from shoal.model.states import UNPREDICTED
from shoal.sched.vector.deadline import chance_text
from shoal.server.planning.steps import Found
from shoal.server.service import Service


class Accept:
    """Takes a run from `unaccepted`."""

    async def take(self, service: Service, run: Run) -> Found:
        """Look whether the run needs to be asked about; another deadline is predicted anew."""
        data = run.plan.data if run.plan is not None else {}
        if run.due != data.get("due"):
            return Found({"due": run.due}, to=UNPREDICTED)
        chance, least = data.get("chance"), float(data.get("accept") or 0.0)
        if run.due is None or not least or (chance is not None and chance >= least):
            return Found({"accepted": ""})
        known = "is not known" if chance is None else chance_text(chance)
        return Found(waits=f"P(in time) {known}; accept, change the deadline, or cancel")
