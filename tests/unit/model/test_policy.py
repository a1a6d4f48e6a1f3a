"""The policy as data: its defaults, and the windows of time that a rule may name."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.policy import PART, Policy, Rule, When, outward, parse_when


def test_the_empty_policy_has_the_defaults_that_are_promised() -> None:
    policy = Policy()
    assert policy.usage.kind == "half_life" and policy.usage.half_life == 86_400, "I13"
    assert policy.shares == {} and policy.quotas == () and policy.licences == {}
    assert policy.match.mode == "event" and policy.order.policy == "strict"


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("always", When("always")),
        ("day", When("day")),
        ("mon-fri 08-18", When(PART, (0, 1, 2, 3, 4), 8, 18)),
        ("mon-fri 8-18", When(PART, (0, 1, 2, 3, 4), 8, 18)),
        ("sat,sun", When(PART, (5, 6), 0, 24)),
        ("fri-mon", When(PART, (0, 4, 5, 6), 0, 24)),
        ("tue", When(PART, (1,), 0, 24)),
        ("22-06", When(PART, (0, 1, 2, 3, 4, 5, 6), 22, 6)),
        ("mon-wed,sat 0-24", When(PART, (0, 1, 2, 5), 0, 24)),
    ],
)
def test_windows_are_read(text: str, when: When) -> None:
    assert parse_when(text) == when


@pytest.mark.parametrize(
    "text",
    ["", "never", "mon-fri 08-25", "mon-fri 24-6", "08-08", "mo-fr", "mon-fri 08:00-18:00", "08-18 mon", "mon tue", "mon-",
     "mon--fri", "mon-tue-wed", "8-18 8-18", "-1-5", "mon 08-18 utc", "Mon", "08-0"],
)  # fmt: skip
def test_what_is_no_window_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match=r"not a window of time.*mon-fri 08-18") as caught:
        parse_when(text)
    assert caught.value.code == "bad_window" and caught.value.field == "when"


def test_a_rule_says_where_it_stands() -> None:
    assert Rule().describe() == "everybody everywhere"
    assert Rule(who="@phys", site="eu", when="day").describe() == "who=@phys site=eu when=day"
    assert Rule(who="anna").describe() == "who=anna"


def test_a_dotted_name_is_inside_of_its_beginnings() -> None:
    assert outward("eu.ch.cern") == ("eu.ch.cern", "eu.ch", "eu")
    assert outward("eu") == ("eu",) and outward("") == ()
