"""Consistency check: every index and count of the engine is derived again and compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from shoal.engine.locality.consistency import check_data
from shoal.engine.matching.classes import Leasable, key_of
from shoal.engine.pilots.mesh import peer_id, takes_part
from shoal.engine.records import SHARED, Array, Run
from shoal.engine.run_bound import Lane, RunBound
from shoal.engine.state import State
from shoal.engine.tasks.dependencies import is_open, target_text
from shoal.engine.tasks.divisible import check_work
from shoal.engine.tasks.growth import check_growth
from shoal.engine.why.runs_and_tasks import why_task
from shoal.model.rangeset import RangeSet
from shoal.model.states import PilotState, Rerun, TaskState
from shoal.sched.fit import take


def check(state: State) -> list[str]:
    """Everything that does not add up; empty if all is well."""
    wrong: list[str] = []
    for run in state.runs.values():
        for array in run.arrays:
            wrong += _array(state, array)
        done = sum(len(array.done) for array in run.arrays)
        if run.live != sum(array.live for array in run.arrays):
            wrong.append(f"r{run.number}: live tasks do not add up")
        if run.bound is not None:
            wrong += _bound(run, run.arrays, run.bound)
        for name, bound in run.categories.items():
            those = [
                array for array in run.arrays if array.spec.category is not None and array.spec.category.name == name
            ]
            wrong += _bound(run, those, bound)
        if done != run.settled:
            wrong.append(f"r{run.number}: {done} elements done, {run.settled} counted by state")
        grows = run.growth is not None and run.growth.is_open
        if not run.open and not grows and (run.finished is not None) != (run.settled == run.total):
            wrong.append(f"r{run.number}: finished={run.finished} with {run.settled} of {run.total}")
        wrong += check_work(run)
        wrong += check_growth(run)
        if sum(array.succeeded for array in run.arrays) != run.finals.get("succeeded", 0):
            wrong.append(f"r{run.number}: successes do not add up")
    wrong += _pilots(state)
    wrong += check_data(state)
    for cls in state.queue:
        if cls.head() is not None and cls.listed is None:
            wrong.append(f"class {cls.key} has work but no position in the queue")
    wrong += [f"{kind}: what all records share while it is empty was filled" for kind in SHARED if len(kind)]
    wrong += _accounting(state)
    wrong += _meshes(state)
    for attempt, task in state.orphans.items():
        if attempt not in task.live or task.live[attempt].orphaned is None:
            wrong.append(f"orphan {attempt} is not live or has no deadline")
    return wrong


def _meshes(state: State) -> list[str]:
    """Find the members of each mesh anew."""
    wanted: dict[tuple[str, str], set[str]] = {}
    living: set[str] = set()
    for pilot in state.pilots.values():
        living.add(peer_id(state, pilot.name))
        if takes_part(pilot):
            wanted.setdefault((pilot.site, pilot.holder), set()).add(peer_id(state, pilot.name))
    found: dict[tuple[str, str], set[str]] = {}
    wrong = []
    for key, roster in state.meshes.items():
        # Who is shut out may have ceased to take part, and is shut out all the same.
        if members := {*roster.members, *wanted.get(key, set()).intersection(roster.shut_out)}:
            found[key] = members
        if not living.issuperset([*roster.shut_out, *roster.accusers]):
            wrong.append("a mesh remembers what a pilot was accused of that has ended")
    if found != wanted:
        wrong.append("the members of meshes are not the pilots that take part")
    return wrong


def _bound(run: Run, arrays: list[Array], bound: RunBound) -> list[str]:
    """Count the lanes of these arrays of a run anew, and what is live in none."""
    found: dict[int, tuple[Lane, int]] = {}
    alone = 0
    for array in arrays:
        parts = [(chunk.lane, _size(chunk.left_of(array))) for chunk in array.chunks]
        parts += [(task.lane, 1) for task in array.tasks.values() if task.live]
        for lane, count in parts:
            if lane is None:
                alone += count
            else:
                found[id(lane)] = (lane, found.get(id(lane), (lane, 0))[1] + count)
    wrong = [
        f"r{run.number}: {lane.left} calls of a lane counted, {n} found" for lane, n in found.values() if lane.left != n
    ]
    if bound.taken != alone + len(found):
        wrong.append(f"r{run.number}: {bound.taken} at once counted, {alone} and {len(found)} lanes found")
    return wrong


def _size(ranges: list[tuple[int, int]]) -> int:
    return sum(high - low for low, high in ranges)


def _array(state: State, array: Array) -> list[str]:
    wrong: list[str] = []
    name = f"r{array.run.number}[{array.first}+{array.count}]"
    live = RangeSet([(e, e + 1) for e, t in array.tasks.items() if t.live])
    for chunk in array.chunks:
        wrong += [
            f"{name}: element {e} is in a chunk and elsewhere"
            for low, high in chunk.left_of(array) for e in range(low, high) if e in live
        ]  # fmt: skip
        for low, high in chunk.left_of(array):
            live.add_range(low, high)
        holder = state.pilots.get(chunk.pilot)
        if not chunk.left or holder is None or chunk not in holder.chunks.values():
            wrong.append(f"{name}: a chunk of {chunk.pilot} from {chunk.low} on is empty or of no pilot")
    total = len(array.todo) + len(array.done) + len(live)
    if total != array.count or any(e in array.todo or e in array.done for e in live):
        wrong.append(f"{name}: todo {len(array.todo)} + done {len(array.done)} + live {len(live)} is not {array.count}")
    if array.failed > len(array.done) - array.succeeded:
        wrong.append(f"{name}: {array.failed} failed counted, {len(array.done) - array.succeeded} did not succeed")
    if array.live != len(live):
        wrong.append(f"{name}: {array.live} live counted, {len(live)} found")
    if array.cls is not None and not array.cls.is_forgotten and array.cls.key != key_of(array, array.spec):
        wrong.append(f"{name}: is in the class of other fields than its own, {array.cls.key}")
    for element in array.apart:
        if element not in array.todo or element not in array.tasks:
            wrong.append(f"{name}: element {element} is in a class of its own but not ready")
        elif not _is_offered(state, array, element):
            wrong.append(f"{name}: element {element} is ready, but not offered in its own class")
    if Leasable(array, 0).has_ready() and not array.queued:
        wrong.append(f"{name}: has ready elements but is in no class")
    if array.queued and array.spec.content and array.inputs is None:
        wrong.append(f"{name}: is offered, and not looked up by its files")
    if array.todo and (array.unmet or array.spec.after):
        named = {p.first: p for p in array.run.arrays if p.spec.name}
        unmet = {first for first, p in named.items() if p.spec.name in array.spec.after and not p.complete}
        over = {first for first in array.unmet - unmet if first not in named or named[first].is_over}
        if not unmet <= array.unmet or over:
            wrong.append(f"{name}: waits for {array.unmet}, should for {unmet}")
    for target in array.awaits if array.todo else ():
        run = target if isinstance(target, int) else target.run
        if not is_open(state, target) or array not in state.dependents.get(run, {}).get(target, ()):
            wrong.append(f"{name}: waits for {target_text(target)}, which is over or does not know it")
    for element, task in array.tasks.items():
        if element in array.done:
            wrong.append(f"{task.id}: final but still in memory")
        places = {TaskState.LEASED, TaskState.RUNNING} if task.live else {TaskState.READY, TaskState.WAITING}
        if task.state not in places:
            wrong.append(f"{task.id}: {task.state} with {len(task.live)} live attempts")
        if len(task.live) > 1 and array.spec.rerun is not Rerun.SAFE:
            wrong.append(f"{task.id}: two live attempts of a task with rerun={array.spec.rerun}")
        for attempt in task.live.values():
            # Owner and deadline of every state that is not final [promise I8]: a pilot that is watched, or an orphan's
            # hold.
            if attempt.pilot not in state.pilots and attempt.id not in state.orphans:
                wrong.append(f"{attempt.id}: live without pilot or deadline")
    if array.todo and not why_task(state, array, array.todo.first()).text:
        wrong.append(f"{name}: waits without a reason")
    return wrong


def _is_offered(state: State, array: Array, element: int) -> bool:
    """True if an element apart from its array is in the heap of its class, or nothing of the array may be leased now."""
    leasable = Leasable(array, element)
    if not leasable.has_ready():
        return True
    heap = state.queue.listed_class_of(array, element).heap
    return any(entry.serial == array.apart[element] and entry.leasable == leasable for entry in heap)


def _pilots(state: State) -> list[str]:
    wrong: list[str] = []
    for pilot in state.pilots.values():
        free, lent = pilot.room, 0
        for attempt, live in pilot.live.items():
            run = state.runs.get(attempt.run)
            array = run.array_of(attempt.element) if run is not None else None
            task = array.tasks.get(attempt.element) if array is not None else None
            if task is None or array is None or task.live.get(attempt) is not live or live.pilot != pilot.name:
                wrong.append(f"{pilot.name}: holds {attempt}, which its task does not know")
            else:
                free = take(free, live.needs)
                lent += live.needs.cores if live.lends else 0
        for chunk in pilot.chunks.values():
            free = take(free, chunk.array.spec.needs, len(chunk.left))
            if not all(chunk in array.chunks for array in chunk.arrays):
                wrong.append(f"{pilot.name}: holds a chunk that its array does not know")
        if pilot.chunked != sum(len(chunk.left) for chunk in pilot.chunks.values()):
            wrong.append(f"{pilot.name}: {pilot.chunked} elements in chunks counted")
        if (pilot.parked is not None) != (pilot.name in state.parked):
            wrong.append(f"{pilot.name}: waits, or not, and is not, or is, among those that wait")
        free = replace(free, cores=free.cores + lent) if lent else free
        if (lent, sum(live.lends for live in pilot.live.values())) != (pilot.lent, pilot.lending):
            wrong.append(f"{pilot.name}: {pilot.lent} cores lent, should be {lent}")
        if free != pilot.free:
            wrong.append(f"{pilot.name}: free {pilot.free}, should be {free}")
        if pilot.state in (PilotState.IDLE, PilotState.BUSY) and (pilot.state is PilotState.BUSY) != bool(pilot.held):
            wrong.append(f"{pilot.name}: {pilot.state} with {len(pilot.live)} attempts")
        if pilot.lone is not None and pilot.lone not in pilot.live:
            wrong.append(f"{pilot.name}: {pilot.lone} is alone here, but not here")
        if pilot.state is PilotState.GONE:
            wrong.append(f"{pilot.name}: gone but still here")
    if state.slots != sum(p.room.cores for p in state.pilots.values() if not p.draining):
        wrong.append(f"{state.slots} slots counted")
    return wrong


def _accounting(state: State) -> list[str]:
    """Compare the counts of the policy with the live attempts [promise I14, I24]."""
    wrong: list[str] = []
    cores: Counter[tuple[str, str]] = Counter()
    licences: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    queued: Counter[str] = Counter()
    for run in state.runs.values():
        queued[run.owner] += run.total - run.settled
        for array in run.arrays:
            needs = array.spec.needs
            for task in array.tasks.values():
                for attempt in task.live.values():
                    if attempt.site is None:
                        continue
                    cores[run.owner, attempt.site] += 0 if attempt.lends else attempt.needs.cores
                    shares[run.owner] += attempt.cores
                    if attempt.needs.licences:
                        licences.update(dict(attempt.needs.licences))
            for chunk in array.chunks:
                count = _size(chunk.left_of(array))
                cores[run.owner, state.pilots[chunk.pilot].site] += needs.cores * count
                licences.update({name: each * count for name, each in needs.licences})
    counted = state.accounting.ledger.counts()
    for name, found, kept in (
        ("cores by owner and site", cores, counted.running),
        ("licences", licences, state.accounting.licences),
        ("cores by share", shares, state.accounting.tree.cores()),
        ("queued tasks", queued, counted.queued),
        ("cores of sites", _capacity(state), counted.capacity),
    ):
        left, right = ({key: value for key, value in table.items() if value} for table in (found, kept))
        if left != right:
            wrong.append(f"{name}: {left} found, {right} counted")
    return wrong


def _capacity(state: State) -> Counter[str]:
    found: Counter[str] = Counter()
    for pilot in state.pilots.values():
        if not pilot.draining:
            found[pilot.site] += pilot.room.cores
    return found
