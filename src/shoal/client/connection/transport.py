"""One persistent HTTP connection to a server, over a Unix socket or TLS; which requests are repeated, and when.

Nothing is sent before the server is verified: by the account of its process, which the kernel tells, or by its key.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from shoal.model.errors import BadInput, ShoalError, Unreachable, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.wire.http import unix_socket
from shoal.wire.http.connection import (
    HTTPS_PORT,
    Connection,
    ForeignServer,
    TlsConnection,
    UnixConnection,
    begin,
    is_usable,
    send,
)
from shoal.wire.join import SERVER_NAME

if TYPE_CHECKING:
    import ssl

    from shoal.wire.http.streamed import StreamedResponse

MAX_ANSWER = 1 << 31
TOO_MUCH = 429
MAX_WAITS = 5  # for a server that answers 429
LONGEST_WAIT = 30.0  # seconds, each
_URL_HINT = "write https://HOST:PORT or unix:/path/to/socket"


@dataclass(frozen=True)
class Answer:
    """A response; header names in lower case."""

    status: int
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Transport:
    """Requests to one server, one at a time."""

    def __init__(self, url: str, token: str = "", ca: str = "", sleep: Callable[[float], None] = time.sleep) -> None:
        self.url = check_url(url)
        self.ca = ca  # a fingerprint becomes the certificate with the first connection
        self._token = _check_token(token)
        self._sleep = sleep
        self._connection: Connection | None = None
        self._interrupted = False
        self._context: ssl.SSLContext | None = None

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """End the request of another thread: it finds the connection lost, and no new one is made."""
        self._interrupted = True
        connection = self._connection
        waiting = connection.sock if connection is not None and connection.is_open else None
        if waiting is not None:
            with contextlib.suppress(OSError):
                # Of the plain socket, below TLS: the shutdown of TLS would free the session under the reader.
                socket.socket.shutdown(waiting, socket.SHUT_RDWR)

    def send(self, method: str, target: str, data: bytes | None, may_repeat: bool, timeout: float) -> Answer:
        """The response to one request, whatever its status; after a 429 it is repeated later."""
        waits = 0
        while True:
            answer = self._send_once(method, target, data, may_repeat, timeout)
            if answer.status != TOO_MUCH or not may_repeat or waits == MAX_WAITS:
                return answer
            waits += 1
            self._sleep(wait_of(answer.headers.get("retry-after", "")))

    def begin(
        self, method: str, target: str, headers: Mapping[str, str], body: Iterable[memoryview], timeout: float
    ) -> StreamedResponse:
        """Send a request with a large body or response; the response must be read to its end, or `close`d.

        A server may refuse before it has read the body: then its response counts, not the lost connection.
        """
        connection, _ = self._connected(timeout)
        try:
            return begin(connection, method, target, {**self._headers(), **headers}, body)
        except OSError as error:
            self.close()
            raise self._lost(error) from None
        except BaseException:
            self.close()
            raise

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self.ca and self.url.startswith("https:"):
            headers["Host"] = SERVER_NAME  # the name that was verified, whatever the address
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _send_once(self, method: str, target: str, data: bytes | None, may_repeat: bool, timeout: float) -> Answer:
        headers = self._headers()
        if data is not None:
            headers["Content-Type"] = "application/json"
        while True:
            connection, reused = self._connected(timeout)
            try:
                answer = send(connection, method, target, headers, data or b"", MAX_ANSWER)
            except OSError as error:
                self.close()
                # The server may have closed the connection while it was idle: repeat the request if it is idempotent.
                if reused and may_repeat and not self._interrupted:
                    continue
                raise self._lost(error) from None
            except BaseException:
                self.close()  # Ctrl-C in the middle of a response: its rest must not be read as the next one
                raise
            if not answer.is_kept:
                self.close()
            return Answer(answer.status, answer.body, answer.headers)

    def _connected(self, timeout: float) -> tuple[Connection, bool]:
        """The present connection if it is still open, else a new one."""
        kept = self._connection
        if kept is not None and is_usable(kept):
            kept.sock.settimeout(timeout)
            return kept, True
        self.close()
        try:
            connection = self._make(timeout)
            try:
                connection.connect()
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise self._lost(error) from None
        self._connection = connection
        if self._interrupted:  # checked after the connection is set, so that `interrupt` sees one or the other
            self.close()
            raise Unreachable(f"the connection to {self.url} was ended from here", code="interrupted")
        return connection, False

    def _make(self, timeout: float) -> Connection:
        if self.url.startswith("unix:"):
            return UnixConnection(self.url.removeprefix("unix:"), timeout)
        from shoal.client.connection import tls  # a server on this machine is reached without

        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = parts.port or HTTPS_PORT
        if tls.is_fingerprint(self.ca):
            self.ca = tls.fetch_ca(self.url, host, port, self.ca, timeout)
        if self._context is None:
            self._context = tls.make_context(self.ca)
        return TlsConnection(host, port, timeout, self._context, tls.name_of(self.ca, host))

    def _lost(self, error: Exception) -> ShoalError:
        if isinstance(error, ForeignServer):
            return Unreachable(
                str(error), code="foreign_server", hint="is your own server running? see `shoal server status`"
            )
        if self.url.startswith("https:"):
            import ssl

            from shoal.client.connection import tls

            # An early end of the stream is no error of TLS: the server ended.
            if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                return tls.explain(error, self.url)
        what = "took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unreachable(
            f"no answer from {self.url}: {echo(what)}", hint="is the server running? see `shoal server status`"
        )


def wait_of(retry_after: str) -> float:
    """Seconds to wait before the next try; a server cannot make a command wait for long."""
    try:
        return min(max(float(retry_after), 0.1), LONGEST_WAIT)
    except ValueError:
        return 1.0  # missing, or a date: no clock but our own is trusted


def check_url(url: str) -> str:
    """Check the address of a server: only kinds of addresses at which the server can be verified are accepted."""
    if url.startswith(unix_socket.SCHEME):
        if not url.removeprefix(unix_socket.SCHEME).startswith("/"):
            raise _no_address(url)
        return url
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address(url) from None
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/") or "@" in parts.netloc:
        raise _no_address(url)
    if parts.scheme == "http":
        raise BadInput(
            f"plain http to {echo(host)} would show your token to whoever listens there", code="bad_server",
            field="server",
            hint=f"write https://{echo(host)}:{port or HTTPS_PORT}; on this machine unix:/path/to/socket, "
            "see `shoal server status`",
        )  # fmt: skip
    return url.rstrip("/")


def _no_address(url: str) -> BadInput:
    return BadInput(f"{echo(url)!r} is not a server address", code="bad_server", field="server", hint=_URL_HINT)


def _check_token(token: str) -> str:
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise BadInput("the token holds spaces or control characters", code="bad_token", field="token")
    return token
