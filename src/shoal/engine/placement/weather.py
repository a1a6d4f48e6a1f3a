"""The weather of sites as the engine sees it: observed each minute from pilots and reports, kept for each holder of pilots
[SPHINX S7; ADR 0057]. Nothing of it is durable; nobody's pilots change what others see of a site."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_WEATHERS
from shoal.sched.placement.weather import Weather
from shoal.wire.http.requests import SiteStatus

MEGA = 1 << 20
MOST_OF_A_TAG = 1e15  # what pilots say is not checked: sums of larger numbers may leave the range of floats


def weather_at(weathers: OrderedDict[tuple[str, str], Weather], holder: str, site: str) -> Weather:
    """The weather of a site, by the pilots of one holder. Of too many the one that was longest not seen is forgotten."""
    key = (holder, site)
    found = weathers.get(key)
    if found is None:
        found = weathers[key] = Weather()
        if len(weathers) > MAX_WEATHERS:
            weathers.popitem(last=False)
    else:
        weathers.move_to_end(key)
    return found


def observe(state: State) -> None:
    """Observe all sites; it is time EVERY so many seconds."""
    state.observed = state.now
    at_sites: dict[tuple[str, str], list[Pilot]] = {}
    for pilot in state.pilots.values():
        at_sites.setdefault((pilot.holder, pilot.site), []).append(pilot)
    for (owner, site), report in state.site_reports.items():
        seen = weather_at(state.weathers, owner, site)
        seen.note("waiting", state.now, float(report.status.queued))
        seen.note("free_slots", state.now, report.status.free_slots)
        if (owner, site) not in at_sites:
            seen.note("running", state.now, 0.0)
            seen.note("free", state.now, 0.0)
    for (holder, site), pilots in at_sites.items():
        seen = weather_at(state.weathers, holder, site)
        free = sum(max(0, pilot.free.cores) for pilot in pilots if not pilot.draining)
        seen.note("running", state.now, float(sum(pilot.room.cores - max(0, pilot.free.cores) for pilot in pilots)))
        seen.note("free", state.now, float(free))
        seen.note("speed", state.now, _mean(1.0 / pilot.pace for pilot in pilots if pilot.proven))
        seen.note("bandwidth", state.now, _mean(1e6 / 8 * speed for speed in _tags(pilots, "bandwidth_mbps")))
        seen.note("round_trip", state.now, _mean(lag / 1e3 for lag in _tags(pilots, "lag_ms")))
        seen.note("storage", state.now, _storage(pilots))
        seen.note_failures(state.now)


def _mean(values: Iterable[float]) -> float | None:
    found = [value for value in values if value >= 0.0]
    return fmean(found) if found else None


def _tags(pilots: Iterable[Pilot], name: str) -> list[float]:
    found = (pilot.tags.get(name) for pilot in pilots)
    numbers = (value for value in found if isinstance(value, (int, float)) and not isinstance(value, bool))
    return [float(value) for value in numbers if abs(value) <= MOST_OF_A_TAG]


def _storage(pilots: Iterable[Pilot]) -> float | None:
    """What is free on the disks of the hosts; pilots of one host share them."""
    by_host: dict[str, float] = {}
    for pilot in pilots:
        for value in _tags((pilot,), "disk_available_mb"):
            by_host[pilot.host] = max(by_host.get(pilot.host, 0.0), value * MEGA)
    return sum(by_host.values()) if by_host else None


def note_changes(state: State, owner: str, site: str, status: SiteStatus) -> None:
    """Take from a report how long pilots waited that have started."""
    if status.is_removed:
        state.weathers.pop((owner, site), None)
        return
    seen = weather_at(state.weathers, owner, site)
    for change in status.changes:
        if change.change == "submitted":
            seen.submitted[change.name] = state.now
            if len(seen.submitted) > MAX_WEATHERS:
                seen.submitted.pop(next(iter(seen.submitted)))
        elif change.name in seen.submitted:
            since = seen.submitted.pop(change.name)
            if change.change == "started":
                seen.note("start_delay", state.now, state.now - since)


def weather_of(state: State, owner: str) -> dict[str, Weather]:
    """The sites that an owner may use: by their own pilots, else by those of their group."""
    group = state.groups.get(owner, "")
    found: dict[str, Weather] = {}
    for (holder, site), seen in state.weathers.items():
        is_group = holder.startswith("@") and (group == holder[1:] or group.startswith(f"{holder[1:]}."))
        if holder == owner or (is_group and site not in found):
            found[site] = seen
    return found


def weather_rows(state: State, owner: str) -> dict[str, Any]:
    """All of it in the types of JSON, by site. A site that was never seen is looked at now."""
    if any((pilot.holder, pilot.site) not in state.weathers for pilot in state.pilots.values()):
        observe(state)
    return {site: seen.rows() for site, seen in sorted(weather_of(state, owner).items())}
