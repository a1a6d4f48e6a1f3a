"""`shoal events`: the journal, one line per event."""

from __future__ import annotations

import sys

import click

from shoal.cli.output.describe import event_text, timestamp
from shoal.cli.output.json_documents import event_document
from shoal.cli.output.tables import print_json
from shoal.cli.session import Session, server_option
from shoal.client.client import Client
from shoal.model.errors import BadInput, Unreachable, echo
from shoal.model.event import KINDS
from shoal.report.data_source import Json
from shoal.wire.did_you_mean import did_you_mean

WAIT = 10.0  # seconds that the server holds a request
END = "run_finished"


@click.command()
@click.option("--run", metavar="RUN", help="Only events of this run.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Only such events, e.g. task_finished (repeat for more)."
)
@click.option("-f", "--follow", "follows", is_flag=True, help="Print what comes; of a run: until it is finished.")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Only events behind this number.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one event each.")
@server_option
def events(
    run: str | None, kinds: tuple[str, ...], follows: bool, after: int | None, as_json: bool, server: str | None
) -> None:
    """What happened, oldest first: one line per event with its number, time and what it is about.

    With --follow and no --run or --after, only what happens from now on.

    \b
    Examples:
      shoal events --run r12
      shoal events --kind pilot_joined --kind pilot_gone
      shoal events --follow
      shoal events --run r12 --follow --json
    """
    for kind in kinds:
        if kind not in KINDS:
            raise BadInput(
                f"{echo(kind)!r} is not a kind of event", code="unknown_kind", field="--kind",
                hint=did_you_mean(kind, list(KINDS)),
            )  # fmt: skip
    session = Session(server)
    run = session.find_run(run) if run is not None else None
    if follows:
        _follow(session, run or "", kinds, after, as_json)
        return
    with session.source() as source:
        if run is not None:
            source.run(run)  # raises if there is none
        for event in source.events(run or "", after or 0, kinds):
            _show(event, as_json)


def _follow(session: Session, run: str, kinds: tuple[str, ...], after: int | None, as_json: bool) -> None:
    client = session.running()
    if client is None:
        raise Unreachable(
            "--follow needs a running server", code="not_running", hint="without it: what has happened so far"
        )
    with client:
        if run:
            client.run(run)  # raises if there is none
        if after is None:
            after = 0 if run else int(client.server().get("last_seq", 0))
        wanted = (*kinds, END) if run and kinds and END not in kinds else kinds
        for page in client.pages(run, after, wait=WAIT, kinds=wanted):
            for event in page:
                if not kinds or event["kind"] in kinds:
                    _show(event, as_json)
            sys.stdout.flush()
            if run and any(event["kind"] == END for event in page) and _is_over(client, run):
                return


def _is_over(client: Client, run: str) -> bool:
    """True if the run is finished now. A run with retried tasks has finished before and goes on."""
    return client.run(run)["finished"] is not None


def _show(event: Json, as_json: bool) -> None:
    if as_json:
        print_json(event_document(event))
        return
    about = f"r{event['run']}" if event.get("run") is not None else "-"
    about += f".{event['task']}" if event.get("task") is not None else ""
    click.echo(f"{event['seq']:>8}  {timestamp(event['time'])}  {about:<10}  {event_text(event)}")
