"""One pilot's membership in its mesh, from its registration to its end: port, reachability, table, source [ADR 0048].

A pilot whose server is reached by a Unix socket takes no part: all pilots of that host share its files anyway.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Protocol
from urllib.parse import urlsplit

from shoal.data.sources import Place
from shoal.dht import peer as decide
from shoal.dht.key import parse_key
from shoal.dht.peers import CLIENT_ONLY, DialBack, DialedBack, PeerName, parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.model.limits import MAX_KEPT_OUT, MAX_SHARED, SMALL_MESH
from shoal.pilot.files.fetch import NotHere, Source, Write
from shoal.pilot.mesh.left_members import LeftMembers
from shoal.pilot.mesh.links import Credentials, Links
from shoal.pilot.mesh.listener import Handler, Listener, OpenFile, open_port
from shoal.pilot.mesh.peer_table import PeerTable
from shoal.pilot.mesh.source import NamedPeers, PeerSource, contacts_of
from shoal.pilot.mesh.strikes import Strikes
from shoal.pilot.uplink.tls import Trust
from shoal.wire.messages import (
    Accusation,
    BlobPeers,
    Capacity,
    Leadership,
    Lease,
    Neighbour,
    Registered,
    Reply,
    TagValue,
)

if TYPE_CHECKING:
    from shoal.pilot.leader.messages import Follow, Lead
    from shoal.pilot.mesh.leading import Leading

log = logging.getLogger(__name__)

DIAL_WITHIN = 8.0  # seconds for the answer to a dial-back: the other side tries to connect meanwhile
DIALERS = 2  # peers that are asked whether they reach us
ANYWHERE = ("192.0.2.1", 9)  # an address that nobody has: which of ours would send there?


class Role(Protocol):
    """What is told of the leader of our mesh."""

    def on_joined(self, registered: Registered) -> None: ...
    def on_leader(self, leader: Optional[Leadership]) -> None: ...
    def close(self) -> None: ...


class MeshOptions(NamedTuple):
    """What was said about the mesh when a pilot was started."""

    ports: Sequence[int] = (0,)  # 0: any that is free
    address: str = ""  # by which others reach this host; empty: found out


class Mesh:
    """The mesh as the rest of the pilot sees it: a place that may have files, and to be told which ones are here."""

    place = PeerSource.place

    def __init__(
        self,
        options: MeshOptions,
        trust: Trust,
        open_file: OpenFile,
        ask_server: Callable[[str], Optional[BlobPeers]],
        told: Callable[[str], None],
        accuse: Callable[[Accusation], None],
        failed: Callable[[Place, str, str], None],
        begin: Callable[[tuple[Lease, ...]], None],
        kept: Callable[[int, int, int], None],
    ) -> None:
        """`told` is called with where others reach us, when that changes; `accuse` with what is to be reported of peers that
        lie; `failed` with each peer that did not give a file, its digest, and why; `begin` with tasks of the window that are
        ours, `kept` with what is to be said of the window (`leading.Handlers`)."""
        self._begin_tasks, self._kept = begin, kept
        self._leading: Optional[Leading] = None  # at a site in mode `distributed`
        self.left: Optional[LeftMembers] = None  # where pilots that come while the server is away find us
        self._is_leader = False
        self._is_guest = False  # the server has not registered us yet
        self._beat = 10.0
        self._options, self._trust, self._ask_server = options, trust, ask_server
        self._told, self._report, self._failed = told, accuse, failed
        self.role: Optional[Role] = None  # None: this pilot neither leads nor follows
        self._have: dict[str, None] = {}  # digests of what we have
        self._members_out: dict[int, None] = {}  # ids that are members no more, whatever they show
        self._known: dict[int, Contact] = {}  # members of which we were told
        self._is_checked = False  # somebody tried to connect to us
        self._strikes = Strikes()
        self._mutex = threading.Lock()
        self._table: Optional[PeerTable] = None
        self._links: Optional[Links] = None
        self._source: Optional[PeerSource] = None
        self._is_over = False
        server = open_port(options.ports)
        self._open_file = open_file
        self._listener = Listener(server, self._open_if_ours) if server is not None else None
        self._address = ""  # by which others reach us, as far as we know
        if server is None:
            log.warning("no port of %s is free: other pilots cannot fetch files here", options.ports)

    def announce(self, server_url: str) -> str:
        """Where others reach us, as far as we know before anybody tried: what the registration says."""
        if self._listener is None:
            return CLIENT_ONLY
        if self._address:
            return self._address
        host = self._options.address or own_address(server_url)
        self._address = f"[{host}]:{self._listener.port}" if ":" in host else f"{host}:{self._listener.port}"
        return self._address

    @property
    def links(self) -> Optional[Links]:
        """Our connections to other members; None before we are one."""
        return self._links

    def members(self) -> list[Contact]:
        """Members of which we were told that they can be reached."""
        return list(self._known.values())

    def serve(self, kind: type, handler: Handler) -> None:
        """Have messages of this kind from other members answered by `handler`."""
        if self._listener is not None:
            self._listener.handlers[kind] = handler

    # --- from the loop
    def on_joined(self, registered: Registered) -> None:
        """We have a certificate: be a peer. After another registration we are another one."""
        own = parse_mesh_uri(registered.peer)
        if own is None or self._is_over:
            return
        try:
            self._begin(own, registered)
        except (OSError, ValueError) as error:  # a pilot works without its mesh
            log.error("this pilot shares no files: %s", error)
            return
        if self.role is not None:
            self.role.on_joined(registered)

    def _begin(self, own: PeerName, registered: Registered) -> None:
        old_table, old_links = self._table, self._links
        self._keep_out(map(parse_key, registered.shut_out))
        credentials = Credentials(own, *self._trust.peer_contexts())
        links = Links(credentials, self._address)
        table = PeerTable(Contact(parse_key(own.id), links.address), links, _rng(), self._is_member)
        table.start()
        with self._mutex:
            self._table, self._links = table, links
            self._source = PeerSource(
                table,
                links,
                self._strikes,
                self._ask_server,
                self._on_accused,
                lambda: self._is_over,
                self._failed,
            )
        if old_table is not None and old_links is not None:
            old_table.close(leaves=False)
            old_links.close()
        if self._listener is not None and links.address:
            self._listener.serve(table, links, self._is_member)
        self._is_checked = False
        if self._leading is not None:  # as the peer that we were
            self._leading.close()
            self._leading = None
        self._is_guest, self._beat = not registered.pilot, registered.beat
        self._lead(registered.leader, registered.beat)
        contacts = contacts_of(registered.neighbours)
        self._known = {contact.id: contact for contact in contacts}
        self._join_beside(contacts)

    def _lead(self, leadership: Optional[Leadership], beat: float) -> None:
        """Follow or be the leader that the server names."""
        table, links = self._table, self._links
        if leadership is None or table is None or links is None:
            return
        if self._leading is None and leadership.id:
            from shoal.pilot.mesh.leading import Handlers, Leading

            handlers = Handlers(self._begin_tasks, self._on_kept)
            self._leading = Leading(table.own, beat, links, handlers, self._is_guest)
            self._leave_address(links)
            if self._listener is not None:
                self._listener.leading = self._leading
        if self._leading is not None:
            self._leading.named(leadership, beat)

    def found(self, sender: Contact, asked: Follow, lead: Lead) -> None:
        """A member that we asked says who leads; the server is away."""
        if self._leading is not None:
            self._leading.found(sender, asked, lead)
        else:
            self._lead(Leadership(lead.term, lead.leader, lead.address), self._beat)

    @property
    def is_placed(self) -> bool:
        """True if we know the members of our mesh from its leader."""
        return self._leading is not None and self._leading.is_placed

    def _on_kept(self, window: int, seen: int, reserve: int) -> None:
        """The window changed; whoever begins to lead is to be found by newcomers first."""
        was_leader, self._is_leader = self._is_leader, window >= 0
        if self._is_leader and not was_leader and self._links is not None:
            self._leave_address(self._links)
        self._kept(window, seen, reserve)

    def _leave_address(self, links: Links) -> None:
        """Leave at the site where others reach us, on a thread of its own: its directories may hang."""
        left, own = self.left, Contact(parse_key(links.credentials.own.id), links.address)
        if left is not None and links.address:
            arguments = (links.credentials.own.mesh, own)
            threading.Thread(target=left.leave, args=arguments, name="mesh-left", daemon=True).start()

    def on_reply(self, reply: Reply) -> None:
        """Others came, or are members no more."""
        table = self._table
        if table is None:
            return
        if reply.leader is not None and self.role is not None:
            self.role.on_leader(reply.leader)
        for id in map(parse_key, reply.gone):
            self._drop(id)
        self._lead(reply.leader, reply.hold)
        leading = self._leading
        if leading is not None and reply.gone:
            leading.ended(reply.gone)
        if leading is not None and reply.window_number:
            leading.granted(reply.window_number, reply.window, reply.window_gone)
        contacts = contacts_of(reply.neighbours)
        self._known.update((contact.id, contact) for contact in contacts)
        while len(self._known) > SMALL_MESH:
            del self._known[next(iter(self._known))]
        if contacts and self._is_checked:
            table.handle(decide.Join(contacts))
        elif contacts:
            self._join_beside(contacts)

    @property
    def has_leader(self) -> bool:
        """True at a site in mode `distributed`."""
        return self._leading is not None

    def on_contact(self, at: float) -> None:
        """The server answered what was sent then."""
        if self._leading is not None:
            self._leading.contact(at)

    def on_state(self, free: Capacity, tags: dict[str, TagValue], leaving: bool) -> None:
        """What is free here now."""
        if self._leading is not None:
            self._leading.state(free, tags, leaving)

    # --- from the cache
    def have(self, digests: Iterable[str]) -> None:
        """These files are here now."""
        new = [digest for digest in digests if digest not in self._have]
        self._have.update(dict.fromkeys(new))
        self.lost(list(self._have)[: max(0, len(self._have) - MAX_SHARED)])
        if self._table is not None and self._table.own.address and new:
            self._table.handle(decide.Publish(_keys(new)))

    def lost(self, digests: Iterable[str]) -> None:
        """These files are not here any more."""
        old = [digest for digest in digests if self._have.pop(digest, "") is None]
        if self._table is not None and old:
            self._table.handle(decide.Unpublish(_keys(old)))

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`: a file from peers."""
        source = self._source
        if source is None:
            raise NotHere("this pilot is in no mesh yet")
        try:
            source.fetch(digest, size, write, deadline)
        except NotHere as error:
            log.info("file digest=%s not from peers: %s", digest, error)
            raise

    def named(self, holders: Sequence[Neighbour]) -> Optional[Source]:
        """Peers that a lease names as a place of the files that it names them for; None before we are a peer."""
        return NamedPeers(self._source, contacts_of(holders)) if self._source is not None else None

    def close(self) -> None:
        """Leave: what we keep for others is handed on."""
        self._is_over = True
        if self.role is not None:
            self.role.close()
        if self._leading is not None:
            self._leading.close()
        if self._table is not None and self._links is not None:
            self._table.close(leaves=bool(self._links.address))
            self._links.close()
        if self._listener is not None:
            self._listener.close()

    def _open_if_ours(self, digest: str) -> Optional[int]:
        """A file for another member of the mesh. The cache of this host may have files of other owners, too: what our own tasks
        did not need is not served [promise I16]."""
        if digest not in self._have:
            return None
        fd = self._open_file(digest)
        if fd is None:
            self.lost([digest])  # the cache had to make place
        return fd

    # --- joining
    def _join_beside(self, contacts: tuple[Contact, ...]) -> None:
        """Join on a thread of its own: others may have to try for seconds to connect to us."""
        arguments = (self._table, self._links, contacts)
        threading.Thread(target=self._join, args=arguments, name="mesh-join", daemon=True).start()

    def _join(self, table: PeerTable, links: Links, contacts: tuple[Contact, ...]) -> None:
        is_reached = _is_reached(links, contacts) if links.address else None
        if is_reached is not None:
            self._is_checked = True
        if is_reached is False:
            log.warning("no peer reaches us at %s: we ask and fetch, and serve nothing", links.address)
            links.become_client()
            table.become_client()
            if self._leading is not None:
                self._leading.become_client()
            self._told(CLIENT_ONLY)
        table.handle(decide.Join(contacts))
        if table.own.address and self._have:
            table.handle(decide.Publish(_keys(self._have)))

    # --- members
    def _is_member(self, id: int) -> bool:
        return id not in self._members_out and id not in self._strikes.dropped

    def _drop(self, id: int) -> None:
        self._known.pop(id, None)
        self._keep_out([id])
        if self._table is not None:
            self._table.handle(decide.Drop(id))
        if self._links is not None:
            self._links.forget(id)
        if self._listener is not None:
            self._listener.drop(id)

    def _keep_out(self, ids: Iterable[int]) -> None:
        self._members_out.update(dict.fromkeys(ids))
        while len(self._members_out) > MAX_KEPT_OUT:
            del self._members_out[next(iter(self._members_out))]

    def _on_accused(self, contact: Contact, accusation: Accusation) -> None:
        self._drop(contact.id)
        self._report(accusation)


def _is_reached(links: Links, contacts: Sequence[Contact]) -> Optional[bool]:
    """Have peers connect to us: can one of them? None if nobody could be asked."""
    asked = 0
    for contact in contacts:
        try:
            with links.to(contact) as link:
                answer = link.ask(DialBack(links.address), DIAL_WITHIN)
        except (OSError, ValueError) as error:
            log.info("peer=%s does not dial back: %s", contact.address, error)
            continue
        if isinstance(answer, DialedBack) and answer.reached:
            return True
        asked += 1
        if asked >= DIALERS:
            break
    return False if asked else None


def own_address(server_url: str) -> str:
    """The address of this host by which it reaches the server; where that is this host itself, by which it reaches others."""
    parts = urlsplit(server_url)
    near = (parts.hostname or "", parts.port or 443)
    found = [_source_address(near)]
    if parts.scheme == "relay" and _is_loopback(found[0]):  # a relay of this host: the server is elsewhere
        found.insert(0, _source_address(ANYWHERE))
    return next(filter(None, found), "") or "127.0.0.1"


def _source_address(target: tuple[str, int]) -> str:
    try:
        family, _, _, _, address = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _is_loopback(address: str) -> bool:
    return not address or address == "::1" or address.startswith("127.")


def _keys(digests: Iterable[str]) -> tuple[int, ...]:
    return tuple(parse_key(digest.partition(":")[2]) for digest in digests)


def _rng() -> Random:
    return Random(secrets.randbits(64))
