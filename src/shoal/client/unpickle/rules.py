"""Rules of restricted unpickling: exact names of the standard library, and how each value is built; see `restricted`."""

from __future__ import annotations

import builtins
import datetime
import decimal
import fractions
import json
import math
import pathlib
import re
import subprocess
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from shoal.client.unpickle.trust import Pair
from shoal.model.errors import ShoalError

WAY_OUT = (
    'let it return plain data, numpy or pandas values; or name its classes in Executor(trust=[...]); or write trust = "group" '
    "into your own config.toml if you trust everyone who may start pilots for your group"
)


class UntrustedResult(ShoalError):
    """A result from another person's pilot holds objects that are not trusted."""

    code = "untrusted_result"


class Name:
    """Stands for a name of the list on the stack of the unpickler; `rule` builds the value."""

    __slots__ = ("pair", "rule")

    def __init__(self, pair: Pair, rule: Rule) -> None:
        self.pair, self.rule = pair, rule


class Rule:
    """How a value is built: from the arguments of a call, or first empty and then from its state."""

    def __init__(
        self,
        call: Callable[..., Any] | None = None,
        new: Callable[..., Any] | None = None,
        build: Callable[[Any, Any], None] | None = None,
        kind: type | None = None,
    ) -> None:
        self.call, self.new, self.build, self.kind = call, new, build, kind


def refuse(what: str) -> NoReturn:
    """Refuse a pickle whose names are fine and whose arguments are not what that value needs."""
    raise UntrustedResult(f"a result from somebody else's pilot was not loaded: {what}", hint=WAY_OUT)


def need(condition: object, what: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        refuse(f"its {what} is malformed")


# --- the standard library
def _range(*args: int) -> range:
    need(all(type(n) is int for n in args), "range")
    return range(*args)


def _complex(real: float, imag: float = 0.0) -> complex:
    need(type(real) is float and type(imag) is float, "complex")
    return complex(real, imag)


def _date(cls: type, size: int) -> Callable[..., Any]:
    def make(state: bytes, zone: Any = None) -> Any:
        need(type(state) is bytes and len(state) == size and isinstance(zone, datetime.tzinfo | None), cls.__name__)
        return cls(state) if zone is None else cls(state, zone)

    return make


def _timedelta(*args: int) -> datetime.timedelta:
    need(len(args) == 3 and all(type(n) is int for n in args), "timedelta")
    return datetime.timedelta(*args)


def _timezone(offset: datetime.timedelta, *name: str) -> datetime.timezone:
    need(type(offset) is datetime.timedelta and all(type(n) is str for n in name), "timezone")
    return datetime.timezone(offset, *name)


def _decimal(text: str) -> decimal.Decimal:
    need(type(text) is str, "Decimal")
    return decimal.Decimal(text)


def _fraction(*args: Any) -> fractions.Fraction:
    # "1e999999999" would be written out in full.
    plain = len(args) == 1 and type(args[0]) is str and re.fullmatch(r"-?[0-9]+(/[0-9]+)?", args[0]) is not None
    need(plain or (len(args) == 2 and all(type(n) is int for n in args)), "Fraction")
    return fractions.Fraction(*args)


def _uuid(value: uuid.UUID, state: Any) -> None:
    need(isinstance(state, dict) and set(state) <= {"int", "is_safe"} and type(state.get("int")) is int, "UUID")
    need(0 <= state["int"] < 1 << 128, "UUID")
    value.__setstate__({"int": state["int"]})  # type: ignore[attr-defined]  # typeshed leaves it out


def _path(cls: type[pathlib.PurePath]) -> Callable[..., Any]:
    def make(*parts: str) -> Any:
        need(all(type(part) is str for part in parts), "path")
        return cls(*parts)

    return make


_FACTORIES = {("builtins", name): getattr(builtins, name) for name in ("list", "dict", "set", "int", "float", "str")}


def _defaultdict(factory: Any = None) -> Any:
    if isinstance(factory, Name):
        need(factory.pair in _FACTORIES, "defaultdict")
        return defaultdict(_FACTORIES[factory.pair])
    need(factory is None, "defaultdict")
    return defaultdict(None)


def _deque(items: Any = (), most: Any = None) -> Any:
    need(items == () and (most is None or type(most) is int), "deque")
    return deque(maxlen=most)


def _counter(counts: Any) -> Any:
    need(type(counts) is dict and not holds_name(counts), "Counter")
    return Counter(counts)


def _empty(cls: type) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        need(args == (), cls.__name__)
        return cls()

    return make


def _slice(*args: Any) -> slice:
    need(len(args) == 3 and not holds_name(args), "slice")
    return slice(*args)


def _set_of(cls: type) -> Callable[..., Any]:
    def make(items: Any = ()) -> Any:
        need(type(items) in (list, tuple) and not holds_name(items), cls.__name__)
        return cls(items)

    return make


def _exception(cls: type[Exception]) -> Rule:
    def call(*args: Any) -> Exception:
        need(not holds_name(args), cls.__name__)
        return cls(*args)

    return Rule(call, build=_exception_state, kind=cls)


def _exception_state(error: Any, state: Any) -> None:
    """Set the attributes of an exception; none with a meaning to the interpreter but its notes."""
    need(type(state) is dict and not holds_name(state), "exception")
    for name, value in state.items():
        need(type(name) is str and name.isidentifier(), "exception")
        need(not name.startswith("__") or name == "__notes__", "exception")
        setattr(error, name, value)


# Others than `Exception` end programs: another person's pilot must not raise them here.
_EXCEPTIONS: dict[Pair, type[Exception]] = {
    ("builtins", name): cls
    for name, cls in vars(builtins).items()
    if isinstance(cls, type) and issubclass(cls, Exception) and cls.__name__ == name
}
_EXCEPTIONS |= {
    ("json.decoder", "JSONDecodeError"): json.JSONDecodeError,
    ("subprocess", "CalledProcessError"): subprocess.CalledProcessError,
    ("subprocess", "TimeoutExpired"): subprocess.TimeoutExpired,
    ("decimal", "InvalidOperation"): decimal.InvalidOperation,
    ("decimal", "DivisionByZero"): decimal.DivisionByZero,
}

STANDARD: dict[Pair, Rule] = {
    ("builtins", "bytes"): Rule(_empty(bytes)),
    ("builtins", "range"): Rule(_range),
    ("builtins", "slice"): Rule(_slice),
    ("builtins", "complex"): Rule(_complex),
    ("builtins", "set"): Rule(_set_of(set)),
    ("builtins", "frozenset"): Rule(_set_of(frozenset)),
    ("datetime", "datetime"): Rule(_date(datetime.datetime, 10)),
    ("datetime", "date"): Rule(_date(datetime.date, 4)),
    ("datetime", "time"): Rule(_date(datetime.time, 6)),
    ("datetime", "timedelta"): Rule(_timedelta),
    ("datetime", "timezone"): Rule(_timezone),
    ("decimal", "Decimal"): Rule(_decimal),
    ("fractions", "Fraction"): Rule(_fraction),
    ("uuid", "UUID"): Rule(new=lambda: uuid.UUID.__new__(uuid.UUID), build=_uuid, kind=uuid.UUID),
    ("collections", "OrderedDict"): Rule(_empty(OrderedDict)),
    ("collections", "defaultdict"): Rule(_defaultdict),
    ("collections", "Counter"): Rule(_counter),
    ("collections", "deque"): Rule(_deque),
    **{
        (module, cls.__name__): Rule(_path(cls))
        for module in ("pathlib", "pathlib._local")
        for cls in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath)
    },
    **{pair: Rule() for pair in _FACTORIES if pair[1] != "set"},  # only as what a defaultdict makes
    **{pair: _exception(cls) for pair, cls in _EXCEPTIONS.items()},
}
VALUES: dict[Pair, Any] = {("builtins", "Ellipsis"): ..., ("builtins", "NotImplemented"): NotImplemented}


def holds_name(value: Any) -> bool:
    """True if a name is left somewhere in plain containers, where a value should be."""
    return any(isinstance(part, Name) for part in parts_of(value))


def parts_of(value: Any) -> Iterator[Any]:
    """A value and, if it is a plain container, all that is in it at any depth; each container once."""
    seen: set[int] = set()
    left = [value]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, (list, tuple, set, frozenset, deque)):
            inner: Iterable[Any] = one
        elif isinstance(one, dict):
            inner = (*one.keys(), *one.values())
        else:
            continue
        if id(one) not in seen:
            seen.add(id(one))
            left.extend(inner)


def is_finite_shape(shape: Any) -> bool:
    """True for the shape of an array: a tuple of sizes whose product is bounded."""
    return type(shape) is tuple and len(shape) <= 64 and all(type(n) is int and n >= 0 for n in shape) and (
        math.prod(shape) < 1 << 48
    )  # fmt: skip
