"""Functions and arguments as payload texts."""

from __future__ import annotations

import functools
import importlib
import math
import pickle
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from shoal.client.pickling.serialize import (
    Functions,
    call_texts,
    chunked,
    dump,
    is_importable,
    name_of,
    renewed,
    text_of,
)
from shoal.model.blobs import is_digest
from shoal.model.errors import Unreachable
from shoal.wire import payload
from tests.unit.blobbed import joined


class Blobs:
    """What was put."""

    def __init__(self) -> None:
        self.parts: list[Sequence[Any]] = []

    def put(self, parts: Sequence[Any]) -> str:
        self.parts.append(parts)
        return f"sha256:{len(self.parts):064x}"


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


def back(text: str) -> Any:
    return payload.load(payload.of_text(text))


@pytest.fixture(autouse=True)
def nothing_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that other tests have registered with cloudpickle are none of ours."""
    monkeypatch.setattr("cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES", set())


def main_function(source: str, name: str) -> Any:
    """A function as a script has it: of `__main__`, with globals of its own."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(source, space)
    return space[name]


class Stubborn:
    def __reduce__(self) -> Any:
        raise ValueError("not me")


def test_what_plain_pickle_can_do_is_left_to_it() -> None:
    assert dump(((1, "x"), {}))[0] == pickle.dumps(((1, "x"), {}), 5)


def test_lambdas_and_closures_travel_by_value(blobs: Blobs) -> None:
    base = 40
    assert back(text_of(lambda x: base + x, blobs.put))(2) == 42


def test_functions_of_main_travel_by_value_with_their_globals(blobs: Blobs) -> None:
    f = main_function("import math\nk = 3\ndef g(x): return k * x\ndef f(x): return g(math.floor(x))", "f")
    assert back(text_of(f, blobs.put))(2.5) == 6


def test_objects_of_main_travel_by_value() -> None:
    code = (
        "from shoal.client.pickling.serialize import dump\nimport sys\n"
        "class P:\n  def __init__(self, x): self.x = x\n"
        "sys.stdout.buffer.write(dump((P(7),))[0])"
    )
    data = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert pickle.loads(data)[0].x == 7  # this process has no P in its __main__


def test_what_nobody_can_pickle_is_said() -> None:
    with pytest.raises(ValueError, match="not me"):
        dump(Stubborn())


def test_a_large_object_becomes_a_blob_whose_buffers_are_not_copied(blobs: Blobs) -> None:
    array = numpy.arange(100_000)
    text = text_of(((array,), {}), blobs.put)
    assert is_digest(text)
    assert any(isinstance(part, memoryview) and len(part) == array.nbytes for part in blobs.parts[0])
    (got,), _ = payload.load(bytearray(joined(blobs.parts[0])))
    assert (got == array).all()
    got[0] = 5  # results can be written to


def test_a_small_array_stays_in_the_message(blobs: Blobs) -> None:
    (got,), _ = back(text_of(((numpy.arange(10),), {}), blobs.put))
    assert got.tolist() == list(range(10)) and not blobs.parts


def test_large_bytes_without_buffers_become_a_plain_blob(blobs: Blobs) -> None:
    assert is_digest(text_of("x" * 70_000, blobs.put))
    assert payload.load(joined(blobs.parts[0])) == "x" * 70_000


def test_a_call_that_cannot_be_pickled_does_not_harm_its_neighbours(blobs: Blobs) -> None:
    first, second, third, fourth = call_texts(iter([(1,), (Stubborn(),), (numpy.zeros(20_000),), (4,)]), blobs.put)
    assert isinstance(first, str) and back(first) == ((1,), {})
    assert isinstance(second, ValueError)
    assert isinstance(third, str) and is_digest(third)
    assert isinstance(fourth, str) and back(fourth) == ((4,), {})


def test_a_server_that_is_gone_is_no_fault_of_the_call() -> None:
    def put(parts: Any) -> str:
        raise Unreachable("gone")

    with pytest.raises(Unreachable):
        list(call_texts(iter([(b"x" * 70_000,)]), put))


def test_a_reference_travels_as_its_name(blobs: Blobs) -> None:
    (ref,), _ = back(text_of(((payload.Ref("sha256:" + "0" * 64),), {}), blobs.put))
    assert isinstance(ref, payload.Ref)


# --- texts of functions that are kept
CLOSURE = """
def make():
    k = 2
    def f(x): return k * x
    def change(v):
        nonlocal k
        k = v
    return f, change
f, change = make()
"""


def test_the_text_of_a_function_is_made_once(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    f = main_function("k = 2\ndef f(x): return k * x", "f")
    functions = Functions()
    text = functions.text_of(f, blobs.put)
    monkeypatch.setattr("shoal.client.pickling.serialize.text_of", lambda *_: pytest.fail("made again"))
    assert functions.text_of(f, blobs.put) == text


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("k = 2\ndef f(x): return k * x", "k = 3"),
        ("k = [2]\ndef f(x): return k[0] * x", "k[0] = 3"),
        ("k = 2\ndef g(x): return k * x\ndef f(x): return g(x)", "k = 3"),
        ("k = 2\ndef g(x): return k * x\ndef f(x): return g(x)", "def g(x): return 3 * x"),
        ("def f(x, k=2): return k * x", "f.__defaults__ = (3,)"),
        ("def f(x, k=[2]): return k[0] * x", "f.__defaults__[0][0] = 3"),
        ("class K: k = 2\ndef f(x): return K.k * x", "K.k = 3"),
        ("def f(x): return [k * y for y in [x]][0]\nk = 2", "k = 3"),
        ("def f(x): return f.k * x\nf.k = 2", "f.k = 3"),
        ("def f(x, *, k=2): return k * x", "f.__kwdefaults__['k'] = 3"),
        ("def f(x): return 2 * x", "f.__code__ = (lambda x: 3 * x).__code__"),
        ("def f(x): return 2 * x", "def f(x): return 3 * x"),
        ("k = 2\ndef f(x, *, j=1): return (k if j else 3) * x", "f.__kwdefaults__ = {'j': 0}"),
        ("k = [2]\nget = k.__len__\ndef f(x): return (get() + 1) * x", "k.append(1)"),
        ("import types\nm = types.ModuleType('made_here')\nm.k = 2\ndef f(x): return m.k * x", "m.k = 3"),
        (CLOSURE, "change(3)"),
    ],
)  # fmt: skip
def test_a_function_whose_surroundings_changed_is_pickled_anew(blobs: Blobs, source: str, change: str) -> None:
    f = main_function(source, "f")
    functions = Functions()
    assert back(functions.text_of(f, blobs.put))(10) == 20
    space = f.__globals__
    exec(change, space)
    assert back(functions.text_of(space["f"], blobs.put))(10) == 30


def test_another_function_after_a_reload_is_not_taken_for_the_first(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "reloaded_here.py").write_text("def f(): return 'f'\ndef g(): return 'g'\n")
    module: Any = importlib.import_module("reloaded_here")
    try:
        functions = Functions()
        for _ in range(50):
            assert back(functions.text_of(module.f, blobs.put))() == "f"
            importlib.reload(module)
            assert back(functions.text_of(module.g, blobs.put))() == "g"  # it may have the id of the first `f`
        old = module.f
        assert back(functions.text_of(old, blobs.put)) is old
        importlib.reload(module)
        assert back(functions.text_of(old, blobs.put)) is not module.f  # by value: its name leads to another now
        assert renewed(old) is module.f and renewed(len) is len
    finally:
        del sys.modules["reloaded_here"]


def test_functions_of_modules_go_by_name(blobs: Blobs) -> None:
    assert is_importable(math.floor) and is_importable(functools.partial)
    assert not is_importable(lambda: 0)
    assert back(text_of(math.floor, blobs.put)) is math.floor


def test_equal_scripts_make_equal_texts() -> None:
    code = (
        "from shoal.client.pickling.serialize import text_of\nimport math\nk = {'a': 1}\n"
        "def g(x): return math.sin(x) + k['a']\ndef f(x, y=2): return g(x) + y\n"
        "print(text_of(f, None), text_of(((1, 'x'), {'z': [1.5]}), None))"
    )
    said = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(3)}
    assert len(said) == 1


def test_a_chunk_needs_no_module_of_ours(blobs: Blobs) -> None:
    data = dump(chunked(math.pow))[0]
    code = (
        "import sys, pickle\nclass Hide:\n  def find_spec(self, name, *_):\n    assert not name.startswith('shoal')\n"
        "sys.meta_path.insert(0, Hide())\n"
        "print(pickle.loads(sys.stdin.buffer.read())([(2, 3), (3, 2)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout == b"[8.0, 9.0]\n"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (math.floor, "floor"),
        (functools.partial(math.pow, 2), "partial"),
        (types.SimpleNamespace, "SimpleNamespace"),
        ("".join, "str.join"),
    ],
)
def test_names_of_functions(function: Any, name: str) -> None:
    assert name_of(function) == name
