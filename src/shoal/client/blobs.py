"""Blobs to and from a server: large buffers are sent as they lie in memory, and a lost connection costs what was in flight."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import secrets
import time
from collections.abc import Callable, Sequence

from shoal.client.client import error_of
from shoal.client.connection.transport import Transport, wait_of
from shoal.model.blobs import Bytes, digest_of
from shoal.model.errors import Refused, Unreachable
from shoal.wire.http.blob_transfer import OFFSET, PIECE, Get, Put, pieces

TIMEOUT = 60.0  # seconds without a byte moving
MAX_REFUSAL = 1 << 20  # bytes of an answer that is no blob
Sleep = Callable[[float], None]


def put_blob(transport: Transport, parts: Sequence[Bytes], sleep: Sleep = time.sleep) -> str:
    """Put bytes, given in parts that are not joined; returns their digest. Safe to repeat."""
    total = sum(memoryview(part).nbytes for part in parts)
    put = Put(digest_of(parts), total)
    while True:
        body = iter(()) if put.offset is None else pieces(parts, put.offset)
        try:
            response = transport.begin("PUT", put.path, put.headers(), body, TIMEOUT)
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
    """The bytes of a blob, checked."""
    found = _Memory()
    _get(transport, Get(digest), found, sleep)
    return found.data


def get_blob_to(transport: Transport, digest: str, path: str | os.PathLike[str], sleep: Sleep = time.sleep) -> None:
    """The bytes of a blob as a file that only its owner reads; it gets its name when it is whole and checked."""
    get, target = Get(digest), os.fspath(path)
    part = f"{target}.{secrets.token_hex(4)}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb", buffering=0) as file:
            _get(transport, get, _File(file), sleep)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


class _Memory:
    """Bytes come straight to where they stay."""

    def __init__(self) -> None:
        self.data = bytearray()

    def begin(self, length: int) -> None:
        self.data = bytearray(length)

    def room(self, at: int) -> memoryview:
        return memoryview(self.data)[at : at + PIECE]

    def keep(self, piece: memoryview) -> None:
        """It is where it should be."""


class _File:
    """Bytes go to a file."""

    def __init__(self, file: io.FileIO) -> None:
        self._file, self._buffer = file, memoryview(bytearray(PIECE))

    def begin(self, length: int) -> None:
        self._file.seek(0)
        self._file.truncate()

    def room(self, at: int) -> memoryview:
        return self._buffer

    def keep(self, piece: memoryview) -> None:
        while piece:
            piece = piece[self._file.write(piece) :]


def _get(transport: Transport, get: Get, into: _Memory | _File, sleep: Sleep) -> None:
    """Ask until all bytes are here."""
    while True:
        try:
            response = transport.begin("GET", get.path, get.headers(), (), TIMEOUT)
            if response.status not in (200, 206):
                data = _read_all(transport, response)
                if get.answered(response.status, _after(response)):
                    raise error_of(response.status, data, transport.url)
            else:
                get.answered(response.status, None)
                _take(transport, response, get, into)
                if get.is_right:
                    return
                raise Refused(
                    f"what came is not {get.digest}", code="wrong_digest", hint="is the server's disk damaged?"
                )
        except Unreachable:
            if not get.lost():
                raise
        sleep(get.pause)


def _take(transport: Transport, response: http.client.HTTPResponse, get: Get, into: _Memory | _File) -> None:
    """The bytes of one answer; those that came before a connection broke are kept."""
    try:
        if response.status == 200:
            into.begin(response.length or 0)
        while response.length:
            room = into.room(get.got)[: response.length]
            try:
                came = response.readinto(room)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"no answer from {transport.url}: {error}") from None
            if not came:
                raise Unreachable(f"{transport.url} broke off in the middle of a blob")
            get.took(room[:came])
            into.keep(room[:came])
        response.read()  # nothing, but it ends the answer
    except BaseException:
        transport.close()
        raise
    if response.will_close:
        transport.close()


def _read_all(transport: Transport, response: http.client.HTTPResponse) -> bytes:
    try:
        data = response.read(MAX_REFUSAL)
    except (OSError, http.client.HTTPException) as error:
        transport.close()
        raise Unreachable(f"no answer from {transport.url}: {error}") from None
    if response.will_close or not response.isclosed():
        transport.close()
    return data


def _after(response: http.client.HTTPResponse) -> float | None:
    told = response.getheader("Retry-After")
    return wait_of(told) if told is not None else None
