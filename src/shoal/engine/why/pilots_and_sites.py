"""What a pilot, a site or an owner does, and why not more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shoal.engine.locality.kept import kept_of
from shoal.engine.matching.choose_tasks import closed
from shoal.engine.matching.eligibility import eligibility_of, static_misfit
from shoal.engine.pilots.mesh import peer_id
from shoal.engine.pilots.site_reports import VALID
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.why.ready_task import START, why_ready, widest_ban
from shoal.engine.why.reason import Reason
from shoal.model.policy import outward
from shoal.model.quantities import many, show_duration, show_size
from shoal.wire.http.requests import SiteStatus

SHOWN = 5  # reasons of one kind


NO_SPACE_FOR = 30.0  # seconds for which a refusal for want of space is believed: pilots try more often


def waits_for_space(pilot: Pilot, now: float) -> str:
    """Why what a pilot's tasks wrote cannot be kept now: the server has no space for it; empty if it has."""
    at, why = pilot.no_space
    return why if now - at < NO_SPACE_FOR else ""


def why_pilot(state: State, pilot: Pilot) -> list[Reason]:
    """What a pilot does, or why it does nothing; and what other pilots of its mesh say of it."""
    return [*_why_pilot(state, pilot), *_accusations(state, pilot)]


def _accusations(state: State, pilot: Pilot) -> list[Reason]:
    roster, id = state.meshes.get((pilot.site, pilot.holder)), peer_id(state, pilot.name)
    accusers = len(roster.accusers.get(id, ())) if roster is not None else 0
    if roster is None or not accusers:
        return []
    said = f"{many(accusers, 'other host')} of its site got files with wrong bytes from it"
    fix = "see to the memory and the disk of its host, then start it anew"
    if id in roster.shut_out:
        return [Reason("mesh_shut_out", f"{said}: none fetches files from it any more", fix)]
    return [Reason("mesh_accused", said, fix)]


def _why_pilot(state: State, pilot: Pilot) -> list[Reason]:
    if pilot.suspect:
        left = show_duration(max(0.0, state.timing.lease - (state.now - pilot.seen)))
        return [Reason("silent", f"silent for {show_duration(state.now - pilot.seen)}", f"it is given up in {left}")]
    if pilot.draining:
        text = f"it takes nothing new: {pilot.draining}; {many(pilot.held, 'attempt')} left"
        return [Reason("draining", text, "it ends by itself")]
    if pilot.unfit:
        text = f"it takes nothing just now: {pilot.unfit}"
        return [Reason("unfit", text, "make room there; it comes back by itself")]
    ban = widest_ban(state, pilot)
    if ban is not None:
        left = "it is on trial with one task" if ban.probing else f"for {show_duration(ban.until - state.now)} more"
        text = f"it gets nothing: {ban.kind} {ban.name} is banned {left} ({ban.reason})"
        fix = "see to the host; one task is tried there when the ban is over"
        return [Reason("on_trial" if ban.probing else "banned", text, fix)]
    if pilot.lone is not None:
        text = f"it holds {pilot.lone.text} alone: pilots that held it among others were lost"
        return [Reason("holds_alone", text)]
    if pilot.cleared_for is not None:
        text = f"it is cleared for {pilot.cleared_for}, which must be alone; {many(pilot.held, 'attempt')} left"
        return [Reason("cleared", text, "it goes on by itself")]
    if pilot.held:
        return [Reason("holds", f"it holds {many(pilot.held, 'attempt')} on {many(pilot.room.cores, 'core')}")]
    shut = closed(state)
    if shut:
        return [Reason("disk_full", shut) if state.disk_full else Reason("quarantine", shut)]
    kept = kept_of(state, pilot)
    if kept is None:
        return [_idle(state, pilot)]
    text = (
        f"it is kept without a task: alone at site {pilot.site} it has {many(kept.files, 'file')} ({show_size(kept.bytes)}) that "
        f"ready tasks read, for up to {show_duration(kept.seconds)}"
    )
    return [Reason("kept_for_data", text, "nothing to do, it goes on by itself"), _idle(state, pilot)]


def _idle(state: State, pilot: Pilot) -> Reason:
    lines = [line for line in state.queue.owners.values() if line.order and state.serves(pilot, line.owner)]
    ready = [line.classes[entry.serial] for line in lines for entry in line.order[:SHOWN]]
    ready = [cls for cls in ready if cls.head() is not None]
    if not ready:
        return Reason("no_task", "no task is ready", "submit some with `shoal run` or `shoal sweep`")
    lack: str | None = None
    for cls in ready:
        lack = static_misfit(pilot, cls)
        if lack is None and cls not in eligibility_of(state, pilot, cls.key.owner):
            lack = f"requires `{cls.key.require}`"
        if lack is None:
            head = cls.head()
            assert head is not None
            return Reason("task_waits", f"a task waits: {why_ready(state, head.array, head.element).text}")
    return Reason("no_task_fits", f"no ready task fits it: a task {lack}")


def why_site(state: State, site: str, pilots: list[Pilot], owners: Collection[str] | None = None) -> list[Reason]:
    """What the pilots of a site do, those that the asker may see; first what the provisioners of these owners report of it;
    None: of all."""
    reported = [
        reason
        for (owner, name), found in sorted(state.site_reports.items(), key=lambda item: item[0])
        if name == site and (owners is None or owner in owners) and state.now - found.time <= VALID
        for reason in _reported(found.status)
    ]
    if not pilots:
        fix = "nothing to do, it goes on by itself" if reported else START
        return [*reported, Reason("no_pilot", f"no pilot of site {site} is connected", fix)]
    return [*reported, *_why_pilots(state, site, pilots)]


def _reported(status: SiteStatus) -> list[Reason]:
    """What a provisioner says of a site."""
    found = []
    if status.trouble:
        found.append(Reason("site_trouble", f"{status.backend}: {status.trouble}", status.fix))
    if status.queued:
        why = f": {'; '.join(status.reasons)}" if status.reasons else ""
        found.append(Reason("site_queue", f"{many(status.queued, 'allocation')} in the queue of {status.backend}{why}"))
    if status.failure:
        found.append(Reason("site_failure", f"{status.backend}: {status.failure}", "see `shoal site show`"))
    if status.note:
        found.append(Reason("site_note", status.note))
    return found


def _why_pilots(state: State, site: str, pilots: list[Pilot]) -> list[Reason]:
    """What the pilots of a site do."""
    cores = sum(p.room.cores for p in pilots)
    held = sum(p.held for p in pilots)
    text = f"{many(len(pilots), 'pilot')} with {many(cores, 'core')} hold {many(held, 'attempt')}"
    reasons = [Reason("site_pilots", text)]
    for holder in sorted({p.holder for p in pilots}):  # other holders' pilots of that site are not shown
        evidence = state.accounting.evidence.get(holder)
        ban = evidence.places.verdict("", "", site, state.now) if evidence is not None else None
        if ban is not None:
            left = show_duration(max(0.0, ban.until - state.now))
            reasons.append(Reason("banned", f"the site is banned for {left} for pilots of {holder} ({ban.reason})"))
    seen: set[str] = set()
    for pilot in pilots:
        if pilot.held and state.ban_of(pilot) is None and not pilot.suspect and not pilot.draining:
            continue
        for reason in why_pilot(state, pilot):
            if reason.text not in seen and len(seen) < SHOWN:
                seen.add(reason.text)
                reasons.append(replace(reason, text=f"{pilot.name} on {pilot.host}: {reason.text}"))
    return reasons


def why_owner(state: State, owner: str) -> list[Reason]:
    """How much an owner has of what is due to them, their limits, and why their next task waits."""
    queued = sum(run.total - run.settled for run in state.runs.values() if run.owner == owner)
    running = sum(run.live for run in state.runs.values() if run.owner == owner)
    if not queued:
        fix = "submit something with `shoal run` or `shoal sweep`"
        return [Reason("nothing_queued", f"nothing of {owner} waits or runs", fix)]
    state.update_activity()
    text = f"{many(queued, 'task')} of {owner} are not final, {running} of them with pilots"
    reasons = [Reason("queued", text)]
    line = state.queue.owners.get(owner)
    active = [name for name, other in state.queue.owners.items() if other.order]
    if line is not None and line.order:
        due = state.accounting.tree.due(active, state.now).get(owner, 0.0)
        used = state.accounting.tree.usage(owner, state.now) / 3600.0
        share = state.accounting.policy.shares.get(owner, 1.0)
        text = f"share {share:g}: {due:.0%} of the cores are due to {owner} now, {used:.1f} core hours of use count"
        fix = "with share 0 it starts only what nobody else can use" if share == 0 else ""
        reasons.append(Reason("share", text, fix))
    groups = {f"@{name}" for name in outward(state.groups.get(owner, ""))}
    for standing in state.accounting.ledger.standings(state.now):
        if standing.open and standing.rule.who in {"*", owner, *groups} and standing.used >= standing.limit:
            text = f"at a limit: {standing.kind} {standing.used:g} of {standing.limit:g} ({standing.rule.describe()})"
            reasons.append(Reason("at_limit", text, "wait, or have it raised with `shoal quota set`"))
    if line is not None and line.order:
        head = line.classes[line.order[0].serial].head()
        if head is not None:
            reason = why_ready(state, head.array, head.element)
            reasons.append(replace(reason, text=f"its next task: {reason.text}"))
    return reasons
