"""The attributes of a pilot that expressions read: the tags it sent, those its tasks published, and the server's own facts,
which override them, so that no pilot can seem larger than it registered [GWP G3, G4, table 2]."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shoal.engine.locality.shortlist import data_of
from shoal.engine.matching.classes import DATA_LOCAL, VOLATILE, TaskClass
from shoal.engine.records import ClassKey, Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_TASK_TAG, MAX_TASK_TAGS
from shoal.model.quantities import many
from shoal.sched.expr.tree import UNDEFINED, Value
from shoal.wire.messages import Published, TagValue

MEGA = 1 << 20
ENDLESS = 1e9  # seconds that a pilot without a known end has left
STATIC = ("pilot", "host", "site", "owner", "group", "slots", "cores", "memory_mb", "disk_mb", "gpus")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def static_facts(pilot: Pilot) -> dict[str, TagValue]:
    """What does not change while the pilot works; kept until its tags change."""
    if pilot.facts is None:
        room = pilot.room
        pilot.facts = {
            **pilot.tags, "pilot": pilot.name, "host": pilot.host, "site": pilot.site, "owner": pilot.owner,
            "group": pilot.group, "slots": room.cores, "cores": room.cores, "memory_mb": room.memory // MEGA,
            "disk_mb": room.disk // MEGA, "gpus": room.gpus,
        }  # fmt: skip
    return pilot.facts


def time_left(state: State, pilot: Pilot) -> float:
    """Seconds until its allocation ends."""
    return ENDLESS if pilot.ends is None else max(0.0, pilot.ends - state.now)


def _volatile(state: State, pilot: Pilot, name: str) -> TagValue:
    free = pilot.free
    if name == "time_left":
        return time_left(state, pilot)
    if name == "state":
        return "draining" if pilot.draining else str(pilot.state)
    if name in DATA_LOCAL:
        return 0.0  # of no task
    return {
        "free_slots": max(0, free.cores), "free_cores": max(0, free.cores), "free_memory_mb": max(0, free.memory) // MEGA,
        "free_disk_mb": max(0, free.disk) // MEGA, "free_gpus": max(0, free.gpus),
    }[name]  # fmt: skip


def local_values(state: State, pilot: Pilot, cls: TaskClass) -> dict[str, float]:
    """What expressions of a class read of its inputs on a pilot."""
    found = data_of(state, pilot, cls)
    return {"data_local_mb": found.bytes / MEGA, "data_local_fraction": found.fraction}


def lookup(state: State, pilot: Pilot, owner: str, cls: TaskClass | None = None) -> Callable[[str], Value]:
    """Returns the function by which an expression of this owner reads a name; `my.x` is x as the owner's tasks published
    it. What is local to the pilot is that of the task of the class that it would get."""
    facts = static_facts(pilot)

    def look(name: str) -> Any:
        if name in DATA_LOCAL and cls is not None:
            return local_values(state, pilot, cls)[name]
        if name in VOLATILE:
            return _volatile(state, pilot, name)
        if name.startswith("my."):
            name = f"{owner}.{name[3:]}"
        return facts.get(name, UNDEFINED)

    return look


def all_facts(state: State, pilot: Pilot) -> dict[str, TagValue]:
    """Everything that can be read of a pilot now."""
    return {**static_facts(pilot), **{name: _volatile(state, pilot, name) for name in VOLATILE}}


def attributes(state: State, key: ClassKey) -> Mapping[str, Any]:
    """What an expression may read of the task."""
    needs = key.needs
    found: dict[str, Any] = {
        "cores": needs.cores, "memory_mb": needs.memory // MEGA, "disk_mb": needs.disk // MEGA, "gpus": needs.gpus,
        "priority": key.priority, "owner": key.owner, "group": state.groups.get(key.owner, ""), "rerun": key.rerun,
    }  # fmt: skip
    if key.time is not None:
        found["time"] = key.time
    return found


def change_tags(state: State, pilot: Pilot, tags: Mapping[str, TagValue]) -> None:
    """Take what changed; an empty text takes a tag away. A pilot's own tags have no dot in their names."""
    changed = {name for name, value in tags.items() if "." not in name and pilot.tags.get(name, "") != value}
    for name in changed:
        if tags[name] == "":
            del pilot.tags[name]
        else:
            pilot.tags[name] = tags[name]
    _changed(state, pilot, changed)


def _changed(state: State, pilot: Pilot, names: set[str]) -> None:
    if names:
        pilot.facts = None
        if not names.isdisjoint(state.queue.names) or any("." in name for name in names):
            pilot.stamp += 1


def publish(state: State, pilot: Pilot, published: Published, owner: str) -> None:
    """A task wrote tags: they are the pilot's from now on, under its owner's name, also when it is over [GWP G4]."""
    changed: dict[str, TagValue] = {}
    refused = 0
    for name, value in published.tags.items():
        key = f"{owner}.{name}"
        is_new = key not in pilot.tags
        if not _NAME.fullmatch(name) or len(str(value).encode("utf-8", "replace")) > MAX_TASK_TAG:
            refused += 1
        elif value == "":
            if not is_new:
                del pilot.tags[key]
                pilot.published[owner] -= 1
                changed[name] = value
        elif is_new and pilot.published.get(owner, 0) >= MAX_TASK_TAGS:
            refused += 1
        elif is_new or pilot.tags[key] != value:
            pilot.published[owner] = pilot.published.get(owner, 0) + is_new
            pilot.tags[key] = value
            changed[name] = value
    if changed:
        _changed(state, pilot, {f"{owner}.{name}" for name in changed})
        state.write_pilot(pilot)
    if changed or refused:
        data: dict[str, Any] = {"tags": changed}
        if refused:
            data["refused"] = f"{many(refused, 'tag')}: at most {MAX_TASK_TAGS} of a name and {MAX_TASK_TAG} bytes each"
        state.emit("tags_published", pilot=pilot, owner=owner, **data)


def inherit(pilot: Pilot, former: Pilot) -> None:
    """A pilot that enrolled again keeps what tasks published on it."""
    for key, value in former.tags.items():
        if "." in key:
            pilot.tags[key] = value
    pilot.published = dict(former.published)
    pilot.facts = None
