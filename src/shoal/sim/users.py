"""The people of a false world: they submit until they are answered, cancel, retry, and remember what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.engine.commands import Accept, Cancel, Retry, Submit
from shoal.model.errors import ShoalError
from shoal.model.ids import TaskId, parse_run
from shoal.sim.host import OWNER, TIMEOUT
from shoal.sim.ledger import Broken
from shoal.sim.workload import draw_submissions
from shoal.wire.submission import parse_submission

if TYPE_CHECKING:
    from shoal.sim.world import World

_NOT_DONE = ("internal_error", "rebuilding")  # a person would say it again


class SimUsers:
    """All clients of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: dict[str, str] = {}  # key -> run
        self.unsent = 0  # submissions no client was told about yet
        self.dropped: set[str] = set()  # keys that were answered, and whose runs a rolled-back database lost

    def submit(self, tables: list[dict[str, Any]], key: str, tries: int = 0) -> None:
        """A client submits with an idempotency key and asks again until it is answered [promise I4]."""
        submission = parse_submission({"tasks": tables, "key": key, "cwd": "/"})
        if tries:
            self.world.tally.note("client_retry")

        asked = [True]
        history = self.world.history

        def again() -> None:
            if asked and key not in self.told and key not in self.dropped:
                asked.clear()  # whatever else goes wrong with this try, it is repeated once
                self.submit(tables, key, tries + 1)

        def told(result: dict[str, Any]) -> None:
            self.world.server.tell(Accept(parse_run(result["run"])))

            def arrive() -> None:
                if self.world.history != history:
                    again()  # a promise of a history that is no more
                    return
                if key in self.told:
                    if self.told[key] != result["run"]:
                        raise Broken(f"one key, two runs: {self.told[key]} and {result['run']}")
                    return
                self.told[key] = result["run"]
                self.unsent -= 1
                run = parse_run(result["run"])
                self.world.ledger.told_accepted(run, result["tasks"])
                self.world.note(f"accepted {result['run']}")

            self.world.carry("reply", key, arrive, again)

        def ask() -> None:
            if self.world.server.engine is None:
                self.world.clock.after(1.0, again)
                return
            # The server looks a key up in the database before it asks the engine, which knows open runs only.
            found = self.world.server.known_key(OWNER, key)
            if found is not None:
                told(self._enter({"run": f"r{found[0]}", "tasks": found[1]}, submission))
                return
            life = self.world.server.life
            self.world.clock.after(TIMEOUT, lambda: again() if self.world.server.life != life else None)
            self.world.server.ask(
                Submit(submission, OWNER, key), lambda r: told(self._enter(r, submission)), lambda e: again()
            )

        self.world.carry("request", key, lambda: self.world.reach(ask, again), again)

    def rewind(self, told: dict[str, str]) -> None:
        """The database was rolled back: instead of what it lost, something else is submitted."""
        lost = [key for key in self.told if key not in told]
        self.told = dict(told)
        self.dropped.update(lost)
        for key in lost:
            self.unsent += 1
            (_, tables), *_ = draw_submissions(self.world.rng)
            delay = self.world.rng.uniform(1.0, 60.0)
            new = f"{key}/{self.world.history}"
            self.world.clock.after(delay, lambda k=new, t=tables: self.submit(t, k))  # type: ignore[misc]  # bound now

    def _enter(self, result: dict[str, Any], submission: Any) -> dict[str, Any]:
        """Note which elements wait for which, for the ledger."""
        first, spans = 1, {}
        run = parse_run(result["run"])
        for spec in submission.specs:
            spans[spec.name] = range(first, first + spec.count)
            self.world.ledger.reruns.setdefault(run, {}).update(dict.fromkeys(spans[spec.name], spec.rerun.value))
            first += spec.count
        self.world.ledger.parents[run] = {
            element: {p for name in spec.after for p in spans[name]}
            for spec in submission.specs
            if spec.after
            for element in spans[spec.name]
        }
        return result

    def cancel(self) -> None:
        """Somebody cancels a task or a run, and sometimes changes their mind."""
        runs = list(self.world.ledger.accepted)
        if not runs or self.world.server.engine is None or self.world.server.frozen is not None:
            return
        run = self.world.rng.choice(runs)
        total = self.world.ledger.accepted[run]
        one = TaskId(run, self.world.rng.randint(1, total))
        whole = self.world.rng.random() < 0.3
        self.world.tally.note("cancel")
        self.world.note(f"cancel {f'r{run}' if whole else one}")
        targets = [TaskId(run, e) for e in range(1, total + 1)] if whole else [one]
        known = run in self.world.server.engine.state.runs

        def told(result: Any) -> None:
            if known:
                self.world.ledger.told_cancelled(targets)
            if self.world.rng.random() < 0.5:  # people change their minds while the copies are still dying
                self.world.clock.after(self.world.rng.uniform(0.05, 3.0), lambda: self.retry(run))

        self.world.server.ask(Cancel((run if whole else one,)), told, _must_not)

    def retry(self, only: int | None = None) -> None:
        """Somebody says retry."""
        if self.world.server.engine is None or self.world.server.frozen is not None or self.world.healed:
            return
        if self.world.server.uncommitted:
            self.world.clock.after(0.02, lambda: self.retry(only))  # the server reads after a flush, too
            return
        for run in [only] if only is not None else list(self.world.ledger.accepted):
            rows, spans = self.world.server.database.failed_rows(run)
            loaded = self.world.server.database.load_run(run)
            if (rows or spans) and loaded is not None:
                self.world.tally.note("retry")
                self.world.note(f"retry r{run}")
                self.world.server.engine.load(loaded)
                self.world.ledger.expected |= {TaskId(run, row.element) for row in rows}
                self.world.ledger.expected |= {TaskId(run, e) for low, high, _ in spans for e in range(low, high)}
                self.world.server.ask(Retry(run, tuple(rows), tuple(spans)), lambda result: None, _may_conflict)
                return


def _may_conflict(error: ShoalError) -> None:
    if error.code not in ("still_stopping", *_NOT_DONE):
        raise error


def _must_not(error: ShoalError) -> None:
    if error.code not in _NOT_DONE:
        raise error
