"""Files between the submitter's directory and an attempt's own: in by link or copy, out by move or copy.

A path below an own directory is walked part by part without following symbolic links: a task may have put
anything there [security S11].
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
from collections.abc import Iterator, Sequence
from typing import Optional

from shoal.model.file_names import beside
from shoal.model.task.kept_files import is_written
from shoal.pilot.commands.streams import remove
from shoal.pilot.files.parts import Held
from shoal.pilot.host import disk_space

LINKED = 1 << 20  # bytes; a smaller file is copied, and the task may write to it
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class StageError(Exception):
    """Files could not be brought in or out; `cause` as in model.states."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class NoSpace(StageError):
    """There is no space for files that had to be written: the host's failure, not the task's."""

    def __init__(self, folder: str, error: OSError, doing: str) -> None:
        super().__init__("host_unfit", disk_space.no_space(folder, error.errno or 0, doing))


class TooLarge(StageError):
    """An input does not fit on this host, which is fit for other tasks."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__("stage_in", f"input {path} is too large for {socket.gethostname()}: {why}")


class NotSent(StageError):
    """An input is only where the submitter's files are: it was written there, or was not declared when the task was sent."""

    def __init__(self, path: str) -> None:
        super().__init__(
            "stage_in", f"this host cannot see the submitter's files: of input {path} its content was not sent along"
        )


class NotVisible(StageError):
    """This host does not see files of the submitter that the task needs: it is given back, and goes elsewhere."""

    def __init__(self, path: str) -> None:
        super().__init__("", not_visible(path))


def not_visible(path: str) -> str:
    """The message of a pilot that does not see a path of the submitter."""
    return f"this host does not see {path} as its submitter does"


def bring(path: str, base: str, own_dir: str, rewritten: frozenset[str] = frozenset()) -> str:
    """Put one input into the own directory; returns its name there. `rewritten` are never linked, nor is what is in them."""
    source = os.path.realpath(os.path.join(base, path))
    try:
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise StageError("stage_in", f"input {path} is no plain file or directory")
        name, target = _place_input(path, own_dir)
        # What the task is going to rewrite must not be the submitter's own file.
        if is_written(name, rewritten) or not _link(source, target):
            shutil.copyfile(source, target)
            shutil.copystat(source, target)
    except FileNotFoundError:
        raise StageError("stage_in", f"input {path} does not exist") from None
    except OSError as error:
        if disk_space.is_full(error):
            raise NoSpace(own_dir, error, f"input {path} was brought in") from None
        raise StageError("stage_in", f"input {path} cannot be brought in: {error.strerror or error}") from None
    return name


def inputs_in(path: str, base: str) -> list[str]:
    """The names of all files in an input that is a directory, and of the empty directories in it with a slash at the end; the
    name itself if it is no directory. What cannot be brought in is refused: links to directories may lead anywhere, and round in
    circles."""
    top, found = os.path.join(base, path), []
    if not os.path.isdir(top):
        return [path]
    for folder, folders, files in os.walk(top, onerror=_refuse_unreadable):
        at = os.path.normpath(os.path.join(path, os.path.relpath(folder, top)))
        linked = next((name for name in sorted(folders) if os.path.islink(os.path.join(folder, name))), None)
        if linked is not None:
            raise StageError(
                "stage_in",
                f"input {os.path.join(at, linked)} is a link to a directory: name what it leads to as an input of its own",
            )
        found += [os.path.join(at, name) for name in files] or ([] if folders else [at + "/"])
    return found


def _refuse_unreadable(error: OSError) -> None:
    raise StageError("stage_in", f"input {error.filename} cannot be brought in: {error.strerror}")


def make_directory(path: str, own_dir: str) -> None:
    """Make an empty directory that is an input, or a part of one."""
    os.makedirs(_place_input(path, own_dir)[1], mode=0o700)


def put_input(path: str, held: Held, own_dir: str, mode: int, rewritten: frozenset[str] = frozenset()) -> str:
    """Put an input that was fetched into the own directory; returns its name there. A large one is the very file of the cache
    if the task cannot write to it: then it costs neither time nor space [CMS C4]. Any other is the task's own copy."""
    try:
        name, target = _place_input(path, own_dir)
        if held.is_private and _move_here(held.path, target):
            os.chmod(target, mode & 0o700 | 0o600)
            return name
        if (
            held.is_cached
            and held.size >= LINKED
            and os.getuid()
            and not mode & 0o100
            and not is_written(name, rewritten)
            and _link(held.path, target)
        ):
            return name
        source, free = held.path, disk_space.free(own_dir)
        if held.size > free:
            raise TooLarge(path, f"it has {held.size:,} bytes, and {free:,} are free for the task's own copy")
        with open(os.open(target, _NEW, 0o600), "wb") as writer, open(source, "rb") as reader:
            shutil.copyfileobj(reader, writer, 1 << 20)
            os.fchmod(writer.fileno(), mode & 0o700 | 0o600)
    except OSError as error:
        if disk_space.is_full(error):
            raise NoSpace(own_dir, error, f"input {path} was brought in") from None
        raise StageError("stage_in", f"input {path} cannot be brought in: {error.strerror or error}") from None
    return name


def _move_here(source: str, target: str) -> bool:
    try:
        os.rename(source, target)
    except OSError:  # another file system
        return False
    return True


def _place_input(path: str, own_dir: str) -> tuple[str, str]:
    """The name of an input in the own directory, and its path; its folder is made."""
    name = os.path.normpath(path)
    if os.path.isabs(path) or name.startswith(".."):
        name = os.path.basename(name)
    target = os.path.join(own_dir, name)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    if os.path.lexists(target):
        raise StageError("stage_in", f"two inputs are named {name}")
    return name, target


def _link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def make_stream_file(part: str, final: str, umask: int) -> None:
    """Make an empty file under two names, of which the second may have been another's; folders are made as needed."""
    make_folders(os.path.dirname(final), umask)
    remove(part)
    fd = os.open(part, _NEW, 0o600)
    try:
        os.fchmod(fd, 0o666 & ~umask)
    finally:
        os.close(fd)
    link = part + "-link"
    remove(link)
    if _link(part, link):
        os.replace(link, final)
    else:  # this file system has no links: the file gets its name when the attempt is over
        remove(final)


def check_names(names: Sequence[str], what: str, cause: str) -> None:
    """Raise StageError unless the files stay below their directory. The server checked them before parameters were filled in
    [security S11; input E46]."""
    for name in names:
        if name[:1] in ("", "/", "-") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise StageError(cause, f"{what}_refused: {name} is no path below the task's directory")


def carry(own_dir: str, name: str, part: str, umask: int) -> None:
    """Move one output from the own directory to its part file."""
    with _open_below(own_dir, name, "output") as (within, source):
        check_single(source, name)
        try:
            make_folders(os.path.dirname(part), umask)
            remove(part)
            _move(within, name.rpartition("/")[2], source, part)
        except OSError as error:
            if disk_space.is_full(error):
                raise NoSpace(os.path.dirname(part), error, f"output {name} was brought there") from None
            message = f"output {name} cannot be brought to {os.path.dirname(part)}: {error.strerror}"
            raise StageError("stage_out", message) from None


def check_single(fd: int, name: str) -> os.stat_result:
    """Refuse an output that is a second name of another file [input E47]; returns what is known of it."""
    found = os.fstat(fd)
    if found.st_uid != os.getuid() or found.st_nlink != 1:
        raise _refused(name, "a second name of another file")
    return found


@contextlib.contextmanager
def open_below(base: str, name: str, what: str) -> Iterator[int]:
    """A plain file below a directory, open; StageError where it is anything else, or is missing."""
    with _open_below(os.path.realpath(base), name, what) as (_, fd):
        yield fd


@contextlib.contextmanager
def _open_below(base: str, name: str, what: str) -> Iterator[tuple[int, int]]:
    """The folder that a plain file is in, and the file, both open, and all folders on the way to it."""
    *folders, last = name.split("/")
    with contextlib.ExitStack() as opened:
        try:
            within = _open(opened, base, _DIRECTORY)
            for folder in folders:
                within = _open(opened, folder, _DIRECTORY, within)
            fd = _open(opened, last, _FILE, within)
        except FileNotFoundError:
            raise StageError("output_missing", f"{what} {name} was not written") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                raise _refused(name, "a symbolic link or no plain file", what) from None
            raise StageError("stage_out", f"{what} {name} cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _refused(name, "no plain file", what)
        yield within, fd


def _open(opened: contextlib.ExitStack, name: str, flags: int, within: Optional[int] = None) -> int:
    fd = os.open(name, flags, dir_fd=within)
    opened.callback(os.close, fd)
    return fd


def put_below(base: str, name: str, source: str, umask: int, what: str) -> None:
    """Make a file below a directory, or write it anew, from another: all of it or nothing."""
    *folders, last = name.split("/")
    part = "." + beside(last, f"{os.getpid()}.part")
    with contextlib.ExitStack() as opened:
        try:
            within = _open(opened, os.path.realpath(base), _DIRECTORY)
            for folder in folders:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o777, dir_fd=within)
                    os.chmod(folder, 0o777 & ~umask, dir_fd=within)
                within = _open(opened, folder, _DIRECTORY, within)
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(last, dir_fd=within, follow_symlinks=False).st_mode):
                    raise StageError("stage_in", f"{what}_refused: {name} is a symbolic link or no plain file")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=within)
            try:
                with open(os.open(part, _NEW, 0o600, dir_fd=within), "wb") as writer, open(source, "rb") as reader:
                    shutil.copyfileobj(reader, writer, 1 << 20)
                    os.fchmod(writer.fileno(), 0o666 & ~umask)
                os.rename(part, last, src_dir_fd=within, dst_dir_fd=within)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=within)
                raise
        except OSError as error:
            message = f"{what} {name} cannot be written: {error.strerror}"
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                message = f"{what}_refused: {name} lies behind a symbolic link or no folder"
            raise StageError("stage_in", message) from None


def _move(within: int, name: str, source: int, part: str) -> None:
    try:
        os.rename(name, part, src_dir_fd=within)
        moved, checked = os.lstat(part), os.fstat(source)
        if (moved.st_dev, moved.st_ino) != (checked.st_dev, checked.st_ino):
            # The task put something else under the name after we had looked at it [CVE-2023-41914].
            os.unlink(part)
            raise _refused(name, "another file than it was")
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with open(os.open(part, _NEW, 0o600), "wb") as writer, open(os.dup(source), "rb") as reader:
            shutil.copyfileobj(reader, writer, 1 << 20)
            os.fchmod(writer.fileno(), stat.S_IMODE(os.fstat(source).st_mode) & 0o777)


def _refused(name: str, found: str, what: str = "output") -> StageError:
    return StageError("stage_out", f"{what}_refused: {name} is {found}")


def make_folders(path: str, umask: int) -> None:
    """Folders in the submitter's directory, with the rights that the submitter would give them."""
    if not path or os.path.isdir(path):
        return
    make_folders(os.path.dirname(path), umask)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, 0o777 & ~umask)


def remove_tree(path: str) -> None:
    """Remove a directory even where a task took away its own right to write into a part of it."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path):
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def size_of(folder: str) -> int:
    """Bytes on disk of all files below a directory; what vanishes meanwhile does not count."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_blocks * 512
    return total
