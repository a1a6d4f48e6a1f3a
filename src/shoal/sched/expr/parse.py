"""Reads the text of a requirement or rank into a tree: by hand, bounded before anything gets deep, and never by
Python's own parser. Errors say the column and the nearest known word."""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple, NoReturn, Union

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_EXPR_BYTES, MAX_EXPR_DEPTH, MAX_EXPR_TERMS, MAX_GLOB
from shoal.sched.expr.names import ATTRIBUTES, CONTEXT, FUNCTIONS, KEYWORDS, NUMERIC, meant, nearest
from shoal.sched.expr.tree import (
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
    children,
    expression,
)

_KEPT = 1_024  # expressions read lately; the largest takes some 100 kB

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>==|!=|<=|>=|\*\*|[<>+\-*/%()\[\],])
    )""",
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
# What other languages write, and what it is here.
_FOREIGN = {
    "=": "write ==", "&": "write and", "|": "write or", "!": "write not or !=", "{": "lists are written [1, 2]",
    '"': "the closing quote is missing", "'": "the closing quote is missing", "^": "there is no power",
}  # fmt: skip


class Token(NamedTuple):
    """One token of the text; columns count from 1. The last one has kind `end`."""

    kind: str
    text: str
    column: int


def parse(text: str, field: str = "require", measures: tuple[str, ...] = ()) -> Expr:
    """The expression that a text is; BadInput with the field, the column and what to do if it is none.

    `measures`: it is no expression on pilots, but one on functions of names, as `mean(x)` [ADR 0053]; each such function
    of a name is a tag in the tree, by its text.
    """
    if not isinstance(text, str):
        raise BadInput(f"expected text, found {echo(text)!r}", code="wrong_type", field=field, hint="put it in quotes")
    if len(text) > MAX_EXPR_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_EXPR_BYTES:
        _too_complex(f"is longer than {MAX_EXPR_BYTES} bytes", field)
    return _parse(text, field, measures)


@functools.lru_cache(maxsize=_KEPT)
def _parse(text: str, field: str, measures: tuple[str, ...]) -> Expr:
    root = _Reader(text, field, measures).whole()
    level, depth = [root], 0
    while level:
        level, depth = [child for vertex in level for child in children(vertex)], depth + 1
    if depth > MAX_EXPR_DEPTH:
        _too_complex(f"is nested more than {MAX_EXPR_DEPTH} deep", field)
    return expression(root, text)


def _too_complex(what: str, field: str) -> NoReturn:
    raise BadInput(
        f"the expression {what}", code="expression_too_complex", field=field, hint="make it shorter and flatter"
    )


class _Reader:
    """Recursive descent over the tokens; how deep it goes and how much it makes is counted."""

    def __init__(self, text: str, field: str, measures: tuple[str, ...]) -> None:
        self.text, self.field, self.measures = text, field, measures
        self.functions = (*measures, "abs") if measures else FUNCTIONS
        self.bare: dict[str, int] = {}  # names that no function of `measures` was applied to so far, and their columns
        self.at = 0  # where the next token is looked for
        self.terms = self.depth = 0
        self.next = self.scan()

    # --- tokens

    def scan(self) -> Token:
        """The token that comes."""
        found = _TOKEN.match(self.text, self.at)
        if found is None or found.lastgroup is None:
            space = _SPACE.match(self.text, self.at)
            start = space.end() if space else self.at
            if start < len(self.text):
                found_text = self.text[start]
                self.fail(f"cannot read {echo(found_text)!r}", start + 1, _FOREIGN.get(found_text, ""))
            return Token("end", "", start + 1)
        self.at = found.end()
        kind, start = found.lastgroup, found.start(found.lastgroup)
        token = Token(kind, found.group(kind), start + 1)
        if token.text == "**":
            # [input E30] has it beside the million bytes: numbers without end are what a power is for
            raise BadInput(
                f"there is no power `**`, at column {token.column}",
                code="expression_too_complex",
                field=self.field,
                hint="write a product",
            )
        if kind == "name":
            self.check_name(token)
        return token

    def check_name(self, token: Token) -> None:
        """Words that mean something elsewhere must not become a tag that is always undefined."""
        if any(part.startswith("__") for part in token.text.split(".")):
            self.fail(f"cannot read {echo(token.text)!r}", token.column, "names do not begin with two underscores")
        if token.text not in KEYWORDS and token.text.lower() in KEYWORDS:
            self.fail(f"found {token.text!r}", token.column, f"write {token.text.lower()}")

    def take(self) -> Token:
        """The next token, and go on."""
        token, self.next = self.next, self.scan()
        return token

    def comes(self, *texts: str) -> bool:
        """Is one of these signs or keywords next?"""
        return self.next.text in texts and self.next.kind in ("sign", "name")

    def expect(self, sign: str) -> None:
        """This sign must come."""
        if not self.comes(sign):
            self.fail_here(f"`{sign}`")
        self.take()

    # --- errors

    def fail(self, what: str, column: int, hint: str = "") -> NoReturn:
        """Not an expression."""
        raise BadInput(f"{what} at column {column}", code="bad_expression", field=self.field, hint=hint)

    def fail_here(self, expected: str, hint: str = "") -> NoReturn:
        """Something else was expected than what comes."""
        token = self.next
        found = "the end" if token.kind == "end" else f"`{echo(token.text)}`"
        close = nearest(token.text, KEYWORDS + self.functions) if token.kind == "name" else None
        if not hint and close and close != token.text:
            hint = f"did you mean {close}"
        self.fail(f"expected {expected}, found {found}", token.column, hint)

    def unknown(self, what: str, token: Token, known: tuple[str, ...], word: str) -> NoReturn:
        """A name of a closed list that is not in it [input E28]."""
        raise BadInput(
            f"unknown {what} {echo(token.text)!r} at column {token.column}",
            code="unknown_attribute",
            field=self.field,
            hint=meant(word, known),
        )

    # --- bounds

    def made(self, vertex: Vertex) -> Vertex:
        """Count what is made."""
        self.terms += 1
        if self.terms > MAX_EXPR_TERMS:
            _too_complex(f"has more than {MAX_EXPR_TERMS} terms", self.field)
        return vertex

    def enter(self) -> None:
        """One level down."""
        self.depth += 1
        if self.depth > MAX_EXPR_DEPTH:
            _too_complex(f"is nested more than {MAX_EXPR_DEPTH} deep, at column {self.next.column}", self.field)

    # --- grammar, from what binds least

    def whole(self) -> Vertex:
        """All of the text."""
        if self.next.kind == "end":
            example = "rel_err(x) < 0.01" if self.measures else 'memory_mb >= 4000 and arch == "x86_64"'
            self.fail("the expression is empty", 1, f"write for example {example}")
        root = self.either()
        if self.next.kind != "end":
            hint = ""
            if self.comes(*_COMPARISONS, "in"):
                hint = "comparisons do not chain: write a < b and b < c"
            elif self.next.kind == "name" and self.text[self.next.column - 2].isdigit():
                hint = "numbers have no unit: memory_mb and disk_mb are in MB, times in seconds"
            self.fail_here("`and`, `or` or an operator", hint)
        for name, column in self.bare.items():
            self.fail(f"{echo(name)} alone is no value,", column, f"write for example mean({echo(name)})")
        return root

    def either(self) -> Vertex:
        """a or b or c."""
        parts = [self.both()]
        while self.comes("or"):
            self.take()
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else self.made(Either(tuple(parts)))

    def both(self) -> Vertex:
        """a and b and c."""
        parts = [self.negation()]
        while self.comes("and"):
            self.take()
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else self.made(Both(tuple(parts)))

    def negation(self) -> Vertex:
        """not a."""
        if not self.comes("not"):
            return self.comparison()
        self.enter()
        self.take()
        inner = self.negation()
        self.depth -= 1
        return self.made(Not(inner))

    def comparison(self) -> Vertex:
        """a < b, a in [..], a not in [..]."""
        left = self.chain("+-")
        if self.comes(*_COMPARISONS):
            op = self.take().text
            return self.made(Compare(op, left, self.chain("+-")))
        if self.comes("not"):
            self.take()
            if not self.comes("in"):
                self.fail_here("`in`")
            self.take()
            return self.made(Not(self.made(Among(left, self.items()))))
        if self.comes("in"):
            self.take()
            return self.made(Among(left, self.items()))
        return left

    def items(self) -> tuple[Constant, ...]:
        """[literal, ..]."""
        if not self.comes("["):
            self.fail_here("`[`", 'a list of values, as in site in ["a", "b"]')
        self.take()
        found: list[Constant] = []
        while not self.comes("]"):
            column = self.next.column
            item = self.negative()
            if not isinstance(item, Constant):
                self.fail("a list holds only numbers, texts, true and false; found something else", column)
            found.append(item)
            if not self.comes("]"):
                self.expect(",")
        self.take()
        return tuple(found)

    def chain(self, ops: str) -> Vertex:
        """Sums of products."""
        below = self.negative if ops == "*/%" else functools.partial(self.chain, "*/%")
        first = below()
        rest: list[tuple[str, Vertex]] = []
        while self.comes(*ops):
            op = self.take().text
            rest.append((op, below()))
        return self.made(Chain(first, tuple(rest))) if rest else first

    def negative(self) -> Vertex:
        """-a; a literal number becomes negative itself."""
        if not self.comes("-"):
            return self.atom()
        self.enter()
        self.take()
        inner = self.negative()
        self.depth -= 1
        if isinstance(inner, Constant) and isinstance(inner.value, float):
            return Constant(-inner.value)
        return self.made(Negative(inner))

    def atom(self) -> Vertex:
        """A literal, a name, a call, or anything in parentheses."""
        token = self.next
        if token.kind == "number":
            number = float(token.text)
            if not math.isfinite(number):
                self.fail(f"the number {echo(token.text)} is too large", token.column)
            self.take()
            return self.made(Constant(number))
        if token.kind == "text":
            self.take()
            return self.made(Constant(self.unquote(token)))
        if self.comes("("):
            self.enter()
            self.take()
            inner = self.either()
            self.expect(")")
            self.depth -= 1
            return inner
        if token.kind != "name" or token.text in ("and", "or", "not", "in"):
            self.fail_here("a value")
        self.take()
        if token.text in ("true", "false"):
            return self.made(Constant(token.text == "true"))
        return self.call(token) if self.comes("(") else self.name(token)

    def unquote(self, token: Token) -> str:
        """The value of a quoted text, in which \\ escapes a quote or another \\."""
        for found in _ESCAPE.finditer(token.text[1:-1]):
            if found.group(1) not in "\"'\\":
                self.fail(f"cannot read {echo(found.group())!r}", token.column + 1 + found.start(), "write \\\\")
        return _ESCAPE.sub(r"\1", token.text[1:-1])

    def name(self, token: Token) -> Union[Tag, Attribute]:
        """A tag, or an attribute of the task."""
        if self.measures:
            self.bare.setdefault(token.text, token.column)
            return self._named(Tag(token.text))
        space, _, rest = token.text.partition(".")
        if space == "task" and rest:
            if rest not in ATTRIBUTES:
                self.unknown("attribute", token, tuple(f"task.{name}" for name in ATTRIBUTES), token.text)
            return self._named(Attribute(rest))
        if token.text in ("task", "my"):
            self.fail(f"`{token.text}` alone is no value", token.column, f"write {token.text}.NAME")
        if token.text in NUMERIC or token.text in ("has", "glob"):
            self.fail(f"the function `{token.text}` needs parentheses", token.column, f"write {token.text}(...)")
        return self._named(Tag(token.text))

    def _named(self, vertex: Union[Tag, Attribute]) -> Union[Tag, Attribute]:
        self.made(vertex)
        return vertex

    def call(self, token: Token) -> Vertex:
        """NAME(..): only of the functions there are."""
        if token.text not in self.functions:
            self.unknown("function", token, self.functions, token.text)
        self.enter()
        self.take()
        made = self.arguments(token)
        if not self.comes(")"):
            self.fail_here("`)`")
        self.take()
        self.depth -= 1
        return self.made(made) if not isinstance(made, Tag) else made

    def arguments(self, token: Token) -> Vertex:
        """The arguments between the parentheses of a call."""
        if self.measures:
            return self.measured(token)
        if token.text in CONTEXT:
            return self._named(Tag(token.text))
        if token.text == "has":
            if self.next.kind != "name" or self.next.text in KEYWORDS:
                self.fail_here("the name of a tag", "as in has(gpu_model)")
            return Has(self.name(self.take()))
        args = [self.either()]
        if token.text == "glob":
            self.expect(",")
            return Glob(args[0], self.pattern())
        while self.comes(","):
            self.take()
            args.append(self.either())
        if token.text == "abs" and len(args) != 1:
            self.fail("abs has one argument; found more", token.column)
        return Call(token.text, tuple(args))

    def measured(self, token: Token) -> Vertex:
        """The arguments of a function of a name, or of `abs`, `min` and `max` of numbers."""
        before = dict(self.bare)
        args = [self.either()]
        while self.comes(","):
            self.take()
            args.append(self.either())
        only = args[0]
        if token.text in self.measures and len(args) == 1 and isinstance(only, Tag) and "(" not in only.name:
            self.bare = before
            return Tag(f"{token.text}({only.name})")
        if token.text not in NUMERIC or (token.text == "abs" and len(args) != 1):
            self.fail(f"{token.text} has one argument; found something else", token.column, f"write {token.text}(NAME)")
        return Call(token.text, tuple(args))

    def pattern(self) -> str:
        """The pattern of a glob, as a literal: it is looked at now, not for each pilot."""
        if self.next.kind != "text":
            self.fail_here("a pattern in quotes", 'as in glob(hostname, "gpu*")')
        token = self.take()
        text = self.unquote(token)
        if len(text) > MAX_GLOB:
            _too_complex(f"has a pattern of more than {MAX_GLOB} characters", self.field)
        return text
