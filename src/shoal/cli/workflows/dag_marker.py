"""The file `NAME.dag.shoal` beside a `.dag` file: which run works on it. It is there from the submission on until somebody
saw the end, so that whoever calls `shoal dag` again goes on waiting, or finds what a client that was killed left undone.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import NamedTuple

from shoal.cli.output.whole_file import write_whole
from shoal.cli.session import Session, say
from shoal.client.client import Client
from shoal.model.errors import NotFound


class Marker(NamedTuple):
    """A run, by what tells it from runs of other servers and histories."""

    run: str
    created: float
    server: str


def path_of(dag: str) -> str:
    """The name of the file."""
    return f"{dag}.shoal"


def write(dag: str, session: Session, client: Client, run: str) -> None:
    """Note which run works on a file."""
    marker = {"run": run, "created": client.run_row(run)["created"], "server": session.target.url or ""}
    try:
        write_whole(path_of(dag), json.dumps(marker))
    except OSError as error:
        say(f"note: {path_of(dag)} cannot be written ({error.strerror}): a second `shoal dag` would not know of {run}")


def remove(dag: str) -> None:
    """The end of the run was seen."""
    with contextlib.suppress(OSError):
        os.unlink(path_of(dag))


def find(dag: str, session: Session) -> str:
    """The run that works on a file, or did when nobody waited; empty if there is none on this server."""
    try:
        with open(path_of(dag), encoding="utf-8") as file:
            known = json.load(file)
        marker = Marker(str(known["run"]), float(known["created"]), str(known["server"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if marker.server != (session.target.url or ""):
        hint = f"remove {path_of(dag)} if nobody waits for it any more"
        say(f"note: {marker.run} of {marker.server or 'the embedded server'} worked on this file last ({hint})")
        return ""
    try:
        with session.client() as client:
            return marker.run if client.run_row(marker.run)["created"] == marker.created else ""
    except NotFound:
        return ""
