"""Blobs on a pilot's host: fetched once and cached for later tasks, and results on their way to the server.

Everything here blocks: it is called on `file_threads`, each of which has a connection of its own. Where the server's own
files are readable nothing is fetched. A download gets its final name only after its digest was verified.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional, Union

from shoal.model.blobs import digest_of, parse_digest
from shoal.model.errors import BadInput
from shoal.model.file_names import blob_name
from shoal.pilot.commands import streams
from shoal.pilot.host.disk_space import is_full
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.pilot.uplink.tls import WrongServer, explain
from shoal.pilot.uplink.uplink import CONNECTION_ERRORS, ServerConnection, read_after, read_error
from shoal.wire.http.blob_transfer import OFFSET, PIECE, Get, Put

if TYPE_CHECKING:
    from shoal.wire.http.streamed import StreamedResponse

TIMEOUT = 60.0  # seconds without a byte moving
PATIENCE = 600.0  # seconds without a byte more: a server may be away for a while
MOST_KEPT = 4 << 30  # bytes
MAX_REFUSAL = 1 << 16  # bytes of an answer that is no blob
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class NoBlob(Exception):
    """A blob cannot be fetched or stored; the text says why. `transient`: a later try may succeed; `no_space`: there is no space
    for it here."""

    def __init__(self, why: str, transient: bool = False, no_space: bool = False) -> None:
        super().__init__(why)
        self.transient, self.no_space = transient, no_space


class _Cached:
    """A cached file; its size is None until it is complete."""

    def __init__(self) -> None:
        self.size: Optional[int] = None
        self.users = 1


class Blobs:
    """The blobs of one pilot: its cache, and transfers from and to the server."""

    def __init__(
        self,
        address: ServerAddress,
        folder: str,
        most: int = MOST_KEPT,
        patience: float = PATIENCE,
        moved: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self._address, self._folder, self._most, self._patience = address, folder, most, patience
        self._session = self._blob_dir = ""
        self._connections = threading.local()
        self._cache: OrderedDict[str, _Cached] = OrderedDict()  # least recently used first
        self._change = threading.Condition()
        self._end = threading.Event()
        self._moved = moved  # is called with the size and duration of each transfer

    def joined(self, session: str, blob_dir: str = "") -> None:
        """Use this session; `blob_dir` is the server's own directory of blobs, if it is readable from here."""
        self._session, self._blob_dir = session, blob_dir

    def close(self) -> None:
        """The pilot ends: no transfer waits for the server any longer."""
        self._end.set()

    # --- from the server
    def fetch(self, digest: str) -> str:
        """The path of a read-only file with these bytes; it stays until `free` was called as often as `fetch`."""
        try:
            parse_digest(digest)
        except BadInput as error:
            raise NoBlob(str(error)) from None
        original = os.path.join(self._blob_dir, blob_name(digest)) if self._blob_dir else ""
        if original and _is_plain(original):
            return original
        path = os.path.join(self._folder, digest.partition(":")[2])
        with self._change:
            while True:
                kept = self._cache.get(digest)
                if kept is None:
                    kept = self._cache[digest] = _Cached()
                    break
                if kept.size is not None:
                    kept.users += 1
                    self._cache.move_to_end(digest)
                    return path
                self._change.wait()  # another thread fetches it
        size = None
        try:
            size = self._download(digest, path)
        finally:
            with self._change:
                kept.size = size
                if size is None:
                    del self._cache[digest]
                self._change.notify_all()
                self._trim()
        return path

    def free(self, digest: str) -> None:
        """One user of a fetched blob does not need it any more."""
        with self._change:
            kept = self._cache.get(digest)
            if kept is not None and kept.users:
                kept.users -= 1
                self._trim()

    def _trim(self) -> None:
        """Remove the least recently used files beyond the limit; files in use stay even so."""
        held = sum(kept.size or 0 for kept in self._cache.values())
        for digest in [digest for digest, kept in self._cache.items() if kept.size is not None and not kept.users]:
            if held <= self._most:
                return
            held -= self._cache.pop(digest).size or 0
            streams.remove(os.path.join(self._folder, digest.partition(":")[2]))

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
            why = f"{digest} finds no room here: {error.strerror}"
            raise NoBlob(why, transient=True, no_space=is_full(error)) from None
        finally:
            streams.remove(part)
        return get.got

    def _read_some(self, get: Get, file: Any) -> str:
        """Read the rest of a blob; returns why it ended early, or an empty text if it is complete."""
        try:
            connection, response = self._begin("GET", get.path, get.headers(), None)
        except CONNECTION_ERRORS as error:
            return explain(error)
        if response.status not in (200, 206):
            return self._read_refusal(get, connection, response)
        get.answered(response.status, None)
        if response.status == 200:
            file.seek(0)
            file.truncate()
        size, began = response.length or 0, time.monotonic()
        buffer = memoryview(bytearray(min(PIECE, max(1, size))))
        while response.length:
            try:
                came = response.readinto(buffer[: response.length])
            except CONNECTION_ERRORS as error:
                connection.drop()
                return explain(error)
            if not came:
                connection.drop()
                return "the connection broke off"
            get.took(buffer[:came])
            left = buffer[:came]
            while left:
                left = left[file.write(left) :]
        response.read()  # nothing, but it ends the answer
        self._moved(size, time.monotonic() - began)
        return ""

    def _read_refusal(self, get: Get, connection: ServerConnection, response: StreamedResponse) -> str:
        code, text = _error(connection, response)
        if get.answered(response.status, read_after(response.getheader("Retry-After"))) and not _may_pass(response):
            raise NoBlob(f"{get.digest}: {text or response.status}")
        return text or code

    # --- to the server
    def store(self, path: str) -> str:
        """Upload a plain file; returns its digest."""
        try:
            fd = os.open(path, _READ)
        except OSError as error:
            raise NoBlob(f"{path} cannot be read: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NoBlob(f"{path} is not a plain file")
            return self.store_file(fd)
        finally:
            os.close(fd)

    def store_file(self, fd: int, run: str = "", patience: Optional[float] = None, use: str = "") -> str:
        """Upload an open plain file; returns its digest. `run` says for which run, if there may be several, and `use`
        what for (`CHECKPOINT`)."""
        size = os.fstat(fd).st_size
        put = Put(digest_of(_read(fd, 0, size)), size)
        tries, most = _Tries(self._patience if patience is None else patience), 0
        target = f"{put.path}?run={run}" if run else put.path
        target += f"&for={use}" if use else ""
        while True:
            body = None if put.offset is None else _read(fd, put.offset, size)
            try:
                connection, response = self._begin("PUT", target, put.headers(), body)
                code, text = _error(connection, response)
            except CONNECTION_ERRORS as error:
                put.lost()
                why = explain(error)
            else:
                after = read_after(response.getheader("Retry-After"))
                final = put.answered(response.status, code, response.getheader(OFFSET) or "", after)
                if response.status == 200:
                    return put.digest
                # A server's full disk recovers; what was computed is kept until then.
                if final and not _may_pass(response) and code != "disk_full":
                    raise NoBlob(f"{put.digest} is not stored: {text or response.status}", response.status == 507)
                if final:
                    put.lost()
                why = text
            offset = put.offset or 0
            self._wait(put, tries, why, offset > most)
            most = max(most, offset)

    # --- both
    def _connection(self) -> ServerConnection:
        """The connection of the calling thread."""
        connection: Optional[ServerConnection] = getattr(self._connections, "own", None)
        if connection is None:
            connection = self._connections.own = ServerConnection(self._address)
        return connection

    def _begin(
        self, method: str, target: str, headers: dict[str, str], body: Optional[Iterator[bytes]]
    ) -> tuple[ServerConnection, StreamedResponse]:
        connection = self._connection()
        try:
            return connection, connection.begin(method, target, headers, body, self._session, TIMEOUT)
        except WrongServer as error:
            raise NoBlob(str(error)) from None

    def _wait(self, transfer: Union[Get, Put], tries: _Tries, why: str, moved: bool) -> None:
        """Wait before the next try. Our own patience counts, because a pilot outlives its server."""
        if isinstance(transfer, Get):
            transfer.lost()
        if not tries.again(moved):
            raise NoBlob(f"{transfer.digest}: {why}", transient=True)
        if self._end.wait(transfer.pause):
            raise NoBlob("the pilot ends", transient=True)


class _Tries:
    def __init__(self, patience: float) -> None:
        self._patience, self._since = patience, time.monotonic()

    def again(self, moved: bool) -> bool:
        """True if there is time left for another try; progress starts the time anew."""
        if moved:
            self._since = time.monotonic()
        return time.monotonic() - self._since < self._patience


def _may_pass(response: StreamedResponse) -> bool:
    """True if a later try may succeed: the server is overloaded, or the pilot is about to get a new session."""
    return response.status in (401, 429, 500, 502, 503, 504)


def _error(connection: ServerConnection, response: StreamedResponse) -> tuple[str, str]:
    """(code, message) of an answer that is no blob, read to its end."""
    body = response.read(MAX_REFUSAL)
    if response.will_close or not response.isclosed():
        connection.drop()
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
