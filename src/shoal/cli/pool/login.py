"""`shoal login`, `logout`, `whoami`: the server to work with, and the account there."""

from __future__ import annotations

import sys

import click

from shoal.cli.output.describe import until
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, pairs, print_json, print_lines
from shoal.cli.session import Session, common_options, json_option, say
from shoal.client.config import CONFIG, config_home, find_target
from shoal.client.connection.login import check_free, parse_login, reach, remove_login, write_login
from shoal.client.known_servers import chosen, forget_login, known_servers
from shoal.model.errors import BadInput, echo
from shoal.report.data_source import Json
from shoal.wire.did_you_mean import did_you_mean

MAX_STRING = 8 * 1024


@click.command()
@click.argument("string", required=False, default="-", metavar="[-|STRING]")
@click.option("--force", is_flag=True, help="Replace the settings of another server.")
@json_option
def login(string: str, force: bool, as_json: bool) -> None:
    """Work with somebody's server from now on: takes the string that `shoal token new` printed there.

    Without a string or with - it is read from standard input, so that no process list or history shows it.

    \b
    Examples:
      shoal login -
      shoal login - < string.txt
      shoal login 'box:8443#FINGERPRINT#TOKEN'
    """
    join = parse_login(_read() if string == "-" else string)
    if string != "-":
        say("note: the string is in your shell's history now; `shoal login -` asks for it instead")
    check_free(join, force)
    client, identity = reach(join)
    with client:
        file = write_login(client.url, join.token, client.ca)
    if as_json:
        print_json(iso_document({"server": client.url, "config": str(file), **identity}))
    else:
        click.echo(f"logged in to {client.url} as {_who(identity)}; the token ends {until(identity.get('expires'))}")
    used = find_target()
    if used.url != client.url:
        say(f"note: {used.origin} names {used.url or 'the embedded server'}, which goes before this login")


def _read() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("login string", hide_input=True, err=True))
    text = sys.stdin.readline(MAX_STRING)
    if not text.strip():
        raise BadInput(
            "there is no login string on standard input", code="bad_join",
            hint="paste what `shoal token new` printed, or `shoal login - < FILE`",
        )  # fmt: skip
    return text


def _who(identity: Json) -> str:
    group = f", group {clean(identity['group'])}" if identity.get("group") else ""
    return f"{clean(identity.get('owner') or '?')} ({clean(identity.get('role') or 'user')}{group})"


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
def logout(name: str | None) -> None:
    """Forget the server, the token and the certificate that `shoal login` kept here.

    With NAME: a server that you logged in to before, as `shoal server list` shows it.

    \b
    Examples:
      shoal logout
      shoal logout box

    The token itself goes on until it ends; `shoal token revoke ID` before logging out ends it at once.
    """
    if name is not None and name != chosen():
        if not forget_login(name):
            known = [one.name for one in known_servers().values() if not one.state]
            hint = did_you_mean(name, known) if known else "there is none; see `shoal server list`"
            raise BadInput(f"there is no login {echo(name)!r}", code="unknown_server", hint=hint)
        click.echo(f"logged out of {clean(echo(name))}")
        return
    server = remove_login()
    click.echo(f"logged out of {clean(echo(server))}" if server else f"no login in {clean(config_home() / CONFIG)}")


@click.command()
@common_options
def whoami(as_json: bool, server: str | None) -> None:
    """Who you are to the server, what your token may do, and when it ends.

    \b
    Examples:
      shoal whoami
      shoal whoami --json
    """
    with Session(server).any_client("whoami") as client:
        identity = client.whoami()
    if as_json:
        print_json(iso_document({"server": client.url, **identity}))
        return
    scopes = identity.get("scopes") or ()
    print_lines(pairs([
        ("server", client.url),
        ("you", _who(identity)),
        ("token", f"{identity.get('token') or '-'} ({identity.get('kind') or '-'})"),
        ("may", ", ".join(map(str, scopes)) if isinstance(scopes, (list, tuple)) else scopes),
        ("ends", until(identity.get("expires"))),
    ]))  # fmt: skip
