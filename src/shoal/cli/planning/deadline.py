"""What is said of a deadline before anything is submitted, and what the person answers [SPHINX S6]."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import click

from shoal.cli.arguments.moments import clock_text, deadline_of
from shoal.cli.session import say
from shoal.cli.tasks.submission import Draft, with_deadline
from shoal.client.client import Client
from shoal.model.errors import BadInput, NotFound
from shoal.model.quantities import many
from shoal.sched.vector.deadline import GOOD, chance_text

Ask = Callable[[Draft], tuple[dict[str, Any], Client]]  # what would become of a draft: the answer of a dry run


class Decided(NamedTuple):
    """A draft with its deadline, and the chance that was stated; without a draft it was withdrawn."""

    draft: Draft | None
    chance: float | None = None


def given_deadline(options: dict[str, Any]) -> str | None:
    """The deadline that options name."""
    named = [name for name in ("by", "within", "deadline") if options.get(name) is not None]
    if len(named) > 1:
        raise click.UsageError(f"--{named[0]} and --{named[1]} together (give one of them)")
    return deadline_of(options.get("by"), options.get("within"), datetime.now().astimezone())


def decide(draft: Draft, deadline: str, ask: Ask, yes: bool, quiet: bool) -> Decided:
    """State the chance of meeting a deadline. Where it is not good, a person at a terminal accepts it, gives another time or
    withdraws; anybody else is told, and goes on."""
    while True:
        draft = with_deadline(draft, deadline)
        answer, client = ask(draft)
        with client:
            chance, lines = state(draft, answer.get("outlook") or {}, client, time.time())
        if not quiet:
            for line in lines:
                say(line)
        is_asked = chance is not None and len(lines) > 1 and not yes and sys.stdin.isatty() and sys.stderr.isatty()
        if not is_asked:
            return Decided(draft, chance)
        said = click.prompt(
            "submit it all the same? [y]es, [n]o, or another time", default="y", err=True, show_default=False
        ).strip()
        if said.lower() in ("y", "yes", "a", "accept"):
            return Decided(draft, chance)
        if said.lower() in ("n", "no", "w", "withdraw"):
            return Decided(None)
        try:
            is_clock = ":" in said or "T" in said
            now = datetime.now().astimezone()
            deadline = deadline_of(said, None, now) or "" if is_clock else deadline_of(None, said, now) or ""
        except BadInput as error:
            say(error.line)


def state(draft: Draft, outlook: dict[str, Any], client: Client, now: float) -> tuple[float | None, list[str]]:
    """The chance of meeting the deadline, if it is known, and what to say; more than a line if the chance is not good."""
    due = max(spec.due(now) for spec in draft.submission.specs)
    by, tasks, slots = clock_text(due, now), draft.submission.count, int(outlook.get("slots") or 0)
    if any(spec.units is not None or spec.after or spec.after_any for spec in draft.submission.specs):
        return None, [f"P(by {by}) is not known before it runs: its tasks wait for others, or are cut while it runs"]
    if not slots:
        return None, [f"P(by {by}) is not known yet: no pilot that could run it is here"]
    from shoal.sched.vector.deadline import state_fresh  # few submissions have a deadline
    from shoal.sched.vector.time_left import Observed

    observed, seen = Observed(), []
    for run in outlook.get("alike") or ():
        try:
            observed.read(client, client.run_row(run))
            seen.append(run)
        except NotFound:
            pass  # it was removed meanwhile
    found = state_fresh(observed.fresh(tasks, slots), due - now)
    if found is None:
        return None, [f"P(by {by}) is not known yet: no task with this command has run here; the first ones will tell"]
    p50, p90 = clock_text(now + found.p50, now), clock_text(now + found.p90, now)
    where = f"{many(slots, 'slot')}, by the tasks of {', '.join(seen)}"
    lines = [f"forecast {p50} (P50) .. {p90} (P90) on {where}.  P(by {by}) {chance_text(found.chance)}"]
    if found.slots is not None:
        lines.append(f"  {found.slots:,} slots would make it 95 %: `shoal site add`, or `shoal join` on other hosts")
    if found.tasks is not None:
        lines.append(f"  {found.tasks:,} of the {many(tasks, 'task')} make it with 95 %")
    if found.slots is None and found.tasks is None and found.chance < GOOD:
        lines.append("  neither more slots nor fewer tasks make it 95 %: a single task may take too long")
    return found.chance, lines
