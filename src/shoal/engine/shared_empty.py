"""Empty collections that many records share: most of the 100,000 tasks of a large run never put anything into theirs.

Looking into them, and removing what is not there, is as with any other; an attempt to fill one is an error, since all
records would have it.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from shoal.model.rangeset import RangeSet

K = TypeVar("K")
V = TypeVar("V")


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("this empty collection is shared: give the record its own first")


class EmptyDict(dict[K, V]):
    """A dictionary that stays empty."""

    __slots__ = ()
    __setitem__ = setdefault = update = __ior__ = _refuse
    __hash__ = object.__hash__  # type: ignore[assignment]  # a dataclass takes no other default


class EmptyList(list[V]):
    """A list that stays empty."""

    __slots__ = ()
    append = extend = insert = __iadd__ = __imul__ = _refuse
    __hash__ = object.__hash__  # type: ignore[assignment]


class EmptySet(set[V]):
    """A set that stays empty."""

    __slots__ = ()
    add = update = __ior__ = __ixor__ = _refuse
    __hash__ = object.__hash__  # type: ignore[assignment]


class EmptyRanges(RangeSet):
    """A set of numbers that stays empty."""

    __slots__ = ()
    add = add_range = _refuse
    __hash__ = object.__hash__  # type: ignore[assignment]
