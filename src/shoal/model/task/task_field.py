"""One entry of the table of task fields: everything that is known about a field, in the place where it is declared.

The table is the dataclass `model.spec.Spec`, whose fields carry these entries. From it come the checks of a task, the
wire form, the class key of matching, the signature of `--resume`, the options of the command line, the keywords of
`shoal.Executor`, the lease and the reference page. A new field is one line of `Spec` plus the code that uses it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Optional, Union

from shoal.model.lazy_dataclass import dataclass
from shoal.model.task.field_values import Reader

Quantity = Union[str, int, float]  # with its unit, or in bytes or seconds
_KEY = "task_field"  # of a dataclass field's metadata
# Tables are looked up for each task that is submitted or leased: what was found is kept, by the dataclass.
_tables: dict[type, dict[str, Field]] = {}
_chosen: dict[tuple[type, str, Any], tuple[Field, ...]] = {}


@dataclass(frozen=True, eq=False)
class Kind:
    """The type of a field as people and programs give it."""

    words: str  # as the reference page names it
    json: Any  # as it travels
    option: str = "one"  # how the command line takes it: one value, or an option that repeats: many, pairs, counts


TEXT = Kind("text", str)
WHOLE = Kind("whole number", int)
NUMBER = Kind("number", float)
FLAG = Kind("yes or no", bool)
SIZE = Kind("size", Quantity)
DURATION = Kind("duration", Optional[Quantity])
MOMENT = Kind("duration or time", Optional[Quantity])
EXPRESSION = Kind("text", str)  # parsed by `sched.expr` where it is given and where it is received
TEXTS = Kind("list of texts", list[str], "many")
CODES = Kind("list of whole numbers", list[Union[int, str]], "many")
LINES = Kind("list of lines, or text", Union[str, list[str], None], "many")
TABLE = Kind("table of texts", dict[str, str], "pairs")
COUNTS = Kind("table of whole numbers, or list", Union[dict[str, int], list[str], None], "counts")
UNITS = Kind("whole number", Union[int, dict[str, Any], None])  # a table, where the server has cut it
PARAMS = Kind("table, or list of tables", Union[dict[str, Any], list[dict[str, Any]], None])


class Option(NamedTuple):
    """A field on the command line of `run`, `sweep` and `submit`."""

    metavar: str  # empty: a flag
    help: str
    name: str = ""  # without the dashes; empty: the field's own


@dataclass(frozen=True)
class Field:
    """What is known about one field."""

    kind: Kind
    read: Reader  # checks a value as it was given, and returns it as it is kept
    about: str  # what it means, for the reference page
    limits: str
    name: str = ""
    default: Any = None  # as it is kept
    option: Optional[Option] = None  # None: it cannot be given on the command line
    keyword: bool = False  # `shoal.Executor` takes it
    functions: str = "also"  # "only": a command has no such field; "never": a function has none
    placeholders: bool = False  # `{name}` of a sweep is filled in
    # Where matching looks at it: "key" (an attribute of the class key), "needs", "kind" (the program), "surroundings".
    matching: str = ""
    queued: bool = False  # `shoal set` changes it for tasks that have not begun
    is_program: bool = False  # part of what is executed: failures of tasks that are equal in these are compared
    lease: str = ""  # "same": the lease has it under its name; "made": lease_message puts it in in another form
    # Why another value cannot change the result of a task that succeeded. Empty, and so whenever nobody thought about
    # it: it can, and `--resume` takes over no result of a task with another value.
    same_result: str = ""

    @property
    def option_name(self) -> str:
        """The option that gives it, without the dashes."""
        spelled = self.option.name if self.option is not None else ""
        return spelled or self.name.replace("_", "-")


def entry(default: Any, kind: Kind, read: Reader, about: str, limits: str = "", **more: Any) -> Any:
    """Declare a field of `Spec`. A callable default makes a new value for each task."""
    metadata = {_KEY: Field(kind, read, about, limits, **more)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def task_fields(spec: type) -> dict[str, Field]:
    """The table that a dataclass declares: its fields by name, in order."""
    if spec not in _tables:
        found = {}
        for declared in dataclasses.fields(spec):
            default = declared.default
            if declared.default_factory is not dataclasses.MISSING:
                default = declared.default_factory()
            found[declared.name] = dataclasses.replace(declared.metadata[_KEY], name=declared.name, default=default)
        _tables[spec] = found
    return _tables[spec]


def share_defaults(spec: type) -> None:
    """Give a table's class the defaults that it makes anew for each task, as it has all others: tasks are not changed."""
    for declared in dataclasses.fields(spec):
        if declared.default_factory is not dataclasses.MISSING:
            setattr(spec, declared.name, task_fields(spec)[declared.name].default)


def fields_with(spec: type, column: str, value: Any = True) -> tuple[Field, ...]:
    """The fields of a table that have this value in a column."""
    chosen = _chosen.get((spec, column, value))
    if chosen is None:
        chosen = tuple(field for field in task_fields(spec).values() if getattr(field, column) == value)
        _chosen[spec, column, value] = chosen
    return chosen
