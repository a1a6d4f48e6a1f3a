"""A task as plain data, from TOML, HTTP or Python, made a checked `Spec` by the table of task fields [protocol 3].

Client and server both call this, so that a wrong task is refused with the same message on either side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_ORDERED
from shoal.model.states import Rerun
from shoal.model.task.field_values import FUNCTION_ENV, bad_variable, stored_argv
from shoal.model.task.shell_quote import check_shell
from shoal.model.task.spec import FIELDS, OWN, Spec
from shoal.model.task.sweep import HOLE, PATH_PARTS, Sweep, fill, holes, path_part, unknown_parts
from shoal.model.task.task_field import Field, task_fields
from shoal.model.task.units import FIRST
from shoal.model.task.url_input import has_urls, parse_url
from shoal.wire.did_you_mean import did_you_mean

_FORM = re.compile(
    r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*):([^{}\s]{0,20})\}(?!\})"
)  # `{x:raw}`, or what is meant to be like it
# How fields are read that the database keeps: the longest of them, which every task has, without its checks.
_STORED = {**{name: field.read for name, field in FIELDS.items()}, "command": stored_argv}
# Fields of a run that people put into a task by mistake.
OF_THE_RUN = frozenset({"max_fail", "max_running", "seed", "key", "reduce", "until", "notify"})


def parse_spec(data: Any, table: type[Spec] = Spec) -> Spec:
    """One task, checked against a table of fields."""
    if not isinstance(data, Mapping):
        raise BadInput("expected a table of task fields", code="want_object")
    fields = task_fields(table)
    got: dict[str, Any] = {}
    for name, value in data.items():
        if name not in fields:
            hint = did_you_mean(str(name), list(fields))
            if name in OF_THE_RUN:
                hint = "it is of the run as a whole: write it before the tasks"
            raise BadInput(f"unknown field {echo(name)!r}", code="unknown_field", hint=hint)
        got[name] = fields[name].read(value, name)
    _check_command(got, fields)
    both = [name for name in ("params", "array", "units") if name in got]
    if len(both) > 1:
        raise BadInput(f"{both[0]} and {both[1]} together", code="bad_array", field=both[1], hint="give one of them")
    spec = table.given(got)
    _check_placeholders(spec)
    if spec.stdin_data and spec.stdin is not None:
        raise BadInput("stdin and stdin_data together", code="required", field="stdin_data", hint="give one of them")
    _check_order(spec)
    _check_units(spec)
    _check_reruns(spec)
    _check_urls(spec)
    _check_places(spec)
    if "checkpoint_every" in got and not spec.checkpoint and spec.checkpoint_every != Spec.checkpoint_every:
        hint = "checkpoint_every goes with the files in checkpoint"
        raise BadInput("which files?", code="required", field="checkpoint", hint=hint)
    return spec


def stored_spec(data: Mapping[str, Any]) -> Spec:
    """One task as the database keeps it: what its fields must be together was checked when it was submitted."""
    return Spec.given({name: _STORED[name](value, name) for name, value in data.items()})


def _check_command(got: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    """A task is one command, one shell text or one function, with only such fields as go with it."""
    ways = [way for way in ("command", "shell", "function") if way in got]
    if len(ways) > 1:
        raise BadInput(f"{ways[0]} and {ways[1]} together", code="required", field=ways[1], hint="give one of them")
    if "function" in got:
        if "calls" not in got:
            raise BadInput("the calls are missing", code="required", field="calls", hint="one for each task")
        if wrong := next((name for name in got if fields[name].functions == "never"), ""):
            hint = "give it in its arguments"
            raise BadInput("a function has no such field", code="unknown_field", field=wrong, hint=hint)
    elif reserved := next((name for name in got.get("env", ()) if name in FUNCTION_ENV), ""):
        raise bad_variable(reserved)
    elif wrong := next((name for name in got if fields[name].functions == "only"), ""):
        hint = "leave it out, or give function instead of a command"
        raise BadInput("only a function has such a field", code="required", field=wrong, hint=hint)
    elif not ways and not got.get("noop"):
        raise BadInput("the command is missing", code="required", field="command", hint='e.g. command = ["echo", "hi"]')


def _check_placeholders(spec: Spec) -> None:
    """In a sweep every `{placeholder}` must be a parameter; the texts of a plain task are taken as they are."""
    if spec.sweep is None:
        return
    for text in spec.texts:
        wrong = next(
            (found for found in _FORM.finditer(text) if found[1] in spec.sweep.names and found[2] != "raw"), None
        )
        if wrong is not None:
            raise BadInput(
                f"{echo(wrong[0])} is no form of a parameter", code="unknown_param", field="command",
                hint=f"write {{{wrong[1]}}}, or {{{wrong[1]}:raw}} for the value without quotes in a shell text",
            )  # fmt: skip
        for hole in holes(text):
            if hole not in spec.sweep.names:
                raise BadInput(
                    f"{{{echo(hole)}}} is not a parameter", code="unknown_param", field="command",
                    hint=f"{did_you_mean(hole, list(spec.sweep.names))}; write {{{{{echo(hole)}}}}} for the braces themselves",
                )  # fmt: skip
        for name, part in unknown_parts(text):
            if name in spec.sweep.names:
                raise BadInput(
                    f"{{{name}.{echo(part)}}}: there is no part {echo(part)!r} of a value", code="unknown_param",
                    field="command", hint=did_you_mean(part, list(PATH_PARTS)),
                )  # fmt: skip
    for field, lines in (("shell", [spec.shell] if spec.shell is not None else []), ("setup", spec.setup)):
        for line in lines:
            check_shell(line, spec.sweep, field)
    for field, names in (("outputs", spec.outputs), ("checkpoint", spec.checkpoint)):
        for name in names:
            check_path_values(name, spec.sweep, field)


def _part(found: re.Match[str], value: str) -> str:
    """What a placeholder of a name becomes with a value."""
    return "x" if not found[1] else path_part(value, found[2]) if found[2] else value


def check_path_values(name: str, sweep: Sweep, field: str) -> None:
    """Refuse a value by which the name of a file would lead out of the task's directory: the name itself was checked."""
    for hole in holes(name):
        for value in sweep.values(hole):
            filled = HOLE.sub(lambda found, value=value: _part(found, value), name)  # type: ignore[misc]
            if ".." in filled.split("/") or filled.startswith("/"):
                raise BadInput(
                    f"{echo(name)} with the value {echo(value)!r} is not a path below the task's directory", code="bad_path",
                    field=field, hint="relative, without ..; use another name for the file",
                )  # fmt: skip


def _check_order(spec: Spec) -> None:
    if not spec.order:
        return
    name = spec.order[1:] if spec.order[0] == "-" else spec.order
    known = list(spec.sweep.names) if spec.sweep is not None else []
    if name not in known:
        hint = did_you_mean(name, known) if known else "only tasks with params have an order"
        raise BadInput(f"{echo(name)!r} is not a parameter", code="unknown_param", field="order", hint=hint)
    if spec.count > MAX_ORDERED:
        raise BadInput(
            f"{spec.count} tasks are too many to be put in order", code="bad_array", field="order",
            hint=f"at most {MAX_ORDERED}; write the parameters in the order you want",
        )  # fmt: skip


def _check_units(spec: Spec) -> None:
    """Each piece of divisible work needs files of its own for its streams, which only its first unit tells apart."""
    for field in ("stdout", "stderr") if spec.units is not None else ():
        name = getattr(spec, field)
        if name and FIRST not in holes(name):
            hint = "put {first} into its name, e.g. out/{first}.txt"
            raise BadInput(f"every piece would write to {echo(name)!r}", code="same_file", field=field, hint=hint)


def _check_urls(spec: Spec) -> None:
    """Inputs from URLs are put into a directory of the task's own, since the submitter's is theirs."""
    for text in spec.inputs if has_urls(spec.inputs) else ():
        url = parse_url(fill(text, spec.sweep.at(0)) if spec.sweep is not None else text)
        if url is not None and spec.cwd not in (None, OWN):
            raise BadInput(
                f"{echo(text)} is put into a directory of the task's own, and cwd is another", code="bad_path", field="cwd",
                hint='leave cwd out, or write cwd = "own"',
            )  # fmt: skip


def _check_places(spec: Spec) -> None:
    """What is stored is an output, and the task runs in a directory of its own."""
    for name in spec.store:
        if name not in spec.outputs:
            hint = did_you_mean(name, list(spec.outputs)) if spec.outputs else "name it in outputs, too"
            raise BadInput(f"{echo(name)} is no output", code="unknown_output", field="store", hint=hint)
    if spec.store and spec.cwd not in (None, OWN):
        hint = 'leave cwd out, or write cwd = "own"'
        raise BadInput("outputs are stored from a directory of the task's own", code="bad_path", field="cwd", hint=hint)


def _check_reruns(spec: Spec) -> None:
    if spec.rerun is not Rerun.NEVER:
        return
    if spec.retries:
        raise BadInput("a task that is never re-run has no retries", code="range", field="retries", hint="leave it out")
    if spec.checkpoint:
        why = "a task that is never re-run cannot go on later"
        raise BadInput(why, code="range", field="checkpoint", hint="leave it out")
