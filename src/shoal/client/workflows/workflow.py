"""`shoal.Workflow`: vertices that are commands or function calls, tied by files, by results and by name."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from shoal.client.connection.reconnect import Reconnecting
from shoal.client.console import say
from shoal.client.environment import environment_field
from shoal.client.executor.executor import Executor
from shoal.client.executor.futures import CallFuture
from shoal.client.executor.options import check_callable
from shoal.client.pickling.serialize import name_of
from shoal.client.visible_files import VisibleFiles
from shoal.client.workflows.driven import DrivenWorkflow, Start
from shoal.client.workflows.submitted import SubmittedWorkflow
from shoal.client.workflows.submitted import attach as attach_to
from shoal.client.working_directory import working_directory
from shoal.flow.dag import Edges, Vertex, build
from shoal.flow.file_edges import tie
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_FILES
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import fill, holes
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.submission import parse_rules, parse_submission
from shoal.wire.task import parse_spec

Going = SubmittedWorkflow | DrivenWorkflow
_NOT_DRIVEN = ("params", "array", "units", "after_any")  # only a server that has the whole workflow can keep to these


class OutputFile(str):
    """A file that a vertex writes, as seen from the run's directory; `vertex` is its writer."""

    vertex: WorkflowTask


class WorkflowVertex:
    """One vertex of a workflow: `name`, and its `result()` once the workflow was submitted."""

    def __init__(self, workflow: Workflow, name: str) -> None:
        self.workflow, self.name = workflow, name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: give it to wf.call as an argument, or in a list, tuple or dict")

    def result(self, timeout: float | None = None) -> Any:
        """What became of it: see `Workflow.submit`."""
        return self.workflow.going.result(self, timeout)


class WorkflowTask(WorkflowVertex):
    """A vertex that is a command."""

    def __init__(self, workflow: Workflow, name: str, table: dict[str, Any], spec: Spec, after: list[str]) -> None:
        super().__init__(workflow, name)
        self.table, self.spec, self.after = table, spec, after

    def out(self, name: str) -> OutputFile:
        """One of its outputs, to be an input of another vertex. Of a sweep a name with placeholders is a file of each task."""
        if name not in self.spec.outputs:
            hint = did_you_mean(name, list(self.spec.outputs)) if self.spec.outputs else "outputs=[...] declares them"
            raise BadInput(f"{echo(self.name)} declares no output {echo(name)!r}", code="unknown_output", hint=hint)
        base = "" if self.spec.cwd in (None, OWN) else self.spec.cwd or ""
        found = OutputFile(posixpath.normpath(posixpath.join(base, name)))
        found.vertex = self
        return found


class WorkflowCall(WorkflowVertex):
    """A vertex that is a function call; its result may be an argument of other calls."""

    def __init__(
        self, workflow: Workflow, name: str, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]],
        fields: dict[str, Any], after: list[str],
    ) -> None:  # fmt: skip
        super().__init__(workflow, name)
        self.call, self.fields, self.after = call, fields, after


class Workflow:
    """A workflow that is built here and runs on the pilots of a server.

    `fields` are task fields of all vertices, such as `retries=2`. A workflow of commands is handed to the server whole: it
    goes on when this program has ended (`Workflow.attach`). One with calls is driven from here; its program, started again,
    goes on where it was.
    """

    def __init__(self, name: str = "", *, server: str | None = None, seed: int | None = None, **fields: Any) -> None:
        self.name, self._server, self._seed, self._fields = name, server, seed, fields
        self._vertices: dict[str, WorkflowTask | WorkflowCall] = {}
        self._rules: dict[str, dict[str, Any]] = {}
        self._going: Going | None = None

    def __len__(self) -> int:
        return len(self._vertices)

    @property
    def going(self) -> Going:
        """The workflow as it was submitted last."""
        if self._going is None:
            raise RuntimeError("the workflow was not submitted yet (call its run() or submit())")
        return self._going

    # --- building
    def task(
        self,
        command: list[str] | str,
        *,
        name: str = "",
        inputs: list[str] | tuple[str, ...] = (),
        after: list[WorkflowVertex | str] | tuple[WorkflowVertex | str, ...] = (),
        **fields: Any,
    ) -> WorkflowTask:
        """Add a command (a list of words, or a text for the shell) with any task fields, e.g. `outputs=["x"]`, `params={...}`.

        It waits for the writers of its inputs, for the vertices in `after`, and for runs named there (`"r18"`).
        """
        how: dict[str, Any] = {"shell": command} if isinstance(command, str) else {"command": list(map(str, command))}
        table = {**self._fields, **how, **fields}
        program = (
            command.split()[0] if isinstance(command, str) and command.split() else str(how.get("command", ["sh"])[0])
        )
        table["name"] = name = self._free_name(name, os.path.basename(program) or "task")
        has_sweep = "params" in table or "array" in table
        cwd = "" if table.get("cwd") in (None, OWN) else str(table["cwd"])
        read = [one for file in inputs for one in self._files(file, has_sweep)]
        files = [posixpath.relpath(one, cwd) if isinstance(one, OutputFile) and cwd else str(one) for one in read]
        table |= {"inputs": files} if files else {}
        waits = self._names_of(after)
        table |= {"after": waits} if waits else {}
        made = WorkflowTask(self, name, table, parse_spec(table), waits)
        self._vertices[name] = made
        return made

    def call(
        self, fn: Callable[..., Any], /, *args: Any, name: str = "", after: Any = (), fields: Any = None, **kwargs: Any
    ) -> WorkflowCall:
        """Add a function call. Vertices among its arguments, also in lists, tuples and dicts, are waited for: the function gets
        their results. `fields`: task fields of this call, e.g. `{"cores": 2}`."""
        check_callable(fn, "wf.call(f, 3)")
        waits = [*self._names_of(after), *(one.name for one in _found((args, kwargs)))]
        for one in _found((args, kwargs)):
            self._check_own(one)
        name = self._free_name(name, name_of(fn).rpartition(".")[2].strip("<>") or "call")
        made = WorkflowCall(
            self, name, (fn, args, kwargs), {**self._fields, **(fields or {})}, list(dict.fromkeys(waits))
        )
        self._vertices[name] = made
        return made

    def rule(
        self,
        command: list[str] | str,
        *,
        files: str,
        name: str = "",
        gather: int | None = None,
        gather_size: str | int | None = None,
        gather_within: str | float | None = None,
        watch: str | float | None = None,
        **fields: Any,
    ) -> str:
        """Make a task of each file that appears and fits a pattern, e.g. `files="raw/*.dat"`: outputs of tasks and of rules
        before this one. `{file}` in its texts is the file, `{number}` which task of the rule it is.

        With `gather=10` (files) or `gather_size="1G"` it makes a task of so many, `{files}`, and of fewer at the end or after
        `gather_within`. With `watch="1h"` files from outside count, too, until none came for so long. Returns its name.
        """
        how: dict[str, Any] = {"shell": command} if isinstance(command, str) else {"command": list(map(str, command))}
        given = {
            "files": files, "gather": gather, "gather_size": gather_size, "gather_within": gather_within, "watch": watch,
        }  # fmt: skip
        table = {**self._fields, **how, **fields, **{key: value for key, value in given.items() if value is not None}}
        table["name"] = name = self._free_name(name, f"rule-{len(self._rules) + 1}")
        tables = [vertex.spec for vertex in self._vertices.values() if isinstance(vertex, WorkflowTask)]
        parse_rules([*self._rules.values(), table], tables, is_open=False)
        self._rules[name] = table
        return name

    def _free_name(self, name: str, otherwise: str) -> str:
        taken = self._vertices.keys() | self._rules.keys()
        if name and name in taken:
            raise BadInput(f"two vertices are named {echo(name)!r}", code="duplicate_name", hint="give each its own")
        found, number = name or otherwise, 1
        while found in taken:
            number += 1
            found = f"{otherwise}-{number}"
        return found

    def _names_of(self, after: Any) -> list[str]:
        """The names of what a vertex is to wait for."""
        given = [after] if isinstance(after, (str, WorkflowVertex)) else list(after)
        for one in given:
            if isinstance(one, WorkflowVertex):
                self._check_own(one)
        return [one.name if isinstance(one, WorkflowVertex) else str(one) for one in given]

    def _check_own(self, vertex: WorkflowVertex) -> None:
        if vertex.workflow is not self:
            raise BadInput(
                f"{echo(vertex.name)} is a vertex of another workflow", code="unknown_task", hint="add it here"
            )

    def _files(self, file: str, has_sweep: bool) -> list[str]:
        """The files that an input names: those of all tasks, where a task reads what a sweep writes."""
        if not isinstance(file, OutputFile):
            return [str(file)]
        self._check_own(file.vertex)
        sweep = file.vertex.spec.sweep
        if sweep is None or has_sweep or not holes(file):
            return [file]
        if sweep.count > MAX_FILES:
            raise BadInput(
                f"{echo(file)!r} are {sweep.count:,} files", code="too_many", field="inputs",
                hint=f"at most {MAX_FILES:,} are named: wait with after=[...], and read them by a pattern",
            )  # fmt: skip
        found: list[str] = []
        for task in range(sweep.count):
            one = OutputFile(fill(file, sweep.at(task)))
            one.vertex = file.vertex
            found.append(one)
        return found

    # --- running
    def submit(self) -> Going:
        """Check the workflow and start it; returns what waits for it and has the results.

        The result of a call is what it returned, that of a command the last line that it printed (of a sweep a list).
        """
        if not self._vertices and not self._rules:
            raise BadInput("there is no vertex in it", code="empty_bulk", hint="add one with task() or call()")
        has_calls = any(isinstance(vertex, WorkflowCall) for vertex in self._vertices.values())
        self._going = self._drive() if has_calls else self._submit()
        return self._going

    def run(self, timeout: float | None = None) -> Going:
        """Submit it and wait for its end; raises WorkflowFailed, which names the vertices that failed."""
        going = self.submit()
        try:
            if not going.wait(timeout):
                raise TimeoutError(f"{going.run} has not finished within {timeout:g} s")
        except KeyboardInterrupt:
            if isinstance(going, DrivenWorkflow):
                going.detach()
            else:
                back = f"come back: shoal.Workflow.attach({going.run!r})"
                say(f"detached, {going.run} goes on.  {back}   stop: shoal cancel {going.run}")
            raise
        going.check()
        return going

    @staticmethod
    def attach(name: str, *, server: str | None = None) -> SubmittedWorkflow:
        """A workflow of commands that was submitted earlier: by its run (`r12`), or the latest with this name."""
        return attach_to(name, server)

    def _submit(self) -> SubmittedWorkflow:
        tasks = [vertex for vertex in self._vertices.values() if isinstance(vertex, WorkflowTask)]
        tables = tie([task.table for task in tasks], [task.spec for task in tasks])
        here, look = working_directory(), VisibleFiles()
        document: dict[str, Any] = {"tasks": tables, "cwd": here}
        document |= {"name": self.name} if self.name else {}
        document |= {"seed": self._seed} if self._seed is not None else {}
        document |= {"rules": list(self._rules.values())} if self._rules else {}
        submission = parse_submission(document)
        document["tasks"] = [
            {**table, "visible": look.of(spec, here)} for table, spec in zip(tables, submission.specs, strict=True)
        ]
        if submission.rules:
            document["rules"] = look.with_evidence(self._rules.values(), submission.rules, here)
        document["key"] = f"workflow-{os.urandom(16).hex()}"
        link = Reconnecting(self._server)
        client = link.connect()
        try:
            run = str(client.submit({**document, **environment_field(client.url)})["run"])
        finally:
            client.close()
        elements, first = {}, 1
        for task in tasks:
            elements[task.name] = range(first, first + task.spec.count)
            first += task.spec.count
        return SubmittedWorkflow(link, run, elements)

    def _drive(self) -> DrivenWorkflow:
        if self._rules:
            hint = "make a workflow of its commands alone"
            raise BadInput("a workflow with calls has no rules", code="usage", field="rules", hint=hint)
        vertices, starts = [], []
        for vertex in self._vertices.values():
            table: Mapping[str, Any] = vertex.table if isinstance(vertex, WorkflowTask) else {}
            for field in _NOT_DRIVEN:
                if field in table:
                    raise BadInput(
                        f"{echo(vertex.name)} has {field}, which no vertex of a workflow with calls may have", code="usage",
                        field=field, hint="make a workflow of its commands alone, or add them one by one",
                    )  # fmt: skip
            vertices.append(Vertex(vertex.name, table, tuple(vertex.after)))
            starts.append(_command(vertex) if isinstance(vertex, WorkflowTask) else _call(vertex))
        dag = build(vertices, Edges.BOTH)
        executor = Executor(server=self._server, seed=self._seed, name=self.name or None, echo=False)
        return DrivenWorkflow(executor, dag, starts)


def _command(task: WorkflowTask) -> Start:
    fields = {key: value for key, value in task.table.items() if key not in ("command", "shell", "after", "name")}
    labels = {**fields.pop("labels", {}), "vertex": task.name}
    command = task.table.get("command") or task.table["shell"]

    def start(executor: Executor, parents: Mapping[str, Future[Any]]) -> CallFuture[Any]:
        return executor.command(command, labels=labels, **fields)

    return start


def _call(call: WorkflowCall) -> Start:
    fn, args, kwargs = call.call

    def start(executor: Executor, parents: Mapping[str, Future[Any]]) -> CallFuture[Any]:
        which = executor.options(**call.fields) if call.fields else executor
        return which.submit(fn, *_with_results(args, parents), **_with_results(kwargs, parents))

    return start


def _found(value: Any) -> list[WorkflowVertex]:
    """The vertices in arguments, also in lists, tuples and dicts."""
    if isinstance(value, WorkflowVertex):
        return [value]
    if isinstance(value, (list, tuple)):
        return [vertex for one in value for vertex in _found(one)]
    if isinstance(value, dict):
        return [vertex for one in value.values() for vertex in _found(one)]
    return []


def _with_results(value: Any, results: Mapping[str, Future[Any]]) -> Any:
    """The same arguments with futures in the places of vertices, which the executor knows."""
    if isinstance(value, WorkflowVertex):
        return results[value.name]
    if not _found(value):
        return value
    if isinstance(value, dict):
        return {key: _with_results(one, results) for key, one in value.items()}
    made = [_with_results(one, results) for one in value]
    return made if isinstance(value, list) else type(value)(*made) if hasattr(value, "_fields") else tuple(made)
