"""Strict reading of TOML tables: each wrong key, type or number is one line that names the file and the key."""

from __future__ import annotations

import difflib
import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.model.errors import BadInput, echo
from shoal.model.quantities import parse_duration
from shoal.sim.distributions import (
    Choice,
    Constant,
    Distribution,
    Exponential,
    LogNormal,
    Normal,
    Quantiles,
    Uniform,
    measured,
)
from shoal.wire.did_you_mean import did_you_mean

MOST = 1e15  # no number of a world is larger
MOST_SPREAD = 10.0  # of a logarithm: a factor of 22,000 already
KINDS = ("uniform", "normal", "lognormal", "exponential", "values", "quantiles", "file")


def read_toml(path: str) -> TableReader:
    """A whole file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read {echo(path)}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{echo(path)} is no text in UTF-8") from None
    try:
        return TableReader(tomllib.loads(text), path)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{echo(path)} is no valid TOML: {error}") from None


class TableReader:
    """One table; keys are taken out one by one, and `close` complains about those that are left."""

    def __init__(self, table: Mapping[str, Any], path: str, name: str = "") -> None:
        self._table, self.path, self.name = dict(table), path, name
        self._known: list[str] = []

    def wrong(self, key: str, what: str) -> BadInput:
        """The error about a key."""
        full = f"{self.name}.{key}" if self.name else key
        return BadInput(f"{echo(self.path)}: {echo(full)} {what}")

    def close(self) -> None:
        """Complain about a key that nobody asked for."""
        for key in self._table:
            raise self.wrong(key, f"is not known ({did_you_mean(key, self._known)})")

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._table.pop(key, None)

    def _need(self, key: str) -> Any:
        """A value that must be there; one that is misspelt is told as such."""
        found = self._take(key)
        if found is None:
            for close in difflib.get_close_matches(key, list(self._table), 1):
                raise self.wrong(close, f"is not known (did you mean {key})")
            raise self.wrong(key, "is missing")
        return found

    def table(self, key: str) -> TableReader | None:
        """A table inside this one; None: it is not there."""
        found = self._take(key)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self.wrong(key, f"has to be a table, not {echo(found)}")
        return self._inner(found, key)

    def tables(self, key: str) -> list[TableReader]:
        """A list of tables."""
        found = self._take(key)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self.wrong(key, f"has to be written as [[{key}]]")
        return [self._inner(one, f"{key}[{at}]") for at, one in enumerate(found, 1)]

    def _inner(self, table: Mapping[str, Any], key: str) -> TableReader:
        return TableReader(table, self.path, f"{self.name}.{key}" if self.name else key)

    def text(self, key: str, default: str, choices: tuple[str, ...] = ()) -> str:
        """A text, or one of some words."""
        found = self._take(key)
        if found is None:
            return default
        if not isinstance(found, str) or (choices and found not in choices):
            expected = f"one of {', '.join(choices)}" if choices else "a text"
            raise self.wrong(key, f"has to be {expected}, not {echo(found)}")
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        found = self._take(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.wrong(key, f"has to be true or false, not {echo(found)}")
        return found

    def whole(self, key: str, default: int | None = None, low: int = 0, high: int = 10_000_000) -> int:
        """A whole number; without a default it must be there."""
        found = self._need(key) if default is None else self._take(key)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
            raise self.wrong(key, f"has to be a whole number from {low:,} to {high:,}, not {echo(found)}")
        return found

    def number(self, key: str, default: float | None = None, low: float = 0.0, high: float = MOST) -> float:
        """A number; without a default it must be there."""
        found = self._need(key) if default is None else self._take(key)
        return default if found is None and default is not None else self._number(key, found, low, high)

    def _number(self, key: str, found: object, low: float, high: float) -> float:
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not low <= found <= high:
            raise self.wrong(key, f"has to be a number from {low:g} to {high:g}" + f", not {echo(found)}")
        return float(found)

    def duration(self, key: str, default: float | None = None) -> float | None:
        """Seconds, or a text such as "2h"."""
        found = self._take(key)
        return default if found is None else self._seconds(key, found)

    def _seconds(self, key: str, found: object) -> float:
        if isinstance(found, str):
            try:
                return parse_duration(found)
            except BadInput:
                raise self.wrong(key, f'has to be seconds or a text such as "90s" or "2h", not {echo(found)}') from None
        return self._number(key, found, 0.0, MOST)

    def pairs(self, key: str, sizes: tuple[int, ...] = (2,)) -> list[list[Any]]:
        """A list of short lists."""
        found = self._take(key)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(one, list) and len(one) in sizes for one in found):
            raise self.wrong(
                key, f"has to be a list of lists of {' or '.join(map(str, sizes))} values, not {echo(found)}"
            )
        return found

    def interval(self, key: str, pair: list[Any]) -> tuple[float, float]:
        """From when to when, of a list that `pairs` gave."""
        start, end = self._seconds(key, pair[0]), self._seconds(key, pair[1])
        if start >= end:
            raise self.wrong(key, f"ends before it begins: {echo(pair)}")
        return start, end

    def distribution(self, key: str, default: Distribution | None = None) -> Distribution:
        """A number, a duration as text, or a table with one kind of distribution; without a default it must be there."""
        found = self._need(key) if default is None else self._take(key)
        if found is None and default is not None:
            return default
        if not isinstance(found, dict):
            return Constant(self._seconds(key, found))
        if len(found) != 1 or next(iter(found)) not in KINDS:
            raise self.wrong(key, f"has to be a number or one of {{{', '.join(KINDS)}}} = ..., not {echo(found)}")
        ((kind, value),) = found.items()
        return self._drawn(key, kind, value)

    def _drawn(self, key: str, kind: str, value: Any) -> Distribution:
        if kind == "exponential":
            return Exponential(self._seconds(key, value))
        if kind == "file":
            return self._file(key, value)
        if kind == "quantiles":
            return self._quantiles(key, value)
        if not isinstance(value, list) or not value or (kind != "values" and len(value) != 2):
            expected = "a list of numbers" if kind == "values" else "two numbers"
            raise self.wrong(key, f"{kind} has to be {expected}, not {echo(value)}")
        numbers = tuple(self._seconds(key, one) for one in value)
        if kind == "values":
            return Choice(numbers)
        if kind == "uniform":
            if numbers[0] > numbers[1]:
                raise self.wrong(key, f"uniform has its ends the wrong way round: {echo(value)}")
            return Uniform(*numbers)
        if kind == "normal":
            return Normal(*numbers)
        if numbers[1] > MOST_SPREAD:
            raise self.wrong(key, f"lognormal has a spread of more than {MOST_SPREAD:g}: {echo(value)}")
        return LogNormal(*numbers)

    def _quantiles(self, key: str, value: Any) -> Distribution:
        if not isinstance(value, list) or len(value) < 2 or not all(isinstance(o, list) and len(o) == 2 for o in value):
            raise self.wrong(
                key, f"quantiles has to be a list of [probability, value] of at least two, not {echo(value)}"
            )
        points = [(self._number(key, one[0], 0.0, 1.0), self._seconds(key, one[1])) for one in value]
        if points[0][0] != 0.0 or points[-1][0] != 1.0:
            raise self.wrong(key, "quantiles has to begin at probability 0 and end at 1")
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in itertools.pairwise(points)):
            raise self.wrong(key, "quantiles has to rise")
        return Quantiles(tuple(one[0] for one in points), tuple(one[1] for one in points))

    def _file(self, key: str, value: Any) -> Distribution:
        if not isinstance(value, str):
            raise self.wrong(key, f"file has to be a path, not {echo(value)}")
        path = Path(self.path).parent / value
        return read_values(str(path))


def read_values(path: str) -> Distribution:
    """A file of measured seconds, one number in each line, as a distribution; empty lines and those after # are skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"cannot read {echo(path)}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{echo(path)} is no text in UTF-8") from None
    values = []
    for at, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= MOST:
            raise BadInput(f"{echo(path)}:{at}: {echo(text)} is no number of seconds")
        values.append(value)
    if not values:
        raise BadInput(f"{echo(path)} has no number in it")
    return measured(values)
