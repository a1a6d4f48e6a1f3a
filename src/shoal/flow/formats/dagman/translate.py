"""DAGMan's nodes as vertices of a workflow: each becomes a table of task fields, and what the engine has no field for
becomes a part of the shell text that runs the node [ADR 0051].
"""

from __future__ import annotations

import posixpath
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shoal.flow.dag import Vertex
from shoal.flow.formats.dagman.dag_file import MAX_PAIRS
from shoal.flow.formats.dagman.job_fields import NAMES, Commands, JobFields, job_fields
from shoal.flow.formats.dagman.macros import LATE
from shoal.flow.formats.dagman.node_script import Job, gate_script, is_late, node_script, provisioner_script
from shoal.flow.formats.dagman.nodes import FINAL, PROVISIONER, SERVICE, SUBDAG, Node, Workflow
from shoal.flow.formats.dagman.source import Surroundings, wrong
from shoal.flow.formats.dagman.submit_file import Description, Process, joined, processes, read_description
from shoal.flow.formats.dagman.words import split_arguments
from shoal.model.errors import BadInput, echo

NOTHING = "/dev/null"


class Translated(NamedTuple):
    """A workflow as vertices, and what of it only whoever waits for its end needs to know."""

    vertices: list[Vertex]
    notices: list[str]
    returns: dict[str, tuple[int, int]]  # node -> exit code that ends the workflow, and what that ends with
    nodes: dict[str, list[str]]  # node -> the vertices that its jobs became
    final: str  # the FINAL node, if there is one
    asides: frozenset[str]  # SERVICE nodes: how they end says nothing about the workflow


def translate(workflow: Workflow, around: Surroundings, done: frozenset[str] = frozenset()) -> Translated:
    """The vertices of a workflow; `done`: nodes that have succeeded in an earlier attempt at it (a rescue file)."""
    unknown = next((name for name in done if name not in workflow.nodes), None)
    if unknown is not None:
        hint = "the file was changed since; take the line out of the rescue file"
        raise BadInput(
            f"the rescue file names {echo(unknown)!r}, which is not in the workflow", code="bad_dag", hint=hint
        )
    return _Translator(workflow, around, done).translate()


class _Parts(NamedTuple):
    """One job of a node, before it is known whether it needs a shell."""

    name: str
    table: dict[str, Any]
    job: Job
    needs_shell: bool


class _Translator:
    def __init__(self, workflow: Workflow, around: Surroundings, done: frozenset[str]) -> None:
        self.workflow, self.around, self.done = workflow, around, done
        self.notices = list(dict.fromkeys(workflow.notices))
        self.parents: dict[str, dict[str, None]] = {name: {} for name in workflow.nodes}
        self._read: dict[str, Description] = {}  # by file
        self._noticed: set[str] = set()
        self._known_fields: dict[int, JobFields] = {}
        self.joins: list[Vertex] = []

    def translate(self) -> Translated:
        """All vertices, in the order of the nodes."""
        nodes = self.workflow.nodes
        self._link()
        provisioner = next((node for node in nodes.values() if node.kind == PROVISIONER), None)
        parts = {name: self._parts(at, node) for at, (name, node) in enumerate(nodes.items(), 1)}
        files = Counter(
            file for jobs in parts.values() for one in jobs for file in {one.job.stdout, one.job.stderr} if file
        )
        vertices: list[Vertex] = []
        made: dict[str, list[str]] = {}
        for name, node in nodes.items():
            own = list(self._vertices(node, parts[name], files))
            made[name] = [vertex.name for vertex in own if "noop" not in vertex.table or len(own) == 1]
            vertices += own
        if provisioner is not None:
            vertices = self._behind(provisioner, [*vertices, *self.joins])
        else:
            vertices += self.joins
        returns = {node.name: node.abort for node in nodes.values() if node.abort is not None}
        final = next((name for name, node in nodes.items() if node.kind == FINAL), "")
        asides = frozenset(name for name, node in nodes.items() if node.kind == SERVICE)
        return Translated(vertices, self.notices, returns, made, final, asides)

    # --- edges
    def _link(self) -> None:
        """Parents of each node; between many and many, a vertex that does nothing, as DAGMan's join nodes."""
        for number, edge in enumerate(self.workflow.edges, 1):
            if len(edge.parents) > 1 and len(edge.children) > 1 and len(edge.parents) * len(edge.children) > MAX_PAIRS:
                join = f"join.{number}"
                self.joins.append(Vertex(join, {"noop": True}, self._not_done(edge.parents), where=edge.where))
                for child in edge.children:
                    self.parents[child][join] = None
                continue
            parents = dict.fromkeys(self._not_done(edge.parents))
            for child in edge.children:
                self.parents[child].update(parents)

    def _not_done(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those that are to run: nobody waits for what is done."""
        return tuple(name for name in names if not self._is_done(self.workflow.nodes[name]))

    def _is_done(self, node: Node) -> bool:
        return node.is_done or node.name in self.done

    # --- one node
    def _parts(self, number: int, node: Node) -> list[_Parts]:
        """The jobs of a node; none for one that is done, or that has no job and no scripts."""
        if self._is_done(node) or (node.is_noop and node.pre is None and node.post is None):
            return []
        table = self._own_fields(node)
        if node.is_noop:
            return [_Parts(node.name, table, Job([], {}), True)]
        if node.kind == SUBDAG:
            assert isinstance(node.what, str)
            if node.before or node.behind:
                self._notice("subdag", f"{node.where}: VARS of a SUBDAG have no effect: it has its own")
            return [_Parts(node.name, table, Job([*self.around.subdag, node.what], {}), False)]
        description = self._description(node)
        macros = {"job": node.name, "node": str(number), "cluster": str(number), "clusterid": str(number), **LATE}
        macros["dag_parent_names"] = ",".join(self.parents[node.name])
        if node.kind != FINAL:
            macros |= {"dag_status": "0", "failed_count": "0"}
        found = processes(description, {**macros, **node.before}, node.behind, self.around, node.folder)
        if len(found) > 1 and (node.pre is not None or node.post is not None):
            hint = "let it queue one job, or put the scripts into NOOP nodes before and behind it"
            raise wrong(node.where, f"{echo(node.name)} has scripts and queues {len(found)} jobs", hint)
        if not found:
            self.notices.append(f"{node.where}: {node.name} queues no job, and has succeeded at once")
        names = [node.name] if len(found) == 1 else [f"{node.name}.{at}" for at in range(len(found))]
        return [
            self._process(name, node, dict(table), one, description) for name, one in zip(names, found, strict=True)
        ]

    def _description(self, node: Node) -> Description:
        if isinstance(node.what, Description):
            return node.what
        path = joined(node.folder, node.what)
        found = self._read.get(path)
        if found is None:
            try:
                found = read_description(self.around.read(path), path)
            except BadInput as error:
                if error.code == "bad_dag":
                    raise
                raise wrong(node.where, error.message, error.hint) from None
            self._read[path] = found
        return found

    def _own_fields(self, node: Node) -> dict[str, Any]:
        """The task fields that the commands of the `.dag` file give a node."""
        table: dict[str, Any] = {}
        if node.folder:
            table["cwd"] = node.folder
        if node.retries:
            table["retries"] = node.retries
        if node.unless_exit is not None:
            table["unless_exit"] = [node.unless_exit]
        if node.abort is not None:
            table["abort_on"] = [node.abort[0]]
        if node.priority:
            table["priority"] = node.priority
        most = self.workflow.limits.get(node.category)
        if most is not None:
            table["category"] = f"{node.category}%{most}"
        if node.kind in (FINAL, SERVICE):
            table["role"] = node.kind
        if self.workflow.env:
            table["env"] = dict(self.workflow.env)
        return table

    def _process(
        self, name: str, node: Node, table: dict[str, Any], process: Process, description: Description
    ) -> _Parts:
        """One job: the fields that its description gives, and the job itself."""
        places = process.places
        if node.before or node.behind:
            places = {**dict.fromkeys([*node.before, *node.behind], node.where), **places}
        given = Commands(process.macros, places, description.name, self.around.env)
        value = given.value
        executable = value("executable")
        if not executable:
            raise wrong(description.name, "there is no executable", "write: executable = PROGRAM")
        fields = self._fields(node, given, description, NAMES.isdisjoint(process.items))
        folder = joined(node.folder, fields.folder)
        if folder:
            table["cwd"] = folder.rstrip("/") or "/"
        table = {**fields.table, **table}
        if folder:
            table.pop("outputs", None)  # they are seen from the directory of the run
        words = ("arguments", "args")
        arguments = split_arguments(text, given.where(*words)) if (text := value(*words)) else []
        program = self._program(executable, node.folder, folder)
        stdout, stderr = _stream(folder, value("output", "stdout")), _stream(folder, value("error", "stderr"))
        stdin = value("input", "stdin")
        job = Job([program, *arguments], fields.env, stdin, stdout, stderr, fields.boxed, fields.returned)
        late = is_late(*job.words, folder, stdin, stdout, stderr, *fields.env.values())
        if fields.env:
            plain = {key: text for key, text in fields.env.items() if not is_late(text)}
            table["env"] = {**table.get("env", {}), **plain}
        return _Parts(name, table, job, late or fields.boxed is not None)

    def _fields(self, node: Node, given: Commands, description: Description, is_fixed: bool) -> JobFields:
        """What the other commands of a description say; found once, where it is the same for all nodes."""
        plain = description.plain
        known = self._known_fields.get(id(description))
        is_fixed = is_fixed and plain is not None and NAMES.isdisjoint(node.before) and NAMES.isdisjoint(node.behind)
        if known is not None and is_fixed:
            return known
        found = job_fields(given)
        for notice in found.notices:
            self._notice(notice, notice)
        if plain is not None and is_fixed and not any("$" in plain.macros.get(one, "") for one in NAMES):
            self._known_fields[id(description)] = found
        return found

    def _program(self, executable: str, base: str, folder: str) -> str:
        """The program as the task finds it: a relative name is seen from the node's directory, not from `initialdir`."""
        if executable.startswith("/"):
            return executable
        if folder == base:
            is_here = "/" not in executable and self.around.exists(joined(base, executable))
            return f"./{executable}" if is_here else executable
        if "/" in executable or self.around.exists(joined(base, executable)):
            if folder.startswith("/"):
                return posixpath.join(self.around.folder, base, executable)
            return posixpath.relpath(joined(base, executable), folder)
        return executable

    def _notice(self, key: str, text: str) -> None:
        if key not in self._noticed:
            self._noticed.add(key)
            self.notices.append(text)

    # --- vertices
    def _vertices(self, node: Node, parts: list[_Parts], files: Counter[str]) -> Iterator[Vertex]:
        """The vertices of a node: its jobs, and where these are several one that stands for all of them."""
        parents = () if self._is_done(node) else tuple(self.parents[node.name])
        for one in parts:
            table = self._with_command(node, one, files)
            yield Vertex(one.name, table, parents, where=node.where)
        if len(parts) == 1:
            return
        if node.kind in (FINAL, SERVICE):
            if not parts:
                yield Vertex(node.name, {"noop": True, "role": FINAL} if node.kind == FINAL else {"noop": True})
            return
        yield Vertex(node.name, {"noop": True}, tuple(one.name for one in parts) or parents, where=node.where)

    def _with_command(self, node: Node, one: _Parts, files: Counter[str]) -> dict[str, Any]:
        """The table of a job: a plain command where that is enough."""
        table, job = one.table, one.job
        is_shared = any(files[file] > 1 or file == NOTHING for file in (job.stdout, job.stderr) if file)
        if not one.needs_shell and node.pre is None and node.post is None and not is_shared:
            streams = {"stdin": job.stdin, "stdout": job.stdout, "stderr": job.stderr}
            return {**table, "command": list(job.words), **{field: name for field, name in streams.items() if name}}
        here = table.get("cwd", "")
        inside = job._replace(stdout=_from(here, job.stdout), stderr=_from(here, job.stderr))
        is_entered = node.pre is not None or node.post is not None or is_late(here)
        if is_entered and here.rstrip("/") != node.folder.rstrip(
            "/"
        ):  # `initialdir` is the job's: scripts do not see it
            inside = inside._replace(folder=_from(node.folder, here))
            table = {key: value for key, value in table.items() if key not in ("cwd", "inputs")}
            inputs = [joined(inside.folder, name) for name in one.table.get("inputs", ())]
            table |= {"cwd": node.folder} if node.folder else {}
            table |= {"inputs": inputs} if inputs and not is_late(inside.folder) else {}
        codes = [*table.get("unless_exit", ()), *table.get("abort_on", ())]
        text = node_script(node.name, inside, node.pre, node.post, node.skip_code, node.retries, codes)
        return {**table, "shell": text}

    def _behind(self, provisioner: Node, vertices: list[Vertex]) -> list[Vertex]:
        """Have everything wait until the PROVISIONER says that it is ready, by a file as `condor_chirp` would say it."""
        where = provisioner.where
        table = next((vertex.table for vertex in vertices if vertex.name == provisioner.name), {})
        gate = Vertex(f"{provisioner.name}.gate", {"shell": gate_script(), "cwd": table.get("cwd", ".")}, where=where)
        found = [gate]
        for vertex in vertices:
            if vertex.name == provisioner.name and "noop" not in vertex.table:
                own = dict(vertex.table)
                text = own.pop("shell", None) or shlex.join(own.pop("command"))
                vertex = vertex._replace(table={"cwd": ".", **own, "shell": provisioner_script(text)})
            elif not vertex.parents and "role" not in vertex.table and vertex.name != provisioner.name:
                vertex = vertex._replace(parents=(gate.name,))
            found.append(vertex)
        return found


def _stream(folder: str, name: str) -> str:
    """A file of a stream as seen from the directory of the run."""
    return posixpath.normpath(joined(folder, name)) if name else ""


def _from(folder: str, name: str) -> str:
    """A name that is seen from the directory of the run, as seen from a folder below it."""
    if not name or name.startswith("/") or not folder:
        return name
    return posixpath.relpath(name, folder) if not folder.startswith("/") else name
