"""The outputs that a run's tasks left on the server: which there are, and how they come into a directory [ADR 0046].

Their names come from pilots, so only those count that the tasks declared. A file is written beside its place and renamed;
one that is there already with the same bytes is left as it is.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shoal.cli.session import say
from shoal.client.client import Client
from shoal.client.config import echo_path
from shoal.model.errors import Refused
from shoal.model.quantities import many, show_size
from shoal.model.task.kept_files import KeptFile, unpack
from shoal.model.task.sweep import fill
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


class Fetched(NamedTuple):
    """What was fetched."""

    files: int
    size: int
    same: int  # files that were there already
    newer: int  # files that were there already, with other bytes, and were written later: they are left alone


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
        for text in spec.outputs:
            name = fill(text, params) if params is not None else text
            if name in kept and (not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)):
                yield Output(f"{run}.{element}", name, kept[name], float(outcome[_ENDED] or 0.0))


def fetch(
    client: Client, outputs: Iterator[Output], folder: str, tell: Callable[[Fetched], None], replaces: bool = False
) -> Fetched:
    """Bring outputs into a directory. A file there that was written after the task ended is another run's or a person's, and is
    replaced only on demand."""
    done = Fetched(0, 0, 0, 0)
    for output in outputs:
        path = os.path.join(folder, output.name)
        if _is_same(path, output.file):
            done = done._replace(same=done.same + 1)
        elif not replaces and _is_newer(path, output.ended):
            done = done._replace(newer=done.newer + 1)
        else:
            _write(client, output, path)
            done = done._replace(files=done.files + 1, size=done.size + output.file.size)
        tell(done)
    return done


def _is_newer(path: str, ended: float) -> bool:
    try:
        return os.stat(path).st_mtime > ended + _CLOCKS
    except OSError:
        return False


def _is_same(path: str, file: KeptFile) -> bool:
    try:
        if os.path.getsize(path) != file.size:
            return False
        with open(path, "rb") as found:
            return f"sha256:{hashlib.file_digest(found, 'sha256').hexdigest()}" == file.digest
    except OSError:
        return False


def _write(client: Client, output: Output, path: str) -> None:
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "xb") as file:
            client.save_blob(output.file.digest, file)
            os.chmod(file.fileno(), output.file.mode & ~_umask())
        # By its date a file shows, to `--resume`, too, which task it is from.
        os.utime(part, (output.ended, output.ended))
        os.replace(part, path)
    except OSError as error:
        message = f"{echo_path(output.name)} of {output.task} cannot be written: {error.strerror}"
        raise Refused(message, code="not_written", hint="make space or choose another directory: --to DIR") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


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
