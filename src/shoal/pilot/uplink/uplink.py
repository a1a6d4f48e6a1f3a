"""The connection to the server: two threads send blocking requests, and their outcomes come back as the agent's events.

What an answer means for the pilot is decided by the agent. A pilot enrols with the enrolment token and authenticates
with its session; both are in memory and in requests only, never in a log line or an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from ssl import SSLError
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

from shoal import __version__
from shoal.model.blobs import Bytes
from shoal.model.credentials import redact
from shoal.model.errors import ShoalError, echo
from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_BULK_BODY, MAX_IN_FLIGHT
from shoal.pilot.agent.events import Answered, Disowned, Event, Fetched, Joined, Leave, NoAnswer, Outdated, Rejected
from shoal.pilot.uplink.latency import Latency
from shoal.pilot.uplink.server_address import Connected, NoServerAddress, ServerAddress
from shoal.pilot.uplink.tls import WrongServer, explain, is_our_certificate_refused
from shoal.wire import codec
from shoal.wire.http.connection import ForeignServer, begin, is_usable, send
from shoal.wire.messages import Exchange, Register, Registered, Reply

if TYPE_CHECKING:
    from shoal.wire.http.streamed import StreamedResponse

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
READ_MARGIN = 20.0  # beyond the beat, for which the server may hold an answer
FETCH_TIMEOUT = 60.0
MAX_REFUSALS = 3
MAX_BROKEN = 3  # connections in a row that ended after we had presented our certificate
MIN_RETRY_AFTER, MAX_RETRY_AFTER = 1.0, 60.0  # seconds of Retry-After that are accepted
CONNECTION_ERRORS = (OSError, NoServerAddress)
# The error codes of the server, and what they mean to the agent; any other counts as no answer.
_CODES: dict[str, Callable[[int], Event]] = {"re_enrol": Disowned, "session_in_use": Disowned, "replay": Outdated}
_PERMANENT = (400, 413, 415, 422)  # the same request will be refused again
_OUR_CODE = re.compile(r"[a-z][a-z_0-9]*")  # an error code of this server; a proxy answers something else


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    after: Optional[float] = None  # seconds, of Retry-After


class CertificateRefused(OSError):
    """The server closed a connection on which we had presented our certificate; `is_sure` that this was the reason."""

    def __init__(self, error: Exception) -> None:
        super().__init__(explain(error))
        self.is_sure = is_our_certificate_refused(error)


class ServerConnection:
    """One connection to the server, opened when needed and kept."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._connected: Optional[Connected] = None
        self.url = ""
        self.took = 0.0  # seconds from the last request to its answer

    def enrol(self, body: bytes, timeout: float, connect_timeout: float = CONNECT_TIMEOUT) -> Answer:
        """Register with the enrolment token, on a connection of its own; raises as `ask` does."""
        self.drop()
        # Without a certificate: an expired one would end the connection before it could be renewed.
        connected = self._connect(connect_timeout, certified=False)
        return self._ask(connected, "POST", "/v1/pilots", body, connected.token, timeout)

    def ask(self, method: str, path: str, body: bytes, session: str, timeout: float) -> Answer:
        """The answer to a request under a session; raises one of CONNECTION_ERRORS, or WrongServer."""
        return self._ask(self._connect(CONNECT_TIMEOUT, certified=True), method, path, body, session, timeout)

    def begin(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: Optional[Iterable[Bytes]],
        session: str,
        timeout: float,
    ) -> StreamedResponse:
        """Send a request whose body or answer is too large to be held in memory. The answer must be read to its end, or
        the connection dropped; raises as `ask` does."""
        connected = self._connect(CONNECT_TIMEOUT, certified=True)
        with self._sending(connected, timeout):
            sent = {**_headers(connected, session), **headers}
            return begin(connected.http, method, connected.base + path, sent, body)

    def _ask(self, connected: Connected, method: str, path: str, body: bytes, bearer: str, timeout: float) -> Answer:
        headers = {**_headers(connected, bearer), "Content-Type": "application/json"}
        began = time.monotonic()
        with self._sending(connected, timeout):
            answer = send(connected.http, method, connected.base + path, headers, body, MAX_BULK_BODY)
        self.took = time.monotonic() - began
        if not answer.is_kept:
            self.drop()
        return Answer(answer.status, answer.body, read_after(answer.headers.get("retry-after")))

    @contextlib.contextmanager
    def _sending(self, connected: Connected, timeout: float) -> Iterator[None]:
        """Drop the connection if the request on it fails."""
        connected.http.sock.settimeout(timeout)
        try:
            yield
        except BaseException as error:
            self._address.forget(connected.url)
            self.drop()
            # The server looks at our certificate only now, and its alert may be lost behind the broken connection.
            if connected.generation and isinstance(error, (SSLError, ConnectionError)):
                raise CertificateRefused(error) from None
            raise

    def _connect(self, timeout: float, certified: bool) -> Connected:
        kept = self._connected
        if kept is not None and is_usable(kept.http):
            # A connection from before we got our certificate does not present it.
            is_tls = kept.url.startswith(("https:", "relay:"))
            is_old = certified and is_tls and kept.generation != self._address.trust.generation
            if not is_old:
                return kept
        self.drop()
        self._connected = connected = self._address.connect(timeout, certified)
        self.url = connected.url
        return connected

    def drop(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._connected is not None:
            self._connected.http.close()
        self._connected = None


def _headers(connected: Connected, bearer: str) -> dict[str, str]:
    own = {"Authorization": f"Bearer {bearer}", "User-Agent": f"shoal-pilot/{__version__}"}
    return {**connected.headers, **own}


class Uplink:
    """Queues messages, sends them on two threads, and delivers what came of them as events."""

    def __init__(
        self,
        address: ServerAddress,
        deliver: Callable[[Event], None],
        say: Callable[[str], None],
        network: Latency,
    ) -> None:
        self._address, self._deliver, self._network = address, deliver, network
        self._say, self._said = say, ""
        self._jobs: SimpleQueue[Optional[Callable[[ServerConnection], list[Event]]]] = SimpleQueue()
        self._sent = 0  # the highest number so far; the agent counts on from session to session
        self._refusals = self._broken = 0
        self.beat = 10.0
        self.url = ""
        self.by_leader: Optional[Callable[[Exchange], Optional[Answer]]] = (
            None  # answers None if it does not go that way
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        for number in range(MAX_IN_FLIGHT):
            thread = threading.Thread(target=self._run, name=f"uplink-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def register(self, message: Register) -> None:
        """Ask to be registered."""
        self._jobs.put(partial(self._perform, message, True))

    def exchange(self, message: Exchange, itself: bool = False) -> None:
        """Send an exchange; one that was sent before goes over a new connection. `itself`: not by way of the leader."""
        is_repeated = message.seq <= self._sent
        if not (itself or is_repeated or self.by_leader is None):
            self._jobs.put(partial(self._hand_on, message))
            self._sent = message.seq
            return
        self._sent = max(self._sent, message.seq)
        self._jobs.put(partial(self._perform, message, is_repeated))

    def fetch(self, digest: str, session: str) -> None:
        """Get the zip of the pilot that the server has now."""
        self._jobs.put(partial(self._fetch, digest, session))

    def measure(self, session: str) -> None:
        """Measure how fast the server sends; on a thread of its own, because the others must be free for exchanges."""
        threading.Thread(target=self._measure, args=(session,), name="uplink-measure", daemon=True).start()

    def close(self) -> None:
        """End idle threads; one that waits for an answer ends with the process."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        connection = ServerConnection(self._address)
        while True:
            job = self._jobs.get()
            if job is None:
                connection.drop()
                return
            for event in job(connection):
                self._deliver(event)

    def _perform(
        self, message: Union[Register, Exchange], is_repeated: bool, connection: ServerConnection
    ) -> list[Event]:
        if is_repeated:
            connection.drop()
        body, seq = codec.encode(message), message.seq if isinstance(message, Exchange) else 0
        try:
            if isinstance(message, Register):
                return self._register(connection, message, body)
            path = f"/v1/pilots/{message.pilot}/exchange"
            answer = connection.ask("POST", path, body, message.session, self.beat + READ_MARGIN)
        except WrongServer as error:
            return [Leave(str(error), now=True, mute=True)]
        except CONNECTION_ERRORS as error:
            log.info("no answer seq=%d server=%s error=%s", seq, self._address, explain(error))
            if isinstance(error, ForeignServer):
                self._say_once(f"{error}: waiting for the server that this pilot belongs to")
            return [Disowned(seq) if self._needs_certificate(error) else NoAnswer(seq)]
        self.url, self._broken = connection.url, 0
        if (message.reports or message.batches) and not message.asks:
            self._network.answered(connection.took)  # any other exchange is held by the server
        return [read_answer(answer, seq)]

    def _hand_on(self, message: Exchange, connection: ServerConnection) -> list[Event]:
        """Send an exchange by way of the leader, and to the server itself if that does not answer."""
        answer = self.by_leader(message) if self.by_leader is not None else None
        return self._perform(message, False, connection) if answer is None else [read_answer(answer, message.seq)]

    def _needs_certificate(self, error: Exception) -> bool:
        """True if our certificate is not accepted any more, so that we have to enrol again for a new one."""
        if not isinstance(error, CertificateRefused):
            return False
        self._broken += 1
        return error.is_sure or self._broken >= MAX_BROKEN

    def _register(self, connection: ServerConnection, message: Register, body: bytes) -> list[Event]:
        answer = self._register_as_former(connection, message, body)
        if answer is None:
            answer = connection.enrol(body, self.beat + READ_MARGIN)
            # Only refusals of the enrolment token count: a session may well have ended meanwhile.
            self._refusals = self._refusals + 1 if answer.status in (401, 403) and _is_ours(answer) else 0
        self.url = connection.url
        event = read_answer(answer, 0)
        if isinstance(event, Joined):
            registered = event.registered
            self._network.answered(connection.took)
            if registered.certificate and registered.key:
                self._address.trust.identify(registered.certificate, registered.key)
        elif answer.status == 429:
            self._say_once(f"the server lets no more pilots in now: {read_error(answer.body)[1]}")
        if self._refusals == MAX_REFUSALS:
            return [Leave(f"the server refused this pilot: {read_error(answer.body)[1]}"), event]
        return [event]

    def _register_as_former(self, connection: ServerConnection, message: Register, body: bytes) -> Optional[Answer]:
        """Register under the session that we had; None if it is not valid any more."""
        if message.former is None:
            return None
        try:
            answer = connection.ask("POST", "/v1/pilots", body, message.former.session, self.beat + READ_MARGIN)
        except CertificateRefused:
            return None  # the nonce keeps a registration that arrived after all from counting twice
        return None if answer.status in (401, 403, 409) else answer

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)

    def _get_zip(self, connection: ServerConnection, session: str) -> Optional[bytes]:
        try:
            answer = connection.ask("GET", "/v1/pilot.pyz", b"", session, FETCH_TIMEOUT)
        except (*CONNECTION_ERRORS, WrongServer) as error:
            log.info("pilot zip not fetched error=%s", explain(error))
            return None
        if answer.status != 200:
            log.info("pilot zip not fetched status=%d", answer.status)
            return None
        return answer.body

    def _measure(self, session: str) -> None:
        connection = ServerConnection(self._address)
        data = self._get_zip(connection, session)
        connection.drop()
        if data is not None:
            self._network.moved(len(data), connection.took)

    def _fetch(self, digest: str, session: str, connection: ServerConnection) -> list[Event]:
        data = self._get_zip(connection, session)
        if data is None:
            return [Fetched(digest, None)]
        if hashlib.sha256(data).hexdigest() != digest:
            log.error("the server sent another pilot than it ordered: this one stays digest=%s", digest)
            return [Fetched(digest, False)]
        return [Fetched(digest, True, data)]


def read_answer(answer: Answer, seq: int) -> Event:
    """The event that an answer means; anything that is not understood counts as no answer."""
    if not 200 <= answer.status < 300:
        return _read_refusal(answer, seq)
    kind: type[Union[Registered, Reply]] = Reply if seq else Registered
    try:
        message = codec.decode(kind, answer.body)
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


def _read_refusal(answer: Answer, seq: int) -> Event:
    code, text = read_error(answer.body)
    log.info("refused seq=%d status=%d code=%s message=%s", seq, answer.status, code, text)
    if answer.status in (429, 503):
        return NoAnswer(seq, answer.after)
    if not seq:
        return NoAnswer(0)
    is_ours = _is_ours(answer)
    if answer.status == 401 and is_ours:
        return Disowned(seq)
    if answer.status == 403 and code == "revoked":
        return Leave(f"the server refused this pilot: {text}", now=True, mute=True)
    if answer.status in _PERMANENT:
        return Rejected(seq, text, is_ours)
    return _CODES.get(code, NoAnswer)(seq)


def _is_ours(answer: Answer) -> bool:
    """True if the server itself refuses, and not a proxy."""
    return _OUR_CODE.fullmatch(read_error(answer.body)[0]) is not None


def read_error(body: bytes) -> tuple[str, str]:
    """(code, message) of an error answer, whatever it holds."""
    try:
        error = json.loads(body)["error"]
        return echo(str(error.get("code", ""))), echo(redact(str(error.get("message", ""))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", echo(redact(body[:200].decode("utf-8", "replace")))


def read_after(text: Optional[str]) -> Optional[float]:
    """Seconds of a Retry-After header, within bounds; None if there is none."""
    if text is None or not text.strip().isdigit():
        return None
    return min(MAX_RETRY_AFTER, max(MIN_RETRY_AFTER, float(text)))


def report_unfit(address: ServerAddress, message: Register, timeout: float = 5.0) -> bool:
    """Report once, with a short timeout, that this host is unfit; False if that failed."""
    connection = ServerConnection(address)
    try:
        status = connection.enrol(codec.encode(message), timeout, timeout).status
    except (*CONNECTION_ERRORS, WrongServer):
        return False
    finally:
        connection.drop()
    return 200 <= status < 300
