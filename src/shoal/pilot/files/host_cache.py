"""The cache of one host: files by their digest, shared by all pilots of one account on it [CMS C4].

The directory is the truth; no file beside it says what is in it, so a kill at any point leaves nothing to repair.

    lock          whoever changes the directory locks it, and notes the change in it (`lock_file`): others then look again
    limits        the latest that somebody asked for, for all pilots of the host
    files/HEX     a whole file; its time of access is its last use
    parts/HEX     one that is being written: as long as what was reserved for it, and locked by its writer

A file that somebody uses is locked, shared, so that nobody removes it; the kernel drops the lock with its holder. One with a
second link is in a task's directory, and stays as well: removing its name would free nothing. Every process compares a file
with its digest before it uses it for the first time, and again if it looks changed [promise I15].

No task and no pilot depends on the cache: where it cannot be used (its parts were removed, its file system has no locks, somebody
holds the lock for long), what is written there has no place (`NoRoom`), and what is asked of it is not there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from shoal.data.catalogue import Catalogue
from shoal.model.blobs import parse_digest
from shoal.model.file_systems import file_system, is_network
from shoal.pilot.files.lock_file import DIGEST, PART, append, held_for_long, read_number, read_since, wait_for_lock
from shoal.pilot.files.parts import FILE_MODE, FLAGS, FOLDER_MODE, PIECE, Held, NoRoom, Part, no_room
from shoal.wire.messages import TagValue

log = logging.getLogger(__name__)

DEFAULT_MOST, DEFAULT_RESERVE = 64 << 30, 2 << 30  # bytes; of a smaller disk the half, and a twentieth
LOCK_WITHIN = 30.0  # seconds: a pilot that was suspended while it held the lock must not stop all others of its host
LOOK_WITHIN = 0.05  # of the loop's thread, which looks again soon
FOLDER_VARIABLE = "SHOAL_CACHE_DIR"
_MEBI = 1 << 20
_HEX = re.compile(r"[0-9a-f]{64}")
_Look = tuple[int, int, int]  # inode, size and time of change


class Limits(NamedTuple):
    """How much of the disk the cache may use."""

    most: int
    reserve: int


class CachedFile(NamedTuple):
    """A file in the cache, for people."""

    digest: str
    size: int
    used: float
    is_in_use: bool


def find_folder(asked: Optional[str], work_dir: Optional[str], environ: Mapping[str, str]) -> str:
    """Where the cache of this host is: where it was asked for, beside the directories of pilots that somebody chose, or in
    /var/tmp, which outlives batch jobs, as TMPDIR does not. Where other hosts write to the same file system, each has its own."""
    asked = asked or environ.get(FOLDER_VARIABLE)
    folder = os.path.abspath(asked or os.path.join(work_dir or "/var/tmp", f"shoal-cache-{os.getuid()}"))
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        if is_network(file_system(os.path.realpath(os.path.dirname(folder)), file.read())):
            folder += f"-{socket.gethostname()}"
    return folder


class HostCache:
    """The cache of this host, for one pilot. May be used by several threads."""

    def __init__(self, folder: str, asked: Optional[Limits] = None, instead: str = "") -> None:
        """`asked`: limits that somebody asked for, which hold for all pilots of the host from now on; `instead`: a directory of
        this pilot's own, where the host's cannot be had. Nothing is made before the first file comes."""
        self.folder = folder
        self._asked, self._instead = asked, instead
        self._lock_fd = -1
        self._mutex = threading.Lock()
        self._seen = -1  # the number in `lock` when we looked at the directory last
        # What changed since `take_changes` was called last, as far as we looked; None: it may be everything.
        self._untold: Optional[set[str]] = None
        self._catalogue = Catalogue(0)
        self._verified: dict[str, _Look] = {}
        self._told: dict[str, int] = {}
        self._trouble = ""  # why the cache could not be looked at, as it was logged last

    def _is_there(self) -> bool:
        """True if there is a cache; then it is open."""
        if self._lock_fd >= 0:  # without waiting for another thread, which may wait for another pilot
            return True
        with self._mutex:
            if self._lock_fd < 0 and os.path.isdir(self._files):
                with contextlib.suppress(OSError):
                    self._make(self.folder)
            return self._lock_fd >= 0

    def _ensure(self) -> None:
        """Make the directory, or the one instead; NoRoom where there can be none."""
        with self._mutex:
            if self._lock_fd >= 0:
                return
            try:
                self._make(self.folder)
            except OSError as error:
                if not self._instead:
                    raise no_room(error, self.folder) from None
                log.warning("no cache for all pilots of this host: %s", error)
                self.folder, self._instead = self._instead, ""
                try:
                    self._make(self.folder)
                except OSError as error:
                    raise no_room(error, self.folder) from None

    def _make(self, folder: str) -> None:
        self._make_folders()
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | FLAGS, 0o600)
        try:
            with contextlib.suppress(BlockingIOError):  # who holds it shows that this file system has locks
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(fd, fcntl.LOCK_UN)
            if self._asked is not None:
                _write_whole(self._limits_file, f"{self._asked.most} {self._asked.reserve}\n".encode())
        except BaseException:
            os.close(fd)
            raise
        self._lock_fd = fd

    def _make_folders(self) -> None:
        for path in (self.folder, self._files, self._parts):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, FOLDER_MODE)
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
                raise PermissionError(errno.EACCES, f"{path} is not ours alone")

    @property
    def _files(self) -> str:
        return os.path.join(self.folder, "files")

    @property
    def _parts(self) -> str:
        return os.path.join(self.folder, "parts")

    @property
    def _limits_file(self) -> str:
        return os.path.join(self.folder, "limits")

    def close(self) -> None:
        """No further use."""
        with self._mutex:
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1

    # --- use
    def open(self, digest: str) -> Optional[Held]:
        """A file that the cache holds; None if it does not, also where it was damaged."""
        path, until = self._path(parse_digest(digest)), time.monotonic() + LOCK_WITHIN
        while self._is_there() and time.monotonic() < until:
            try:
                fd = os.open(path, os.O_RDONLY | FLAGS)
            except OSError:
                return None
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                found = os.fstat(fd)
                if found.st_nlink == 0:
                    raise BlockingIOError
            except BlockingIOError:  # it is being removed
                os.close(fd)
                time.sleep(0.001)
                continue
            except OSError:
                os.close(fd)
                return None
            look = _look(found)
            if self._verified.get(digest) != look:
                if _digest(fd) != digest:
                    self._remove_damaged(digest, path, fd)
                    os.close(fd)
                    return None
                self._verified[digest] = look
            with contextlib.suppress(OSError):  # the time of last use decides only what goes first
                os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))
            return Held(path, fd, found.st_size)
        return None

    def begin(self, digest: str, size: Optional[int]) -> Optional[Part]:
        """Begin to write a file; None: another thread or pilot writes it now. NoRoom where it has no place."""
        name = parse_digest(digest).partition(":")[2]
        self._ensure()
        path = os.path.join(self._parts, name)
        with self._needed():
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
            except FileExistsError:
                self._scan()  # which removes what a dead pilot began
                try:
                    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
                except FileExistsError:
                    return None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._changed(_part(digest))
                self._reserve(digest, fd, size or 0)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                os.close(fd)
                self._catalogue.remove(_part(digest))
                raise
        return Part(self, digest, path, fd, size)

    # --- for parts
    def reserve(self, digest: str, fd: int, size: int) -> None:
        """Make place for a file that is being written, up to this size; NoRoom leaves everything as it is."""
        with self._needed():
            self._reserve(digest, fd, size)

    def _reserve(self, digest: str, fd: int, size: int) -> None:
        self._look_again()
        self._measure()
        key = _part(digest)
        if self._catalogue.get(key) is None:
            self._catalogue.admit(key, 0, time.time())
            self._catalogue.pin(key)
        if self._catalogue.held + size > self._catalogue.space:
            self._scan()  # others may have used files since, which then stay
            self._measure()
        with contextlib.ExitStack() as locked:
            free: set[str] = set()
            while True:
                entry = self._catalogue.get(key)
                going = self._catalogue.going(size - (entry.size if entry is not None else 0), key)
                if going is None:
                    have, held = self._catalogue.space, self._catalogue.held
                    raise NoRoom(f"the cache {self.folder} may hold {have:,} bytes, of which {held:,} are held")
                tried = next((digest for digest in going if digest not in free), None)
                if tried is None:
                    break
                if self._lock_unused(tried, locked):
                    free.add(tried)
                else:
                    self._catalogue.pin(tried)  # others must go
            for digest in going:
                self._remove(digest)
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise no_room(error, self.folder) from None
        self._catalogue.admit(key, size, time.time())
        self._changed(key)

    def _lock_unused(self, digest: str, locked: contextlib.ExitStack) -> bool:
        """Keep others from beginning to use a file; False: somebody uses it."""
        try:
            fd = os.open(self._path(digest), os.O_RDONLY | FLAGS)
        except OSError:
            return True  # it is gone already
        locked.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return os.fstat(fd).st_nlink == 1

    def _remove(self, digest: str) -> None:
        """Remove a file that nobody can begin to use."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(digest))
        self._catalogue.remove(digest)
        self._verified.pop(digest, None)
        self._changed(digest)

    def _path(self, digest: str, folder: str = "") -> str:
        return os.path.join(folder or self._files, digest.partition(":")[2])

    def commit(self, digest: str, part: str, fd: int, size: int) -> Held:
        """Give a whole file with verified bytes its name."""
        path = self._path(digest)
        try:
            os.ftruncate(fd, size)
            os.fchmod(fd, FILE_MODE)
            os.utime(fd, ns=(time.time_ns(), time.time_ns()))  # finer than what the kernel writes by itself
            os.fsync(fd)
            with self._locked():
                self._look_again()
                os.rename(part, path)
                fcntl.flock(fd, fcntl.LOCK_SH)
                self._catalogue.remove(_part(digest))
                self._catalogue.remove(digest)  # a damaged one that was there
                self._catalogue.admit(digest, size, time.time())
                self._changed(_part(digest))
                self._changed(digest)
        except OSError as error:
            raise no_room(error, self.folder) from None
        self._verified[digest] = _look(os.fstat(fd))
        return Held(path, fd, size)

    def drop(self, digest: str, part: str, fd: int) -> None:
        """Give up a file that was being written."""
        try:
            with self._locked():
                with contextlib.suppress(OSError):
                    os.unlink(part)
                self._catalogue.remove(_part(digest))
                self._changed(_part(digest))
        except OSError:  # it is abandoned once it is closed, and goes when somebody looks
            pass
        finally:
            os.close(fd)

    def _remove_damaged(self, digest: str, path: str, fd: int) -> None:
        with contextlib.suppress(OSError), self._locked():
            self._look_again()
            with contextlib.suppress(OSError):
                if os.lstat(path).st_ino == os.fstat(fd).st_ino:
                    os.unlink(path)
            self._catalogue.remove(digest)
            self._changed(digest)

    # --- what is there
    def take_changes(self) -> tuple[list[tuple[str, int]], list[str]]:
        """The files that came into the cache of this host since the last call, with their sizes, and those of which the last link
        is gone; the first call gives all [CMS IV.D]. While the cache cannot be looked at, nothing changes."""
        now: dict[str, int] = {}
        untold: Optional[set[str]] = None
        try:
            if self._is_there():
                with self._locked(LOOK_WITHIN):
                    self._look_again()
                    untold, self._untold = self._untold, set()
                    now = dict(self._whole(untold))
        except OSError as error:
            self._complain(error)
            return [], []
        added = [(digest, size) for digest, size in now.items() if self._told.get(digest) != size]
        removed = [digest for digest in (self._told if untold is None else untold) if digest not in now]
        removed = [digest for digest in removed if self._told.pop(digest, None) is not None]
        self._told.update(added)
        return added, removed

    def limits(self) -> Limits:
        """What holds for this host: what was asked for last, else a part of the disk."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._limits_file, encoding="ascii") as file:
                most, reserve = map(int, file.read().split())
            return Limits(most, reserve)
        if self._asked is not None:
            return self._asked
        disk = os.statvfs(self.folder)
        total = disk.f_blocks * disk.f_frsize
        return Limits(min(DEFAULT_MOST, total // 2), min(DEFAULT_RESERVE, total // 20))

    def space(self) -> tuple[int, int, int]:
        """Bytes that are held, that may be held, and that are free on the disk."""
        if not self._is_there():
            return 0, 0, 0
        with self._locked():
            self._scan()
            free = self._measure()
            return self._catalogue.held, self._catalogue.space, free

    def tags(self) -> dict[str, TagValue]:
        """What describes the cache to the server; nothing before there is one."""
        if not self._is_there():
            return {}
        try:
            with self._locked(LOOK_WITHIN):
                self._look_again()
                self._measure()
                held, space = self._catalogue.held, self._catalogue.space
                files = sum(1 for _ in self._whole())
        except OSError as error:
            self._complain(error)
            return {}
        return {"cache_mb": held // _MEBI, "cache_space_mb": space // _MEBI, "cache_files": files}

    def listing(self) -> list[CachedFile]:
        """All whole files, those that were used last first."""
        found: list[CachedFile] = []
        if not self._is_there():
            return found
        with self._locked():
            self._scan()
            for digest, size in self._whole():
                entry = self._catalogue.get(digest)
                with contextlib.ExitStack() as locked:
                    is_in_use = not self._lock_unused(digest, locked)
                found.append(CachedFile(digest, size, entry.used if entry is not None else 0.0, is_in_use))
        return sorted(found, key=lambda one: -one.used)

    def clean(self, unused_since: float) -> tuple[int, int]:
        """Remove files that nobody uses, and nobody used since; returns how many there were, and their bytes."""
        count = size = 0
        if not self._is_there():
            return count, size
        with self._locked():
            self._scan()
            for digest in [digest for digest, _ in self._whole()]:
                entry = self._catalogue.get(digest)
                if entry is None or entry.used > unused_since:
                    continue
                with contextlib.ExitStack() as locked:
                    if self._lock_unused(digest, locked):
                        self._remove(digest)
                        count, size = count + 1, size + entry.size
        return count, size

    def _whole(self, names: Optional[set[str]] = None) -> Iterator[tuple[str, int]]:
        """The whole files, or those of them that have these names."""
        for key in self._catalogue if names is None else names:
            entry = self._catalogue.get(key)
            if not key.startswith(PART) and entry is not None:
                yield key, entry.size

    # --- the directory
    @contextlib.contextmanager
    def _locked(self, within: Optional[float] = None) -> Iterator[None]:
        """Have the directory to ourselves; OSError (also TimeoutError) where it cannot be had."""
        within = LOCK_WITHIN if within is None else within
        until = time.monotonic() + within
        if not self._mutex.acquire(timeout=within):
            raise held_for_long(self.folder)
        try:
            self._lock(until)
            try:
                if not (os.path.isdir(self._files) and os.path.isdir(self._parts)):  # somebody removed a part of it
                    self._make_folders()
                    self._seen = -1
                yield
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        finally:
            self._mutex.release()

    def _lock(self, until: float) -> None:
        while True:
            if self._lock_fd < 0:
                self._make(self.folder)
            wait_for_lock(self._lock_fd, until, self.folder)
            if os.fstat(self._lock_fd).st_nlink:
                return
            # Somebody removed all of it, and others may have made it anew.
            gone, self._lock_fd, self._seen = self._lock_fd, -1, -1
            os.close(gone)

    @contextlib.contextmanager
    def _needed(self) -> Iterator[None]:
        """The same for who writes: NoRoom where it cannot be had, or something is wrong with it."""
        try:
            with self._locked():
                yield
        except OSError as error:
            raise no_room(error, self.folder) from None

    def _complain(self, error: OSError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("the cache cannot be looked at: %s", error)

    def _changed(self, name: str) -> None:
        """Tell others to look again. Our own catalogue is right already, if it was before."""
        number = append(self._lock_fd, name)
        if number == self._seen:
            self._seen = number + 1
            if self._untold is not None:
                self._untold.add(name)

    def _look_again(self) -> None:
        """Look at what others changed, so that a cache of many files costs no more than a small one."""
        number = read_number(self._lock_fd)
        if number == self._seen:
            return
        names = read_since(self._lock_fd, self._seen, number)
        if names is None:
            self._scan()
            return
        for name in names:
            digest, is_part = name.rpartition(" ")[2], name.startswith(PART)
            path = self._path(digest, self._parts if is_part else self._files)
            self._catalogue.remove(name)
            with contextlib.suppress(FileNotFoundError):
                self._admit(self._catalogue, name, os.lstat(path), is_part)
        self._seen = number
        if self._untold is not None:
            self._untold |= names

    def _admit(self, catalogue: Catalogue, name: str, found: os.stat_result, is_part: bool) -> None:
        if is_part:
            catalogue.admit_known(name, found.st_size, time.time(), True)
        else:
            catalogue.admit_known(name, found.st_size, found.st_atime, found.st_nlink > 1)
            catalogue.set_verified(name, self._verified.get(name) == _look(found))

    def _scan(self) -> None:
        """Read the directory, and remove what dead pilots were writing."""
        most, reserve = self.limits()
        made, self._seen = Catalogue(most, reserve), read_number(self._lock_fd)
        self._untold = None
        for entry in _entries(self._files):
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # somebody removed it by hand
                continue
            self._admit(made, DIGEST + entry.name, found, False)
        for entry in _entries(self._parts):
            with contextlib.suppress(FileNotFoundError):
                if _is_abandoned(entry.path):
                    os.unlink(entry.path)
                else:
                    self._admit(made, _part(DIGEST + entry.name), entry.stat(follow_symlinks=False), True)
        self._verified = {digest: look for digest, look in list(self._verified.items()) if made.get(digest) is not None}
        self._catalogue = made

    def _measure(self) -> int:
        """Bound the cache by what is free on the disk now; returns that."""
        most, reserve = self.limits()
        disk = os.statvfs(self.folder)
        free = disk.f_bavail * disk.f_frsize
        # What was reserved and not yet written is among the free bytes.
        missing = sum(_missing(entry) for entry in _entries(self._parts))
        self._catalogue.most = min(most, self._catalogue.held - missing + free)
        self._catalogue.reserve = reserve
        return free


def _part(digest: str) -> str:
    """A file that is being written, in the catalogue."""
    return PART + digest


def _look(found: os.stat_result) -> _Look:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(fd: int) -> str:
    found, at = hashlib.sha256(), 0
    while True:
        try:
            data = os.pread(fd, PIECE, at)
        except OSError:  # a broken disk: these bytes are not those of the digest
            return ""
        if not data:
            return f"sha256:{found.hexdigest()}"
        found.update(data)
        at += len(data)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as listed:
        for entry in listed:
            if _HEX.fullmatch(entry.name):
                yield entry


def _missing(entry: os.DirEntry[str]) -> int:
    with contextlib.suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        return max(0, found.st_size - found.st_blocks * 512)
    return 0


def _is_abandoned(path: str) -> bool:
    """True if the writer of a part is dead."""
    try:
        fd = os.open(path, os.O_RDWR | FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _write_whole(path: str, data: bytes) -> None:
    part = f"{path}.{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | FLAGS, 0o600), "wb") as file:
        file.write(data)
    os.replace(part, path)
