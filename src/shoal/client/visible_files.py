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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.client.sent_files import may_send
from shoal.flow.file_edges import folders_of
from shoal.model.errors import echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_VISIBLE
from shoal.model.task.rule import Rule
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import HOLE
from shoal.model.task.url_input import is_url
from shoal.model.task.visible import NOT_VISIBLE, Evidence, levels, machine, views, witness
from shoal.wire.task import parse_spec

MOST_TABLES = 1_000  # of a run in which it is looked for what binds it to a directory
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


class Presence:
    """Which paths there are. A name in a directory is looked up in a list of what is there, read once: a workflow may ask for
    each of 100,000 words."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        self._listed: dict[str, frozenset[str] | None] = {}

    def has(self, path: str) -> bool:
        """True if there is such a path."""
        known = self._known.get(path)
        if known is None:
            try:
                known = os.path.lexists(path)
            except (OSError, ValueError):
                known = False
            self._known[path] = known
        return known

    def has_in(self, folder: str, name: str) -> bool:
        """True if there is such a name below a directory."""
        if "/" in name or name in (".", ".."):
            return self.has(os.path.join(folder, name))
        if folder not in self._listed:
            try:
                self._listed[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._listed[folder] = None  # it may be entered, but not read
        listed = self._listed[folder]
        return name in listed if listed is not None else self.has(os.path.join(folder, name))


@dataclass
class VisibleFiles:
    """Looks at the disk for the tasks of one submission; what was found for one of them serves the others."""

    machine: str = field(default_factory=lambda: _own_machine())
    _folders: dict[str, tuple[int, tuple[str, ...]] | None] = field(default_factory=dict)
    _texts: dict[tuple[str, bool, bool], str] = field(default_factory=dict)
    _present: Presence = field(default_factory=Presence)

    def of(self, spec: Spec, run_cwd: str, is_sent: bool = False) -> dict[str, str]:
        """The field `visible` of a task that is submitted from a directory. `is_sent`: its program and its inputs go along
        (`SentFiles`), and its outputs come back."""
        needed = dict.fromkeys(path for path, _ in _needed(spec, run_cwd, is_sent, self._present))
        found: dict[str, str] = {}
        here = _directory(spec, run_cwd)
        for path in needed:
            text = self._evidence(path, True, path in (here, run_cwd))
            if text and len(found) < MAX_VISIBLE:
                found[path] = text
        if here and here not in found and len(found) < MAX_VISIBLE and not spec.function:
            text = self._evidence(here, False, True)
            found |= {here: text} if text else {}
        return found

    def with_evidence(
        self, tables: Iterable[Mapping[str, Any]], rules: Iterable[Rule], run_cwd: str
    ) -> list[dict[str, Any]]:
        """Tables of rules with evidence for the directory that their tasks run in. Which files they will read is not known
        yet, but that they are there: so a pilot must see it."""
        found = []
        for table, rule in zip(tables, rules, strict=True):
            place = replace(rule.example, inputs=(), stdin=None, cwd=rule.example.cwd or ".")
            found.append({**table, "visible": self.of(place, run_cwd)})
        return found

    def _evidence(self, path: str, is_needed: bool, is_own: bool) -> str:
        """The evidence for a path, found once for all tasks that name it. `is_own`: tasks run or write there."""
        key = path, is_needed, is_own
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = self._found(*key)
        return text

    def _found(self, path: str, is_needed: bool, is_own: bool) -> str:
        try:
            is_file = not stat.S_ISDIR(os.stat(path).st_mode)
        except (OSError, ValueError):
            return ""
        looked = self._folder(os.path.dirname(path) if is_file else path)
        if looked is None:
            return ""
        digest = _content(path) if is_file else ""
        # Root may write to every host's own directories, too, which no task is meant to.
        is_written = is_own and not is_file and not is_of_host(path) and os.access(path, os.W_OK | os.X_OK)
        return Evidence(is_needed, is_file, self.machine, *looked, digest, is_written).text

    def _folder(self, folder: str) -> tuple[int, tuple[str, ...]] | None:
        if folder not in self._folders:
            try:
                found = os.stat(folder)
                self._folders[folder] = found.st_ino, tuple(islice(_witnesses(folder, found.st_dev), MOST_TAKEN))
            except OSError:
                self._folders[folder] = None
        return self._folders[folder]


def with_bindings(why: dict[str, Any], read_run: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """An answer to why tasks wait; where no pilot sees a directory, with what of a task binds it there, as far as that can be
    found out on this machine."""
    reasons = [
        {**reason, "text": f"{reason['text']}; {by}"}
        if reason.get("code") == NOT_VISIBLE and (by := _binding(read_run(), str(reason["text"])))
        else reason
        for reason in why.get("reasons") or ()
    ]
    return {**why, "reasons": reasons}


def _binding(run: Mapping[str, Any], text: str) -> str:
    """What binds a task of a run to a path that the text names; empty if it is not known."""
    present = Presence()
    for array in run["arrays"][:MOST_TABLES]:
        spec = parse_spec(array["task"])
        if f" {' and '.join(view.path for view in views(spec.visible))} as " not in text:  # it is another that waits
            continue
        for is_sent in (True, False) if may_send(spec) else (False,):
            for path, by in _needed(spec, run["cwd"] or "", is_sent, present):
                if path in spec.visible:
                    return by
    return ""


def is_of_host(path: str) -> bool:
    """True for what every host has of its own, and what is everybody's."""
    return _OF_HOST.fullmatch(path) is not None


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


def _needed(spec: Spec, run_cwd: str, is_sent: bool, present: Presence) -> Iterator[tuple[str, str]]:
    """Every path that a task cannot do without, each with what of the task says so."""
    here = _directory(spec, run_cwd)
    if spec.cwd not in (None, OWN) and here:
        yield here, "the task asks for this directory (cwd)"
    inputs = [name for name in spec.inputs if not is_url(name)]
    declared = [] if is_sent else [*inputs, *spec.outputs]
    if spec.stdin is not None and not spec.stdin.startswith("/dev/"):
        declared.append(spec.stdin)
    if run_cwd and declared:
        yield run_cwd, f"the task declares {echo(declared[0])!r}"
    streams = [name for name in (spec.stdout, spec.stderr) if name and not name.startswith("/dev/")]
    if run_cwd and streams:
        yield run_cwd, f"what it prints goes to {echo(streams[0])!r}"
    named = (*inputs, *spec.outputs, *spec.command[:1]) if is_sent else ()
    moved = frozenset(map(os.path.normpath, filter(None, named)))
    for word in _words(spec, moved | _made_for(spec.outputs, inputs) if is_sent else moved):
        if is_url(word) or _is_below(word, moved):
            continue
        if os.path.isabs(word):
            path = os.path.normpath(word)
            if spec.container or is_of_host(path) or not present.has(path):
                continue
            is_here = here and (path == here or path.startswith(here.rstrip("/") + "/"))
            yield here if is_here else path, f"its command names {echo(word)!r}"
        elif here and present.has_in(here, word):
            yield here, f"its command names {echo(word)!r}"
    redirected = (name for text in _scripts(spec) for name in _REDIRECTION.findall(text))
    bound = next((name for name in redirected if not name.startswith("/") and not _is_moved(name, moved)), "")
    if here and bound:
        yield here, f"its command writes to {echo(bound)!r}"


def _made_for(outputs: Iterable[str], inputs: Iterable[str]) -> frozenset[str]:
    """The directories that outputs are in, and no inputs: a task that names one makes it, wherever it runs. It is here as soon
    as the first outputs came back."""
    made, read = ({one for name in names for one in folders_of(os.path.normpath(name))} for names in (outputs, inputs))
    return frozenset(made - read - {"."})


def _is_moved(name: str, moved: frozenset[str]) -> bool:
    return os.path.normpath(name) in moved or _is_below(name, moved)


def _is_below(word: str, moved: frozenset[str]) -> bool:
    """True for a file in a directory that is moved as a whole."""
    folder = os.path.dirname(os.path.normpath(word))
    while folder and folder != "/":
        if folder in moved:
            return True
        folder = os.path.dirname(folder)
    return False


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
    words = dict.fromkeys([*whole, *parts])
    left = [word for word in words if os.path.normpath(word) not in moved] if moved else [*words]
    for word in left[:MOST_WORDS]:
        name = _before_hole(word) if spec.sweep is not None else word
        for start in ("~/", "$HOME/", "${HOME}/") if name[:1] in ("~", "$") else ():
            name = f"{os.path.expanduser('~')}/{name[len(start) :]}" if name.startswith(start) else name
        if name and len(name) < 4096 and "\0" not in name:
            yield name


def _before_hole(word: str) -> str:
    """The directories of a name before its first placeholder."""
    found = next((one for one in HOLE.finditer(word) if one[1]), None)
    return word if found is None else os.path.dirname(word[: found.start()])
