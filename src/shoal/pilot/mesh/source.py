"""A file from another pilot of the mesh: found by the table, else by asking the server who fetched it [LBO D4; ADR 0048].

Nothing here can fail a task. Whatever peers do, in the end the server's own copy is fetched: `NotHere` says that this is due.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Callable, Optional

from shoal.data.sources import PEER, Place
from shoal.dht.key import parse_key
from shoal.dht.peers import FileHead, GetFile
from shoal.dht.routing_table import Contact
from shoal.model.blobs import parse_digest
from shoal.model.limits import LEAST_SHARED, MAX_PEER_FILE, MAX_PEER_FILE_TRIES
from shoal.pilot.files.fetch import NotHere, Write
from shoal.pilot.files.parts import WrongBytes
from shoal.pilot.mesh import frames
from shoal.wire.messages import Accusation, BlobPeers, Neighbour

if TYPE_CHECKING:
    from shoal.pilot.mesh.links import Link, Links
    from shoal.pilot.mesh.peer_table import PeerTable
    from shoal.pilot.mesh.strikes import Strikes

log = logging.getLogger(__name__)

CONNECT_WITHIN = 5.0  # seconds: a busy host is better than another copy from outside
STALL = 10.0  # seconds without a byte of a file
GRACE, SLOWEST = 10.0, 256 * 1024  # after that many seconds so many bytes a second are demanded, on average
PIECE = 1 << 18  # bytes that are received before they are hashed and written
RECORD = 16 * 1024  # bytes that TLS brings at a time from a peer that sends as fast as it can
BUSY_PATIENCE = 30.0  # seconds for which peers are waited for that send to others now
WAIT_PATIENCE = 600.0  # and for one that fetches the file from the server, as the server says
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0


class PeerSource:
    """Files of other pilots, for this one; several threads may fetch at once."""

    place = Place(PEER, "peers")

    def __init__(
        self,
        table: PeerTable,
        links: Links,
        strikes: Strikes,
        ask_server: Callable[[str], Optional[BlobPeers]],
        accuse: Callable[[Contact, Accusation], None],
        is_over: Callable[[], bool] = lambda: False,
        failed: Callable[[Place, str, str], None] = lambda place, digest, why: None,
    ) -> None:
        """`failed` is told of each peer that should have given a file and did not, with the digest and why."""
        self._table, self._links, self._strikes = table, links, strikes
        self._ask_server, self._accuse, self._is_over, self._failed = ask_server, accuse, is_over, failed

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`; what was written is right. It never fails: what peers did wrong is noted in `strikes`."""
        if size is not None and size < LEAST_SHARED:
            raise NotHere("small files come from the server")
        search = _Search(digest, size)
        for again in (False, True):
            if not self._table.size:
                break  # we know nobody
            holders = self._table.find(search.key, again).holders
            if self._try_all(search, holders, write, deadline):
                return
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            hint = self._ask_server(digest)
            if hint is None:
                break
            if self._try_all(search, contacts_of(hint.holders), write, deadline, once_more=True):
                return
            now = time.monotonic()
            if not hint.wait or now > min(deadline, began + WAIT_PATIENCE) or self._is_over():
                break
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if self._table.size and self._try_all(search, self._table.find(search.key).holders, write, deadline):
                return
        if write.written:
            write.restart()
        raise NotHere(search.said or "no peer has it")

    def fetch_from(
        self, contacts: tuple[Contact, ...], digest: str, size: Optional[int], write: Write, deadline: float
    ) -> None:
        """The same from these peers only."""
        if size is not None and size < LEAST_SHARED:
            raise NotHere("small files come from the server")
        search = _Search(digest, size)
        if self._try_all(search, contacts, write, deadline):
            return
        if write.written:
            write.restart()
        raise NotHere(search.said or "none of them has it")

    def _try_all(
        self, search: _Search, holders: tuple[Contact, ...], write: Write, deadline: float, once_more: bool = False
    ) -> bool:
        """Fetch from one of these; `once_more`: also from those that did not have it when they were asked before."""
        until = min(deadline, time.monotonic() + BUSY_PATIENCE)
        pause = FIRST_PAUSE
        while True:
            skipped = search.failed if once_more else search.failed | search.without
            left = [one for one in holders if one.id not in skipped and one.id != self._table.own.id]
            busy = False
            for holder in self._strikes.order(left, time.monotonic()):
                if len(search.failed) >= MAX_PEER_FILE_TRIES or time.monotonic() > deadline:
                    return False
                outcome = self._try(search, holder, write)
                if outcome == RIGHT:
                    return True
                busy = busy or outcome == BUSY
            if not busy or time.monotonic() > until or self._is_over():
                return False
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _try(self, search: _Search, holder: Contact, write: Write, fresh: bool = False) -> str:
        try:
            with self._links.to(holder, fresh, CONNECT_WITHIN) as link:
                outcome = self._receive(link, holder.id, search, write)
        except _Stale:
            return self._try(search, holder, write, fresh=True)
        except _TooLarge:
            outcome = ABSENT
        except WrongBytes:  # more than there should be
            outcome = WRONG
        except (OSError, ValueError) as error:
            self._note_failed(search, holder, str(error) or type(error).__name__)
            self._strikes.note_failed(holder, time.monotonic())
            log.info("peer=%s digest=%s failed: %s", holder.address, search.digest, error)
            return FAILED
        if outcome == WRONG or (outcome == RIGHT and not write.is_right()):
            write.restart()
            is_mixed = bool(search.givers - {holder.id})
            search.givers.clear()
            if is_mixed:  # which of them gave the wrong part is not known: all of it from this one
                return self._try(search, holder, write)
            self._note_failed(search, holder, "wrong bytes")
            accusation = self._strikes.note_wrong(holder, search.digest)
            log.warning("peer=%s digest=%s gave wrong bytes", holder.address, search.digest)
            if accusation is not None:
                self._accuse(holder, accusation)
            return FAILED
        if outcome == RIGHT:
            self._strikes.note_right(holder)
        elif outcome == ABSENT:
            search.without.add(holder.id)
        return outcome

    def _note_failed(self, search: _Search, holder: Contact, why: str) -> None:
        search.note_failed(holder, why)
        self._failed(Place(PEER, holder.address), search.digest, why)

    def _receive(self, link: Link, holder: int, search: _Search, write: Write) -> str:
        """The rest of a file, from where an earlier peer broke off."""
        try:
            head = link.ask(GetFile(search.digest, write.written), STALL)
        except (frames.Broken, ConnectionError, ssl.SSLError) as error:
            if link.is_fresh:
                raise
            raise _Stale(str(error)) from None
        if not isinstance(head, FileHead):
            return BUSY if getattr(head, "is_busy", False) else ABSENT
        if search.size is None and head.size > MAX_PEER_FILE:
            # Nobody but this peer says so: it could send without end what has a digest only when it is whole.
            log.info("peer=%s digest=%s says that it has %d bytes", link.contact.address, search.digest, head.size)
            raise _TooLarge
        if head.size < write.written:
            raise frames.Broken("it has another size than others say")
        left, began = head.size - write.written, time.monotonic()
        write.expect(head.size)
        limit = began + GRACE + left / SLOWEST
        buffer = memoryview(bytearray(min(PIECE, max(1, left))))
        link.stream.settimeout(STALL)
        while left:
            part = buffer[: min(left, len(buffer))]
            _fill(link, part, limit)
            if time.monotonic() > limit:
                raise frames.Broken("it is too slow")
            search.givers.add(holder)
            write(part)
            left -= len(part)
        return RIGHT


class NamedPeers:
    """Pilots that the server named with a lease as holders of a file: the table need not be asked [LBO D9]."""

    place = Place(PEER, "named peers")

    def __init__(self, source: PeerSource, contacts: tuple[Contact, ...]) -> None:
        self._source, self._contacts = source, contacts

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`."""
        self._source.fetch_from(self._contacts, digest, size, write, deadline)


RIGHT, WRONG, FAILED, ABSENT, BUSY = "right", "wrong", "failed", "absent", "busy"


class _Stale(Exception):
    """A connection that was kept turned out to be dead."""


class _TooLarge(Exception):
    """A peer would send more than is taken on its word; the connection is closed, for it has begun to."""


class _Search:
    """What became of the search for one file."""

    def __init__(self, digest: str, size: Optional[int]) -> None:
        self.digest, self.size = parse_digest(digest), size
        self.key = parse_key(digest.partition(":")[2])
        self.failed: set[int] = set()
        self.without: set[int] = set()  # peers that did not have it when they were asked
        self.givers: set[int] = set()  # peers whose bytes were written since the start
        self.said = ""

    def note_failed(self, holder: Contact, why: str) -> None:
        """A peer that should have given it did not."""
        self.failed.add(holder.id)
        self.said = f"{holder.address}: {why}"


def _fill(link: Link, part: memoryview, limit: float) -> None:
    """Receive until a part is full; a peer that sends a byte now and then is cut [input E66]."""
    at, receive = 0, link.stream.recv_into
    while at < len(part):
        got = receive(part[at:])
        if not got:
            raise frames.Broken("the connection ended within the file")
        at += got
        if got < RECORD and time.monotonic() > limit:
            raise frames.Broken("it is too slow")


def contacts_of(neighbours: Iterable[Neighbour]) -> tuple[Contact, ...]:
    """The contacts that a server names; what is no id is passed over."""
    found = []
    for one in neighbours:
        try:
            found.append(Contact(parse_key(one.id), one.address))
        except ValueError:
            log.warning("the server named a peer without an id")
    return tuple(found)
