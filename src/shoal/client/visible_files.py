"""The submitter's files that a task names, with evidence by which a pilot knows that it sees the same [ADR 0029].

Nothing is written for it. What a task names is found in its words: a program with a path, arguments and words of a shell
text that are existing files, files that are redirected to, declared files, and a directory that was asked for. A task
that names none of these may run anywhere; where its directory is not seen, in a directory of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from pathlib import Path

from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_VISIBLE
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import HOLE
from shoal.model.task.visible import Evidence, levels, machine, witness

MOST_WORDS = 500  # of one task that are looked up
OF_EACH = 4  # entries of one directory that are taken as witnesses
MOST_TAKEN = 12  # witnesses of one path
LOOKED_AT = (
    128  # entries of one directory, of which the oldest are taken: on a network file system each look takes time
)
MOST_READ = 64 << 20  # bytes of a program that is known by its content
_BOOT, _NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/mnt"
# What every host has of its own, and what is everybody's.
_OF_HOST = re.compile(
    r"/(?:usr|bin|sbin|lib\w*|opt|etc|dev|proc|sys|run|boot|nix|gnu|snap|cvmfs)(?:/.*)?|/|/tmp|/var(?:/tmp)?|/home|/root"
)
_SPLIT = re.compile(r"[\s;|&<>()'\"`=,:]+")
_REDIRECTION = re.compile(r"(?<![0-9&>-])(?:[12])?>{1,2}\s*['\"]?([^\s;|&<>()'\"$`]+)")
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})


@dataclass
class VisibleFiles:
    """Looks at the disk for the tasks of one submission; what was found for one of them serves the others."""

    machine: str = field(default_factory=lambda: _own_machine())
    _folders: dict[str, tuple[int, tuple[str, ...]] | None] = field(default_factory=dict)

    def of(self, spec: Spec, run_cwd: str, is_sent: bool = False) -> dict[str, str]:
        """The field `visible` of a task that is submitted from a directory. `is_sent`: its program and its inputs go along
        (`SentFiles`), and its outputs come back."""
        needed = dict.fromkeys(_needed(spec, run_cwd, is_sent))
        found: dict[str, str] = {}
        for path in needed:
            text = self._evidence(path, True)
            if text and len(found) < MAX_VISIBLE:
                found[path] = text
        here = _directory(spec, run_cwd)
        if here and here not in found and len(found) < MAX_VISIBLE and not spec.function:
            text = self._evidence(here, False)
            found |= {here: text} if text else {}
        return found

    def _evidence(self, path: str, is_needed: bool) -> str:
        try:
            is_file = not stat.S_ISDIR(os.stat(path).st_mode)
        except (OSError, ValueError):
            return ""
        looked = self._folder(os.path.dirname(path) if is_file else path)
        if looked is None:
            return ""
        digest = _content(path) if is_file else ""
        return Evidence(is_needed, is_file, self.machine, *looked, digest).text

    def _folder(self, folder: str) -> tuple[int, tuple[str, ...]] | None:
        if folder not in self._folders:
            try:
                found = os.stat(folder)
                self._folders[folder] = found.st_ino, tuple(islice(_witnesses(folder, found.st_dev), MOST_TAKEN))
            except OSError:
                self._folders[folder] = None
        return self._folders[folder]


def _own_machine() -> str:
    """The name of this kernel start and mount namespace; that of no machine if the kernel does not tell."""
    try:
        return machine(_BOOT.read_text(encoding="ascii"), os.readlink(_NAMESPACE))
    except OSError:
        return "0" * 16


def _witnesses(folder: str, device: int) -> Iterator[str]:
    """What a directory looks like: itself, its oldest entries, which are the least likely to change, and those above."""
    for level in levels(folder):
        try:
            own = os.stat(level)
            if own.st_dev != device:
                return
            yield witness(level, True, 0, own.st_mtime_ns, own.st_ino)
            with os.scandir(level) as listed:
                entries = list(islice(listed, LOOKED_AT))
        except OSError:
            continue
        looks: list[tuple[bool, int, str]] = []
        for entry in entries:
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                is_directory = stat.S_ISDIR(found.st_mode)
                look = witness(entry.path, is_directory, found.st_size, found.st_mtime_ns, found.st_ino)
                looks.append((is_directory, found.st_mtime_ns, look))
        for _, _, look in sorted(looks)[:OF_EACH]:
            yield look


def _content(path: str) -> str:
    """The digest of a program's content, by which a copy of it elsewhere is known; not of a link, which stands for more."""
    try:
        if os.path.islink(path) or os.path.getsize(path) > MOST_READ:
            return ""
        with open(path, "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError:
        return ""


def _directory(spec: Spec, run_cwd: str) -> str:
    """The directory that the tasks run in, as far as it is the same for all; empty if each has its own."""
    if spec.cwd == OWN or not run_cwd:
        return ""
    asked = spec.cwd or ""
    if spec.sweep is not None:
        asked = _before_hole(asked)
    return os.path.normpath(os.path.join(run_cwd, asked))


def _needed(spec: Spec, run_cwd: str, is_sent: bool) -> Iterator[str]:
    """Every path that a task cannot do without."""
    here = _directory(spec, run_cwd)
    if spec.cwd not in (None, OWN) and here:
        yield here
    has_files = not is_sent and (spec.inputs or spec.outputs)
    if run_cwd and (has_files or (spec.stdin is not None and not spec.stdin.startswith("/dev/"))):
        yield run_cwd
    named = (*spec.inputs, *spec.outputs, *spec.command[:1]) if is_sent else ()
    moved = frozenset(map(os.path.normpath, filter(None, named)))
    for word in _words(spec, moved):
        if os.path.isabs(word):
            path = os.path.normpath(word)
            if spec.container or _OF_HOST.fullmatch(path) or not _exists(path):
                continue
            yield here if here and (path == here or path.startswith(here.rstrip("/") + "/")) else path
        elif here and _exists(os.path.join(here, word)):
            yield here
    redirected = (name for text in _scripts(spec) for name in _REDIRECTION.findall(text))
    if here and any(not name.startswith("/") and os.path.normpath(name) not in moved for name in redirected):
        yield here


def _scripts(spec: Spec) -> list[str]:
    """The texts of a task that a shell reads."""
    if spec.shell is not None:
        return [spec.shell, *spec.setup]
    is_shell = bool(spec.command) and os.path.basename(spec.command[0]) in _SHELLS
    return [*(spec.command[1:] if is_shell else ()), *spec.setup]


def _words(spec: Spec, moved: frozenset[str]) -> Iterator[str]:
    """Words that may be names of files, without those of files that are moved; of one with placeholders the directory before
    them."""
    program = spec.command[:1] if spec.command and "/" in spec.command[0] else ()
    scripts = _scripts(spec)
    whole = [*program, *spec.command[1:]]
    parts = [part for text in [*scripts, *spec.command[1:]] for part in _SPLIT.split(text[:20_000])]
    home = os.path.expanduser("~")
    for word in [word for word in dict.fromkeys([*whole, *parts]) if os.path.normpath(word) not in moved][:MOST_WORDS]:
        name = _before_hole(word) if spec.sweep is not None else word
        for start in ("~/", "$HOME/", "${HOME}/"):
            name = f"{home}/{name[len(start) :]}" if name.startswith(start) else name
        if name and len(name) < 4096 and "\0" not in name:
            yield name


def _before_hole(word: str) -> str:
    """The directories of a name before its first placeholder."""
    found = next((one for one in HOLE.finditer(word) if one[1]), None)
    return word if found is None else os.path.dirname(word[: found.start()])


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False
