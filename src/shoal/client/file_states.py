"""How what tasks read looks when they are submitted, as texts that `--resume` compares: files, directories, files at URLs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator

from shoal.client.visible_files import is_of_host
from shoal.flow.file_edges import folders_of, names_written
from shoal.model.errors import BadInput
from shoal.model.task.kept_files import is_written
from shoal.model.task.spec import Spec, Submission
from shoal.model.task.url_input import FILE, is_url, parse_url

MAX_DIGESTED = 64 << 20  # bytes of files that are read for one submission; of others size, date and inode are taken
MAX_LISTED = 20_000  # files in directories that are looked at for one submission
_SEPARATORS = re.compile(r"[=:,](?![^{}]*\})")  # not in a placeholder
_SHORT_OPTION = re.compile(r"-[A-Za-z](?=.)")


class FileStates:
    """Looks at the disk for one submission."""

    def __init__(self, submission: Submission) -> None:
        self._submission, self._budget, self._left = submission, MAX_DIGESTED, MAX_LISTED
        self._written: frozenset[str] | None = None
        self._made: set[str] = set()  # directories that what is written is in

    def of(self, path: str, is_input: bool = False) -> str:
        """What tells a file from another one, or from itself after a change; empty if there is nothing to compare. Of a directory
        that is an input, or that python runs: what is in it; one that has nothing but what tasks write looks like none, as
        it may have been before. In others that a command names tasks may well write."""
        try:
            state = os.stat(path)
            if stat.S_ISREG(state.st_mode):
                return self._of_file(path, state)
            if stat.S_ISDIR(state.st_mode) and (is_input or os.path.isfile(os.path.join(path, "__main__.py"))):
                return self._of_directory(path)
        except (OSError, ValueError):
            pass
        return ""

    def of_url(self, text: str) -> str:
        """The same of an input at a URL: empty if the URL itself says which bytes are meant. Of a file that is not seen from here
        it is not known whether it changed, so that it never looks the same."""
        try:
            url = parse_url(text)
        except BadInput:
            return _unknown()
        if url is None or url.digest:
            return ""
        if url.scheme != FILE:
            return _unknown()
        return self.of(url.url, True) or ("empty" if os.path.isdir(url.url) else _unknown())

    def of_program(self, name: str, spec: Spec) -> str:
        """The same of a program that is looked for in $PATH: of one of the person's own."""
        path = spec.env.get("PATH", os.environ.get("PATH", os.defpath))
        found = shutil.which(name, path=path) if name and "/" not in name else None
        if found is None or is_of_host(os.path.abspath(found)):
            return ""
        try:
            state = os.stat(found)
            with open(found, "rb") as file:
                is_script = file.read(2) == b"#!"
            return self._of_file(found, state) if is_script else fingerprint(found, state, 0)
        except OSError:
            return ""

    def _of_file(self, path: str, state: os.stat_result) -> str:
        text = fingerprint(path, state, self._budget)
        self._budget -= min(self._budget, state.st_size)
        return text

    def _of_directory(self, path: str) -> str:
        """A digest of the files and directories in a directory, without those that tasks of the submission write; empty if
        there is none."""
        digest, seen, is_empty = hashlib.sha256(), set[tuple[int, int]](), True
        for folder, folders, files in os.walk(path, followlinks=True):
            if folder != path and not self._is_made(folder):
                digest.update(f"{os.path.relpath(folder, path)}/\0".encode("utf-8", "surrogateescape"))
                is_empty = False
            own = os.stat(folder)
            if (own.st_dev, own.st_ino) in seen:  # a link leads round in a circle
                folders.clear()
                continue
            seen.add((own.st_dev, own.st_ino))
            folders[:] = sorted(
                name for name in folders if name != "__pycache__"
            )  # is made when python reads the others
            for file in sorted(files):
                name = os.path.join(folder, file)
                if self._is_written(name):
                    continue
                is_empty = False
                self._left -= 1
                if self._left < 0:
                    return _unknown()
                digest.update(
                    f"{os.path.relpath(name, path)}\0{self._of_entry(name)}\0".encode("utf-8", "surrogateescape")
                )
        return "" if is_empty else digest.hexdigest()

    def _of_entry(self, name: str) -> str:
        try:
            state = os.stat(name)
            return self._of_file(name, state) if stat.S_ISREG(state.st_mode) else str(stat.S_IFMT(state.st_mode))
        except OSError:
            return "?"

    def _is_written(self, path: str) -> bool:
        if self._written is None:
            self._written = names_written(self._submission.specs)
            self._made = {folder for name in self._written for folder in folders_of(name)}
        return is_written(os.path.relpath(path, self._submission.cwd), self._written)

    def _is_made(self, folder: str) -> bool:
        """True if tasks write the directory, or into it, so that they may have made it."""
        return self._is_written(folder) or os.path.relpath(folder, self._submission.cwd) in self._made


def fingerprint(path: str, state: os.stat_result, budget: int) -> str:
    """A digest of a file's content; of one that is too large to be read, of what tells it from another file."""
    if state.st_size > budget:
        return f"{state.st_size}-{state.st_mtime_ns}-{state.st_ino}"
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(budget + 1)).hexdigest()


def parts_of(word: str) -> Iterator[str]:
    """Names that a word of a command may hold besides itself: `--config=c.ini`, `a.ini,b.ini`, `@c.ini`, `-cc.ini`."""
    if is_url(word):
        return
    parts = _SEPARATORS.split(word)
    for part in parts if len(parts) > 1 else ():
        yield part
    for part in parts:
        if part.startswith("@"):
            yield part[1:]
    if option := _SHORT_OPTION.match(word):
        yield word[option.end() :]


def _unknown() -> str:
    return f"unknown {os.urandom(8).hex()}"
