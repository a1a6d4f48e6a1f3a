"""Messages on a connection between two pilots: length, kind, JSON; the bytes of a file follow bare [protocol 12]."""

from __future__ import annotations

import struct
from typing import Any, Protocol

from shoal.dht import messages as table
from shoal.dht import peers
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_FRAME, MAX_SEALED_FRAME
from shoal.pilot.leader import messages as leader
from shoal.wire import codec

# What a message is, by its number on the wire: new ones are added at the end.
KINDS: tuple[type, ...] = (
    peers.Hello, peers.DialBack, peers.DialedBack, peers.GetFile, peers.FileHead, peers.NoFile,
    table.FindPeers, table.FindHolders, table.Found, table.Store, table.HandOver, table.Withdraw, table.Done, table.Leave,
    leader.Follow, leader.Lead, leader.Elect, leader.Vote,
    peers.Forward, peers.Forwarded, peers.KeepReports, peers.DropReports, peers.ReportsKept,
)  # fmt: skip
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LEAST_KEPT = 2_048  # bytes of a message whose encoding is kept for the next receiver
_HEADER = struct.Struct("!IB")
_LARGE = (peers.Forward, peers.Forwarded, peers.KeepReports)  # they carry what pilots and the server say to each other


class Broken(OSError):
    """The connection ended within a message, or brought something that is none."""


class Stream(Protocol):
    """What is needed of a socket."""

    def recv_into(self, buffer: memoryview) -> int: ...
    def sendall(self, data: bytes) -> None: ...


_encoded: tuple[Any, bytes] = (None, b"")  # the last large message: a leader tells all its followers the same


def send(stream: Stream, message: Any) -> None:
    """Send one message."""
    global _encoded
    known, body = _encoded
    if known is not message:
        body = codec.encode(message)
        if len(body) >= LEAST_KEPT:
            _encoded = message, body
    stream.sendall(_HEADER.pack(len(body), _NUMBERS[type(message)]) + body)


def receive(stream: Stream) -> Any:
    """The next message; Broken if there is none."""
    size, number = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if number >= len(KINDS) or size > (MAX_SEALED_FRAME if KINDS[number] in _LARGE else MAX_FRAME):
        raise Broken("no message of a peer")
    try:
        return codec.decode(KINDS[number], _exactly(stream, size))
    except BadInput as error:
        raise Broken(f"no message of a peer: {error}") from None


def _exactly(stream: Stream, size: int) -> bytes:
    data = bytearray(size)
    fill(stream, memoryview(data))
    return bytes(data)


def fill(stream: Stream, buffer: memoryview) -> None:
    """Receive until the buffer is full."""
    at = 0
    while at < len(buffer):
        got = stream.recv_into(buffer[at:])
        if not got:
            raise Broken("the connection ended")
        at += got
