"""Decorators of `functools` are pickled by value, where cloudpickle alone does not."""

from __future__ import annotations

import functools
import pickle
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


def test_what_can_be_imported_goes_by_name() -> None:
    assert there_and_back(functools.singledispatch) is functools.singledispatch
