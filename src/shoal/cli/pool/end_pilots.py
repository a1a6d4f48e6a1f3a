"""`shoal pilot drain|stop`: end pilots in order, by name, host or site."""

from __future__ import annotations

import fnmatch

import click

from shoal.cli.output.tables import clean, print_answer
from shoal.cli.session import Session, common_options, say
from shoal.client.client import Client
from shoal.model.errors import NotFound, echo
from shoal.model.quantities import many, parse_duration, show_duration
from shoal.report.data_source import Json

WINDOW = "30s"  # that `stop` gives what has no checkpoint


def _selection(command: click.decorators.FC) -> click.decorators.FC:
    """What says which pilots are meant."""
    for part in (
        click.option("--all", "all_", is_flag=True, help="All that you may end."),
        click.option("--host", metavar="GLOB", help="Those on such hosts, e.g. 'n0*'."),
        click.option("--site", metavar="NAME", help="Those of this site."),
        click.argument("names", nargs=-1, metavar="[PILOT]..."),
    ):
        command = part(command)
    return command


@click.command()
@_selection
@click.option("--deadline", metavar="TIME", help="After so long, stop what still runs: it goes on elsewhere.")
@common_options
def drain(
    names: tuple[str, ...], site: str | None, host: str | None, all_: bool, deadline: str | None, as_json: bool,
    server: str | None,
) -> None:  # fmt: skip
    """Have pilots finish what runs, take nothing new, and end. Names may be globs.

    \b
    Examples:
      shoal pilot drain p3f9c
      shoal pilot drain --host 'n0*' --deadline 1h
      shoal pilot drain --site lab
    """
    within = parse_duration(deadline, "--deadline") if deadline is not None else None
    _end(names, site, host, all_, within, False, as_json, server)


@click.command()
@_selection
@click.option("--deadline", default=WINDOW, show_default=True, metavar="TIME", help="When to stop what still runs.")
@common_options
def stop(
    names: tuple[str, ...], site: str | None, host: str | None, all_: bool, deadline: str, as_json: bool,
    server: str | None,
) -> None:  # fmt: skip
    """End pilots soon: tasks that can write a checkpoint do so at once, the others have until the deadline.

    What is stopped is not failed: it goes on, or begins again, on another pilot. Names may be globs.

    \b
    Examples:
      shoal pilot stop p3f9c
      shoal pilot stop 'p3*' --deadline 5m
      shoal pilot stop --all
    """
    _end(names, site, host, all_, parse_duration(deadline, "--deadline"), True, as_json, server)


def _end(
    names: tuple[str, ...], site: str | None, host: str | None, all_: bool, within: float | None, stops: bool, as_json: bool,
    server: str | None,
) -> None:  # fmt: skip
    verb = "stop" if stops else "drain"
    if not (names or site or host or all_):
        raise click.UsageError(f"say which pilots (e.g. shoal pilot {verb} p3f9c, --site lab, --host 'n0*' or --all)")
    with Session(server).any_client(f"`shoal pilot {verb}`") as client:
        living = [row for row in client.pilots()["pilots"] if row["state"] != "gone"]
        chosen = choose(living, names, site, host)
        answer = {"pilots": _order(client, [row["pilot"] for row in chosen], within, stops)}
    then = f", what still runs in {show_duration(within)} is stopped" if within is not None else ""
    doing = "told to stop" if stops else "told to finish and end"
    print_answer(answer, as_json, f"{many(answer['pilots'], 'pilot')} {doing}{then}")


def choose(living: list[Json], names: tuple[str, ...], site: str | None, host: str | None) -> list[Json]:
    """The pilots that fit a name, if there are names, and the site and host that are given; NotFound if none does."""
    found = living
    for name in names:
        if not any(fnmatch.fnmatchcase(row["pilot"], name) for row in living):
            hint = "see `shoal pilots`"
            raise NotFound(f"no pilot {clean(echo(name))} is connected", code="unknown_pilot", hint=hint)
    if names:
        found = [row for row in found if any(fnmatch.fnmatchcase(row["pilot"], name) for name in names)]
    for column, wanted in (("site", site), ("host", host)):
        if wanted is not None:
            found = [row for row in found if fnmatch.fnmatchcase(row[column], wanted)]
    if not found:
        where = " and ".join(
            f"{column} {clean(echo(text))}" for column, text in (("site", site), ("host", host)) if text
        )
        what = f"of {where} " if where else ""
        raise NotFound(f"no pilot {what}is connected", code="unknown_pilot", hint="see `shoal pilots`")
    return found


def _order(client: Client, names: list[str], within: float | None, stops: bool) -> int:
    """End these pilots; those that are listed but belong to others are left out, with a note."""
    try:
        return int(client.drain(names, within, stops)["pilots"])
    except NotFound:
        if len(names) == 1:
            raise
    count = 0
    for name in names:
        try:
            count += client.drain([name], within, stops)["pilots"]
        except NotFound:
            say(f"note: {name} is not yours to end")
    return count
