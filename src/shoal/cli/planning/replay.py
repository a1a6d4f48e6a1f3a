"""`shoal replay`: how long a run of the past would have taken with other pilots or rules."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import clean, pairs, print_json, print_lines
from shoal.cli.planning.simulate import document, predict_shown, time_text
from shoal.cli.session import Session, json_option, say, server_option
from shoal.model.errors import BadInput, Refused, echo
from shoal.model.policy import INTERVAL, MatchRule, Policy
from shoal.model.quantities import many, show_duration
from shoal.report.data_source import latest_run
from shoal.report.run_names import find_run
from shoal.report.run_record import read_record

if TYPE_CHECKING:  # the simulator is imported when it is used
    from shoal.sim.planning.journal import Journal
    from shoal.sim.planning.prediction import Prediction

_INTERVAL = re.compile(r"interval:([0-9.]+)(?::([0-9]+))?")
ORDERS = ("natural", "longest", "random")


@click.command()
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("--pilots", type=click.IntRange(1, 100_000), metavar="N", help="So many pilots from the start.")
@click.option("--slots", type=click.IntRange(1, 10_000), metavar="N", help="Slots of each [default: as most had].")
@click.option(
    "--policy", default="event", show_default=True, metavar="RULE",
    help="When tasks are matched: event (at once), or interval:SECONDS[:TASKS].",
)  # fmt: skip
@click.option("--order", type=click.Choice(ORDERS), default="natural", show_default=True, help="Order of the tasks.")
@click.option("--seeds", type=click.IntRange(1, 1_000), default=1, show_default=True, metavar="N", help="Simulations.")
@json_option
@server_option
def replay(
    run: str | None, pilots: int | None, slots: int | None, policy: str, order: str, seeds: int, as_json: bool,
    server: str | None,
) -> None:  # fmt: skip
    """Replay a finished run in the simulator: as it was, and with other pilots, another order or another rule.

    Without a run, the latest one. Taken from its journal are when its tasks were submitted, how long each took, and when pilots
    came and ended; who ran what is decided anew. The first line tells how well that repeats what really happened.

    \b
    Examples:
      shoal replay r12
      shoal replay r12 --pilots 8
      shoal replay r12 --pilots 4 --slots 16 --order longest
      shoal replay r12 --policy interval:10:15
    """
    rule = _rule(policy)
    if slots is not None and pilots is None:
        raise BadInput("--slots says how large the pilots of --pilots are", field="--slots", hint="give --pilots, too")
    session = Session(server)
    client = session.running()
    if client is not None:
        client.close()
    with session.bulk_source() as source:
        run = latest_run(source, say) if run is None else find_run(source, run, say)
        found = read_record(source, run, time.time() if client is not None else None)
    if found.info["finished"] is None:
        raise Refused(f"{run} has not finished", code="not_finished", hint=f"shoal wait {run}")
    from shoal.sim.planning.description import Arrival, Description, Pilots
    from shoal.sim.planning.journal import in_order, read_journal

    journal = read_journal(found)
    as_it_was = Description(pilots=Pilots(arrivals=journal.arrivals))
    before = predict_shown(as_it_was, [journal.work], range(1), as_json)
    changed = pilots is not None or rule is not None or order != "natural"
    after = None
    if changed:
        arrivals = journal.arrivals
        if pilots is not None:
            arrivals = (Arrival(0.0, slots or _usual_slots(journal)),) * pilots
        what = Description(pilots=Pilots(arrivals=arrivals), policy=rule)
        after = predict_shown(what, [in_order(journal.work, order)], range(seeds), as_json)
    if as_json:
        print_json(
            {
                "run": run, "measured": round(journal.makespan, 3), "replayed": document(before),
                "changed": document(after) if after is not None else None,
            }
        )  # fmt: skip
        return
    name = clean(found.info["name"])
    print_lines(_lines(f"{run} {name}".strip(), journal, before, after))


def _rule(text: str) -> Policy | None:
    """The rule of matching; None: as always."""
    if text == "event":
        return None
    parts = _INTERVAL.fullmatch(text)
    try:
        seconds = float(parts[1]) if parts else 0.0
    except ValueError:
        seconds = 0.0
    chunk = int(parts[2]) if parts and parts[2] else MatchRule().chunk
    if not 0.001 <= seconds <= 86_400.0 or not 1 <= chunk <= 1_000_000:
        raise BadInput(
            f"{echo(text)} is no rule of matching", field="--policy", hint="event, interval:10 or interval:10:15"
        )
    return Policy(match=MatchRule(INTERVAL, seconds, chunk))


def _usual_slots(journal: Journal) -> int:
    sizes = [arrival.slots for arrival in journal.arrivals]
    return max(set(sizes), key=sizes.count) if sizes else 1


def _lines(name: str, journal: Journal, before: Prediction, after: Prediction | None) -> Iterator[str]:
    slots = sum(arrival.slots for arrival in journal.arrivals)
    had = f"{many(len(journal.arrivals), 'pilot')}, {many(slots, 'slot')} in all"
    replayed = before.quantile(0.5)
    shown: list[tuple[str, object]] = [
        ("  took", f"{show_duration(journal.makespan)} ({had})"),
        ("  replayed", f"{time_text(replayed)}{_difference(replayed, journal.makespan)}"),
    ]
    if after is not None:
        then = after.quantile(0.5)
        shown.append(("  would have finished", f"in {time_text(then)}{_difference(then, replayed, ' of the replay')}"))
        if len(after.runs) > 1:
            low, high = after.quantile(0.1), after.quantile(0.9)
            shown.append(("  in 8 of 10", f"between {time_text(low)} and {time_text(high)}"))
    yield f"{name}: {many(before.runs[0].tasks, 'task')}"
    yield from pairs(shown)
    if journal.unknown:
        yield f"  {many(journal.unknown, 'task')} never ran to the end: taken as long as the median"
    yield from _note(journal)
    for found in (before, after):
        if found is not None and found.middle.stuck:
            yield f"  it did not end: {found.middle.stuck}"


def _note(journal: Journal) -> Iterator[str]:
    """What the replay does not know of, if there is any."""
    parts = [f"the run's {', '.join(journal.ignored)}"] if journal.ignored else []
    if journal.other_runs:
        parts.append(
            f"{many(journal.other_runs, 'other run')} that {'was' if journal.other_runs == 1 else 'were'} open meanwhile"
        )
    if parts:
        yield f"  not in the replay: {'; '.join(parts)}"


def _difference(now: float, then: float, of: str = "") -> str:
    if math.isinf(now) or then <= 0.0:
        return ""
    return f" ({100 * (now / then - 1.0):+.1f} %{of})"
