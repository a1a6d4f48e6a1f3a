"""Upload and download of blobs: buffers are sent without a copy; a lost connection costs what was in flight."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from shoal.client.client import error_of
from shoal.client.connection.transport import Transport, wait_of
from shoal.model.blobs import Bytes, digest_of
from shoal.model.errors import Conflict, Refused, ShoalError, Unreachable
from shoal.wire.http.blob_transfer import OFFSET, PIECE, Get, Put, pieces

if TYPE_CHECKING:
    from shoal.wire.http.streamed import StreamedResponse

TIMEOUT = 60.0  # seconds without a byte moving
MAX_REFUSAL = 1 << 20  # bytes of a response that is no blob
Sleep = Callable[[float], None]


def put_blob(transport: Transport, parts: Sequence[Bytes], sleep: Sleep = time.sleep) -> str:
    """Upload bytes, given in parts that are not joined; returns their digest. Idempotent."""
    total = sum(memoryview(part).nbytes for part in parts)
    return _put(transport, Put(digest_of(parts), total), lambda offset: pieces(parts, offset), sleep)


def put_file(
    transport: Transport, fd: int, tell: Callable[[int], None] = lambda sent: None, sleep: Sleep = time.sleep
) -> tuple[str, int]:
    """Upload an open file; returns its digest and size. Idempotent. `tell` is called with how many bytes the server has. A file
    that is changed meanwhile is refused: nobody would know what was sent [input E50]."""
    before = os.fstat(fd)
    size = before.st_size

    def body(offset: int) -> Iterator[memoryview]:
        for piece in _read(fd, offset, size):
            yield memoryview(piece)
            offset += len(piece)
            tell(offset)

    try:
        digest = _put(transport, Put(digest_of(_read(fd, 0, size)), size), body, sleep)
    except _Changed:
        transport.close()  # in the middle of a request
        raise _changed() from None
    except ShoalError as error:
        raise (_changed() if error.code == "wrong_digest" else error) from None
    after = os.fstat(fd)
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise _changed()
    return digest, size


class _Changed(Exception):
    """A file became shorter while it was read."""


def _changed() -> Conflict:
    return Conflict("it changed while it was read", code="changed_while_reading", hint="submit again when it is whole")


def _read(fd: int, at: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from an offset on. A mapped file that becomes shorter would end this process."""
    while at < end:
        data = os.pread(fd, min(PIECE, end - at), at)
        if not data:
            raise _Changed
        yield data
        at += len(data)


def _put(transport: Transport, put: Put, body: Callable[[int], Iterator[memoryview]], sleep: Sleep) -> str:
    while True:
        sent = iter(()) if put.offset is None else body(put.offset)
        try:
            response = transport.begin("PUT", put.path, put.headers(), sent, TIMEOUT)
            data = _read_all(transport, response)
        except Unreachable:
            if not put.lost():
                raise
        else:
            error = error_of(response.status, data, transport.url) if response.status >= 400 else None
            code = error.code if error is not None else ""
            if put.answered(response.status, code, response.getheader(OFFSET, ""), _after(response)):
                if error is not None:
                    raise error
                return put.digest
        sleep(put.pause)


def get_blob(transport: Transport, digest: str, sleep: Sleep = time.sleep) -> bytearray:
    """Download a blob into memory, and check its digest."""
    data = bytearray()

    def begin(size: int) -> None:
        data[:] = bytes(size)

    _download(transport, digest, begin, lambda at, size: memoryview(data)[at : at + size], lambda piece: None, sleep)
    return data


def save_blob(transport: Transport, digest: str, file: BinaryIO, sleep: Sleep = time.sleep) -> None:
    """Download a blob into an empty file, and check its digest."""
    buffer = memoryview(bytearray(PIECE))

    def begin(size: int) -> None:
        file.seek(0)
        file.truncate()

    def keep(piece: memoryview) -> None:
        file.write(piece)

    _download(transport, digest, begin, lambda at, size: buffer[:size], keep, sleep)


def _download(
    transport: Transport, digest: str, begin: Callable[[int], None], space: Callable[[int, int], memoryview],
    keep: Callable[[memoryview], None], sleep: Sleep,
) -> None:  # fmt: skip
    """Read a blob: `begin` is called when all of its bytes come, `space` gives where those from an offset on are read to, and
    `keep` takes them. What was received before a lost connection is kept."""
    get = Get(digest)
    while True:
        try:
            response = transport.begin("GET", get.path, get.headers(), (), TIMEOUT)
            if response.status not in (200, 206):
                refusal = _read_all(transport, response)
                if get.answered(response.status, _after(response)):
                    raise error_of(response.status, refusal, transport.url)
            else:
                get.answered(response.status, None)
                if response.status == 200:
                    begin(response.length or 0)
                _read_rest(transport, response, get, space, keep)
                if get.is_right:
                    return
                raise Refused(
                    f"what came is not {get.digest}", code="wrong_digest", hint="is the server's disk damaged?"
                )
        except Unreachable:
            if not get.lost():
                raise
        sleep(get.pause)


def _read_rest(
    transport: Transport, response: StreamedResponse, get: Get, space: Callable[[int, int], memoryview],
    keep: Callable[[memoryview], None],
) -> None:  # fmt: skip
    """Read the bytes of one response."""
    try:
        while response.length:
            piece = space(get.got, min(PIECE, response.length))
            try:
                received = response.readinto(piece)
            except OSError as error:
                raise Unreachable(f"no answer from {transport.url}: {error}") from None
            if not received:
                raise Unreachable(f"{transport.url} broke off in the middle of a blob")
            keep(piece[:received])
            get.took(piece[:received])
        response.read()  # no bytes are left, but this ends the response
    except BaseException:
        transport.close()
        raise
    if response.will_close:
        transport.close()


def _read_all(transport: Transport, response: StreamedResponse) -> bytes:
    try:
        data = response.read(MAX_REFUSAL)
    except OSError as error:
        transport.close()
        raise Unreachable(f"no answer from {transport.url}: {error}") from None
    if response.will_close or not response.isclosed():
        transport.close()
    return data


def _after(response: StreamedResponse) -> float | None:
    retry_after = response.getheader("Retry-After")
    return wait_of(retry_after) if retry_after is not None else None
