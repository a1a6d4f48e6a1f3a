"""The users of a simulated world: they submit until they are answered, cancel, retry, and remember the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.engine.commands import Accept, Cancel, Retry, Submit
from shoal.model.errors import ShoalError
from shoal.model.ids import TaskId, parse_run
from shoal.sim.host import OWNER, TIMEOUT
from shoal.sim.proof.ledger import BrokenPromise
from shoal.sim.proof.workload import draw_submissions
from shoal.wire.submission import parse_submission

if TYPE_CHECKING:
    from shoal.sim.proof.world import World

_NOT_DONE = ("internal_error", "rebuilding")  # a user would repeat the request


class SimUsers:
    """All clients of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answered: dict[str, str] = {}  # key -> run
        self.unanswered = 0  # submissions that were not answered yet
        self.lost_keys: set[str] = set()  # that were answered, and whose runs a rolled-back database lost

    def submit(self, tables: list[dict[str, Any]], key: str, tries: int = 0) -> None:
        """A client submits with an idempotency key, and repeats that until it is answered [promise I4]."""
        submission = parse_submission({"tasks": tables, "key": key, "cwd": "/"})
        if tries:
            self.world.tally.note("client_retry")

        may_repeat = [True]
        history = self.world.history

        def again() -> None:
            if may_repeat and key not in self.answered and key not in self.lost_keys:
                may_repeat.clear()  # whatever else goes wrong with this try, it is repeated once
                self.submit(tables, key, tries + 1)

        def accepted(result: dict[str, Any]) -> None:
            self.world.server.apply(Accept(parse_run(result["run"])))

            def arrive() -> None:
                if self.world.history != history:
                    again()  # the answer was about a database that was rolled back
                    return
                if key in self.answered:
                    if self.answered[key] != result["run"]:
                        raise BrokenPromise(f"one key, two runs: {self.answered[key]} and {result['run']}")
                    return
                self.answered[key] = result["run"]
                self.unanswered -= 1
                run = parse_run(result["run"])
                self.world.ledger.run_acknowledged(run, result["tasks"])
                self.world.note(f"accepted {result['run']}")

            self.world.transmit("reply", key, arrive, again)

        def request() -> None:
            if self.world.server.engine is None:
                self.world.clock.after(1.0, again)
                return
            # The server looks a key up in the database first: the engine knows open runs only.
            found = self.world.server.find_key(OWNER, key)
            if found is not None:
                accepted(self._note_tasks({"run": f"r{found[0]}", "tasks": found[1]}, submission))
                return
            generation = self.world.server.generation
            self.world.clock.after(TIMEOUT, lambda: again() if self.world.server.generation != generation else None)
            self.world.server.request(
                Submit(submission, OWNER, key), lambda r: accepted(self._note_tasks(r, submission)), lambda e: again()
            )

        self.world.transmit("request", key, lambda: self.world.receive(request, again), again)

    def submit_one_more(self) -> None:
        """A user submits another run, now."""
        (_, tables), *_ = self.world.draw_work()  # of the kind that this world is about
        self.unanswered += 1
        self.submit(tables, f"now/{self.world.clock.now}")

    def roll_back(self, answered: dict[str, str]) -> None:
        """The database was rolled back: other runs are submitted instead of those that it lost."""
        lost = [key for key in self.answered if key not in answered]
        self.answered = dict(answered)
        self.lost_keys.update(lost)
        for key in lost:
            self.unanswered += 1
            (_, tables), *_ = draw_submissions(self.world.rng)
            delay = self.world.rng.uniform(1.0, 60.0)
            new = f"{key}/{self.world.history}"
            self.world.clock.after(delay, lambda k=new, t=tables: self.submit(t, k))  # type: ignore[misc]  # bound now

    def _note_tasks(self, result: dict[str, Any], submission: Any) -> dict[str, Any]:
        """Note in the ledger the re-run class and the parents of each element."""
        first, spans = 1, {}
        run = parse_run(result["run"])
        ledger = self.world.ledger
        waiting: dict[str, list[int]] = {}  # name of a table -> elements that wait for it
        ledger.waiting_for[run] = waiting
        for spec in submission.specs:
            if spec.units is not None:
                ledger.units.submitted(run, spec.name, spec.units.size)
            for name in spec.after:
                waiting.setdefault(name, []).append(first)
            spans[spec.name] = range(first, first + spec.count)
            self.world.ledger.reruns.setdefault(run, {}).update(dict.fromkeys(spans[spec.name], spec.rerun.value))
            first += spec.count
        self.world.ledger.parents[run] = {
            element: {p for name in spec.after for p in (*spans[name], *ledger.units.elements(run, name))}
            for spec in submission.specs
            if spec.after
            for element in spans[spec.name]
        }
        return result

    def cancel(self) -> None:
        """A user cancels a task or a run, and sometimes retries it soon after."""
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

        def answer(result: Any) -> None:
            if known:
                self.world.ledger.cancel_acknowledged(targets)
            if self.world.rng.random() < 0.5:  # a retry while the cancelled copies are still being killed
                self.world.clock.after(self.world.rng.uniform(0.05, 3.0), lambda: self.retry(run))

        self.world.server.request(Cancel((run if whole else one,)), answer, _must_not)

    def retry(self, only: int | None = None) -> None:
        """A user retries the first run that has failed tasks, or the given one."""
        if self.world.server.engine is None or self.world.server.frozen is not None or self.world.healed:
            return
        if self.world.server.uncommitted:
            self.world.clock.after(0.02, lambda: self.retry(only))  # the real server commits before it reads the rows
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
                self.world.server.request(Retry(run, tuple(rows), tuple(spans)), lambda result: None, _may_conflict)
                return


def _may_conflict(error: ShoalError) -> None:
    if error.code not in ("still_stopping", *_NOT_DONE):
        raise error


def _must_not(error: ShoalError) -> None:
    if error.code not in _NOT_DONE:
        raise error
