"""Reads `.dag` files: every command of HTCondor's manual, with splices, included files and pins.

As DAGMan does, nodes are collected first and what refers to them is applied then, in the order of the lines: a line may
speak of a node that is defined further down, and of several lines about one thing the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from shoal.flow.formats.dagman.nodes import FINAL, JOB, PROVISIONER, SERVICE, SUBDAG, Edge, Node, Script, Workflow
from shoal.flow.formats.dagman.source import MAX_INCLUDED, Line, Surroundings, logical_lines, wrong
from shoal.flow.formats.dagman.submit_file import Description, joined
from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_NAME, MAX_PRIORITY, MAX_RETRIES, MAX_SPECS
from shoal.wire.did_you_mean import did_you_mean

ALL = "ALL_NODES"
MAX_PAIRS = 256  # edges that one line makes between nodes; for more a node that does nothing is put between
_VARIABLE = re.compile(r'\s*([+A-Za-z_][A-Za-z0-9_.+]*)\s*=\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_WHOLE = re.compile(r"-?[0-9]{1,10}")
# Commands that change nothing of what runs, and why nothing is done about them.
_WITHOUT_EFFECT = {
    "CONFIG": "DAGMan's own configuration is not read",
    "DOT": "no DOT file is written; `shoal show` and `shoal report` show the workflow",
    "SET_JOB_ATTR": "there is no batch job of the workflow itself that could have attributes",
    "JOBSTATE_LOG": "no such file is written; `shoal events` has everything that happened",
    "NODE_STATUS_FILE": "no such file is written; `shoal ps` shows every node",
    "SAVE_POINT_FILE": "no such file is written; `shoal retry` goes on from whatever has succeeded",
    "MAXIDLE": "what is ready waits in the queue of the server",
}
_NODES = {"JOB": JOB, "FINAL": FINAL, "SERVICE": SERVICE, "PROVISIONER": PROVISIONER}
_ABOUT = ("SCRIPT", "PRE_SKIP", "RETRY", "ABORT-DAG-ON", "VARS", "PRIORITY", "CATEGORY", "DONE")
COMMANDS = (
    *_NODES, "SUBDAG", "SPLICE", "SUBMIT-DESCRIPTION", "INCLUDE", "PARENT", *_ABOUT, "MAXJOBS", "CONNECT", "PIN_IN",
    "PIN_OUT", "ENV", "REJECT", *_WITHOUT_EFFECT,
)  # fmt: skip


class _Splice(NamedTuple):
    """A splice as the file that has it sees it."""

    scope: _Scope
    where: str


@dataclass
class _Scope:
    """One `.dag` file with what it includes, before names are looked up."""

    prefix: str  # of its names, as the top sees them
    folder: str
    nodes: dict[str, Node] = field(default_factory=dict)  # by its own names
    splices: dict[str, _Splice] = field(default_factory=dict)
    descriptions: dict[str, Description] = field(default_factory=dict)
    later: list[tuple[str, list[str], Line]] = field(default_factory=list)  # commands about nodes: word, words, line
    pins: dict[str, dict[int, list[str]]] = field(default_factory=lambda: {"PIN_IN": {}, "PIN_OUT": {}})
    children: set[str] = field(default_factory=set)  # own nodes and splices that something is before
    parents: set[str] = field(default_factory=set)  # and that something is behind


def read_dag(name: str, around: Surroundings, folder: str = "") -> Workflow:
    """Everything that a `.dag` file says; the first error refuses all of it. `folder`: where its names are seen from, as
    seen from the directory of the run."""
    reader = _DagReader(around)
    scope = _Scope("", folder)
    reader.read_file(name, scope, 0)
    if not reader.found.nodes:
        raise BadInput(f"{name}: there is no node in it", code="bad_dag", hint="write: JOB NAME SUBMIT-FILE")
    reader.apply(scope)
    return reader.found


class _DagReader:
    """Reads files into one workflow."""

    def __init__(self, around: Surroundings) -> None:
        self.around, self.found = around, Workflow()
        self._final = ""
        self._provisioner = ""
        self._global_limits: dict[str, int] = {}

    # --- files and lines
    def read_file(self, name: str, scope: _Scope, depth: int, where: str = "") -> None:
        """Collect the nodes of a file; `where`: the line that names it."""
        if depth > MAX_INCLUDED:
            raise wrong(where, f"{echo(name)} is inside itself", "files that include or splice each other have no end")
        try:
            text = self.around.read(name)
        except BadInput as error:
            if not where:
                raise
            raise wrong(where, error.message, error.hint) from None
        lines = iter(logical_lines(text, name))
        for line in lines:
            words = line.text.split()
            command = words[0].upper()
            if line.text.endswith("{") and command in ("JOB", "FINAL", "SERVICE", "PROVISIONER", "SUBMIT-DESCRIPTION"):
                self._inline(command, words, line, lines, scope)
            elif command in _NODES:
                self._node(_NODES[command], words, line, scope)
            elif command == "SUBDAG":
                self._subdag(words, line, scope)
            elif command == "SPLICE":
                self._splice(words, line, scope, depth)
            elif command == "INCLUDE":
                self._need(words, 2, line, "INCLUDE FILE")
                self.read_file(joined(scope.folder, words[1]), scope, depth + 1, line.where)
            elif command == "REJECT":
                raise wrong(
                    line.where, "the file is marked with REJECT", "take that line out if it is to run all the same"
                )
            elif command in _WITHOUT_EFFECT:
                self.found.notices.append(f"{line.where}: {command}: {_WITHOUT_EFFECT[command]}")
            elif command == "ENV":
                self._environment(words, line)
            elif command in ("MAXJOBS", "CONNECT", "PIN_IN", "PIN_OUT", "PARENT", *_ABOUT):
                scope.later.append((command, words, line))
            else:
                hint = did_you_mean(command, list(COMMANDS))
                raise wrong(line.where, f"there is no command {echo(words[0])!r}", hint)

    def _inline(self, command: str, words: list[str], line: Line, lines: Iterable[Line], scope: _Scope) -> None:
        """`JOB A {`, and what follows up to the line `}`."""
        self._need(words, 3, line, f"{command} NAME {{")
        body, rest = [], ""
        for more in lines:
            if more.text.startswith("}"):
                rest = more.text[1:]
                break
            body.append(more)
        else:
            raise wrong(line.where, "the inline description is not closed", "end it with a line }")
        described = Description(line.where.rpartition(":")[0], tuple(body), True)
        if command == "SUBMIT-DESCRIPTION":
            if words[1] in scope.descriptions:
                raise wrong(line.where, f"two descriptions are named {echo(words[1])!r}", "give each its own name")
            scope.descriptions[words[1]] = described
        else:
            self._enter(_NODES[command], words[1], described, rest.split(), line, scope)

    def _node(self, kind: str, words: list[str], line: Line, scope: _Scope) -> None:
        self._need(words, 3, line, f"{words[0].upper()} NAME SUBMIT-FILE")
        self._enter(kind, words[1], words[2], words[3:], line, scope)

    def _subdag(self, words: list[str], line: Line, scope: _Scope) -> None:
        if len(words) < 4 or words[1].upper() != "EXTERNAL":
            raise wrong(line.where, "a SUBDAG has a name and a file", "write: SUBDAG EXTERNAL NAME FILE.dag")
        self._enter(SUBDAG, words[2], words[3], words[4:], line, scope)

    def _enter(
        self, kind: str, name: str, what: Description | str, options: list[str], line: Line, scope: _Scope
    ) -> None:
        """Add a node, with what may stand behind its description."""
        self._check_name(name, line, scope)
        node = Node(scope.prefix + name, line.where, kind, what, scope.folder)
        at = 0
        while at < len(options):
            option = options[at].upper()
            if option == "DIR" and at + 1 < len(options) and kind not in (SERVICE, PROVISIONER):
                node.folder = joined(scope.folder, options[at + 1])
                at += 1
            elif option == "NOOP" and kind not in (SERVICE, PROVISIONER):
                node.is_noop = True
            elif option == "DONE" and kind in (JOB, SUBDAG):
                node.is_done = True
            else:
                known = {FINAL: "DIR, NOOP", JOB: "DIR, NOOP, DONE", SUBDAG: "DIR, NOOP, DONE"}.get(kind, "nothing")
                raise wrong(line.where, f"{echo(options[at])!r} does not go here", f"behind the file: {known}")
            at += 1
        if kind in (FINAL, PROVISIONER) and getattr(self, f"_{kind}"):
            raise wrong(line.where, f"there are two {kind.upper()} nodes", "a workflow has one at most")
        if kind == FINAL:
            self._final = node.name
        elif kind == PROVISIONER:
            self._provisioner = node.name
        scope.nodes[name] = node
        self.found.nodes[node.name] = node
        if len(self.found.nodes) > MAX_SPECS:
            raise wrong(line.where, f"more than {MAX_SPECS:,} nodes", "make several workflows, or arrays")

    def _check_name(self, name: str, line: Line, scope: _Scope) -> None:
        if name.upper() in ("PARENT", "CHILD", ALL) or "+" in name or "." in name:
            hint = "without blanks, + and ., and not PARENT, CHILD or ALL_NODES"
            raise wrong(line.where, f"{echo(name)!r} is no name of a node", hint)
        if len((scope.prefix + name).encode("utf-8", "replace")) > MAX_NAME - 16:
            raise wrong(
                line.where, f"{echo(name)!r} is too long", f"at most {MAX_NAME - 16} bytes with those of splices"
            )
        before = scope.nodes.get(name)
        if before is not None or name in scope.splices:
            where = before.where if before is not None else scope.splices[name].where
            raise wrong(line.where, f"{echo(name)!r} is there already", f"the first is at {where}")

    def _splice(self, words: list[str], line: Line, scope: _Scope, depth: int) -> None:
        self._need(words, 3, line, "SPLICE NAME FILE.dag [DIR DIRECTORY]")
        self._check_name(words[1], line, scope)
        folder = scope.folder
        if len(words) == 5 and words[3].upper() == "DIR":
            folder = joined(folder, words[4])
        elif len(words) != 3:
            raise wrong(
                line.where, f"{echo(words[3])!r} does not go here", "write: SPLICE NAME FILE.dag [DIR DIRECTORY]"
            )
        inner = _Scope(f"{scope.prefix}{words[1]}+", folder)
        had_final = self._final
        self.read_file(joined(folder, words[2]), inner, depth + 1, line.where)
        if self._final != had_final:
            raise wrong(line.where, "a splice has no FINAL node", "put it into the file that has the splice")
        if not inner.nodes and not inner.splices:
            raise wrong(line.where, f"there is no node in {echo(words[2])}", "a splice needs one")
        scope.splices[words[1]] = _Splice(inner, line.where)

    def _environment(self, words: list[str], line: Line) -> None:
        """`ENV SET A=1;B=2`; what `ENV GET` asks for is there anyway."""
        if len(words) < 3 or words[1].upper() not in ("GET", "SET"):
            raise wrong(line.where, "ENV names no variables", "write: ENV GET NAME ... or ENV SET NAME=VALUE;...")
        if words[1].upper() == "SET":
            from shoal.flow.formats.dagman.words import split_environment

            self.found.env.update(split_environment(line.text.split(None, 2)[2], line.where))

    # --- what refers to nodes
    def apply(self, scope: _Scope) -> None:
        """Carry out what a file says about its nodes, splices first: the file around them has the last word."""
        for splice in scope.splices.values():
            self.apply(splice.scope)
        for node in scope.nodes.values():
            if node.kind != SUBDAG and isinstance(node.what, str):
                node.what = scope.descriptions.get(node.what, node.what)
        connected: list[tuple[str, str, Line]] = []
        for command, words, line in scope.later:
            if command == "PARENT":
                self._edge(words, line, scope)
            elif command == "MAXJOBS":
                self._maxjobs(words, line, scope)
            elif command in ("PIN_IN", "PIN_OUT"):
                self._pin(command, words, line, scope)
            elif command == "CONNECT":
                self._need(words, 3, line, "CONNECT SPLICE SPLICE")
                connected.append((words[1], words[2], line))
            else:
                self._about(command, words, line, scope)
        for first, second, line in connected:
            self._connect(first, second, line, scope)

    def _edge(self, words: list[str], line: Line, scope: _Scope) -> None:
        upper = [word.upper() for word in words]
        if upper.count("CHILD") != 1 or upper.index("CHILD") in (1, len(words) - 1):
            raise wrong(line.where, "PARENT needs nodes before CHILD and behind it", "write: PARENT A B CHILD C D")
        at = upper.index("CHILD")
        before, behind = words[1:at], words[at + 1 :]
        scope.parents.update(before)
        scope.children.update(behind)
        parents = [name for word in before for name in self._ends(word, line, scope, True)]
        children = [name for word in behind for name in self._ends(word, line, scope, False)]
        self.found.edges.append(Edge(tuple(dict.fromkeys(parents)), tuple(dict.fromkeys(children)), line.where))

    def _ends(self, word: str, line: Line, scope: _Scope, is_parent: bool) -> list[str]:
        """A node; or of a splice the nodes that nothing is behind, or that nothing is before."""
        node = scope.nodes.get(word)
        if node is not None:
            if node.kind in (FINAL, SERVICE, PROVISIONER):
                raise wrong(
                    line.where, f"{echo(word)!r} is a {node.kind.upper()} node, and has no parents and children"
                )
            return [node.name]
        splice = scope.splices.get(word)
        if splice is not None:
            return _terminal(splice.scope) if is_parent else _initial(splice.scope)
        raise self._unknown(word, line, scope, [*scope.nodes, *scope.splices])

    def _unknown(self, word: str, line: Line, scope: _Scope, known: Sequence[str]) -> BadInput:
        inside = f" in splice {scope.prefix[:-1]}" if scope.prefix else ""
        return wrong(line.where, f"there is no node {echo(word)!r}{inside}", did_you_mean(word, list(known)))

    def _maxjobs(self, words: list[str], line: Line, scope: _Scope) -> None:
        self._need(words, 3, line, "MAXJOBS CATEGORY NUMBER", exactly=True)
        most = self._whole(words[2], line, 0, 9_999_999)
        name = words[1] if words[1].startswith("+") else scope.prefix + words[1]
        if most:
            self.found.limits[name] = most
        else:
            self.found.limits.pop(name, None)  # 0: no limit

    def _pin(self, command: str, words: list[str], line: Line, scope: _Scope) -> None:
        self._need(words, 3, line, f"{command} NODE NUMBER", exactly=True)
        number = self._whole(words[2], line, 1, 100_000)
        scope.pins[command].setdefault(number, []).extend(self._ends(words[1], line, scope, command == "PIN_OUT"))

    def _connect(self, first: str, second: str, line: Line, scope: _Scope) -> None:
        for word in (first, second):
            if word not in scope.splices:
                raise wrong(
                    line.where, f"{echo(word)!r} is no splice of this file", did_you_mean(word, list(scope.splices))
                )
        scope.parents.add(first)
        scope.children.add(second)
        out, into = scope.splices[first].scope.pins["PIN_OUT"], scope.splices[second].scope.pins["PIN_IN"]
        for name, pins, kind in ((first, out, "PIN_OUT"), (second, into, "PIN_IN")):
            if sorted(pins) != list(range(1, len(pins) + 1)) or not pins:
                hint = "number them 1, 2, 3 without gaps"
                raise wrong(line.where, f"splice {echo(name)} has the {kind}s {sorted(pins) or 'none'}", hint)
        if len(out) != len(into):
            what = f"splice {echo(first)} has {len(out)} PIN_OUTs, splice {echo(second)} {len(into)} PIN_INs"
            raise wrong(line.where, what, "each goes to the one of its number")
        pinned = {name for names in into.values() for name in names}
        loose = next((name for name in _initial(scope.splices[second].scope) if name not in pinned), None)
        if loose is not None:
            raise wrong(line.where, f"{echo(loose)} waits for nothing and has no PIN_IN", "give it one")
        for number, names in out.items():
            self.found.edges.append(Edge(tuple(names), tuple(into[number]), line.where))

    def _about(self, command: str, words: list[str], line: Line, scope: _Scope) -> None:
        """A command that says something about one node, or about all."""
        at, parse = {
            "SCRIPT": (None, self._script), "PRE_SKIP": (1, self._pre_skip), "RETRY": (1, self._retry),
            "ABORT-DAG-ON": (1, self._abort), "VARS": (1, self._vars), "PRIORITY": (1, self._priority),
            "CATEGORY": (1, self._category), "DONE": (1, self._done),
        }[command]  # fmt: skip
        if at is None:
            target, change = self._script(words, line)
        else:
            self._need(words, 2, line, f"{command} NODE ...")
            target, change = words[1], parse(words, line)  # type: ignore[assignment]
        node = scope.nodes.get(target)
        if node is None and target.upper() != ALL:
            spliced = target in scope.splices
            if spliced:
                raise wrong(line.where, f"{command} does not apply to a splice", "write it in the splice's own file")
            raise self._unknown(target, line, scope, list(scope.nodes))
        if (
            node is not None
            and node.kind == FINAL
            and command in ("RETRY", "ABORT-DAG-ON", "PRIORITY", "CATEGORY", "DONE")
        ):
            raise wrong(line.where, f"{command} does not apply to the FINAL node", "leave it out")
        nodes = [node] if node is not None else [one for one in scope.nodes.values() if one.kind != FINAL]
        if node is None and command == "DONE":
            raise wrong(line.where, "DONE names one node", "write: DONE NODE")
        for one in nodes:
            change(one)
            if command == "CATEGORY" and not one.category.startswith("+"):
                one.category = scope.prefix + one.category

    def _script(self, words: list[str], line: Line) -> tuple[str, Callable[[Node], None]]:
        at, defer, debug = 1, None, None
        usage = "SCRIPT [DEFER STATUS SECONDS] [DEBUG FILE TYPE] PRE|POST|HOLD NODE PROGRAM [ARGUMENT]..."
        upper = [word.upper() for word in words]
        if upper[at : at + 1] == ["DEFER"]:
            self._need(words, at + 3, line, usage)
            defer = (self._whole(words[at + 1], line, 1, 255), self._whole(words[at + 2], line, 0, 86_400))
            at += 3
        if upper[at : at + 1] == ["DEBUG"]:
            self._need(words, at + 3, line, usage)
            debug = (words[at + 1], upper[at + 2])
            if debug[1] not in ("STDOUT", "STDERR", "ALL"):
                raise wrong(line.where, f"{echo(words[at + 2])!r} is no type of output", "STDOUT, STDERR or ALL")
            at += 3
        self._need(words, at + 3, line, usage)
        when = upper[at]
        if when not in ("PRE", "POST", "HOLD"):
            raise wrong(line.where, f"{echo(words[at])!r} is no time for a script", f"write: {usage}")
        script = Script(tuple(words[at + 2 :]), line.where, defer, debug)
        if when == "HOLD":
            self.found.notices.append(f"{line.where}: SCRIPT HOLD: it does not run, since no task is ever put on hold")
            return words[at + 1], lambda node: None
        return words[at + 1], lambda node: setattr(node, when.lower(), script)

    def _pre_skip(self, words: list[str], line: Line) -> Callable[[Node], None]:
        self._need(words, 3, line, "PRE_SKIP NODE EXIT-CODE", exactly=True)
        code = self._whole(words[2], line, 1, 255)
        return lambda node: setattr(node, "skip_code", code)

    def _retry(self, words: list[str], line: Line) -> Callable[[Node], None]:
        self._need(words, 3, line, "RETRY NODE NUMBER [UNLESS-EXIT CODE]")
        count = self._whole(words[2], line, 0, 1_000_000)
        code = None
        if len(words) == 5 and words[3].upper() == "UNLESS-EXIT":
            code = self._whole(words[4], line, -64, 255)
        elif len(words) != 3:
            hint = "write: RETRY NODE NUMBER [UNLESS-EXIT CODE]"
            raise wrong(line.where, f"{echo(words[3])!r} does not go here", hint)
        if count > MAX_RETRIES:
            self.found.notices.append(f"{line.where}: RETRY {count}: a task is tried again {MAX_RETRIES} times at most")

        def change(node: Node) -> None:
            node.retries, node.unless_exit = min(count, MAX_RETRIES), code

        return change

    def _abort(self, words: list[str], line: Line) -> Callable[[Node], None]:
        usage = "ABORT-DAG-ON NODE EXIT-CODE [RETURN CODE]"
        self._need(words, 3, line, usage)
        code = self._whole(words[2], line, -64, 255)
        if len(words) == 5 and words[3].upper() == "RETURN":
            result = self._whole(words[4], line, 0, 255)
        elif len(words) == 3:
            result = code
        else:
            raise wrong(line.where, f"{echo(words[3])!r} does not go here", f"write: {usage}")
        return lambda node: setattr(node, "abort", (code, result))

    def _vars(self, words: list[str], line: Line) -> Callable[[Node], None]:
        rest = line.text.split(None, 2)[2:]
        text = rest[0] if rest else ""
        is_behind = False
        head = text.split(None, 1)
        if len(head) == 2 and head[0].upper() in ("PREPEND", "APPEND"):
            is_behind, text = head[0].upper() == "APPEND", head[1]
        found: dict[str, str] = {}
        at = 0
        for pair in _VARIABLE.finditer(text):
            if text[at : pair.start()].strip():
                break
            name = pair[1].lower()
            if name.startswith("queue"):
                raise wrong(
                    line.where, f"no macro is named {echo(pair[1])!r}", "take a name that does not begin with queue"
                )
            found[name] = re.sub(r"\\(.)", r"\1", pair[2], flags=re.DOTALL) if "\\" in pair[2] else pair[2]
            at = pair.end()
        if not found or text[at:].strip():
            hint = 'write: VARS NODE [PREPEND|APPEND] NAME="VALUE" ..., with \\" for a quote and \\\\ for a backslash'
            raise wrong(line.where, f"{echo(text[at:].strip() or line.text)!r} is no macro", hint)

        def change(node: Node) -> None:
            (node.behind if is_behind else node.before).update(found)
            other = node.before if is_behind else node.behind
            for name in found:
                other.pop(name, None)  # the last definition counts

        return change

    def _priority(self, words: list[str], line: Line) -> Callable[[Node], None]:
        self._need(words, 3, line, "PRIORITY NODE NUMBER", exactly=True)
        value = self._whole(words[2], line, -int(MAX_PRIORITY), int(MAX_PRIORITY))
        return lambda node: setattr(node, "priority", value)

    def _category(self, words: list[str], line: Line) -> Callable[[Node], None]:
        self._need(words, 3, line, "CATEGORY NODE NAME", exactly=True)
        if "%" in words[2]:
            raise wrong(line.where, f"{echo(words[2])!r} is no category", "take a name without %")
        return lambda node: setattr(node, "category", words[2])

    def _done(self, words: list[str], line: Line) -> Callable[[Node], None]:
        self._need(words, 2, line, "DONE NODE", exactly=True)
        return lambda node: setattr(node, "is_done", True)

    # --- words
    def _need(self, words: Sequence[str], count: int, line: Line, usage: str, exactly: bool = False) -> None:
        if len(words) < count:
            raise wrong(line.where, f"{words[0].upper()} needs more words", f"write: {usage}")
        if exactly and len(words) > count:
            raise wrong(line.where, f"{echo(words[count])!r} does not go here", f"write: {usage}")

    def _whole(self, word: str, line: Line, low: int, high: int) -> int:
        if not _WHOLE.fullmatch(word) or not low <= int(word) <= high:
            raise wrong(line.where, f"{echo(word)!r} is out of range", f"a whole number from {low:,} to {high:,}")
        return int(word)


def _initial(scope: _Scope) -> list[str]:
    """The nodes of a splice that wait for nothing in it."""
    own = [node.name for name, node in scope.nodes.items() if name not in scope.children and node.kind in (JOB, SUBDAG)]
    inner = [end for name, one in scope.splices.items() if name not in scope.children for end in _initial(one.scope)]
    return own + inner


def _terminal(scope: _Scope) -> list[str]:
    """The nodes of a splice that nothing in it waits for."""
    own = [node.name for name, node in scope.nodes.items() if name not in scope.parents and node.kind in (JOB, SUBDAG)]
    inner = [end for name, one in scope.splices.items() if name not in scope.parents for end in _terminal(one.scope)]
    return own + inner
