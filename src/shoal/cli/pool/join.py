"""`shoal join`: one line that makes another host work for you."""

from __future__ import annotations

import click

from shoal.cli.admin.token import check_expires, join_of, tell_if_local
from shoal.cli.arguments.units import FiniteRange
from shoal.cli.output.describe import until as until_text
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, print_json
from shoal.cli.pool.file_options import MESH_OPTIONS, STORAGE_OPTION, check_storage, mesh_options
from shoal.cli.pool.lifetime import LIFETIME_OPTIONS, lifetime_options
from shoal.cli.session import Session, argv_of, common_options, say
from shoal.model.credentials import ENROL
from shoal.model.errors import Refused
from shoal.model.people import check_name
from shoal.model.quantities import many
from shoal.pilot.host.tags import parse_tags
from shoal.wire.join import bootstrap_line


@click.command()
@click.option("--site", metavar="NAME", help="The site its pilots belong to [default: the server says].")
@click.option("--owner", metavar="USER", help="Whose tasks they run [default: yours].")
@click.option("--group", metavar="G", help="Run the tasks of this group instead.")
@click.option("--max-pilots", type=click.IntRange(1), metavar="N", help="At most so many pilots at one time.")
@click.option(
    "--expires",
    metavar="TIME",
    help="How long new pilots may come; at most 7d [default: that, or as long as the token that you make it with].",
)
@click.option("--once", is_flag=True, help="For one pilot; then the line is used up.")
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Offer so many cores [default: all there are].")
@click.option("--idle-end", type=FiniteRange(min=0.0), metavar="S", help="End after S seconds without a task.")
@LIFETIME_OPTIONS
@MESH_OPTIONS
@STORAGE_OPTION
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Describe the host to tasks; may be repeated.")
@click.option("--note", metavar="TEXT", help="What it is for, shown in `shoal token list`.")
@common_options
def join(
    site: str | None,
    owner: str | None,
    group: str | None,
    max_pilots: int | None,
    expires: str | None,
    once: bool,
    cores: int | None,
    idle_end: float | None,
    lifetime: str | None,
    until: str | None,
    mesh: str | None,
    mesh_port: str | None,
    mesh_address: str | None,
    shared_dir: str | None,
    storage: tuple[str, ...],
    tags: tuple[str, ...],
    note: str | None,
    as_json: bool,
    server: str | None,
) -> None:
    """Print one line for a shell on another host: it fetches a pilot, checks it, and starts it there.

    The host needs Python 3.9 or newer and a way out to the server; nothing is installed. It
    listens for other pilots of its site only, on a port that you may choose (--mesh-port), or not at all (--mesh off).

    \b
    Examples:
      shoal join
      shoal join --site box --once
      shoal join | ssh box sh
      shoal join --group phys --max-pilots 20 --idle-end 600
    """
    if owner is not None and group is not None:
        raise click.UsageError("--owner and --group together (a pilot runs the tasks of a person or of a group)")
    for option, name in (("--owner", owner), ("--group", group), ("--site", site)):
        if name is not None:
            check_name(name, option)
    parse_tags(tags)
    check_storage(storage)
    ending = (*lifetime_options(lifetime, until), *mesh_options(mesh, mesh_port, mesh_address, shared_dir))
    if expires is not None:
        check_expires(expires, ENROL)
    with Session(server, changes=True).shared_client() as client:
        answer = client.new_token(
            ENROL, owner=owner, group=group, site=site, max_pilots=max_pilots, expires=expires,
            uses=1 if once else None, note=note,
        )  # fmt: skip
    if not answer.get("pilot_sha256"):
        raise Refused(
            "the server has no pilot to give away", code="no_pilot",
            hint="just started, it still builds it: try again in a few seconds; else see its server.log",
        )  # fmt: skip
    described = ("--site", site), ("--tag", tags), ("--storage", storage)
    options = argv_of(("--cores", cores), ("--idle-end", idle_end), *ending, *described)
    string = join_of(client, answer)
    line = bootstrap_line(string, str(answer["pilot_sha256"]), tuple(options))
    if as_json:
        print_json(iso_document({**answer, "join": str(string), "line": line}))
        return
    say("run this line in a shell on the other host; it needs only Python 3.9 or newer, and a way out to the server")
    pilots = (
        "one pilot, once" if once else f"at most {many(max_pilots, 'pilot')}" if max_pilots else "any number of pilots"
    )
    say(
        f"{clean(answer['id'])}: {pilots}, new ones until {until_text(answer['expires'])}; `shoal token revoke` ends it"
    )
    tell_if_local(string)
    click.echo(line)
