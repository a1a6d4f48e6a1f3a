"""Keeping reports while the server is away: ours on our disk and on those of other members, theirs on ours; and delivering those
whose pilots do not come back [promise I18; ADR 0062].

Disks and other pilots are waited for on threads of their own, so that no pilot that does not answer delays our own disk; the
loop only says what there is to keep.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Callable, Optional

from shoal.dht.key import parse_key
from shoal.dht.peers import DropReports, KeepReports, ReportsKept
from shoal.dht.routing_table import Contact
from shoal.model.credentials import digest
from shoal.model.ids import is_pilot
from shoal.model.limits import COPIES_ELSEWHERE, MAX_SEALED, MAX_SEALED_BYTES, MAX_SEALED_REPORTS
from shoal.pilot.leader.report_copies import ReportCopies
from shoal.pilot.leader.spool import Spool
from shoal.pilot.mesh.links import Links
from shoal.wire import codec
from shoal.wire.messages import Batch, Proof, Registered, Report, Sealed
from shoal.wire.seal import KEPT, seal

log = logging.getLogger(__name__)

OFFER_AGAIN = 60.0  # seconds after which a copy that the server did not want yet is delivered once more
MOST_ASKED = 6  # members that are asked to keep a copy, until enough do


class ReportKeeper:
    """Keeps copies of reports, ours and others'."""

    def __init__(
        self,
        spools: Sequence[Spool],
        links: Callable[[], Optional[Links]] = lambda: None,
        members: Callable[[], Sequence[Contact]] = tuple,
    ) -> None:
        """`spools`: the folder of this host, and one that all hosts of the site see, if there is one."""
        self._spools, self._links, self._members = spools, links, members
        self._registered: Optional[Registered] = None
        self._copies = ReportCopies()
        self._kept_by: dict[str, list[Contact]] = {}  # seal -> members that keep that copy
        self._offered: dict[str, float] = {}  # seals of copies that were delivered, and when
        self._jobs: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()
        self._asks: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()  # what other members are asked
        self._thread = threading.Thread(target=_run, args=(self._jobs,), name="report-keeper", daemon=True)
        self._thread.start()
        self._asker = threading.Thread(target=_run, args=(self._asks,), name="report-asker", daemon=True)
        self._asker.start()

    # --- from the loop
    def on_joined(self, registered: Registered) -> None:
        """Who we are; also after another registration."""
        self._registered = registered

    def copy(self, reports: Mapping[str, Report], batches: Mapping[str, Batch], proofs: Sequence[Proof]) -> None:
        """The server does not answer: have copies of these, of which it has not taken notice."""
        registered = self._registered
        if registered is None:
            return
        for piece in self._copies.missing(reports, batches):
            exchange = self._copies.message(registered.pilot, piece, proofs)
            sealed = seal(digest(registered.session), KEPT, registered.pilot, codec.encode(exchange).decode())
            self._copies.made(sealed.seal, piece)
            self._jobs.put(partial(self._keep, sealed))

    def settle(self, reports: Mapping[str, Report], batches: Mapping[str, Batch]) -> None:
        """The server has everything but these: copies of the rest are needless."""
        registered = self._registered
        done = self._copies.needless(reports, batches)
        if registered is not None and done:
            self._jobs.put(partial(self._drop, registered.pilot, done))

    def offer(self, then: Callable[[list[Sealed]], None]) -> None:
        """The server answers again: have `then` called with copies of others' reports, on another thread."""
        self._jobs.put(partial(self._offer, then))

    def delivered(self, copies: Iterable[Sealed]) -> None:
        """The server has these of others."""
        self._jobs.put(partial(self._forget, list(copies)))

    def close(self, within: float = 5.0) -> None:
        """Finish what was begun: the pilot ends. First on our disks, then at other members in what is left of the time."""
        until = time.monotonic() + within
        self._jobs.put(None)
        self._thread.join(within)
        self._asks.put(None)
        self._asker.join(max(0.0, until - time.monotonic()))

    # --- from other members
    def on_keep(self, sender: Contact, message: KeepReports) -> list[ReportsKept]:
        """Keep another member's reports."""
        is_kept = all(
            is_pilot(copy.pilot) and len(copy.body) <= MAX_SEALED and self._spools[0].put(copy)
            for copy in message.copies
        )
        return [ReportsKept(bool(message.copies) and is_kept)]

    def on_drop(self, sender: Contact, message: DropReports) -> list[ReportsKept]:
        """The server has them. A liar among our members could as well have kept nothing."""
        self._spools[0].drop(message.pilot, message.seals[:MAX_SEALED_REPORTS])
        return [ReportsKept(True)]

    # --- on the thread of the disks
    def _keep(self, copy: Sealed) -> None:
        for spool in self._spools:
            spool.put(copy)
        self._asks.put(partial(self._share, copy))

    # --- on that of other members
    def _share(self, copy: Sealed) -> None:
        links = self._links()
        if links is None or len(copy.body.encode()) > MAX_SEALED:
            return
        keepers: list[Contact] = []
        for contact in self._nearest(links)[:MOST_ASKED]:
            if len(keepers) == COPIES_ELSEWHERE:
                break
            with contextlib.suppress(OSError, ValueError):
                answer = links.ask(contact, KeepReports([copy]))
                if isinstance(answer, ReportsKept) and answer.done:
                    keepers.append(contact)
        self._kept_by[copy.seal] = keepers
        log.info("reports copied seal=%s members=%d", copy.seal[:12], len(keepers))

    def _nearest(self, links: Links) -> list[Contact]:
        """Members in an order of our own, so that not all ask the same ones; those on other hosts first."""
        own = links.credentials.own.id
        host = links.address.rpartition(":")[0]

        def order(contact: Contact) -> tuple[bool, bytes]:
            mixed = hashlib.sha256(f"{own} {contact.id:x}".encode()).digest()
            return contact.address.rpartition(":")[0] == host, mixed

        return sorted((one for one in self._members() if one.address and one.id != parse_key(own)), key=order)

    def _drop_shared(self, pilot: str, seals: list[str]) -> None:
        by_keeper: dict[Contact, list[str]] = {}
        for one in seals:
            for contact in self._kept_by.pop(one, ()):
                by_keeper.setdefault(contact, []).append(one)
        links = self._links()
        for contact, theirs in by_keeper.items() if links is not None else ():
            for at in range(0, len(theirs), MAX_SEALED_REPORTS):
                with contextlib.suppress(OSError, ValueError):
                    assert links is not None
                    links.ask(contact, DropReports(pilot, theirs[at : at + MAX_SEALED_REPORTS]))

    # --- on the thread of the disks
    def _drop(self, pilot: str, seals: list[str]) -> None:
        for spool in self._spools:
            spool.drop(pilot, seals)
        self._asks.put(partial(self._drop_shared, pilot, seals))  # after they were shared

    def _offer(self, then: Callable[[list[Sealed]], None]) -> None:
        now, registered = time.monotonic(), self._registered
        self._offered = {one: at for one, at in self._offered.items() if now < at + OFFER_AGAIN}
        found: dict[str, Sealed] = {}
        size = 0
        for spool in self._spools:
            own = registered.pilot if registered is not None else ""
            for copy in spool.copies(own, MAX_SEALED_REPORTS, MAX_SEALED_BYTES, self._offered):
                if (
                    copy.seal not in found
                    and len(found) < MAX_SEALED_REPORTS
                    and size + len(copy.body) <= MAX_SEALED_BYTES
                ):
                    found[copy.seal] = copy
                    size += len(copy.body)
        if found:
            self._offered.update(dict.fromkeys(found, now))
            then(list(found.values()))

    def _forget(self, copies: list[Sealed]) -> None:
        for copy in copies:
            for spool in self._spools:
                spool.drop(copy.pilot, [copy.seal])


def _run(jobs: SimpleQueue[Optional[Callable[[], None]]]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        try:
            job()
        except Exception:  # what can be kept is kept, whatever happened to the piece before it
            log.exception("copies of reports met a defect")
