"""The way to the server: two lanes of blocking requests, whose outcomes come back as the agent's events.

Nothing is decided here: what an answer means for the pilot is the agent's matter. A pilot enrols with the
enrolment token and speaks with its session; both are in memory and in requests only, never in a log line or an
error.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import re
import select
import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue
from ssl import SSLError
from typing import Callable, NamedTuple, Optional, Union

from shoal import __version__
from shoal.model.credentials import redact
from shoal.model.errors import ShoalError, echo
from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_BULK_BODY, MAX_IN_FLIGHT
from shoal.pilot.agent.events import Answered, Disowned, Event, Fetched, Joined, Leave, NoAnswer, Outdated, Rejected
from shoal.pilot.uplink.latency import Latency
from shoal.pilot.uplink.server_address import Connected, ForeignServer, NoServerAddress, ServerAddress
from shoal.pilot.uplink.tls import WrongServer, explain, is_our_certificate_refused
from shoal.wire import codec
from shoal.wire.http.http1 import READ, HttpResponse, Reading, host_of, request
from shoal.wire.messages import Exchange, Register, Registered, Reply

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
READ_MARGIN = 20.0  # beyond the beat, for which the server may hold an answer
FETCH_TIMEOUT = 60.0
MAX_REFUSALS = 3
MAX_BROKEN = 3  # connections in a row that ended after we had shown our certificate
LEAST_AFTER, MOST_AFTER = 1.0, 60.0  # seconds of Retry-After that are believed
# The server's words, and what they mean to the agent; any other is as good as no answer.
_CODES: dict[str, Callable[[int], Event]] = {"re_enrol": Disowned, "session_in_use": Disowned, "replay": Outdated}
_NEVER = (400, 413, 415, 422)  # the same again will be refused again
_REFUSED = (401, 403)
_OUR_CODE = re.compile(r"[a-z][a-z_0-9]*")  # of a refusal by this server; what stands between says other things

Deliver = Callable[[Event], None]


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    after: Optional[float] = None  # seconds, of Retry-After


@dataclass(frozen=True)
class _Job:
    message: Union[Register, Exchange] = field(repr=False)
    again: bool

    @property
    def seq(self) -> int:
        return self.message.seq if isinstance(self.message, Exchange) else 0


@dataclass(frozen=True)
class _Errand:
    digest: str
    session: str = field(repr=False)


class CertificateRefused(OSError):
    """The server ended a connection on which we had shown our certificate; `is_sure` that this was the reason."""

    def __init__(self, error: Exception) -> None:
        super().__init__(explain(error))
        self.is_sure = is_our_certificate_refused(error)


class ServerConnection:
    """One connection to the server, made when needed and kept."""

    def __init__(self, place: ServerAddress) -> None:
        self._place = place
        self._connected: Optional[Connected] = None
        self._token = ""
        self.url = ""
        self.took = 0.0  # seconds from the last request to its answer

    def enrol(self, body: bytes, timeout: float, connect_timeout: float = CONNECT_TIMEOUT) -> Answer:
        """Register with the enrolment token, on a connection of its own; raises as `ask` does."""
        self.drop()
        # Without a certificate: one that has run out would end the connection before anybody could renew it.
        self._connect(connect_timeout, certified=False)
        return self._ask("POST", "/v1/pilots", body, self._token, timeout)

    def ask(self, method: str, path: str, body: bytes, session: str, timeout: float) -> Answer:
        """The answer to a request under a session; raises OSError, HTTPException, NoPlace or WrongServer."""
        self._connect(CONNECT_TIMEOUT, certified=True)
        return self._ask(method, path, body, session, timeout)

    def _ask(self, method: str, path: str, body: bytes, bearer: str, timeout: float) -> Answer:
        connected = self._connected
        assert connected is not None
        connected.http.sock.settimeout(timeout)
        headers = {
            "Host": host_of(connected.http.host, connected.http.port),
            **connected.headers,
            "Authorization": f"Bearer {bearer}",
            "Content-Type": "application/json",
            "User-Agent": f"shoal-pilot/{__version__}",
        }
        began = time.monotonic()
        try:
            answer = self._talk(connected, request(method, connected.base + path, headers, body), method)
        except BaseException as error:
            self._place.forget(connected.url)
            self.drop()
            # The server looks at our certificate only now, and its alert may be lost behind the broken connection.
            if connected.generation and isinstance(error, (SSLError, ConnectionError)):
                raise CertificateRefused(error) from None
            raise
        self.took = time.monotonic() - began
        if not answer.is_kept:
            self.drop()
        return Answer(answer.status, answer.body, read_after(answer.headers.get("retry-after")))

    def _talk(self, connected: Connected, words: bytes, method: str) -> HttpResponse:
        connected.http.sock.sendall(words)
        reading = Reading(method, MAX_BULK_BODY)
        while True:
            answer = reading.feed(connected.http.sock.recv(READ))
            if answer is not None:
                return answer

    def _connect(self, timeout: float, certified: bool) -> None:
        kept = self._connected
        if kept is not None and kept.http.sock is not None:
            hung_up, _, _ = select.select([kept.http.sock], [], [], 0)  # something to read before we asked
            # A connection from before we got our certificate does not show it.
            newer = certified and kept.url.startswith("https:") and kept.generation != self._place.trust.generation
            if not hung_up and not newer:
                return
        self.drop()
        endpoint = self._place.read()
        self._connected = self._place.connect(endpoint, timeout, certified)
        self._token, self.url = endpoint.token, self._connected.url

    def drop(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._connected is not None:
            self._connected.http.close()
        self._connected = None


class Uplink:
    """Takes messages at once, performs them on its lanes, delivers what came of them."""

    def __init__(
        self,
        place: ServerAddress,
        deliver: Deliver,
        say: Callable[[str], None] = log.warning,
        network: Optional[Latency] = None,
    ) -> None:
        self._place = place
        self._deliver = deliver
        self._say = say
        self._said = ""
        self._network = network
        self._jobs: SimpleQueue[Union[_Job, _Errand, None]] = SimpleQueue()
        self._sent = 0  # highest number so far; the agent counts on from session to session
        self._refusals = self._broken = 0
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
        self._jobs.put(_Job(message, again=True))

    def exchange(self, message: Exchange) -> None:
        """Send an exchange; one sent before goes over a new connection."""
        again = message.seq <= self._sent
        self._sent = max(self._sent, message.seq)
        self._jobs.put(_Job(message, again))

    def fetch(self, digest: str, session: str) -> None:
        """Get the zip of the pilot that the server has now."""
        self._jobs.put(_Errand(digest, session))

    def measure(self, session: str) -> None:
        """See how fast the server sends; beside the lanes, which must be free for exchanges."""
        threading.Thread(target=self._measure, args=(session,), name="uplink-measure", daemon=True).start()

    def _measure(self, session: str) -> None:
        line = ServerConnection(self._place)
        try:
            answer = line.ask("GET", "/v1/pilot.pyz", b"", session, FETCH_TIMEOUT)
        except (OSError, http.client.HTTPException, NoServerAddress, WrongServer) as error:
            log.info("speed not measured error=%s", explain(error))
            return
        finally:
            line.drop()
        if answer.status == 200 and self._network is not None:
            self._network.moved(len(answer.body), line.took)

    def close(self) -> None:
        """Let idle lanes end; one that waits for an answer ends with the process."""
        for _ in self._lanes:
            self._jobs.put(None)

    def _run(self) -> None:
        line = ServerConnection(self._place)
        while True:
            job = self._jobs.get()
            if job is None:
                line.drop()
                return
            events = [self._fetch(line, job)] if isinstance(job, _Errand) else self._perform(line, job)
            for event in events:
                self._deliver(event)

    def _perform(self, line: ServerConnection, job: _Job) -> list[Event]:
        if job.again:
            line.drop()
        body = codec.encode(job.message)
        try:
            if isinstance(job.message, Register):
                return self._register(line, job.message, body)
            path = f"/v1/pilots/{job.message.pilot}/exchange"
            answer = line.ask("POST", path, body, job.message.session, self.beat + READ_MARGIN)
        except WrongServer as error:
            return [Leave(str(error), now=True, mute=True)]
        except (OSError, http.client.HTTPException, NoServerAddress) as error:
            log.info("no answer seq=%d place=%s error=%s", job.seq, self._place, explain(error))
            if isinstance(error, ForeignServer):
                self._say_once(f"{error}: waiting for the server that this pilot belongs to")
            return [Disowned(job.seq) if self._needs_certificate(error) else NoAnswer(job.seq)]
        self.url, self._broken = line.url, 0
        if self._network is not None and (job.message.reports or job.message.batches):
            self._network.answered(line.took)  # others wait at the server for news
        return [read_answer(answer, job.seq)]

    def _needs_certificate(self, error: Exception) -> bool:
        """Is ours not taken any more, so that we have to enrol again for a new one?"""
        if not isinstance(error, CertificateRefused):
            return False
        self._broken += 1
        return error.is_sure or self._broken >= MAX_BROKEN

    def _register(self, line: ServerConnection, message: Register, body: bytes) -> list[Event]:
        answer = self._ask_as_former(line, message, body)
        if answer is None:
            answer = line.enrol(body, self.beat + READ_MARGIN)
            # Only what the enrolment token met counts: a session may well have ended meanwhile.
            self._refusals = self._refusals + 1 if answer.status in _REFUSED and _is_ours(answer) else 0
        self.url = line.url
        event = read_answer(answer, 0)
        if isinstance(event, Joined):
            told = event.registered
            if self._network is not None:
                self._network.answered(line.took)
            if told.certificate and told.key:
                self._place.trust.identify(told.certificate, told.key)
        elif answer.status == 429:
            self._say_once(f"the server lets no more pilots in now: {read_error(answer.body)[1]}")
        if self._refusals == MAX_REFUSALS:
            return [Leave(f"the server refused this pilot: {read_error(answer.body)[1]}"), event]
        return [event]

    def _ask_as_former(self, line: ServerConnection, message: Register, body: bytes) -> Optional[Answer]:
        """Enrol again under the session that we had; None if that does not count any more."""
        if message.former is None:
            return None
        try:
            answer = line.ask("POST", "/v1/pilots", body, message.former.session, self.beat + READ_MARGIN)
        except CertificateRefused:
            return None  # the nonce keeps a registration that came through after all from counting twice
        return None if answer.status in (401, 403, 409) else answer

    def _say_once(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self._say(words)

    def _fetch(self, line: ServerConnection, errand: _Errand) -> Event:
        try:
            answer = line.ask("GET", "/v1/pilot.pyz", b"", errand.session, FETCH_TIMEOUT)
        except (OSError, http.client.HTTPException, NoServerAddress, WrongServer) as error:
            log.info("no new pilot digest=%s error=%s", errand.digest, explain(error))
            return Fetched(errand.digest, None)
        if answer.status != 200:
            log.info("no new pilot digest=%s status=%d", errand.digest, answer.status)
            return Fetched(errand.digest, None)
        if hashlib.sha256(answer.body).hexdigest() != errand.digest:
            log.error("the server sent another pilot than it ordered: this one stays digest=%s", errand.digest)
            return Fetched(errand.digest, False)
        return Fetched(errand.digest, True, answer.body)


def read_answer(answer: Answer, seq: int) -> Event:
    """What an answer means; anything that is not understood is no answer."""
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
    code, words = read_error(answer.body)
    log.info("refused seq=%d status=%d code=%s message=%s", seq, answer.status, code, words)
    if answer.status in (429, 503):
        return NoAnswer(seq, answer.after)
    if not seq:
        return NoAnswer(0)
    is_ours = _is_ours(answer)
    if answer.status == 401 and is_ours:
        return Disowned(seq)
    if answer.status == 403 and code == "revoked":
        return Leave(f"the server refused this pilot: {words}", now=True, mute=True)
    if answer.status in _NEVER:
        return Rejected(seq, words, is_ours)
    return _CODES.get(code, NoAnswer)(seq)


def _is_ours(answer: Answer) -> bool:
    """Is it the server that refuses, and not something between?"""
    return _OUR_CODE.fullmatch(read_error(answer.body)[0]) is not None


def read_error(body: bytes) -> tuple[str, str]:
    """(code, words) of an error answer, whatever it holds."""
    try:
        error = json.loads(body)["error"]
        return echo(str(error.get("code", ""))), echo(redact(str(error.get("message", ""))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", echo(redact(body[:200].decode("utf-8", "replace")))


def read_after(text: Optional[str]) -> Optional[float]:
    """Seconds of a Retry-After header, within bounds; None where it names none."""
    if text is None or not text.strip().isdigit():
        return None
    return min(MOST_AFTER, max(LEAST_AFTER, float(text)))


def report_unfit(place: ServerAddress, message: Register, timeout: float = 5.0) -> bool:
    """Say once that this host is unfit; nobody waits long for it, and it may fail."""
    line = ServerConnection(place)
    try:
        status = line.enrol(codec.encode(message), timeout, timeout).status
    except (OSError, http.client.HTTPException, NoServerAddress, WrongServer):
        return False
    finally:
        line.drop()
    return 200 <= status < 300
