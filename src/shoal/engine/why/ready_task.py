"""Why a ready task does not start: what keeps it from each pilot, and the nearest change that would help. The functions
that decide in matching are called here, so that the reason is always the true one.
"""

from __future__ import annotations

from shoal.engine.locality.holds import hold_of
from shoal.engine.locality.index import names_of
from shoal.engine.matching.choose_tasks import closed
from shoal.engine.matching.classes import TaskClass
from shoal.engine.matching.eligibility import static_misfit
from shoal.engine.matching.fit_now import holds_now, may_try, too_short
from shoal.engine.matching.pilot_attributes import (
    all_facts,
    attributes,
    local_values,
    lookup,
    static_facts,
    time_left,
)
from shoal.engine.pilots.site_reports import expected_machines
from shoal.engine.placement.preference import awaited_site, plan_text
from shoal.engine.planning import planning_text
from shoal.engine.records import Array, Pilot
from shoal.engine.state import State
from shoal.engine.tasks.kept_outputs import content_of
from shoal.engine.why.reason import NOT_VISIBLE, TOO_LARGE, Reason
from shoal.model.ids import run_text
from shoal.model.limits import POISON_LOSSES
from shoal.model.policy import INTERVAL
from shoal.model.quantities import first_of, many, show_duration, show_size
from shoal.model.states import UNACCEPTED
from shoal.model.task.spec import Needs
from shoal.sched.ban import Banned
from shoal.sched.expr.explain import explain
from shoal.sched.expr.scalar import holds
from shoal.sched.fit import misfit, pairs
from shoal.wire.messages import Capacity

LOOKED_AT = 16  # pilots with capacity
START = "start one with `shoal pilot start`"


def why_ready(state: State, array: Array, element: int = 0) -> Reason:
    """Why nothing of an array, or one of its elements in a class of its own, has started."""
    run, spec = array.run, array.spec
    if text := planning_text(run):
        fix = f"`shoal accept {run_text(run.number)}`" if run.plan is not None and run.plan.stage == UNACCEPTED else ""
        return Reason("planning", text, fix)
    if not array.accepted:
        return Reason("not_durable", "its submission is on its way to the disk", "nothing to do, it goes on by itself")
    shut = closed(state)
    if shut and state.disk_full:
        return Reason("disk_full", shut, "free some space there, for example with `shoal prune`; it goes on by itself")
    if shut:
        return Reason("quarantine", shut, "nothing to do, it goes on by itself")
    if array.throttled:
        text = f"{many(array.live, 'task')} of this array run, its limit is {spec.throttle}"
        return Reason("array_limit", text, "raise the number behind %")
    if spec.category is not None and (bound := array.bound) is not None and bound.taken >= bound.most:
        text = f"{many(bound.taken, 'task')} of category {spec.category.name} run, its limit is {bound.most}"
        return Reason(
            "category_limit", text, "wait for one to end, or submit with a larger limit (MAXJOBS in a .dag file)"
        )
    if run.bound is not None and run.bound.left <= 0:
        text = f"{many(run.bound.taken, 'task')} of this run run, its limit is {run.bound.most}"
        return Reason("run_limit", text, "wait for one to end, or submit with a larger max_running (-j, max_workers)")
    cls = state.queue.class_of(array, element if element in array.apart else 0)
    pilots = [p for p in state.pilots.values() if state.serves(p, run.owner)]
    if not pilots:
        machines = expected_machines(state, run.owner, cls.key.site)
        if machines:
            return Reason("provisioning", f"no pilot is connected yet; {machines}", "see `shoal site list`")
        because = f": {state.trouble}" if state.trouble and state.keeper in ("", run.owner) else ""
        return Reason("no_pilot", f"no pilot is connected{because}", START)
    taking = [p for p in pilots if not p.draining]
    if not taking:
        return Reason("pilots_ending", f"every pilot is ending ({pilots[0].draining})", START)
    if all(p.unfit for p in taking):
        text = f"no pilot can take it just now: {taking[0].unfit}"
        return Reason("pilots_unfit", text, "make room there; pilots come back by themselves")
    able = [p for p in taking if static_misfit(p, cls) is None]
    fitting = [p for p in able if _may_require(state, p, cls)]
    if not fitting:
        if cls.key.site and not any(p.site in cls.key.site.split(",") for p in taking):
            return _absent(state, cls)
        if any(_is_avoided(state, p, cls) for p in taking):
            where = [*cls.key.avoid, *(f"site {site}" for site in cls.key.avoid_sites)]
            return Reason(
                "tried_elsewhere",
                f"it failed on {', '.join(where)} and is tried elsewhere, but no other pilot can run it",
                "start a pilot on another host; it goes back if none is left",
            )
        blind = [p for p in taking if cls.key.visible in p.blind and misfit(cls.needs, p.room) is None]
        if blind and not able:
            return _not_visible(blind, cls)
        lack = _unwanted(state, able, len(taking), cls) if able else _too_small(taking, cls)
        machines = expected_machines(state, run.owner, cls.key.site)
        return Reason("provisioning", f"{lack.text}; {machines}", lack.fix) if machines else lack
    accounting = state.accounting
    free = [p for p in fitting if accounting.may_start(run.owner, p.site, cls.needs, 1, cls.expected, state.now) > 0]
    return _policy(state, fitting, free, cls) or _moment(state, free, len(fitting) - len(free), cls, array, element)


# --- what no pilot is
def _absent(state: State, cls: TaskClass) -> Reason:
    """None is at a site that it asks for."""
    text = f"it asks for site {cls.key.site.replace(',', ' or ')}, and no pilot of it is connected"
    machines = expected_machines(state, cls.key.owner, cls.key.site)
    if machines:
        return Reason("provisioning", f"{text} yet; {machines}", "see `shoal site list`")
    return Reason("cannot_run", text, "see `shoal site list`; add it with `shoal site add`, or leave --site out")


def _too_small(taking: list[Pilot], cls: TaskClass) -> Reason:
    """None is large enough, or knows how to run it."""
    roomy = [p for p in taking if misfit(cls.needs, p.room) is None]
    if roomy:
        lacks = sorted({static_misfit(p, cls) or "" for p in roomy})
        fix = "install one there, or start a pilot where there is one"
        return Reason("cannot_run", f"no pilot can run it: {lacks[0]}", fix)
    best = max(taking, key=lambda p: (_nearly(cls.needs, p.room), p.room.cores, p.room.memory))
    return Reason(
        TOO_LARGE,
        f"no pilot is large enough: it {misfit(cls.needs, best.room)} "
        f"(the nearest of {len(taking)}, {best.name} on {best.host} of site {best.site})",
        "ask for less, or start a larger pilot",
    )


def _not_visible(blind: list[Pilot], cls: TaskClass) -> Reason:
    """It needs the submitter's files, and those pilots that are large enough do not see them."""
    paths = " and ".join(view.path for view in cls.key.visible)
    where = first_of(sorted({p.host for p in blind}), 4)
    return Reason(
        NOT_VISIBLE,
        f"no pilot sees {paths} as you do: {many(len(blind), 'pilot')} looked ({where})",
        "start a pilot that shares your files, and may write where you may, with `shoal pilot start`, or let it run in a "
        "directory of its own: --cwd own, without files of yours",
    )


def _nearly(needs: Needs, room: Capacity) -> float:
    """What part of its needs fits, by what lacks most."""
    return min(has / wants for wants, has in pairs(needs, room) if wants)


def _is_avoided(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Could the pilot run it, had it not failed on its host?"""
    is_avoided = pilot.host in cls.key.avoid or pilot.site in cls.key.avoid_sites
    return is_avoided and misfit(cls.needs, pilot.room) is None and _may_require(state, pilot, cls)


def _may_require(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Does its requirement hold, as far as it does not depend on the moment?"""
    if cls.require is None or cls.is_volatile:
        return True
    return holds(cls.require, lookup(state, pilot, cls.key.owner), attributes(state, cls.key))


def _unwanted(state: State, pilots: list[Pilot], all_pilots: int, cls: TaskClass) -> Reason:
    """Its requirement holds on no pilot: clause by clause, and the smallest change by which it would."""
    assert cls.require is not None
    known = sorted({name for pilot in pilots for name in static_facts(pilot)})
    looks = [lookup(state, pilot, cls.key.owner, cls) for pilot in pilots]
    explained = explain(cls.require, looks, attributes(state, cls.key), known)
    failing = [clause for clause in explained.clauses if clause.reason]
    text = "; ".join(
        f"`{clause.text}` holds on {clause.passing} of {many(explained.pilots, 'pilot')} ({clause.reason})"
        + (f", without it {clause.without} would match" if clause.without else "")
        for clause in failing[:4]
    )
    fix = (
        f"{explained.nearest.text}: require = '{explained.nearest.require}'" if explained.nearest is not None else START
    )
    if explained.nearest is not None and not explained.nearest.require:
        fix = f"{explained.nearest.text}: leave `require` out"
    large = " that is large enough" if len(pilots) < all_pilots else ""
    return Reason("requirement", f"its requirement holds on no pilot{large}: {text}", fix)


# --- policy
def _policy(state: State, pilots: list[Pilot], open_sites: list[Pilot], cls: TaskClass) -> Reason | None:
    """Licences, quotas and bans that keep it from every pilot it fits on; `open_sites`: pilots where it may start."""
    accounting, owner, needs = state.accounting, cls.key.owner, cls.needs
    for name, each in needs.licences:
        has, used = accounting.policy.licences.get(name, 0), accounting.licences.get(name, 0)
        if has < each:
            known = ", ".join(sorted(accounting.policy.licences)) or "none"
            return Reason(
                "no_licence",
                f"it needs {many(each, 'licence')} {name}, the server has {has} (known: {known})",
                f"an administrator adds it: [licences] {name} = {each} in `shoal policy apply`",
            )
        if used + each > has:
            text = f"all licences {name} are in use: {used} of {has}"
            return Reason("licences_in_use", text, "wait, or have more of them counted")
    if not open_sites:
        site = pilots[0].site
        block = accounting.ledger.blocks(owner, site, needs.cores, cls.expected, state.now)
        if block is None:
            most = accounting.policy.match.max_running
            there = many(accounting.running.get(site, 0), "task")
            return Reason(
                "site_full",
                f"site {site} is full: {there} of at most {most} there (match.max_running)",
                "wait, or have it raised with `shoal policy apply`",
            )
        left = f"; lifted in {show_duration(block.lifted - state.now)} at the latest" if block.lifted else ""
        return Reason(
            "over_quota",
            f"over quota: {block.text}{left}",
            "wait, ask for less, or have it raised: `shoal quota list` shows it, `shoal quota set` changes it",
        )
    bans = {p.name: widest_ban(state, p) for p in open_sites}
    if all(bans.values()):
        ban = min((b for b in bans.values() if b is not None), key=lambda b: b.until)
        if ban.probing:
            text = f"{ban.kind} {ban.name} was banned ({ban.reason}) and is on trial with one task"
            return Reason("on_trial", text, "wait")
        return Reason(
            "banned",
            f"every fitting pilot is banned: {ban.kind} {ban.name} for {show_duration(ban.until - state.now)} "
            f"({ban.reason})",
            "start a pilot on another host, or see to that one: one task is tried there when the ban is over",
        )
    return None


def widest_ban(state: State, pilot: Pilot) -> Banned | None:
    """The ban that keeps work from a pilot; that of its host or site, where it is no shorter than the pilot's own."""
    own = state.ban_of(pilot)
    evidence = state.accounting.evidence.get(pilot.holder)
    wide = evidence.places.verdict("", pilot.host, pilot.site, state.now) if evidence is not None else None
    return wide if own is not None and wide is not None and wide.until >= own.until else own


# --- the moment
def _moment(state: State, pilots: list[Pilot], over_quota: int, cls: TaskClass, array: Array, element: int) -> Reason:
    """Time left, silence, doubts, data and free room on pilots where it may start; so many others are at a limit."""
    good = [p for p in pilots if state.ban_of(p) is None]
    long = [p for p in good if p.ends is None or not too_short(state, p, cls)]
    if not long:
        lasts = cls.key.time if cls.key.time is not None else cls.base.p95 or 0.0
        left = max(time_left(state, p) for p in good)
        stated = "may take" if cls.key.time is not None else "took, of its like,"
        return Reason(
            "pilot_time",
            f"no pilot lives long enough: it {stated} {show_duration(lasts)}, the longest has {show_duration(left)} left",
            "state a shorter `time`, or start a pilot that lives longer",
        )
    quiet = [p for p in long if p.suspect]
    if len(quiet) == len(long):
        text = f"every fitting pilot is silent ({len(long)})"
        return Reason("silent", text, "they are given up after the lease time, or come back")
    trusted = [p for p in long if not p.suspect and may_try(state, p, cls)]
    if not trusted:
        return Reason(
            "host_in_doubt",
            "its like failed several times in a row there, and another host shall show whose fault it is",
            "wait a minute, or see `shoal logs` of those that failed",
        )
    held = [p for p in trusted if holds_now(state, p, cls)]
    if not held:
        facts = {**all_facts(state, trusted[0]), **local_values(state, trusted[0], cls)}
        now = ", ".join(f"{name} = {facts.get(name)!r}" for name in sorted(cls.names & set(facts)))
        text = f"its requirement does not hold anywhere at the moment ({trusted[0].name}: {now})"
        return Reason("requirement_now", text, "wait")
    roomy = [p for p in held if misfit(cls.needs, p.free) is None]
    if cls.key.alone and not any(p.held == 0 for p in roomy):
        cleared = next((f" by {p.name}" for p in held if p.cleared_for is not None), "")
        return Reason(
            "must_be_alone",
            f"{POISON_LOSSES - 1} pilots or more were lost that held it, so its next try must be alone on a pilot; it waits "
            f"until one is cleared{cleared}",
            "nothing to do; what else the pilot holds ends first",
        )
    kept = {found.pilot for owner, found in state.reservations.items() if owner != cls.key.owner}
    if roomy and all(p.name in kept for p in roomy):
        text = "the only free room is kept for a task that needs more of it, and whose turn it is"
        return Reason("capacity_reserved", text, "wait")
    waits = _waits_for_data(state, roomy, cls, array, element or array.todo.first()) if roomy else None
    if waits is not None:
        return waits
    placed = _waits_for_site(state, roomy, cls) if roomy and state.placed is not None else None
    if placed is not None:
        return placed
    if roomy:
        rule = state.accounting.policy.match
        if rule.mode == INTERVAL:
            left = max(0.0, state.last_round + rule.interval - state.now)
            last = f" (the last one: {state.assigned})" if state.assigned else ""
            text = f"a pilot has room; the next round of matching is in {show_duration(left)}{last}"
            return Reason("next_round", text, "nothing to do")
        return Reason("next_exchange", "a pilot has room and takes it with its next exchange", "nothing to do")
    cores, running = sum(p.room.cores for p in held), sum(p.held for p in held)
    others = f"; a limit keeps it from {many(over_quota, 'other pilot')}" if over_quota else ""
    machines = expected_machines(state, cls.key.owner, cls.key.site)
    others += f"; {machines}" if machines else ""
    planned = plan_text(state, cls)
    others += f"; {planned}" if planned else ""
    return Reason(
        "busy",
        f"all slots are busy: {many(running, 'task')} on {many(cores, 'core')} of {many(len(held), 'pilot')}{others}",
        "wait, or start more pilots with `shoal pilot start`",
    )


def _waits_for_site(state: State, pilots: list[Pilot], cls: TaskClass) -> Reason | None:
    """It is kept from every pilot that has capacity, but for those at the site that the plan directs it to."""
    found = {pilot.site: awaited_site(state, pilot, cls) for pilot in pilots[:LOOKED_AT]}
    awaited = {site for site in found.values() if site is not None}
    if not awaited or any(wait is None and site not in awaited for site, wait in found.items()):
        return None
    text = f"it is kept for a free slot at {', '.join(sorted(awaited))} for a moment: {plan_text(state, cls)}"
    return Reason("placed_elsewhere", text, "nothing to do; [placement] in the policy says how tasks are directed")


def _waits_for_data(state: State, pilots: list[Pilot], cls: TaskClass, array: Array, element: int) -> Reason | None:
    """It is kept from every pilot that has capacity, for one that has its inputs."""
    inputs = array.inputs
    if inputs is None or not state.data.located:
        return None
    holds = {pilot.name: hold_of(state, pilot, cls, array, element) for pilot in pilots[:LOOKED_AT]}
    waits = [one for one in holds.values() if one is not None]
    awaited = {one.pilot for one in waits}
    if not waits or any(one is None and name not in awaited for name, one in holds.items()):
        return None
    longest = max(waits, key=lambda one: one.seconds)
    holder = state.pilots[longest.pilot]
    cache = state.data.cache_of(holder)
    pinned = [file for file in inputs.of(element) if cache is not None and cache in file.caches]
    largest = max(pinned, key=lambda file: file.bytes)
    name = next((name for name in names_of(array, element) if content_of(array)[name].startswith(largest.digest)), "")
    text = (
        f"it waits up to {show_duration(longest.seconds)} for {holder.name} ({holder.host}), which has "
        f"{show_size(longest.bytes)} of its inputs"
    )
    text += f", {name} above all" if len(pinned) > 1 else f": {name}"
    return Reason(
        "waits_for_data", text, "nothing to do; `wait` in the [data] table of the policy says how long tasks wait"
    )
