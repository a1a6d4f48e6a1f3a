"""`shoal policy show|apply`: the whole policy as a document; also functions that share and quota commands use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shoal.cli.output.describe import moment
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, print_answer, print_json
from shoal.cli.session import Session, common_options, say
from shoal.cli.tasks.submission import parse_toml
from shoal.client.client import Client
from shoal.client.config import echo_path
from shoal.model.errors import BadInput, Conflict
from shoal.model.limits import MAX_BODY
from shoal.model.quantities import many
from shoal.wire.policy import parse_policy

Json = dict[str, Any]
_SECONDS = {
    ("usage", "half_life"), ("usage", "window"), ("match", "interval"), ("ban", "longest"), ("ban", "scale"),
    ("data", "longest"), ("placement", "interval"),
}  # fmt: skip
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))
_TRIES = 3  # attempts of a change when others change the policy at the same time


@click.group()
def policy() -> None:
    """Show the whole policy (shares, quotas, licences, order, bans), or apply one from a file.

    \b
    Examples:
      shoal policy show > policy.toml
      shoal policy apply policy.toml --dry-run
      shoal policy apply policy.toml
    """


@policy.command("show")
@click.option("--toml", "as_toml", is_flag=True, help="The document as TOML, to be changed and applied (the default).")
@common_options
def show(as_toml: bool, as_json: bool, server: str | None) -> None:
    """Show the policy: all of it to administrators, what concerns them to others.

    \b
    Examples:
      shoal policy show
      shoal policy show --json
    """
    if as_toml and as_json:
        raise click.UsageError("--toml and --json together (give one of them)")
    with client_of(server) as client:
        found = client.policy()
    if as_json:
        print_json(iso_document(found))
        return
    by = f", changed by {clean(found['author'])}" if found["author"] else ""
    when = f" {moment(found['changed'])}" if found["changed"] else ""
    click.echo(f"# version {found['version']}{by}{when}")
    if found["hidden"]:
        concern = "concerns" if found["hidden"] == 1 else "concern"
        click.echo(f"# {many(found['hidden'], 'line')} that {concern} only others")
    click.echo(to_toml(found["policy"]))


@policy.command("apply")
@click.argument("file", metavar="FILE.toml")
@click.option("--dry-run", is_flag=True, help="Check it and say what would change; change nothing.")
@click.option("--based-on", type=int, metavar="N", help="Refuse if the policy is no longer at version N.")
@common_options
def apply(file: str, dry_run: bool, based_on: int | None, as_json: bool, server: str | None) -> None:
    """Put the policy of a file (- for standard input) in place of the one that counts (administrators).

    What the file leaves out has its default. The hook of [ban] runs as the server's own account.

    \b
    Examples:
      shoal policy apply policy.toml --dry-run
      shoal policy apply policy.toml --based-on 4
    """
    document = read_document(file)
    with client_of(server, changes=not dry_run) as client:
        version = client.policy()["version"] if based_on is None else based_on
        changed = client.set_policy(document, version, dry_run)
    print_changes(changed, as_json)


def client_of(server: str | None, changes: bool = False) -> Client:
    """A client of the server (the embedded one is started); `changes`: it says which one it is."""
    return Session(server, changes).client()


def change_policy(client: Client, change: Callable[[Json], Json]) -> Json:
    """Change one thing of the policy; if the policy was changed meanwhile, change the new one."""
    for left in reversed(range(_TRIES)):
        found = client.policy()
        try:
            return client.set_policy(change(found["policy"]), found["version"])
        except Conflict as error:
            if error.code != "stale_policy" or not left:
                raise
    raise AssertionError("the last try returns or raises")


def print_changes(changed: Json, as_json: bool) -> None:
    """Print each change that was made, or would be."""
    changes, version = changed["changes"], changed["version"]
    end = (
        f"the policy is at version {version}" if changes else f"nothing changes: the policy stays at version {version}"
    )
    end = f"{many(len(changes), 'line')} would change; nothing was." if changed["dry_run"] else end
    for note in changed["notes"] if not as_json else ():
        say(f"note: {note}")
    print_answer(changed, as_json, *map(clean, changes), end)


def read_document(name: str) -> Json:
    """The policy of a file, checked as far as that can be done here."""
    found = parse_toml(_read(name), name)
    try:
        parse_policy(found)
    except BadInput as error:
        line_text = BadInput(error.message, code=error.code, field=error.field).line
        raise BadInput(f"{echo_path(name)}: {line_text}", code=error.code, hint=error.hint) from None
    return found


def _read(name: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_BODY + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_BODY + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a path"
        hint = "`shoal policy show` prints one"
        raise BadInput(f"cannot read {echo_path(name)}: {why}", code="no_such_file", hint=hint) from None
    if len(data) > MAX_BODY:
        raise BadInput(f"{echo_path(name)} is too large", code="too_large", hint=f"at most {MAX_BODY} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{echo_path(name)} is not UTF-8 at byte {error.start}"
        raise BadInput(where, code="bad_utf8", hint="save it as UTF-8") from None


# --- TOML
def to_toml(document: Json) -> str:
    """A policy document as people write it; reading it gives the same document."""
    blocks: list[str] = []
    for section, values in document.items():
        for table in values if section == "quota" else [values]:
            head = f"[[{section}]]" if section == "quota" else f"[{section}]"
            plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
            lines = [f"{_key(key)} = {_value(section, key, value)}" for key, value in plain.items()]
            blocks.append("\n".join([head, *lines]))
            for name, inner in table.items():
                if isinstance(inner, dict) and inner:
                    lines = [f"{_key(key)} = {_value(section, key, value)}" for key, value in inner.items()]
                    blocks.append("\n".join([f"[{section}.{name}]", *lines]))
    return "\n\n".join(blocks)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _text(key)


def _value(section: str, key: str, value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_text(word) for word in value)}]"
    if isinstance(value, str):
        return _text(value)
    if (section, key) in _SECONDS:
        return exact(value, _UNITS)
    if (section, key) == ("quota", "stored"):
        return exact(value, _SIZES)
    return number(value)


def exact(value: float, units: tuple[tuple[str, int], ...]) -> str:
    """A quantity with the largest unit that leaves no remainder, as a text; without one, the plain number."""
    for unit, size in units:
        if value >= size and value % size == 0:
            return f'"{int(value // size)}{unit}"'
    return number(value)


def number(value: float) -> str:
    """A number that reads back as itself."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _text(text: str) -> str:
    plain = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain)
