"""Where the server is and how to connect to it: by its file, by URL and token file, or by a join string.

Files are read again for each connection, because the server may come back elsewhere. Secrets are in memory only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Optional
from urllib.parse import urlsplit

from shoal.model.errors import ShoalError, echo
from shoal.model.file_names import PILOT_PIDS
from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.uplink.tls import Trust, WrongServer
from shoal.wire import codec
from shoal.wire.http.connection import Connection, UnixConnection, is_readable
from shoal.wire.http.unix_socket import SCHEME
from shoal.wire.join import SERVER_NAME, Join, parse_join
from shoal.wire.messages import Ticket

if TYPE_CHECKING:
    from shoal.pilot.uplink.left_addresses import LeftAddresses

_MAX_FILE = 1 << 16


class NoServerAddress(Exception):
    """The address of the server is not known, or not allowed; the text says why."""


@dataclass(frozen=True)
class Endpoint:
    """Where the server is now, and the credentials for it."""

    urls: tuple[str, ...]
    token: str = field(repr=False)
    fingerprint: str = ""
    relay_keys: Mapping[str, str] = field(default_factory=dict, repr=False)  # by URL


class Connected(NamedTuple):
    """An open connection, and what requests on it need."""

    http: Connection
    url: str
    base: str  # the prefix of every path on that server
    headers: dict[str, str]
    generation: int  # of the certificate that was presented; 0: none
    token: str  # for enrolment


class ServerAddress:
    """One server, in whichever of these ways its address was given."""

    def __init__(
        self,
        server_file: str = "",
        url: str = "",
        token_file: str = "",
        join: Optional[Join] = None,
        awaited: Optional[int] = None,
        abandoned: Callable[[], None] = lambda: None,
        left: Optional[LeftAddresses] = None,
        ticket: Optional[Ticket] = None,
    ) -> None:
        self.awaited = awaited  # an open file with a byte when the server, which is starting, listens; None: it should
        self._abandoned = abandoned  # called if that server died before it took note of us
        self.server_file, self.url, self.token_file, self.join = server_file, url, token_file, join
        self.ticket = ticket  # of our allocation, for a start while the server is away
        self._left = left  # what the site knows of a server that moved; None: nothing
        self.trust = Trust()
        self._last_good = ""

    def __str__(self) -> str:
        if self.join is not None:
            return ",".join(self.join.urls)
        return self.url or self.server_file

    __repr__ = __str__

    @property
    def for_tasks(self) -> str:
        """What tasks need to find this server: its file, which has the token, or an address without one."""
        return self.server_file or self.url or (self.join.urls[0] if self.join is not None else "")

    def read(self) -> Endpoint:
        """The address as it is now."""
        if self.join is not None:
            known = self._known(self.join)
            urls = tuple(check_url(url) for url in known.urls)
            return Endpoint(urls, known.token, known.fingerprint, known.relay_keys)
        path = self.server_file or self.token_file
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(_MAX_FILE)
        except (OSError, UnicodeDecodeError) as error:
            raise NoServerAddress(f"cannot read {path}: {getattr(error, 'strerror', 'not a text')}") from None
        if not self.server_file:
            return Endpoint((check_url(self.url),), text.strip())
        try:
            data = json.loads(text)
            token = str(data.get("enrol") or data["token"])
            return Endpoint((check_url(str(data["url"])),), token, str(data.get("fingerprint", "")))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NoServerAddress(f"{path} is not a server file") from None

    def _known(self, join: Join) -> Join:
        """The join string, with addresses that were left at the site behind its own."""
        more = tuple(one for one in self._left.found if one not in join.addresses) if self._left is not None else ()
        return Join((*join.addresses, *more), join.fingerprint, join.token) if more else join

    def _is_noted(self) -> bool:
        """True if the next server of the same directory knows that this process is its pilot: it starts no other."""
        try:
            with open(os.path.join(os.path.dirname(self.server_file), PILOT_PIDS), encoding="ascii") as file:
                return str(os.getpid()) in file.read().split()
        except (OSError, ValueError):
            return False

    def connect(self, timeout: float, certified: bool = False) -> Connected:
        """Connect to the first address that accepts, beginning with the one that worked last."""
        if self.awaited is not None and is_readable(self.awaited, timeout):
            told, self.awaited = os.read(self.awaited, 1), None
            if not told and not self._is_noted():
                self._abandoned()
                raise NoServerAddress("the server that started this pilot died before it took note of it")
        endpoint, failure = self.read(), None
        for url in sorted(endpoint.urls, key=lambda url: url != self._last_good):
            connected = None
            try:
                connected = self._prepare(url, endpoint, timeout, certified)
                connected.http.connect()
            except WrongServer as error:
                if self.join is None or url in self.join.urls:
                    raise
                failure = OSError(f"{echo(url)}, which was left at this site: {error}")
                continue
            except OSError as error:
                failure = error
                if connected is not None:
                    connected.http.close()
                continue
            if url != self._last_good:
                self._last_good = url
                self._note_good(url)
            return connected
        if self._left is not None:
            self._left.look()
        raise failure or NoServerAddress("the server has no address")

    def _note_good(self, url: str) -> None:
        """The server is there: pilots of the site that know another address of it may look for this one."""
        if self._left is not None and self.join is not None:
            known = self._known(self.join)
            self._left.leave(next(one for one, of in zip(known.addresses, known.urls) if of == url))

    @property
    def is_remote(self) -> bool:
        """True if the server is reached by TLS; of one that is not known yet, whether it will be."""
        try:
            return bool(self.read().fingerprint) and not self.nearest.startswith(SCHEME)
        except NoServerAddress:
            return False

    @property
    def nearest(self) -> str:
        """The address that worked last, or the first one."""
        return self._last_good or next(iter(self.read().urls), "")

    def forget(self, url: str) -> None:
        """This address accepted our connection and then did not answer: begin with another."""
        if url == self._last_good:
            self._last_good = ""

    def _prepare(self, url: str, endpoint: Endpoint, timeout: float, certified: bool) -> Connected:
        if url.startswith(SCHEME):
            return Connected(UnixConnection(url[len(SCHEME) :], timeout), url, "", {}, 0, endpoint.token)
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
        if not endpoint.fingerprint:
            raise NoServerAddress(f"{echo(url)} can only be reached by a join string: give --join-file or --join-fd")
        generation = self.trust.generation if certified else 0
        relay_key = endpoint.relay_keys.get(url, "")
        connection = self.trust.connection(host, port, endpoint.fingerprint, timeout, certified, relay_key)
        return Connected(connection, url, parts.path, {"Host": SERVER_NAME}, generation, endpoint.token)


def check_url(url: str) -> str:
    """The address itself, if a pilot may connect to it: one where the server proves its identity first [protocol 9]."""
    if url.startswith("unix:/"):
        return url
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if host and port and url.startswith(("https://", "relay://")):
        return url.rstrip("/")
    raise NoServerAddress(f"{echo(url)!r} is no address for a pilot: https://HOST:PORT or unix:/PATH")


def read_join(fd: Optional[int], path: str) -> Join:
    """The join string, read once from an open file, which is closed, or from a file; BadInput if it is none."""
    return read_join_file(fd, path)[0]


def read_join_file(fd: Optional[int], path: str) -> tuple[Join, Optional[Ticket]]:
    """The same with the ticket that may follow it."""
    try:
        with open(path if fd is None else fd, "rb") as file:
            text = file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        where = path if fd is None else f"file descriptor {fd}"
        raise NoServerAddress(f"cannot read the join string from {where}: {os.strerror(error.errno or 0)}") from None
    line, _, more = text.strip().partition("\n")
    return parse_join(line), _read_ticket(more.strip())


def _read_ticket(line: str) -> Optional[Ticket]:
    """The ticket in the second line of a join file; None if there is none that can be read: the pilot waits for its server."""
    try:
        return codec.decode(Ticket, line.encode()) if line else None
    except ShoalError:
        return None
