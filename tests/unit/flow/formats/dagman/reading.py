"""A set of files in memory, from which tests read workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

from shoal.flow.formats.dagman.dag_file import read_dag
from shoal.flow.formats.dagman.nodes import Workflow
from shoal.flow.formats.dagman.source import Surroundings
from shoal.flow.formats.dagman.translate import Translated, translate
from shoal.model.errors import BadInput

JOB = {"a.sub": "executable = /bin/echo\narguments = $(JOB) $(x)\nqueue\n"}


def around(files: Mapping[str, str], env: Mapping[str, str] | None = None) -> Surroundings:
    """These files, as the disk would give them."""

    def read(name: str) -> str:
        if name not in files:
            raise BadInput(f"cannot read {name}: No such file or directory", code="no_such_file", hint="name one")
        return files[name]

    def match(pattern: str, kind: str) -> Sequence[str]:
        return sorted(name for name in files if fnmatch(name, pattern)) if kind != "dirs" else []

    return Surroundings(read, lambda name: name in files, match, env or {}, folder="/data/a")


def read(dag: str, **files: str) -> Workflow:
    """The workflow of a text; other files by their names, with `_` for the dot before the suffix."""
    named = {name.replace("_", ".", 1): text for name, text in files.items()}
    return read_dag("w.dag", around({**JOB, **named, "w.dag": dag}))


def vertices(dag: str, done: frozenset[str] = frozenset(), **files: str) -> Translated:
    """The vertices of a text; other files as in `read`."""
    named = {name.replace("_", ".", 1): text for name, text in files.items()}
    surroundings = around({**JOB, **named, "w.dag": dag}, {"HOME": "/h/ann"})
    return translate(read_dag("w.dag", surroundings), surroundings, done)
