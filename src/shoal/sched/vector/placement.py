"""The linear program of placement: find x where A x >= b subject to min f(x) [SPHINX policy; ADR 0057].

x[k, s] is how many tasks of a kind are directed to a site. With it are found how much work is left to cores that have to be
asked for at each site, the time `end` at which everything that is directed has ended, and the load of the fullest site.
The rows of A: every task goes somewhere, unless a quota leaves no place for it; what a site is given it does until `end`,
with the cores that it has from `start` on and those that are asked for from `delay` on; quotas hold all the while. f is an
`Objective`, linear and exchangeable.

HiGHS solves it, by scipy (the extra `shoal[placement]`), which is loaded when the first plan is made. Without it `greedy`
gives tasks out in pieces, the longest first, each to where f grows least.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple

import numpy as np

from shoal.sched.placement.question import NOWHERE, OBJECTIVES, Limit, Plan, Question, work_of
from shoal.sched.vector.slots import Floats

HIGHS, GREEDY = "linear program (HiGHS)", "greedy, in pieces"
MOST_SECONDS = 5.0  # of one solution
PIECES = 8  # of each kind that `greedy` gives out
UNPLACED = 1e3  # how much worse than the worst place it is to leave a task without one
TIDY = 1e-3  # weight of the work itself beside the end: among equal ends the one with the least transfer
ROUNDS = 3  # solutions, each without sites that could only come too late
DUST = 1e-6  # tasks below this are none


class Objective(NamedTuple):
    """f(x), which is minimised: end * seconds until the end + sum of cost * x + balance * load of the fullest site."""

    end: float
    cost: Floats  # of directing one task, by kind and site
    balance: float  # the load is work over all cores there are or may be asked for: seconds


Objectives = Callable[[Question, Floats], Objective]  # of a question and the work of one task, by kind and site


def completion_time(question: Question, work: Floats) -> Objective:
    """Everything ends as soon as possible, with as little work beside as that allows."""
    return Objective(1.0, TIDY * _finite(work) / _cores(question), 0.0)


def price(question: Question, work: Floats) -> Objective:
    """As cheap as possible, by the price of a core second at each site; of equal prices the one that ends sooner."""
    prices = np.array([place.price for place in question.places])
    return Objective(TIDY, _finite(work) * prices, 0.0)


def balance(question: Question, work: Floats) -> Objective:
    """All sites are loaded alike, for what they have or may bring."""
    return Objective(TIDY, TIDY * _finite(work) / _cores(question), 1.0)


OBJECTIVE_FUNCTIONS: dict[str, Objectives] = dict(zip(OBJECTIVES, (completion_time, price, balance), strict=True))


class _Tables(NamedTuple):
    """A question as arrays."""

    tasks: Floats
    work: Floats  # of one task, by kind and site; inf: it cannot run there
    cores: Floats
    start: Floats
    more: Floats
    delay: Floats
    first: Floats  # when the part of a site's cores begins that begins first, and the other part
    then: Floats
    first_cores: Floats
    then_cores: Floats

    @property
    def everything(self) -> Floats:
        """Cores that each site has or may bring."""
        return np.maximum(self.cores + self.more, DUST)


def plan(question: Question, objective: Objectives = completion_time, solver: str = "") -> Plan:
    """The best placement by an objective. `solver`: HIGHS or GREEDY; empty: the first, where scipy is installed."""
    tables = _tables(question)
    if not len(tables.tasks) or not len(tables.cores):
        return Plan({}, {}, 0.0, "nothing to plan")
    function = objective(question, tables.work)
    best = None
    if solver != GREEDY:
        try:
            from scipy.optimize import linprog  # type: ignore[import-untyped]
        except ImportError:
            if solver == HIGHS:
                raise
        else:
            best = _solve(question, tables, function, linprog)
    if best is None:
        return _answer(question, tables, greedy(question, tables, function), GREEDY)
    return _answer(question, tables, best, HIGHS)


def value_of(question: Question, objective: Objectives, found: Plan) -> float:
    """f of a plan, with what it leaves without a place: for comparisons."""
    tables = _tables(question)
    function = objective(question, tables.work)
    x = _matrix(question, found)
    left = float((tables.tasks - x.sum(axis=1)).clip(0.0).sum())
    load, everything = _loads(x, tables.work), tables.everything
    total = function.end * _end_of(tables, load) + float((function.cost * x).sum())
    return total + function.balance * float((load / everything).max()) + left * _penalty(tables, function)


# --- arrays
def _tables(question: Question) -> _Tables:
    places = question.places
    work = np.array([[work_of(kind, place) for place in places] for kind in question.kinds], float)
    work = work.reshape(len(question.kinds), len(places))
    usable = np.array([place.cores + place.more > 0 for place in places], bool)
    work[:, ~usable] = NOWHERE
    cores, more = np.array([place.cores for place in places], float), np.array([place.more for place in places], float)
    start, delay = (
        np.array([place.start for place in places], float),
        np.array([place.delay for place in places], float),
    )
    begin = np.stack((np.where(cores > 0, start, np.inf), np.where(more > 0, delay, np.inf)))
    order, both = np.argsort(begin, axis=0), np.stack((cores, more))
    begin, both = np.take_along_axis(begin, order, 0), np.take_along_axis(both, order, 0)
    tasks = np.array([kind.tasks for kind in question.kinds], float)
    return _Tables(tasks, work, cores, start, more, delay, begin[0], begin[1], both[0], both[1])


def _finite(work: Floats) -> Floats:
    return np.where(np.isfinite(work), work, 0.0)


def _cores(question: Question) -> float:
    return max(1.0, sum(place.cores + place.more for place in question.places))


def _loads(x: Floats, work: Floats) -> Floats:
    loads: Floats = (x * _finite(work)).sum(axis=0)
    return loads


def _penalty(tables: _Tables, function: Objective) -> float:
    """What it costs to leave a task without a place: more than any place."""
    longest = float(_finite(tables.work).max(initial=0.0))
    return UNPLACED * (
        1.0 + (function.end + function.balance) * longest + float(np.abs(function.cost).max(initial=0.0))
    )


def _site_ends(tables: _Tables, load: Floats) -> Floats:
    """Seconds until each site has done its load; 0 where it has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = tables.first + load / tables.first_cores
        shared = tables.first_cores * tables.first + np.where(
            tables.then_cores > 0, tables.then_cores * tables.then, 0.0
        )
        ends = np.where(ends <= tables.then, ends, (load + shared) / (tables.first_cores + tables.then_cores))
    return np.where(load > DUST, ends, 0.0)


def _end_of(tables: _Tables, load: Floats) -> float:
    return float(_site_ends(tables, load).max(initial=0.0))


# --- without scipy
def greedy(question: Question, tables: _Tables, function: Objective, pieces: int = PIECES, sweeps: int = 2) -> Floats:
    """Tasks by kind and site: pieces of each kind, those with the fewest sites and the most work first, go to where the
    objective grows least; in further sweeps each kind is taken out and given out anew."""
    x, load, everything = np.zeros(tables.work.shape), np.zeros(len(tables.cores)), tables.everything
    covered = [_mask(limit.kinds, len(question.kinds)) for limit in question.limits]
    sites = np.isfinite(tables.work).sum(axis=1)
    least = np.where(sites > 0, tables.work.min(axis=1, initial=NOWHERE), 0.0)
    order = np.lexsort((-np.where(sites > 0, least, 0.0) * tables.tasks, sites))
    finite = _finite(tables.work)
    for _ in range(sweeps):
        for kind in order:
            if not sites[kind]:
                continue
            load = load - x[kind] * finite[kind]
            x[kind] = 0.0
            end, full, left = _end_of(tables, load), float((load / everything).max()), tables.tasks[kind]
            never = ~np.isfinite(tables.work[kind])
            while left > DUST:
                piece = min(left, max(1.0, tables.tasks[kind] / pieces))
                after = load + piece * finite[kind]
                ends, filled = _site_ends(tables, after), after / everything
                grows = piece * function.cost[kind] + function.end * (np.maximum(ends - end, 0.0) + TIDY * ends)
                grows += function.balance * (np.maximum(filled - full, 0.0) + TIDY * filled)
                grows[never] = np.inf
                for mask, limit in zip(covered, question.limits, strict=True):
                    if mask[kind]:
                        grows[_over(x[mask], finite[mask], limit, piece * finite[kind])] = np.inf
                best = int(np.argmin(grows))
                if not math.isfinite(grows[best]):
                    break
                x[kind, best] += piece
                load[best] = after[best]
                end, full, left = max(end, float(ends[best])), max(full, float(filled[best])), left - piece
    return x


def _mask(positions: tuple[int, ...], count: int) -> Any:
    found = np.zeros(count, bool)
    found[list(positions)] = True
    return found


def _over(x: Floats, work: Floats, limit: Limit, adds: Floats) -> Any:
    """The sites where so much more work would break a limit. A number of cores only lets the work take longer, which is not
    looked at here, unless it is none."""
    inside = _mask(limit.sites, len(adds))
    if limit.cores is not None and limit.cores <= 0:
        return inside
    if limit.core_seconds is None:
        return np.zeros(len(adds), bool)
    return inside & ((x * work)[:, inside].sum() + adds > limit.core_seconds)


# --- with scipy
def _solve(question: Question, tables: _Tables, function: Objective, linprog: Any) -> Floats | None:
    """The linear program; None if HiGHS finds no answer in time. A site that begins after the end is left out: of a rough
    answer at first, which is no earlier than the best."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]

    rough = greedy(question, tables, function, pieces=1, sweeps=1)
    bound = _end_of(tables, _loads(rough, tables.work)) * (1.0 + 1e-9) + DUST
    kinds, sites = tables.work.shape
    has_now, has_more = tables.cores > 0, tables.more > 0
    rows, columns = np.nonzero(np.isfinite(tables.work))
    if question.limits or function.end < 1.0:  # the best answer may end later than the rough one
        bound = np.inf
    best = None
    for _ in range(ROUNDS):
        now_open, more_open = has_now & (tables.start < bound), has_more & (tables.delay < bound)
        usable = (now_open | more_open)[columns]
        k, s = rows[usable], columns[usable]
        count, w = len(k), tables.work[k, s]
        # x, what is left without a place, work of the cores that are there, and of those asked for, the end, the fullest load
        at_left, at_now, at_more = count, count + kinds, count + kinds + sites
        at_end, at_full = at_more + sites, at_more + sites + 1
        cost = np.zeros(at_full + 1)
        cost[:count] = function.cost[k, s]
        cost[at_left:at_now] = _penalty(tables, function)
        cost[at_more:at_end] = TIDY * TIDY  # of equal answers the one that asks for less
        cost[at_end], cost[at_full] = function.end, function.balance
        equal = coo_array(
            (np.ones(count + kinds), (np.concatenate((k, np.arange(kinds))), np.arange(count + kinds))),
            shape=(kinds, len(cost)),
        )
        place = np.arange(sites)
        one = np.ones(sites)
        parts = [  # value, row, column
            (w, s, np.arange(count)), (-one, place, at_now + place), (-one, place, at_more + place),
            (one, sites + place, at_now + place), (-tables.cores * now_open, sites + place, np.full(sites, at_end)),
            (one, 2 * sites + place, at_more + place), (-tables.more * more_open, 2 * sites + place, np.full(sites, at_end)),
            (w, 3 * sites + s, np.arange(count)),
            (-tables.everything, 3 * sites + place, np.full(sites, at_full)),
        ]  # fmt: skip
        most = [np.zeros(sites), -tables.cores * tables.start * now_open, -tables.more * tables.delay * more_open,
                np.zeros(sites)]  # fmt: skip
        height = 4 * sites
        for limit in question.limits:
            inside = np.flatnonzero(np.isin(k, limit.kinds) & np.isin(s, limit.sites))
            for cores, seconds in ((limit.cores, None), (None, limit.core_seconds)):
                if cores is None and seconds is None:
                    continue
                parts.append((w[inside], np.full(len(inside), height), inside))
                if cores is not None:
                    parts.append((np.array([-cores]), np.array([height]), np.array([at_end])))
                most.append(np.array([seconds or 0.0]))
                height += 1
        upper = coo_array(
            (np.concatenate([part[0] for part in parts]),
             (np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts]))),
            shape=(height, len(cost)),
        )  # fmt: skip
        found = linprog(
            cost, A_ub=upper.tocsr(), b_ub=np.concatenate(most), A_eq=equal.tocsr(), b_eq=tables.tasks,
            bounds=(0, None), method="highs", options={"time_limit": MOST_SECONDS},
        )  # fmt: skip
        if found.x is None or found.status not in (0, 1):
            return best
        x = np.zeros(tables.work.shape)
        x[k, s] = found.x[:count]
        best = x
        # A site that is counted on although it gives nothing keeps the end at its own beginning: try without it.
        end, work_now, work_more = found.x[at_end], found.x[at_now:at_more], found.x[at_more:at_end]
        late = (now_open & (tables.start >= end - DUST) & (work_now < DUST)).any() or (
            more_open & (tables.delay >= end - DUST) & (work_more < DUST)
        ).any()
        if not late or end <= DUST:
            break
        bound = end - DUST
    return best


# --- the answer
def _matrix(question: Question, found: Plan) -> Floats:
    names = {place.name: at for at, place in enumerate(question.places)}
    x = np.zeros((len(question.kinds), len(names)))
    for at, kind in enumerate(question.kinds):
        for site, count in found.directed.get(kind.name, {}).items():
            x[at, names[site]] = count
    return x


def _answer(question: Question, tables: _Tables, x: Floats, how: str) -> Plan:
    names = [place.name for place in question.places]
    directed = {}
    for at, kind in enumerate(question.kinds):
        row = x[at]
        if row.max(initial=0.0) > DUST:
            directed[kind.name] = {names[s]: float(row[s]) for s in np.flatnonzero(row > DUST)}
    load = _loads(x, tables.work)
    end = _end_of(tables, load)
    wanted = {}
    for at, place in enumerate(question.places):
        over = load[at] - place.cores * max(0.0, end - place.start)
        # Cores beyond one for each core of a task that is directed there would have nothing to do.
        most = sum(x[k, at] * max(1, kind.cores) for k, kind in enumerate(question.kinds))
        if place.more > 0 and over > DUST and end > place.delay:
            cores = over / (end - place.delay)
            wanted[place.name] = float(min(place.more, max(1.0, math.ceil(min(cores, most) - DUST))))
    return Plan(directed, wanted, end, how)
