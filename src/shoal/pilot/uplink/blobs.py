"""Blobs on a pilot's host: fetched once and kept for the next task that wants them, and results on their way to the server.

Everything here blocks: it is called on the porter's threads, each of which has a connection of its own. Where the server's
own files can be read nothing is fetched. Whatever came over the network was compared with its digest before it has its name.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from ssl import SSLError
from typing import Any, Optional, Union

from shoal import __version__
from shoal.model.blobs import Bytes, digest_of, parse_digest
from shoal.model.errors import BadInput
from shoal.model.layout import blob_name
from shoal.pilot.uplink.server_address import NoServerAddress, ServerAddress
from shoal.pilot.uplink.tls import WrongServer, explain
from shoal.pilot.uplink.uplink import CONNECT_TIMEOUT, CertificateRefused, ServerConnection, read_after, read_error
from shoal.wire.http.blob_transfer import OFFSET, PIECE, Get, Put, pieces

TIMEOUT = 60.0  # seconds without a byte moving
PATIENCE = 600.0  # seconds without a byte more: a server may be away for a while
MOST_KEPT = 4 << 30  # bytes
MAX_REFUSAL = 1 << 16  # bytes of an answer that is no blob
_LOST = (OSError, http.client.HTTPException, NoServerAddress)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
Pieces = Callable[[int], Iterator[Bytes]]  # from an offset on


class NoBlob(Exception):
    """A blob cannot be had, or not be stored; the text says why. `transient`: another time it may."""

    def __init__(self, why: str, transient: bool = False) -> None:
        super().__init__(why)
        self.transient = transient


class BlobConnection(ServerConnection):
    """A connection for bodies that are too large to be held."""

    def begin(
        self, method: str, path: str, headers: dict[str, str], body: Optional[Iterator[Bytes]], session: str
    ) -> http.client.HTTPResponse:
        """Send a request; its answer must be read to the end, or the line dropped. Raises as `ask` does."""
        try:
            self._connect(CONNECT_TIMEOUT, certified=True)
        except WrongServer as error:
            raise NoBlob(str(error)) from None
        connected = self._connected
        assert connected is not None
        connected.http.sock.settimeout(TIMEOUT)
        known = {**connected.headers, "Authorization": f"Bearer {session}", "User-Agent": f"shoal-pilot/{__version__}"}
        try:
            try:
                connected.http.request(method, connected.base + path, body, {**known, **headers})
            except (BrokenPipeError, ConnectionResetError):
                # A server may refuse before it has read all of a body, and end the connection: what it said is there.
                response = connected.http.getresponse()
                response.will_close = True
                return response
            return connected.http.getresponse()
        except BaseException as error:
            self.drop()
            self._place.forget(connected.url)
            if connected.generation and isinstance(error, (SSLError, ConnectionError)):
                raise CertificateRefused(error) from None
            raise


class _Kept:
    """A file of ours; it has no size before it is whole."""

    def __init__(self) -> None:
        self.size: Optional[int] = None
        self.users = 1


class Blobs:
    """The blobs that this pilot has at hand."""

    def __init__(
        self,
        place: ServerAddress,
        folder: str,
        most: int = MOST_KEPT,
        patience: float = PATIENCE,
        moved: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self._place, self._folder, self._most, self._patience = place, folder, most, patience
        self._session = self._near = ""
        self._lines = threading.local()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # least recently used first
        self._change = threading.Condition()
        self._end = threading.Event()
        self._moved = moved  # is called with the size and duration of each transfer

    def joined(self, session: str, blob_dir: str = "") -> None:
        """The server took us in; `blob_dir` is its own directory of blobs, if it can be read from here."""
        self._session, self._near = session, blob_dir

    def close(self) -> None:
        """Whoever waits for a server is told that the pilot ends."""
        self._end.set()

    # --- from the server
    def fetch(self, digest: str) -> str:
        """The path of a file with these bytes, which nobody may change. It stays until as many `free` as `fetch`."""
        try:
            parse_digest(digest)
        except BadInput as error:
            raise NoBlob(str(error)) from None
        near = os.path.join(self._near, blob_name(digest)) if self._near else ""
        if near and _is_plain(near):
            return near
        path = os.path.join(self._folder, digest.partition(":")[2])
        with self._change:
            while True:
                kept = self._kept.get(digest)
                if kept is None:
                    kept = self._kept[digest] = _Kept()
                    break
                if kept.size is not None:
                    kept.users += 1
                    self._kept.move_to_end(digest)
                    return path
                self._change.wait()  # another thread fetches it
        size = None
        try:
            size = self._download(digest, path)
        finally:
            with self._change:
                kept.size = size
                if size is None:
                    del self._kept[digest]
                self._change.notify_all()
                self._trim()
        return path

    def free(self, digest: str) -> None:
        """One who fetched it does not need it any more."""
        with self._change:
            kept = self._kept.get(digest)
            if kept is not None and kept.users:
                kept.users -= 1
                self._trim()

    def _trim(self) -> None:
        """Make room; what is in use stays, also if that is too much."""
        held = sum(kept.size or 0 for kept in self._kept.values())
        for digest in [digest for digest, kept in self._kept.items() if kept.size is not None and not kept.users]:
            if held <= self._most:
                return
            held -= self._kept.pop(digest).size or 0
            _remove(os.path.join(self._folder, digest.partition(":")[2]))

    def _download(self, digest: str, path: str) -> int:
        get, part, tries = Get(digest), f"{path}.part", _Tries(self._patience)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(os.open(part, _NEW, 0o600), "wb", buffering=0) as file:
                while True:
                    before = get.got
                    why = self._read_some(get, file)
                    if not why and get.is_right:
                        break
                    if not why:
                        raise NoBlob(f"what came is not {digest}: is the server's disk damaged?")
                    self._wait(get, tries, why, get.got > before)
                os.fchmod(file.fileno(), 0o400)  # tasks are handed its path
            os.rename(part, path)
        except OSError as error:
            raise NoBlob(f"{digest} finds no room here: {error.strerror}", transient=True) from None
        finally:
            _remove(part)
        return get.got

    def _read_some(self, get: Get, file: Any) -> str:
        """The rest of a blob, as far as it comes; why it ended before the end, empty if it did not."""
        line = self._line()
        try:
            response = line.begin("GET", get.path, get.headers(), None, self._session)
        except _LOST as error:
            return explain(error)
        if response.status not in (200, 206):
            return self._read_refusal(get, line, response)
        get.answered(response.status, None)
        if response.status == 200:
            file.seek(0)
            file.truncate()
        size, began = response.length or 0, time.monotonic()
        buffer = memoryview(bytearray(min(PIECE, max(1, size))))
        while response.length:
            try:
                came = response.readinto(buffer[: response.length])
            except _LOST as error:
                line.drop()
                return explain(error)
            if not came:
                line.drop()
                return "the connection broke off"
            get.took(buffer[:came])
            left = buffer[:came]
            while left:
                left = left[file.write(left) :]
        response.read()  # nothing, but it ends the answer
        self._moved(size, time.monotonic() - began)
        return ""

    def _read_refusal(self, get: Get, line: BlobConnection, response: http.client.HTTPResponse) -> str:
        code, words = _error(line, response)
        if get.answered(response.status, read_after(response.getheader("Retry-After"))) and not _may_pass(response):
            raise NoBlob(f"{get.digest}: {words or response.status}")
        return words or code

    # --- to the server
    def store(self, data: Union[str, os.PathLike[str], Bytes, Sequence[Bytes]], run: str = "") -> str:
        """Put a file (by its path) or bytes on the server; returns their digest. `run` says for whose, if several may be."""
        if isinstance(data, (str, os.PathLike)):
            return self._store_path(os.fspath(data), run)
        parts = [data] if isinstance(data, (bytes, bytearray, memoryview)) else list(data)
        total = sum(memoryview(part).nbytes for part in parts)
        return self._upload(Put(digest_of(parts), total), lambda offset: pieces(parts, offset), run)

    def _store_path(self, path: str, run: str) -> str:
        try:
            fd = os.open(path, _READ)
        except OSError as error:
            raise NoBlob(f"{path} cannot be read: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NoBlob(f"{path} is not a plain file")
            return self.store_file(fd, run)
        finally:
            os.close(fd)

    def store_file(self, fd: int, run: str = "", patience: Optional[float] = None, use: str = "") -> str:
        """Put an open plain file on the server; returns its digest. `use` says what for (`CHECKPOINT`)."""
        size = os.fstat(fd).st_size
        put = Put(digest_of(_read(fd, 0, size)), size)
        return self._upload(put, lambda offset: _read(fd, offset, size), run, patience, use)

    def _upload(self, put: Put, rest: Pieces, run: str, patience: Optional[float] = None, use: str = "") -> str:
        tries, most = _Tries(self._patience if patience is None else patience), 0
        target = f"{put.path}?run={run}" if run else put.path
        target += f"&for={use}" if use else ""
        while True:
            body = None if put.offset is None else rest(put.offset)
            line = self._line()
            try:
                response = line.begin("PUT", target, put.headers(), body, self._session)
                code, words = _error(line, response)
            except _LOST as error:
                put.lost()
                why = explain(error)
            else:
                told = response.getheader(OFFSET) or ""
                after = read_after(response.getheader("Retry-After"))
                final = put.answered(response.status, code, told, after)
                if response.status == 200:
                    return put.digest
                # A server's full disk recovers; what was computed is kept until then.
                if final and not _may_pass(response) and code != "disk_full":
                    raise NoBlob(f"{put.digest} is not stored: {words or response.status}", response.status == 507)
                if final:
                    put.lost()
                why = words
            offset = put.offset or 0
            self._wait(put, tries, why, offset > most)
            most = max(most, offset)

    # --- both
    def _line(self) -> BlobConnection:
        line: Optional[BlobConnection] = getattr(self._lines, "line", None)
        if line is None:
            line = self._lines.line = BlobConnection(self._place)
        return line

    def _wait(self, way: Union[Get, Put], tries: _Tries, why: str, moved: bool) -> None:
        """Before the next try; ours is the patience that counts, since a pilot outlives its server."""
        if isinstance(way, Get):
            way.lost()
        if not tries.again(moved):
            raise NoBlob(f"{way.digest}: {why}", transient=True)
        if self._end.wait(way.pause):
            raise NoBlob("the pilot ends", transient=True)


class _Tries:
    def __init__(self, patience: float) -> None:
        self._patience, self._since = patience, time.monotonic()

    def again(self, moved: bool) -> bool:
        """Is there any patience left? Each byte more brings it back."""
        if moved:
            self._since = time.monotonic()
        return time.monotonic() - self._since < self._patience


def _may_pass(response: http.client.HTTPResponse) -> bool:
    """Too much to do, or a session that has ended: the pilot is about to get another."""
    return response.status in (401, 429, 500, 502, 503, 504)


def _error(line: BlobConnection, response: http.client.HTTPResponse) -> tuple[str, str]:
    """(code, words) of an answer that is no blob, read to its end."""
    body = response.read(MAX_REFUSAL)
    if response.will_close or not response.isclosed():
        line.drop()
    return ("", "") if response.status < 400 else read_error(body)


def _read(fd: int, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        try:
            data = os.pread(fd, min(PIECE, end - at), at)
        except OSError as error:
            raise NoBlob(f"it cannot be read: {error.strerror}") from None
        if not data:
            raise NoBlob("it became shorter while it was read")
        yield data
        at += len(data)


def _is_plain(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and os.access(path, os.R_OK)
    except OSError:
        return False


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
