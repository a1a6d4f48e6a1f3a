"""`shoal site list|share`: the names of sites, and who may use them."""

from __future__ import annotations

import click

from shoal.cli.output.describe import moment
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import print_answer, print_json, print_table
from shoal.cli.session import Session, common_options


@click.group()
def site() -> None:
    """List sites, or say whose their names are.

    The first enrolment token for a site makes its name the owner's or group's that the token is for. Others are refused
    with `site_taken`, until an administrator shares it.

    \b
    Examples:
      shoal site list
      shoal site share cluster @phys anna
    """


@site.command("list")
@common_options
def list_sites(as_json: bool, server: str | None) -> None:
    """List the sites whose names you may use; administrators see all.

    \b
    Examples:
      shoal site list
    """
    with Session(server).shared_client() as client:
        answer = client.sites()
    if as_json:
        print_json(iso_document(answer))
        return
    rows = [(row["name"], " ".join(row["holders"]) or "-", moment(row["created"])) for row in answer["sites"]]
    print_table(("site", "for", "since"), rows, "no sites: the first `shoal join --site NAME` makes one")


@site.command("share")
@click.argument("name", metavar="NAME")
@click.argument("holders", metavar="HOLDER...", nargs=-1)
@click.option("--only", is_flag=True, help="Of these only; without any, whoever comes next gets the name.")
@common_options
def share_site(name: str, holders: tuple[str, ...], only: bool, as_json: bool, server: str | None) -> None:
    """Let others have pilots under a site's name (administrators): users, @GROUP, or * for everybody.

    \b
    Examples:
      shoal site share cluster @phys anna
      shoal site share cluster @phys --only
    """
    if not holders and not only:
        raise click.UsageError("say with whom (anna, @phys, '*'), or --only to free the name")
    with Session(server, changes=True).shared_client() as client:
        answer = client.share_site(name, holders, only)
    print_answer(answer, as_json, f"site {name} is for: {' '.join(answer['holders']) or 'whoever comes next'}")
