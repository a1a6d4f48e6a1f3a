"""Parameters of a sweep or an array: many elements described by a few axes, never listed one by one [ADR 0001]."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Optional, Union

from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_ELEMENTS, MAX_PARAMS

Value = Union[str, int, float, bool]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RANGE = re.compile(r"(-?[0-9.]{1,20})\.\.(-?[0-9.]{1,20})(?::(-?[0-9.]{1,20}))?")
_ARRAY = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
# Parts of a value that is a path: `{f.stem}`.
PATH_PARTS = ("name", "stem", "suffix", "parent")
HOLE = re.compile(rf"\{{\{{|\}}\}}|\{{([A-Za-z_][A-Za-z0-9_]*)(?:\.({'|'.join(PATH_PARTS)}))?(:raw)?\}}")
_DOTTED = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)\}")
_PADDED = re.compile(r"-?0[0-9]+")
_RANGE_HINT = "a range is 1..10 or 10..100:10, a list is a,b,c"


@dataclass(frozen=True)
class Steps:
    """`start, start+step, ...`, `count` of them; decimals stay exact, so 0..1:0.1 has no 0.30000000000000004."""

    start: str
    step: str
    count: int
    width: int = 0  # characters to which zeros are put before a whole number, which then is a text; 0: none

    @cached_property
    def _whole(self) -> Optional[tuple[int, int]]:
        """Start and step if both are whole numbers: decimals would take a fifth of the time that leasing a short task
        takes."""
        return None if "." in self.start or "." in self.step else (int(self.start), int(self.step))

    @property
    def is_whole(self) -> bool:
        """True if its values are whole numbers."""
        return self._whole is not None

    def at(self, k: int) -> Value:
        """The k-th value, from 0."""
        whole = self._whole
        if whole is not None:
            value = whole[0] + k * whole[1]
            return str(value).zfill(self.width) if self.width else value
        return float(Decimal(self.start) + k * Decimal(self.step))


@dataclass(frozen=True)
class Axis:
    """One parameter: its name and its values, as steps and literals in order."""

    name: str
    pieces: tuple[Union[Steps, tuple[Value, ...]], ...]

    @cached_property
    def count(self) -> int:
        """How many values there are."""
        return sum(p.count if isinstance(p, Steps) else len(p) for p in self.pieces)

    def at(self, k: int) -> Value:
        """The k-th value, from 0."""
        for piece in self.pieces:
            size = piece.count if isinstance(piece, Steps) else len(piece)
            if k < size:
                return piece.at(k) if isinstance(piece, Steps) else piece[k]
            k -= size
        raise IndexError(k)


@dataclass(frozen=True)
class Sweep:
    """All combinations of the axes (the last varies fastest), or the rows of a table; one element if neither."""

    axes: tuple[Axis, ...] = ()
    rows: Optional[tuple[dict[str, Value], ...]] = None

    @cached_property
    def is_counted(self) -> bool:
        """True if all its values are numbers that are counted, none of which is long."""
        return self.rows is None and all(isinstance(piece, Steps) for axis in self.axes for piece in axis.pieces)

    @property
    def count(self) -> int:
        """How many elements there are."""
        if self.rows is not None:
            return len(self.rows)
        total = 1
        for axis in self.axes:
            total *= axis.count
        return total

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        if self.rows is not None:
            return tuple(self.rows[0]) if self.rows else ()
        return tuple(axis.name for axis in self.axes)

    def values(self, name: str) -> list[str]:
        """The values of a parameter that were written one by one, as texts; those of ranges are numbers."""
        if self.rows is not None:
            return [show_value(row[name]) for row in self.rows if name in row]
        pieces = [piece for axis in self.axes if axis.name == name for piece in axis.pieces]
        return [show_value(value) for piece in pieces if not isinstance(piece, Steps) for value in piece]

    def at(self, k: int) -> dict[str, Value]:
        """The parameters of the k-th element, from 0."""
        if self.rows is not None:
            return dict(self.rows[k])
        if len(self.axes) == 1:
            return {self.axes[0].name: self.axes[0].at(k)}
        picked: list[tuple[str, Value]] = []
        for axis in reversed(self.axes):
            k, rest = divmod(k, axis.count)
            picked.append((axis.name, axis.at(rest)))
        return dict(reversed(picked))


def parse_axis(text: str) -> Axis:
    """`x=1..10`, `E=10..100:10`, `mode=a,b`: one argument of the command line."""
    name, equals, values = text.partition("=")
    if not equals:
        raise BadInput(
            f"{echo(text)!r} is not a parameter", code="bad_param", hint="write name=values, e.g. x=1..10 or mode=a,b"
        )
    return Axis(check_name(name), parse_values(values, name))


def check_name(name: str) -> str:
    """Check the name of a parameter."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{echo(name)!r} is not a parameter name", code="bad_param", hint="letters, digits and _, not a digit first"
        )
    return name


def parse_values(text: str, name: str) -> tuple[Union[Steps, tuple[Value, ...]], ...]:
    """`1..10`, `a,b`, `1..3,7`: steps and literals."""
    pieces: list[Union[Steps, tuple[Value, ...]]] = []
    for item in text.split(","):
        found = _RANGE.fullmatch(item)
        if found:
            pieces.append(_padded(_steps(name, *found.groups()), found[1], found[2]))
        elif ".." in item and item.replace("..", "").replace(":", "").replace("-", "").replace(".", "").isalnum():
            raise BadInput(f"{echo(item)!r} is not a range", code="bad_array", field=name, hint=_RANGE_HINT)
        elif item == "":
            raise BadInput("an empty value", code="bad_array", field=name, hint=_RANGE_HINT)
        else:
            pieces.append((literal(item),))
    return tuple(pieces)


def literal(item: str) -> Value:
    """Numbers become numbers so that results sort and plot; `007` and `1e5x` stay text."""
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", item):
        return int(item)
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,17}", item) and str(float(item)) == item:
        return float(item)
    return item


def _padded(steps: Steps, first: str, last: str) -> Steps:
    """`001..100` keeps its zeros, as in a shell: all values are as wide as the wider end."""
    if (_PADDED.fullmatch(first) or _PADDED.fullmatch(last)) and steps.is_whole:
        return replace(steps, width=max(len(first), len(last)))
    return steps


def _steps(name: str, first: str, last: str, step: Optional[str]) -> Steps:
    try:
        low, high = Decimal(first), Decimal(last)
        by = Decimal(step) if step is not None else Decimal(1)
    except InvalidOperation:
        raise BadInput(f"{echo(first)}..{echo(last)} is not a range", code="bad_array", field=name) from None
    if by == 0:
        raise BadInput("the step is 0", code="bad_array", field=name, hint=_RANGE_HINT)
    count = int((high - low) / by) + 1 if (high - low) / by >= 0 else 0
    if count < 1:
        raise BadInput(
            f"{echo(first)}..{echo(last)} is empty", code="bad_array", field=name, hint="swap the ends or turn the step"
        )
    if count > MAX_ELEMENTS:
        raise BadInput(
            f"{count} values are too many", code="bad_array", field=name, hint=f"at most {MAX_ELEMENTS} elements a run"
        )
    return Steps(first, step if step is not None else "1", count)


def parse_array(text: object) -> tuple[Sweep, Optional[int]]:
    """Slurm's form: `1-2000%50`, `0-9:3`, `1,4,7-9`: the elements (parameter `i`) and how many may run at once."""
    hint = "as in Slurm: 1-2000, 1-2000%50, 0-9:3 or 1,4,7-9"
    if not isinstance(text, str):
        raise BadInput(f"{echo(text)!r} is not an array", code="bad_array", field="array", hint=hint)
    spans, percent, limit = text.partition("%")
    throttle: Optional[int] = None
    if percent:
        if not re.fullmatch(r"[1-9][0-9]{0,8}", limit):
            raise BadInput(f"%{echo(limit)} is not a limit", code="bad_array", field="array", hint=hint)
        throttle = int(limit)
    pieces: list[Union[Steps, tuple[Value, ...]]] = []
    for span in spans.split(","):
        found = _ARRAY.fullmatch(span)
        if not found:
            raise BadInput(f"{echo(text)!r} is not an array", code="bad_array", field="array", hint=hint)
        low, high, step = found.groups()
        pieces.append(_steps("array", low, high if high is not None else low, step))
    return check_count(Sweep((Axis("i", tuple(pieces)),))), throttle


def check_count(sweep: Sweep) -> Sweep:
    """Check that a sweep has neither too many parameters or elements nor a parameter twice."""
    if len(sweep.names) > MAX_PARAMS:
        raise BadInput(f"{len(sweep.names)} parameters", code="bad_param", field="params", hint=f"at most {MAX_PARAMS}")
    doubled = [n for n in sweep.names if sweep.names.count(n) > 1]
    if doubled:
        raise BadInput(f"{doubled[0]} is given twice", code="bad_param", field="params", hint="name each once")
    if sweep.count > MAX_ELEMENTS:
        raise BadInput(
            f"{sweep.count} elements are too many",
            code="bad_array",
            field="params",
            hint=f"at most {MAX_ELEMENTS} a run: split the sweep",
        )
    return sweep


def holes(text: str) -> list[str]:
    """The names of the `{placeholders}` in a text."""
    return [found[1] for found in HOLE.finditer(text) if found[1]]


def fill(text: str, params: dict[str, Value]) -> str:
    """Put parameters into `{placeholders}`; `{{` and `}}` mean the braces themselves. Values are put in as they are:
    what a shell reads is filled by `shell_quote.fill_shell`."""
    if "{" not in text and "}" not in text:
        return text
    return HOLE.sub(lambda found: found[0][0] if found[0] in ("{{", "}}") else hole_value(found, params), text)


def shape_of(text: str) -> tuple[str, ...]:
    """What stands before, between and after the `{placeholders}` of a text."""
    return tuple(HOLE.sub(lambda found: found[0][0] if found[0] in ("{{", "}}") else "\0", text).split("\0"))


def has_shape(text: str, shape: Sequence[str]) -> bool:
    """True if some values make a text of this shape. In linear time, unlike a regular expression."""
    first, *others = shape
    if not others:
        return text == first
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return at <= end


def hole_value(found: re.Match[str], params: dict[str, Value]) -> str:
    """The text that one placeholder stands for."""
    value = show_value(params[found[1]])
    return path_part(value, found[2]) if found[2] else value


def path_part(path: str, part: str) -> str:
    """A part of a path: of `runs/a.tar.gz` the name `a.tar.gz`, the stem `a.tar`, the suffix `.gz`, the parent `runs`."""
    if part == "parent":
        return posixpath.dirname(path) or "."
    name = posixpath.basename(path)
    stem, suffix = posixpath.splitext(name)
    return {"name": name, "stem": stem, "suffix": suffix}[part]


def unknown_parts(text: str) -> list[tuple[str, str]]:
    """Placeholders such as `{f.stme}` whose part there is not: names and parts."""
    return [(found[1], found[2]) for found in _DOTTED.finditer(text) if found[2] not in PATH_PARTS]


def show_value(value: Value) -> str:
    """A parameter as text in a command."""
    return "true" if value is True else "false" if value is False else str(value)


def sweep_of(arguments: Sequence[str]) -> Sweep:
    """The sweep that command-line arguments such as `x=1..10` describe."""
    return check_count(Sweep(tuple(parse_axis(argument) for argument in arguments)))
