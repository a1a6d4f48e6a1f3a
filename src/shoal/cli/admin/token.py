"""`shoal token new|list|revoke`: the tokens of people and pilots."""

from __future__ import annotations

import click

from shoal.cli.output.describe import ago, holder, until
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, print_answer, print_json, print_table
from shoal.cli.session import Session, common_options, say
from shoal.client.client import Client
from shoal.model.credentials import LONGEST, SCOPES, SUBMIT
from shoal.model.errors import BadInput
from shoal.model.people import check_name
from shoal.model.quantities import many, parse_duration
from shoal.report.data_source import Json
from shoal.wire.http import unix_socket
from shoal.wire.join import Join


@click.group()
def token() -> None:
    """Make, list and revoke tokens: what a person logs in with, and what lets pilots in (`shoal join`).

    \b
    Examples:
      shoal token new --user anna
      shoal token list
      shoal token revoke t3f9c01
    """


@token.command()
@click.option("--user", metavar="NAME", help="Whose token it is [default: yours].")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES),
    help="What it may do (repeat for more) [default: submit, read, cancel].",
)  # fmt: skip
@click.option(
    "--expires", metavar="TIME",
    help="How long it is valid; at most 90d [default: 30d, or as long as the token that you make it with].",
)  # fmt: skip
@click.option("--note", metavar="TEXT", help="What it is for, shown in `shoal token list`.")
@common_options
def new(
    user: str | None, scopes: tuple[str, ...], expires: str | None, note: str | None, as_json: bool, server: str | None
) -> None:
    """Make a token to log in with, and print the login string for the person. It is shown only this once.

    \b
    Examples:
      shoal token new --user anna
      shoal token new --user anna --expires 7d --note laptop
      shoal token new --scope metrics --note prometheus
    """
    if user is not None:
        check_name(user, "--user")
    if expires is not None:
        check_expires(expires, SUBMIT)
    with Session(server, changes=True).shared_client() as client:
        answer = client.new_token(SUBMIT, owner=user, scopes=scopes, expires=expires, note=note)
    join = join_of(client, answer)
    if as_json:
        print_json(iso_document({**answer, "login": str(join)}))
        return
    click.echo(str(join))
    say(f"this is shown only once; {clean(answer['id'])} ends {until(answer['expires'])}")
    say(f"{user or 'whoever has it'} runs `shoal login -` and pastes the line above; send it over a private channel")
    tell_if_local(join)


def check_expires(text: str, kind: str) -> None:
    """Check the lifetime of a token of this kind [security S1]."""
    if parse_duration(text, "--expires") > LONGEST[kind]:
        raise BadInput(
            f"a token lives at most {LONGEST[kind] / 86_400:.0f} days", code="too_long", field="--expires",
            hint=f"write --expires {LONGEST[kind] / 86_400:.0f}d or less, and make a new one then",
        )  # fmt: skip


def join_of(client: Client, answer: Json) -> Join:
    """The join string with a new token; a server without a public address is reached as this client reaches it."""
    addresses = tuple(answer.get("addresses") or (client.url.removeprefix("https://"),))
    fingerprint = "" if unix_socket.is_address(addresses[0]) else str(answer.get("fingerprint") or "")
    return Join(addresses, fingerprint, str(answer["token"]))


def tell_if_local(join: Join) -> None:
    """Say that a server which only this machine reaches cannot be joined from elsewhere."""
    if unix_socket.is_address(join.addresses[0]):
        say(
            "this server is reached by your account on this machine only; `shoal server start --listen :8443` opens it to others"
        )


@token.command("list")
@click.option("--all", "show_all", is_flag=True, help="Also those that ended or were revoked.")
@common_options
def list_(show_all: bool, as_json: bool, server: str | None) -> None:
    """List tokens without their secrets: yours, or everyone's if you are an administrator.

    \b
    Examples:
      shoal token list
      shoal token list --all --json
    """
    with Session(server).shared_client() as client:
        answer = client.tokens(show_all)
    if as_json:
        print_json(iso_document(answer))
        return
    head = ("token", "kind", "for", "site", "scopes", "ends", "uses left", "pilots", "last used", "from", "note")
    none = "no tokens: make one with `shoal token new`, or `shoal join` for a pilot"
    print_table(head, [_row(row) for row in answer["tokens"]], none)


def _row(row: Json) -> tuple[object, ...]:
    most, used = row["max_pilots"], row["used"]
    return (
        row["token"], row["kind"], holder(row), row["site"] or "-", row["scopes"] or "-",
        "revoked" if row["revoked"] else until(row["expires"]), "-" if row["uses"] is None else row["uses"],
        f"{row['pilots']}/{most}" if most is not None else row["pilots"] or "-",
        ago(used) if used else "never", row["address"] or "-", row["note"] or "-",
    )  # fmt: skip


@token.command()
@click.argument("tokens", nargs=-1, metavar="[ID]...")
@click.option("--user", metavar="NAME", help="All tokens of a person.")
@click.option("--site", metavar="NAME", help="All tokens that let pilots of a site in.")
@click.option("--all", "revoke_all", is_flag=True, help="All tokens but the one this command uses.")
@common_options
def revoke(
    tokens: tuple[str, ...], user: str | None, site: str | None, revoke_all: bool, as_json: bool, server: str | None
) -> None:
    """End tokens at once, and the pilots they let in with them.

    \b
    Examples:
      shoal token revoke t3f9c01
      shoal token revoke --user anna
      shoal token revoke --site box
    """
    ways = [bool(tokens), user is not None, site is not None, revoke_all]
    if sum(ways) != 1:
        raise click.UsageError("say which tokens, in one way (ID..., --user NAME, --site NAME or --all)")
    with Session(server, changes=True).shared_client() as client:
        answer = client.revoke(tokens, user or "", site or "", revoke_all)
    revoked = f"{many(answer['revoked'], 'token')} revoked, {many(answer['pilots'], 'pilot')} ended"
    none = "nothing to revoke: no such token is valid (see `shoal token list --all`)"
    print_answer(answer, as_json, revoked if answer["revoked"] else none)
