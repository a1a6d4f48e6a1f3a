"""`shoal server backup|restore|check`: copies of the server's database, on the server's own machine."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import click

from shoal.cli.output.tables import clean, print_json
from shoal.cli.output.whole_file import file_to_replace
from shoal.cli.session import Session, json_option, state_directory
from shoal.client.config import echo_path, own_state, read_server_file
from shoal.client.connection import embedded_server
from shoal.db import backups
from shoal.db.database_lock import way_out
from shoal.db.migrate import newest, version_of
from shoal.model.errors import NotFound, Refused
from shoal.model.file_names import DATABASE
from shoal.model.quantities import many, show_size

STATE = click.option(
    "--state", metavar="DIR", help="The server's state directory [default: the embedded server's, else your own's]."
)


def find_database(state: str | None) -> Path:
    """The database of a state directory, else of the server that all commands use."""
    if state is not None:
        return state_directory(state) / DATABASE
    session = Session()
    if session.target.state is not None:
        return session.target.state / DATABASE
    if not session.is_embedded:
        server = read_server_file(own_state())
        if server is None or server.url != session.target.url:
            raise Refused(
                f"the database of {session.target.url} is not of this machine's state directories", code="elsewhere",
                hint="run it on the server's machine, with --state DIR",
            )  # fmt: skip
        return own_state() / DATABASE
    paths = [embedded_server.state_dir() / DATABASE, own_state() / DATABASE]
    return next((path for path in paths if path.exists()), paths[0])


def _need(path: Path) -> str:
    if not path.exists():
        hint = "name another with --state DIR"
        raise NotFound(f"there is no database in {echo_path(path.parent)}", code="no_database", hint=hint)
    return str(path)


@click.command()
@STATE
@click.argument("file", metavar="[FILE]", required=False)
@json_option
def backup(state: str | None, file: str | None, as_json: bool) -> None:
    """Copy the database to FILE, with or without a running server, as of this moment.

    Without FILE: into the directory `backups` beside it. Logs, blobs and keys are plain files beside the database; copy
    them as files.

    \b
    Examples:
      shoal server backup
      shoal server backup /mnt/backup/shoal.db
      shoal server backup --state /data/shoal
    """
    database = _need(find_database(state))
    made, facts = _back_up(database, file)
    if as_json:
        print_json({"file": made, **facts})
        return
    click.echo(f"backup: {clean(made)} ({_words(facts)})")


def _back_up(database: str, file: str | None) -> tuple[str, dict[str, Any]]:
    """Copy a database; the path of the copy, and what is in it."""
    if file is None:
        made = backups.back_up(database)
        return made, _facts(made)
    try:
        place = file_to_replace(file)
        if place is None:  # SQLite writes no device and no pipe
            made = backups.back_up(database)
            try:
                facts = _facts(made)
                with open(made, "rb") as source, open(file, "wb") as special:
                    shutil.copyfileobj(source, special)
            finally:
                os.unlink(made)
            return os.path.abspath(file), facts
    except OSError as error:
        hint = "name a file in a directory that you can write to"
        raise Refused(f"cannot write {echo_path(file)}: {error.strerror}", code="unwritable", hint=hint) from None
    backups.back_up(database, place)
    return os.path.abspath(file), _facts(place)


@click.command()
@STATE
@click.argument("file", metavar="FILE")
@json_option
def restore(state: str | None, file: str, as_json: bool) -> None:
    """Put a backup in the database's place. Refused while a server runs; what was there is kept beside it.

    FILE is checked first. Runs that were submitted after the backup are not in it, and pilots that still hold tasks of
    them give them up.

    \b
    Examples:
      shoal server restore /mnt/backup/shoal.db
      shoal server restore --state /data/shoal /data/shoal/backups/shoal-20260131-120000.db
    """
    path = find_database(state)
    kept = backups.restore(file, str(path))
    facts = _facts(str(path))
    if as_json:
        print_json({"database": str(path), "kept": kept, **facts})
        return
    click.echo(f"restored: {clean(str(path))} ({_words(facts)})")
    if kept:
        click.echo(f"the database before is kept in {clean(kept)}")


@click.command()
@STATE
@click.argument("file", metavar="[FILE]", required=False)
@json_option
def check(state: str | None, file: str | None, as_json: bool) -> None:
    """Look through the whole database, or a backup of it, for damage. Exit status 3 if there is some.

    \b
    Examples:
      shoal server check
      shoal server check /mnt/backup/shoal.db
    """
    path = os.path.realpath(file) if file is not None else _need(find_database(state))
    wrong = backups.check_file(path) or _load(path)
    if as_json:
        print_json({"file": path, "sound": not wrong, "wrong": wrong, **({} if wrong else _facts(path))})
    for line in wrong if not as_json else ():
        click.echo(clean(line))
    if wrong:
        hint = "try an older backup" if file is not None else way_out(path)
        raise Refused(f"{path} is damaged", code="corrupt", hint=hint)
    if not as_json:
        click.echo(f"sound: {clean(path)} ({_words(_facts(path))})")


def _load(path: str) -> list[str]:
    """What a server could not read in a file whose pages are undamaged."""
    from shoal.db.sqlite import Database
    from shoal.engine.engine import Engine
    from shoal.model.timing import Timing

    with backups.reading(path) as connection:
        if version_of(connection, path) != newest():
            return []  # it is migrated first
        connection.execute("BEGIN")  # a consistent snapshot of a database that a server may be writing
        try:
            snapshot = Database(connection, path, None, "full").snapshot()
            return Engine(snapshot, Timing(), Random(0), time.time()).check()
        except Exception as error:  # whatever it is, a server would not start with it
            return [f"its rows cannot be read: {type(error).__name__}: {error}"]


def _facts(path: str) -> dict[str, Any]:
    with backups.reading(path) as connection:
        runs = int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
        return {"bytes": os.stat(path).st_size, "runs": runs, "schema": version_of(connection, path)}


def _words(facts: dict[str, Any]) -> str:
    return f"{many(facts['runs'], 'run')}, {show_size(facts['bytes'])}, schema {facts['schema']}"
