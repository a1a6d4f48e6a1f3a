"""The same script in another process has the same fingerprints, and another content has others."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.client.pickling.by_value import dumps
from shoal.client.pickling.fingerprint import fingerprint

SCRIPT = """
import abc, dataclasses, enum, functools, json, typing
from shoal.client.pickling.by_value import dumps
from shoal.client.pickling.fingerprint import fingerprint

TEXTS, FROZEN, NESTED = {"a", "b", "c", "d"}, frozenset("wxyz"), {"k": [{"m", "n", "o"}, ({"p", "q", "r"},)]}

class Inner:
    def go(self): return 1

class Outer:
    names = {"u", "v", "w"}
    class Nested:
        more = {"1", "2", "3"}
    def make(self): return self.Nested, Inner()

class Colour(enum.Enum):
    RED = "red"; GREEN = "green"; BLUE = "blue"

@dataclasses.dataclass
class Point:
    x: int = 1
    y: list = dataclasses.field(default_factory=list)

@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    x: str

class Abstract(abc.ABC):
    @abc.abstractmethod
    def a(self): ...
    @abc.abstractmethod
    def b(self): ...

class Row(typing.NamedTuple):
    a: int

T = typing.TypeVar("T")

class Box(typing.Generic[T]):
    x: T

COLOURS, SLOTTED = set(Colour), {Slotted(x) for x in "abc"}

def closure(s=frozenset("ab")):
    local = {"a", "b", "zz"}
    return lambda x: x in local or x in s

def even(n): return not n or odd(n - 1)
def odd(n): return n and even(n - 1)

@functools.lru_cache
def cached(n): return TEXTS, n

def constant(x): return x in {"alpha", "beta", "gamma"}

things = dict(
    texts=lambda: TEXTS, frozen=lambda: FROZEN, nested=lambda: NESTED, classes=lambda: Outer(), enum=lambda: Colour.RED,
    members=lambda: COLOURS, dataclass=lambda: Point(), slots=lambda: SLOTTED, abstract=lambda: Abstract, row=lambda: Row(1),
    generic=lambda: Box(), closure=closure(), recursion=even, cached=cached, constant=constant,
    arguments=((TEXTS, Outer(), {"a": FROZEN}), {"colour": Colour.BLUE}),
)
print(json.dumps({name: fingerprint(dumps(thing, 5)).digest for name, thing in things.items()}))
"""


def digests(path: Path, seed: int, text: str = SCRIPT) -> dict[str, str]:
    path.write_text(text)
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]  # of our own script


def test_an_unchanged_script_has_the_same_fingerprints_in_every_process_and_other_content_has_others(
    tmp_path: Path,
) -> None:
    before = digests(tmp_path / "script.py", 1)
    assert digests(tmp_path / "script.py", 2) == before
    assert len(set(before.values())) == len(before)
    text = SCRIPT.replace('{"a", "b", "c", "d"}', '{"a", "b", "c", "e"}').replace('{"m", "n", "o"}', '{"m", "n", "x"}')
    text = text.replace("def go(self): return 1", "def go(self): return 2").replace("x: int = 1", "x: int = 2")
    text = (
        text.replace('RED = "red"', 'RED = "rot"')
        .replace('"a", "b", "zz"', '"a", "b", "zy"')
        .replace('"gamma"', '"delta"')
    )
    text = text.replace("odd(n): return n and", "odd(n): return n > 0 and").replace(
        'frozenset("wxyz")', 'frozenset("wxy")'
    )
    after = digests(tmp_path / "script.py", 2, text)
    same = {name for name, digest in after.items() if before[name] == digest}
    assert same == {"slots", "abstract", "row", "generic"}


@pytest.mark.parametrize("value", [1, "text", [1.5, {"a": b"x"}], None])
def test_what_has_no_order_of_its_own_is_compared_as_it_is(value: object) -> None:
    assert fingerprint(pickle.dumps(value, 5)) is None


def test_order_and_kind_count_where_they_mean_something() -> None:
    def digest(value: object) -> str:
        found = fingerprint(dumps([frozenset(), value], 5))
        assert found is not None
        return found.digest

    assert digest(["a", "b"]) != digest(["b", "a"])
    assert digest({"a", "b"}) != digest(frozenset({"a", "b"})) != digest(["a", "b"])
    assert digest({"a"}) != digest({b"a"}) and digest({1}) != digest({1.0})


@pytest.mark.parametrize("data", [b"\x8f", b"\x80\x05\x8f", b"cloudpickle"])
def test_what_is_no_pickle_has_no_fingerprint(data: bytes) -> None:
    assert fingerprint(data) is None
