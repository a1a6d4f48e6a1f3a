"""Paths of the submitter that a pilot must see, each with evidence by which a pilot knows that it sees the same file
system: an equal path proves nothing [ADR 0029].

The evidence needs no file of its own. A process of the same kernel start and mount namespace sees what the submitter
sees. Anywhere else the directory must have the same inode, and it, one of its entries or of those above it on the same
file system must have the name, size, time of change in nanoseconds and inode that the submitter saw. A single file is
also seen where there is one with the same content. Where the submitter may write to the directory that tasks run in, a
pilot must be able to, too. Client and pilot look at the disk; here is only what they compare.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from typing import Any, NamedTuple

from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_VISIBLE, MAX_WITNESSES
from shoal.model.task.checks import short_text

LEVELS = 6  # directories that are looked at: the path's own and those above it
MOST_ENTRIES = 4_096  # entries of one directory that are looked at
MAX_EVIDENCE = 1024
NOT_VISIBLE = "not_visible"  # evidence of a pilot that gives an attempt back
_MACHINE = re.compile(r"[0-9a-f]{16}")
_WITNESSES = re.compile(r"(?:[0-9a-f]{16}(?:[.,][0-9a-f]{16})*)?")
_BETWEEN = re.compile(r"[.,]")  # no comma is written any more: of a body they are counted, and each table has these


class Evidence(NamedTuple):
    """What tells whether somebody sees a path of the submitter."""

    is_needed: bool  # False: the task runs elsewhere, too, in a directory of its own
    is_file: bool
    machine: str  # the submitter's kernel start and mount namespace
    inode: int  # of the directory
    witnesses: tuple[str, ...] = ()
    digest: str = ""  # of the content of a file
    is_written: bool = False  # the submitter may write to this directory: so must who sees the same

    @property
    def text(self) -> str:
        """As it travels."""
        words = ("need" if self.is_needed else "want", "file" if self.is_file else "dir", self.machine, str(self.inode))
        witnesses = (*self.witnesses, _WRITTEN) if self.is_written else self.witnesses
        return " ".join([*words, self.digest or "-", ".".join(witnesses)]).rstrip()


class View(NamedTuple):
    """A path as one machine sees it: what matching compares."""

    machine: str
    path: str
    is_written: bool = False


def machine(boot: str, namespace: str) -> str:
    """The name of what all processes of a kernel start and mount namespace have in common."""
    return _short(f"{boot.strip()} {namespace.strip()}")


def witness(path: str, is_directory: bool, size: int, changed: int, inode: int) -> str:
    """A digest of how one file or directory looks; `changed` in nanoseconds. The size of a directory says nothing."""
    return _short(f"{'d' if is_directory else f'f{size}'} {changed} {inode} {path}")


def folder_of(path: str, is_file: bool) -> str:
    """The directory that the evidence of a path is about."""
    return posixpath.dirname(path) if is_file else path


def levels(folder: str) -> list[str]:
    """A directory and those above it, nearest first; not the root, which every host has."""
    found: list[str] = []
    while folder not in ("", "/") and len(found) < LEVELS:
        found.append(folder)
        folder = posixpath.dirname(folder)
    return found


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


# Among the witnesses, where pilots of older versions find that no file looks like that.
_WRITTEN = _short("may be written")


def read_visible(value: Any, field: str) -> dict[str, str]:
    """Absolute paths with their evidence, checked."""
    if not isinstance(value, dict) or len(value) > MAX_VISIBLE:
        raise BadInput(f"expected at most {MAX_VISIBLE} paths with evidence", code="wrong_type", field=field)
    for path, text in value.items():
        short_text(path, field, 4096)
        if not path.startswith("/"):
            raise BadInput(f"{echo(path)!r} is not an absolute path", code="bad_path", field=field, hint="begin with /")
        parse_evidence(short_text(text, field, MAX_EVIDENCE), field)
    return dict(value)


def parse_evidence(text: str, field: str = "visible") -> Evidence:
    """Evidence from its text."""
    words = text.split(" ")
    if len(words) == 5:
        words.append("")
    right = (
        len(words) == 6
        and words[0] in ("need", "want")
        and words[1] in ("dir", "file")
        and _MACHINE.fullmatch(words[2]) is not None
        and words[3].isascii() and words[3].isdigit() and len(words[3]) <= 20
        and (words[4] == "-" or is_digest(words[4]))
        and _WITNESSES.fullmatch(words[5]) is not None
        and len(_BETWEEN.findall(words[5])) < MAX_WITNESSES
    )  # fmt: skip
    if not right:
        hint = "the client writes it; leave the field out"
        raise BadInput(f"{echo(text)!r} is no evidence", code="bad_evidence", field=field, hint=hint)
    witnesses = tuple(_BETWEEN.split(words[5])) if words[5] else ()
    digest = "" if words[4] == "-" else words[4]
    looks = tuple(one for one in witnesses if one != _WRITTEN)
    return Evidence(
        words[0] == "need", words[1] == "file", words[2], int(words[3]), looks, digest, len(looks) < len(witnesses)
    )


def views(visible: dict[str, str]) -> tuple[View, ...]:
    """What a pilot must see to run a task."""
    parsed = ((path, parse_evidence(text)) for path, text in visible.items())
    return tuple(sorted(View(found.machine, path, found.is_written) for path, found in parsed if found.is_needed))
