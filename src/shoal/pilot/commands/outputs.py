"""What a successful attempt wrote, brought where it belongs: beside its final path in the submitter's directory, to the server
where that is not seen, or to the place that the task names for it. Published it is when the server has accepted the report."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional
from urllib.parse import quote

from shoal.data.sources import Rule, places_of
from shoal.model.errors import BadInput
from shoal.model.file_names import beside
from shoal.model.ids import parse_attempt, run_text
from shoal.model.limits import MAX_DIRECTORY
from shoal.model.task.kept_files import KeptFile, pack
from shoal.model.task.url_input import FILE, STORAGE, UrlInput, place_of
from shoal.pilot.commands.files import StageError, carry, check_single, make_folders, open_below
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.files.parts import PIECE
from shoal.pilot.uplink.blobs import Blobs

if TYPE_CHECKING:
    from shoal.pilot.commands.staging import Prepared


class Outputs:
    """Collects outputs; different attempts may be handled by different threads."""

    def __init__(self, umask: int, storage: Sequence[Rule]) -> None:
        """`storage`: where the site keeps files, by their names."""
        self._umask, self._storage = umask, storage

    def collect(self, made: Prepared, blobs: Optional[Blobs]) -> str:
        """Bring all outputs away from the attempt's own directory; they must be there. Returns what the result of the task says
        of those that are not in the submitter's directory (`model/task/kept_files`)."""
        lease = made.lease
        if not made.own_dir:
            for name in lease.outputs:
                if not os.path.exists(os.path.join(lease.cwd, name)):
                    raise StageError("output_missing", f"output {name} was not written")
            return _send_on(made, blobs) if lease.sent_on else ""
        files = [(output, file) for output in lease.outputs for file in _files_in(made.own_dir, output)]
        for _, file in files:
            with open_below(made.own_dir, file, "output"):
                pass  # all of them, before the first is moved
        kept = {}
        for output, file in files:
            place = _place(lease.store, output, file)
            if place is not None and not place.is_remote:
                kept[file] = self._store(made, file, place)
            elif place is not None or not made.sees:
                kept[file] = _keep(made, file, blobs)
            else:
                if lease.sent_on:
                    kept[file] = _keep(made, file, blobs)  # first: it may be moved
                self._carry(made, file, os.path.join(lease.cwd, file))
        if made.sees:
            self._make_empty(made)
        try:
            return pack(kept) if kept else ""
        except ValueError as error:
            raise StageError("stage_out", str(error)) from None

    def _carry(self, made: Prepared, file: str, final: str) -> None:
        part = part_of(final, made.lease.attempt)
        made.parts.append((part, final))
        carry(made.own_dir, file, part, self._umask)

    def _make_empty(self, made: Prepared) -> None:
        """Make outputs that are directories without files."""
        for output in made.lease.outputs:
            if output not in made.lease.store and _is_directory(os.path.join(made.own_dir, output)):
                with contextlib.suppress(OSError):
                    make_folders(os.path.join(made.lease.cwd, output), self._umask)

    def _store(self, made: Prepared, file: str, place: UrlInput) -> KeptFile:
        """Bring one file to the place that the task names for it: under another name first, where there are names."""
        target = place.url
        if place.scheme == STORAGE:
            target = next(iter(places_of(place.url, self._storage)), "")
            if not target:
                why = "this site has no storage for it (--storage of `shoal pilot start` and `shoal site set`)"
                raise StageError("stage_out", f"output {file} cannot be stored as {place.url}: {why}")
        with open_below(made.own_dir, file, "output") as fd:
            found = check_single(fd, file)
            kept = KeptFile(_digest(fd), found.st_size, stat.S_IMODE(found.st_mode) & 0o777, _url(target))
            if not target.startswith("/"):
                from shoal.pilot.files.upload import store  # few tasks store anything

                try:
                    store(target, fd)
                except NoBlob as error:
                    raise StageError("stage_out", f"output {file} cannot be stored: {error}") from None
        if target.startswith("/"):
            self._carry(made, file, target)
        return kept


def part_of(final: str, attempt: str) -> str:
    """The file that an attempt writes before it gets its final name."""
    return beside(final, f"{parse_attempt(attempt).text.replace('#', '-')}.part")


def _send_on(made: Prepared, blobs: Optional[Blobs]) -> str:
    """Leave outputs that were written into the submitter's directory on the server, too. Links of its own there are the person's:
    what they lead to is read; only what is no file then stays where it is."""
    cwd = made.lease.cwd
    files = [file for output in made.lease.outputs for file in _files_in(cwd, output)]
    kept = {file: _keep(made, file, blobs) for file in files if os.path.isfile(os.path.join(cwd, file))}
    try:
        return pack(kept) if kept else ""
    except ValueError as error:
        raise StageError("stage_out", str(error)) from None


def _keep(made: Prepared, file: str, blobs: Optional[Blobs]) -> KeptFile:
    """Leave one file on the server."""
    if blobs is None:
        raise StageError("stage_out", "this pilot has no way to keep outputs")
    try:
        with _open_output(made, file) as fd:
            found = check_single(fd, file) if made.own_dir else os.fstat(fd)
            run = run_text(parse_attempt(made.lease.attempt).run)
            digest = blobs.store_file(fd, run)
            if made.lease.shared:
                blobs.keep_here(fd, digest)
            return KeptFile(digest, found.st_size, found.st_mode & 0o777)
    except NoBlob as error:
        raise StageError("stage_out", f"output {file} cannot be kept on the server: {error}") from None


def _open_output(made: Prepared, file: str) -> contextlib.AbstractContextManager[int]:
    if made.own_dir:
        return open_below(made.own_dir, file, "output")
    found = os.path.realpath(os.path.join(made.lease.cwd, file))
    return open_below(os.path.dirname(found), os.path.basename(found), "output")


def _place(store: dict[str, str], output: str, file: str) -> Optional[UrlInput]:
    try:
        return place_of(store, output, file)
    except BadInput as error:  # as its parameters were filled in
        raise StageError("stage_out", f"output {file} cannot be stored: {error.message}") from None


def _url(target: str) -> str:
    """A path or URL as the result has it: without spaces."""
    return f"{FILE}://{quote(target)}" if target.startswith("/") else target


def _files_in(own_dir: str, output: str) -> list[str]:
    """The names of all files of an output: itself, or all that is in a directory. Links are listed, too, and refused later."""
    top = os.path.join(own_dir, output)
    if not _is_directory(top):
        return [output]
    found: list[str] = []
    for folder, folders, files in os.walk(top):
        at = os.path.relpath(folder, own_dir)
        linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        found += [os.path.normpath(os.path.join(at, name)) for name in (*files, *linked)]
        if len(found) > MAX_DIRECTORY:
            raise StageError("stage_out", f"output {output} has more than {MAX_DIRECTORY:,} files: pack it into one")
    return sorted(found)


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _digest(fd: int) -> str:
    found = hashlib.sha256()
    for data in _pieces(fd):
        found.update(data)
    return f"sha256:{found.hexdigest()}"


def _pieces(fd: int) -> Iterator[bytes]:
    at = 0
    while data := os.pread(fd, PIECE, at):
        yield data
        at += len(data)
