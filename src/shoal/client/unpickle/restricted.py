"""Restricted unpickling of results from other people's pilots: plain data and well-known values only.

A pickle is a program. Here none of its names is ever imported: a name on the exact list (`rules`, `arrays`) stands for a
rule of ours, which checks the arguments and builds the value itself; any other name is refused. No class or function is
ever on the stack, so nothing can be set on one, and only the instructions that today's pickles need are accepted. The
unpickler of the standard library that is written in Python is used, because each of its instructions can be replaced;
the one written in C also allocates whatever size a pickle announces.

A value gets its state once, right after it was made and before anything else is built from it: checks of the later value
rely on the state.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from shoal.client.unpickle import arrays, rules
from shoal.client.unpickle.rules import Name, Rule, UntrustedResult, holds_name, need, parts_of, refuse
from shoal.client.unpickle.trust import Pair
from shoal.model.errors import echo
from shoal.wire.payload import open_container

_Interpreter: Any = pickle._Unpickler
RULES: dict[Pair, Rule] = {**rules.STANDARD, **arrays.RULES}


class _Allowed(Name):
    """A class or function that the owner allowed by name: it is used as pickle would use it."""

    __slots__ = ("target",)

    def __init__(self, pair: Pair, target: Any) -> None:
        super().__init__(pair, Rule(target, self._new))
        self.target = target

    def _new(self, *args: Any, **more: Any) -> Any:
        need(isinstance(self.target, type), f"{self.pair[0]}.{self.pair[1]}")
        return self.target.__new__(self.target, *args, **more)


class Restricted(_Interpreter):  # type: ignore[misc]  # a class that the stubs do not describe
    """Unpickler of one pickle."""

    def __init__(self, data: bytes, buffers: Iterable[Any], extra: Iterable[Pair]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._size = len(data)
        self._extra = frozenset(extra)
        self._kinds: dict[type, Callable[[Any, Any], None]] = {}
        self._open: dict[int, Any] = {}  # what may still get a state, by id; kept, so that no id is given again

    def find_class(self, module: str, name: str) -> Any:
        """The object that stands for a name; refused if the name is not on the list."""
        pair = module, name
        if pair in self._extra:
            target = super().find_class(module, name)
            if isinstance(target, type):
                self._kinds[target] = _set_state
            return _Allowed(pair, target)
        if pair in rules.VALUES:
            return rules.VALUES[pair]
        if pair in arrays.VALUES:
            return arrays.value_of(pair)
        rule = RULES.get(pair)
        if rule is None:
            refuse(f"it needs {echo(module)}.{echo(name)}")
        return Name(pair, rule)

    # --- the instructions that call, build or fill
    def _reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._apply(self.stack[-1], args, {}, "call")

    def _newobj(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._apply(self.stack[-1], args, {}, "new")

    def _newobj_ex(self) -> None:
        more, args = self.stack.pop(), self.stack.pop()
        self.stack[-1] = self._apply(self.stack[-1], args, more, "new")

    def _apply(self, name: Any, args: Any, more: Any, how: str) -> Any:
        need(isinstance(name, Name) and type(args) is tuple and type(more) is dict, "call")
        need(not (isinstance(name, _Allowed) and holds_name((args, more))), "call")
        do = name.rule.call if how == "call" else name.rule.new
        full_name = f"{name.pair[0]}.{name.pair[1]}"
        if do is None or (more and not isinstance(name, _Allowed)):
            refuse(f"it uses {full_name} in a way that no value of its kind needs")
        self._close((args, more))
        try:
            made = do(*args, **more)
        except (UntrustedResult, MemoryError):
            raise
        except Exception as error:
            refuse(f"{full_name} could not be built: {type(error).__name__}")
        if name.rule.kind is not None and name.rule.build is not None:
            self._kinds.setdefault(name.rule.kind, name.rule.build)
        # What the owner's own function returns may be part of another value already, so only their classes get a state.
        if type(made) in self._kinds or (not isinstance(name, _Allowed) and arrays.state_of(made)):
            self._open[id(made)] = made
        return made

    def _close(self, used: Any) -> None:
        """Values that another one is built from keep their state; objects of the owner's classes may refer to each other."""
        for part in parts_of(used):
            if id(part) in self._open and self._kinds.get(type(part)) is not _set_state:
                need(not arrays.is_hollow(part), type(part).__name__)
                del self._open[id(part)]

    def _build(self) -> None:
        state = self.stack.pop()
        value = self.stack[-1]
        build = self._kinds.get(type(value)) or arrays.state_of(value)
        if build is None:
            refuse(f"it sets the state of a {type(value).__name__}")
        if self._open.pop(id(value), None) is None:
            refuse(f"it sets the state of a {type(value).__name__} that is built or used already")
        self._close(state)
        try:
            build(value, state)
        except (UntrustedResult, MemoryError):
            raise
        except Exception as error:
            refuse(f"the state of a {type(value).__name__} is malformed: {type(error).__name__}")

    def _fill(self, kinds: tuple[type, ...], load: Callable[[Any], None], at: int) -> None:
        target = self.stack[at] if at < 0 else self.metastack[-1][-1]
        need(type(target) in kinds, type(target).__name__)
        load(self)

    def _append(self) -> None:
        self._fill((list, deque), _Interpreter.load_append, -2)

    def _appends(self) -> None:
        self._fill((list, deque), _Interpreter.load_appends, 0)

    def _setitem(self) -> None:
        self._fill((dict, OrderedDict, defaultdict), _Interpreter.load_setitem, -3)

    def _setitems(self) -> None:
        self._fill((dict, OrderedDict, defaultdict), _Interpreter.load_setitems, 0)

    def _additems(self) -> None:
        self._fill((set,), _Interpreter.load_additems, 0)

    def _bytearray(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        need(size <= self._size, "bytearray")  # it would be allocated before it is read
        self.append(bytearray(self.read(size)))

    def _other(self) -> None:
        refuse("it holds an instruction that no pickle of a result has")


_AS_IT_IS = (
    *(
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "BININT",
        "BININT1",
        "BININT2",
    ),
    *("LONG1", "LONG4", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES"),
    *("BINBYTES8", "NEXT_BUFFER", "READONLY_BUFFER", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "FROZENSET", "STACK_GLOBAL", "MEMOIZE", "BINGET", "LONG_BINGET"),
)
_CHECKED: dict[str, Callable[[Restricted], None]] = {
    "REDUCE": Restricted._reduce, "NEWOBJ": Restricted._newobj, "NEWOBJ_EX": Restricted._newobj_ex,
    "BUILD": Restricted._build, "APPEND": Restricted._append, "APPENDS": Restricted._appends,
    "SETITEM": Restricted._setitem, "SETITEMS": Restricted._setitems, "ADDITEMS": Restricted._additems,
    "BYTEARRAY8": Restricted._bytearray,
}  # fmt: skip
Restricted.dispatch = {
    **dict.fromkeys(range(256), Restricted._other),
    **{getattr(pickle, name)[0]: _Interpreter.dispatch[getattr(pickle, name)[0]] for name in _AS_IT_IS},
    **{getattr(pickle, name)[0]: do for name, do in _CHECKED.items()},
}


def _set_state(value: Any, state: Any) -> None:
    """The state of an object whose class the owner allowed, as pickle sets it."""
    need(not holds_name(state), type(value).__name__)
    own = getattr(value, "__setstate__", None)
    if own is not None:
        own(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for name, item in (state or {}).items():
        value.__dict__[name] = item
    for name, item in (slots or {}).items():
        setattr(value, name, item)


def load_restricted(data: Any, extra: Iterable[Pair] = ()) -> Any:
    """The value of a payload's bytes; UntrustedResult if it holds anything that is not on the list or in `extra`."""
    pickled, buffers = open_container(data)
    try:
        loader = Restricted(bytes(pickled), buffers, extra)
        value = loader.load()
        need(not any(map(arrays.is_hollow, loader._open.values())), "value without a state")
    except UntrustedResult:
        raise
    except Exception as error:  # cut off, or nonsense
        refuse(f"it is no pickle that can be read ({type(error).__name__})")
    if holds_name(value):
        refuse("it holds a class or a function")
    return value
