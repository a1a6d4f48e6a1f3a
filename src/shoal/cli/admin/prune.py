"""`shoal prune`: delete old events and logs, oldest first [protocol 7]. Results and runs stay."""

from __future__ import annotations

import time
from pathlib import Path

import click

from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options
from shoal.client.connection import embedded_server
from shoal.model.file_names import DATABASE
from shoal.model.quantities import many, parse_duration, parse_size, show_size


@click.command()
@click.option("--older-than", default="30d", show_default=True, metavar="TIME", help="Age from which things go.")
@click.option(
    "--keep", default="2G", show_default=True, metavar="SIZE", help="Bytes of logs and events to keep at most."
)
@common_options
def prune(older_than: str, keep: str, as_json: bool, server: str | None) -> None:
    """Delete old events and the logs of old finished runs. A running server also does this every hour.

    \b
    Examples:
      shoal prune
      shoal prune --older-than 7d --keep 500M
    """
    age = parse_duration(older_than, "--older-than")
    budget = parse_size(keep, "--keep")
    session = Session(server, changes=True)
    client = session.running()
    if client is not None:
        done = client.prune(age, budget)
    else:
        silent = embedded_server.not_answering(embedded_server.state_dir())
        if silent is not None:
            raise silent
        events, freed = prune_state(embedded_server.state_dir(), time.time() - age, budget)
        done = {"events": events, "log_bytes": freed}
    deleted = f"{many(done['events'], 'event')} and {show_size(done['log_bytes'])} of logs deleted"
    print_answer(done, as_json, deleted)


def prune_state(state: Path, before: float, budget: int) -> tuple[int, int]:
    """Events deleted, bytes of logs deleted, where no server runs."""
    if not (state / DATABASE).exists():
        return 0, 0
    from shoal.db.reader import Reader
    from shoal.db.retention import drop_logs, runs_over
    from shoal.db.sqlite import Database

    events, freed, after_run, more = 0, 0, 0, True
    with Database.open(state / DATABASE) as database:  # its lock keeps a server from starting meanwhile
        while more:
            done = database.prune(before, budget, after_run=after_run)
            events, more = events + done.events, done.more
            for run in done.runs:
                freed += drop_logs(state, run)
                after_run = run
        with Reader.on(database) as reader:
            freed += sum(drop_logs(state, run) for run in runs_over(reader, state, budget))
    return events, freed
