"""A pilot that starts while the server is away: by the ticket of its allocation it is a member of its mesh until the server has
registered it, and takes what the leader gives it [ADR 0065].

It shows the certificate of its ticket, asks the members that it knows of who leads, and follows that one. Everything else is as
for other members; the server registers it when it is back, as another peer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Callable, Optional

from shoal.dht.peers import parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.pilot.guard import proctree
from shoal.pilot.leader.member import CUT_OFF_BEATS
from shoal.pilot.leader.messages import Follow, Lead
from shoal.pilot.mesh.left_members import LeftMembers
from shoal.pilot.mesh.links import ANSWER_WITHIN
from shoal.pilot.mesh.service import Mesh
from shoal.pilot.uplink.tls import Trust, WrongServer
from shoal.wire.messages import Capacity, Registered, Ticket

log = logging.getLogger(__name__)

ASK_EVERY = 2.0  # seconds between two looks for a leader


class Guest:
    """One pilot that the server has not registered yet."""

    def __init__(
        self,
        ticket: Ticket,
        fingerprint: str,
        trust: Trust,
        mesh: Mesh,
        left: LeftMembers,
        join: Callable[[Registered], None],
    ) -> None:
        """`join` has the pilot act as the registration of its ticket says, on its own thread."""
        self._ticket, self._fingerprint, self._trust = ticket, fingerprint, trust
        self._mesh, self._left, self._join = mesh, left, join
        self._since: Optional[float] = None  # when the server did not answer for the first time
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def on_no_answer(self) -> None:
        """The server did not answer a registration."""
        now = proctree.now()
        self._since = now if self._since is None else self._since
        if self._thread is None and now >= self._since + CUT_OFF_BEATS * self._ticket.registered.beat:
            self._thread = threading.Thread(target=self._run, name="mesh-guest", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """The server has registered this pilot, or it ends."""
        self._over.set()

    def _run(self) -> None:
        registered = self._ticket.registered
        name = parse_mesh_uri(registered.peer)
        try:
            self._trust.vouch(self._ticket.authority, self._fingerprint)
        except WrongServer as error:
            log.error("%s", error)
            return
        if name is None or not (registered.certificate and registered.key) or self._over.is_set():
            return
        self._trust.identify(registered.certificate, registered.key)
        # Without the leader of then: whom we follow says a member that answers.
        self._join(replace(registered, pilot="", session="", leader=None))
        log.info("the server is away: a guest in the mesh peer=%s", name.id[:12])
        while not self._over.wait(ASK_EVERY):
            if not self._mesh.is_placed:
                known = [*self._left.found(name.mesh), *self._mesh.members()]
                self._ask(one for one in dict.fromkeys(known) if f"{one.id:064x}" != name.id)

    def _ask(self, contacts: Iterable[Contact]) -> None:
        """Ask one after another who leads, until one knows."""
        links, asked = self._mesh.links, Follow(0, 1, 0, True, Capacity())
        for contact in contacts:
            if links is None or self._over.is_set():
                return
            try:
                answer = links.ask(contact, asked, ANSWER_WITHIN)
            except (OSError, ValueError) as error:
                log.info("peer=%s does not say who leads: %s", contact.address, error)
                continue
            if isinstance(answer, Lead) and answer.leader:
                log.info("peer=%s says who leads leader=%s term=%d", contact.address, answer.leader[:12], answer.term)
                self._mesh.found(contact, asked, answer)
                return
