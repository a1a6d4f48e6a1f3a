"""The files that a workflow is read from, as seen from one directory, and places in them for errors."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import field

from shoal.client.config import echo_path
from shoal.flow.dag import Dag
from shoal.model.errors import BadInput, ShoalError
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_BULK_BODY


@dataclass
class Files:
    """Reads files, and knows which there are; each is looked at once."""

    folder: str
    _known: dict[str, bool] = field(default_factory=dict)

    def read(self, name: str) -> str:
        """The text of a file."""
        path = os.path.join(self.folder, name)
        try:
            if os.path.exists(path) and not os.path.isfile(path):
                raise BadInput(f"{echo_path(name)} is not a regular file", code="not_regular_file", hint="name a file")
            with open(path, "rb") as file:
                data = file.read(MAX_BULK_BODY + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no path"
            raise BadInput(
                f"cannot read {echo_path(name)}: {why}", code="no_such_file", hint="names are seen from this directory"
            ) from None
        if len(data) > MAX_BULK_BODY:
            raise BadInput(f"{echo_path(name)} is too large", code="too_large", hint=f"at most {MAX_BULK_BODY} bytes")
        if b"\0" in data:
            raise BadInput(f"{echo_path(name)} is no text file", code="bad_utf8", hint="it holds NUL characters")
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            what = f"{echo_path(name)} is not UTF-8 at byte {error.start}"
            raise BadInput(what, code="bad_utf8", hint="save it as UTF-8") from None

    def exists(self, name: str) -> bool:
        """True if there is such a file."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = os.path.isfile(os.path.join(self.folder, name))
        return known

    def match(self, pattern: str, kind: str) -> Sequence[str]:
        """The names that a pattern matches, in order: files, dirs, or any of both."""
        found = sorted(glob.glob(pattern, root_dir=self.folder))
        wanted = {"files": os.path.isfile, "dirs": os.path.isdir}.get(kind, os.path.exists)
        return [name for name in found if wanted(os.path.join(self.folder, name))]


def placed(error: ShoalError, graph: Dag) -> ShoalError:
    """An error of the checks that all submissions pass, with the line of the node that it is about."""
    start, _, rest = error.field.partition("]")
    number = start.removeprefix("tasks[")
    return at_vertex(error, graph, int(number), rest.rpartition(".")[2]) if number.isdigit() else error


def at_vertex(error: ShoalError, graph: Dag, number: int, field: str) -> ShoalError:
    """An error with the line of a node."""
    where = graph.vertices[number].where
    return type(error)(f"{where}: {error.message}", code=error.code, field=field, hint=error.hint)
