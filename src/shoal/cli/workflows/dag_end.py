"""How a DAGMan workflow ended: by its nodes, its FINAL node or ABORT-DAG-ON, and the rescue file that is left of it."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from shoal.cli.main import FAILED
from shoal.cli.output.whole_file import write_whole
from shoal.cli.session import read_pages, say
from shoal.client.client import Client
from shoal.flow.formats.dagman.rescue import MAX_RESCUE, newest, rescue_name, write_rescue
from shoal.flow.formats.dagman.translate import Translated
from shoal.model.quantities import many
from shoal.wire.task import parse_spec

BAD = ("failed", "cancelled", "lost")


class End(NamedTuple):
    """What became of the nodes."""

    status: int
    done: list[str]
    failed: list[str]
    why: str  # one sentence, if the tasks do not say it themselves


def end_of(client: Client, run: str, found: Translated) -> End:
    """How a run that is over ended, by the rules of DAGMan."""
    info = client.run(run)
    bad = _bad_elements(client, run, info)
    firsts = {array["name"]: (array["first"], array["count"]) for array in info["arrays"]}
    ok = {name: all(_is_good(firsts.get(one), bad) for one in made) for name, made in found.nodes.items()}
    ok |= dict.fromkeys(found.asides, True)
    done = [name for name, good in ok.items() if good and name != found.final and name not in found.asides]
    failed = [name for name, good in ok.items() if not good]
    if found.final:
        status = 0 if ok[found.final] else FAILED
        others = len(failed) - (not ok[found.final])
        why = f"the FINAL node {found.final} {'succeeded' if ok[found.final] else 'failed'}, which decides"
        return End(status, done, failed, why if bool(others) is not bool(status) else "")
    aborted = _abort(found, info, bad)
    if aborted is not None:
        name, code, status = aborted
        return End(
            status, done, failed, f"{name} ended with exit code {code}: ABORT-DAG-ON ends the workflow with {status}"
        )
    return End(FAILED if failed else 0, done, failed, "")


def _is_good(place: tuple[int, int] | None, bad: Container[int]) -> bool:
    return place is not None and not any(element in bad for element in range(place[0], place[0] + place[1]))


def _bad_elements(client: Client, run: str, info: Mapping[str, Any]) -> dict[int, int | None]:
    """The elements of a run that did not succeed, each with how it failed: an exit code, or the number of a signal below 0."""
    if info["counts"].get("succeeded", 0) == info["total"]:
        return {}
    bad: dict[int, int | None] = {}
    for span in info["spans"]:
        if span["state"] in BAD:
            bad.update(dict.fromkeys(range(int(span["low"]), int(span["high"]))))
    rows, _ = read_pages(lambda size, start: client.tasks(run, start or 0, size, BAD), "tasks", 0)
    for row in rows:
        code = -int(row["signal"]) if row["signal"] else row["exit_code"]
        bad[int(row["element"])] = code if row["state"] == "failed" else None
    return bad


def _abort(found: Translated, info: Mapping[str, Any], bad: Mapping[int, int | None]) -> tuple[str, int, int] | None:
    """The node that aborted a workflow, its exit code, and what the workflow ends with. Tasks say so, which stay: events are
    kept for a while."""
    arrays = {array["name"]: array for array in info["arrays"]} if found.returns else {}
    for name, (_, status) in found.returns.items():
        if name in found.asides:
            continue  # a service that was stopped at the end has succeeded without having ended by itself
        for one in found.nodes[name]:
            codes = parse_spec(arrays[one]["task"]).abort_on if one in arrays else ()
            code = bad.get(int(arrays[one]["first"]), 0) if codes else None
            if code is not None and code in codes:
                return name, code, status if status >= 0 else FAILED
    return None


def rescue_number(dag: str) -> int:
    """The number of the newest rescue file of a `.dag` file."""
    folder, name = os.path.split(dag)
    try:
        listed = os.listdir(folder or ".")
    except OSError:
        return 0
    return newest(one for one in listed if one.startswith(f"{name}.rescue"))


def leave_rescue(dag: str, run: str, end: End, total: int) -> None:
    """Write the rescue file of a workflow that did not succeed."""
    number = min(rescue_number(dag) + 1, MAX_RESCUE - 1)
    path = rescue_name(dag, number)
    try:
        write_whole(path, write_rescue(dag, run, end.done, end.failed, total))
    except OSError as error:
        say(f"warning: the rescue file {path} was not written: {error.strerror}")
        return
    say(f"{path}: {many(len(end.done), 'node')} of {total:,} need not run again; `shoal dag {dag}` goes on from there")
