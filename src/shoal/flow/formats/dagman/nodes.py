"""What a `.dag` file says: nodes, with everything that commands attach to them, and the edges between them."""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from shoal.flow.formats.dagman.submit_file import Description
from shoal.model.lazy_dataclass import dataclass

JOB, SUBDAG, FINAL, SERVICE, PROVISIONER = "job", "subdag", "final", "service", "provisioner"


class Script(NamedTuple):
    """A script around a node's job."""

    words: tuple[str, ...]  # the program and its arguments, of which some are macros
    where: str
    defer: tuple[int, int] | None = None  # with this exit code it is tried again after so many seconds
    debug: tuple[str, str] | None = None  # file, and which of its streams go there: STDOUT, STDERR or ALL


@dataclass(slots=True)
class Node:
    """One node, with its name as seen from the top."""

    name: str
    where: str
    kind: str
    what: Description | str  # its description, or the file of one or of a sub-DAG, as seen from `folder`
    folder: str = ""  # seen from the directory of the run
    is_noop: bool = False
    is_done: bool = False
    before: dict[str, str] = field(default_factory=dict)  # macros set before its description is read
    behind: dict[str, str] = field(default_factory=dict)  # and behind it
    retries: int = 0
    unless_exit: int | None = None
    priority: int = 0
    pre: Script | None = None
    post: Script | None = None
    skip_code: int | None = None  # of the PRE script: then the node has succeeded without its job
    abort: tuple[int, int] | None = None  # exit code that ends the workflow, and what the workflow then ends with
    category: str = ""


class Edge(NamedTuple):
    """All of these nodes before all of those."""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    where: str


@dataclass
class Workflow:
    """A `.dag` file with its splices and included files."""

    nodes: dict[str, Node] = field(default_factory=dict)  # by name, in order
    edges: list[Edge] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)  # of categories
    env: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)  # what is not carried out, and why
