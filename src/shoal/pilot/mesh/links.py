"""Connections to other pilots: TLS both ways, verified against the server's CA, and only with members of the own mesh.

A connection is kept for the next request. Who is at the other end says its certificate, never what it sends.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Callable, Optional, TypeVar

from shoal.dht.key import parse_key
from shoal.dht.peers import Hello, PeerName, parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.model.limits import MAX_PEER_LINKS
from shoal.pilot.mesh import frames

CONNECT_WITHIN = 1.5  # seconds of a lookup, which asks others meanwhile: peers are on one local network
ANSWER_WITHIN = 1.5  # seconds for the answer to a small message
MAX_LINKS_EACH = 4  # that are kept to one peer: it bounds those that it accepts of us
T = TypeVar("T")
NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class NotAMember(OSError):
    """Whoever is at the other end is no member of this mesh, or another one than was meant."""


class Credentials:
    """What one peer shows and demands: made anew with each certificate."""

    def __init__(self, own: PeerName, as_server: ssl.SSLContext, as_client: ssl.SSLContext) -> None:
        self.own, self.as_server, self.as_client = own, as_server, as_client

    def name_of(self, stream: ssl.SSLSocket) -> PeerName:
        """The peer at the other end; NotAMember if its certificate names none of this mesh."""
        shown = stream.getpeercert() or {}
        names: Any = shown.get("subjectAltName", ())  # pairs of kind and text
        texts = [str(text) for kind, text in names if kind == "URI"]
        for named in map(parse_mesh_uri, texts):
            if named is not None and named.mesh == self.own.mesh:
                return named
        raise NotAMember("its certificate is of no member of this mesh")


class Link:
    """One connection to a peer."""

    def __init__(self, contact: Contact, stream: ssl.SSLSocket) -> None:
        self.contact, self.stream = contact, stream
        self.is_fresh = True

    def ask(self, message: Any, within: float) -> Any:
        """The answer to a message."""
        self.stream.settimeout(within)
        frames.send(self.stream, message)
        return frames.receive(self.stream)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self.stream.close()


class Links:
    """The connections of one pilot to others; used by several threads, each connection by one at a time."""

    def __init__(self, credentials: Credentials, address: str = "") -> None:
        self.credentials, self.address = credentials, address
        self._idle: OrderedDict[int, list[Link]] = OrderedDict()  # by id, the least recently used first
        self._count = 0
        self._mutex = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def to(self, contact: Contact, fresh: bool = False, within: float = CONNECT_WITHIN) -> Iterator[Link]:
        """A connection to a peer, kept afterwards unless something went wrong with it; OSError if there is none."""
        link = (None if fresh else self._take(contact)) or self.connect(contact, within)
        try:
            yield link
        except BaseException:
            link.close()
            raise
        link.is_fresh = False
        self._keep(link)

    def ask(self, contact: Contact, message: Any, within: float = ANSWER_WITHIN) -> Any:
        """The answer of a peer to a small message."""
        return self.talk(contact, lambda link: link.ask(message, within))

    def talk(self, contact: Contact, talk: Callable[[Link], T]) -> T:
        """What talking to a peer gives; once more over a new connection if a kept one turns out to be dead."""
        was_fresh = True
        try:
            with self.to(contact) as link:
                was_fresh = link.is_fresh
                return talk(link)
        except (frames.Broken, ConnectionError, ssl.SSLError):
            if was_fresh:
                raise
        with self.to(contact, fresh=True) as link:
            return talk(link)

    def tell(self, contact: Contact, message: Any) -> None:
        """Send a message that nobody answers."""
        with self.to(contact) as link:
            link.stream.settimeout(ANSWER_WITHIN)
            frames.send(link.stream, message)

    def connect(self, contact: Contact, within: float = CONNECT_WITHIN) -> Link:
        """A new connection; NotAMember if another peer is there than the contact names."""
        host, _, port = contact.address.rpartition(":")
        raw = socket.create_connection((host.strip("[]"), int(port)), within)
        try:
            raw.setsockopt(*NO_DELAY)
            stream = self.credentials.as_client.wrap_socket(raw)
        except BaseException:
            raw.close()
            raise
        try:
            if parse_key(self.credentials.name_of(stream).id) != contact.id:
                raise NotAMember(f"another peer is at {contact.address}")
            frames.send(stream, Hello(self.address))
        except BaseException:
            stream.close()
            raise
        return Link(contact, stream)

    def forget(self, id: int) -> None:
        """Close the connections to a peer."""
        with self._mutex:
            links = self._idle.pop(id, [])
            self._count -= len(links)
        for link in links:
            link.close()

    def become_client(self) -> None:
        """Others do not reach us: from now on we name no address."""
        self.address = ""
        self._close_idle()

    def close(self) -> None:
        """Close all."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._mutex:
            links = [link for kept in self._idle.values() for link in kept]
            self._idle.clear()
            self._count = 0
        for link in links:
            link.close()

    def _take(self, contact: Contact) -> Optional[Link]:
        with self._mutex:
            kept = self._idle.get(contact.id)
            if not kept:
                return None
            link = kept.pop()
            self._count -= 1
            if not kept:
                del self._idle[contact.id]
            return link

    def _keep(self, link: Link) -> None:
        closed: Optional[Link] = link
        with self._mutex:
            if not self._is_closed:
                closed = None
                kept = self._idle.setdefault(link.contact.id, [])
                kept.append(link)
                self._idle.move_to_end(link.contact.id)
                self._count += 1
                if self._count > MAX_PEER_LINKS or len(kept) > MAX_LINKS_EACH:
                    oldest = link.contact.id if len(kept) > MAX_LINKS_EACH else next(iter(self._idle))
                    closed = self._idle[oldest].pop(0)
                    self._count -= 1
                    if not self._idle[oldest]:
                        del self._idle[oldest]
        if closed is not None:
            closed.close()
