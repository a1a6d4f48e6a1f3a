"""Properties of the expression language: it reads what it shows, its two evaluators agree on every value, a relaxation
keeps its word, and hostile texts are refused or evaluated in no time."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_EXPR_BYTES
from shoal.sched.expr.explain import clauses, explain
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import evaluate, holds, rank_of
from shoal.sched.expr.tree import (
    UNDEFINED,
    Among,
    Attribute,
    Both,
    Call,
    Chain,
    Compare,
    Constant,
    Either,
    Expr,
    Glob,
    Has,
    Negative,
    Not,
    Tag,
    Vertex,
    expression,
    show,
)
from shoal.sched.vector.expr import Batch, Table

NAMES = ["a", "b", "c", "my.x", "ann.x", "data_local_mb"]
ATTRIBUTES = ["memory_mb", "time", "owner", "rerun"]
numbers = st.sampled_from([0.0, 1.0, 2.0, 3.5, -1.0, 0.1, 1e-300, 1e200, 1.7e308, -1e308]) | st.floats(
    allow_nan=False, allow_infinity=False
)
texts = st.sampled_from(["", "a", "b", "ab", "b*", 'q"\\', "é", "\U0001f41f"])
literals = st.one_of(numbers, texts, st.booleans())
odd = st.sampled_from([math.nan, math.inf, -math.inf, 10**400, 2**53 + 1, 0, 1, None, UNDEFINED])
values = st.one_of(literals, odd)
constants = literals.map(Constant)
names = st.sampled_from(NAMES).map(Tag) | st.sampled_from(ATTRIBUTES).map(Attribute)
lists = st.lists(constants, max_size=3)
patterns = st.sampled_from(["", "*", "a", "a*", "*b", "?", "a?", "*a*b*", "[ab]"])


def negative(inner: Vertex) -> Vertex:
    """Minus as the parser makes it: a literal number is negative itself."""
    if isinstance(inner, Constant) and isinstance(inner.value, float):
        return Constant(-inner.value)
    return Negative(inner)


def above(inner: st.SearchStrategy[Vertex]) -> st.SearchStrategy[Vertex]:
    """Vertices made of smaller ones, whatever their kinds."""
    some = st.lists(inner, min_size=2, max_size=3).map(tuple)

    def chain(ops: str) -> st.SearchStrategy[Vertex]:
        rest = st.lists(st.tuples(st.sampled_from(ops), inner), min_size=1, max_size=3).map(tuple)
        return st.builds(Chain, inner, rest)

    made: st.SearchStrategy[Vertex] = st.one_of(
        st.builds(Both, some),
        st.builds(Either, some),
        st.builds(Not, inner),
        st.builds(Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(Among, inner, st.lists(constants, max_size=3).map(tuple)),
        chain("+-"),
        chain("*/%"),
        inner.map(negative),
        st.builds(Call, st.sampled_from(["min", "max"]), some),
        st.builds(Call, st.just("abs"), inner.map(lambda vertex: (vertex,))),
        st.builds(Has, names),
        st.builds(Glob, inner, patterns),
    )
    return made


leaves: st.SearchStrategy[Vertex] = st.one_of(constants, names)
trees: st.SearchStrategy[Vertex] = st.recursive(leaves, above, max_leaves=12)
pilots = st.lists(st.dictionaries(st.sampled_from([*NAMES, "bob.x"]), values), min_size=1, max_size=5)
tasks = st.fixed_dictionaries(
    {"owner": st.sampled_from(["ann", "bob", None])},
    optional={"memory_mb": values, "time": values, "rerun": values},
)


def with_other_literals(draw: Callable[[Any], Any], vertex: Vertex) -> Vertex:
    """The same shape with literals of its own, of any kind."""

    def again(inner: Vertex) -> Vertex:
        return with_other_literals(draw, inner)

    if isinstance(vertex, Constant):
        drawn: Constant = draw(constants)
        return drawn
    if isinstance(vertex, Both | Either):
        return type(vertex)(tuple(again(part) for part in vertex.parts))
    if isinstance(vertex, Not):
        return Not(again(vertex.inner))
    if isinstance(vertex, Negative):
        return negative(again(vertex.inner))
    if isinstance(vertex, Compare):
        return Compare(vertex.op, again(vertex.left), again(vertex.right))
    if isinstance(vertex, Among):
        return Among(again(vertex.left), tuple(draw(lists)))
    if isinstance(vertex, Chain):
        return Chain(again(vertex.first), tuple((op, again(operand)) for op, operand in vertex.rest))
    if isinstance(vertex, Call):
        return Call(vertex.name, tuple(again(arg) for arg in vertex.args))
    if isinstance(vertex, Glob):
        return Glob(again(vertex.inner), draw(patterns))
    return vertex


@st.composite
def classes(draw: st.DrawFn) -> list[Expr]:
    """Expressions of one or two shapes, mixed."""
    roots: list[Vertex] = draw(st.lists(trees, min_size=1, max_size=2))
    picked: list[Vertex] = draw(st.lists(st.sampled_from(roots), min_size=1, max_size=6))
    return [expression(with_other_literals(draw, root)) for root in picked]


@given(trees)
def test_what_is_shown_reads_as_the_same_tree(root: Vertex) -> None:
    text = show(root)
    assume(len(text.encode()) <= MAX_EXPR_BYTES)
    assert parse(text).root == root


@given(classes(), st.data())
def test_both_evaluators_agree_on_every_class_and_pilot(exprs: list[Expr], data: st.DataObject) -> None:
    some = data.draw(pilots)
    each = data.draw(st.lists(tasks, min_size=len(exprs), max_size=len(exprs)))
    if data.draw(st.booleans()):
        some = [{**tags, "data_local_mb": data.draw(numbers | st.just(math.nan))} for tags in some]
    batch = Batch(exprs, exprs, each)
    batch.cells = data.draw(st.sampled_from([0, 1, 2 * len(some)]))
    fits, ranks = batch.match(Table(some))
    for row, (expr, task) in enumerate(zip(exprs, each, strict=True)):
        for column, tags in enumerate(some):
            assert fits[row, column] == holds(expr, tags, task), (expr.text, tags, task)
            assert ranks[row, column] == rank_of(expr, tags, task), (expr.text, tags, task)


@given(trees, st.data())
def test_false_and_undefined_are_told_apart_in_both_evaluators(root: Vertex, data: st.DataObject) -> None:
    some, task = data.draw(pilots), data.draw(tasks)
    parts: list[Vertex] = [Compare("==", root, Constant(False)), Either((root, Not(root))), Compare("!=", root, root)]
    exprs = [expression(part) for part in parts]
    fits, _ = Batch(exprs, [None] * 3, [task] * 3).match(Table(some))
    for column, tags in enumerate(some):
        value = evaluate(expression(root), tags, task)
        assert list(fits[:, column]) == [value is False, isinstance(value, bool), False]


# --- the same with kinds that mostly fit together: of trees made of anything, nearly all are undefined


class Maker:
    """Trees, tasks and pilots in which most operations have operands of their kind."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def some_number(self) -> float:
        if self.rng.random() < 0.7:
            return float(self.rng.randrange(-2, 4))
        return float(self.pick(0.0, 0.5, -0.0, 1e-300, 1e200, -1e200, 1.7e308, 2.0**53))

    def some_text(self) -> str:
        return str(self.pick("", "a", "b", "ab", "ba", "B", "é"))

    def some_literal(self) -> Any:
        return self.pick(self.some_number, self.some_text, lambda: self.rng.random() < 0.5)()

    def constant(self, make: Any) -> Vertex:
        return Constant((make if self.rng.random() < 0.9 else self.some_literal)())

    def number(self, depth: int) -> Vertex:
        way = self.rng.random() if depth else self.rng.random() * 0.4
        if way < 0.1:
            return self.constant(self.some_number)
        if way < 0.3:
            return Tag(self.pick("a", "b", "data_local_mb", "my.x", "ann.x"))
        if way < 0.4:
            return Attribute(self.pick("memory_mb", "time"))
        if way < 0.75:
            ops = self.pick("+-", "*/%")
            rest = [(self.pick(*ops), self.number(depth - 1)) for _ in range(self.pick(1, 1, 2, 3))]
            return Chain(self.number(depth - 1), tuple(rest))
        if way < 0.8:
            return negative(self.number(depth - 1))
        if way < 0.85:
            return Call("abs", (self.number(depth - 1),))
        if way < 0.97:
            return Call(self.pick("min", "max"), tuple(self.number(depth - 1) for _ in range(self.pick(1, 2, 3))))
        return self.anything(depth - 1)

    def text(self, depth: int) -> Vertex:
        if depth and self.rng.random() < 0.05:
            return self.anything(depth - 1)
        return self.pick(Tag("c"), Attribute("rerun"), Attribute("owner"), self.constant(self.some_text))  # type: ignore[no-any-return]  # all are vertices

    def anything(self, depth: int) -> Vertex:
        made: Vertex = self.pick(self.number, self.text, self.boolean)(depth)
        return made

    def boolean(self, depth: int) -> Vertex:
        way = self.rng.random() if depth else self.rng.random() * 0.15
        if way < 0.08:
            return Tag("d")
        if way < 0.1:
            return Constant(self.rng.random() < 0.5)
        if way < 0.15:
            return Has(self.pick(Tag("a"), Tag("c"), Tag("my.x"), Tag("data_local_mb"), Attribute("time")))
        if way < 0.4:
            side = self.pick(self.number, self.number, self.text, self.boolean)
            op = self.pick("==", "!=", "<", "<=", ">", ">=")
            return Compare(op, side(depth - 1), side(depth - 1))
        if way < 0.55:
            left = self.anything(depth - 1)
            return Among(left, tuple(Constant(self.some_literal()) for _ in range(self.rng.randrange(4))))
        if way < 0.6:
            return Glob(self.text(depth - 1), self.pick("*", "a*", "?", "*b"))
        if way < 0.75:
            return Not(self.boolean(depth - 1))
        parts = tuple(self.boolean(depth - 1) for _ in range(self.pick(2, 2, 3)))
        return self.pick(Both, Either)(parts)  # type: ignore[no-any-return]  # both are vertices

    def again(self, vertex: Vertex) -> Vertex:
        """The same shape with other literals."""
        return with_other_literals(lambda kind: self.draw(kind), vertex)

    def draw(self, kind: Any) -> Any:
        """What `with_other_literals` asks of hypothesis, from our own chance."""
        if kind is constants:
            return Constant(self.some_literal() if self.rng.random() < 0.3 else self.some_number())
        if kind is patterns:
            return self.pick("*", "a*", "?", "*b")
        return [Constant(self.some_literal()) for _ in range(self.rng.randrange(4))]

    def mostly(self, make: Any) -> Any:
        return make() if self.rng.random() < 0.85 else self.pick(math.nan, math.inf, 10**400, 7, None, "a", True, 0)

    def pilot(self) -> dict[str, Any]:
        kinds = {"a": self.some_number, "b": self.some_number, "ann.x": self.some_number, "bob.x": self.some_number}
        made = {name: self.mostly(make) for name, make in kinds.items()}
        made |= {"c": self.mostly(self.some_text), "d": self.mostly(lambda: self.rng.random() < 0.5)}
        return {name: value for name, value in made.items() if self.rng.random() < 0.85}

    def task(self) -> dict[str, Any]:
        made = {"memory_mb": self.mostly(self.some_number), "time": self.mostly(self.some_number)}
        made |= {"owner": self.pick("ann", "bob", None), "rerun": self.mostly(self.some_text)}
        return {name: value for name, value in made.items() if self.rng.random() < 0.9}


def check_world(seed: int) -> int:
    """Compare both evaluators on one world; how many cells were true or had a rank."""
    maker = Maker(seed)
    kind = maker.pick(maker.boolean, maker.number)
    roots = [kind(maker.pick(1, 2, 3, 4)) for _ in range(maker.pick(1, 2))]
    exprs = [expression(maker.again(maker.pick(*roots))) for _ in range(maker.pick(1, 3, 8))]
    each = [maker.task() for _ in exprs]
    if maker.rng.random() < 0.3:
        each = each[:1] * len(exprs)
    local = (maker.some_number(), math.nan, 1e300)
    some = [{**maker.pilot(), "data_local_mb": maker.pick(*local)} for _ in range(maker.pick(1, 2, 6))]
    batch = Batch(exprs, exprs, each)
    batch.cells = maker.pick(0, 1, 2 * len(some))
    fits, ranks = batch.match(Table(some))
    for row, (expr, task) in enumerate(zip(exprs, each, strict=True)):
        for column, tags in enumerate(some):
            assert fits[row, column] == holds(expr, tags, task), (seed, expr.text, tags, task)
            assert ranks[row, column] == rank_of(expr, tags, task), (seed, expr.text, tags, task)
    return int(fits.any() or np.isfinite(ranks).any())


@given(st.integers(0, 2**40))
def test_both_evaluators_agree_where_kinds_fit(seed: int) -> None:
    telling = sum(check_world(10 * seed + n) for n in range(10))
    assert telling > 0  # else the worlds say little


# --- what the relaxation promises

plain = st.sampled_from([0, 1, 2, 3, 10])
clause_texts = st.sampled_from(
    [
        "a >= 3", "a > 2", "b < 1", "b <= task.memory_mb", "a == 2", 'c == "x"', 'c in ["x", "y"]', "has(a)", "not a < 3",
        'a >= 10 or c == "x"', "a * 2 >= b + 100", "3 <= b", "c != \"z\"", "a + b > 7 and b > 2", "d", 'glob(c, "n*")',
    ]
)  # fmt: skip
plain_pilots = st.lists(
    st.fixed_dictionaries(
        {}, optional={"a": plain | st.just("t"), "b": plain, "c": st.sampled_from(["x", "y", "z"]), "d": st.booleans()}
    ),
    min_size=1,
    max_size=6,
)


@given(st.lists(clause_texts, min_size=1, max_size=4), plain_pilots)
def test_a_relaxation_lets_as_many_pilots_match_as_it_says(parts: list[str], some: list[dict[str, Any]]) -> None:
    expr = parse(" and ".join(f"({part})" for part in parts))
    task = {"memory_mb": 2.0}
    said = explain(expr, some, task)
    assert said.matching == sum(holds(expr, tags, task) for tags in some)
    whole = [clause.text for clause in clauses(expr)]
    for at, clause in enumerate(said.clauses):
        assert clause.passing == sum(holds(clause.expr, tags, task) for tags in some)
        rest = [other for place, other in enumerate(whole) if place != at]
        without = parse(" and ".join(f"({other})" for other in rest)) if rest else None
        assert clause.without == sum(without is None or holds(without, tags, task) for tags in some)
        if clause.relaxed is not None:
            changed = [*whole[:at], clause.relaxed.text, *whole[at + 1 :]]
            relaxed = parse(" and ".join(f"({part})" for part in changed))
            assert sum(holds(relaxed, tags, task) for tags in some) == clause.relaxed.pilots > 0
    assert (said.nearest is None) == (said.matching > 0)
    if said.nearest is not None:
        loose = said.nearest.require
        assert sum(not loose or holds(parse(loose), tags, task) for tags in some) == said.nearest.pilots > 0


# --- hostile texts

WORDS = [
    *("and", "or", "not", "in", "true", "false", "min(", "max(", "abs(", "has(", "glob(", "task.", "my.", "a", "b.c"),
    *("(", ")", "[", "]", ",", "+", "-", "*", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "=", "!", "&", "|"),
    *("1", "0", "1e308", "1e999", ".5", "9" * 40, '"x"', "'y'", '"', "'", "\\", "\0", "\n", "\ud800", "é", "\u2028"),
    *("__import__", "().__class__", "lambda:", "os.system", "{}", "f'{a}'", "task.memory_mb", "time_left", "#", ";"),
]
GOOD = [
    'memory_mb >= 4000 and arch == "x86_64" and not (site in ["a", "b"])',
    "cpu_mhz * 0.5 + data_local_mb - min(load, 3) / task.cores",
    'has(gpu) and glob(hostname, "gpu*?x*") or my.stage not in [1, 2, "three"]',
]


def hostile(rng: random.Random) -> str:
    """A random or mutated text."""
    way = rng.random()
    if way < 0.4:
        return rng.choice(["", " "]).join(rng.choice(WORDS) for _ in range(rng.randrange(40)))
    if way < 0.5:
        return "".join(chr(rng.randrange(0x3000)) for _ in range(rng.randrange(200)))
    if way < 0.6:
        return rng.choice(WORDS) * rng.randrange(5_000)
    text = rng.choice(GOOD)
    for _ in range(rng.randrange(1, 6)):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        text = text[:at] + rng.choice([rng.choice(WORDS), text[at:to], "", text[at:to] * 3]) + text[to:][:500]
    return text


def test_ten_thousand_hostile_texts_are_refused_or_evaluated_in_no_time() -> None:
    rng = random.Random(5)
    tags = {"a": 1, "b.c": "x" * 4_096, "memory_mb": 8_000, "hostname": "gpu" * 1_000, "ann.stage": 2}
    task = {"owner": "ann", "memory_mb": 10.0, "cores": 0}
    refused, slowest = 0, 0.0
    for _ in range(10_000):
        text = hostile(rng)
        began = time.process_time()
        try:
            expr = parse(text, rng.choice(["require", "rank"]))
        except BadInput as error:
            refused += 1
            assert error.code in ("bad_expression", "expression_too_complex", "unknown_attribute"), error
            assert error.field in ("require", "rank")
            assert len(error.line) < 600
            assert "\n" not in error.line
        else:
            value = evaluate(expr, tags, task)
            assert value is UNDEFINED or type(value) in (float, str, bool)
            fits, ranks = Batch([expr] * 2, [expr] * 2, [task, {}]).match(Table([tags, {}]))
            assert fits[0, 0] == (value is True)
            assert ranks[0, 0] == rank_of(expr, tags, task)
        slowest = max(slowest, time.process_time() - began)
    assert 5_000 < refused < 9_900  # some are expressions after all
    assert slowest < 2.0
