"""Windows: tasks that are granted to a mesh in bulk, which it begins while the server is away [LBO III.B; ADR 0056].

A task in a window has a live attempt whose holder is the mesh. While the server is reached nothing of it is begun: tasks come
from the end of their class, and go back before the class runs out of others, so that shares and order are as without windows. A
window belongs to one leadership. When another leader is named, or after a restart, every member says first what it holds; then
what nobody began is ready again, under a new number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from heapq import nlargest

from shoal.engine.matching.classes import TaskClass, is_open
from shoal.engine.matching.eligibility import eligibility_of
from shoal.engine.matching.lease_message import lease_of
from shoal.engine.pilots.lease_proofs import make_proof
from shoal.engine.pilots.long_poll import unpark
from shoal.engine.pilots.site_reports import valid_reports
from shoal.engine.records import MESH, Array, Attempt, Pilot
from shoal.engine.state import State
from shoal.engine.windows.leaders import Mesh, members, mesh_of, without_leader
from shoal.engine.windows.site_window import NO_CHANGE, Silent, SiteWindow, WindowChange
from shoal.model.ids import AttemptId
from shoal.model.limits import MAX_WINDOW, MAX_WINDOW_LEASE, WINDOW_HELD, WINDOW_HOURS, WINDOW_STEP, WINDOWS_KEPT
from shoal.model.states import TaskState, advance
from shoal.wire import codec
from shoal.wire.chunk import altered
from shoal.wire.messages import Exchange, Lease

ALLOCATION_TAG = "allocation"  # which allocation of a batch system a pilot is in
UNKNOWN = 600.0  # seconds that a task is taken to last whose duration nobody knows
SHORT = 2.0  # seconds: of shorter tasks more stay outside of windows, since slots ask for them more often
LOOK_EVERY = 0.2  # seconds between two looks at a window, which cost more with each task in it
GUESTS_WITHIN = (
    7.0  # seconds after a restart in which pilots come that joined by a ticket: they try each 5 s [ADR 0065]
)
COPIES_BEATS = 3.0  # two, and one in which they travel
MOST_CLASSES = 50  # of one owner that are looked at
MOST_PASSED_OVER = 100  # arrays of a class that are looked at and may not enter
REPLY_BYTES = 1 << 20  # of leases in one reply


def mesh_name(mesh: Mesh) -> str:
    """The holder of attempts in the window of a mesh."""
    return f"{MESH}{mesh[0]}/{mesh[1]}"


def is_windowed(live: Attempt) -> bool:
    """True if an attempt is in a window, and nobody is known to have begun it."""
    return live.pilot.startswith(MESH)


def enter(state: State, live: Attempt) -> None:
    """After a restart: an attempt is in a window of which nobody knows yet what was begun."""
    site, _, holder = live.pilot[len(MESH) :].partition("/")
    window = state.windows.setdefault((site, holder), SiteWindow())
    window.closing[live.id] = None
    window.alone_since = state.ran_until


def _live(state: State, attempt: AttemptId) -> Attempt | None:
    """An attempt that is in a window still; None if a member has it, or its task is over."""
    task = state.orphans.get(attempt)
    live = task.live.get(attempt) if task is not None else None
    return live if live is not None and is_windowed(live) else None


def reserved(state: State, owner: str) -> Counter[int]:
    """How many tasks of an owner's classes are in windows, by the serial of the class."""
    found: Counter[int] = Counter()
    for window in state.windows.values():
        for attempt in (*window.granted, *window.leaving, *window.closing):
            if _live(state, attempt) is not None and state.runs[attempt.run].owner == owner:
                found[state.queue.class_of(state.task_of(attempt).array).serial] += 1
    return found


# --- what the leader is told
def change(state: State, pilot: Pilot, exchange: Exchange) -> WindowChange:
    """What changes in the window, if this pilot leads: one change after another, each when that before it has arrived."""
    window = state.windows.get(mesh_of(pilot))
    if window is None or window.pilot != pilot.name or exchange.window < 0:
        return NO_CHANGE
    for attempt in [one for one, number in window.leaving.items() if number <= exchange.window_seen]:
        del window.leaving[attempt]
        _release(state, attempt, "its window is not needed for it")
    is_known = exchange.ack >= window.sent and not (window.sent and exchange.seq <= window.sent)
    if not is_known or state.now < window.changed_at + LOOK_EVERY:
        return NO_CHANGE
    window.changed_at = state.now
    gone = [attempt for attempt in window.granted if _live(state, attempt) is None]
    back = _surplus(state, window)
    for attempt in (*gone, *back):
        del window.granted[attempt]
    leases = [] if back or window.closing or state.unreconciled else _reserve(state, pilot, window)
    window.may_grow = len(leases) >= WINDOW_STEP
    if not (gone or back or leases):
        return NO_CHANGE
    window.number, window.sent = window.number + 1, exchange.seq
    window.leaving.update(dict.fromkeys(back, window.number))
    return WindowChange(leases, [str(attempt) for attempt in (*gone, *back)], window.number)


def _keep(state: State, cls: TaskClass) -> int:
    """How many ready tasks of a class stay outside of windows: what slots may ask for before a window gives some back."""
    mean = cls.base.mean
    return max(1, state.slots) * (max(1, math.ceil(SHORT / max(mean, 0.01))) if mean is not None else 1)


def _surplus(state: State, window: SiteWindow) -> list[AttemptId]:
    """Tasks to be taken back because their class runs out of others: those that come first."""
    found: list[AttemptId] = []
    for serial, count in Counter(window.granted.values()).items():
        attempts = [attempt for attempt, of in window.granted.items() if of == serial]
        live = next(filter(None, (_live(state, attempt) for attempt in attempts)), None)
        if live is None:
            continue
        cls = state.queue.class_of(state.task_of(live.id).array)
        keep = _keep(state, cls)
        if cls.ready(keep) <= keep // 2:
            found += sorted(attempts)[: min(count, keep)]
    return [attempt for attempt in found if _live(state, attempt) is not None]


def _reserve(state: State, pilot: Pilot, window: SiteWindow) -> list[Lease]:
    """Grant more tasks to a mesh, from the end of the queue."""
    mesh = mesh_of(pilot)
    slots = sum(one.room.cores for one in members(state, mesh))
    budget = slots * WINDOW_HOURS * 3600.0 - _seconds(state, window)
    leases: list[Lease] = []
    left = REPLY_BYTES
    for cls in _classes(state, pilot):
        keep, mine = _keep(state, cls), sum(1 for serial in window.granted.values() if serial == cls.serial)
        # Other sites have a right to the rest.
        share = int((cls.ready(MAX_WINDOW * 10) + mine) * slots / max(1, state.slots))
        each = max(0.001, (cls.base.mean or UNKNOWN) * cls.needs.cores)
        most = min(cls.ready(MAX_WINDOW * 10) - keep, share - mine, int(budget / each), WINDOW_STEP - len(leases))
        most = min(most, MAX_WINDOW - len(window.granted))
        most = min(
            most,
            state.accounting.may_start(
                cls.key.owner, pilot.site, cls.needs, mine + max(0, most), cls.expected, state.now
            )
            - mine,
        )
        if most <= 0:
            continue
        for array, element in _last_of(cls, most):
            lease = _grant(state, mesh, array, element, cls)
            size = len(codec.encode(lease))
            attempt = next(reversed(array.tasks[element].live))
            if size > MAX_WINDOW_LEASE or size > left:
                _release(state, attempt, "it is too large for a window")
                break
            left -= size
            budget -= each
            window.granted[attempt] = cls.serial
            leases.append(lease)
        if len(leases) >= WINDOW_STEP:
            break
    return leases


def _seconds(state: State, window: SiteWindow) -> float:
    total = 0.0
    for attempt in window.granted:
        live = _live(state, attempt)
        if live is not None:
            cls = state.queue.class_of(state.task_of(attempt).array)
            total += (cls.base.mean or UNKNOWN) * cls.needs.cores
    return total


def _classes(state: State, pilot: Pilot) -> Iterator[TaskClass]:
    """Classes of which a mesh may have tasks in its window, the last of each owner first."""
    for owner, queue in state.queue.owners.items():
        if not state.serves(pilot, owner) or not queue.order:
            continue
        able = eligibility_of(state, pilot, owner)
        for where in queue.order[: -MOST_CLASSES - 1 : -1]:
            cls = queue.classes[where.serial]
            if (
                cls.is_safe
                and not (cls.key.alone or cls.is_divisible or cls.needs.licences or cls.is_volatile)
                and cls in able
            ):
                yield cls


def _may_enter(array: Array) -> bool:
    """True if its tasks need nothing of the server to begin, and nothing else bounds them."""
    spec, blob = array.spec, "sha256:"
    is_bounded = spec.throttle is not None or array.bound is not None or array.sequence is not None
    payloads = (spec.function, spec.initializer, spec.finalizer, spec.modules, spec.stdin_data)
    return (
        is_open(array) and not is_bounded and spec.units is None and not array.run.kept and not spec.role
        and not any(text.startswith(blob) for text in payloads)
    )  # fmt: skip


def _last_of(cls: TaskClass, most: int) -> Iterator[tuple[Array, int]]:
    """Ready elements of a class to which nothing has happened, the last ones first."""
    count = 0
    for entry in nlargest(most + MOST_PASSED_OVER, cls.heap):
        array = entry.leasable.array
        if entry.leasable.element or not _may_enter(array):
            continue
        for low, high in reversed(array.todo.ranges()):
            for element in range(high - 1, low - 1, -1):
                if count >= most:
                    return
                is_large = bool(array.spec.calls) and array.spec.calls[element - array.first].startswith("sha256:")
                if _is_plain(array, element) and not is_large:
                    count += 1
                    yield array, element


def _is_plain(array: Array, element: int) -> bool:
    """True if a ready element is as its array says: it never ended or was lost, but may have been in a window before."""
    task = array.tasks.get(element)
    if task is None:
        return True
    has_history = task.special is not None or task.own is not None or task.retries > 0 or task.losses > 0
    return not has_history and element not in array.apart


def _grant(state: State, mesh: Mesh, array: Array, element: int, cls: TaskClass) -> Lease:
    """A task gets an attempt whose holder is the mesh; it takes no capacity and counts for nobody until it is begun."""
    run, task = array.run, state.task_at(array, element)
    array.take_todo(element, element + 1)
    array.count_live(1)
    task.number = max(task.number, run.base) + 1
    name = AttemptId(run.number, element, task.number, state.incarnation, run.nonce)
    live = Attempt(name, mesh_name(mesh), state.now)
    live.needs, live.orphaned = task.needs, math.inf
    task.live[name] = live
    state.orphans[name] = task
    advance(task, TaskState.LEASED)
    state.write_task(task)
    proof = make_proof(state.lease_key, live.pilot, str(name), 1)
    return altered(lease_of(array, live, state.state_dir, proof), require=cls.key.require, rank=cls.key.rank)


def _release(state: State, attempt: AttemptId, why: str) -> None:
    """A task that nobody began is ready again."""
    live = _live(state, attempt)
    if live is None:
        return
    task = state.task_of(attempt)
    state.drop_attempt(task, attempt)
    task.past[attempt] = live.pilot
    windowed = [name for name, holder in task.past.items() if holder.startswith(MESH)]
    for name in windowed[:-WINDOWS_KEPT]:
        del task.past[name]
    task.note = why if len(task.past) > 1 else task.note
    state.back_to_ready(task)


# --- what comes back
def note_silent(state: State, pilot: Pilot) -> None:
    """A pilot is lost by its silence: it may live, and go on with the window of its mesh."""
    window, allocation = state.windows.get(mesh_of(pilot)), str(pilot.tags.get(ALLOCATION_TAG, ""))
    if window is not None and pilot.mesh and allocation not in window.ended:
        window.silent[pilot.name] = Silent(state.now, allocation)
        window.alone_since = min(window.alone_since, pilot.seen)


def note_lost(state: State, pilot: Pilot) -> None:
    """A member is given up. If that was while its site was alone, others have its reports, and deliver them two beats after
    they met the server again [promise I18]: until then nobody knows what of the window is done."""
    window = state.windows.get(mesh_of(pilot))
    if window is not None and pilot.mesh and window.closing and math.isfinite(window.alone_since):
        window.copies_until = state.now + COPIES_BEATS * state.timing.beat


def note_back(state: State, pilot: Pilot) -> None:
    """A pilot registered that was another before."""
    window = state.windows.get(mesh_of(pilot))
    for name in pilot.former if window is not None else ():
        assert window is not None
        window.silent.pop(name, None)


def look_after(state: State) -> None:
    """Take back what nobody can begin any more; have leaders ask whose windows have to give something back."""
    for mesh, window in list(state.windows.items()):
        without_leader(state, mesh, window)
        if not window.closing:
            _forget(state, window)
        if (window.closing or window.adopted) and _is_settled(state, mesh, window):
            closing, window.closing = list(window.closing), {}
            released = [attempt for attempt in closing if _live(state, attempt) is not None]
            for attempt in released:
                _release(state, attempt, "its site did not begin it")
            window.silent.clear()
            state.emit(
                "site_back",
                pilot=state.pilots.get(window.pilot),
                owner=mesh[1],
                begun=window.adopted,
                released=len(released),
                site=mesh[0],
                since=window.alone_since if window.adopted and math.isfinite(window.alone_since) else None,
                until=window.back_at if window.adopted else None,
            )
            window.adopted, window.back_at, window.alone_since = 0, 0.0, math.inf
        leader = state.pilots.get(window.pilot)
        if leader is not None and leader.parked is not None and state.now >= window.pressed_at + LOOK_EVERY:
            window.pressed_at = state.now
            if leader.seq > window.sent and (window.may_grow or _surplus(state, window)):
                unpark(state, leader)
        if not (window.closing or window.granted or window.leaving or window.adopted) and mesh not in state.meshes:
            del state.windows[mesh]


def _forget(state: State, window: SiteWindow) -> None:
    """Forget pilots that ended, and those of which nothing was heard for so long that their right is over."""
    for names in (window.told, window.spoken):
        for name in [name for name in names if name not in state.pilots]:
            del names[name]
    for name in [name for name, one in window.silent.items() if state.now >= one.since + WINDOW_HELD]:
        del window.silent[name]
    if not (window.silent or window.adopted):
        window.alone_since = math.inf  # nobody is missed any more: what comes is of another absence


def _is_settled(state: State, mesh: Mesh, window: SiteWindow) -> bool:
    """True if it is known of all tasks of former windows whether somebody began them, or nothing will be known."""
    living = list(members(state, mesh))
    if living and state.now < max(_guests_until(state), window.copies_until):
        return False
    if any(pilot.name not in window.spoken and _is_led(window, pilot) for pilot in living):
        return False
    if not living and any(site == mesh[0] for name, (site, _) in _unheard(state).items()):
        return False
    first = min((one.since for one in window.silent.values()), default=math.inf)
    if sum(pilot.joined <= first or bool(pilot.former) for pilot in living) > len(window.silent):
        return True  # the others are no majority of those who knew the window, which alone could begin more
    return all(state.now >= one.since + WINDOW_HELD or _has_ended(state, mesh, one) for one in window.silent.values())


def _guests_until(state: State) -> float:
    """Until when after a restart pilots may come of which this server has never heard, with tasks that they began."""
    quarantine = state.timing.quarantine
    return state.quarantine_until - quarantine + min(GUESTS_WITHIN, quarantine) if state.quarantine_until else 0.0


def _is_led(window: SiteWindow, pilot: Pilot) -> bool:
    return bool(window.leadership.id) or not pilot.is_reconciled


def _unheard(state: State) -> dict[str, Mesh]:
    """Pilots that have yet to say what they hold after a restart."""
    return {name: mesh_of(state.pilots[name]) for name in state.unreconciled if name in state.pilots}


def _has_ended(state: State, mesh: Mesh, silent: Silent) -> bool:
    """True if the batch system of a site has said since then that no allocation of it runs; of a pilot that was started by hand
    it knows nothing."""
    found = dict(valid_reports(state, mesh[1])).get(mesh[0])
    return bool(silent.allocation) and found is not None and found.time > silent.since and not found.status.running


def next_look(state: State) -> float | None:
    """When the silence of a site is over."""
    times = [
        one.since + WINDOW_HELD for window in state.windows.values() if window.closing for one in window.silent.values()
    ]
    closing = [window for window in state.windows.values() if window.closing]
    times += [max(_guests_until(state), window.copies_until) for window in closing]
    return min((time for time in times if time > state.now), default=None)
