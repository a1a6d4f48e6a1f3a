"""A policy as text: what a change changes, what a limit means for what runs already, and which entries a reader sees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from shoal.model.errors import echo
from shoal.model.policy import Policy, Rule
from shoal.model.quantities import many, show_size
from shoal.sched.quota import Standing
from shoal.sched.time_windows import occurrence
from shoal.wire.policy import dump_policy

_LIMITS = ("cores", "core_hours", "queued", "stored", "share")
_ABSENT = {"share": "1", "licences": "none"}  # what it means that a name is not in a table


def differences(before: Policy, after: Policy) -> list[str]:
    """The differences between two policies, a line each; empty if there are none."""
    old, new = dump_policy(before), dump_policy(after)
    found: list[str] = []
    for section in old:
        if section == "quota":
            found += _quota_lines(before.quotas, after.quotas)
            continue
        for key in sorted({*old[section], *new[section]}):
            was, now = (_shown(side[section].get(key), _ABSENT.get(section, "")) for side in (old, new))
            if was != now:
                found.append(f"{section}.{key}: {was} -> {now}")
    return found


def _quota_lines(before: Iterable[Rule], after: Iterable[Rule]) -> list[str]:
    gone, come = Counter(before), Counter(after)
    gone, come = gone - come, come - gone
    found: list[str] = []
    for scope in dict.fromkeys((rule.who, rule.site, rule.when) for rule in (*gone, *come)):
        was = [rule for rule in gone.elements() if (rule.who, rule.site, rule.when) == scope]
        now = [rule for rule in come.elements() if (rule.who, rule.site, rule.when) == scope]
        if len(was) == len(now) == 1:
            limits = [
                f"{name} {_limit(was[0], name)} -> {_limit(now[0], name)}"
                for name in _LIMITS
                if getattr(was[0], name) != getattr(now[0], name)
            ]
            found.append(f"quota of {was[0].describe()}: {', '.join(limits)}")
        else:
            found += [f"- quota of {rule.describe()}: {_limits(rule)}" for rule in was]
            found += [f"+ quota of {rule.describe()}: {_limits(rule)}" for rule in now]
    return found


def _limit(rule: Rule, name: str) -> str:
    value = getattr(rule, name)
    return show_size(value) if name == "stored" and value is not None else _shown(value, "none")


def _limits(rule: Rule) -> str:
    return ", ".join(f"{name} {_limit(rule, name)}" for name in _LIMITS if getattr(rule, name) is not None)


def _shown(value: Any, absent: str) -> str:
    if value is None:
        return absent
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return echo(value)


# --- use of limits
def over_use(standings: Iterable[Standing], before: Iterable[Rule]) -> list[str]:
    """A line for each limit of a rule that was not there before and is below what is used now [input E75]."""
    known = set(before)
    return [
        f"quota of {found.rule.describe()}: {_over(found)}"
        for found in standings
        if found.open and found.used > found.limit and found.rule not in known
    ]


def _over(found: Standing) -> str:
    if found.kind == "queued":
        return f"{many(int(found.used), 'task')} wait or run now, none is cancelled, no more are taken"
    if found.kind == "stored":
        return f"{show_size(found.used)} are kept now, nothing is deleted, nothing new is taken"
    if found.kind == "core_hours":
        return f"{found.used:.3g} core hours are used already, nothing is stopped, nothing new starts"
    runs = "runs" if found.used == 1 else "run"
    return f"{many(int(found.used), 'core')} {runs} now, nothing is stopped, nothing new starts"


def lifted(found: Standing, now: float) -> float | None:
    """When a limit starts again or ends by itself; None: never."""
    _, closes, _ = occurrence(found.rule.when, now)
    ends = closes < 1e15 and (found.kind == "core_hours" or not occurrence(found.rule.when, closes)[2])
    return closes if ends and found.open else None


def row_of(found: Standing, now: float) -> dict[str, Any]:
    """One limit as the HTTP interface returns it."""
    rule = found.rule
    return {
        "who": rule.who, "site": rule.site, "when": rule.when, "kind": found.kind, "limit": found.limit,
        "used": found.used, "open": found.open, "lifted": lifted(found, now),
    }  # fmt: skip


# --- visibility
def visible(document: dict[str, Any], sees: Callable[[str], bool]) -> tuple[dict[str, Any], int]:
    """The document without the entries about somebody whom the reader may not see, and how many those are. The hook is
    a command of the server's own account: only administrators read it."""
    shares = {who: share for who, share in document["share"].items() if sees(who)}
    quotas = [row for row in document["quota"] if sees(row["who"])]
    hook = document["ban"]["hook"]
    hidden = len(document["share"]) - len(shares) + len(document["quota"]) - len(quotas) + bool(hook)
    return {**document, "share": shares, "quota": quotas, "ban": {**document["ban"], "hook": []}}, hidden


def day_of(seconds: float) -> str:
    """A time as text, for a refusal."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
