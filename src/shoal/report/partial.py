"""What the tasks of a run emitted so far, merged: as a document for programs, and as words for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.client.config import find_target
from shoal.client.console import say
from shoal.model.ids import run_text
from shoal.model.quantities import many
from shoal.report.data_source import Json, source_of
from shoal.report.run_names import find_run

LINES = 8  # answers in a summary
SHOWN = 3  # values that are kept themselves, in one line


def partial(run: str | int, server: str | None = None) -> Json:
    """What a run's tasks emitted so far, merged: `shoal.partial("r12")["answers"]` has one entry for each name."""
    if not isinstance(run, (str, int)):
        raise TypeError(f'{run!r} is not a run (give its id, as in shoal.partial("r12"); see `shoal ps`)')
    with source_of(find_target(server)) as source:
        return source.partial(run_text(run) if isinstance(run, int) else find_run(source, run, say))


def answer_text(answer: Mapping[str, Any]) -> str:
    """One answer in a few words."""
    kind = str(answer["reducer"]).partition("(")[0]
    value = answer.get("value")
    if kind == "append":
        return _values_text(answer)
    if value is None:
        return "beyond the range of numbers" if answer["n"] else "nothing yet"
    if kind == "mean":
        error = answer.get("error")
        return number_text(value, error) + (f" +- {number_text(error, error)}" if error is not None else "")
    if kind == "best" and len(answer["values"]) > 1:
        return _values_text(answer)
    if kind == "best":
        return f"{number_text(value)} ({answer['values'][0]['task']})"
    return f"mean {number_text(value)}" if kind == "hist" else number_text(value)


def number_text(value: float, error: float | None = None) -> str:
    """A number with the decimals of the first two digits of its error; without one, six digits."""
    if value == int(value) and abs(value) < 1e15 and not error:
        return f"{int(value):,}"
    if not error or abs(value) >= 1e15:
        return f"{value:.6g}"
    decimals = min(15, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{decimals}f}"


def _values_text(answer: Mapping[str, Any]) -> str:
    found: Sequence[Mapping[str, Any]] = answer["values"]
    shown = [f"{number_text(one['value']) if isinstance(one['value'], float) else one['value']} ({one['task']})"
             for one in found[:SHOWN]]  # fmt: skip
    more = answer["n"] - len(shown)
    return ", ".join([*shown, *([f"{more:,} more"] if more > 0 else [])]) or "nothing yet"


def goal_text(goal: Mapping[str, Any]) -> str:
    """How far a goal is: `rel_err(x) < 0.01 is reached: rel_err(x) = 0.0098`."""
    known = ", ".join(
        f"{name} = {value:.4g}" if value is not None else f"{name} is not known yet"
        for name, value in goal["values"].items()
    )
    return f"{goal['until']} {'is reached' if goal['reached'] else 'is not reached'}: {known}"


def counted_text(found: Mapping[str, Any]) -> str:
    """Of how many tasks the answers are."""
    text = f"{many(found['tasks'], 'task')} counted"
    return text + (f", and {found['running']:,} that run as far as they have come" if found["running"] else "")


def left_out_text(count: int) -> str:
    """What tasks emitted and nobody could use."""
    what = many(count, "emitted line or value", "emitted lines or values")
    return f"{what} left out: neither `name=value` nor JSON, of too many names, or above 1 MiB of one task"


def short_text(found: Mapping[str, Any], most: int = 2) -> str:
    """The first answers, for a line of progress: `E 5.03 +- 0.02  n 200`."""
    parts = [f"{answer['name']} {answer_text(answer)}" for answer in found["answers"] if answer["n"]]
    return "  ".join(parts[:most])


def answer_lines(found: Mapping[str, Any]) -> list[str]:
    """The answers for the summary of a run; none if nothing was emitted."""
    answers = found["answers"]
    lines = [f"  {one['name']}: {answer_text(one)} ({one['reducer']} of {one['n']:,})" for one in answers[:LINES]]
    if len(answers) > LINES:
        lines.append(f"  and {many(len(answers) - LINES, 'more answer')}: shoal partial {found['run']}")
    if found["left_out"]:
        lines.append(f"  {left_out_text(found['left_out'])}")
    return [*lines, *([f"  goal: {goal_text(found['goal'])}"] if found["goal"] is not None else [])]
