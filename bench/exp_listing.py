"""How fast is the database at 100,000 tasks: writing batches, starting an engine, and every query of a reader?

Prints one JSON object a line. Usage: python -m bench.exp_listing [tasks]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from random import Random

from bench.serving import report
from shoal.db import backups
from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import ArrayRow, Change, PilotRow, RunRow, SpanRow, TaskRow
from shoal.model.event import Event

BATCH = 1_000
CHUNK = 50  # tasks per lease
ROUNDS = 5
T0 = 1_700_000_000.0


def best(name: str, action: Callable[[], object], note: str = "") -> None:
    """Print the median time of a query, and its worst."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    times.sort()
    report(name, times[len(times) // 2] * 1000, "ms", f"{note}; worst {times[-1] * 1000:.1f} ms".lstrip("; "))


def run_row(run: int, total: int, done: int, finished: float | None) -> RunRow:
    """A run, somewhere on its way."""
    counts = json.dumps({"succeeded": done})
    return RunRow(
        run, "ann", f"sweep-{run}", T0 + run, finished, total, counts, "/data/me", 1, None, f"key-{run}", f"d{run}",
        "{}", f"s{run % 7}",
    )  # fmt: skip


def task_row(run: int, element: int, state: str, now: float) -> TaskRow:
    """A task as it is leased, or as it ends."""
    if state == "leased":
        live = f'[[1,1,"p3f9c","leased",{now}]]'
        return TaskRow(
            run, element, state, 1, "", 0, 0, live, "", "", None, None, now, None, None, None, None, None, "p3f9c",
            "node17.cluster", "local", "", "", "",
        )  # fmt: skip
    return TaskRow(
        run, element, state, 1, "1@1", 0, 0, "", "" if state == "succeeded" else "task_error", "", 0, None, now - 2,
        now - 1, now, 1.0, 0.9, 50_000_000, "p3f9c", "node17.cluster", "local", f"energy = -{element}.125", "", "",
    )  # fmt: skip


class Journal:
    """Numbers events."""

    def __init__(self) -> None:
        self.seq = 0

    def event(self, now: float, kind: str, **more: object) -> Event:
        self.seq += 1
        data = more.pop("data", {})
        return Event(self.seq, now, kind, data=data, **more)  # type: ignore[arg-type]  # a test's brevity


def fill(database: Database, journal: Journal, run: int, total: int, finished: bool, rng: Random) -> tuple[float, int]:
    """Let a whole run happen; return the seconds spent in commits and the changes given."""
    spent, given = 0.0, 0

    def commit(changes: list[Change]) -> None:
        nonlocal spent, given
        start = time.perf_counter()
        database.apply(changes)
        spent += time.perf_counter() - start
        given += len(changes)

    commit(
        [
            run_row(run, total, 0, None),
            ArrayRow(run, 1, total, "a", '{"command":["echo","{i}"],"array":"1-1000000"}'),
            journal.event(T0, "run_submitted", run=run, data={"name": "a", "tasks": total}),
        ]
    )
    for low in range(1, total + 1, BATCH):
        elements = list(range(low, min(low + BATCH, total + 1)))
        now = T0 + journal.seq / 100
        changes: list[Change] = [task_row(run, element, "leased", now) for element in elements]
        for at in range(0, len(elements), CHUNK):
            names = [f"r{run}.{element}#1@1" for element in elements[at : at + CHUNK]]
            changes += [
                journal.event(now, kind, pilot="p3f9c", site="local", data={"attempts": names})
                for kind in ("tasks_leased", "tasks_started")
            ]
        commit(changes)
        rng.shuffle(elements)  # reports come in any order
        changes = []
        for element in elements:
            now += 0.001
            state = "failed" if element % 997 == 0 else "succeeded"
            data = {
                "state": state,
                "duration": 1.0,
                "host": "node17.cluster",
                "exit_code": 0,
                "cpu": 0.9,
                "leased": now,
            }
            changes += [
                task_row(run, element, state, now),
                journal.event(now, "task_finished", run=run, task=element, attempt=1, pilot="p3f9c", data=data),
                run_row(run, total, element, None),
            ]
        commit(changes)
    if finished:
        commit([run_row(run, total, total, T0), journal.event(T0, "run_finished", run=run)])
    return spent, given


def main(tasks: int = 100_000) -> None:
    """Fill a database and time every query."""
    journal, rng = Journal(), Random(1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("SHOAL_BENCH_DIR")) as folder:
        path = os.path.join(folder, "shoal.db")
        database = Database.open(path)
        database.raise_incarnation(T0)
        spent, given = fill(database, journal, 1, tasks, True, rng)
        report("apply_changes", given / spent, "changes/s", f"durable, batches of {BATCH} tasks, {tasks} tasks in all")
        report("apply_tasks", tasks / spent, "tasks/s", "each leased, started and reported")
        for run in range(2, 1_002):
            database.apply([run_row(run, 10, 10, T0), ArrayRow(run, 1, 10, "a", "{}")])
        fill(database, journal, 1_002, 2 * tasks, False, rng)
        database.apply([SpanRow(1_002, 2 * tasks + 1, 3 * tasks, "cancelled", "cancelled", "", T0)])
        database.apply([
            PilotRow(f"p{n:04x}", "gone", "", "ann", "local", "h", "i", "s", "[]", 4, 0, 0, 0, "1", "{}", T0 + n, T0)
            for n in range(2_000)
        ])  # fmt: skip
        report("file_size", os.path.getsize(path) / 1e6, "MB", f"{3 * tasks} tasks, {journal.seq} events")
        best("snapshot", database.snapshot, f"{2 * tasks} final rows of an open run")
        best("load_run", lambda: database.load_run(1), f"{tasks} tasks")
        best("failed_rows", lambda: database.failed_rows(1))
        time_reader(path, tasks)
        start = time.perf_counter()
        pruned = database.prune(T0 + 50, 1 << 40)
        report("prune_slice", (time.perf_counter() - start) * 1000, "ms", f"{pruned.events} events")
        start = time.perf_counter()
        backups.back_up(path, os.path.join(folder, "copy.db"))
        report("backup", time.perf_counter() - start, "s")
        start = time.perf_counter()
        assert not backups.check_file(path, full=False)
        report("check", time.perf_counter() - start, "s")
        database.close()


def time_reader(path: str, tasks: int) -> None:
    """Time every query of a reader."""
    with Reader(path) as reader:
        best("runs", reader.runs, "first page of 50")
        best("runs_by_glob", lambda: reader.runs(name="*zzz*", owners=["ann"], state="finished"), "nothing matches")
        best("run", lambda: reader.run(1))
        best("tasks_page", lambda: reader.tasks(1, after=tasks // 2), "1,000 rows")
        best("tasks_failed", lambda: reader.tasks(1, states=["failed"]), "one in 997")
        best("tasks_none", lambda: reader.tasks(1, states=["lost"]), "reads the whole run")
        best("task", lambda: reader.task(1, tasks // 2))
        best("history", lambda: reader.history(1, tasks // 2))
        best("history_open_run", lambda: reader.history(1_002, tasks), f"{2 * tasks} tasks")
        best("events_page", lambda: reader.events(after=reader.last_seq() - 1_000), "1,000 events")
        best("events_of_run_page", lambda: reader.events(after=1_000, run=1), "1,000 events")
        best("events_by_kind", lambda: reader.events(after=0, kinds=["pilot_gone"]), "reads the whole journal")
        best("pilots", reader.pilots, "1,000 of 2,000")
        best("find_key", lambda: reader.find_key("ann", "key-700"))
        best("earlier", lambda: reader.earlier("ann", "s3"))
        best("task_rows", lambda: sum(1 for _ in reader.task_rows(1, ["succeeded"])), f"{tasks} rows, for --resume")
        best("server_facts", reader.server_facts)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
