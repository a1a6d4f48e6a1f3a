"""The submission that arguments, options or a task file describe, checked; nothing is sent here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from shoal.cli.arguments.values import expand_tables, params_of
from shoal.cli.tasks.standard_input import STDIN, read_file, read_standard_input
from shoal.client.config import echo_path, explain_toml
from shoal.client.working_directory import working_directory
from shoal.model.blobs import Bytes
from shoal.model.errors import BadInput, ShoalError, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_BULK_BODY
from shoal.model.task.kept_files import is_written
from shoal.model.task.spec import FIELDS, OWN, Spec, Submission
from shoal.model.task.sweep import fill, holes
from shoal.model.task.task_field import EXPRESSION, Field, fields_with
from shoal.wire.submission import parse_submission

_OF_PARAMS = ("bad_array", "bad_param", "no_such_file")
_EDGES = ("files", "parents")
PARENTS = ("after", "after_any")  # fields whose options also go with a task file


@dataclass(frozen=True)
class Draft:
    """A submission before it is sent: the document, and what the parser made of it."""

    document: dict[str, Any]
    submission: Submission
    origin: str = ""  # the task file, if it came from one
    blobs: tuple[Bytes, ...] = ()  # that it names, and that are put before it is sent
    makes: tuple[tuple[str, int], ...] = ()  # files, with their sizes, that are made for it before it is sent


def draft_command(command: Sequence[str], axes: Sequence[str], options: Mapping[str, Any]) -> Draft:
    """The submission of a command on the command line, for the parameters in `axes`."""
    task: dict[str, Any] = {"command": list(command)}
    if axes:
        task["params"] = params_of(axes, os.getcwd())
    task |= {field.name: field_value(field, options[field.name]) for field in given_fields(options)}
    blobs: tuple[Bytes, ...] = ()
    if task.get("stdin") == os.devnull:
        del task["stdin"]  # no input, which is what a task has without it
    if task.get("stdin") == STDIN:
        sent = read_standard_input()
        del task["stdin"]
        task |= {"stdin_data": sent.text} if sent.text else {}
        blobs = (sent.blob,) if sent.blob else ()
    if options.get("shell"):
        task["shell"] = " ".join(task.pop("command"))
    document = _with_run_options({"tasks": [task]}, options)
    return Draft(document, _parse(document), blobs=blobs)


def with_sent_input(draft: Draft) -> Draft:
    """The draft with its files of standard input sent along, for hosts that may not see them; not those with parameters, and
    not those that tasks of the run, or of the runs that it waits for, write first."""
    tasks, blobs = [dict(task) for task in draft.document["tasks"]], list(draft.blobs)
    here, written = draft.submission.cwd, _written(draft.submission)
    for task, spec in zip(tasks, draft.submission.specs, strict=True):
        if spec.stdin is not None and not (spec.sweep is not None and holes(spec.stdin)):
            name = fill(spec.stdin, {}) if spec.sweep is not None else spec.stdin
            path = os.path.join(here, spec.cwd if spec.cwd not in (None, OWN) else "", name)
            waits = bool(spec.after or spec.after_any)
            if waits and (not os.path.exists(path) or is_written(os.path.relpath(path, here), written)):
                continue
            sent = read_file(path, name)
            del task["stdin"]
            task |= {"stdin_data": sent.text} if sent.text else {}
            blobs += [sent.blob] if sent.blob else []
    document = {**draft.document, "tasks": tasks}
    return Draft(document, _parse(document), draft.origin, tuple(blobs))


def _written(submission: Submission) -> frozenset[str]:
    """The files that tasks write which others wait for, as seen from the run's directory."""
    if not any(spec.stdin is not None and (spec.after or spec.after_any) for spec in submission.specs):
        return frozenset()
    from shoal.flow.file_edges import names_written  # few tasks wait, and read standard input

    here = submission.cwd
    return frozenset(os.path.relpath(os.path.join(here, name), here) for name in names_written(submission.specs))


def with_deadline(draft: Draft, deadline: str) -> Draft:
    """The draft with a deadline for all its tasks."""
    document = {**draft.document, "tasks": [{**task, "deadline": deadline} for task in draft.document["tasks"]]}
    return Draft(document, _parse(document), draft.origin, draft.blobs)


def draft_file(name: str, options: Mapping[str, Any]) -> Draft:
    """The submission that a task file holds; an error names the file and the line."""
    parents = {field.name: field_value(field, options[field.name]) for field in given_fields(options)}
    for field_name in parents:
        if field_name not in PARENTS:
            hint = f"write it in the tables of {echo_path(name)}"
            raise click.UsageError(f"--{FIELDS[field_name].option_name} does not go with a task file ({hint})")
    text = read_text(name)
    document = _with_run_options(parse_toml(text, name), options)
    try:
        by_files = read_workflow(document.pop("workflow", None))
        if isinstance(document["cwd"], str) and ("tasks" in document or "rules" not in document):
            document["tasks"] = expand_tables(document.get("tasks"), document["cwd"])
        document.setdefault("tasks", [])
        document["tasks"] = _with_parents(document["tasks"], parents)
        submission = _parse(document)
        if by_files:
            from shoal.flow.file_edges import tie  # most files are no workflows

            document["tasks"] = tie(document["tasks"], submission.specs)
            submission = _parse(document)
    except ShoalError as error:
        line_number = find_line(text, error)
        where = f"{echo_path(name)}:{line_number}" if line_number else echo_path(name)
        line_text = type(error)(error.message, code=error.code, field=error.field).line
        raise type(error)(f"{where}: {line_text}", code=error.code, hint=error.hint) from None
    return Draft(document, submission, name)


def draft_document(
    document: Mapping[str, Any], options: Mapping[str, Any], origin: str, makes: Mapping[str, int]
) -> Draft:
    """The submission of a document that was read from another format than TOML."""
    whole = _with_run_options(document, options)
    return Draft(whole, _parse(whole), origin, makes=tuple(makes.items()))


def read_workflow(value: Any) -> bool:
    """The table [workflow] of a task file: True if files make edges between its tables."""
    if value is None:
        return False
    if not isinstance(value, dict) or value.get("edges") not in _EDGES or len(value) != 1:
        hint = 'edges = "files": who reads a file waits for who writes it; edges = "parents": only `after` counts'
        raise BadInput("it needs one key, edges", code="bad_workflow", field="workflow", hint=hint)
    return bool(value["edges"] == _EDGES[0])


def given_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """The task fields that options were given for, as a task file would have them, each checked."""
    found = {field.name: field_value(field, options[field.name]) for field in given_fields(options)}
    for name, value in found.items():
        FIELDS[name].read(value, name)
        if value and FIELDS[name].kind is EXPRESSION:
            from shoal.sched.expr.parse import parse  # few commands have any

            parse(value, name)
    return found


def _with_parents(tables: Any, parents: Mapping[str, list[str]]) -> Any:
    """The tables of a task file, all of which wait for what options name."""
    if not isinstance(tables, list) or not parents:
        return tables
    found = []
    for table in tables:
        own = {name: table.get(name, []) for name in parents} if isinstance(table, dict) else {}
        if all(isinstance(names, list) for names in own.values()):
            table = {**table, **{name: [*names, *parents[name]] for name, names in own.items()}} if own else table
        found.append(table)
    return found


def given_fields(options: Mapping[str, Any]) -> Iterator[Field]:
    """The task fields that options were given for."""
    for field in FIELDS.values():
        value = options.get(field.name)
        if field.option and value is not None and value is not False and value != ():  # 0 is a value
            yield field


def field_value(field: Field, given: Any) -> Any:
    """The value of an option as a task file would have it."""
    if field.name in PARENTS:
        return [name for text in given for name in text.split(",")]
    if field.kind.option == "many":
        return list(given)
    if field.kind.option == "pairs":
        return split_pairs(f"--{field.option_name}", given)
    if field.kind.option == "counts":
        return dict(map(_licence, given))
    return os.path.normpath(os.path.join(working_directory(), given)) if field.name == "cwd" and given != OWN else given


def _parse(document: Mapping[str, Any]) -> Submission:
    """The submission, with its expressions parsed too, so that an error shows before anything is sent."""
    submission = parse_submission(document)
    if submission.reduce or submission.until:
        from shoal.sched.partial.goal import check  # few runs say anything of that

        check(submission.reduce, submission.until)
    several, tables = len(submission.specs) > 1, len(submission.specs)
    for at, spec in enumerate(submission.checked):
        for field in fields_with(Spec, "kind", EXPRESSION):
            if text := getattr(spec, field.name):
                from shoal.sched.expr.parse import parse  # few tasks have any

                try:
                    parse(text, field.name)
                except BadInput as error:
                    prefix = f"rules[{at - tables}]." if at >= tables else f"tasks[{at}]." if several else ""
                    raise BadInput(error.message, code=error.code, field=prefix + field.name, hint=error.hint) from None
    return submission


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML file; a syntax error names its line."""
    import tomllib  # most commands read no such file

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line, words = explain_toml(error, text) if isinstance(error, ValueError) else (0, "nested too deeply")
        where = f"{echo_path(name)}:{line}" if line else echo_path(name)
        raise BadInput(f"{where}: not TOML: {words}", code="bad_toml", hint='texts need quotes: key = "text"') from None


def read_text(name: str) -> str:
    """The text of a file that describes a run; an error says what is wrong with it."""
    path = Path(name)
    try:
        if not path.is_file() and path.exists():
            raise BadInput(
                f"{echo_path(name)} is not a regular file", code="not_regular_file", hint="name a .toml or .json file"
            )
        with path.open("rb") as file:
            data = file.read(MAX_BULK_BODY + 1)
    except OSError as error:
        raise BadInput(
            f"cannot read {echo_path(name)}: {error.strerror}", code="no_such_file",
            hint="name an existing task file, or put -- before a command: shoal run -- COMMAND",
        ) from None  # fmt: skip
    if len(data) > MAX_BULK_BODY:
        raise BadInput(f"{echo_path(name)} is too large", code="too_large", hint=f"at most {MAX_BULK_BODY} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{echo_path(name)} is not UTF-8 at byte {error.start}", code="bad_utf8", hint="save it as UTF-8"
        ) from None


def _with_run_options(document: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the options of the whole run, which override a file; the directory is the current one."""
    found = dict(document)
    for name in ("name", "max_fail", "max_running", "seed", "key", "until", "plan"):
        if options.get(name) is not None:
            found[name] = options[name]
    if options.get("notify"):
        found["notify"] = [*options["notify"]]
    if options.get("reduce"):
        chosen = found.get("reduce", {})
        given = split_pairs("--reduce", options["reduce"])
        found["reduce"] = {**(chosen if isinstance(chosen, dict) else {}), **given}
    if options["label"]:
        labels = found.get("labels", {})
        found["labels"] = {**(labels if isinstance(labels, dict) else {}), **split_pairs("--label", options["label"])}
    if found.get("key") == "":
        hint = "leave it out, or name this work"
        raise BadInput(
            "the key is empty, and would keep nothing from running twice", code="required", field="key", hint=hint
        )
    base = found.get("cwd", "")
    found["cwd"] = os.path.normpath(os.path.join(working_directory(), base)) if isinstance(base, str) else base
    return found


def split_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs as a table."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {echo(pair)!r} is not a pair (write {option} NAME=VALUE)")
        found[name] = value
    return found


def _licence(text: str) -> tuple[str, int]:
    """`matlab`, or `matlab=2` for more than one."""
    name, equals, count = text.partition("=")
    if not name or (equals and not (count.isascii() and count.isdigit())):
        raise click.UsageError(f"--licence {echo(text)!r} is not a licence (write --licence NAME or --licence NAME=2)")
    return name, int(count[:12]) if equals else 1


def find_line(text: str, error: ShoalError) -> int:
    """The line of a task file that an error is about; 0 if it is not known."""
    found = re.match(r"(?:(tasks|rules)\[(\d+)\](?: \(.*\))?\.?)?([A-Za-z_]*)", error.field)
    kind, table, field = (found[1] or "tasks", found[2], found[3]) if found else ("tasks", None, "")
    if error.code == "unknown_field":
        quoted = re.search(r"unknown field '([^']*)'", error.message)
        field = quoted[1] if quoted else field
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{kind}\s*\]\]", line)]
    inside = table is not None or (
        len(heads) == 1
        and field
        not in (
            "name",
            "labels",
            "max_fail",
            "max_running",
            "seed",
            "key",
            "workflow",
            "reduce",
            "until",
            "notify",
            "rules",
        )
    )
    number = int(table or 0)
    if inside and number >= len(heads):
        return 0
    low = heads[number] if inside else 0
    high = heads[number + 1] if inside and number + 1 < len(heads) else len(lines)
    # A parameter's name is a key inside `params`; keys of the run come before all tables.
    for wanted, start in ((field, low), ("params" if error.code in _OF_PARAMS else "", low), (field, 0)):
        key = re.compile(rf"""\s*(?:\[\s*(?:tasks\s*\.\s*)?)?["']?{re.escape(wanted)}["']?\s*[=.\]]""")
        for at in range(start, high if wanted else 0):
            if key.match(lines[at]):
                return at + 1
    return low + 1 if inside else 0
