"""The policy document, TOML for people and JSON on the wire: plain data in, checked Policy out, and back."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Callable, TypeVar

from shoal.model import limits
from shoal.model.errors import BadInput, echo
from shoal.model.policy import (
    CENTRAL,
    COST,
    DISTRIBUTED,
    EVENT,
    HALF_LIFE,
    IDLE,
    INTERVAL,
    NEVER,
    OFF,
    PLAN,
    ROUND_ROBIN,
    STRICT,
    TRACKED,
    WEIGHTED,
    WINDOW,
    BanRule,
    DataRule,
    MatchRule,
    MemoryRule,
    NotifyRule,
    OrderRule,
    PlacementRule,
    Policy,
    Rule,
    UsageRule,
    outward,
    parse_when,
)
from shoal.model.quantities import parse_duration, parse_size
from shoal.model.task.checks import whole
from shoal.wire.did_you_mean import did_you_mean

_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,63}")
_LICENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NAME_HINT = 'a to z, 0 to 9, _ . - and at most 64 of them; a group as "@name"'
Check = Callable[[Any, str], Any]
Made = TypeVar("Made")


# --- single values
def _number(low: float, high: float) -> Check:
    """A check for finite numbers of a range."""

    def check(value: Any, field: str) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise BadInput(
                f"{echo(value)!r} is out of range", code="range", field=field, hint=f"a number from {low:g} to {high:g}"
            )
        return float(value)

    return check


def _one_of(*known: str) -> Check:
    def check(value: Any, field: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise BadInput(f"{echo(value)!r} is not known", code="range", field=field, hint=" or ".join(known))
        return value

    return check


def _name(value: Any, field: str, pattern: re.Pattern[str] = _NAME, hint: str = _NAME_HINT) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BadInput(f"{echo(value)!r} is not a name", code="bad_name", field=field, hint=hint)
    return value


def _dotted(value: str, field: str) -> str:
    """A name whose dots nest: none may be empty between them."""
    if "" in value.split("."):
        raise BadInput(f"{echo(value)!r} is not a name", code="bad_name", field=field, hint="dots stand between names")
    return value


def _who(value: Any, field: str) -> str:
    """`*`, an owner, or `@group`."""
    if value == "*":
        return "*"
    if isinstance(value, str) and value.startswith("@"):
        return "@" + _dotted(_name(value[1:], field), field)
    return _name(value, field)


def _site(value: Any, field: str) -> str:
    return "*" if value == "*" else _dotted(_name(value, field), field)


def _when(value: Any, field: str) -> str:
    parse_when(value if isinstance(value, str) else echo(value), field)
    return " ".join(value.split())


def _bytes(value: Any, field: str) -> int:
    if isinstance(value, (int, float)):
        return int(whole(0, limits.MAX_BYTES)(value, field))
    return parse_size(value, field)


def _argv(value: Any, field: str) -> tuple[str, ...]:
    fits = isinstance(value, (list, tuple)) and len(value) <= limits.MAX_HOOK
    if not fits or not all(isinstance(text, str) and text and "\0" not in text for text in value):
        hint = f'at most {limits.MAX_HOOK} words such as ["/usr/bin/logger", "-t", "shoal"]'
        raise BadInput("expected a list of texts", code="wrong_type", field=field, hint=hint)
    if any(len(text.encode("utf-8", "replace")) > 16 * limits.MAX_NAME for text in value):
        raise BadInput(f"longer than {16 * limits.MAX_NAME} bytes", code="too_long", field=field, hint="shorten it")
    return tuple(value)


# --- tables
_USAGE: dict[str, Check] = {
    "kind": _one_of(HALF_LIFE, WINDOW),
    "half_life": parse_duration,
    "window": parse_duration,
    "buckets": whole(1, limits.MAX_USAGE_BUCKETS),
}
_QUOTA: dict[str, Check] = {
    "who": _who,
    "site": _site,
    "when": _when,
    "cores": whole(0, limits.MAX_QUOTA_COUNT),
    "core_hours": _number(0, limits.MAX_QUOTA_COUNT),
    "queued": whole(0, limits.MAX_QUOTA_COUNT),
    "stored": _bytes,
    "share": _number(0, 1),
}
_ORDER: dict[str, Check] = {
    "policy": _one_of(STRICT, WEIGHTED),
    **{name: _number(0, limits.MAX_WEIGHT) for name in ("priority", "share", "waiting", "deadline")},
}
_MATCH: dict[str, Check] = {
    "mode": _one_of(EVENT, INTERVAL),
    "interval": parse_duration,
    "chunk": whole(1, 1_000_000),
    "max_running": whole(0, limits.MAX_QUOTA_COUNT),
}
_BAN: dict[str, Check] = {"longest": parse_duration, "scale": parse_duration, "hook": _argv}
_MEMORY: dict[str, Check] = {"factor": _number(1, 1_000), "cap": _number(1, 1_000)}
_NAMED = r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_NAMED}|\[[0-9a-fA-F:.]{{2,45}}\])(?::[0-9]{{1,5}})?")


def _hosts(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > limits.MAX_NOTIFY_HOSTS:
        raise BadInput(f"expected a list of at most {limits.MAX_NOTIFY_HOSTS} hosts", code="wrong_type", field=field)
    for host in value:
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            hint = 'such as "hooks.example.org", "10.0.0.7:8080" or "*.example.org"'
            raise BadInput(f"{echo(host)!r} is no host", code="bad_name", field=field, hint=hint)
    return tuple(host.lower() for host in value)


_NOTIFY: dict[str, Check] = {"hosts": _hosts}
_MODES = (TRACKED, CENTRAL, DISTRIBUTED)
_DATA: dict[str, Check] = {
    "wait": _one_of(NEVER, IDLE, COST),
    "longest": parse_duration,
    "mode": _one_of(*_MODES),
    "sites": lambda data, field: _names(data, field, limits.MAX_SITES, _name, _one_of(*_MODES)),
}
_PLACEMENT: dict[str, Check] = {
    "by": _one_of(OFF, ROUND_ROBIN, PLAN),
    "objective": _name,
    "interval": parse_duration,
    "prices": lambda data, field: _names(data, field, limits.MAX_SITES, _name, _number(0, limits.MAX_PRICE)),
}
_LIMITS = ("cores", "core_hours", "queued", "stored", "share")


def _table(data: Any, field: str, checks: Mapping[str, Check], make: Callable[..., Made]) -> Made:
    """One table of the document as its dataclass."""
    if not isinstance(data, Mapping):
        raise BadInput("expected a table", code="wrong_type", field=field)
    for key in data:
        if key not in checks:
            hint = did_you_mean(str(key), list(checks))
            raise BadInput(f"unknown key {echo(key)!r}", code="unknown_field", field=field, hint=hint)
    return make(**{key: checks[key](value, f"{field}.{key}") for key, value in data.items()})


def _names(data: Any, field: str, most: int, name: Check, value: Check) -> dict[str, Any]:
    """A table from names to numbers."""
    if not isinstance(data, Mapping) or len(data) > most:
        raise BadInput(f"expected a table of at most {most} names", code="wrong_type", field=field)
    return {name(key, field): value(number, f"{field}.{echo(key)}") for key, number in data.items()}


def _shares(data: Any) -> dict[str, float]:
    found = _names(data, "share", limits.MAX_SHARES, _who, _number(0, limits.MAX_SHARE))
    if "*" in found:
        hint = 'name an owner or "@group"; who is not named has a share of 1'
        raise BadInput("'*' has no share", code="bad_name", field="share", hint=hint)
    return found


def _licences(data: Any) -> dict[str, int]:
    def name(key: Any, field: str) -> str:
        return _name(key, field, _LICENCE, "letters, digits, _ . - and at most 64 of them")

    return _names(data, "licences", limits.MAX_LICENCE_KINDS, name, whole(0, limits.MAX_QUOTA_COUNT))


def _quotas(data: Any) -> tuple[Rule, ...]:
    if not isinstance(data, (list, tuple)) or len(data) > limits.MAX_QUOTAS:
        hint = "begin each with a line [[quota]]"
        raise BadInput(
            f"expected a list of at most {limits.MAX_QUOTAS} tables", code="wrong_type", field="quota", hint=hint
        )
    return tuple(_quota(row, f"quota[{at}]") for at, row in enumerate(data, 1))


def _quota(row: Any, field: str) -> Rule:
    rule = _table(row, field, _QUOTA, Rule)
    if all(getattr(rule, limit) is None for limit in _LIMITS):
        raise BadInput("limits nothing", code="required", field=field, hint=f"give one of {', '.join(_LIMITS)}")
    for limit in ("queued", "stored"):
        if rule.site != "*" and getattr(rule, limit) is not None:
            hint = f"leave {limit} or the site out: what waits and what is kept belongs to no site"
            raise BadInput(f"{limit} cannot be limited for a site", code="range", field=f"{field}.{limit}", hint=hint)
    return rule


def _usage(data: Any) -> UsageRule:
    rule = _table(data, "usage", _USAGE, UsageRule)
    for field, seconds in (("half_life", rule.half_life), ("window", rule.window)):
        if seconds < 60:
            raise BadInput("is shorter than a minute", code="range", field=f"usage.{field}", hint='e.g. "24h"')
    return rule


def _memory(data: Any) -> MemoryRule:
    rule = _table(data, "memory", _MEMORY, MemoryRule)
    if rule.cap < rule.factor:
        hint = "a first retry must be allowed its factor"
        raise BadInput("cap is below factor", code="range", field="memory.cap", hint=hint)
    return rule


def _data(data: Any) -> DataRule:
    rule = _table(data, "data", _DATA, DataRule)
    if rule.longest > limits.MAX_DATA_WAIT:
        hint = f"at most {limits.MAX_DATA_WAIT:g} seconds"
        raise BadInput("is too long", code="range", field="data.longest", hint=hint)
    return rule


def _placement(data: Any) -> PlacementRule:
    rule = _table(data, "placement", _PLACEMENT, PlacementRule)
    if not limits.MIN_PLANNING <= rule.interval <= limits.MAX_PLANNING:
        hint = f"from {limits.MIN_PLANNING:g} to {limits.MAX_PLANNING:g} seconds"
        raise BadInput("is out of range", code="range", field="placement.interval", hint=hint)
    return rule


_SECTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {  # in the document -> in the policy, and how to read it
    "share": ("shares", _shares),
    "usage": ("usage", _usage),
    "quota": ("quotas", _quotas),
    "licences": ("licences", _licences),
    "order": ("order", lambda data: _table(data, "order", _ORDER, OrderRule)),
    "match": ("match", lambda data: _table(data, "match", _MATCH, MatchRule)),
    "ban": ("ban", lambda data: _table(data, "ban", _BAN, BanRule)),
    "memory": ("memory", _memory),
    "notify": ("notify", lambda data: _table(data, "notify", _NOTIFY, NotifyRule)),
    "data": ("data", _data),
    "placement": ("placement", _placement),
}


def parse_policy(data: object) -> Policy:
    """The policy in a document; what it leaves out has its default."""
    if not isinstance(data, Mapping):
        raise BadInput("expected a policy document", code="want_object", hint="tables such as [share] and [[quota]]")
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key not in _SECTIONS:
            hint = did_you_mean(str(key), list(_SECTIONS))
            raise BadInput(f"unknown table {echo(key)!r}", code="unknown_field", hint=hint)
        name, read = _SECTIONS[key]
        found[name] = read(value)
    return Policy(**found)


def check_people(policy: Policy, owners: Mapping[str, str], groups: Collection[str]) -> None:
    """Refuse a policy that names unknown people or groups, or whose shares below a vertex are all 0 [input E74].

    `owners` from owner to group ("" for none), `groups` all there are.
    """
    inside = {name for group in (*groups, *owners.values()) for name in outward(group)}
    for who, field in (
        *((who, "share") for who in policy.shares),
        *((rule.who, f"quota[{at}].who") for at, rule in enumerate(policy.quotas, 1)),
    ):
        known = inside if who.startswith("@") else owners
        if who != "*" and who.lstrip("@") not in known:
            kind, sign = ("group", "@") if who.startswith("@") else ("user", "")
            hint = did_you_mean(who, [sign + name for name in known]) if known else f"there is no {kind} yet"
            raise BadInput(f"there is no {kind} {echo(who)!r}", code=f"unknown_{kind}", field=field, hint=hint)
    children: dict[str, list[str]] = {}
    for owner, group in owners.items():
        children.setdefault("@" + group if group else "", []).append(owner)
    for name in inside:
        above = name.rpartition(".")[0]
        children.setdefault("@" + above if above else "", []).append("@" + name)
    for vertex, below in sorted(children.items()):
        if all(policy.shares.get(child, 1.0) == 0 for child in below):
            where = f"in {vertex}" if vertex else "at the top"
            hint = "a share of 0 runs when nobody else can use the slot: leave one above 0"
            raise BadInput(f"every share {where} is 0", code="all_zero", field="share", hint=hint)


def dump_policy(policy: Policy) -> dict[str, Any]:
    """The full document of a policy, from which `parse_policy` makes the same policy."""
    return {
        "share": dict(policy.shares),
        "usage": dict(vars(policy.usage)),
        "quota": [{key: value for key, value in vars(rule).items() if value is not None} for rule in policy.quotas],
        "licences": dict(policy.licences),
        "order": dict(vars(policy.order)),
        "match": dict(vars(policy.match)),
        "ban": {**vars(policy.ban), "hook": list(policy.ban.hook)},
        "memory": dict(vars(policy.memory)),
        "notify": {"hosts": list(policy.notify.hosts)},
        "data": {**vars(policy.data), "sites": dict(policy.data.sites)},
        "placement": {**vars(policy.placement), "prices": dict(policy.placement.prices)},
    }
