"""Descriptions of runs, tasks and pilots: the pairs that `shoal show` prints; times as people read them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import Any

from shoal.cli.output.tables import clean, shorten
from shoal.model.quantities import first_of, many, show_duration, show_size
from shoal.model.task.shell_quote import fill_shell
from shoal.model.task.spec import Spec
from shoal.model.task.sweep import fill
from shoal.model.task.units import read_units
from shoal.report.summary import counts_text, live_of
from shoal.sched.vector.deadline import chance_text
from shoal.wire.http.run_counts import done_of
from shoal.wire.task import parse_spec

Json = dict[str, Any]
Pairs = Iterator[tuple[str, object]]
MAX_SHOWN = 20
MOST_PARENTS = 8  # that are named of what a table waits for
EVENT_DATA = (
    *("name", "tasks", "state", "cause", "why", "reason", "message"),
    *("how", "left", "next", "signal", "host", "count"),
)  # of an event that are shown, in this order


def run_state(row: Json) -> str:
    """The state of a run."""
    counts = row["counts"]
    if row["finished"] is None:
        if live_of(row):
            return "running"
        # A program that has nothing to do for now may still add calls to it.
        if row.get("open") and done_of(row) == row["total"]:
            return "open"
        return "waiting" if counts.get("waiting", 0) == row["total"] - done_of(row) else "ready"
    if counts.get("succeeded", 0) == row["total"] or (row.get("goal") or {}).get("reached"):
        return "succeeded"
    return "failed" if counts.get("failed", 0) + counts.get("lost", 0) else "cancelled"


def outcome_of(state: str) -> str:
    """A state as programs that wait for something ask for it: `running`, `success` or `failed`."""
    if state == "succeeded":
        return "success"
    return "failed" if state in ("failed", "cancelled", "lost") else "running"


def timestamp(seconds: float) -> str:
    """A local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ago(seconds: float) -> str:
    """How long ago a time was."""
    return f"{show_duration(max(0.0, time.time() - seconds))} ago"


def moment(seconds: float) -> str:
    """A local date and time, with how long ago it was."""
    return f"{timestamp(seconds)} ({ago(seconds)})"


def until(seconds: float | None) -> str:
    """A time in the future, with how long it is until then."""
    if seconds is None:
        return "never"
    shown = time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    left = seconds - time.time()
    return f"{shown} (in {show_duration(left)})" if left > 0 else f"{shown} (over)"


def since(row: Json) -> str:
    """When something was made, if the row has it."""
    return moment(row["created"]) if row.get("created") else "-"


def holder(row: Json) -> str:
    """Whose something is: a person's, or a group's with an @ before it."""
    return f"@{row['group']}" if row.get("group") else row.get("owner") or "-"


def describe_run(run: Json) -> Pairs:
    """Describe a run."""
    yield "run", run["run"]
    yield "name", run["name"] or "-"
    yield "state", run_state(run)
    yield "tasks", f"{run['total']:,} ({done_of(run):,} done: {counts_text(run)})"
    yield "submitted", moment(run["created"])
    if run["finished"] is not None:
        took = show_duration(max(0.0, run["finished"] - run["created"]))
        yield "finished", f"{moment(run['finished'])}, after {took}"
    yield "directory", run["cwd"]
    yield "seed", run["seed"]
    if run.get("max_fail") is not None:
        yield "max-fail", run["max_fail"]
    if run.get("max_running") is not None:
        yield "at once", f"{run['max_running']:,} at most"
    goal = run.get("goal")
    if goal is not None:
        yield "until", clean(goal["until"]) + (f" (reached: {clean(goal['reached'])})" if goal["reached"] else "")
    for name, value in run["labels"].items():
        yield "label", f"{clean(name)}={clean(value)}"
    if run.get("planning") is not None:
        yield "planning", _planning_text(run["planning"])
    for rule in run.get("rules") or ():
        yield f"rule {clean(rule['name'])}", _rule_text(rule)
    works: set[str] = set()
    grown = {rule["name"] for rule in run.get("rules") or ()}
    arrays = [array for array in run["arrays"] if array["name"] not in grown] if grown else run["arrays"]
    for array in arrays[:MAX_SHOWN]:
        first, last = array["first"], array["first"] + array["count"] - 1
        elements = f"{run['run']}.{first}" + (f" .. {last}" if last > first else "")
        if array["task"].get("units") is not None:
            if array["name"] in works:
                yield elements, _units_text(array["task"]["units"])
                continue
            works.add(array["name"])
        params = array["task"].get("params") or array["task"].get("array")
        is_tied = isinstance(params, list) and len(params) == 1  # one task of a sweep whose tasks wait one by one
        text = command_text(array["task"], 0 if is_tied else None)
        yield elements, f"{clean(array['name']) + ': ' if array['name'] else ''}{text}"
        for field, how in (("after", "after"), ("after_any", "after the end of")):
            if names := array["task"].get(field):
                yield "", f"{how} {first_of([clean(name) for name in names], MOST_PARENTS)}"
        if array["task"].get("units") is not None:
            yield "", _units_text(array["task"]["units"])
        if params and not is_tied:
            yield "", f"for {shorten(clean(_params_text(params)), 120)}"
    if len(arrays) > MAX_SHOWN:
        yield "...", many(len(arrays) - MAX_SHOWN, "more table")
    for span in run["spans"][:MAX_SHOWN]:
        elements = f"{run['run']}.{span['low']} .. {span['high'] - 1}"
        yield elements, f"{span['state']}: {clean(span['message'] or span['cause'])}"


def _planning_text(planning: Json) -> str:
    """`unaccepted: P(in time) = 40 %, 2m to 3m on 4 slots; 12 tasks reused`."""
    parts = []
    if planning.get("chance") is not None:
        parts.append(f"P(in time) {chance_text(planning['chance'])}")
    if planning.get("p50") is not None:
        parts.append(f"{show_duration(planning['p50'])} (P50) to {show_duration(planning['p90'])} (P90)")
    if planning.get("reused"):
        parts.append(f"{many(planning['reused'], 'task')} reused")
    if planning.get("accepted"):
        parts.append(f"accepted by {clean(planning['accepted'])}")
    return f"{clean(planning['stage'])}{': ' if parts else ''}{', '.join(parts)}"


def _rule_text(rule: Json) -> str:
    """`raw/*.dat: 12 files, 10 tasks, 2 wait; watches for more`."""
    waiting = f", {rule['waiting']:,} {'waits' if rule['waiting'] == 1 else 'wait'}" if rule["waiting"] else ""
    watches = "; watches for more" if rule["watching"] else ""
    return f"{clean(rule['pattern'])}: {many(rule['files'], 'file')}, {many(rule['tasks'], 'task')}{waiting}{watches}"


def _units_text(value: Any) -> str:
    first, count, is_cut = read_units(value, "units")
    return f"{many(count, 'unit')} from {first:,} on{'' if is_cut else ', not cut into pieces yet'}"


def _params_text(params: Any) -> str:
    if isinstance(params, dict):
        return ", ".join(
            f"{name}={values if isinstance(values, str) else ','.join(map(str, values))}"
            for name, values in params.items()
        )
    return f"a table of {many(len(params), 'row')}" if isinstance(params, list) else f"i={params}"


def command_text(task: Json, element: int | None = None) -> str:
    """The command of a task table, of one element with its parameters filled in; or the function that is called."""
    if task.get("noop"):
        return "none: it does nothing"
    spec = parse_spec(task)
    if spec.function:
        return clean(spec.labels.get("function", "a function")) + "(...)"
    argv = list(spec.command) if spec.shell is None else ["sh", "-c", spec.shell]
    if element is not None and spec.sweep is not None:
        params = spec.sweep.at(element)
        argv = [fill(text, params) for text in argv] if spec.shell is None else [*argv[:2], fill_shell(argv[2], params)]
    return shorten(clean(shlex.join(argv)), 400)


def needs_text(spec: Spec) -> str:
    """The resources of a task."""
    needs = spec.needs
    parts = [many(needs.cores, "core")]
    parts += [f"{show_size(size)} {name}" for name, size in (("memory", needs.memory), ("disk", needs.disk)) if size]
    parts += [many(needs.gpus, "gpu")] if needs.gpus else []
    parts += [f"at most {show_duration(spec.time)}"] if spec.time is not None else []
    parts += [many(spec.retries, "retry", "retries")] if spec.retries else []
    parts += [f"{spec.throttle} at once"] if spec.throttle is not None else []
    return ", ".join(parts)


def describe_task(name: str, found: Json) -> Pairs:
    """Describe a task, with its events."""
    array, row = found["array"], found["task"] or {}
    offset = int(name.partition(".")[2]) - int(array["first"])
    changed = (row.get("special") or {}).get("changed") or {}
    spec = parse_spec({**array["task"], **changed})
    yield "task", name + (f" ({clean(array['name'])})" if array["name"] else "")
    yield "state", found["state"]
    yield "function" if spec.function else "command", command_text(array["task"], offset)
    if spec.sweep is not None:
        yield "parameters", ", ".join(f"{key}={clean(value)}" for key, value in spec.sweep.at(offset).items())
    yield "needs", needs_text(spec)
    if changed:
        yield "changed", ", ".join(f"{key} {clean(value)}" for key, value in changed.items())
    if row:
        yield from _describe_row(name, row, spec.retries)
    yield from _describe_steps(found["events"])
    for event in found["events"][-MAX_SHOWN:]:
        yield time.strftime("%H:%M:%S", time.localtime(event["time"])), event_text(event)


def _describe_row(name: str, row: Json, retries: int) -> Pairs:
    if row["reused"]:
        yield "result of", f"{row['reused']} (not run again)"
    burnt = f"{row['retries']} of {many(retries, 'retry', 'retries')} burnt"
    yield "attempts", f"{row['attempt']} ({burnt}, {many(row['losses'], 'pilot')} lost)"
    if row["cause"]:
        yield "cause", row["cause"] + (f": {clean(row['message'])}" if row["message"] else "")
    for label, key in (("exit code", "exit_code"), ("signal", "signal")):
        if row[key] is not None:
            yield label, row[key]
    if row["duration"] is not None:
        cpu = f", {show_duration(row['cpu'])} of CPU" if row["cpu"] is not None else ""
        size = f", {show_size(row['max_rss'])} at most" if row["max_rss"] else ""
        yield "took", f"{show_duration(row['duration'])}{cpu}{size}"
    if row["host"]:
        yield "host", f"{clean(row['host'])} (pilot {row['pilot']}, site {clean(row['site'])})"
    if row["last_line"]:
        yield "last line", shorten(clean(row["last_line"]), 200)
    if row["new_files"]:
        yield "new files", ", ".join(clean(file) for file in row["new_files"][:MAX_SHOWN])
    yield "logs", f"shoal logs {name}, shoal logs {name} --stderr"


def _describe_steps(events: list[Json]) -> Pairs:
    """The steps of the attempt that ended last, if it moved files."""
    ended = next((event for event in reversed(events) if event["kind"] == "task_finished"), None)
    steps = (ended.get("data") or {}).get("steps") if ended is not None else None
    if ended is None or not steps:
        return
    for step in steps:
        text = show_duration(step["seconds"])
        if step["files"]:
            text += f", {many(step['files'], 'file')} of {show_size(step['bytes'])}"
        if step["origins"]:
            text += " from " + ", ".join(f"{clean(name)} ({show_size(size)})" for name, size in step["origins"].items())
        if step.get("failed"):
            text += "; not from " + ", ".join(f"{clean(place)} ({clean(why)})" for place, why in step["failed"].items())
        yield clean(step["name"]).replace("_", "-"), text
    yield "publish", f"with its result, {timestamp(ended['time'])}"
    yield "clean", "its directory was removed after that"


def event_text(event: Json) -> str:
    """An event as one line: its kind, then its data."""
    data = event.get("data") or {}
    shown = [f"{key} {clean(value)}" for key, value in (data.get("fields") or {}).items()]
    shown += [f"{key} {clean(data[key])}" for key in EVENT_DATA if data.get(key) not in (None, "")]
    for here, size, count, whole in (data.get("inputs") or {}).values():
        shown.append(f"{here} of {many(count, 'input')} on its host ({show_size(size)} of {show_size(whole)})")
    attempt = f" #{event['attempt']}" if event.get("attempt") else ""
    pilot = f" on {event['pilot']}" if event.get("pilot") else ""
    kind = event["kind"].replace("tasks_", "task_").replace("_", " ")
    return f"{kind}{attempt}{pilot}" + (f": {shorten(', '.join(shown), 160)}" if shown else "")


def describe_pilot(pilot: Json) -> Pairs:
    """Describe a pilot."""
    yield "pilot", pilot["pilot"]
    yield "state", pilot["state"] + (f" ({clean(pilot['reason'])})" if pilot.get("reason") else "")
    yield "host", clean(pilot["host"])
    yield "site", clean(pilot["site"])
    size = f", {show_size(pilot['memory'])} memory" if pilot["memory"] else ""
    yield "offers", many(pilot["cores"], "core") + size + (f", {many(pilot['gpus'], 'gpu')}" if pilot["gpus"] else "")
    yield "version", clean(pilot["version"])
    yield "joined", moment(pilot["joined"])
    if pilot.get("ended") is not None:
        yield "ended", moment(pilot["ended"])
    for name, value in sorted((pilot.get("tags") or {}).items()):
        yield "tag", f"{clean(name)}={clean(value)}"
