"""Rules of a run: a file that appears makes a task, or waits until enough of them are there for one [CMS C8; ADR 0058].

A rule is the fields of a task, whose texts may name what made it: `{file}` is the file, `{number}` which task of its rule it is,
from 1 on; where files are gathered, `{files}` are all of them, each a word of its own, and `{count}` how many.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_ARGV_BYTES, MAX_ARGV_ITEMS, MAX_FILES, MAX_PARAM_BYTES
from shoal.model.task.spec import Spec

FILE, FILES, NUMBER, COUNT = "file", "files", "number", "count"
FILES_WORD = f"{{{FILES}}}"
# Fields in which `{files}` is as many words as there are files, and how many words they have at most.
_LISTS = {"command": MAX_ARGV_ITEMS, "inputs": MAX_FILES}


@dataclass(frozen=True)
class Rule:
    """One rule of a run, checked."""

    name: str
    files: str  # the pattern of files that it takes
    table: Mapping[str, Any]  # fields of its tasks as they were written
    example: Spec  # one of its tasks, for checks
    gather: int = 0  # a task for so many files; 0: not counted
    gather_size: int = 0  # a task as soon as so many bytes wait; 0: not counted
    gather_within: Optional[float] = None  # or when the first of them has waited so many seconds
    watch: Optional[float] = (
        None  # files come from outside, too, until none came for so many seconds; None: they do not
    )

    @property
    def gathers(self) -> bool:
        """True if its tasks have several files."""
        return bool(self.gather or self.gather_size)

    @cached_property
    def most(self) -> int:
        """How many files one of its tasks has at most: as many as it gathers, if its lists have place for them."""
        if not self.gathers:
            return 1
        most = self.gather or MAX_FILES
        for field, bound in _LISTS.items():
            words = self.table.get(field, ())
            times = words.count(FILES_WORD)
            most = min(most, (bound - len(words) + times) // times) if times else most
        return most

    @cached_property
    def length(self) -> int:
        """Bytes that the names of the files of one of its tasks may take in its command; `length_of` is what one takes."""
        if self._is_in_shell:
            return MAX_PARAM_BYTES + 1  # there is no space after the last of them
        return MAX_ARGV_BYTES - sum(_bytes(word) + 1 for word in self.table.get("command", ()) if word != FILES_WORD)

    def length_of(self, name: str) -> int:
        """Bytes that a name takes in the command of a task that gathers."""
        if self._is_in_shell:
            return _bytes(shlex.quote(name)) + 1
        times = self.table.get("command", ()).count(FILES_WORD)
        return times * (_bytes(_plain(name)) + 1) if times else 0

    @property
    def _is_in_shell(self) -> bool:
        return FILES_WORD in self.table.get("shell", "")

    @cached_property
    def _parts(self) -> list[str]:
        return self.files.split("/")

    def takes(self, name: str) -> bool:
        """True if its pattern fits a file."""
        return _all_fit(name.split("/"), self._parts)

    def table_of(self, files: Sequence[str], number: int) -> dict[str, Any]:
        """The fields of its task for these files."""
        table = {**self.table, "name": self.name}
        if not self.gathers:
            return {**table, "params": [{FILE: files[0], NUMBER: number}]}
        plain = [_plain(name) for name in files]
        for field in _LISTS:
            if field in table:
                words = [plain if word == FILES_WORD else [word] for word in table[field]]
                table[field] = [word for some in words for word in some]
        values: dict[str, Any] = {NUMBER: number, COUNT: len(files)}
        if self._is_in_shell:
            table["shell"] = table["shell"].replace(FILES_WORD, f"{{{FILES}:raw}}")
            values[FILES] = " ".join(map(shlex.quote, files))
        return {**table, "params": [values]}


def _plain(name: str) -> str:
    """A name as a word of a command, in which braces are doubled."""
    return name.replace("{", "{{").replace("}", "}}")


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def is_taken(name: str, pattern: str) -> bool:
    """True if the pattern of a rule fits a file: `*` and `?` stay within one folder, passing over names with a dot first."""
    return _all_fit(name.split("/"), pattern.split("/"))


def _all_fit(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    return len(parts) == len(patterns) and all(map(_fits, parts, patterns))


def _fits(part: str, pattern: str) -> bool:
    if part.startswith(".") and not pattern.startswith("."):
        return False
    return fnmatchcase(part, pattern)
