"""`shoal bridge`: have another server run tasks of this one."""

from __future__ import annotations

import logging
import os

import click

from shoal.cli.session import say
from shoal.model.errors import ShoalError
from shoal.model.people import check_name


@click.command()
@click.option(
    "--to", "other", required=True, metavar="SERVER", help="The server that runs the tasks, as `shoal login` knows it."
)
@click.option("--site", required=True, metavar="NAME", help="The site that it is here: tasks name it to go there.")
@click.option(
    "--slots", type=click.IntRange(1, 10_000), default=100, show_default=True, metavar="N", help="So many at once."
)
@click.option("--join-file", metavar="F", help="A file with the join string of the server whose tasks these are.")
@click.option("--from", "url", metavar="URL", help="Its address, if it is on this machine: unix:/PATH.")
@click.option("--token-file", metavar="F", help="With --from: a file with an enrolment token of it.")
def bridge(other: str, site: str, slots: int, join_file: str | None, url: str | None, token_file: str | None) -> int:
    """Have another organisation's server run tasks of this one, until this process is ended.

    To this server it is a pilot at a site of its own: what is leased to it keeps owner, share, quota and attempt number. To the
    other server it is one of its users, with a token and the quotas that it gives to that user. Only commands without files,
    which may run again (rerun = safe), go there, and only if they name the site. Ending it takes everything back.

    \b
    Examples:
      shoal join --site lab-b --json | jq -r .join > join.txt
      shoal bridge --to lab-b --site lab-b --join-file join.txt
      shoal sweep --site lab-b,local 'x=1..1000' -- ./sim {x}
    """
    if bool(join_file) == bool(url) or bool(url) != bool(token_file):
        raise click.UsageError("give --join-file, or --from and --token-file")
    check_name(site, "site")
    from shoal.bridge.loop import Bridge
    from shoal.pilot.uplink.server_address import ServerAddress, read_join

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        join = read_join(None, join_file) if join_file else None
        address = ServerAddress("", url or "", os.path.abspath(token_file or ""), join)
        return Bridge(address, other, site, slots, say).run()
    except ShoalError as error:
        raise click.UsageError(error.line) from None
