"""JSON to dataclasses and back, standard library only: the only file, with `codec_fast`, that knows the encoding.

Every decode checks type, length, depth and number size; nothing half-decoded leaves here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Callable, TypeVar, Union, get_args, get_origin, get_type_hints

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_DEPTH, MAX_DIGITS

T = TypeVar("T")
_SCALARS = (str, int, float, bool)
_PLAIN = frozenset((*_SCALARS, type(None)))
_HINTS: dict[type, dict[str, Any]] = {}
_EXACT: dict[type, dict[str, type]] = {}  # fields that need no look inside if their value is of exactly this type
_EMPTY: tuple[Any, ...] = ([], {})


def encode(message: Any) -> bytes:
    """A dataclass (or plain JSON data) as compact UTF-8 JSON."""
    return json.dumps(_plain(message), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "replace"
    )


def _plain(value: Any) -> Any:
    """A dataclass as a mapping; lists of plain values stay as they are, which `dataclasses.asdict` would copy."""
    if isinstance(value, list):
        return [_plain(item) for item in value] if value and dataclasses.is_dataclass(value[0]) else value
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        if isinstance(value, dict) and any(type(item) not in _PLAIN for item in value.values()):
            return {name: _plain(item) for name, item in value.items()}
        return value
    found = {name: getattr(value, name) for name in fields}
    for name, item in found.items():  # a lease has forty fields, and most of them are texts and numbers
        if type(item) not in _PLAIN:
            found[name] = _plain(item)
    return found


def decode(kind: type[T], data: bytes) -> T:
    """The message in `data`, or BadInput naming the field."""
    return from_plain(kind, parse(data))


def parse(data: bytes) -> Any:
    """Strict JSON: no duplicate keys, no NaN, no huge numbers, no deep nesting."""
    if not data.strip():
        raise BadInput("the body is empty", code="empty_body", hint="send a JSON object")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 at byte {error.start}", code="bad_utf8") from None
    _check_depth(text)
    try:
        found = _decoder.decode(text)
        if _has_surrogate(text):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
        return found
    except UnicodeEncodeError:
        raise BadInput("half of a surrogate pair", code="bad_utf8") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{error.msg} at line {error.lineno} column {error.colno}", code="bad_json") from None


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SLICE = 1 << 19  # characters
_NOT_BRACKETS = re.compile(r"[^\[\]{}]+")


def _check_depth(text: str) -> None:
    """Refuse deep nesting before the recursive parser meets it; brackets inside strings do not count.

    Without escapes, every second part between quotes is a string; a pattern for strings takes quadratic time
    over one that never ends. A long text is looked at in slices: each call into C keeps all other threads waiting.
    """
    depth, in_string, carried = 0, False, ""
    for begin in range(0, len(text), _SLICE):
        part = carried + text[begin : begin + _SLICE]
        carried = "\\" if (len(part) - len(part.rstrip("\\"))) % 2 else ""  # an escape goes on in the next slice
        pieces = part[: len(part) - len(carried)].replace("\\\\", "").replace('\\"', "").split('"')
        bare = "".join(pieces[1::2] if in_string else pieces[::2])
        in_string ^= len(pieces) % 2 == 0
        for char in _NOT_BRACKETS.sub("", bare):
            depth += 1 if char in "[{" else -1
            if depth > MAX_DEPTH:
                raise BadInput(f"nested deeper than {MAX_DEPTH}", code="too_deep")


def _has_surrogate(text: str) -> bool:
    return any(_SURROGATE.search(text, begin, begin + _SLICE + 8) for begin in range(0, len(text), _SLICE))


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise BadInput(f"{echo(key)!r} stands twice", code="duplicate_key", field=echo(key))
            seen.add(key)
    return found


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise BadInput(f"a number of {len(digits)} digits", code="number_too_long", hint=f"at most {MAX_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    if len(digits) > MAX_DIGITS:
        raise BadInput(f"a number of {len(digits)} digits", code="number_too_long", hint=f"at most {MAX_DIGITS}")
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise BadInput(f"{echo(digits)} is too large a number", code="not_finite")
    return value


def _constant(name: str) -> float:
    raise BadInput(f"{name} is not a number here", code="not_finite")


_decoder = json.JSONDecoder(
    object_pairs_hook=_no_twins, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def from_plain(kind: type[T], data: Any, where: str = "") -> T:
    """Plain JSON data as the dataclass `kind`; unknown and missing fields are errors."""
    if not isinstance(data, dict):
        raise BadInput("expected an object", code="want_object", field=where)
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = get_type_hints(kind)
        _EXACT[kind] = {name: found for name, hint in hints.items() if (found := _exact_type(hint)) is not None}
    unknown = [key for key in data if key not in hints]
    if unknown:
        raise BadInput(f"unknown field {echo(unknown[0])!r}", code="unknown_field", field=where)
    exact, values = _EXACT[kind], {}
    for key, value in data.items():
        is_checked = type(value) is exact.get(key) and (type(value) in _PLAIN or value in _EMPTY)
        values[key] = value if is_checked else _value(hints[key], value, f"{where}.{key}" if where else key)
    try:
        return kind(**values)
    except TypeError:
        missing = [
            f.name
            for f in dataclasses.fields(kind)  # type: ignore[arg-type]  # every kind here is a dataclass
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in values
        ]
        raise BadInput(f"{', '.join(missing)} is missing", code="required", field=where) from None


def _exact_type(hint: Any) -> Any:
    """The type of a scalar, or of a container that is right when it is empty; None: there is no such type."""
    if hint in _SCALARS:
        return hint
    origin = get_origin(hint)
    return origin if origin in (list, dict) else None


def _value(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Union:
        return _union(get_args(hint), value, where)
    if origin is list:
        if not isinstance(value, list):
            raise BadInput("expected a list", code="wrong_type", field=where)
        (inner,) = get_args(hint)
        check = _CHECKS.get(inner)
        if check is not None and inner is not float and all(map(check, value)):
            return value
        return [_value(inner, item, f"{where}[{at}]") for at, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise BadInput("expected an object", code="wrong_type", field=where)
        inner = get_args(hint)[1]
        return {key: _value(inner, item, f"{where}.{echo(key)}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return from_plain(hint, value, where)  # type: ignore[arg-type]  # is_dataclass narrowed it to a class
    return _scalar(hint, value, where)


def _union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if type(value) in options and type(value) in _CHECKS:
        return value
    if value is None and type(None) in options:
        return None
    last: BadInput = BadInput("expected something else", code="wrong_type", field=where)
    for option in options:
        if option is type(None):
            continue
        try:
            return _value(option, value, where)
        except BadInput as error:
            last = error
    raise last


_CHECKS: dict[Any, Callable[[Any], bool]] = {
    str: lambda v: isinstance(v, str),
    int: lambda v: isinstance(v, int) and not isinstance(v, bool),
    float: lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    bool: lambda v: isinstance(v, bool),
}


def _scalar(hint: Any, value: Any, where: str) -> Any:
    check = _CHECKS.get(hint)
    if check is None or not check(value):
        name = getattr(hint, "__name__", str(hint))
        raise BadInput(f"expected {name}, found {echo(value)!r}", code="wrong_type", field=where)
    return float(value) if hint is float else value
