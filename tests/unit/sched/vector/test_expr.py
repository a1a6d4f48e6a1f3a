"""Requirement and rank over classes x pilots: shapes, owners, blocks. That it agrees with the scalar evaluator
on everything is a property (tests/property/test_expr.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shoal.sched.expr.parse import parse
from shoal.sched.expr.tree import Expr
from shoal.sched.vector.expr import Batch, Table
from shoal.sched.vector.expr_columns import group, shape_of

PILOTS: list[dict[str, Any]] = [
    {"memory_mb": 1_000, "arch": "x86_64", "ann.stage": 2},
    {"memory_mb": 2_000, "bob.stage": 2},
    {"memory_mb": "lots", "arch": "aarch64"},
]


def exprs(*texts: str) -> list[Expr | None]:
    """Each read."""
    return [parse(text) for text in texts]


def test_literals_are_lifted_so_that_classes_have_one_shape() -> None:
    one, other = parse("memory_mb > 1 and arch in ['a']"), parse("memory_mb > 2 and arch in ['b', 3]")
    assert shape_of(one)[0] is shape_of(other)[0]
    assert shape_of(one)[0] is not shape_of(parse("memory_mb < 1 and arch in ['a']"))[0]
    assert shape_of(one)[1] == (1.0, ("a",))
    assert len(group([one, other], [{}, {}])) == 1


def test_no_requirement_fits_everywhere_and_no_rank_is_zero() -> None:
    fits, ranks = Batch([None, None], [None, None], [{}, {}]).match(Table(PILOTS))
    assert fits.all()
    assert fits.shape == (2, 3)
    assert not ranks.any()


def test_undefined_does_not_fit_under_a_not_either() -> None:
    texts = ["memory_mb >= 1500", "not memory_mb >= 1500", 'arch == "x86_64"', 'not (arch == "x86_64")']
    fits, _ = Batch(exprs(*texts), [None] * 4, [{}] * 4).match(Table(PILOTS))
    assert fits.tolist() == [[False, True, False], [True, False, False], [True, False, False], [False, False, True]]


def test_a_rank_that_is_no_number_is_worse_than_all() -> None:
    _, ranks = Batch([None] * 3, exprs("memory_mb * 2", "arch", "memory_mb / 0"), [{}] * 3).match(Table(PILOTS))
    assert ranks.tolist() == [[2_000.0, 4_000.0, -math.inf], [-math.inf] * 3, [-math.inf] * 3]


def test_my_names_are_those_of_each_owner() -> None:
    tasks = [{"owner": "ann"}, {"owner": "bob"}, {"owner": "ann"}, {}]
    fits, _ = Batch(exprs(*["my.stage == 2"] * 4), [None] * 4, tasks).match(Table(PILOTS))
    assert fits.tolist() == [[True, False, False], [False, True, False], [True, False, False], [False] * 3]


def test_blocks_of_any_size_give_the_same() -> None:
    tasks = [{"memory_mb": 100.0 * n, "owner": f"u{n % 3}"} for n in range(40)]
    texts = [f"memory_mb > task.memory_mb + {n} or task.owner == 'u{n % 2}'" for n in range(40)]
    ranks = exprs(*["memory_mb - task.memory_mb", "memory_mb / task.memory_mb"] * 20)
    whole = Batch(exprs(*texts), ranks, tasks).match(Table(PILOTS))
    for cells in (1, 7, 30):
        batch = Batch(exprs(*texts), ranks, tasks)
        batch.cells = cells
        fits, found = batch.match(Table(PILOTS))
        assert np.array_equal(fits, whole[0])
        assert np.array_equal(found, whole[1])


def test_a_batch_is_used_again_with_other_pilots() -> None:
    batch = Batch(exprs("memory_mb > task.memory_mb"), [None], [{"memory_mb": 1_500}])
    assert batch.match(Table(PILOTS))[0].tolist() == [[False, True, False]]
    assert batch.match(Table(PILOTS[1:]))[0].tolist() == [[True, False]]
    assert batch.match(Table([]))[0].shape == (1, 0)
    assert Batch([], [], []).match(Table(PILOTS))[0].shape == (0, 3)


def test_comparisons_of_booleans_nested_to_the_bound_take_no_longer_than_others() -> None:
    """Each level asks for the truth and the falsity of the one below: twice as much a level, if it were not kept."""
    text = "memory_mb > task.memory_mb"
    for _ in range(28):
        text = f"({text}) == (memory_mb > task.memory_mb)"
    tasks = [{"memory_mb": 1_500}, {"memory_mb": 500}]
    fits, _ = Batch(exprs(text, text), [None] * 2, tasks).match(Table(PILOTS))
    assert fits.tolist() == [[False, True, False], [True, True, False]]
