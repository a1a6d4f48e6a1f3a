"""Decorators of `functools` are pickled by value, where cloudpickle alone does not."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from shoal.client.pickling.by_value import dumps


def there_and_back(value: Any) -> Any:
    return pickle.loads(dumps(value, 5))


def test_a_cached_function_keeps_its_options_and_attributes_and_begins_with_an_empty_cache() -> None:
    @functools.lru_cache(maxsize=7, typed=True)
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    fib.word = "kept"  # type: ignore[attr-defined]
    assert fib(5) == 5
    made = there_and_back(fib)
    assert made.cache_parameters() == {"maxsize": 7, "typed": True}
    assert (made.cache_info().currsize, made.word, made.__name__) == (0, "kept", "fib")
    assert made(20) == 6765 and made.cache_info().hits > 0, "it calls itself, not another copy"


def test_a_class_with_cached_properties_and_methods_travels() -> None:
    class Shape:
        def __init__(self, side: int) -> None:
            self.side = side

        @functools.cached_property
        def area(self) -> int:
            return self.side**2

        @functools.cache  # noqa: B019  # what people write
        def more(self) -> int:
            return self.side + 1

        @functools.singledispatchmethod
        def kind(self, x: object) -> str:
            return "other"

        @kind.register
        def _(self, x: int) -> str:
            return "int"

    made = there_and_back(Shape(3))
    assert (made.area, made.more(), made.kind("a"), made.kind(1)) == (9, 4, "other", "int")


def test_a_function_that_dispatches_by_type_travels_with_its_implementations() -> None:
    @functools.singledispatch
    def kind(x: object) -> Any:
        return "other"

    @kind.register
    def _(x: list) -> Any:  # type: ignore[type-arg]
        return [kind(one) for one in x]

    assert there_and_back(kind)([1, [2]]) == ["other", ["other"]]


def test_a_class_is_made_with_the_slots_it_has_here(tmp_path: Path) -> None:
    """An object of it has no `__dict__` there either, also if the class has sent objects before."""

    class Point:
        __slots__ = ("__hidden", "x")

        def __init__(self) -> None:
            self.x, self.__hidden = 3, 4

    before = dumps(Point, 5)
    dumps(Point(), 5)
    assert dumps(Point, 5) == before, "the names of its slots that pickle noted are not part of it"
    file = tmp_path / "point"
    file.write_bytes(dumps(Point(), 5))
    code = (
        "import pickle, sys\np = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(p.x, p._Point__hidden, hasattr(p, '__dict__'), type(p).__slots__)\np.y = 1"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == "3 4 False ('__hidden', 'x')\n"
    assert "AttributeError: 'Point' object has no attribute 'y'" in done.stderr


def test_what_can_be_imported_goes_by_name() -> None:
    assert there_and_back(functools.singledispatch) is functools.singledispatch
