"""`dataclass` that compiles no method before it is needed: a process imports a hundred of these classes and uses a few.

The standard decorator writes the source of up to six methods for each class and compiles them, about 1 ms; a third of
the start of a server was that. Here `__init__`, `__eq__` and `__hash__` are compiled at the first call, to the same
code, and the other methods are closures. For what is used in this package: `frozen`, `eq` and `slots`, but not `frozen`
with `slots`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: Optional[type] = None, *, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
        """Like `dataclasses.dataclass`."""
        if frozen and slots:
            raise TypeError("frozen with slots is not provided for")
        kept = {"slots": True} if slots else {}  # Python 3.9 does not know it
        bare = dataclasses.dataclass(init=False, repr=False, eq=False, **kept)

        def complete(cls: type) -> type:
            own = cls.__dict__.keys()  # methods that the class defines itself
            has_eq, has_hash, has_repr = "__eq__" in own, "__hash__" in own, "__repr__" in own
            cls = bare(cls)
            fields = dataclasses.fields(cls)
            cls.__init__ = _compiled_later(cls, "__init__", lambda: _init_source(cls, fields, frozen))
            if not has_repr:
                cls.__repr__ = _repr(tuple(field.name for field in fields if field.repr))
            if eq:
                compared = [field.name for field in fields if field.compare]
                if not has_eq:
                    cls.__eq__ = _compiled_later(cls, "__eq__", lambda: _eq_source(compared))
                if not has_hash:
                    cls.__hash__ = _compiled_later(cls, "__hash__", lambda: _hash_source(compared)) if frozen else None
            if frozen:
                cls.__setattr__, cls.__delattr__ = _frozen(cls, frozenset(field.name for field in fields))
            return cls

        return complete if cls is None else complete(cls)


class _Source(NamedTuple):
    """A method: its text, and the values that it names."""

    text: str
    scope: dict[str, Any]


def _compiled_later(cls: type, name: str, source: Callable[[], _Source]) -> Callable[..., Any]:
    """A method that puts the real one into its place when it is called."""

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        text, scope = source()
        exec(text, scope)
        made = scope[name]
        made.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, made)
        return made(self, *args, **kwargs)

    return first


def _init_source(cls: type, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> _Source:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_made": object()}
    parameters, lines = [], []
    for field in fields:
        name, value = field.name, field.name
        if field.default is not dataclasses.MISSING:
            scope[f"_of_{name}"] = field.default
            parameter = f"{name}=_of_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_of_{name}"] = field.default_factory
            parameter, value = f"{name}=_made", f"_of_{name}() if {name} is _made else {name}"
        else:
            parameter = name
        if field.init:
            parameters.append(parameter)
        elif parameter == name:
            continue  # `__post_init__` sets it
        else:
            value = f"_of_{name}" if value == name else f"_of_{name}()"
        lines.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    return _Source(f"def __init__(self, {', '.join(parameters)}):\n" + ("\n".join(lines) or " pass"), scope)


def _tuple_of(one: str, names: list[str]) -> str:
    return f"({''.join(f'{one}.{name}, ' for name in names)})"


def _eq_source(names: list[str]) -> _Source:
    equal = f"{_tuple_of('self', names)} == {_tuple_of('other', names)}"
    text = f"def __eq__(self, other):\n return {equal} if other.__class__ is self.__class__ else NotImplemented"
    return _Source(text, {})


def _hash_source(names: list[str]) -> _Source:
    return _Source(f"def __hash__(self):\n return hash({_tuple_of('self', names)})", {})


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    def show(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return show


def _frozen(cls: type[Any], names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    """`__setattr__` and `__delattr__` that refuse, as the standard ones do."""

    def refuse_set(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return refuse_set, refuse_delete
