"""The outputs that a run's tasks left on the server: which there are, and how they come into a directory [ADR 0046].

Their names come from pilots, so only those count that the tasks declared. A file is written beside its place and renamed;
one that is there already with the same bytes is left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from shoal.cli.output.whole_file import file_to_replace
from shoal.cli.session import say
from shoal.client.client import Client
from shoal.client.config import echo_path
from shoal.model.errors import Refused
from shoal.model.file_names import beside
from shoal.model.ids import run_text, target_of
from shoal.model.quantities import many, show_size
from shoal.model.task.content import Content
from shoal.model.task.kept_files import KeptFile, declared, unpack
from shoal.model.task.sweep import Value, fill
from shoal.model.task.url_input import place_of
from shoal.report.data_source import OUTCOME, Source
from shoal.wire.task import parse_spec

TELL_EVERY = 3.0  # seconds between two lines about files that are being fetched
_ELEMENT, _RESULT, _ENDED = (OUTCOME.index(name) for name in ("element", "result", "ended"))
_CLOCKS = 1.0  # seconds by which the clocks of two hosts may differ


class Output(NamedTuple):
    """One output of a task that is on the server."""

    task: str
    name: str
    file: KeptFile
    ended: float  # when its task did
    place: str = ""  # where it is to be stored from here, instead of in a directory


class Fetched(NamedTuple):
    """What was fetched."""

    files: int
    size: int
    same: int  # files that were there already
    newer: int  # files that were there already, with other bytes, and were written later: they are left alone
    stored: int = 0  # files that were stored at the places which the task names for them


def outputs_of(source: Source, run: str, patterns: Sequence[str] = ()) -> Iterator[Output]:
    """The outputs of a run that are on the server, in the order of its tasks; `patterns`: those whose names fit one."""
    specs = sorted(
        ((int(array["first"]), parse_spec(array["task"])) for array in source.run(run)["arrays"]),
        key=lambda one: one[0],
    )
    if not any(spec.outputs for _, spec in specs):
        return
    for outcome in source.outcomes(run, values=True):
        kept = unpack(outcome[_RESULT] or "")
        if not kept:
            continue
        element = int(outcome[_ELEMENT])
        first, spec = next(one for one in reversed(specs) if one[0] <= element)
        params = spec.sweep.at(element - first) if spec.sweep is not None else None

        def filled(text: str, params: dict[str, Value] | None = params) -> str:
            return fill(text, params) if params is not None else text

        store = {filled(name): filled(place) for name, place in spec.store.items()}
        for output in dict.fromkeys(map(filled, spec.outputs)):
            for name, file in declared(kept, [output]).items():
                if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                    place = place_of(store, output, name) if not file.url else None
                    ended = float(outcome[_ENDED] or 0.0)
                    is_ours = place is not None and place.is_remote  # a pilot of an older version stores nothing
                    yield Output(
                        f"{run}.{element}", name, file, ended, place.url if place is not None and is_ours else ""
                    )


def fetch(
    client: Client, outputs: Iterator[Output], folder: str, tell: Callable[[Fetched], None], replaces: bool = False
) -> Fetched:
    """Bring outputs into a directory. A file there that was written after the task ended is another run's or a person's, and is
    replaced only on demand."""
    done = Fetched(0, 0, 0, 0)
    for output in outputs:
        path = os.path.join(folder, output.name)
        if output.file.url:
            done = done._replace(stored=done.stored + 1)  # by the pilot
        elif output.place:
            done = _store(client, output, done, replaces)
        elif _is_same(path, output.file):
            done = done._replace(same=done.same + 1)
        elif not replaces and _is_newer(path, output.ended):
            done = done._replace(newer=done.newer + 1)
        else:
            _write(client, output, path)
            done = done._replace(files=done.files + 1, size=done.size + output.file.size)
        tell(done)
    return done


def _store(client: Client, output: Output, done: Fetched, replaces: bool) -> Fetched:
    """Bring an output to a URL that pilots do not write to."""
    from shoal.storage.fsspec_files import is_stored, write_from  # few runs have any

    if not replaces and is_stored(output.place, output.file.size, output.ended):
        return done._replace(same=done.same + 1)
    with tempfile.TemporaryFile() as file:
        client.save_blob(output.file.digest, file)
        file.seek(0)
        write_from(output.place, file)
    return done._replace(stored=done.stored + 1, size=done.size + output.file.size)


def _is_newer(path: str, ended: float) -> bool:
    try:
        return os.stat(path).st_mtime > ended + _CLOCKS
    except OSError:
        return False


def _is_same(path: str, file: KeptFile) -> bool:
    try:
        if os.path.getsize(path) != file.size or not os.path.isfile(path):  # to open a pipe might take for ever
            return False
        with open(path, "rb") as found:
            return f"sha256:{hashlib.file_digest(found, 'sha256').hexdigest()}" == file.digest
    except OSError:
        return False


def _write(client: Client, output: Output, path: str) -> None:
    part = ""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        place = file_to_replace(path)
        if place is None:
            message = f"{echo_path(output.name)} of {output.task} is here no plain file"
            raise Refused(message, code="not_written", hint="choose another directory: --to DIR")
        part = beside(place, f"{os.getpid()}.part")
        with open(part, "xb") as file:
            client.save_blob(output.file.digest, file)
            os.chmod(file.fileno(), output.file.mode & ~_umask())
        # By its date a file shows, to `--resume`, too, which task it is from.
        os.utime(part, (output.ended, output.ended))
        os.replace(part, place)
    except OSError as error:
        message = f"{echo_path(output.name)} of {output.task} cannot be written: {error.strerror}"
        raise Refused(message, code="not_written", hint=_advice(error)) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make space or choose another directory: --to DIR"
    if error.errno == errno.ENAMETOOLONG:
        return "choose a directory with a shorter path, or on a file system that takes longer names: --to DIR"
    return "choose another directory: --to DIR"


class KeptContents:
    """What earlier runs and tasks that have ended left on the server, as the field `content` has it. Each run is read once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left: dict[str, dict[str, str]] = {}  # run that was read, or task of one -> name -> content

    def of(self, names: Iterable[str]) -> Mapping[str, str]:
        """That of these runs and tasks; of one name the last."""
        parts = [self._of(name) for name in names]
        return parts[0] if len(parts) == 1 else dict(item for part in parts for item in part.items())

    def _of(self, name: str) -> dict[str, str]:
        target = target_of(name)
        if target is None:
            return {}
        run = run_text(target if isinstance(target, int) else target.run)
        if run not in self._left:
            whole = self._left[run] = {}
            for output in outputs_of(self._source, run):
                file = output.file
                if not file.url:
                    text = Content(file.digest, file.mode, file.size).text
                    whole[output.name] = self._left.setdefault(output.task, {})[output.name] = text
        return self._left.get(name, {})


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def fetch_outputs(
    client: Client, source: Source, run: str, folder: str, patterns: Sequence[str] = (), replaces: bool = False
) -> Fetched:
    """Bring the outputs of a run into a directory."""
    told = time.monotonic()

    def tell(done: Fetched) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            say(f"fetching outputs: {many(done.files, 'file')} so far, {show_size(done.size)}")

    return fetch(client, outputs_of(source, run, patterns), folder, tell, replaces)
