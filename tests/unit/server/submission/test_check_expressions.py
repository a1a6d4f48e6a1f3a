"""What a submission says of pilots is looked at when it comes [input E27-E30]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import SetPolicy
from shoal.model.errors import BadInput
from shoal.model.policy import Policy
from shoal.model.task.spec import Spec
from shoal.server.submission.check_expressions import (
    MAX_WARNINGS,
    check_expressions,
    check_fits,
    rank_warnings,
    tag_warnings,
)
from shoal.wire.messages import Capacity
from shoal.wire.task import parse_spec
from tests.unit.engine.stand import OWNER, Stand

GIGA = 1 << 30


def specs(*tables: dict[str, Any]) -> list[Spec]:
    return [parse_spec({"command": ["true"], **table}) for table in tables]


def refused(stand: Stand, *tables: dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as found:
        check_fits(stand.engine.state, OWNER, specs(*tables))
    assert found.value.code == "never_fits"
    return found.value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("cores >", "bad_expression"),
        ("__import__('os')", "bad_expression"),
        ("().__class__", "bad_expression"),
        ("9**9**9", "expression_too_complex"),
        ("(" * 10 + "cores" + ")" * 11, "bad_expression"),
        ("task.colour == 1", "unknown_attribute"),
        ("not " * 600 + "true", "expression_too_complex"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused(text: str, code: str) -> None:
    for field in ("require", "rank"):
        with pytest.raises(BadInput) as found:
            check_expressions(specs({field: text}))
        assert (found.value.code, found.value.field) == (code, field)


def test_of_several_tasks_the_wrong_one_is_named() -> None:
    with pytest.raises(BadInput) as found:
        check_expressions(specs({"require": "cores > 1"}, {"name": "fit", "rank": "cores +"}))
    assert found.value.field == "tasks[1] (fit).rank"


def test_a_tag_that_no_pilot_has_is_warned_of_once_with_the_nearest() -> None:
    stand = Stand()
    stand.pilot(4, tags={"arch": "x86_64", "scratch": "/tmp"})
    said = tag_warnings(
        stand.engine.state, OWNER,
        specs({"require": "arhc == 'x86_64' and free_cores > 1 and cores > 1"}, {"rank": "arhc + zzz"}),
    )  # fmt: skip
    assert said == ["no pilot has the tag arhc (did you mean arch)", "no pilot has the tag zzz"]


def test_without_pilots_no_tag_is_called_unknown() -> None:
    stand = Stand()
    stand.pilot(4, owner="somebody", tags={"arch": "x86_64"})
    assert tag_warnings(stand.engine.state, OWNER, specs({"require": "arhc == 'x86_64'"})) == []


def test_tags_of_pilots_that_serve_others_are_not_told() -> None:
    stand = Stand()
    stand.pilot(4, tags={"arch": "x86_64"})
    stand.pilot(4, owner="somebody", identity="other", tags={"secretly": 1})
    (said,) = tag_warnings(stand.engine.state, OWNER, specs({"require": "secretl == 1"}))
    assert said == "no pilot has the tag secretl"


def test_warnings_are_bounded() -> None:
    stand = Stand()
    stand.pilot(4)
    names = [f"zz{at:03d}q" for at in range(MAX_WARNINGS + 7)]
    said = tag_warnings(stand.engine.state, OWNER, specs({"require": " or ".join(f"{name} > 1" for name in names)}))
    assert len(said) == MAX_WARNINGS + 1 and said[-1] == "and 7 more tags that no pilot has"


def test_a_task_that_some_pilot_can_run_is_not_refused() -> None:
    stand = Stand()
    stand.pilot(2, tags={"arch": "arm"})
    stand.pilot(8, identity="big", host="big", tags={"arch": "x86_64"})
    good = specs({"cores": 8, "require": "arch == 'x86_64'"}, {"require": "free_cores > 1000"}, {"rank": "nothing"})
    assert check_fits(stand.engine.state, OWNER, good) == []


def test_a_task_that_is_too_large_everywhere_is_refused_with_the_nearest() -> None:
    stand = Stand()
    stand.pilot(2, host="small")
    stand.pilot(8, identity="big", host="big", site="hall")
    error = refused(stand, {"cores": 9})
    assert error.message == "no pilot is large enough; nearest is big (site hall): needs 9 cores, has 8"
    error = refused(stand, {"cores": 1}, {"memory": 9 * GIGA, "name": "fat"})
    assert error.message.startswith("tasks[1] (fat) never fits: ") and "needs 9.0G of memory, has 8.0G" in error.message


def test_a_requirement_that_no_pilot_fulfils_is_refused_with_the_nearest() -> None:
    stand = Stand()
    stand.pilot(room=Capacity(4, 2 * GIGA, GIGA), tags={"arch": "arm"})
    error = refused(stand, {"require": "memory_mb >= 4000 and arch == 'arm'"})
    assert "1 pilot could run it otherwise" in error.message
    assert "memory_mb >= 2048 would let 1 pilot match" in error.hint


def test_a_licence_that_the_policy_has_too_few_of_is_refused() -> None:
    stand = Stand()
    stand.pilot(4)
    stand.do(SetPolicy(Policy(licences={"matlab": 1}), "{}", "boss"))
    assert check_fits(stand.engine.state, OWNER, specs({"licences": ["matlab"]})) == []
    assert "needs 2 of the licence matlab, the policy has 1" in refused(stand, {"licences": {"matlab": 2}}).message


def test_without_a_pilot_nothing_is_refused_and_that_is_said() -> None:
    (said,) = check_fits(Stand().engine.state, OWNER, specs({"cores": 4000}))
    assert "no pilot is connected yet" in said


@pytest.mark.parametrize("rank", ['"fast"', '"a" + 1', "-(cores > 1)", 'min(1, "x")', "not 3", "(cores > 1) * 2"])
def test_a_rank_that_can_never_be_a_number_is_refused(rank: str) -> None:
    with pytest.raises(BadInput) as found:
        check_expressions(specs({"rank": rank}))
    assert (found.value.code, found.value.field) == ("bad_expression", "rank")
    assert "never be a number" in found.value.message
    check_expressions(specs({"require": "true"}))


@pytest.mark.parametrize(
    "rank", ["cpu_mhz", "true", "ssd", "cores > 1", "has(x)", "not ssd", "-cores", "1", "task.cores"]
)
def test_a_rank_that_may_be_a_number_is_taken(rank: str) -> None:
    check_expressions(specs({"rank": rank}))


def test_a_rank_that_is_a_number_on_no_pilot_is_warned_of() -> None:
    stand = Stand()
    task = specs({"rank": "arch"}, {"rank": "speed"}, {"rank": "cores"}, {"rank": "arch == arch"})
    assert rank_warnings(stand.engine.state, OWNER, task) == [], "without pilots nothing can be said"
    stand.pilot(4, host="n1", tags={"arch": "x86_64"})
    text, undefined = rank_warnings(stand.engine.state, OWNER, task)
    assert text == "the rank arch is a number on none of 1 pilot: it is the text 'x86_64' on n1"
    assert undefined == "the rank speed is a number on none of 1 pilot: it is undefined"
    stand.pilot(4, host="n2", tags={"arch": 3.0})
    assert len(rank_warnings(stand.engine.state, OWNER, task)) == 1, "on one of them it is"
