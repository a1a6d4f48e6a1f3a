"""Blobs of a pilot: files on their way from the server, and results on their way to it.

Everything here blocks: it is called on `file_threads`, each of which has a connection of its own. Where the server's own
files are readable nothing is fetched. Otherwise what is fetched stays in the host's cache (`files/fetch`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional, Protocol, Union

from shoal.data.sources import SERVER, Place
from shoal.model.blobs import digest_of, parse_digest
from shoal.model.errors import BadInput
from shoal.model.file_names import blob_name
from shoal.model.limits import LEAST_SHARED
from shoal.pilot.files.fetch import Fetched, Fetcher, NoBlob, NotHere, Source, SourceFailed, Write
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.files.parts import Held
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.pilot.uplink.tls import WrongServer, explain
from shoal.pilot.uplink.uplink import CONNECTION_ERRORS, ServerConnection, read_after, read_error
from shoal.wire import codec
from shoal.wire.http.blob_transfer import OFFSET, PIECE, Get, Put
from shoal.wire.messages import BlobPeers, Neighbour

if TYPE_CHECKING:
    from shoal.wire.http.streamed import StreamedResponse

TIMEOUT = 60.0  # seconds without a byte moving
PATIENCE = 600.0  # seconds without a byte more: a server may be away for a while
MAX_REFUSAL = 1 << 16  # bytes of an answer that is no blob
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Peers(Protocol):
    """What is needed of the mesh."""

    def have(self, digests: Iterable[str]) -> None: ...

    def named(self, holders: Sequence[Neighbour]) -> Optional[Source]: ...


class Blobs:
    """The blobs of one pilot: files from the host's cache or whoever has them, and transfers from and to the server."""

    def __init__(
        self,
        address: ServerAddress,
        cache: HostCache,
        private: str = "",
        patience: float = PATIENCE,
        moved: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        """`private`: a directory for files that have no place in the cache."""
        self._address, self._patience = address, patience
        self._session = self._blob_dir = ""
        self._connections = threading.local()
        self._end = threading.Event()
        self._moved = moved  # is called with the size and duration of each transfer
        self.peers: Optional[Peers] = None  # None: no other pilots are told what is here
        self.fetcher = Fetcher(cache, [_Server(self)], private)
        self._held: dict[str, list[Held]] = {}  # files that `fetch` gave, until they are freed
        self._mutex = threading.Lock()

    def joined(self, session: str, blob_dir: str = "") -> None:
        """Use this session; `blob_dir` is the server's own directory of blobs, if it is readable from here."""
        self._session, self._blob_dir = session, blob_dir

    def close(self) -> None:
        """The pilot ends: no transfer waits for the server any longer."""
        self._end.set()
        self.fetcher.close()

    # --- from the server and others
    def get(
        self,
        digest: str,
        size: Optional[int] = None,
        near: Sequence[Source] = (),
        holders: Sequence[Neighbour] = (),
    ) -> Fetched:
        """A read-only file with these bytes, until it is closed; `near`: places that may have this very file; `holders`: peers
        of which the server says that they have it."""
        if self._blob_dir:
            with contextlib.suppress(BadInput):
                original = os.path.join(self._blob_dir, blob_name(parse_digest(digest)))
                if _is_plain(original):
                    return Fetched(Held(original, -1, os.path.getsize(original)), SERVER, 0.0)
        named = self.peers.named(holders) if self.peers is not None and holders else None
        fetched = self.fetcher.fetch(digest, size, near if named is None else [named, *near])
        if self.peers is not None and fetched.held.size >= LEAST_SHARED and not fetched.held.is_private:
            self.peers.have([digest])
        return fetched

    def open_shared(self, digest: str) -> Optional[int]:
        """A whole file of the cache as an open descriptor, while which it stays; None if it is not here."""
        held = self.fetcher.cache.open(digest)
        if held is None:
            return None
        try:
            return held.descriptor()
        finally:
            held.close()

    def ask_peers(self, digest: str) -> Optional[BlobPeers]:
        """What the server knows of a blob in our mesh; None if it does not answer."""
        try:
            answer = self._connection().ask("GET", f"/v1/blobs/{digest}/peers", b"", self._session, TIMEOUT)
        except (*CONNECTION_ERRORS, WrongServer):
            return None
        with contextlib.suppress(BadInput):
            return codec.decode(BlobPeers, answer.body) if answer.status == 200 else None
        return None

    def get_unknown(self, source: Source, key: str) -> Fetched:
        """A file of which only its place is known, the same bytes for the same key (`Fetcher.fetch_unknown`)."""
        return self.fetcher.fetch_unknown(source, key)

    def take_changes(self) -> tuple[list[tuple[str, int]], list[str]]:
        """The files that came into the cache of this host since the last call, and those that left it; at first all."""
        return self.fetcher.cache.take_changes()

    def fetch(self, digest: str) -> str:
        """The path of a read-only file with these bytes; it stays until `free` was called as often as `fetch`."""
        held = self.get(digest).held
        with self._mutex:
            self._held.setdefault(digest, []).append(held)
        return held.path

    def free(self, digest: str) -> None:
        """One user of a fetched blob does not need it any more."""
        with self._mutex:
            held = self._held.get(digest, [])
            if held:
                held.pop().close()
            if not held:
                self._held.pop(digest, None)

    def download(self, digest: str, write: Write) -> None:
        """Give the bytes of the server's blob to `write`, over as many connections as it takes. They are not verified."""
        get, tries, written = Get(digest), _Tries(self._patience), 0
        while True:
            before = get.got
            why, written = self._read_some(get, write, written)
            if not why:
                return
            self._wait(get, tries, why, get.got > before)

    def _read_some(self, get: Get, write: Write, written: int) -> tuple[str, int]:
        """Read the rest of a blob; returns why it ended early, or an empty text if it is complete, and what `write` has."""
        try:
            connection, response = self._begin("GET", get.path, get.headers(), None)
        except CONNECTION_ERRORS as error:
            return explain(error), written
        if response.status not in (200, 206):
            return self._read_refusal(get, connection, response), written
        get.answered(response.status, None)
        size, began = response.length or 0, time.monotonic()
        buffer = memoryview(bytearray(min(PIECE, max(1, size))))
        while response.length:
            try:
                came = response.readinto(buffer[: response.length])
            except CONNECTION_ERRORS as error:
                connection.drop()
                return explain(error), written
            if not came:
                connection.drop()
                return "the connection broke off", written
            fresh = buffer[max(0, written - get.got) : came]  # the server may have begun anew
            get.took(buffer[:came])
            try:
                write(fresh)
            except BaseException:
                connection.drop()
                raise
            written += len(fresh)
        response.read()  # nothing, but it ends the answer
        self._moved(size, time.monotonic() - began)
        return "", written

    def _read_refusal(self, get: Get, connection: ServerConnection, response: StreamedResponse) -> str:
        code, text = _error(connection, response)
        if get.answered(response.status, read_after(response.getheader("Retry-After"))) and not _may_pass(response):
            why = f"{get.digest}: {text or response.status}"
            raise NotHere(why) if response.status == 404 else NoBlob(why)
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

    def keep_here(self, fd: int, digest: str) -> None:
        """Put an open file into the cache of this host, if it has space: pilots of the site get it from here."""
        size = os.fstat(fd).st_size
        with contextlib.suppress(NoBlob):  # what changes while it is read stays where it is
            is_kept = not self._blob_dir and self.fetcher.keep(digest, size, _read(fd, 0, size))
            if is_kept and self.peers is not None and size >= LEAST_SHARED:
                self.peers.have([digest])

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
                if final and not _may_pass(response) and code not in ("disk_full", "wrong_offset"):
                    raise NoBlob(f"{put.digest} is not stored: {text or response.status}", response.status == 507)
                if final and code == "wrong_offset":
                    put.go_on()  # it failed often before, which our own patience counts
                elif final:
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


class _Server:
    """The server's blobs as a place of files."""

    place = Place(SERVER, "the server")

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`: it has its own patience, since a server may be away for a while."""
        try:
            self._blobs.download(digest, write)
        except NoBlob as error:
            raise SourceFailed(str(error), error.transient) from None


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
