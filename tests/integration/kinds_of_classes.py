"""Kinds of classes whose objects are results: of a script (`__main__`) and of a module, loaded in every way there is."""

from __future__ import annotations

import abc
import dataclasses
import enum
import types
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Plain:
    def __init__(self) -> None:
        self.a = 1


class Slots:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 3


class MoreSlots(Slots):
    __slots__ = ("y",)

    def __init__(self) -> None:
        self.x, self.y = 1, [2]


class SlotsAndDict(Slots):
    def __init__(self) -> None:
        self.x, self.z = 1, 5


class DictThenSlots(Plain):
    __slots__ = ("s",)

    def __init__(self) -> None:
        self.a, self.s = 1, 2


class DictInSlots:
    __slots__ = ("__dict__", "__weakref__", "a")

    def __init__(self) -> None:
        self.a, self.b = 1, 2


class OneText:
    __slots__ = "only"

    def __init__(self) -> None:
        self.only = 1


class Private:
    __slots__ = ("__x",)

    def __init__(self) -> None:
        self.__x = 7


class Documented:
    __slots__ = {"p": "a point"}

    def __init__(self) -> None:
        self.p = 1


class NotSet:
    __slots__ = ("x",)


@dataclasses.dataclass(slots=True)
class Data:
    x: int = 1
    y: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class MoreData(Data):
    z: int = 3


@dataclasses.dataclass(slots=True, frozen=True)
class Frozen:
    x: int = 1


class Row(NamedTuple):
    x: int = 1


class RowWithSlots(Row):
    __slots__ = ()


class RowWithDict(Row):
    pass


class Colour(enum.Enum):
    RED = 1


class Mixin:
    __slots__ = ()


class Mixed(Mixin, enum.Enum):
    RED = 1


class Wrong(Exception):
    __slots__ = ("x",)

    def __init__(self, x: int = 2) -> None:
        super().__init__(x)
        self.x = x


class OwnState:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 1

    def __getstate__(self) -> dict[str, int]:
        return {"value": self.x}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.x = state["value"]


class Reduced:
    __slots__ = ("x",)

    def __init__(self, x: int = 4) -> None:
        self.x = x

    def __reduce__(self) -> Any:
        return Reduced, (self.x,)


class Abstract(abc.ABC):
    __slots__ = ("x",)

    @abc.abstractmethod
    def tell(self) -> int: ...


class Concrete(Abstract):
    __slots__ = ("y",)

    def __init__(self) -> None:
        self.x, self.y = 1, 2

    def tell(self) -> int:
        return 3


class Box(Generic[T]):
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x: Any = 1


class Count(int):
    __slots__ = ()


class Listed(list[int]):
    __slots__ = ("tag",)

    def __init__(self, items: Any = (1, 2)) -> None:
        super().__init__(items)
        self.tag = "t"


def first(kind: type) -> Any:
    """An object of a class."""
    return next(iter(kind)) if issubclass(kind, enum.Enum) else kind()


KINDS = [
    kind for kind in list(globals().values())
    if isinstance(kind, type) and kind.__module__ == __name__ and kind not in (Mixin, Abstract)
]  # fmt: skip


def tell(value: Any) -> list[Any]:
    """All that an object holds: its slots and its `__dict__`, each by itself, and what it is."""
    slots = {
        name: getattr(value, name, "not set")
        for kind in type(value).__mro__
        for name, found in vars(kind).items()
        if type(found) is types.MemberDescriptorType and kind.__module__ == __name__
    }
    own = getattr(value, "__dict__", None)
    base = repr(value) if isinstance(value, (tuple, list, int, Exception)) else ""
    return [type(value).__name__, sorted(slots.items()), None if own is None else sorted(map(str, own.items())), base]


def make(at: int) -> Any:
    """A result: the object in containers, twice the same one, and what it holds where it was made."""
    value = first(KINDS[at])
    return [value, {"again": value}], tell(value)


def compare(executor: Any) -> list[str]:
    """The kinds whose objects are not at home what they were in the call, or would be here; arguments as well."""
    wrong = []
    here = [first(kind) for kind in KINDS]
    told = list(executor.map(tell, here))
    made = [executor.submit(make, at) for at in range(len(KINDS))]
    for value, as_argument, future in zip(here, told, made, strict=True):
        try:
            (found, others), there = future.result(60)
        except Exception as error:
            wrong.append(f"{type(value).__name__}: {error!r}")
            continue
        same = others["again"] is found and type(found) is type(value)
        if not (same and as_argument == there == tell(found) == tell(value)):
            wrong.append(f"{tell(value)} there {there} here {tell(found)} argument {as_argument}")
    return wrong


if __name__ == "__main__":
    import shoal

    with shoal.Executor(attach=False) as ex:
        print(len(KINDS), compare(ex))
