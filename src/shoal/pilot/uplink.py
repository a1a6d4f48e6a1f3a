"""The way to the server: two lanes of blocking requests, whose outcomes come back as the agent's events.

Nothing is decided here: what an answer means for the pilot is the agent's matter. The token is in memory and
in the request only, never in a log line or an error.
"""

from __future__ import annotations

import http.client
import json
import logging
import select
import socket
import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Callable, Optional, Union
from urllib.parse import urlsplit

from shoal import __version__
from shoal.model.errors import ShoalError, echo
from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_BULK_BODY, MAX_IN_FLIGHT
from shoal.pilot.moves import Answered, Disowned, Event, Joined, Leave, NoAnswer, Outdated
from shoal.wire import codec
from shoal.wire.messages import Exchange, Register, Registered, Reply

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
READ_MARGIN = 20.0  # beyond the beat, for which the server may hold an answer
MAX_REFUSALS = 3
# The server's words, and what they mean to the agent; any other is as good as no answer.
_CODES: dict[str, Callable[[int], Event]] = {"re_enrol": Disowned, "session_in_use": Disowned, "replay": Outdated}
_LOOPBACK = ("localhost", "::1")

Deliver = Callable[[Event], None]


class NoPlace(Exception):
    """It is not known, or not allowed, where the server is; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where the server is, looked up anew for each connection: it may come back elsewhere."""

    server_file: str = ""
    url: str = ""
    token_file: str = ""

    def read(self) -> tuple[str, str]:
        """(url, token)."""
        path = self.server_file or self.token_file
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(1 << 16)
        except (OSError, UnicodeDecodeError) as error:
            raise NoPlace(f"cannot read {path}: {getattr(error, 'strerror', 'not a text')}") from None
        if not self.server_file:
            return check_url(self.url), text.strip()
        try:
            data = json.loads(text)
            return check_url(str(data["url"])), str(data["token"])
        except (ValueError, KeyError, TypeError):
            raise NoPlace(f"{path} is not a server file") from None

    def __str__(self) -> str:
        return self.url or self.server_file


def check_url(url: str) -> str:
    """The address itself if it may be spoken to without encryption [contract 9]."""
    if url.startswith("unix:/"):
        return url
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if url.startswith("http://") and port and (host in _LOOPBACK or host.startswith("127.")):
        return url.rstrip("/")
    raise NoPlace(f"{echo(url)!r} is no address for a pilot: http://127.0.0.1:PORT or unix:/PATH")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class _Job:
    path: str
    message: Union[Register, Exchange]
    again: bool

    @property
    def seq(self) -> int:
        return self.message.seq if isinstance(self.message, Exchange) else 0


class Line:
    """One connection to the server, made when needed and kept."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection: Optional[http.client.HTTPConnection] = None
        self._base = self._token = ""
        self.url = ""

    def post(
        self, path: str, body: bytes, timeout: float, connect_timeout: float = CONNECT_TIMEOUT
    ) -> tuple[int, bytes]:
        """Status and body of the answer; raises OSError, HTTPException or NoPlace."""
        connection = self._connect(connect_timeout)
        assert connection.sock is not None
        connection.sock.settimeout(timeout)
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "User-Agent": f"shoal-pilot/{__version__}",
        }
        try:
            connection.request("POST", self._base + path, body, headers)
            response = connection.getresponse()
            data = response.read(MAX_BULK_BODY + 1)
        except BaseException:
            self.drop()
            raise
        if len(data) > MAX_BULK_BODY:
            self.drop()
            raise http.client.HTTPException("the answer is too long")
        return response.status, data

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._connection is not None and self._connection.sock is not None:
            hung_up, _, _ = select.select([self._connection.sock], [], [], 0)  # something to read before we asked
            if not hung_up:
                return self._connection
        self.drop()
        url, self._token = self._place.read()
        if url.startswith("unix:"):
            self._connection, self._base = _UnixConnection(url[len("unix:") :], timeout), ""
        else:
            parts = urlsplit(url)
            self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
            self._base = parts.path
        self.url = url
        try:
            self._connection.connect()
        except BaseException:
            self.drop()
            raise
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Uplink:
    """Takes messages at once, performs them on its lanes, delivers what came of them."""

    def __init__(self, place: Place, deliver: Deliver) -> None:
        self._place = place
        self._deliver = deliver
        self._jobs: SimpleQueue[Optional[_Job]] = SimpleQueue()
        self._sent = 0  # highest number so far; the agent counts on from session to session
        self._refusals = 0
        self._lock = threading.Lock()
        self.beat = 10.0
        self.url = ""
        self._lanes: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to work; from here on there are threads."""
        for number in range(MAX_IN_FLIGHT):
            lane = threading.Thread(target=self._run, name=f"uplink-{number}", daemon=True)
            lane.start()
            self._lanes.append(lane)

    def register(self, message: Register) -> None:
        """Ask to be taken in."""
        self._jobs.put(_Job("/v1/pilots", message, again=True))

    def exchange(self, message: Exchange) -> None:
        """Send an exchange; one sent before goes over a new connection."""
        again = message.seq <= self._sent
        self._sent = max(self._sent, message.seq)
        self._jobs.put(_Job(f"/v1/pilots/{message.pilot}/exchange", message, again))

    def close(self) -> None:
        """Let idle lanes end; one that waits for an answer ends with the process."""
        for _ in self._lanes:
            self._jobs.put(None)

    def _run(self) -> None:
        line = Line(self._place)
        while True:
            job = self._jobs.get()
            if job is None:
                line.drop()
                return
            for event in self._perform(line, job):
                self._deliver(event)

    def _perform(self, line: Line, job: _Job) -> list[Event]:
        if job.again:
            line.drop()
        try:
            status, body = line.post(job.path, codec.encode(job.message), self.beat + READ_MARGIN)
        except (OSError, http.client.HTTPException, NoPlace) as error:
            log.info("no answer seq=%d place=%s error=%s", job.seq, self._place, str(error) or type(error).__name__)
            return [NoAnswer(job.seq)]
        self.url = line.url
        if status in (401, 403):
            line.drop()  # the token may be another by now
        refusals = self._count_refusals(status in (401, 403))
        event = read_answer(status, body, job.seq)
        if refusals == MAX_REFUSALS:
            return [Leave(f"the server refused this pilot: {read_error(body)[1]}"), event]
        return [event]

    def _count_refusals(self, refused: bool) -> int:
        with self._lock:
            self._refusals = self._refusals + 1 if refused else 0
            return self._refusals


def read_answer(status: int, body: bytes, seq: int) -> Event:
    """What an answer means; anything that is not understood is no answer."""
    if not 200 <= status < 300:
        code, words = read_error(body)
        log.info("refused seq=%d status=%d code=%s message=%s", seq, status, code, words)
        return _CODES.get(code, NoAnswer)(seq)
    kind: type[Union[Registered, Reply]] = Reply if seq else Registered
    try:
        message = codec.decode(kind, body)
        for lease in message.leases if isinstance(message, Reply) else ():
            parse_attempt(lease.attempt)  # names files later
    except ShoalError as error:
        log.warning("malformed answer seq=%d error=%s", seq, error)
        return NoAnswer(seq)
    if isinstance(message, Registered):
        return Joined(message)
    if message.seq != seq:
        log.warning("answer to another exchange seq=%d answered=%d", seq, message.seq)
        return NoAnswer(seq)
    return Answered(message)


def read_error(body: bytes) -> tuple[str, str]:
    """(code, words) of an error answer, whatever it holds."""
    try:
        error = json.loads(body)["error"]
        return echo(str(error.get("code", ""))), echo(str(error.get("message", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", echo(body[:200].decode("utf-8", "replace"))


def tell_unfit(place: Place, message: Register, timeout: float = 5.0) -> bool:
    """Say once that this host is unfit; nobody waits long for it, and it may fail."""
    line = Line(place)
    try:
        status, _ = line.post("/v1/pilots", codec.encode(message), timeout, timeout)
    except (OSError, http.client.HTTPException, NoPlace):
        return False
    finally:
        line.drop()
    return 200 <= status < 300
