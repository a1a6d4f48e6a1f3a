"""Notices: a URL gets a POST with JSON, or a command is run, when a run is over, has its first failure, or may miss its
deadline [ADR 0054].

What is to be told is a row of the database, written with the event that it is about and deleted when it was told: it is told
at least once, with an id by which a repetition is known. Nothing here is on the path of a request: deliveries wait for
nobody, few go on at once, of one owner fewer still, and each is tried a bounded number of times.

A URL is fetched by the server, so what it may reach is decided by whoever runs the server: only hosts that the policy names,
no redirects; a server of one person's own, embedded in their commands, fetches what they say. A command is only run by such
a server: it runs as its account, which is theirs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from shoal.engine.changes import NoticeRow
from shoal.engine.commands import Noticed
from shoal.model.errors import BadInput, Refused, ShoalError, echo
from shoal.model.ids import run_text
from shoal.server.hooks.child_command import run_command
from shoal.server.service import Service

log = logging.getLogger(__name__)
SCHEMES = ("http://", "https://")
EMBEDDED = "embedded"
AT_ONCE, AT_ONCE_EACH = 4, 2  # deliveries, and those of one owner
WITHIN = 15.0  # seconds for one
COMMAND_WITHIN = 60.0  # seconds for a command
FIRST_PAUSE, MOST_PAUSE = 1.0, 300.0  # seconds before another try: each time three times as long
TRIES = 8  # over some twenty minutes
LOOKED_AT = 20  # notices of each owner that are read at once
LOOK_AGAIN = 5.0  # seconds after a look at the database failed
_PORTS = {"http": 80, "https": 443}
_AGAIN = frozenset({408, 425, 429})  # refusals that may be over in a moment; others of 400 to 499 stay


class Permanent(Exception):  # it is why another try would not help
    """A target that will not take it, however often it is tried."""


def is_url(target: str) -> bool:
    """True if a target is an address; anything else is a command."""
    return target.lower().startswith(SCHEMES)


def check_target(target: str, mode: str, hosts: tuple[str, ...]) -> None:
    """Refuse a target that this server would not tell anything."""
    if not is_url(target):
        if "://" in target.split()[0]:
            hint = "an address begins with https://; anything else is a command"
            raise BadInput(f"{echo(target)!r} cannot be told anything", code="bad_url", field="notify", hint=hint)
        if mode != EMBEDDED:
            hint = "give a URL; a command runs only on your own machine, by the server that your commands start there"
            raise Refused("this server runs no commands of its users", code="forbidden", field="notify", hint=hint)
        return
    parts = _split(target)
    if mode != EMBEDDED and not is_allowed(parts, hosts):
        hint = "an administrator allows hosts by [notify] hosts = [...] in the policy"
        what = f"this server sends no notices to {echo(place_of(target))}"
        raise Refused(what, code="forbidden", field="notify", hint=hint)


def _split(target: str) -> SplitResult:
    try:
        parts = urlsplit(target)
        is_plain = target.isascii() and not any(letter.isspace() for letter in target)
        if is_plain and parts.hostname and parts.port != 0 and "@" not in parts.netloc:
            return parts
    except ValueError:
        pass
    hint = "such as https://hooks.example.org/abc, without a user's name in it"
    raise BadInput(f"{echo(target)!r} is no address", code="bad_url", field="notify", hint=hint)


def is_allowed(parts: SplitResult, hosts: tuple[str, ...]) -> bool:
    """Does a policy name this host, and its port if that is not the usual one?"""
    host, usual = (parts.hostname or "").lower(), _PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    port = parts.port or usual
    for one in hosts:
        if one.startswith("*."):
            name, _, wanted = one[1:].partition(":")
            if host.endswith(name) and str(port) == (wanted or str(usual)):
                return True
        elif one == f"{shown}:{port}" or (one == shown and port == usual):
            return True
    return False


def place_of(target: str) -> str:
    """A target without what may be a secret in it."""
    if not is_url(target):
        return "a command"
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.netloc}"


def document_of(row: NoticeRow) -> dict[str, Any]:
    """What a target is told; `text` is what chat systems show."""
    return {
        "id": f"{run_text(row.run)}-{row.seq}", "what": row.what, "run": run_text(row.run), "owner": row.owner,
        "time": row.time, "text": f"Shoal: {row.text}", "data": json.loads(row.data),
    }  # fmt: skip


def post(target: str, body: bytes, name: str, within: float = WITHIN) -> None:
    """POST a document. On a thread of its own."""
    import http.client
    import ssl

    parts = _split(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=within, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=within)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "X-Shoal-Notice": name})
        status = connection.getresponse().status
    finally:
        connection.close()
    if 200 <= status < 300:
        return
    if status < 500 and status not in _AGAIN:
        raise Permanent(f"it answered with status {status}")
    raise OSError(f"it answered with status {status}")


class Notifier:
    """Delivers notices."""

    def __init__(
        self, service: Service, pauses: tuple[float, float] = (FIRST_PAUSE, MOST_PAUSE), tries: int = TRIES
    ) -> None:
        self._service, self._pauses, self._tries = service, pauses, tries
        self._wake = asyncio.Event()
        self._going: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Somebody's addresses that do not answer must not keep others' notices waiting.
        self._going_of: Counter[str] = Counter()
        self._slots_of: dict[str, asyncio.Semaphore] = {}
        self._wake.set()  # what an earlier process left

    @property
    def is_busy(self) -> bool:
        """True while somebody is to be told something."""
        return bool(self._going) or self._wake.is_set()

    def wake(self) -> None:
        """There are new notices."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver what there is, and wait for more."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    rows = await self._service.query(lambda reader: reader.notices(LOOKED_AT), patient=True)
                except (sqlite3.Error, OSError) as error:
                    log.error("notices cannot be read: %s", error)
                    await asyncio.sleep(LOOK_AGAIN)
                    self._wake.set()
                    continue
                for row in rows:
                    key = (row.seq, row.target)
                    if key not in self._going:
                        self._going_of[row.owner] += 1
                        self._going[key] = asyncio.ensure_future(self._deliver(row))
        finally:
            for task in self._going.values():
                task.cancel()
            await asyncio.gather(*self._going.values(), return_exceptions=True)

    async def _deliver(self, row: NoticeRow) -> None:
        """Tell one target, try again after a while if it cannot be told, and note what became of it."""
        wrong, tries = "", 0
        pause, most = self._pauses
        own_slots = self._slots_of.setdefault(row.owner, asyncio.Semaphore(AT_ONCE_EACH))
        try:
            while True:
                tries += 1
                try:
                    async with own_slots, self._slots:
                        await self._tell(row)
                    wrong = ""
                    break
                except (Permanent, Refused, BadInput) as error:
                    wrong = str(error)
                    break
                except Exception as error:  # whatever a name server, TLS or the other end may come up with
                    wrong = f"{type(error).__name__}: {error}"
                    if tries >= self._tries:
                        break
                await asyncio.sleep(pause)
                pause = min(most, 3.0 * pause)
            (log.warning if wrong else log.info)(
                "notice run=%s what=%s to=%s tries=%d %s",
                run_text(row.run),
                row.what,
                place_of(row.target),
                tries,
                wrong,
            )
            await self._note(Noticed(
                row.seq, row.target, place_of(row.target), row.run, row.owner, row.what, tries, echo(wrong)
            ))  # fmt: skip
        finally:
            del self._going[row.seq, row.target]
            self._going_of[row.owner] -= 1
            if not self._going_of[row.owner]:
                del self._going_of[row.owner], self._slots_of[row.owner]
        if self._going_of[row.owner] in (0, LOOKED_AT // 2):
            self._wake.set()  # there may be more than were read

    async def _note(self, command: Noticed) -> None:
        """Note the end of a delivery, durably; while that is not possible, it is tried again."""
        while True:
            try:
                await self._service.command(command)
                return
            except ShoalError as error:  # a full disk, or an engine that is being rebuilt
                log.error("the end of a notice cannot be written: %s", error)
                await asyncio.sleep(LOOK_AGAIN)

    async def _tell(self, row: NoticeRow) -> None:
        service, document = self._service, document_of(row)
        check_target(
            row.target, service.mode, service.engine.state.accounting.policy.notify.hosts
        )  # it may have changed
        body = json.dumps(document).encode()
        if is_url(row.target):
            await asyncio.to_thread(post, row.target, body, str(document["id"]))
            return
        variables = {
            "SHOAL_NOTICE": document["id"], "SHOAL_EVENT": row.what, "SHOAL_RUN": document["run"],
            "SHOAL_TEXT": document["text"],
        }  # fmt: skip
        folder = await service.query(_folder_of(row.run), patient=True)
        ended = await run_command(["/bin/sh", "-c", row.target], variables, folder, COMMAND_WITHIN, body)
        if ended.output:
            log.info(
                "notice command of %s printed: %s", document["run"], ended.output.encode("unicode_escape").decode()
            )
        if ended.wrong.startswith("cannot"):
            raise Permanent(ended.wrong)
        if ended.wrong:
            raise OSError(ended.wrong)


def _folder_of(run: int) -> Callable[[Any], Path]:
    """A query for the directory of a run, or the person's own if that is gone."""

    def query(reader: Any) -> Path:
        row = reader.run_row(run)
        folder = Path(row.cwd) if row is not None and row.cwd else Path.home()
        return folder if folder.is_dir() else Path.home()

    return query
