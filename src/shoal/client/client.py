"""One connection to a server: a method per call of docs/reference/http.md, errors as the server meant them.

Synchronous and of the standard library only, so that a command starts fast; one thread per Client.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from shoal.model.errors import (
    BadInput,
    Conflict,
    NotFound,
    Refused,
    ShoalError,
    TooLarge,
    Unreachable,
    echo,
)
from shoal.model.limits import MAX_BULK_BODY, MAX_PAGE

TIMEOUT = 30.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_URL_HINT = "write http://127.0.0.1:PORT or unix:/path/to/socket"
_BY_STATUS: dict[int, type[ShoalError]] = {
    400: BadInput,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    413: TooLarge,
    415: BadInput,
    422: BadInput,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}

Json = dict[str, Any]


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """A server as seen from here."""

    def __init__(self, url: str, token: str = "", timeout: float = TIMEOUT) -> None:
        self.url = check_url(url)
        self._token = _check_token(token)
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Let the connection go; the next call makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- runs and tasks
    def submit(self, submission: Mapping[str, Any]) -> Json:
        """Submit a run; safe to repeat if it has a `key`."""
        return self._json("POST", "/v1/runs", body=submission, repeat=bool(submission.get("key")), timeout=120.0)

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        """Runs, newest first: `runs`, `next`."""
        return self._json("GET", "/v1/runs", {"state": state, "name": name, "limit": limit, "before": before})

    def run(self, run: str) -> Json:
        """One run with its arrays, spans and counts."""
        return self._json("GET", f"/v1/runs/{quote(run, safe='')}")

    def tasks(self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Iterable[str] = ()) -> Json:
        """A page of rows of tasks that were leased or differ: `tasks`, `next`."""
        query = {"after": after, "limit": limit, "state": ",".join(states)}
        return self._json("GET", f"/v1/runs/{quote(run, safe='')}/tasks", query)

    def task(self, task: str) -> Json:
        """One task: `run`, `array`, `task` (row or None), `state`, `events`."""
        return self._json("GET", f"/v1/tasks/{quote(task, safe='')}")

    def logs(self, task: str, stream: str = "stdout", attempt: int | None = None) -> bytes:
        """A stream of a task's latest or given attempt, as the task wrote it."""
        query = {"stream": stream, "attempt": attempt if attempt is not None else ""}
        return self._send("GET", _target(f"/v1/tasks/{quote(task, safe='')}/logs", query), None, True, self._timeout)

    def why(self, target: str) -> Json:
        """Why a run, task or pilot is where it is: `target`, `state`, `reasons`."""
        return self._json("GET", f"/v1/why/{quote(target, safe='')}")

    def cancel(self, targets: Iterable[str]) -> Json:
        """Cancel runs and tasks: `cancelled`, `already_final`."""
        return self._json("POST", "/v1/cancel", body={"targets": list(targets)})

    def retry(self, targets: Iterable[str]) -> Json:
        """Make failed, cancelled and lost tasks ready again: `tasks`."""
        return self._json("POST", "/v1/retry", body={"targets": list(targets)})

    # --- events
    def events(self, after: int = 0, run: str = "", limit: int = MAX_PAGE, wait: float = 0.0) -> Json:
        """A page of the journal: `events`, `last`; waits up to `wait` seconds for news."""
        query = {"after": after, "run": run, "limit": limit, "wait": f"{wait:g}" if wait else ""}
        return self._json("GET", "/v1/events", query, timeout=self._timeout + wait)

    def pages(
        self,
        run: str = "",
        after: int = 0,
        wait: float = 1.0,
        on_lost: Callable[[Unreachable], Client | None] | None = None,
        patience: float = 600.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[list[Json]]:
        """The journal page by page and without end; an empty page says that nothing was new for `wait` seconds.

        A lost server is waited for up to `patience` seconds. `on_lost` may hand over another client to go on
        with (the embedded server has another address after each start).
        """
        client, pause, lost = self, 0.1, 0.0
        while True:
            try:
                page = client.events(after, run, wait=wait)
            except Unreachable as error:
                lost += pause
                if lost > patience:
                    raise
                yield []
                other = on_lost(error) if on_lost is not None else None
                if other is not None:
                    client, lost = other, 0.0
                sleep(pause)
                pause = min(2 * pause, 5.0)
                continue
            except Conflict as error:
                after = oldest_of(error) - 1  # retention was faster than we
                continue
            pause, lost = 0.1, 0.0
            events: list[Json] = page["events"]
            after = max([after, *(event["seq"] for event in events[-1:])])
            yield events

    def follow(
        self,
        run: str = "",
        after: int = 0,
        on_lost: Callable[[Unreachable], Client | None] | None = None,
    ) -> Iterator[Json]:
        """Events one by one as they happen; of a run: until it is finished. Survives a lost server."""
        for events in self.pages(run, after, wait=10.0, on_lost=on_lost):
            for event in events:
                yield event
                if run and event["kind"] == "run_finished":
                    return

    # --- pilots and the server itself
    def pilots(self, state: str = "") -> Json:
        """The pilots: `pilots`."""
        return self._json("GET", "/v1/pilots", {"state": state})

    def drain(self, pilots: Iterable[str] = ()) -> Json:
        """Ask pilots to finish what runs and end; none named: all."""
        return self._json("POST", "/v1/pilots/drain", body={"pilots": list(pilots)})

    def prune(self, older_than: float, keep: int) -> Json:
        """Delete old events and logs."""
        return self._json("POST", "/v1/prune", body={"older_than": older_than, "keep": keep})

    def server(self) -> Json:
        """The server's status."""
        return self._json("GET", "/v1/server")

    def stop(self) -> Json:
        """Stop the server; pilots keep running tasks and come back to the next one."""
        return self._json("POST", "/v1/server/stop", body={})

    def health(self, timeout: float = 2.0) -> bool:
        """Does a server answer there? Needs no token."""
        try:
            return self._json("GET", "/v1/health", timeout=timeout).get("ok") is True
        except ShoalError:
            return False

    # --- the wire
    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        repeat: bool | None = None,
        timeout: float | None = None,
    ) -> Json:
        sent = encode(body) if body is not None else None
        may_repeat = method == "GET" if repeat is None else repeat
        data = self._send(method, _target(path, query), sent, may_repeat, timeout or self._timeout)
        try:
            answer = json.loads(data) if data else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Refused(
                f"{self.url} does not speak Shoal's language", code="not_shoal", hint="is another program on that port?"
            )
        return answer

    def _send(self, method: str, target: str, data: bytes | None, may_repeat: bool, timeout: float) -> bytes:
        """The answer to one request; what the server refuses is raised."""
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if data is not None:
            headers["Content-Type"] = "application/json"
        while True:
            connection, reused = self._connected(timeout)
            try:
                connection.request(method, target, data, headers)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A kept connection may have been closed by the server just now: once more, if that is harmless.
                if reused and may_repeat:
                    continue
                raise self._unreachable(error) from None
            except BaseException:
                self.close()  # Ctrl-C in the middle of an answer: its rest must not be taken for the next one
                raise
            if response.will_close:
                self.close()
            if response.status >= 400:
                raise error_of(response.status, answer, self.url)
            return answer

    def _connected(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """The kept connection if it is still good, else a new one."""
        kept = self._connection
        if kept is not None and kept.sock is not None:
            # Readable without a request sent: the server closed it.
            if not select.select([kept.sock], [], [], 0)[0]:
                kept.sock.settimeout(timeout)
                return kept, True
            self.close()
        kind, _, path = self.url.partition(":")
        if kind == "unix":
            connection: http.client.HTTPConnection = _UnixConnection(path, timeout)
        else:
            parts = urlsplit(self.url)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unreachable(error) from None
        if kind != "unix":
            # Small requests and answers: waiting to fill a packet would cost 40 ms each.
            with contextlib.suppress(OSError):
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        return connection, False

    def _unreachable(self, error: Exception) -> Unreachable:
        what = "took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unreachable(
            f"no answer from {self.url}: {echo(what)}", hint="is the server running? see `shoal server status`"
        )


def _target(path: str, query: Mapping[str, object] | None) -> str:
    asked = {name: value for name, value in (query or {}).items() if value not in ("", None)}
    return f"{path}?{urlencode(asked)}" if asked else path


def check_url(url: str) -> str:
    """The address of a server, if it is one we may talk to: plain HTTP carries the token, so loopback only."""
    if url.startswith("unix:"):
        if not url.removeprefix("unix:").startswith("/"):
            raise BadInput(f"{echo(url)!r} is not a server address", code="bad_server", field="server", hint=_URL_HINT)
        return url
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme == "https":
        raise BadInput(
            "https is not supported by this version of Shoal yet", code="bad_server", field="server", hint=_URL_HINT
        )
    if parts.scheme != "http" or not host or not port or parts.path not in ("", "/"):
        raise BadInput(f"{echo(url)!r} is not a server address", code="bad_server", field="server", hint=_URL_HINT)
    if host not in LOOPBACK and not host.startswith("127."):
        raise BadInput(
            f"plain http to {echo(host)} would show your token to the network", code="bad_server", field="server",
            hint="only this machine can be reached so far: " + _URL_HINT,
        )  # fmt: skip
    return url.rstrip("/")


def _check_token(token: str) -> str:
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise BadInput("the token holds spaces or control characters", code="bad_token", field="token")
    return token


def oldest_of(error: Conflict) -> int:
    """The oldest event that is kept, from the refusal of an older one; other refusals are raised again."""
    found = re.search(r"([0-9]+)\D*$", error.hint)
    if error.code != "gone" or found is None:
        raise error
    return int(found[1])


def encode(body: Mapping[str, Any]) -> bytes:
    """A request's body, if it can be one."""
    try:
        data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{echo(error.object[error.start : error.start + 20])!r} is not valid UTF-8", code="bad_utf8",
            hint="rename the file or write the text in UTF-8",
        ) from None  # fmt: skip
    except ValueError:
        raise BadInput("a number is not finite", code="not_finite", hint="no NaN or Infinity") from None
    if len(data) > MAX_BULK_BODY:
        raise TooLarge(
            f"the submission has {len(data)} bytes",
            hint=f"at most {MAX_BULK_BODY}: split it, or write equal tasks as an array",
        )
    return data


def error_of(status: int, answer: bytes, url: str) -> ShoalError:
    """The exception that the server meant."""
    try:
        found = json.loads(answer)["error"]
        told = {name: str(found.get(name) or "") for name in ("message", "code", "field", "hint")}
    except (ValueError, TypeError, KeyError, AttributeError):
        told = {"message": f"{url} answered {status}", "code": f"http_{status}", "field": "", "hint": ""}
        if status >= 500:
            told["hint"] = "see server.log in its state directory"
    if status == 401 and not told["hint"]:
        told["hint"] = "give the server's token in $SHOAL_TOKEN or token_file"
    kind = _BY_STATUS.get(status, Refused)
    return kind(told["message"], code=told["code"], field=told["field"], hint=told["hint"])
