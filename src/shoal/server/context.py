"""The parts of one running server, and access to objects: who owns something is looked up each time [security S13]."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.model.credentials import SESSION
from shoal.model.errors import NotFound, echo
from shoal.model.file_names import PILOT_ZIP
from shoal.model.ids import TaskId, run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.model.policy import outward
from shoal.server.auth.authentication import Authentication, Caller
from shoal.server.auth.lockout import Lockouts
from shoal.server.blobs.fetchers import Fetchers
from shoal.server.blobs.registry import Blobs
from shoal.server.blobs.uploads import Uploads
from shoal.server.exchanges.mailboxes import Mailboxes
from shoal.server.file_answers import FileAnswers
from shoal.server.http.bodies import Bodies
from shoal.server.http.connections import Connections
from shoal.server.http.rate_limit import RateLimit
from shoal.server.metrics import Metrics
from shoal.server.service import Service

if TYPE_CHECKING:
    from shoal.server.auth.certificate_authority import CertificateAuthority
    from shoal.server.http.tunnel_socket import TunnelSocket


def unknown_run(number: int) -> NotFound:
    """The refusal of a run that does not exist or that the caller may not see."""
    return NotFound(f"there is no run {run_text(number)}", code="unknown_run", hint="see `shoal ps`")


BUILD_AFTER = 1.0  # seconds after the start until the pilot's zip is built, if nobody asks for it before


@dataclass
class Context:
    """Everything a handler may need."""

    service: Service
    access: Authentication
    connections: Connections
    rate_limit: RateLimit
    metrics: Metrics
    stop: Callable[[], None]
    blobs: Blobs
    uploads: Uploads
    bodies: Bodies = field(default_factory=Bodies)
    lockouts: Lockouts = field(default_factory=Lockouts)
    file_answers: FileAnswers = field(default_factory=FileAnswers)
    authority: CertificateAuthority | None = None  # None: this server is not reached from other hosts
    tunnel: TunnelSocket | None = None
    mailboxes: Mailboxes = field(default_factory=Mailboxes)
    fetchers: Fetchers = field(default_factory=Fetchers)
    addresses: list[str] = field(default_factory=list)  # for join strings: host:port, or unix:/path
    names: frozenset[str] = frozenset()  # host names of this server
    pilot_sha256: str = ""
    pilot_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    pilot_built: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pilot_path(self) -> Path:
        """The zip of the pilot that this server serves."""
        return self.service.state_dir / PILOT_ZIP

    async def pilot_digest(self, within: float = 10.0) -> str:
        """The SHA-256 of the pilot; just after a start it is yet to be built."""
        self.pilot_wanted.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.pilot_built.wait(), within)
        return self.pilot_sha256

    async def build_pilot(self) -> None:
        """Build the pilot's zip when it is asked for, or a moment after the start, which it must not slow down.

        That is done in a process of its own, since the server never imports the pilot. Pilots with another digest renew
        themselves when idle."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.pilot_wanted.wait(), BUILD_AFTER)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal.pilot.build_zip", str(self.pilot_path),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, output = await process.communicate()
        if process.returncode:
            text = output.decode("utf-8", "replace")[-300:]
            self.service.engine.describe_server(trouble=f"the pilot could not be built: {text}")
            return
        self.pilot_path.chmod(0o700)  # no secret, but nothing in a state directory is for others
        data = await asyncio.to_thread(self.pilot_path.read_bytes)
        self.pilot_sha256 = hashlib.sha256(data).hexdigest()
        self.service.engine.describe_server(pilot_zip=self.pilot_sha256)
        self.pilot_built.set()

    # --- access to objects
    def owner_of(self, run: int) -> str | None:
        """The owner of a run; None if there is no such run."""
        known = self.service.engine.state.runs.get(run)
        row = known if known is not None else self.service.reader.run_row(run)
        return row.owner if row is not None else None

    def check_run(self, caller: Caller, run: int, task: str = "") -> None:
        """Refuse a run, or the task in it that is named, that does not exist or belongs to another: with the same text."""
        owner = self.owner_of(run)
        if owner is None or not self.access.sees(caller, owner):
            if task:
                raise NotFound(f"there is no task {task}", code="unknown_task", hint="see `shoal ps`")
            raise unknown_run(run)

    def check_target(self, caller: Caller, target: int | TaskId) -> None:
        """Refuse a run or a task in the same way."""
        run = target if isinstance(target, int) else target.run
        self.check_run(caller, run, "" if isinstance(target, int) else str(target))

    def check_pilot(self, caller: Caller, name: str, to_end: bool = False) -> None:
        """Refuse a pilot in the same way; `to_end`: a group's pilots are ended by its manager only."""
        pilot = self.service.engine.state.pilots.get(name)
        row = self.service.reader.pilot(name) if pilot is None else None
        owner = pilot.owner if pilot is not None else row.owner if row is not None else ""
        group = pilot.group if pilot is not None else row.grp if row is not None else ""
        mine = bool(owner) and self.access.sees(caller, owner)
        ours = bool(group) and (caller.manages(group) if to_end else caller.is_admin or group in outward(caller.group))
        if not (mine or ours):
            raise NotFound(f"there is no pilot {name}", code="unknown_pilot", hint="see `shoal pilots`")

    def check_place(self, caller: Caller, kind: str, name: str) -> None:
        """Refuse an owner in the same way; of a site everyone sees what their own pilots do there."""
        if kind == "owner" and not self.access.sees(caller, name):
            raise NotFound(f"there is no user {echo(name)}", code="unknown_user", hint="see `shoal user list`")

    def sees_blob(self, caller: Caller, digest: str) -> bool:
        """True if a blob is held by an owner whom the caller may see or, for a pilot, whom it serves: knowing its digest
        gives no access."""
        owners = self.blobs.owners(digest)
        if caller.kind != SESSION:
            return any(self.access.sees(caller, owner) for owner in owners)
        state = self.service.engine.state
        pilot = state.pilots.get(caller.pilot)
        return pilot is not None and any(state.serves(pilot, owner) for owner in owners)


class CallHandler:
    """Base of the handlers: one method per call, with the parts of the server that they use."""

    def __init__(self, context: Context) -> None:
        self.context, self.service, self.access = context, context.service, context.access
