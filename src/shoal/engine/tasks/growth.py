"""Runs that grow: files make tasks by the rules of their run [CMS C8; ADR 0058].

A file is taken by a rule once, whatever is told how often: which rule took which file, and the task that it became, are rows
that are written in the transaction of the report, or of the call, that brought the file. A crash forgets all of it or
nothing; what it forgets is reported again. The tasks are offered to pilots only after their commit, since another order
of reports would give their numbers to other files.

Files flow downwards: a rule takes files of the tables of its run, of rules above it, and, if it watches, from outside. So
no file comes back to a rule, and every run ends.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence

from shoal.engine.changes import GrownRow, GrowthRow
from shoal.engine.commands import TellFiles
from shoal.engine.matching.visibility import ask_again
from shoal.engine.records import Array, Run
from shoal.engine.state import State
from shoal.engine.tasks.layout import add_array, make_array
from shoal.flow.gather import Terms, WaitingFile, next_batch
from shoal.model.errors import BadInput, Conflict, echo
from shoal.model.ids import run_text
from shoal.model.limits import MAX_ELEMENTS, MAX_FILES_COMPARED, MAX_GROWN
from shoal.model.quantities import many
from shoal.model.task.kept_files import unpack
from shoal.model.task.rule import Rule
from shoal.model.task.spec import OWN
from shoal.model.task.sweep import fill, has_shape, shape_of
from shoal.wire.submission import stored_rule
from shoal.wire.task import stored_spec


class RuleState:
    """What one rule took so far."""

    __slots__ = ("rule", "seen", "tasks", "terms", "waiting")

    def __init__(self, rule: Rule) -> None:
        length = rule.length if rule.gathers else None
        self.rule, self.terms = rule, Terms(rule.most, rule.gather_size, rule.gather_within, length)
        self.seen: set[str] = set()
        self.waiting: list[WaitingFile] = []  # in the order in which they came
        self.tasks: dict[int, int] = {}  # first element of each of its tasks -> how many files it has

    def wait(self, name: str, size: int, since: float) -> None:
        """A file waits from now on."""
        length = self.rule.length_of(name) if self.rule.gathers else 0
        self.waiting.append(WaitingFile(name, size, since, length))


class DeclaredOutputs:
    """Which names tasks of a run declare as outputs, whatever became of the tasks."""

    __slots__ = ("_arrays", "_names", "_read", "_shapes")

    def __init__(self) -> None:
        self._arrays = self._read = 0  # arrays and outputs of sweeps that were read so far
        self._names: set[str] = set()
        self._shapes: set[tuple[str, ...]] = set()  # of sweeps whose names are too many to be listed

    def has(self, run: Run, name: str) -> bool:
        """True if it is one of them; for very large sweeps also if it looks like one."""
        for array in run.arrays[self._arrays :]:
            self._add(array)
        self._arrays = len(run.arrays)
        return name in self._names or any(has_shape(name, shape) for shape in self._shapes)

    def _add(self, array: Array) -> None:
        size = array.count * len(array.spec.outputs) if array.count > 1 else 0
        if size and self._read + size > MAX_FILES_COMPARED:
            self._shapes.update(shape_of(name) for _, name in _outputs(array, None))
            return
        self._read += size
        for element in range(array.first, array.first + array.count) if array.spec.outputs else ():
            self._names.update(name for _, name in _outputs(array, element))


def _outputs(array: Array, element: int | None) -> list[tuple[str, str]]:
    """An element's outputs, seen from the directory of the task and from that of the run; None: those of any, with
    placeholders."""
    spec = array.spec
    base = "" if spec.cwd in (None, OWN) else spec.cwd or ""
    params = spec.sweep.at(element - array.first) if spec.sweep is not None and element is not None else None
    base, *names = [fill(text, params) if params is not None else text for text in (base, *spec.outputs)]
    return [(name, posixpath.normpath(posixpath.join(base, name))) for name in names]


class Growth:
    """The rules of one run."""

    def __init__(self, rules: Sequence[Rule], since: float) -> None:
        self.rules = [RuleState(rule) for rule in rules]
        self.since = since  # when the last file came from outside, or somebody could tell of files again
        self.watching = any(rule.watch is not None for rule in rules)
        self.stopped = False  # the run was cancelled: files wait, and make no tasks until it is retried
        self.held = ""  # why nothing is made of files that would be enough
        self.count = 0  # files taken
        self.outputs = DeclaredOutputs()

    @property
    def is_open(self) -> bool:
        """True if more tasks may come."""
        return not self.stopped and (self.watching or any(one.waiting for one in self.rules))

    @property
    def measures(self) -> bool:
        """True if the sizes of outputs matter."""
        return any(one.rule.gather_size for one in self.rules)

    @property
    def patience(self) -> float:
        """Seconds without a file from outside after which no more are expected."""
        return max((one.rule.watch for one in self.rules if one.rule.watch is not None), default=0.0)

    def due(self) -> float | None:
        """When time alone makes something happen."""
        if self.stopped:
            return None
        times = [self.since + self.patience] if self.watching else []
        for one in self.rules:
            if one.waiting and one.terms.within is not None:
                times.append(one.waiting[0].since + one.terms.within)
        return min(times, default=None)

    def at(self, name: str) -> int:
        """The place of the rule with this name; -1: it is a table of the run."""
        return next((at for at, one in enumerate(self.rules) if one.rule.name == name), -1)

    def row(self, run: int, rules: str) -> GrowthRow:
        """As the database keeps it."""
        return GrowthRow(run, rules, self.since, int(self.watching), int(self.stopped))


def enter(state: State, run: Run, rules: Sequence[Rule]) -> None:
    """A run was submitted with rules."""
    run.growth = Growth(rules, state.now)
    _write(state, run, run.growth)


def restore(run: Run, row: GrowthRow, files: Iterable[GrownRow], now: float) -> None:
    """What the database kept of a run's rules. While the server was away nobody could tell it of files, so it waits for them
    anew."""
    growth = run.growth = Growth([stored_rule(table) for table in json.loads(row.rules)], max(row.since, now))
    growth.watching, growth.stopped = bool(row.watching), bool(row.stopped)
    for file in sorted(files, key=lambda file: (file.seen, file.file)):
        one = growth.rules[file.rule]
        one.seen.add(file.file)
        growth.count += 1
        if file.element:
            one.tasks[file.element] = one.tasks.get(file.element, 0) + 1
        else:
            one.wait(file.file, file.size, file.seen)


def _write(state: State, run: Run, growth: Growth) -> None:
    tables = [{"name": one.rule.name, **_own(one.rule), **one.rule.table} for one in growth.rules]
    state.change(growth.row(run.number, json.dumps(tables)))


def _own(rule: Rule) -> dict[str, object]:
    """The fields of a rule that are not of its tasks."""
    found = {
        "files": rule.files, "gather": rule.gather or None, "gather_size": rule.gather_size or None,
        "gather_within": rule.gather_within, "watch": rule.watch,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


# --- files come
def note_outputs(state: State, array: Array, low: int, high: int, sizes: Sequence[int] = (), result: str = "") -> None:
    """Elements low .. high - 1 succeeded: their outputs are files of the run."""
    run, spec = array.run, array.spec
    if run.growth is None or not spec.outputs:
        return
    kept, files = unpack(result), []
    for element in range(low, high):
        for at, (written, name) in enumerate(_outputs(array, element)):
            size = kept[written].size if written in kept else sizes[at] if at < len(sizes) else 0
            files.append((name, size))
    _take(state, run, run.growth, files, run.growth.at(spec.name) + 1)


def tell(state: State, command: TellFiles) -> dict[str, int | str]:
    """Somebody says which files there are, or that no more will come. Idempotent: a file that is known changes nothing."""
    run = state.runs.get(command.run)
    growth = run.growth if run is not None else None
    if run is None or growth is None:
        hint = "its task file has no [[rules]]" if run is not None else "it is over"
        raise Conflict(f"{run_text(command.run)} takes no files", code="no_rules", hint=hint)
    if run.finished is not None or growth.stopped or not growth.watching:
        raise Conflict(f"{run_text(run.number)} takes no more files", code="run_closed", hint="submit it again")
    before, total = growth.count, run.total
    _take(state, run, growth, command.files, 0, is_outside=True)
    if growth.count > before:
        growth.since = state.now
    if command.end:
        _end_watch(state, run, growth)
    _write(state, run, growth)
    return {"run": run_text(run.number), "files": growth.count - before, "tasks": run.total - total}


def _take(
    state: State, run: Run, growth: Growth, files: Sequence[tuple[str, int]], at: int, is_outside: bool = False
) -> None:
    """Give files to the rules from a place on that take them and do not know them. What tasks of the run declare as outputs
    never comes from outside: it may be half written, or of an attempt that fails, and goes down only. While growth is stopped
    files wait: a task that was spared when its run was cancelled may still succeed, and succeeds only once."""
    if is_outside:
        files = [file for file in files if not growth.outputs.has(run, file[0])]
    for place, one in enumerate(growth.rules[at:], at):
        if is_outside and one.rule.watch is None:
            continue
        for name, size in files:
            if name in one.seen or not one.rule.takes(name):
                continue
            if growth.count >= MAX_GROWN:
                stop(state, run, f"its rules have taken {MAX_GROWN:,} files, which is the most")
                return
            one.seen.add(name)
            growth.count += 1
            one.wait(name, size, state.now)
            state.change(GrownRow(run.number, place, name, size, state.now, 0))
    grow(state, run, growth)


# --- tasks are made
def grow(state: State, run: Run, growth: Growth, rest_of: int = -1) -> None:
    """Make the tasks for which there are enough files; of one rule also of the rest."""
    growth.held = ""
    for place, one in enumerate(growth.rules):
        first, made = run.total + 1, 0
        while (
            not growth.stopped
            and one.waiting
            and (count := next_batch(one.waiting, one.terms, state.now, place == rest_of))
        ):
            growth.held = _hindrance(state, run)
            if growth.held or not _make(state, run, place, one, one.waiting[:count]):
                break
            del one.waiting[:count]
            made += 1
        if made:
            state.emit(
                "tasks_grown", run=run.number, rule=one.rule.name, first=first, tasks=made, waiting=len(one.waiting)
            )
            state.write_run(run)
            state.out.offers.append((run.number, first, made))


def _hindrance(state: State, run: Run) -> str:
    """Why no task may be added now; empty: one may."""
    block = state.accounting.ledger.may_queue(run.owner, 1, state.now)
    if block is not None:
        return block.text
    return f"a run has at most {MAX_ELEMENTS:,} tasks" if run.total >= MAX_ELEMENTS else ""


def _make(state: State, run: Run, place: int, one: RuleState, files: Sequence[WaitingFile]) -> bool:
    """Append a task for these files; it is offered once it is durable. False: there can be no such task, so the run grows
    no more: who reported the file did nothing wrong, so that cannot be refused."""
    first = run.total + 1
    table = one.rule.table_of([file.name for file in files], len(one.tasks) + 1)
    try:
        spec = stored_spec(table)
    except BadInput as error:
        which = f"{echo(files[0].name)} and others" if len(files) > 1 else echo(files[0].name)
        stop(state, run, f"{one.rule.name} can make no task of {which}: {error.line}")
        return False
    array = make_array(state, run, first, spec)
    array.accepted = False
    add_array(run, array)
    one.tasks[first] = len(files)
    state.accounting.ledger.queued(run.owner, 1)
    state.write_array(array, json.dumps(table))
    for file in files:
        state.change(GrownRow(run.number, place, file.name, file.size, file.since, first))
    ask_again(state, (array.spec,))
    return True


def flush(state: State, run: Run) -> None:
    """All tasks of a run are over: what waits for its uppermost rule is a rest, for nothing comes before that any more."""
    growth = run.growth
    if growth is None or growth.watching or growth.stopped:
        return
    for place, one in enumerate(growth.rules):
        if one.waiting:
            grow(state, run, growth, rest_of=place)
            return


# --- ends
def turn(state: State, run: Run) -> None:
    """What time brings: files have waited long enough, no more come from outside, or a quota has room again."""
    growth = run.growth
    if growth is None or growth.stopped:
        return
    if run.is_planning:
        growth.since = state.now  # files are waited for from its acceptance on
    if growth.watching and state.now >= growth.since + growth.patience:
        _end_watch(state, run, growth)
        _write(state, run, growth)
    grow(state, run, growth)


def _end_watch(state: State, run: Run, growth: Growth) -> None:
    growth.watching = False
    state.emit("watch_ended", run=run.number, files=growth.count)


def stop(state: State, run: Run, why: str) -> None:
    """Nothing of a run grows any more."""
    growth = run.growth
    if growth is None or growth.stopped or run.finished is not None:
        return
    if growth.is_open:
        state.emit("growth_stopped", run=run.number, why=why, waiting=sum(len(one.waiting) for one in growth.rules))
    growth.stopped = True
    _write(state, run, growth)


def may_resume(run: Run) -> bool:
    """True if files wait since growth was stopped."""
    return run.growth is not None and run.growth.stopped and any(one.waiting for one in run.growth.rules)


def resume(state: State, run: Run) -> None:
    """A person retries a run that was cancelled: what its tasks write makes others again, and what they wrote meanwhile."""
    growth = run.growth
    if growth is not None and growth.stopped:
        growth.stopped, growth.since = False, state.now
        _write(state, run, growth)
        grow(state, run, growth)


def waiting_text(run: Run) -> str:
    """What the rules of a run wait for; empty: nothing."""
    growth = run.growth
    if growth is None or not growth.is_open:
        return ""
    parts = [f"{one.rule.name} has {many(len(one.waiting), 'file')}" for one in growth.rules if one.waiting]
    if growth.held:
        parts.append(growth.held)
    if growth.watching:
        patterns = ", ".join(one.rule.files for one in growth.rules if one.rule.watch is not None)
        parts.append(f"it waits for more files: {patterns}")
    return "; ".join(parts)


def check_growth(run: Run) -> list[str]:
    """What does not add up in the rules of a run: each file in one task or waiting, each task of a rule with its files."""
    growth = run.growth
    if growth is None:
        return []
    wrong: list[str] = []
    for one in growth.rules:
        if len(one.seen) != len(one.waiting) + sum(one.tasks.values()):
            wrong.append(f"r{run.number} {one.rule.name}: {len(one.seen)} files, others wait and are in tasks")
        made = {array.first for array in run.arrays if array.spec.name == one.rule.name}
        if made != set(one.tasks):
            wrong.append(f"r{run.number} {one.rule.name}: other tasks are there than it made")
    return wrong
