"""Every policy there can be is the same after a journey through JSON, and nothing else gets in."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.errors import BadInput
from shoal.model.policy import (
    CENTRAL,
    COST,
    IDLE,
    NEVER,
    TRACKED,
    BanRule,
    DataRule,
    MatchRule,
    MemoryRule,
    OrderRule,
    Policy,
    Rule,
    UsageRule,
    parse_when,
)
from shoal.sched.time_windows import occurrence
from shoal.wire.policy import dump_policy, parse_policy

NAME = st.from_regex(r"[a-z_][a-z0-9_-]{0,8}(\.[a-z_][a-z0-9_-]{0,8}){0,2}", fullmatch=True)
GROUP = NAME.map(lambda name: "@" + name)
DAYS = st.sampled_from(["mon", "mon-fri", "sat,sun", "fri-mon", "tue-wed,sun"])
HOURS = (
    st.tuples(st.integers(0, 23), st.integers(1, 24)).filter(lambda h: h[0] != h[1]).map(lambda h: f"{h[0]:02}-{h[1]}")
)
WHEN = st.sampled_from(["always", "day", "week", "month"]) | DAYS | HOURS | st.builds("{} {}".format, DAYS, HOURS)
COUNT = st.integers(0, 10**12)
SECONDS = st.floats(60, 1e8)
WEIGHT = st.floats(0, 1e6)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """A quota with at least one limit."""
    limits: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {}, optional={"cores": COUNT, "core_hours": st.floats(0, 1e12), "share": st.floats(0, 1)}
        )
    )  # fmt: skip
    site = draw(st.just("*") | NAME)
    if site == "*":
        limits.update(draw(st.fixed_dictionaries({}, optional={"queued": COUNT, "stored": st.integers(0, 1 << 60)})))
    return Rule(draw(st.just("*") | NAME | GROUP), site, draw(WHEN), **(limits or {"cores": 0}))


POLICY = st.builds(
    Policy,
    shares=st.dictionaries(NAME | GROUP, st.floats(0, 1e6), max_size=5),
    usage=st.builds(UsageRule, st.sampled_from(["half_life", "window"]), SECONDS, SECONDS, st.integers(1, 366)),
    quotas=st.lists(rules(), max_size=4).map(tuple),
    licences=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True), COUNT, max_size=3),
    order=st.builds(OrderRule, st.sampled_from(["strict", "weighted"]), WEIGHT, WEIGHT, WEIGHT, WEIGHT),
    match=st.builds(MatchRule, st.sampled_from(["event", "interval"]), SECONDS, st.integers(1, 10**6), COUNT),
    ban=st.builds(BanRule, SECONDS, SECONDS, st.lists(st.from_regex(r"[a-z/ =-]{1,9}", fullmatch=True), max_size=3).map(tuple)),
    data=st.builds(
        DataRule, st.sampled_from([NEVER, IDLE, COST]), st.floats(1, 3600), st.sampled_from([TRACKED, CENTRAL]),
        st.dictionaries(st.sampled_from(["a", "b.c", "x-1"]), st.sampled_from([TRACKED, CENTRAL])),
    ),
    memory=st.floats(1, 500).map(lambda factor: MemoryRule(factor, 2 * factor)),
)  # fmt: skip


@given(POLICY)
def test_a_policy_survives_json(policy: Policy) -> None:
    assert parse_policy(json.loads(json.dumps(dump_policy(policy), allow_nan=False))) == policy


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("always"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["share", "usage", "quota", "licences", "order", "match", "ban", "memory", "data"])
INNER = st.sampled_from(
    ["who", "site", "when", "cores", "core_hours", "queued", "stored", "share", "kind", "half_life", "window", "buckets",
     "policy", "waiting", "mode", "interval", "chunk", "max_running", "longest", "scale", "hook", "factor", "cap", "anna"]
)  # fmt: skip
TABLE = st.dictionaries(INNER, JUNK, max_size=3)


@given(st.dictionaries(KEYS, JUNK | TABLE | st.lists(TABLE, max_size=2), max_size=4) | JUNK)
def test_any_other_document_is_refused_in_one_line_or_makes_a_policy_that_can_be_dumped(data: object) -> None:
    try:
        policy = parse_policy(data)
    except BadInput as refusal:
        assert refusal.line and "\n" not in refusal.line and len(refusal.line) < 1_000
    else:
        assert parse_policy(dump_policy(policy)) == policy


@given(WHEN, st.floats(-1e9, 4e9))
def test_every_moment_is_in_exactly_one_occurrence_or_gap(text: str, now: float) -> None:
    opens, closes, is_open = occurrence(text, now)
    assert opens <= now < closes
    when = parse_when(text)
    if when.kind == "part":
        hour, day = int(now // 3600), int(now // 86_400)
        length = (when.end - when.start) % 24 or 24
        inside = [
            (day - back + 3) % 7 in when.days and 0 <= hour - (day - back) * 24 - when.start < length for back in (0, 1)
        ]
        assert is_open == any(inside)
