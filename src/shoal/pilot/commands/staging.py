"""The directory and environment of an attempt; inputs in, outputs out [protocol 3].

Outputs of an own directory are kept under the attempt's name beside their final path until the server has accepted the
report; only then they are renamed, so of two copies of a task one writes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import time
from binascii import a2b_base64
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Optional

from shoal.data.sources import DIRECTORY, ORIGIN, STORAGE, Failure, Rule
from shoal.model.ids import parse_attempt, run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_BODY, MAX_FAILED_PLACES, MAX_PLACE_TEXT
from shoal.model.task.content import parse_content
from shoal.model.task.kept_files import is_written, unpack
from shoal.model.task.url_input import FILE, UrlInput, parse_place, parse_url
from shoal.model.task.url_input import STORAGE as STORED
from shoal.pilot.commands import checkpoint, container, setup
from shoal.pilot.commands.files import (
    NoSpace,
    NotSent,
    NotVisible,
    StageError,
    TooLarge,
    bring,
    check_names,
    inputs_in,
    make_directory,
    make_stream_file,
    put_input,
    remove_tree,
    size_of,
)
from shoal.pilot.commands.outputs import Outputs, part_of
from shoal.pilot.commands.streams import remove
from shoal.pilot.commands.visibility import Visibility
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.files.site_storage import source_at, storage_of
from shoal.pilot.guard.start_progress import StartStage
from shoal.pilot.host.disk_space import is_full
from shoal.pilot.host.emit_files import file_name
from shoal.pilot.uplink.blobs import Blobs
from shoal.wire.messages import Lease, Step

_ALLOWED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "SHELL"})
_ENVIRONMENTS_KEPT = 8
_NEW_FILES = 100
_NAME_BYTES = 200  # of one new file's name in a report
_Version = tuple[str, int, int, int, int]
_BY_DIGEST = re.compile(r"([0-9a-f]{64})\.json")


@dataclass(frozen=True)
class PilotFacts:
    """What staging needs to know of this pilot."""

    work: str
    environ: Mapping[str, str]
    devices: Sequence[str] = ()
    umask: int = 0o077  # of the person, for what is made in their directory
    server: str = ""  # its server file or address, for what tasks submit themselves
    storage: Sequence[Rule] = ()  # where the site has files, by their names


class Environment(NamedTuple):
    """What many attempts have in common of their environments; it never changes, and neither does its number."""

    number: int
    values: dict[str, str]


@dataclass
class Prepared:
    """An attempt ready to be started, and what is to be removed after it."""

    lease: Lease
    argv: list[str]
    cwd: str
    base: Environment
    own: dict[str, str] = field(default_factory=dict)  # variables of this attempt, over those of `base`
    stdin: Optional[str] = None
    stdin_blob: str = ""  # the blob that it is read from
    stdin_file: str = ""  # made for it, and removed afterwards
    own_streams: dict[str, str] = field(default_factory=dict)  # stream -> the file that this attempt writes it to
    own_dir: str = ""
    script: str = ""
    surround: str = ""  # the script that comes before the command
    brought: list[str] = field(default_factory=list)  # inputs, by their name in the own directory
    parts: list[tuple[str, str]] = field(default_factory=list)  # (attempt's file, its final path)
    start_stage: Optional[StartStage] = None  # what comes before the command
    before: dict[str, Optional[checkpoint.Look]] = field(default_factory=dict)  # checkpoint files, as they were
    sees: bool = False  # the submitter's directory
    steps: list[Step] = field(default_factory=list)  # that are over
    origins: dict[str, int] = field(default_factory=dict)  # where its inputs came from -> bytes

    def count(self, origin: str, size: int) -> None:
        """Note where an input came from."""
        self.origins[origin] = self.origins.get(origin, 0) + size

    @property
    def env(self) -> dict[str, str]:
        """Its whole environment."""
        return {**self.base.values, **self.own}


class Staging:
    """Prepares, collects and settles attempts. Different attempts may be handled by different threads."""

    def __init__(self, facts: PilotFacts) -> None:
        self.facts = facts
        self._numbers = itertools.count(1)
        self._environments: OrderedDict[_Version, Environment] = OrderedDict()
        allowed = {k: v for k, v in facts.environ.items() if k in _ALLOWED or k.startswith("LC_")}
        self._poor = Environment(next(self._numbers), allowed)  # for tasks of submitters whose own we cannot see
        self._seen: dict[str, _Version] = {}  # environment files that were looked at
        self._blobs: Optional[Blobs] = None  # that lent files to attempts
        self.pipes: Mapping[str, str] = {}  # through which attempts publish tags, see `tag_pipes`
        self.emits = ""  # the folder of the files into which attempts emit values, see `emit_files`
        self.visibility = Visibility()
        self._outputs = Outputs(facts.umask, facts.storage)

    def is_slow(self, lease: Lease) -> bool:
        """True if there may be large files to move, so that the loop should not do it itself."""
        is_known = self.visibility.is_known(lease.visible)
        has_files = lease.restored or lease.stdout or lease.stderr or lease.stdin_data or lease.content or lease.kept
        return lease.own or not lease.cwd or bool(has_files) or not is_known or self._see(lease.env_file) is None

    # --- before
    def prepare(self, lease: Lease, gpus: Sequence[int] = (), blobs: Optional[Blobs] = None) -> Prepared:
        """Directory, environment, command and inputs of an attempt; StageError if it cannot be."""
        began = time.monotonic()
        missing = self.visibility.missing(lease.visible)
        if missing:
            raise NotVisible(missing)
        seen = self._see(lease.env_file)
        sees_cwd = self._sees_cwd(lease, seen)
        if not sees_cwd and (lease.stdout or lease.stderr):
            raise StageError(
                "stage_in", "this host cannot see the submitter's files, so files of stdout and stderr cannot be moved"
            )
        check_names(lease.outputs, "output", "stage_out")
        own = lease.own or not sees_cwd or bool(lease.kept)  # what others wrote may not be there, or be older
        name = _file_name(lease.attempt)
        made = Prepared(lease, lease.command, lease.cwd, self._submitters(seen) if seen else self._poor, sees=sees_cwd)
        try:
            if own:
                made.cwd = made.own_dir = os.path.join(self.facts.work, "tasks", name)
                shutil.rmtree(made.own_dir, ignore_errors=True)
                os.makedirs(made.own_dir, mode=0o700)
            if lease.shell is not None:
                made.script = os.path.join(self.facts.work, "scripts", name + ".sh")
                _write_script(made.script, lease.shell)
                made.argv = ["/bin/sh", made.script]
            made.own = self._own(lease, made.cwd, gpus)
            if made.own_dir:
                ready = time.monotonic()
                self._bring_inputs(made, blobs)
                moved = len(made.brought), sum(made.origins.values()), made.origins
                failed = _failed(blobs.fetcher.take_failures() if blobs is not None else ())
                took = time.monotonic() - ready
                made.steps = [Step("prepare", ready - began), Step("stage_in", took, *moved, failed)]
            if lease.stdin is not None:
                made.stdin = _find_stdin(lease, made.own_dir)
            elif lease.stdin_data:
                self._receive_stdin(made, name, blobs)
            for stream, path in (("stdout", lease.stdout), ("stderr", lease.stderr)):
                if path:
                    self._open_stream_file(made, stream, path)
            if lease.checkpoint or lease.restored:
                self._restore(made, blobs)
            if lease.setup or lease.container:
                self._surround(made, name)
        except BaseException:
            self._drop_parts(made)
            self._remove(made)
            raise
        return made

    def _bring_inputs(self, made: Prepared, blobs: Optional[Blobs]) -> None:
        """Put the inputs into the own directory: from the submitter's, or where that is not seen from the server. Folders of
        outputs are made, as a command expects that was written for a directory where they are."""
        lease = made.lease
        written = {folder for name in lease.kept for folder in (name, *_folders_of(name))}
        for path in lease.inputs:
            url = parse_url(path)
            if url is not None and url.is_remote:
                made.brought.append(self._fetch(made, path, blobs, url.name))
            elif url is not None:
                made.brought.append(self._fetch_url(made, url, blobs))
            elif (
                made.sees
                and os.path.normpath(path) not in written
                and (path not in lease.content or os.path.lexists(os.path.join(lease.cwd, path)))
            ):
                self._bring_seen(made, path)
            else:
                if made.sees and os.path.isdir(os.path.join(lease.cwd, path)):
                    self._bring_seen(made, path)  # what else is in the directory, and was written where this is seen
                self._fetch_input(made, path, blobs)
        program = lease.command[0] if lease.command else ""
        if program in lease.content and not made.sees and os.path.normpath(program) not in made.brought:
            made.brought.append(self._fetch(made, program, blobs))
        for name in lease.outputs if not made.sees else ():
            os.makedirs(os.path.dirname(os.path.join(made.own_dir, name)), mode=0o700, exist_ok=True)

    def _bring_seen(self, made: Prepared, path: str) -> None:
        """Put an input that is seen here into the own directory: a file, or all in a directory that no task left elsewhere."""
        lease = made.lease
        for name in inputs_in(path, lease.cwd):
            if name.endswith("/"):
                make_directory(name, made.own_dir)
            elif os.path.normpath(name) not in lease.kept:
                made.brought.append(bring(name, lease.cwd, made.own_dir, _rewritten(lease)))
                made.count(DIRECTORY, os.path.getsize(os.path.join(made.own_dir, made.brought[-1])))

    def _fetch_input(self, made: Prepared, path: str, blobs: Optional[Blobs]) -> None:
        """Put an input that is not seen here into the own directory: a file, or all that is in a directory."""
        content, folder = {**made.lease.content, **made.lease.kept}, os.path.normpath(path)
        inside = [name for name in content if name == folder or name.startswith(folder + "/")]
        for name in [path] if path in content or not inside else inside:
            if name in content and parse_content(content[name]).is_directory:
                make_directory(name, made.own_dir)
            elif os.path.normpath(name) not in made.brought:
                made.brought.append(self._fetch(made, name, blobs))

    def _fetch_url(self, made: Prepared, url: UrlInput, blobs: Optional[Blobs]) -> str:
        """Put the file that a URL names into the own directory; returns its name there."""
        if url.scheme == FILE:
            made.count(STORAGE, os.path.getsize(url.url) if os.path.isfile(url.url) else 0)
            return bring(url.url, "/", made.own_dir, _rewritten(made.lease))
        if blobs is None:
            raise StageError("stage_in", f"this pilot has no way to fetch {url.url}")
        run, source = run_text(parse_attempt(made.lease.attempt).run), source_at(url.url, ORIGIN)
        with self._naming(made, url.url):
            fetched = (
                blobs.get(url.digest, None, [source]) if url.digest else blobs.get_unknown(source, f"{run} {url.url}")
            )
        try:
            made.count(fetched.origin, fetched.held.size)
            return put_input(url.name, fetched.held, made.own_dir, 0o600, _rewritten(made.lease))
        finally:
            fetched.held.close()

    def _fetch(self, made: Prepared, path: str, blobs: Optional[Blobs], name: str = "") -> str:
        """Put one file, whose content is on the server or stored elsewhere, into the own directory; returns its name there."""
        text = made.lease.kept.get(path) or made.lease.content.get(path)
        if text is None:
            raise NotSent(path)
        name = name or path
        if blobs is None:
            raise StageError(
                "stage_in", f"this host cannot see the submitter's files: of input {path} it has no way to its content"
            )
        content = parse_content(text)
        with self._naming(made, path):
            near = storage_of(os.path.normpath(name), self.facts.storage)
            if content.url:
                place = parse_place(content.url)
                near += storage_of(place.url, self.facts.storage) if place.scheme == STORED else [source_at(place.url)]
            fetched = blobs.get(content.digest, content.size, near, made.lease.holders.get(content.digest, ()))
        try:
            made.count(fetched.origin, fetched.held.size)
            return put_input(name, fetched.held, made.own_dir, content.mode, _rewritten(made.lease))
        finally:
            fetched.held.close()

    @contextlib.contextmanager
    def _naming(self, made: Prepared, path: str) -> Iterator[None]:
        """Name the input whose fetching fails."""
        try:
            yield
        except NoBlob as error:
            if error.too_large:
                raise TooLarge(path, str(error)) from None
            if error.no_space:
                raise NoSpace(self.facts.work, OSError(errno.ENOSPC, ""), f"input {path} was fetched") from None
            raise StageError("stage_in", f"input {path} cannot be fetched: {error}") from None

    def _receive_stdin(self, made: Prepared, name: str, blobs: Optional[Blobs]) -> None:
        """Put the bytes that were sent as standard input into a file."""
        sent = made.lease.stdin_data
        if sent.startswith("sha256:"):
            if blobs is None:
                raise StageError("stage_in", "this pilot has no way to the standard input of the task")
            try:
                made.stdin = blobs.fetch(sent)
            except NoBlob as error:
                raise StageError("stage_in", f"its standard input cannot be fetched: {error}") from None
            made.stdin_blob, self._blobs = sent, blobs
            return
        made.stdin_file = made.stdin = os.path.join(self.facts.work, "scripts", name + ".in")
        _write_private(made.stdin, a2b_base64(sent))

    def _open_stream_file(self, made: Prepared, stream: str, path: str) -> None:
        """Make the submitter's file for a stream. The attempt writes to a file of its own that has this name from now on:
        what another attempt still writes goes nowhere, and the one that the server accepts has the name in the end."""
        final = os.path.realpath(os.path.join(made.lease.cwd, path))
        with contextlib.suppress(OSError):
            mode = os.stat(final).st_mode
            if stat.S_ISCHR(mode):  # such as /dev/null, which must stay what it is
                made.own_streams[stream] = final
                return
            if not stat.S_ISREG(mode):
                raise StageError("stage_in", f"cannot write {stream} to {final}: it is no plain file")
        known = next((part for part, known in made.parts if known == final), "")
        part = known or part_of(final, made.lease.attempt)
        made.own_streams[stream] = part
        if known:
            return
        try:
            make_stream_file(part, final, self.facts.umask)
        except OSError as error:
            if is_full(error):
                raise NoSpace(os.path.dirname(final), error, f"the file of {stream} was made") from None
            why = error.strerror or str(error)
            raise StageError("stage_in", f"cannot write {stream} to {final}: {why}") from None
        made.parts.append((part, final))

    def _restore(self, made: Prepared, blobs: Optional[Blobs]) -> None:
        """Restore the checkpoint of the last part of a task, so that this one continues from it [GWP G10]."""
        lease = made.lease
        check_names([*lease.checkpoint, *lease.restored], "checkpoint", "stage_in")
        if lease.restored:
            if blobs is None:
                raise StageError("stage_in", "this pilot has no way to the checkpoint of the task")
            checkpoint.restore(made.cwd, lease.restored, blobs, self.facts.umask)
        made.before = checkpoint.look(made.cwd, lease.checkpoint)
        made.own["SHOAL_PART"] = str(lease.part)

    def _surround(self, made: Prepared, name: str) -> None:
        """Put a script before the command: set-up lines, then perhaps a container."""
        lease, folder = made.lease, os.path.join(self.facts.work, "scripts")
        which = hashlib.sha256(self.facts.work.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        made.start_stage = start_stage = StartStage(
            os.path.join(folder, name + ".at"), tuple(lease.setup), lease.container, f"shoal-{name}-{which}"
        )
        if lease.container:
            seen = [lease.cwd] if made.sees else []
            emits = made.own.get("SHOAL_EMIT", "")
            if emits:
                open(emits, "ab").close()  # it is there when it is bound into the container
            files = [
                path for path in (made.own.get("SHOAL_TAGS", ""), emits, made.script) if path and os.path.exists(path)
            ]
            request = container.ContainerRequest(
                made.argv, made.cwd, "".join(seen), list(dict.fromkeys([made.cwd, *seen])),
                files, lease.env, lease.room.gpus, lease.room.memory, made.stdin is not None,
            )  # fmt: skip
            then = container.become(start_stage, request)
        else:
            then = setup.run_command(start_stage.mark, made.argv)
        made.surround = os.path.join(folder, name + ".run")
        declared = sorted(lease.env) if made.base is self._poor else None
        _write_script(made.surround, setup.script(start_stage, then, declared))
        remove(start_stage.mark)
        made.argv = [setup.shell() if lease.setup else "/bin/sh", made.surround]

    def surroundings(self, lease: Lease, gpus: Sequence[int] = ()) -> tuple[dict[str, str], str]:
        """Environment and directory of the interpreter that makes calls; what is one task's own is not in it."""
        seen = self._see(lease.env_file)
        sees_cwd = self._sees_cwd(lease, seen)
        cwd = lease.cwd if sees_cwd and not lease.own else os.path.join(self.facts.work, "calls")
        if cwd != lease.cwd:
            os.makedirs(cwd, mode=0o700, exist_ok=True)
        own = self._own(lease, cwd, gpus)
        for name in ("SHOAL_RUN", "SHOAL_TASK", "SHOAL_ATTEMPT"):
            del own[name]
        return {**(self._submitters(seen) if seen else self._poor).values, **own}, cwd

    def _own(self, lease: Lease, cwd: str, gpus: Sequence[int]) -> dict[str, str]:
        env = {"PWD": cwd, "OMP_NUM_THREADS": str(lease.room.cores), **lease.env}
        which = parse_attempt(lease.attempt)
        env["SHOAL_RUN"] = run_text(which.run)
        env["SHOAL_TASK"] = str(which.task)
        env["SHOAL_ATTEMPT"] = which.text
        if self.facts.server:
            env.setdefault("SHOAL_TASK_SERVER", self.facts.server)
        if lease.attempt in self.pipes:
            env["SHOAL_TAGS"] = self.pipes[lease.attempt]
        if self.emits:
            env["SHOAL_EMIT"] = os.path.join(self.emits, file_name(which))
        if gpus:
            names = self.facts.devices
            env["CUDA_VISIBLE_DEVICES"] = ",".join(names[at] if at < len(names) else str(at) for at in gpus)
        return env

    def _submitters(self, found: _Version) -> Environment:
        """The submitter's environment from its file, without the variables that we set; the last few are kept."""
        known = self._environments.get(found)
        if known is not None:
            return known
        path = found[0]
        try:
            with open(path, encoding="utf-8") as file:
                env = json.load(file)
        except (OSError, ValueError) as error:
            raise StageError("stage_in", f"cannot read the submitter's environment {path}: {error}") from None
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise StageError("stage_in", f"the submitter's environment {path} is not an object of texts")
        values = {name: value for name, value in env.items() if not name.startswith("SHOAL_")}
        made = self._environments[found] = Environment(next(self._numbers), values)
        while len(self._environments) > _ENVIRONMENTS_KEPT:
            self._environments.popitem(last=False)
        return made

    def _sees_cwd(self, lease: Lease, seen: Optional[_Version]) -> bool:
        """True if the submitter's directory is the same here: by the evidence on it; without any, if their environment is."""
        if not lease.cwd:
            return False
        found = self.visibility.covers(lease.visible, lease.cwd)
        return seen is not None if found is None else found

    def _see(self, path: str) -> Optional[_Version]:
        """The present version of the submitter's environment file, which proves that this host sees their files; or None."""
        try:
            found = _version(path)
            if self._seen.get(path) == found:
                return found
            if not os.access(path, os.R_OK):
                return None
            named = _BY_DIGEST.fullmatch(os.path.basename(path))
            if named is not None:
                # The same path on another host may be another file: only the bytes that it is named for count.
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                with open(fd, "rb") as file:
                    if hashlib.sha256(file.read(MAX_BODY)).hexdigest() != named[1]:
                        return None
        except OSError:
            return None
        if len(self._seen) >= _ENVIRONMENTS_KEPT:
            self._seen.clear()
        self._seen[path] = found
        return found

    # --- after
    def collect(self, made: Prepared, blobs: Optional[Blobs] = None) -> str:
        """Bring the declared outputs of a successful attempt where they belong (`Outputs`)."""
        try:
            return self._outputs.collect(made, blobs)
        except StageError:
            self._drop_parts(made)
            raise

    def sizes(self, made: Prepared, kept: str) -> list[int]:
        """The size of each output, in the order of the lease; none if `kept`, which `collect` returned, has them."""
        if kept:
            return []
        base = made.lease.cwd
        paths = (
            [part for part, _ in made.parts] if made.own_dir else [os.path.join(base, n) for n in made.lease.outputs]
        )
        return [size_of(path) if os.path.isdir(path) else os.path.getsize(path) for path in paths]

    def moved_out(self, made: Prepared, kept: str) -> tuple[int, int]:
        """How many files an attempt's outputs are, and their bytes; `kept` is what `collect` returned."""
        sizes = [file.size for file in unpack(kept).values() if not file.url.startswith(f"{FILE}:")]  # which are parts
        for part, _ in made.parts:
            with contextlib.suppress(OSError):
                sizes.append(os.path.getsize(part))
        return len(sizes), sum(sizes)

    def new_files(self, made: Prepared) -> list[str]:
        """Files in an own directory that are neither inputs nor outputs: the first hundred."""
        known, outputs = set(made.brought), frozenset(made.lease.outputs)
        found: list[str] = []
        if made.own_dir:
            for folder, _, files in os.walk(made.own_dir):
                inner = os.path.relpath(folder, made.own_dir)
                for file in files:
                    name = os.path.normpath(os.path.join(inner, file))
                    if name not in known and not is_written(name, outputs):
                        found.append(name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore"))
                        if len(found) == _NEW_FILES:
                            return sorted(found)
        return sorted(found)

    def settle(self, made: Prepared, accepted: bool) -> list[str]:
        """Publish or remove outputs as the server decided, and everything else. Returns what went wrong."""
        wrong = []
        if accepted:
            for part, final in made.parts:
                try:
                    os.replace(part, final)
                    remove(part)  # which stays where both are names of one file
                except OSError as error:
                    wrong.append(f"output {final} could not be put into place: {error.strerror}")
            made.parts = []
        self._drop_parts(made)
        self._remove(made)
        return wrong

    def _drop_parts(self, made: Prepared) -> None:
        for part, _ in made.parts:
            remove(part)
        made.parts = []

    def _remove(self, made: Prepared) -> None:
        mark = made.start_stage.mark if made.start_stage is not None else ""
        for path in (made.script, made.surround, mark, made.stdin_file):
            if path:
                remove(path)
        if made.stdin_blob and self._blobs is not None:
            self._blobs.free(made.stdin_blob)
            made.stdin_blob = ""
        if made.own_dir:
            remove_tree(made.own_dir)


def _version(path: str) -> _Version:
    """A file as it is now: another where it was written or replaced since."""
    found = os.stat(path)
    return path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _file_name(attempt: str) -> str:
    """An attempt as a file name without characters that are special to tools."""
    return attempt.replace("#", "-").replace("@", "-")


def _write_script(path: str, text: str) -> None:
    _write_private(path, text.encode("utf-8", "surrogateescape") + b"\n", 0o700)


def _write_private(path: str, data: bytes, mode: int = 0o600) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    remove(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(fd, "wb") as file:
        file.write(data)


def _failed(failures: Sequence[Failure]) -> dict[str, str]:
    """Places that did not give files to tasks of this pilot lately: the first of them, to be reported."""
    found: dict[str, str] = {}
    for one in failures:
        if len(found) < MAX_FAILED_PLACES:
            found.setdefault(f"{one.place.kind} {one.place.name}"[:MAX_PLACE_TEXT], one.why[:MAX_PLACE_TEXT])
    return found


def _rewritten(lease: Lease) -> frozenset[str]:
    """Files and directories that a task writes: an input there is the task's own copy."""
    return frozenset((*lease.outputs, *lease.checkpoint))


def _folders_of(name: str) -> list[str]:
    """The directories that a file is in."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


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
