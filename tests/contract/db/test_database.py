"""What every database must do, run on each kind there is; PostgreSQL joins the list when it comes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.db.accounts import SUMS, AccountQuery
from shoal.db.migrate import newest
from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import (
    ArrayRow,
    Change,
    ChunkDrop,
    ChunkRow,
    GrownRow,
    GrowthRow,
    PartialRow,
    PlaceRow,
    PlanRow,
    PolicyRow,
    SpanDrop,
    SpanRow,
    Successes,
    UsageRow,
)  # fmt: skip
from shoal.engine.snapshot import FinalRange
from shoal.model.errors import BadInput, EventsGone
from shoal.model.ids import LIFE_BITS, start_count
from shoal.model.limits import MAX_SHOWN_RESULT
from shoal.wire.messages import Batch
from tests.contract.db.rows import (
    FINALS,
    Model,
    acct_add,
    array_row,
    event,
    pilot_row,
    run_row,
    span_row,
    task_row,
)

EXAMPLES = settings(max_examples=2_000 if os.environ.get("SHOAL_PROVE") else 40, deadline=None)


class SqliteBackend:
    """Databases of SQLite: fresh ones in memory, or files that can be opened again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def fresh(self) -> Database:
        return Database.open(":memory:")

    def place(self) -> str:
        self.count += 1
        return str(self.folder / f"{self.count}.db")

    def open(self, place: str) -> Database:
        return Database.open(place, durability="normal")


BACKENDS = {"sqlite": SqliteBackend}
Backend = SqliteBackend


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    return BACKENDS[request.param](tmp_path_factory.mktemp("db"))


@pytest.fixture
def database(backend: Backend) -> Iterator[Database]:
    with backend.fresh() as database:
        yield database


@pytest.fixture
def reader(database: Database) -> Iterator[Reader]:
    with Reader.on(database) as reader:
        yield reader


def without(row: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in names}


# --- what goes in comes out


def test_every_row_comes_back_as_it_went_in_after_reopening(backend: Backend) -> None:
    place = backend.place()
    rows: list[Change] = [
        run_row(1, max_fail=3, key="k", signature="s"),
        array_row(1),
        task_row(1, 3, "running", special='{"avoid": ["h1"]}'),
        pilot_row(ends=99.5),
    ]
    said = event(1, "tasks_leased", pilot="p1a2", site="local", data={"attempts": ["r1.3#1@1"], "π": [1.5, None, True]})
    with backend.open(place) as database:
        database.apply([*rows, span_row(1, 5, 8), said])
    with backend.open(place) as database:
        snapshot = database.snapshot()
        assert [snapshot.runs[0], snapshot.arrays[0], snapshot.tasks[0], snapshot.pilots[0]] == rows
        assert snapshot.done == [(1, 5, 8, "cancelled")]
        with Reader.on(database) as reader:
            assert reader.spans(1) == [span_row(1, 5, 8)]
            assert reader.events(after=0) == [said._asdict()]


def test_readers_get_plain_dicts_with_json_decoded(database: Database, reader: Reader) -> None:
    run, array, task, pilot = (
        run_row(1, finished=200.5),
        array_row(1),
        task_row(1, 3, special='{"memory": 7}'),
        pilot_row(),
    )
    database.apply([run, array, task, pilot])
    shown = without(run, "counts", "labels") | {"counts": {"failed": 1}, "labels": {"a": "b"}, "goal": None}
    assert reader.runs() == [shown]
    arrays = [{"first": 1, "count": 10, "name": "step", "task": {"command": ["true"]}}]
    assert reader.run(1) == shown | {"arrays": arrays, "emits": False, "rules": [], "planning": None}
    shown = without(task, "live", "new_files", "result") | {"live": [], "new_files": ["x"], "special": {"memory": 7}}
    assert reader.task(1, 3) == shown
    assert reader.tasks(1) == [shown]
    shown = without(pilot, "former", "tags") | {"former": ["p0"], "tags": {"os": "linux"}}
    assert reader.pilot("p1a2") == pilot and reader.run_row(1) == run and reader.task_row(1, 3) == task
    assert reader.pilots() == [shown]
    assert (reader.run(2), reader.task(1, 4), reader.pilot("p9")) == (None, None, None)
    assert (reader.run_row(2), reader.task_row(1, 4)) == (None, None)


def test_rows_have_the_small_results_of_calls_where_they_are_asked_for(database: Database, reader: Reader) -> None:
    small, large = "A" * MAX_SHOWN_RESULT, "A" * (MAX_SHOWN_RESULT + 1)
    database.apply([run_row(1), task_row(1, 1, result=small), task_row(1, 2, result=large), task_row(1, 3, result="")])
    assert [row.get("result") for row in reader.tasks(1, values=True)] == [small, None, None]
    assert [row.get("result") for row in reader.tasks(1)] == [None] * 3


def test_the_last_row_of_a_key_stands_for_all_before_it(database: Database, reader: Reader) -> None:
    database.apply([task_row(1, 1, "leased"), run_row(1, name="old"), pilot_row(state="idle")])
    changes: list[Change] = [
        task_row(1, 1, "running"), run_row(1, name="mid"), task_row(1, 2, "leased"), pilot_row(state="busy"),
        task_row(1, 1, "failed"), run_row(1, name="new", finished=3.0), pilot_row(state="gone"),
    ]  # fmt: skip
    database.apply(changes)
    assert [(row["element"], row["state"]) for row in reader.tasks(1)] == [(1, "failed"), (2, "leased")]
    assert [row["name"] for row in reader.runs()] == ["new"]
    assert [row["state"] for row in reader.pilots()] == ["gone"]


@pytest.mark.parametrize(
    "bad",
    [
        event(1),
        array_row(1, 1),
        task_row(1, 9)._replace(host=None),  # type: ignore[arg-type]  # the defect under test
        span_row(1, 5, 9),
        run_row(2, key="k"),
        PolicyRow(1, 2.0, "bob", "{}"),
        acct_add(useful=float("nan")),
    ],
    ids=["event twice", "array twice", "missing value", "spans overlap", "key twice", "policy twice", "no number"],
)
def test_nothing_of_a_batch_is_there_if_any_of_it_fails(database: Database, reader: Reader, bad: Change) -> None:
    database.apply([run_row(1, key="k"), array_row(1, 1), event(1), span_row(1, 1, 6)])
    database.apply([acct_add(useful=1.0), PlaceRow("ann", "host", "h", "[1]"), PolicyRow(1, 1.0, "ann", "{}")])
    before = (database.snapshot(), reader.runs(), reader.tasks(1), reader.server_facts())
    good: list[Change] = [run_row(3), task_row(1, 1), SpanDrop(1, 1, 3), event(2), pilot_row(), array_row(3)]
    good += [acct_add(useful=2.0), acct_add(lost=2.0), PlaceRow("ann", "host", "h", ""), UsageRow("ann", "[1]")]
    with pytest.raises(Exception, match=r"UNIQUE|NOT NULL|overlap"):
        database.apply([*good, bad])
    assert (database.snapshot(), reader.runs(), reader.tasks(1), reader.server_facts()) == before
    database.apply(good)
    assert reader.last_seq() == 2
    assert database.snapshot().spent == [("ann", "local", 2, 5.0)]


def test_text_without_a_utf8_form_stops_nobody(database: Database, reader: Reader) -> None:
    database.apply([task_row(1, 1, last_line="a\ud800b"), task_row(1, 2), event(1, data={"x": "\udcff", "n": 1 << 70})])
    assert [row["last_line"] for row in reader.tasks(1)] == ["a?b", "last"]
    database.apply([acct_add(host=f"h{bad}", tasks=1) for bad in ("\ud800", "\udcff")])
    assert [(row["host"], row["tasks"]) for row in reader.acct(AccountQuery("host"), 1e6)["lines"]] == [("h?", 2)]
    assert reader.events(after=0)[0]["data"] == {"x": "?", "n": 1 << 70}


def test_a_database_may_be_used_by_another_thread_than_its_opener(database: Database) -> None:
    writer = threading.Thread(target=database.apply, args=([run_row(1)],))
    writer.start()
    writer.join()
    assert database.snapshot().next_run == 2


def test_incarnation_is_raised_at_each_start(backend: Backend) -> None:
    place = backend.place()
    last, lives = 0, set()
    for expected in (1, 2, 3):
        with backend.open(place) as database:
            incarnation = database.raise_incarnation(1000.5 + expected)
            assert (start_count(incarnation), database.snapshot().incarnation) == (expected, incarnation)
            assert incarnation > last
            last = incarnation
            lives.add(incarnation & (1 << LIFE_BITS) - 1)
    assert len(lives) == 3, "no two starts have the same name, whatever their count"


def test_a_start_after_a_crash_leaves_out_a_number_of_each_open_run(database: Database) -> None:
    """The server may have handed out first attempts and died before it wrote them down [ADR 0015]."""
    database.apply([run_row(1, finished=None), run_row(2, finished=5.0)])
    for crashes in (1, 2):
        database.raise_incarnation(1.0)
        assert [(run.run, run.base) for run in database.snapshot().runs] == [(1, crashes)]
    database.end_in_order()
    database.raise_incarnation(2.0)
    assert database.snapshot().runs[0].base == 2, "what ended in order has forgotten nothing"
    loaded = database.load_run(2)
    assert loaded is not None and loaded[0].base == 0


# --- spans


@EXAMPLES
@given(data=st.data())
def test_dropping_spans_takes_out_exactly_those_elements(backend: Backend, data: st.DataObject) -> None:
    model = Model()
    with backend.fresh() as database, Reader.on(database) as reader:
        for size in data.draw(st.lists(st.integers(1, 6), max_size=4)):
            batch = [change for _ in range(size) if (change := draw_span(data, model)) is not None]
            database.apply(batch)
        spans = reader.spans(1)
        covered = [(span.run, element) for span in spans for element in range(span.low, span.high)]
        assert len(covered) == len(set(covered))
        states = {(1, e): span.state for span in spans for e in range(span.low, span.high)}
        assert states == model.closed
        assert {span.ended for span in spans} <= {9.5}  # the pieces keep what their span said


def draw_span(data: st.DataObject, model: Model, run: int = 1) -> SpanRow | SpanDrop | None:
    low = data.draw(st.integers(1, 30))
    high = low + data.draw(st.integers(1, 12))
    if data.draw(st.booleans()):
        change: SpanRow | SpanDrop = SpanDrop(run, low, high)
    elif any((run, element) in model.closed for element in range(low, high)):
        return None  # the engine never closes an element twice
    else:
        change = span_row(run, low, high, data.draw(st.sampled_from(sorted(FINALS))))
    model.apply(change)
    return change


def test_dropping_nothing_changes_nothing(database: Database, reader: Reader) -> None:
    database.apply([span_row(1, 5, 8)])
    database.apply([SpanDrop(1, 6, 6), SpanDrop(1, 8, 20), SpanDrop(1, 1, 5), SpanDrop(2, 1, 99)])
    assert reader.spans(1) == [span_row(1, 5, 8)]


@pytest.mark.parametrize(("low", "high"), [(2, 4), (4, 5), (1, 99), (9, 11), (5, 8), (19, 21)])
def test_a_span_over_any_other_is_refused(database: Database, reader: Reader, low: int, high: int) -> None:
    spans = [span_row(1, 3, 5), span_row(1, 6, 10), span_row(1, 20, 30)]
    database.apply(spans)
    with pytest.raises(Exception, match="overlap"):
        database.apply([span_row(1, low, high)])
    database.apply([span_row(1, 5, 6), span_row(1, 1, 3), span_row(1, 10, 20), span_row(2, low, high)])
    assert [(span.low, span.high) for span in reader.spans(1)] == [
        (1, 3),
        (3, 5),
        (5, 6),
        (6, 10),
        (10, 20),
        (20, 30),
    ]


# --- what a starting engine gets

TASK_STATES = ["waiting", "ready", "leased", "running", *sorted(FINALS)]


@EXAMPLES
@given(data=st.data())
def test_snapshot_is_what_the_changes_say(backend: Backend, data: st.DataObject) -> None:
    model = Model()
    with backend.fresh() as database:
        for size in data.draw(st.lists(st.integers(1, 12), max_size=5)):
            database.apply([draw_change(data, model) for _ in range(size)])
        snapshot = database.snapshot()
        assert replace(snapshot, done=[], lease_key=b"") == model.snapshot()
        check_lines(database, model)
        check_done(snapshot.done, model, {row.run for row in snapshot.runs})
        for run in model.runs:
            loaded = database.load_run(run)
            assert loaded is not None
            row, arrays, tasks, done, _, partials, growths, grown, plans = loaded
            assert list(partials) == [one for one in model.partials.values() if one.run == run]
            assert list(growths) == [one for one in model.growths.values() if one.run == run]
            assert list(plans) == [one for one in model.plans.values() if one.run == run]
            if growths:
                assert sorted(grown) == sorted(one for one in model.grown.values() if one.run == run)
            assert row == model.runs[run]
            assert arrays == [a for _, a in sorted(model.arrays.items()) if a.run == run]
            assert tasks == [t for _, t in sorted(model.tasks.items()) if t.run == run and t.state not in FINALS]
            check_done(done, model, {run})


def draw_change(data: st.DataObject, model: Model) -> Change:
    kinds = [
        "task",
        "task",
        "task",
        "run",
        "span",
        "pilot",
        "array",
        "event",
        "acct",
        "acct",
        "usage",
        "place",
        "policy",
        "partial",
        "growth",
        "grown",
        "plan",
    ]
    kind = data.draw(st.sampled_from(kinds))
    run = data.draw(st.integers(1, 3))
    change: Change | None = None
    if kind == "task":
        element, state = data.draw(st.integers(1, 20)), data.draw(st.sampled_from(TASK_STATES))
        winner = data.draw(st.sampled_from(["", "1@1", "2@1"]))
        change = task_row(run, element, state, winner=winner, ended=float(data.draw(st.integers(1, 5))))
    elif kind == "run":
        change = run_row(run, finished=data.draw(st.sampled_from([None, None, 5.0])))
    elif kind == "span":
        change = draw_span(data, model, run)
    elif kind == "pilot":
        name, state = data.draw(st.sampled_from(["p1", "p2", "p3"])), data.draw(st.sampled_from(["idle", "gone"]))
        change = pilot_row(name, state, joined=float(data.draw(st.integers(1, 3))))
    elif kind == "array":
        first = data.draw(st.integers(1, 20))
        change = None if (run, first) in model.arrays else ArrayRow(run, first, 1, "a", "{}")
    elif kind == "partial":
        change = PartialRow(
            run, "{}", data.draw(st.sampled_from(["", "n(x) > 3"])), "", data.draw(st.integers(0, 9)), ""
        )
    elif kind == "growth":
        change = GrowthRow(run, "[]", data.draw(st.sampled_from([1.0, 2.0])), data.draw(st.integers(0, 1)), 0)
    elif kind == "grown":
        rule, name = data.draw(st.integers(0, 1)), data.draw(st.sampled_from(["a", "b/c"]))
        element = data.draw(st.integers(0, 3))
        known = model.grown.get((run, rule, name))
        change = known._replace(element=element) if known else GrownRow(run, rule, name, 7, 1.5, element)
    elif kind == "plan":
        change = PlanRow(run, data.draw(st.sampled_from(["unreduced", "unfinished"])), "{}")
    elif kind in ("acct", "usage", "place", "policy"):
        change = draw_account(data, model, kind)
    if change is None:
        change = event(len(model.events) + 1, run=run)
    if not isinstance(change, (SpanRow, SpanDrop)):
        model.apply(change)
    return change


def check_lines(database: Database, model: Model) -> None:
    """The lines of the accounts, each by its whole key, are the sums of what was added to them."""
    with Reader.on(database) as reader:
        lines = reader.acct(AccountQuery("owner,site,host,pilot,run,day"), 1e9)["lines"]
    wanted: dict[tuple[str, int, int], list[float]] = {}
    for add in model.added:
        sums = wanted.setdefault((add.owner, add.run, add.hour // 24), [0.0] * len(SUMS))
        sums[:] = [had + getattr(add, name) for had, name in zip(sums, SUMS, strict=True)]
    days = {(3 // 24): "1970-01-01", (700 // 24): "1970-01-30", (1500 // 24): "1970-03-04"}
    told = {(line["owner"], line["run"], line["day"]): [line[name] for name in SUMS] for line in lines}
    assert told == {(owner, run, days[day]): sums for (owner, run, day), sums in wanted.items()}
    assert len(told) == len(lines)


def draw_account(data: st.DataObject, model: Model, kind: str) -> Change:
    owner, number = data.draw(st.sampled_from(["ann", "bob"])), data.draw(st.integers(0, 3))
    if kind == "acct":
        hour, what = data.draw(st.sampled_from([3, 700, 1500, 1501])), data.draw(st.sampled_from(SUMS))
        return acct_add(hour, owner, run=number, **{what: number})
    if kind == "usage":
        return UsageRow(owner, f"[{number}]")
    if kind == "place":
        place = data.draw(st.sampled_from(["host", "site"]))
        return PlaceRow(owner, place, data.draw(st.sampled_from("ab")), f"[{number}]" if number else "")
    return PolicyRow(len(model.policies) + 1, 5.0, owner, "{}")


def check_done(done: list[FinalRange], model: Model, runs: set[int]) -> None:
    """The ranges cover what the model has, each element once a state, and cannot be told shorter."""
    told = [(run, element, state) for run, low, high, state in done for element in range(low, high)]
    assert len(told) == len(set(told))
    assert set(told) == {(run, element, state) for run in runs for element, state in model.done(run)}
    ends = {(run, high, state) for run, _, high, state in done}
    assert not [piece for piece in done if (piece[0], piece[1], piece[3]) in ends]


def test_neighbours_of_one_state_are_one_range_however_they_are_kept(database: Database) -> None:
    rows = [task_row(1, n, "cancelled") for n in (3, 4, 8)]
    database.apply([run_row(1), *rows, span_row(1, 5, 8), span_row(1, 1, 3), span_row(1, 9, 10, "failed")])
    assert database.snapshot().done == [(1, 1, 9, "cancelled"), (1, 9, 10, "failed")]


def test_only_the_latest_finals_are_settled_and_in_their_order(database: Database) -> None:
    database.apply([task_row(1, n, ended=float(n)) for n in range(1, 10_101)])
    settled = database.snapshot().settled
    assert [row[:3] for row in settled] == [(1, n, "2@1") for n in range(101, 10_101)]


def test_loading_an_unknown_run_gives_none(database: Database) -> None:
    assert database.load_run(1) is None


def test_failed_rows_are_all_finals_without_success(database: Database) -> None:
    rows = [task_row(1, n, state) for n, state in enumerate(TASK_STATES, 1)]
    database.apply([*rows, task_row(2, 1, "failed"), span_row(1, 20, 30), span_row(1, 30, 32, "succeeded")])
    wanted = [row for row in rows if row.state in ("failed", "cancelled", "lost")]
    assert database.failed_rows(1) == (wanted, [(20, 30, "cancelled")])
    assert database.failed_rows(1, wanted[0].element) == ([wanted[0]], [])
    assert database.failed_rows(1, 25) == ([], [(25, 26, "cancelled")])
    assert database.failed_rows(1, 31) == database.failed_rows(1, 1) == ([], [])


# --- the journal


def test_events_come_in_order_after_a_number(database: Database, reader: Reader) -> None:
    kinds = ["run_submitted", "task_finished", "pilot_joined"]
    database.apply([event(n, kinds[n % 3], run=None if n % 3 == 2 else 1 + n % 2) for n in range(1, 31)])
    seqs = [said["seq"] for said in reader.events(after=4, limit=7)]
    assert seqs == [5, 6, 7, 8, 9, 10, 11]
    assert [said["seq"] for said in reader.events(after=0, run=1)] == [4, 6, 10, 12, 16, 18, 22, 24, 28, 30]
    assert [said["seq"] for said in reader.events(after=6, run=1, kinds=["task_finished"])] == [10, 16, 22, 28]
    assert [said["seq"] for said in reader.events(after=0, kinds=kinds[1:])] == [n for n in range(1, 31) if n % 3]
    assert reader.events(after=30) == reader.events(after=99) == reader.events(after=0, kinds=[]) == []
    assert (reader.oldest_seq(), reader.last_seq()) == (1, 30)


def test_events_that_are_gone_are_refused_with_the_oldest_kept(database: Database, reader: Reader) -> None:
    database.apply([event(n, run=1, task=n) for n in range(1, 101)])
    pruned = database.prune(51.0, 1 << 40)
    assert (pruned.events, pruned.oldest_seq, pruned.more) == (50, 51, False)
    for after in (0, 49):
        with pytest.raises(EventsGone) as caught:
            reader.events(after=after)
        assert (caught.value.code, caught.value.oldest) == ("gone", 51)
    assert [said["seq"] for said in reader.events(after=50)] == list(range(51, 101))
    with pytest.raises(EventsGone):
        reader.events(after=3, run=1)


def test_numbers_go_on_after_every_event_is_gone(database: Database, reader: Reader) -> None:
    database.apply([event(n) for n in range(1, 11)])
    database.prune(1e9, 0)
    assert (reader.oldest_seq(), reader.last_seq(), database.snapshot().next_seq) == (11, 10, 11)
    assert reader.events(after=10) == []
    assert reader.server_facts()["event_bytes"] == reader.server_facts()["events"] == 0


def test_pruning_goes_by_slices_down_to_the_budget(database: Database, reader: Reader) -> None:
    database.apply([event(n, data={"text": "é" * 900}) for n in range(1, 101)])
    size = reader.server_facts()["event_bytes"]
    assert 90_000 < size < 110_000
    oldest, calls, freed, more = 1, 0, 0, True
    while more:
        pruned = database.prune(0.0, size // 4, limit=20)
        assert pruned.events <= 20
        assert pruned.oldest_seq == reader.oldest_seq() == reader.events(after=pruned.oldest_seq - 1)[0]["seq"]
        oldest, calls, freed, more = pruned.oldest_seq, calls + 1, freed + pruned.bytes, pruned.more
    assert (oldest, calls) == (76, 4)
    assert reader.server_facts()["event_bytes"] == size - freed == size // 4


def test_an_event_with_a_wrong_clock_does_not_make_earlier_ones_old(database: Database, reader: Reader) -> None:
    times = [10.0, 11.0, 900.0, 0.0, 901.0]
    database.apply([event(n, time=time) for n, time in enumerate(times, 1)])
    assert database.prune(500.0, 1 << 40).oldest_seq == 3


def test_pruning_names_the_finished_runs_whose_logs_may_go(database: Database) -> None:
    database.apply([run_row(n, finished=None if n == 2 else 100.0 * n) for n in range(1, 8)])
    assert database.prune(500.0, 1 << 40).runs == [1, 3, 4]
    first = database.prune(500.0, 1 << 40, limit=2)
    assert (first.runs, first.more) == ([1, 3], True)
    assert database.prune(500.0, 1 << 40, limit=2, after_run=3).runs == [4]


def test_history_of_a_task_has_its_part_of_events_about_many(database: Database, reader: Reader) -> None:
    database.apply(
        [
            event(1, "tasks_leased", data={"attempts": ["r1.7#1@1"]}),  # of a run before ours with no events: not seen
            event(2, "run_submitted", run=12),
            event(3, "tasks_leased", pilot="p1", data={"attempts": ["r12.6#1@1", "r12.7#1@1", "r12.77#1@1"]}),
            event(4, "tasks_started", pilot="p1", data={"attempts": ["r12.7#1@1"]}),
            event(5, "task_retried", run=12, task=7, attempt=1),
            event(6, "task_retried", run=12, task=8, attempt=1),
            event(7, "tasks_leased", pilot="p2", data={"attempts": ["r112.7#2@1", "r12.7#2@1"]}),
            event(8, "task_finished", run=12, task=7, attempt=2),
            event(9, "tasks_released", run=12, data={"ranges": [[1, 3], [6, 9]]}),
            event(10, "tasks_released", run=12, data={"ranges": [[8, 9]]}),
            run_row(12, finished=1.0),
        ]
    )
    story = reader.history(12, 7)
    assert [(said["seq"], said["task"], said["attempt"]) for said in story] == [
        (3, 7, 1), (4, 7, 1), (5, 7, 1), (7, 7, 2), (8, 7, 2), (9, 7, None),
    ]  # fmt: skip
    assert story[0]["data"] == {"attempts": ["r12.7#1@1"]}
    assert story[-1]["data"] == {"ranges": [[7, 7]]}
    assert [said["seq"] for said in reader.history(12, 7, 1)] == [3, 4, 5]
    assert reader.history(12, 99) == reader.history(99, 1) == []


# --- listings


@pytest.mark.parametrize("limit", [1, 7, 100, 1_000])
def test_paging_walks_every_task_exactly_once(database: Database, reader: Reader, limit: int) -> None:
    elements = [3 * n for n in range(1, 301)]
    database.apply([task_row(run, n, "failed" if n % 2 else "succeeded") for n in elements for run in (1, 2)])
    for states, wanted in ((None, elements), (["failed"], [n for n in elements if n % 2])):
        seen: list[int] = []
        while page := reader.tasks(2, after=seen[-1] if seen else 0, limit=limit, states=states):
            assert len(page) <= limit
            seen += [row["element"] for row in page]
        assert seen == wanted


def test_runs_are_listed_newest_first_by_state_owner_and_name(database: Database, reader: Reader) -> None:
    database.apply(
        [
            run_row(n, owner="bob" if n % 2 else "ann", finished=1.0 if n > 5 else None, name=f"fit[{n}]%_*a")
            for n in range(1, 11)
        ]
    )

    def numbers(**filters: Any) -> list[int]:
        return [row["run"] for row in reader.runs(**filters)]

    assert numbers() == list(range(10, 0, -1))
    assert numbers(limit=3, before=8) == [7, 6, 5]
    assert numbers(state="open") == [5, 4, 3, 2, 1]
    assert numbers(state="finished", owners=["bob"]) == [9, 7]
    assert numbers(name="fit") == list(range(10, 0, -1))
    assert numbers(name="fit]") == numbers(name="it") == numbers(name="fit%") == numbers(name="FIT") == []
    assert numbers(name="*?1*") == [10, 1]
    assert numbers(name="fit[[]7*") == [7]
    assert numbers(name="x' OR 1=1 --") == []


def test_a_glob_of_many_stars_is_answered_quickly(database: Database, reader: Reader) -> None:
    database.apply([run_row(n, name="a" * 256) for n in range(1, 51)])
    assert reader.runs(name="*a" * 100 + "*b") == []  # the test's own timeout is the assertion


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(reader: Reader, limit: int) -> None:
    asks: list[Callable[[], object]] = [
        lambda: reader.runs(limit=limit),
        lambda: reader.pilots(limit=limit),
        lambda: reader.tasks(1, limit=limit),
        lambda: reader.events(after=0, limit=limit),
    ]
    for ask in asks:
        with pytest.raises(BadInput) as caught:
            ask()
        assert caught.value.code == "bad_limit"


def test_a_limit_above_the_bound_is_cut(database: Database, reader: Reader) -> None:
    database.apply([event(n) for n in range(1, 1_101)])
    assert len(reader.events(after=0, limit=10**9)) == 1_000


def test_unknown_words_and_cursors_are_refused(reader: Reader) -> None:
    asks: list[Callable[[], object]] = [
        lambda: reader.tasks(1, states=["done"]),
        lambda: reader.events(after=0, kinds=["x,y"]),
        lambda: reader.pilots(state="suspect"),
        lambda: reader.runs(state="name;drop"),  # type: ignore[arg-type]  # what a caller may send
        lambda: reader.events(after=-1),
        lambda: reader.tasks(1, after=-1),
        lambda: reader.runs(before=1 << 64),
        lambda: reader.runs(name="x" * 257),
    ]
    for ask in asks:
        with pytest.raises(BadInput):
            ask()


def test_a_key_finds_its_run_for_its_owner_only(database: Database, reader: Reader) -> None:
    database.apply(
        [run_row(1, key="k", digest="d1"), run_row(2, key="k", owner="bob", digest="d2"), run_row(3), run_row(4)]
    )
    assert reader.find_key("ann", "k") == (1, "d1")
    assert reader.find_key("bob", "k") == (2, "d2")
    assert reader.find_key("eve", "k") is reader.find_key("ann", "") is None


def test_earlier_runs_of_a_signature_come_newest_first(database: Database, reader: Reader) -> None:
    database.apply([run_row(n, signature="s" if n % 2 else "t", owner="bob" if n == 5 else "ann") for n in range(1, 8)])
    assert reader.earlier("ann", "s") == [7, 3, 1]
    assert reader.earlier("ann", "") == []


def test_every_success_of_a_run_is_given_for_resuming(database: Database, reader: Reader) -> None:
    rows = [task_row(1, n, "failed" if n % 10 == 0 else "succeeded") for n in range(1, 2_501)]
    database.apply([*rows, task_row(2, 1)])
    assert list(reader.task_rows(1, ["succeeded"])) == [row for row in rows if row.state == "succeeded"]


def test_pilots_are_listed_newest_first(database: Database, reader: Reader) -> None:
    database.apply([pilot_row(f"p{n}", "gone" if n % 2 else "busy", joined=float(n)) for n in range(1, 7)])
    assert [row["pilot"] for row in reader.pilots(limit=4)] == ["p6", "p5", "p4", "p3"]
    assert [row["pilot"] for row in reader.pilots(state="busy")] == ["p6", "p4", "p2"]


def test_facts_of_the_whole(database: Database, reader: Reader) -> None:
    database.raise_incarnation(77.5)
    database.apply([run_row(1, total=5), run_row(2, total=1_000_000, finished=1.0), event(1), event(2)])
    facts = reader.server_facts()
    assert facts["bytes"] > 0
    assert {name: facts[name] for name in ("incarnation", "started", "schema", "runs", "open_runs", "tasks", "events")} == {
        "incarnation": 1, "started": 77.5, "schema": newest(), "runs": 2, "open_runs": 1, "tasks": 1_000_005, "events": 2,
    }  # fmt: skip


def test_successes_of_neighbours_are_the_rows_and_events_that_they_stand_for(backend: Backend) -> None:
    for count in (1, 3, 4, 300):
        numbers = [float(n) for n in range(count + 2)]
        batch = Batch(
            "r1.1#1@1", count + 2, numbers, numbers, [], [], ["", *map(str, range(count + 1))], ["gAU="] * (count + 2)
        )
        told = Successes(1, 7, 7 + count, 1, "1@1", 0, 5.0, 6.0, "p1", "h", "local", "ann", 1, batch, 2)
        found = []
        changes: list[list[Change]] = [[told], [*told.rows(), *told.events()]]
        for some in changes:
            with backend.open(backend.place()) as database:
                database.apply([run_row(1), *some])
                rows = database.connection.execute("SELECT * FROM tasks ORDER BY element").fetchall()
                events = database.connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
                size = database.connection.execute("SELECT value FROM meta WHERE key = 'event_bytes'").fetchone()
                found.append((rows, events, size))
        assert found[0] == found[1] and len(found[0][0]) == len(found[0][1]) == count


def test_chunks_come_and_go(backend: Backend) -> None:
    first, second = ChunkRow(1, 1, 50, 1, 2, "p1", 5.0), ChunkRow(1, 50, 90, 1, 2, "p1", 5.0)
    gone = ChunkDrop(1, 1, 1, 2)
    with backend.open(backend.place()) as database:
        database.apply([first, second])
        database.apply([gone, ChunkRow(1, 90, 95, 1, 2, "p1", 6.0), ChunkDrop(1, 90, 1, 2)])
        assert database.snapshot().chunks == [second]
