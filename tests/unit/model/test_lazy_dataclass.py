"""Classes of our `dataclass` behave as those of the standard one; their methods are compiled when they are used."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shoal.model import lazy_dataclass

SOURCE = Path(lazy_dataclass.__file__).parents[1]


@lazy_dataclass.dataclass(frozen=True)
class Frozen:
    """All that fields can have."""

    kind: ClassVar[str] = "k"
    a: int
    b: str = "b"
    c: list[int] = dataclasses.field(default_factory=list)
    d: str = dataclasses.field(default="secret", repr=False, compare=False)
    e: int = dataclasses.field(init=False, default=7)
    f: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", self.a + 1)


@lazy_dataclass.dataclass(frozen=True)
class Below(Frozen):
    """Inherits fields."""

    g: int = 1


@lazy_dataclass.dataclass(slots=True)
class Slotted:
    """Has slots, and a field of each kind of default."""

    a: int
    b: list[int] = dataclasses.field(default_factory=list)


@lazy_dataclass.dataclass(eq=False)
class Same:
    """Compared by identity."""

    a: int = 0


@lazy_dataclass.dataclass(frozen=True)
class Empty:
    """Without fields."""


@lazy_dataclass.dataclass
class Own:
    """Methods of its own stay."""

    a: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 5


def standard(cls: type, **options: bool) -> Any:
    """The class as the standard decorator makes it."""
    inherited = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__dict__", "__weakref__"}
    body = {name: value for name, value in vars(cls).items() if name not in inherited}
    for field in dataclasses.fields(cls):
        kept = {name: getattr(field, name) for name in ("default", "default_factory", "init", "repr", "compare")}
        body[field.name] = dataclasses.field(**kept)
    return dataclasses.dataclass(**options)(type(cls.__name__, (), body))


def test_values_are_those_of_the_standard_decorator() -> None:
    other = standard(Frozen, frozen=True)
    for args, more in (((1,), {}), ((1, "x"), {"c": [2], "d": "y"}), ((), {"a": 3})):
        ours: Any
        ours, theirs = Frozen(*args, **more), other(*args, **more)
        assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
        assert repr(ours).rpartition(".")[2] == repr(theirs).rpartition(".")[2]
    assert Frozen.__match_args__ == other.__match_args__
    assert Frozen(1).c is not Frozen(1).c


@pytest.mark.parametrize("arguments", [{}, {"a": 1, "nothing": 2}, {"a": 1, "e": 2}])
def test_wrong_arguments_are_refused_in_the_same_words(arguments: dict[str, Any]) -> None:
    texts = []
    for cls in (Frozen, standard(Frozen, frozen=True)):
        for _ in range(2):  # the first call compiles, the second does not
            with pytest.raises(TypeError) as caught:
                cls(**arguments)
            texts.append(str(caught.value).rpartition(".")[2])
    assert len(set(texts)) == 1, texts


def test_equality_and_hash_go_by_the_fields_that_are_compared() -> None:
    assert Frozen(1, d="x") == Frozen(1, d="y") != Frozen(2)
    assert Below(1) != Frozen(1) and Below(1) == Below(1) != Below(1, g=2)
    assert hash(Empty()) == hash(Empty()) and Empty() == Empty()
    first, second = Frozen(1, c=()), Frozen(1, c=(), d="y")  # type: ignore[arg-type]
    assert hash(first) == hash(second) and len({first, second}) == 1
    assert Same() != Same() and hash(Same())
    with pytest.raises(TypeError, match="unhashable"):
        hash(Slotted(1))
    assert repr(Own(1)) == "own" and Own(1) == Own(2) and hash(Own(1)) == 5


def test_frozen_ones_cannot_be_changed() -> None:
    for one in (Frozen(1), Below(1), Empty()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.a = 2  # type: ignore[misc, union-attr]
        with pytest.raises(dataclasses.FrozenInstanceError):
            del one.a  # type: ignore[union-attr]
    assert dataclasses.replace(Frozen(1), a=5).f == 6


def test_they_can_be_copied_and_pickled() -> None:
    for one in (Frozen(1, c=[3]), Below(1, g=4), Slotted(2, [1]), Empty()):
        assert copy.deepcopy(one) == copy.copy(one) == pickle.loads(pickle.dumps(one)) == one
    assert not hasattr(Slotted(1), "__dict__")


def test_nothing_is_compiled_before_the_first_use() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class New:
        a: int

    before = New.__init__
    assert New(1) == New(1)
    assert New.__init__ is not before


def test_all_of_the_package_uses_it() -> None:
    """Each use of the standard decorator costs every start of a process about 1 ms."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses" and path.stem != "lazy_dataclass":
                assert "dataclass" not in {alias.name for alias in node.names}, path
