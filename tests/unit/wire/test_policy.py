"""The policy document: what it may say, and how a wrong one is refused [input E74-E76]."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.model.policy import (
    BanRule,
    DataRule,
    MatchRule,
    MemoryRule,
    OrderRule,
    PlacementRule,
    Policy,
    Rule,
    UsageRule,
)
from shoal.wire.policy import check_people, dump_policy, parse_policy

DOCUMENT = """
[share]
anna = 2
"@phys" = 3
"@phys.hep" = 0.5
idle = 0

[usage]
kind = "window"
half_life = "12h"
window = "14d"
buckets = 14

[[quota]]
who = "@phys"
site = "eu"
when = "mon-fri  08-18"
cores = 100
share = 0.5

[[quota]]
core_hours = 1000.5
when = "month"

[[quota]]
who = "bert"
queued = 1000
stored = "10G"

[licences]
matlab = 5

[order]
policy = "weighted"
waiting = 0.1

[match]
mode = "interval"
interval = "30s"
chunk = 50
max_running = 200

[ban]
longest = "2h"
scale = 60
hook = ["logger", "-t", "shoal"]

[memory]
factor = 1.5
cap = 3

[data]
wait = "idle"
longest = "2m"
mode = "tracked"

[data.sites]
"eu.cern" = "central"

[placement]
by = "round-robin"
objective = "cost"
interval = "2m"

[placement.prices]
hpc = 2.5
"""


def test_a_full_document_is_read() -> None:
    assert parse_policy(tomllib.loads(DOCUMENT)) == Policy(
        shares={"anna": 2.0, "@phys": 3.0, "@phys.hep": 0.5, "idle": 0.0},
        usage=UsageRule("window", 43_200.0, 1_209_600.0, 14),
        quotas=(
            Rule("@phys", "eu", "mon-fri 08-18", cores=100, share=0.5),
            Rule(when="month", core_hours=1000.5),
            Rule("bert", queued=1000, stored=10 << 30),
        ),
        licences={"matlab": 5},
        order=OrderRule("weighted", waiting=0.1),
        match=MatchRule("interval", 30.0, 50, 200),
        ban=BanRule(7200.0, 60.0, ("logger", "-t", "shoal")),
        memory=MemoryRule(1.5, 3.0),
        data=DataRule("idle", 120.0, "tracked", {"eu.cern": "central"}),
        placement=PlacementRule("round-robin", "cost", 120.0, {"hpc": 2.5}),
    )


def test_the_empty_document_is_the_default_policy() -> None:
    assert parse_policy({}) == Policy()


def test_what_is_dumped_goes_through_json_and_is_read_again() -> None:
    policy = parse_policy(tomllib.loads(DOCUMENT))
    assert parse_policy(json.loads(json.dumps(dump_policy(policy), allow_nan=False))) == policy
    assert parse_policy(dump_policy(Policy())) == Policy()


NAN = float("nan")


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        # [input E74]
        ({"share": {"anna": -1}}, "range", "share.anna: '-1' is out of range (a number from 0 to 1e+06)"),
        ({"share": {"anna": NAN}}, "range", "out of range"),
        ({"share": {"anna": 1e308}}, "range", "out of range"),
        ({"share": {"anna": 10**400}}, "range", "out of range"),
        ({"share": {"anna": True}}, "range", "out of range"),
        ({"share": {"anna": "2"}}, "range", "out of range"),
        ({"share": {"*": 1}}, "bad_name", "who is not named has a share of 1"),
        ({"share": [1]}, "wrong_type", "expected a table"),
        # [input E75]
        ({"quota": [{"cores": -1}]}, "range", "quota[1].cores: '-1' is out of range"),
        ({"quota": [{"cores": 1}, {"core_hours": 1e308}]}, "range", "quota[2].core_hours: '1e+308' is out of range"),
        ({"quota": [{"core_hours": NAN}]}, "range", "out of range"),
        ({"quota": [{"cores": 1.5}]}, "range", "whole number"),
        ({"quota": [{"stored": -5}]}, "range", "out of range"),
        ({"quota": [{"stored": "5 apples"}]}, "bad_size", "quota[1].stored: '5 apples' is not a size"),
        ({"quota": [{"share": 1.5}]}, "range", "a number from 0 to 1"),
        ({"quota": [{"who": "anna"}]}, "required", "quota[1]: limits nothing (give one of cores"),
        ({"quota": [{"site": "eu", "queued": 5}]}, "range", "queued cannot be limited for a site"),
        ({"quota": [{"site": "eu", "stored": 5}]}, "range", "stored cannot be limited for a site"),
        ({"quota": [{"cores": 5, "when": "sometimes"}]}, "bad_window", "quota[1].when: 'sometimes' is not a window"),
        ({"quota": [{"cores": 5, "when": 5}]}, "bad_window", "not a window"),
        ({"quota": {"cores": 5}}, "wrong_type", "[[quota]]"),
        ({"quota": [5]}, "wrong_type", "quota[1]: expected a table"),
        ({"quota": [{"core": 5}]}, "unknown_field", "quota[1]: unknown key 'core' (did you mean cores)"),
        # [input E76]
        ({"share": {"": 1}}, "bad_name", "is not a name"),
        ({"share": {"../x": 1}}, "bad_name", "is not a name"),
        ({"share": {"a" * 1024: 1}}, "bad_name", "is not a name"),
        ({"share": {"аnna": 1}}, "bad_name", "is not a name"),  # noqa: RUF001 (the first letter is Cyrillic)
        ({"share": {"@": 1}}, "bad_name", "is not a name"),
        ({"share": {"@phys..hep": 1}}, "bad_name", "dots stand between names"),
        ({"quota": [{"who": "@phys.", "cores": 1}]}, "bad_name", "dots stand between names"),
        ({"quota": [{"site": "EU", "cores": 1}]}, "bad_name", "is not a name"),
        ({"quota": [{"who": 5, "cores": 1}]}, "bad_name", "is not a name"),
        # the rest
        ([], "want_object", "expected a policy document"),
        ({"shares": {}}, "unknown_field", "unknown table 'shares' (did you mean share)"),
        ({"usage": {"halflife": "1d"}}, "unknown_field", "did you mean half_life"),
        ({"usage": {"half_life": "1s"}}, "range", "usage.half_life: is shorter than a minute"),
        ({"usage": {"kind": "linear"}}, "range", "half_life or window"),
        ({"usage": {"kind": ["window"]}}, "range", "half_life or window"),
        ({"usage": {"buckets": 0}}, "range", "from 1 to 366"),
        ({"licences": {"matlab": -1}}, "range", "licences.matlab"),
        ({"licences": {"mat lab": 1}}, "bad_name", "is not a name"),
        ({"order": {"policy": "lifo"}}, "range", "strict or weighted"),
        ({"order": {"waiting": -1}}, "range", "out of range"),
        ({"match": {"interval": "0s"}}, "bad_duration", "not a duration"),
        ({"match": {"chunk": 0}}, "range", "out of range"),
        ({"ban": {"hook": "mail"}}, "wrong_type", "expected a list of texts"),
        ({"ban": {"hook": ["a\0b"]}}, "wrong_type", "expected a list of texts"),
        ({"ban": {"hook": ["x" * 5000]}}, "too_long", "longer than"),
        ({"memory": {"factor": 0.5}}, "range", "out of range"),
        ({"memory": {"factor": 8}}, "range", "cap is below factor"),
        ({"data": {"wait": "always"}}, "range", "never or idle or cost"),
        ({"data": {"longest": "2h"}}, "range", "data.longest: is too long"),
        ({"placement": {"by": "plans"}}, "range", "off or round-robin or plan"),
        ({"placement": {"interval": "2h"}}, "range", "placement.interval"),
        ({"placement": {"prices": {"hpc": -1}}}, "range", "placement.prices"),
        ({"data": {"sites": {"hpc": "alone"}}}, "range", "tracked or central or distributed"),
        ({"data": {"sites": ["hpc"]}}, "wrong_type", "expected a table"),
        ({"data": {"modes": {}}}, "unknown_field", "did you mean mode"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_place_and_fix(data: Any, code: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_policy(data)
    assert caught.value.code == code and words in caught.value.line


OWNERS = {"anna": "phys", "bert": "phys.hep", "carl": ""}


def test_a_policy_for_people_who_exist_passes() -> None:
    check_people(parse_policy({"share": {"anna": 0, "@phys": 2, "@phys.hep": 1, "@chem": 0}}), OWNERS, ["phys", "chem"])


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ({"share": {"ana": 1}}, "unknown_user", "share: there is no user 'ana' (did you mean anna)"),
        ({"share": {"@phy": 1}}, "unknown_group", "there is no group '@phy' (did you mean @phys)"),
        ({"quota": [{"who": "dora", "cores": 1}]}, "unknown_user", "quota[1].who: there is no user 'dora'"),
        ({"share": {"carl": 0, "@phys": 0, "@chem": 0}}, "all_zero", "every share at the top is 0"),
        ({"share": {"anna": 0, "@phys.hep": 0}}, "all_zero", "every share in @phys is 0"),
        ({"share": {"bert": 0}}, "all_zero", "every share in @phys.hep is 0"),
    ],
)
def test_unknown_people_and_a_vertex_without_any_share_are_refused(data: Any, code: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_people(parse_policy(data), OWNERS, ["phys", "chem"])
    assert caught.value.code == code and words in caught.value.line
