"""Results of others' pilots: nothing in them runs, whatever they say; plain values, arrays and exceptions come through."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import fractions
import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.client.unpickle.restricted import RULES, load_restricted
from shoal.client.unpickle.rules import UntrustedResult
from shoal.client.unpickle.trust import Trust, parse_trust
from shoal.model.errors import BadInput
from shoal.wire.payload import container
from tests.integration import kinds_of_classes

# Callables that run code, read or write files, import, or open the way to one that does: what exploits are made of.
_EXPLOITS = """
os.system os.popen os.execv os.spawnv os.posix_spawn os.fork os.kill os.remove os.putenv posix.system posix.execv
subprocess.Popen subprocess.run subprocess.call subprocess.check_output subprocess.getoutput
builtins.eval builtins.exec builtins.compile builtins.__import__ builtins.open builtins.getattr builtins.setattr
builtins.map builtins.filter builtins.type builtins.globals builtins.vars builtins.print builtins.input
builtins.breakpoint builtins.object builtins.memoryview builtins.SystemExit builtins.KeyboardInterrupt
builtins.BaseException importlib.import_module importlib.reload runpy.run_path runpy._run_code code.interact
code.InteractiveInterpreter codecs.decode codecs.encode _codecs.encode copyreg._reconstructor copyreg.__newobj__
copyreg.__newobj_ex__ copyreg.add_extension functools.partial functools.reduce operator.attrgetter operator.itemgetter
operator.methodcaller operator.call types.FunctionType types.CodeType types.ModuleType pickle.loads pickle.load
pickle._loads marshal.loads shelve.open dill.loads cloudpickle.loads cloudpickle.cloudpickle._make_function
cloudpickle.cloudpickle.subimport joblib.load joblib.numpy_pickle.load
numpy.load numpy.loadtxt numpy.fromfile numpy.save numpy.memmap numpy.vectorize numpy.frompyfunc numpy.f2py.compile
numpy.testing._private.utils.runstring numpy.testing.runstring numpy.testing.measure numpy.testing.rundocs
numpy._core.multiarray.fromfile numpy.core.records.fromfile numpy.ctypeslib.load_library numpy.distutils.exec_command
numpy.lib.npyio.NpzFile numpy.ma.core._mareconstruct numpy.random._pickle.__generator_ctor numpy.matrix
pandas.eval pandas.read_pickle pandas.read_csv pandas.core.computation.eval.eval pandas.io.pickle.read_pickle
pandas.DataFrame.eval pandas.compat.pickle_compat.load torch.load torch.hub.load sklearn.externals.joblib.load
ctypes.CDLL ctypes.memmove _ctypes.dlopen mmap.mmap shutil.rmtree shutil.copy tempfile.mkstemp pathlib.Path.unlink
socket.socket socket.create_connection urllib.request.urlopen http.client.HTTPConnection ftplib.FTP smtplib.SMTP
webbrowser.open pty.spawn platform.popen timeit.timeit timeit.main cProfile.run profile.run bdb.Bdb pdb.run trace.Trace
doctest.debug_script sys.setprofile sys.settrace sys.exit threading.Thread multiprocessing.Process
concurrent.futures.ProcessPoolExecutor asyncio.run asyncio.subprocess.create_subprocess_shell logging.config.fileConfig
logging.FileHandler linecache.getlines inspect.getsource imp.load_source zipimport.zipimporter site.addsitedir
distutils.spawn.spawn setuptools.setup pip.main venv.create ensurepip.bootstrap unittest.main idlelib.run.Executive
lib2to3.pgen2.grammar.Grammar.loads nt.system commands.getoutput __builtin__.eval __builtin__.apply exceptions.OSError
sqlite3.connect xml.etree.ElementTree.parse yaml.load jsonpickle.decode shoal.pilot.runner.main.main shoal.wire.payload.load
__main__.anything collections.namedtuple collections.UserDict enum.Enum dataclasses.make_dataclass weakref.finalize
atexit.register gc.get_objects contextlib.ExitStack typing.get_type_hints string.Formatter re.compile ast.literal_eval
"""
EXPLOITS = _EXPLOITS.split()


def calling(module: str, name: str, *args: object) -> bytes:
    """A pickle that calls something, as every exploit does."""
    head = pickle.PROTO + b"\x04"
    words = b"".join(pickle.BINUNICODE + len(w.encode()).to_bytes(4, "little") + w.encode() for w in (module, name))
    return head + words + pickle.STACK_GLOBAL + pickle.dumps(args, 4)[2:-1] + pickle.REDUCE + pickle.STOP


def in_old_ways(module: str, name: str, word: str) -> list[bytes]:
    """The same by the instructions of older protocols."""
    path = f"{module}\n{name}\n".encode()
    return [
        b"c" + path + b"(S'" + word.encode() + b"'\ntR.",
        b"(S'" + word.encode() + b"'\ni" + path + b".",
        b"(c" + path + b"S'" + word.encode() + b"'\no.",
        b"\x80\x02\x82\x01.", b"\x80\x02\x83\x01\x00.", b"\x80\x02\x84\x01\x00\x00\x00.", b"P1\n.", b"\x80\x02NQ.",
    ]  # fmt: skip


def test_there_are_enough_exploits() -> None:
    assert len(set(EXPLOITS)) >= 150


@pytest.mark.parametrize("dotted", EXPLOITS)
def test_no_known_exploit_runs(dotted: str, tmp_path: Path) -> None:
    module, _, name = dotted.rpartition(".")
    mark = tmp_path / "ran"
    before = set(sys.modules)
    word = f"touch {mark}"
    wholes = [
        calling(module, name, word),
        calling(module.partition(".")[0], f"{module.partition('.')[2]}.{name}", word),
    ]
    for data in [*wholes, *in_old_ways(module, name, word)]:
        with pytest.raises(UntrustedResult):
            load_restricted(data)
    assert not mark.exists()
    assert set(sys.modules) <= before | {"numpy.random"}, "nothing was imported for it"


def test_the_refusal_names_what_it_was_and_the_ways_out() -> None:
    with pytest.raises(UntrustedResult) as refused:
        load_restricted(calling("os", "system", "true"))
    assert "it needs os.system" in refused.value.message
    assert 'trust = "group"' in refused.value.hint and "trust=[...]" in refused.value.hint


def test_only_exact_names_are_known_and_none_is_a_door() -> None:
    """Never a prefix: each name is written out, and none of the exploits' is among them."""
    assert all("*" not in module + name and module and name for module, name in RULES)
    assert not {f"{module}.{name}" for module, name in RULES} & set(EXPLOITS)


# --- arguments that lie
class _State:
    """Pickles as: build `value` by its rule, then set this state."""

    def __init__(self, make: Any, args: tuple[Any, ...], state: Any) -> None:
        self.parts = make, args, state

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


class _Named:
    """Pickles as a call of something by its name."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.args


_RECONSTRUCT = numpy.arange(4)[::2].__reduce__()[0]  # as this version of numpy names it
_SCALAR = numpy.float64(1).__reduce__()[0]
_EMPTY = (numpy.ndarray, (0,), b"b")
LIES: dict[str, Any] = {
    "objects from bytes": _State(_RECONSTRUCT, _EMPTY, (1, (1,), numpy.dtype("O"), False, b"\x41" * 8)),
    "a shape that its data has not": _State(_RECONSTRUCT, _EMPTY, (1, (1 << 40,), numpy.dtype("f8"), False, b"")),
    "a negative shape": _State(_RECONSTRUCT, _EMPTY, (1, (-1,), numpy.dtype("f8"), False, b"12345678")),
    "an array of another kind": _Named(_RECONSTRUCT, numpy.memmap, (0,), b"b"),
    "a dtype whose flags deny its objects": _State(
        numpy.dtype, ("V8", False, True), (3, "|", None, ("x",), {"x": (numpy.dtype("O"), 0)}, 8, 1, 0)
    ),
    "a dtype larger than it says": _State(numpy.dtype, ("V8", False, True), (3, "|", None, None, None, 1 << 40, 1, 0)),
    "a dtype by a sentence": _Named(numpy.dtype, "f8,(1000000,1000000)f8"),
    "a number of another size": _Named(_SCALAR, numpy.dtype("f8"), b"1"),
    "an object as a number": _Named(_SCALAR, numpy.dtype("O"), b"12345678"),
    "a fraction that is written out": _Named(fractions.Fraction, "1e999999999"),
    "bytes of a size": _Named(bytes, 1 << 40),
    "a set from what runs": _Named(set, "text"),
    "a class as a value": [int],
    "a class inside": {"a": (1, {"b": [ValueError]})},
    "a function as a value": os.system,
    "an exception with a class of its own": _State(ValueError, ("x",), {"__class__": 3}),
    "state of a class": _State(pathlib.PurePosixPath, ("x",), (None, {"__fspath__": 1})),
    "what makes the items of a dictionary": collections.defaultdict(os.getcwd),
    "that the program ends": SystemExit(0),
}


@pytest.mark.parametrize("name", LIES)
def test_names_that_are_known_with_arguments_that_lie_are_refused(name: str) -> None:
    with pytest.raises(UntrustedResult):
        load_restricted(pickle.dumps(LIES[name], 5))


def test_a_pickle_cannot_change_a_class_of_this_program() -> None:
    """BUILD with slots sets attributes on whatever lies on the stack: no class ever does."""
    head = (
        pickle.PROTO
        + b"\x04"
        + b"".join(pickle.SHORT_BINUNICODE + bytes([len(w)]) + w for w in (b"fractions", b"Fraction"))
    )
    slots = pickle.dumps((None, {"numerator": 7}), 4)[2:-1]
    with pytest.raises(UntrustedResult):
        load_restricted(head + pickle.STACK_GLOBAL + slots + pickle.BUILD + pickle.STOP)
    assert fractions.Fraction(1, 2).numerator == 1


@pytest.mark.parametrize(
    "data",
    [
        pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + (1 << 40).to_bytes(8, "little") + b"x.",
        pickle.PROTO + b"\x04" + pickle.LONG_BINPUT + (0xFFFFFFFF).to_bytes(4, "little") + b"N.",
        pickle.PROTO + b"\x04" + pickle.BINUNICODE8 + (1 << 60).to_bytes(8, "little") + b"x.",
        b"",
        b"garbage",
        pickle.PROTO + b"\x63N.",
    ],
)
def test_sizes_that_lie_and_nonsense_are_refused_without_taking_memory(data: bytes) -> None:
    with pytest.raises(UntrustedResult):
        load_restricted(data)


# --- a state that comes late: what was measured against the first one would no longer hold
def _text(word: str) -> bytes:
    return pickle.BINUNICODE + len(word.encode()).to_bytes(4, "little") + word.encode()


def _call(made: Any, *args: bytes, by: bytes = pickle.REDUCE) -> bytes:
    """The instructions that call something with arguments that are instructions, too."""
    name = made if isinstance(made, tuple) else (made.__module__, made.__qualname__)
    return b"".join([_text(name[0]), _text(name[1]), pickle.STACK_GLOBAL, pickle.MARK, *args, pickle.TUPLE, by])


def _const(value: Any) -> bytes:
    """A plain value, without touching the memo."""
    if value is None:
        return pickle.NONE
    if isinstance(value, tuple):
        return pickle.MARK + b"".join(_const(item) for item in value) + pickle.TUPLE
    if isinstance(value, bool):
        return pickle.NEWTRUE if value else pickle.NEWFALSE
    if isinstance(value, int):
        return pickle.BININT + value.to_bytes(4, "little", signed=True)
    if isinstance(value, bytes):
        return pickle.BINBYTES + len(value).to_bytes(4, "little") + value
    return _text(value)


def _tuple(*parts: bytes) -> bytes:
    return pickle.MARK + b"".join(parts) + pickle.TUPLE


def _get(number: int) -> bytes:
    return pickle.BINGET + bytes([number])


def _whole(*parts: bytes) -> bytes:
    return pickle.PROTO + b"\x04" + b"".join(parts) + pickle.STOP


def _dtype(text: str) -> bytes:
    return _call(("numpy", "dtype"), _const(text), _const(False), _const(True))


def _array(dtype: bytes, shape: tuple[int, ...], data: bytes) -> bytes:
    """An array that has its state."""
    state = _tuple(_const(1), _const(shape), dtype, _const(False), _const(data))
    return _empty_array() + state + pickle.BUILD


def _empty_array() -> bytes:
    kind = _text("numpy") + _text("ndarray") + pickle.STACK_GLOBAL
    return _call(_RECONSTRUCT, kind, _const((0,)), _const(b"b"))


_MEMO, _POP, _BUILD = pickle.MEMOIZE, pickle.POP, pickle.BUILD
_S8, _S800 = ((3, "|", None, None, None, size, 1, 0) for size in (8, 800))
_F8_STATE = _const((3, "<", None, None, None, -1, -1, 0))
_STATE_2 = _tuple(_const(1), _const((2,)), _dtype("i8"), _const(False), _const(bytes(16)))
_FIELD = _tuple(_dtype("f8"), _const(0))
_FIELDS = pickle.EMPTY_DICT + _MEMO + _text("x") + _FIELD + pickle.SETITEM  # memo 1, if a dtype is memo 0
LATE = {
    "a dtype that an array holds grows": [
        _dtype("S8"), _MEMO, _array(_get(0), (2,), bytes(16)), _get(0), _const(_S800), _BUILD, _POP,
    ],
    "a dtype that an array beside the pickle holds grows": [
        _dtype("S8"), _MEMO, _call(("numpy._core.numeric", "_frombuffer"), _const(bytes(16)), _get(0), _const((2,)), _text("C")),
        _get(0), _const(_S800), _BUILD, _POP,
    ],
    "a dtype grows before it is used": [_dtype("S8"), _MEMO, _const(_S800), _BUILD, _POP, _array(_get(0), (1,), bytes(800))],
    "a dtype is built twice": [_dtype("S8"), _const(_S8), _BUILD, _const(_S8), _BUILD],
    "a dtype is built after an array took it": [_dtype("f8"), _MEMO, _array(_get(0), (1,), bytes(8)), _get(0), _F8_STATE, _BUILD],
    "a dtype is built after a container with it was used": [
        _dtype("f8"), _MEMO, _call(ValueError, pickle.EMPTY_LIST, _get(0), pickle.APPEND), _get(0), _F8_STATE, _BUILD,
    ],
    "a dtype is built after a dtype took it": [
        _dtype("S8"), _MEMO, _dtype("V8"),
        _tuple(_const(3), _text("|"), _tuple(_get(0), _const((1,))), _const(None), _const(None), _const(8), _const(1), _const(0)),
        _BUILD, _get(0), _const(_S8), _BUILD,
    ],
    "an array is built twice": [_array(_dtype("i8"), (1,), bytes(8)), _STATE_2, _BUILD],
    "an array is built after it was used": [_empty_array(), _MEMO, _call(ValueError, _get(0)), _get(0), _STATE_2, _BUILD],
    "a number has fields": [
        _dtype("f8"), _MEMO,
        _tuple(_const(3), _text("|"), _const(None), _const(("x",)), _FIELDS, _const(8), _const(1), _const(16)), _BUILD,
    ],
    "an exception is built twice": [_call(ValueError), pickle.EMPTY_DICT, _BUILD, pickle.EMPTY_DICT, _BUILD],
}  # fmt: skip
# Loads what it is given, and touches all of what came out: with a size that lies, that reads beyond a buffer.
_TOUCH = """
import sys
from shoal.client.unpickle.restricted import load_restricted
from shoal.client.unpickle.rules import UntrustedResult
try:
    value = load_restricted(sys.stdin.buffer.read())
except UntrustedResult as error:
    print("refused:", error.message)
else:
    print("loaded:", repr(value))
"""


def touch(data: bytes) -> str:
    """What came of it, in a process of its own, which a crash may end."""
    done = subprocess.run([sys.executable, "-c", _TOUCH], input=data, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.decode()


@pytest.mark.parametrize("name", LATE)
def test_a_state_comes_once_and_before_the_value_is_used(name: str) -> None:
    assert touch(_whole(*LATE[name])).startswith("refused:")


def test_the_instructions_of_these_tests_make_values_if_they_are_in_order() -> None:
    """Else the refusals above would prove nothing."""
    assert load_restricted(_whole(_dtype("S8"), _const(_S8), _BUILD)) == numpy.dtype("S8")
    found = load_restricted(_whole(_array(_dtype("f8") + _F8_STATE + _BUILD, (2,), bytes(16))))
    assert found.dtype == numpy.dtype("f8") and found.tolist() == [0, 0]
    assert load_restricted(_whole(_empty_array(), _STATE_2, _BUILD)).tolist() == [0, 0]


def test_the_fields_of_a_dtype_do_not_change_with_the_dictionary_they_came_in() -> None:
    structure = _tuple(
        _const(3), _text("|"), _const(None), _const(("x",)), _FIELDS, _const(8), _const(1), _const(16)
    )  # fmt: skip
    made = _dtype("V8") + _MEMO + structure + _BUILD
    swap = _get(1) + _text("x") + _tuple(_dtype("O"), _const(0)) + pickle.SETITEM + _POP
    found = load_restricted(_whole(made, swap))
    assert found == numpy.dtype([("x", "f8")]) and found["x"] == numpy.dtype("f8")


def _pandas_late() -> dict[str, list[bytes]]:
    new = pickle.NEWOBJ
    index = ("pandas.core.indexes.base", "_new_Index")
    numbers = _array(_dtype("i8"), (2,), numpy.arange(2).tobytes())
    codes = _array(_dtype("i1"), (2,), bytes([0, 1]))
    far = _tuple(_const(1), _const((2,)), _dtype("i1"), _const(False), _const(bytes([100, 100])))

    def index_of(data: bytes) -> bytes:
        kind = _text("pandas.core.indexes.base") + _text("Index") + pickle.STACK_GLOBAL
        return _call(index, kind, pickle.EMPTY_DICT + _text("data") + data + pickle.SETITEM)

    def categories(data: bytes) -> bytes:
        entries = [_text("categories"), index_of(data), pickle.SETITEM, _text("ordered"), _const(False), pickle.SETITEM]
        return pickle.EMPTY_DICT + b"".join(entries)

    kind = _text("pandas.core.arrays.categorical") + _text("Categorical") + pickle.STACK_GLOBAL
    hollow = _call(("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"), kind, _const(1), _const(None))
    dtype = _call(("pandas.core.dtypes.dtypes", "CategoricalDtype"), by=new)
    multi = _text("pandas.core.indexes.multi") + _text("MultiIndex") + pickle.STACK_GLOBAL
    levels = _text("levels") + pickle.EMPTY_LIST + index_of(numbers) + pickle.APPEND + pickle.SETITEM
    coded = _text("codes") + pickle.EMPTY_LIST + _get(0) + pickle.APPEND + pickle.SETITEM
    names = _text("names") + pickle.EMPTY_LIST + _const(None) + pickle.APPEND + pickle.SETITEM
    block = ("pandas._libs.internals", "_unpickle_block")
    where = _call(slice, _const(0), _const(2), _const(1))
    fewer = _array(_dtype("i8"), (0,), b"")
    good = [dtype, _MEMO, categories(numbers), _BUILD, _POP, hollow, _tuple(_get(0), codes), _BUILD]
    return {
        "in order": good,
        "fewer categories": [*good, _get(0), categories(fewer), _BUILD, _POP],
        "codes of a MultiIndex": [
            codes, _MEMO, _POP, _call(index, multi, pickle.EMPTY_DICT + levels + coded + names), _get(0), far, _BUILD, _POP,
        ],
        "an array of a block": [
            numbers, _MEMO, _POP, _call(block, _get(0), where, _const(1)), _get(0), _STATE_2, _BUILD, _POP,
        ],
        "an array without its state": [hollow],
        "an array without its state in a block": [_call(block, hollow, where, _const(1))],
        "a list with an array without its state": [pickle.EMPTY_LIST, hollow, pickle.APPEND],
    }  # fmt: skip


def test_a_state_that_comes_late_in_values_of_pandas_is_refused() -> None:
    pytest.importorskip("pandas", reason="no pandas: what of its values is loaded was NOT tested")
    said = {name: touch(_whole(*parts)) for name, parts in _pandas_late().items()}
    assert said.pop("in order").startswith("loaded:")
    assert all(words.startswith("refused:") for words in said.values()), said
    late = ("fewer categories", "codes of a MultiIndex", "an array of a block")
    assert all("built or used already" in said[name] for name in late), said


# --- anything at all
_PARTS = st.sampled_from(
    [bytes([code]) for code in range(256)]
    + [calling(m, n, "x")[2:-1] for m, n in (("os", "system"), ("builtins", "eval"), *list(RULES)[:60])]
    + [pickle.dumps(v, 4)[2:-1] for v in (1, "a", [1], {"a": 1}, (), {1}, b"x", numpy.arange(2), ValueError("x"))]
)


@given(st.lists(_PARTS, max_size=20).map(b"".join) | st.binary(max_size=60))
def test_generated_pickles_execute_nothing(body: bytes) -> None:
    """Every answer is a value without classes and functions, or the one refusal; no call leaves this interpreter."""
    with contextlib.suppress(UntrustedResult):
        load_restricted(b"")  # modules that are imported at the first use are no call of the pickle
    seen: list[str] = []
    watching = True

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if watching and event.split(".")[0] in (
            "os",
            "subprocess",
            "open",
            "exec",
            "compile",
            "socket",
            "pty",
            "ctypes",
        ):
            seen.append(event)

    _hooks.append(hook)
    try:
        value = load_restricted(pickle.PROTO + b"\x04" + body + pickle.STOP)
    except UntrustedResult:
        pass
    else:
        assert not callable(value)
    finally:
        watching = False
        _hooks.remove(hook)
    assert not [event for event in seen if event not in ("open", "compile", "exec")], seen


# What a load may import is imported now: the import itself looks into directories, which is no deed of a pickle.
with contextlib.suppress(ImportError):
    importlib.import_module("pandas")
for _body in (b"E", b"N", pickle.dumps(numpy.arange(2), 4)[2:-1]):
    with contextlib.suppress(UntrustedResult):
        load_restricted(pickle.PROTO + b"\x04" + _body + pickle.STOP)

_hooks: list[Any] = []


def _tell_hooks(event: str, args: Any, hooks: list[Any] = _hooks) -> None:
    """Bound as a default: at the end of the process the names of a module are gone before its hooks are."""
    for hook in tuple(hooks):
        hook(event, args)


sys.addaudithook(_tell_hooks)


# --- what must come through
_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.decimals(allow_nan=False) | st.fractions() | st.uuids() | st.dates() | st.datetimes() | st.timedeltas()
    | st.complex_numbers(allow_nan=False)
    | st.times() | st.builds(pathlib.PurePosixPath, st.text("ab/", max_size=5))
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner),
)


@given(_VALUES)
def test_plain_values_come_through_as_they_were(value: Any) -> None:
    found = load_restricted(pickle.dumps(value, 5))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, frozenset({3}), bytearray(b"x"), range(1, 9, 2), slice(1, None, 2), ..., collections.OrderedDict(a=1),
        collections.defaultdict(list, {1: [2]}), collections.Counter("abca"), collections.deque([1, 2], 3),
        collections.deque([1, 2]), collections.deque(), Path("/x/y"),
        decimal.Decimal("1.50"), uuid.UUID(int=5), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), 10**400,
    ],
)  # fmt: skip
def test_values_of_the_standard_library_come_through(value: Any) -> None:
    found = load_restricted(pickle.dumps(value, 5))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x", 1),
        KeyError("k"),
        OSError(2, "no such", "file"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
        RuntimeError(),
    ],
)
def test_exceptions_come_through_with_their_arguments_and_notes(error: Exception) -> None:
    error.add_note("a note")
    found, text = load_restricted(pickle.dumps((error, "traceback"), 5))
    assert (type(found), found.args, found.__notes__, text) == (type(error), error.args, ["a note"], "traceback")


ARRAYS = [
    numpy.arange(5), numpy.arange(6.0).reshape(2, 3), numpy.arange(6).reshape(2, 3).T, numpy.arange(9).reshape(3, 3)[:, ::2],
    numpy.array([1, "a", None], dtype=object), numpy.array(["ab", "c"]), numpy.array([b"ab"]), numpy.zeros(3, ">f8"),
    numpy.array(["2026-01-01"], "M8[D]"), numpy.array([5], "m8[25s]"), numpy.array(True), numpy.zeros((0, 3)),
    numpy.zeros(2, [("a", "f8"), ("b", "i4", (2,))]), numpy.array([1 + 2j], "c8"), numpy.zeros(2, "f2"),
    numpy.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_arrays_come_through_in_the_pickle_and_beside_it(number: int) -> None:
    array = ARRAYS[number]
    buffers: list[pickle.PickleBuffer] = []
    beside = bytearray(b"".join(container(pickle.dumps(array, 5, buffer_callback=buffers.append), buffers)))
    for data in (pickle.dumps(array, 5), beside):
        found = load_restricted(data)
        assert found.dtype == array.dtype and found.shape == array.shape and numpy.array_equal(found, array)


@pytest.mark.parametrize(
    "number",
    [
        numpy.float64(1.5),
        numpy.int8(-3),
        numpy.bool_(True),
        numpy.datetime64("2026", "s"),
        numpy.str_("x"),
        numpy.complex64(1j),
    ],
)
def test_numbers_of_numpy_come_through(number: Any) -> None:
    found = load_restricted(pickle.dumps(number, 5))
    assert found == number and type(found) is type(number)


def test_values_of_pandas_come_through() -> None:
    pandas = pytest.importorskip("pandas", reason="no pandas: what of its values is loaded was NOT tested")
    frame = pandas.DataFrame(
        {"a": [1, 2], "b": ["x", "y"], "c": pandas.to_datetime(["2020", "2021"]), "d": [1.5, None]}
    )
    for one in (
        frame,
        frame.assign(e=pandas.Categorical(["u", "v"])),
        frame.set_index(["a", "b"]),
        frame.set_index("c"),
    ):
        pandas.testing.assert_frame_equal(load_restricted(pickle.dumps(one, 5)), one)
    for series in (frame.a, frame.b, frame.groupby("b").a.mean(), frame.c.dt.tz_localize("UTC")):
        pandas.testing.assert_series_equal(load_restricted(pickle.dumps(series, 5)), series)
    for value in (pandas.Timestamp("2020"), pandas.Timedelta("1s")):
        assert load_restricted(pickle.dumps(value, 5)) == value


# --- what the owner allows
class Shape:
    """A class of the owner's own."""

    def __init__(self, size: int) -> None:
        self.size = size


def test_classes_that_were_named_load_and_no_others() -> None:
    data = pickle.dumps([Shape(3)], 5)
    with pytest.raises(UntrustedResult, match="Shape"):
        load_restricted(data)
    (found,) = load_restricted(data, parse_trust([Shape]).names)
    assert type(found) is Shape and found.size == 3
    assert load_restricted(data, parse_trust(f"{Shape.__module__}:Shape").names)[0].size == 3


def test_objects_of_named_classes_may_refer_to_each_other() -> None:
    first, second = Shape(1), Shape(2)
    first.other, second.other = second, first  # type: ignore[attr-defined]  # that is the point
    found = load_restricted(pickle.dumps(first, 5), parse_trust([Shape]).names)
    assert found.other.other is found and found.other.size == 2


def test_what_trust_may_be_said() -> None:
    assert parse_trust(None) == parse_trust("own") == Trust()
    assert parse_trust("group") == Trust(is_all=True)
    assert parse_trust("a.b:C, d:E").names == parse_trust([("a.b", "C"), "d:E"]).names == {("a.b", "C"), ("d", "E")}
    for wrong in ("everyone", "", [3], [("a",)], "a.b"):
        with pytest.raises(BadInput, match="trust"):
            parse_trust(wrong)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("kind", kinds_of_classes.KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=8)
@given(nest=st.recursive(st.just(0), lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=6))
def test_objects_of_a_named_class_are_what_plain_pickle_makes_of_them(kind: type, nest: Any) -> None:
    value = kinds_of_classes.first(kind)

    def fill(shape: Any) -> Any:
        return value if shape == 0 and isinstance(shape, int) else type(shape)(map(fill, shape))

    def tell(found: Any) -> Any:
        return kinds_of_classes.tell(found) if type(found) is kind else type(found)(map(tell, found))

    data = pickle.dumps(fill(nest), 5)
    if kind.__name__.encode() in data:  # no empty list
        with pytest.raises(UntrustedResult):
            load_restricted(data)
    names = parse_trust([kind]).names
    if issubclass(kind, list) and kind.__name__.encode() in data:
        with pytest.raises(UntrustedResult, match="Listed is malformed"):  # its own methods would have to fill it
            load_restricted(data, names)
        return
    found = load_restricted(data, names)
    assert tell(found) == tell(pickle.loads(data)) == tell(fill(nest))
