"""Where an attempt runs and with which environment; inputs in, outputs out [contract 3].

Outputs of an own directory lie under the attempt's name beside their place until the server has accepted the
report; only then they are renamed, so of two copies of a task one writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from shoal.model.ids import parse_attempt, run_text
from shoal.model.limits import MAX_BODY
from shoal.pilot.carry import StageError, bring, carry, remove_tree
from shoal.wire.messages import Lease

_ALLOWED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "SHELL"})
_ENVIRONMENTS_KEPT = 8
_NEW_FILES = 100
_NAME_BYTES = 200  # of one new file's name in a report
_BY_DIGEST = re.compile(r"([0-9a-f]{64})\.json")


@dataclass(frozen=True)
class Facts:
    """What staging needs to know of this pilot."""

    work: str
    environ: Mapping[str, str]
    devices: Sequence[str] = ()
    umask: int = 0o077  # of the person, for what is made in their directory


@dataclass
class Prepared:
    """An attempt ready to be started, and what is to be put away after it."""

    lease: Lease
    argv: list[str]
    cwd: str
    env: dict[str, str]
    stdin: Optional[str] = None
    own_dir: str = ""
    script: str = ""
    brought: list[str] = field(default_factory=list)  # inputs, by their name in the own directory
    parts: list[tuple[str, str]] = field(default_factory=list)  # (attempt's file, its final place)


class Stage:
    """Prepares, collects and settles attempts. Different attempts may be handled by different threads."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._environments: OrderedDict[tuple[str, int, int], dict[str, str]] = OrderedDict()

    def is_slow(self, lease: Lease) -> bool:
        """Are there perhaps large files to move, so that the loop should not do it itself?"""
        return lease.own or not lease.cwd or not _is_visible(lease)

    # --- before
    def prepare(self, lease: Lease, gpus: Sequence[int] = ()) -> Prepared:
        """Directory, environment, command and inputs of an attempt; StageError if it cannot be."""
        visible = _is_visible(lease)
        if not visible and (lease.inputs or lease.outputs):
            raise StageError(
                "stage_in",
                "this host cannot see the submitter's files, so declared inputs and outputs cannot be moved",
            )
        _check_outputs(lease.outputs)
        own = lease.own or not visible or not lease.cwd
        name = _file_name(lease.attempt)
        made = Prepared(lease, list(lease.command), lease.cwd, {})
        try:
            if own:
                made.cwd = made.own_dir = os.path.join(self.facts.work, "tasks", name)
                shutil.rmtree(made.own_dir, ignore_errors=True)
                os.makedirs(made.own_dir, mode=0o700)
            if lease.shell is not None:
                made.script = os.path.join(self.facts.work, "scripts", name + ".sh")
                _write_script(made.script, lease.shell)
                made.argv = ["/bin/sh", made.script]
            made.env = self._environment(lease, made.cwd, gpus, visible)
            if made.own_dir:
                for path in lease.inputs:
                    made.brought.append(bring(path, lease.cwd, made.own_dir, frozenset(lease.outputs)))
            if lease.stdin is not None:
                made.stdin = _find_stdin(lease, made.own_dir)
        except BaseException:
            self._remove(made)
            raise
        return made

    def _environment(self, lease: Lease, cwd: str, gpus: Sequence[int], visible: bool) -> dict[str, str]:
        if visible:
            env = self._submitters(lease.env_file)
        else:
            env = {k: v for k, v in self.facts.environ.items() if k in _ALLOWED or k.startswith("LC_")}
        env = {k: v for k, v in env.items() if not k.startswith("SHOAL_")}
        env["PWD"] = cwd
        env["OMP_NUM_THREADS"] = str(lease.room.cores)
        env.update(lease.env)
        which = parse_attempt(lease.attempt)
        env["SHOAL_RUN"] = run_text(which.run)
        env["SHOAL_TASK"] = str(which.task)
        env["SHOAL_ATTEMPT"] = which.text
        if gpus:
            names = self.facts.devices
            env["CUDA_VISIBLE_DEVICES"] = ",".join(names[at] if at < len(names) else str(at) for at in gpus)
        return env

    def _submitters(self, path: str) -> dict[str, str]:
        """The submitter's environment from its file; the last few are kept."""
        try:
            with open(path, encoding="utf-8") as file:
                found = os.fstat(file.fileno())
                key = (path, found.st_mtime_ns, found.st_size)
                known = self._environments.get(key)
                if known is not None:
                    return known
                env = json.load(file)
        except (OSError, ValueError) as error:
            raise StageError("stage_in", f"cannot read the submitter's environment {path}: {error}") from None
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise StageError("stage_in", f"the submitter's environment {path} is not an object of texts")
        self._environments[key] = env
        while len(self._environments) > _ENVIRONMENTS_KEPT:
            self._environments.popitem(last=False)
        return env

    # --- after
    def collect(self, made: Prepared) -> None:
        """The attempt succeeded: its declared outputs must be there, and are brought beside their place."""
        lease = made.lease
        if not made.own_dir:
            for name in lease.outputs:
                if not os.path.exists(os.path.join(lease.cwd, name)):
                    raise StageError("output_missing", f"output {name} was not written")
            return
        suffix = "." + parse_attempt(lease.attempt).text.replace("#", "-") + ".part"
        try:
            for name in lease.outputs:
                final = os.path.join(lease.cwd, name)
                made.parts.append((final + suffix, final))
                carry(made.own_dir, name, final + suffix, self.facts.umask)
        except StageError:
            self._drop_parts(made)
            raise

    def new_files(self, made: Prepared) -> list[str]:
        """Files in an own directory that are neither inputs nor outputs: the first hundred."""
        known = set(made.brought) | set(made.lease.outputs)
        found: list[str] = []
        if made.own_dir:
            for folder, _, files in os.walk(made.own_dir):
                inner = os.path.relpath(folder, made.own_dir)
                for file in files:
                    name = os.path.normpath(os.path.join(inner, file))
                    if name not in known:
                        found.append(name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore"))
                        if len(found) == _NEW_FILES:
                            return sorted(found)
        return sorted(found)

    def settle(self, made: Prepared, accepted: bool) -> list[str]:
        """The server has decided: outputs into place or away, then nothing is left. Returns what went wrong."""
        wrong = []
        if accepted:
            for part, final in made.parts:
                try:
                    os.replace(part, final)
                except OSError as error:
                    wrong.append(f"output {final} could not be put into place: {error.strerror}")
            made.parts = []
        self._drop_parts(made)
        self._remove(made)
        return wrong

    def _drop_parts(self, made: Prepared) -> None:
        for part, _ in made.parts:
            with contextlib.suppress(OSError):
                os.unlink(part)
        made.parts = []

    def _remove(self, made: Prepared) -> None:
        if made.script:
            with contextlib.suppress(OSError):
                os.unlink(made.script)
        if made.own_dir:
            remove_tree(made.own_dir)


def _is_visible(lease: Lease) -> bool:
    """Does this host see the submitter's files? Its environment file is the proof."""
    if not lease.env_file or not os.access(lease.env_file, os.R_OK):
        return False
    named = _BY_DIGEST.fullmatch(os.path.basename(lease.env_file))
    if named is None:
        return True
    # The same path on another host may be another file: only the bytes that it is named for count.
    try:
        fd = os.open(lease.env_file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return hashlib.sha256(file.read(MAX_BODY)).hexdigest() == named[1]
    except OSError:
        return False


def _check_outputs(names: Sequence[str]) -> None:
    """Outputs stay below their directory. The server looked at them before parameters were filled in [S11, E46]."""
    for name in names:
        if name[:1] in ("", "/", "-") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise StageError("stage_out", f"output_refused: {name} is no path below the task's directory")


def _file_name(attempt: str) -> str:
    """An attempt as a file name without characters that tools read a meaning into."""
    return attempt.replace("#", "-").replace("@", "-")


def _write_script(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    with open(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.write(b"\n")


def _find_stdin(lease: Lease, own_dir: str) -> str:
    assert lease.stdin is not None
    tried = [os.path.join(own_dir, lease.stdin)] if own_dir else []
    tried.append(os.path.join(lease.cwd, lease.stdin))
    for path in tried:
        with contextlib.suppress(OSError):
            mode = os.stat(path).st_mode
            # A pipe would hold up the guard that opens it.
            if stat.S_ISREG(mode) or stat.S_ISCHR(mode):
                return path
    raise StageError("stage_in", f"stdin file {lease.stdin} is not there, or is no plain file")
