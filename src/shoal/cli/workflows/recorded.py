"""Workflows in WfFormat as submissions: run with the commands that are recorded in them, or replayed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from shoal.cli.arguments.units import FiniteRange
from shoal.cli.session import Session, say
from shoal.cli.tasks.options import options
from shoal.cli.tasks.submission import PARENTS, Draft, draft_document, field_value, given_fields, read_text
from shoal.cli.workflows.files import placed
from shoal.cli.workflows.shape_text import shape_lines
from shoal.client.config import echo_path
from shoal.flow.dag import Dag, build, document, shape
from shoal.flow.formats.wfformat import read
from shoal.flow.formats.wfformat_vertices import Replay, files_to_make, vertices
from shoal.model.errors import Refused, ShoalError, printable
from shoal.model.quantities import many, show_size
from shoal.model.task.spec import FIELDS

SUFFIX = ".json"
FOLDER = ".replay"  # behind the name of the workflow's file: the directory of its replay
_PART = 1 << 20
FACTOR = FiniteRange(min=0, min_open=True)
REPLAYING = ("replay", "speed", "scale", "ledger")
MOST_NAME = 200  # bytes of the recorded name that name the run


class Recorded(NamedTuple):
    """A workflow as it is submitted."""

    dag: Dag
    draft: Draft
    seconds: list[float] | None  # that its tasks took; None: that is not recorded


REPLAY_OPTIONS = options(
    click.option("--replay", is_flag=True, help="Sleep as long as FILE.json recorded, make files as large, in FILE.replay."),
    click.option("--speed", type=FACTOR, metavar="X",
                 help="Replay X recorded seconds in one [default: 1]."),
    click.option("--scale", type=FACTOR, metavar="X",
                 help="Make files X times smaller [default: as --speed, if that is above 1]."),
    click.option("--ledger", metavar="FILE", help="Each replayed task appends its start and its end to this file."),
)  # fmt: skip


def is_recorded(name: str) -> bool:
    """True if an argument names a workflow in WfFormat."""
    return name.endswith(SUFFIX)


def refuse_replay(given: Mapping[str, Any]) -> None:
    """Refuse the options of a replay where no file in WfFormat was given."""
    for option in REPLAYING:
        if given[option]:
            raise click.UsageError(f"--{option} is for workflows in WfFormat (give one: FILE{SUFFIX})")


def run_recorded(session: Session, name: str, given: Mapping[str, Any]) -> int:
    """`shoal dag` of a file in WfFormat: show its shape, submit it, and wait for its end."""
    from shoal.cli.tasks.run import start  # it reads such files, too

    for option in ("force", "rescue_from", "use_dag_dir"):
        if given[option]:
            raise click.UsageError(
                f"--{option.replace('_', '-')} is for DAGMan files ({echo_path(name)} is in WfFormat)"
            )
    recorded = read_recorded(name, given)
    if not (given["quiet"] or given["as_json"]):
        for line in shape_lines(name, recorded.dag, shape(recorded.dag, recorded.seconds)):
            click.echo(line, err=not given["dry_run"])
    return start(session, recorded.draft, {**dict.fromkeys(("resume", "strict", "stdin", "by", "within")), **given})


def draft_recorded(name: str, given: Mapping[str, Any]) -> Draft:
    """The submission that a file in WfFormat becomes."""
    return read_recorded(name, given).draft


def read_recorded(name: str, given: Mapping[str, Any]) -> Recorded:
    """A file in WfFormat, read and checked."""
    parents = {field.name: field_value(field, given[field.name]) for field in given_fields(given)}
    for field_name in parents:
        if field_name not in PARENTS:
            raise click.UsageError(f"--{FIELDS[field_name].option_name} does not go with a workflow file")
    replay = _replay(given)
    instance = read(read_text(name), name)
    dag = build(vertices(instance, name, replay))
    stem = os.path.basename(name).removesuffix(SUFFIX)
    whole = document(dag, name=given["name"] or _shortened(instance.name))
    if parents:
        whole["tasks"] = [
            {**table, **{key: [*table.get(key, ()), *names] for key, names in parents.items()}}
            for table in whole["tasks"]
        ]
    makes: dict[str, int] = {}
    if replay is not None:
        whole["cwd"] = stem + FOLDER
        makes = files_to_make(instance, replay)
    seconds = [task.seconds or 0.0 for task in instance.tasks]
    try:
        draft = draft_document(whole, given, name, makes)
    except ShoalError as error:
        raise placed(error, dag) from None
    return Recorded(dag, draft, seconds if any(seconds) else None)


def _shortened(name: str) -> str:
    """A recorded name as that of a run."""
    return printable(name).encode()[:MOST_NAME].decode(errors="ignore")


def _replay(given: Mapping[str, Any]) -> Replay | None:
    if not given["replay"]:
        for option in REPLAYING[1:]:
            if given[option] is not None:
                raise click.UsageError(f"--{option} is for a replay (write --replay, too)")
        return None
    speed = given["speed"] or 1.0
    ledger = os.path.abspath(given["ledger"]) if given["ledger"] else ""
    return Replay(speed, given["scale"] or max(1.0, speed), ledger)


def is_replay(draft: Draft) -> bool:
    """True if a submission plays a recorded workflow again, in a directory that is made for it."""
    return is_recorded(draft.origin) and draft.submission.cwd.endswith(FOLDER)


def prepare(draft: Draft) -> None:
    """Make the directory of a replay, and the files that its tasks read and none of them writes."""
    if not is_replay(draft):
        return
    folder = draft.submission.cwd
    made = size = 0
    try:
        os.makedirs(folder, exist_ok=True)
        for name, length in draft.makes:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.path.getsize(path) == length:
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                for at in range(0, length, _PART):
                    file.write(bytes(min(_PART, length - at)))
            made, size = made + 1, size + length
    except OSError as error:
        what = f"cannot make the files of the replay in {echo_path(folder)}: {error.strerror}"
        raise Refused(what, code="unwritable", hint="a larger --scale makes smaller files") from None
    if made:
        say(f"{many(made, 'input file')} of the replay made in {echo_path(folder)}, {show_size(size)}")
