"""Fingerprints of pickles: what the same script pickles in another process has the same, whatever its bytes are.

The order of a set of texts differs from process to process, and so do the numbers by which cloudpickle knows a class again.
The pickle is read as a graph, nothing of it is executed; sets are compared without an order, and those numbers not at all.
"""

from __future__ import annotations

import hashlib
import pickletools
from typing import NamedTuple

# Of pickles without any of these the bytes themselves are the fingerprint: sets, frozensets, what cloudpickle rebuilds.
_VARYING = (b"\x8f", b"\x91", b"cloudpickle")
# Functions of cloudpickle that make a class, and which of their arguments is the number, counted from the end.
_TRACKED = {"_make_skeleton_class": -2, "_make_skeleton_enum": -2, "_make_typevar": -1}
_CHANGES = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"})  # of the object below them
_SETS = frozenset({"EMPTY_SET", "FROZENSET"})
_IGNORED = frozenset({"PROTO", "FRAME"})


class Fingerprint(NamedTuple):
    """What is compared of a pickle, and the classes in it: by their content, the number that cloudpickle gave each."""

    digest: str
    classes: dict[bytes, str]


class _Node:
    """One object of a pickle: how it is made, of what, and what is done to it then."""

    __slots__ = ("depth", "digest", "kind", "number", "parts", "value")

    def __init__(self, kind: str, value: object = None, parts: list[_Node] | None = None) -> None:
        self.kind, self.value, self.parts = kind, value, parts or []
        self.number = ""  # of a class
        self.digest, self.depth = b"", 0  # when it is being digested, how deep inside


def fingerprint(pickled: bytes) -> Fingerprint | None:
    """The same for two pickles of the same content; None where the bytes themselves are, or are all that is known."""
    if not any(mark in pickled for mark in _VARYING):
        return None
    classes: dict[bytes, str] = {}
    try:
        return Fingerprint(_digest(_read(pickled), classes).hex(), classes)
    except (ValueError, IndexError, KeyError, RecursionError):  # no pickle that we can read
        return None


def _read(pickled: bytes) -> _Node:
    """The graph of a pickle, as the stack machine of `pickle` would build the object."""
    stack, marks, memo = [_Node("ROOT")], list[int](), dict[int, _Node]()
    for opcode, value, _ in pickletools.genops(pickled):
        name = opcode.name
        if name == "MARK":
            marks.append(len(stack))
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(value or 0)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(value or 0)])
        elif name == "STOP":
            stack[0].parts.append(stack[-1])
            return stack[0]
        elif name in ("POP", "POP_MARK"):
            # What was called for its effect, such as setting the state of a function, belongs to the object below.
            dropped = _take(stack, marks.pop() if name == "POP_MARK" else len(stack) - 1)
            stack[-1].parts += [part for part in dropped if part is not stack[-1]]
        elif name not in _IGNORED:
            before = opcode.stack_before
            has_mark = pickletools.markobject in before
            parts = _take(stack, marks.pop() if has_mark else len(stack) - len(before))
            if name in _CHANGES:
                changed = stack[-1] if has_mark else parts.pop(0)
                changed.parts += parts if changed.kind == "EMPTY_SET" else [_Node(name, None, parts)]
                stack += [] if has_mark else [changed]
            else:
                stack.append(_Node(name, value, parts))
                if name == "REDUCE":
                    _take_number(stack[-1])
    raise ValueError("a pickle without an end")


def _take(stack: list[_Node], at: int) -> list[_Node]:
    taken = stack[at:]
    del stack[at:]
    return taken


def _take_number(made: _Node) -> None:
    """Leave the number of a class out of what the class is made of."""
    function, arguments = made.parts
    name = function.parts[-1].value if function.kind == "STACK_GLOBAL" else None
    if isinstance(name, str) and name in _TRACKED and arguments.kind == "TUPLE":
        made.number = str(arguments.parts.pop(_TRACKED[name]).value or "")


def _digest(node: _Node, classes: dict[bytes, str], depth: int = 1) -> bytes:
    """A digest of a node and all that it consists of; a node inside of itself is told by how far above it is."""
    if node.digest:
        return node.digest
    if node.depth:
        return b"%d above" % (depth - node.depth)
    node.depth = depth
    parts = [_digest(part, classes, depth + 1) for part in node.parts]
    if node.kind in _SETS:
        parts.sort()
    node.digest = hashlib.sha256(b"\0".join([f"{node.kind} {node.value!r}".encode(), *parts])).digest()
    if node.number:
        classes[node.digest] = node.number
    return node.digest
