"""The HTTP client: a method for each call of docs/reference/http.md; errors are raised as the server raised them.

Synchronous and of the standard library only, so that a command starts fast. A Client is used by one thread.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from shoal.client.config import submitting_task
from shoal.client.connection.transport import TOO_MUCH, Answer, Transport
from shoal.client.waiting import waiting
from shoal.model.blobs import Bytes
from shoal.model.errors import (
    BadInput,
    Conflict,
    EventsGone,
    NotFound,
    Refused,
    ShoalError,
    TooLarge,
    Unreachable,
    echo,
)
from shoal.model.ids import PARENT, run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_BULK_BODY, MAX_PAGE

TIMEOUT = 30.0
_BY_STATUS: dict[int, type[ShoalError]] = {
    400: BadInput, 404: NotFound, 409: Conflict, 410: Conflict, 411: BadInput, 413: TooLarge, 415: BadInput, 422: BadInput,
    502: Unreachable, 503: Unreachable, 504: Unreachable,
}  # fmt: skip

Json = dict[str, Any]


@dataclass(frozen=True)
class LogPart:
    """A part of a stream: its bytes, the offset of the next part, and whether there may be more. `missing`: so many bytes
    that the task wrote never came."""

    data: bytes
    next: int
    more: bool
    missing: int = 0


@dataclass(frozen=True)
class FilePart:
    """A part of a file: its bytes, where they begin, and the size of the file."""

    data: bytes
    offset: int
    size: int


class Client:
    """A client of one server.

    `ca` is how an https server is verified: the PEM text or the SHA-256 of its own CA certificate; empty: the system's
    certificates and the name in the address.
    """

    def __init__(self, url: str, token: str = "", ca: str = "", timeout: float = TIMEOUT) -> None:
        self._transport = Transport(url, token, ca)
        self.url = self._transport.url
        self.lends = True  # a task that waits for an answer lends its cores
        self._timeout = timeout

    @property
    def ca(self) -> str:
        """How the server is verified; a fingerprint becomes the certificate itself with the first call."""
        return self._transport.ca

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        self._transport.close()

    def interrupt(self) -> None:
        """End the request that another thread waits for: it raises Unreachable."""
        self._transport.interrupt()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- runs and tasks
    def submit(self, submission: Mapping[str, Any]) -> Json:
        """Submit a run; safe to repeat if it has a `key`."""
        task = submitting_task(self.url)
        if task:
            submission = {**submission, "labels": {PARENT: task, **(submission.get("labels") or {})}}
        return self._json("POST", "/v1/runs", body=submission, repeat=bool(submission.get("key")), timeout=120.0)

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        """Runs, newest first: `runs`, `next`."""
        page = self._json("GET", "/v1/runs", {"state": state, "name": name, "limit": limit, "before": before})
        return {**page, "runs": [_with_id(row) for row in page["runs"]]}

    def run(self, run: str) -> Json:
        """One run with its arrays, spans and counts."""
        return _with_id(self._json("GET", f"/v1/runs/{quote(run, safe='')}"))

    def run_row(self, run: str) -> Json:
        """One run without its arrays, which may be large: the newest run before the next one."""
        page = self.runs(limit=1, before=f"r{int(run[1:]) + 1}")["runs"]
        return page[0] if page and page[0]["run"] == run else self.run(run)

    def partial(self, run: str) -> Json:
        """What its tasks emitted so far, merged: `tasks`, `running`, `left_out`, `goal`, `answers`."""
        return self._json("GET", f"/v1/runs/{quote(run, safe='')}/partial")

    def machines(self, run: str) -> Json:
        """Where its tasks run, what they take, and what is asked of your sites: `running`, `learned`, `sites`."""
        return self._json("GET", f"/v1/runs/{quote(run, safe='')}/machines")

    def tasks(
        self, run: str, after: int = 0, limit: int = MAX_PAGE, states: Iterable[str] = (), values: bool = False
    ) -> Json:
        """A page of rows of tasks that were leased or differ: `tasks`, `next`; `values`: with small results of calls."""
        query = {"after": after, "limit": limit, "state": ",".join(states), "values": 1 if values else ""}
        return self._json("GET", f"/v1/runs/{quote(run, safe='')}/tasks", query)

    def add(self, run: str, first: int, tasks: Sequence[Mapping[str, Any]], after: int | None = None) -> Json:
        """Add tasks to an open run; `first` is the number of the first new element, so a repeated call adds once. With
        `after` the answer has in `page` what has become final since then, if it is at hand."""
        body, query = {"first": first, "tasks": list(tasks)}, {"after": after} if after is not None else None
        return self._json("POST", f"/v1/runs/{quote(run, safe='')}/tasks", query, body=body, repeat=True, timeout=120.0)

    def results(self, run: str, after: int = 0, limit: int = 10_000, wait: float = 0.0) -> Json:
        """Finals of a run's tasks in the order of the journal: `results`, `last`, `finished`."""
        query = {"after": after, "limit": limit, "wait": f"{wait:g}" if wait else ""}
        with self._waits(wait):
            return self._json("GET", f"/v1/runs/{quote(run, safe='')}/results", query, timeout=self._timeout + wait)

    def close_run(self, run: str) -> Json:
        """No more tasks are added to a run: `run`, `finished`."""
        return self._json("POST", f"/v1/runs/{quote(run, safe='')}/close", body={}, repeat=True)

    def task(self, task: str) -> Json:
        """One task: `run`, `array`, `task` (row or None), `state`, `events`."""
        return self._json("GET", f"/v1/tasks/{quote(task, safe='')}")

    def logs(
        self, task: str, stream: str = "stdout", attempt: int | None = None, offset: int = 0, wait: float = 0.0
    ) -> LogPart:
        """A stream of a task's latest or given attempt from a byte on; waits up to `wait` seconds for more."""
        query = {"stream": stream, "attempt": attempt, "offset": offset or "", "wait": f"{wait:g}" if wait else ""}
        target = _target(f"/v1/tasks/{quote(task, safe='')}/logs", query)
        with self._waits(wait):
            answer = self._send("GET", target, None, True, self._timeout + wait)
        following = answer.headers.get("x-shoal-next", "")
        next_offset = int(following) if following.isdecimal() else offset + len(answer.data)
        missing = answer.headers.get("x-shoal-missing", "")
        return LogPart(
            answer.data,
            next_offset,
            answer.headers.get("x-shoal-more") == "1",
            int(missing) if missing.isdecimal() else 0,
        )

    def why(self, target: str) -> Json:
        """Why a run, task or pilot is in its state: `target`, `state`, `reasons`."""
        return self._json("GET", f"/v1/why/{quote(target, safe='')}")

    def cancel(self, targets: Iterable[str], unless_running: bool = False) -> Json:
        """Cancel runs and tasks, by default also those that run: `cancelled`, `already_final`."""
        body = {"targets": list(targets), **({"unless_running": True} if unless_running else {})}
        return self._json("POST", "/v1/cancel", body=body)

    def retry(self, targets: Iterable[str], where: Mapping[str, Any] | None = None) -> Json:
        """Make failed, cancelled and lost tasks (that fit the filter) ready again: `tasks`, `runs`."""
        return self._json("POST", "/v1/retry", body={"targets": list(targets), **_given(where=dict(where or {}))})

    def signal(self, targets: Iterable[str], signal: str) -> Json:
        """Send a signal to running attempts: `signalled`, `not_running`."""
        return self._json("POST", "/v1/signal", body={"targets": list(targets), "signal": signal})

    def set_fields(self, targets: Iterable[str], fields: Mapping[str, Any]) -> Json:
        """Change fields of tasks that have not begun: `tasks`, `begun`, `warnings`."""
        return self._json("POST", "/v1/set", body={"targets": list(targets), "fields": dict(fields)}, timeout=120.0)

    def copy(self, run: str, fields: Mapping[str, Any], key: str, **more: Any) -> Json:
        """Submit the same work once more, with changes; safe to repeat with the same key. As `submit` answers."""
        body = {"fields": dict(fields), "key": key, **_given(**more)}
        return self._json("POST", f"/v1/runs/{quote(run, safe='')}/copy", body=body, repeat=True, timeout=120.0)

    def remove(self, runs: Iterable[str]) -> Json:
        """Remove finished runs: `runs`, `tasks`, `log_bytes`."""
        return self._json("POST", "/v1/remove", body={"runs": list(runs)}, timeout=120.0)

    def files(self, task: str, path: str = "") -> Json:
        """A directory of a running task: `directory`, `entries`, `total`."""
        return self._json("GET", f"/v1/tasks/{quote(task, safe='')}/files", {"path": path})

    def read_file(self, task: str, path: str, offset: int = 0, tail: int | None = None) -> FilePart:
        """A part of a file of a running task, from an offset on or the last bytes of it."""
        query = {"path": path, "offset": offset or "", "tail": tail}
        answer = self._send("GET", _target(f"/v1/tasks/{quote(task, safe='')}/file", query), None, True, self._timeout)
        found = [answer.headers.get(f"x-shoal-{name}", "") for name in ("offset", "size")]
        start, size = (int(text) if text.isdecimal() else 0 for text in found)
        return FilePart(answer.data, start, size)

    # --- events
    def events(
        self, after: int = 0, run: str = "", limit: int = MAX_PAGE, wait: float = 0.0, kinds: Iterable[str] = ()
    ) -> Json:
        """A page of events: `events`, `last`; waits up to `wait` seconds for the first."""
        held = f"{wait:g}" if wait else ""
        query = {"after": after, "run": run, "limit": limit, "wait": held, "kind": ",".join(kinds)}
        with self._waits(wait):
            return self._json("GET", "/v1/events", query, timeout=self._timeout + wait)

    def pages(
        self,
        run: str = "",
        after: int = 0,
        wait: float = 1.0,
        kinds: Sequence[str] = (),
        on_lost: Callable[[Unreachable], Client | None] | None = None,
        patience: float = 600.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[list[Json]]:
        """Pages of events without end; a page is empty if there was no event for `wait` seconds.

        A lost server is waited for up to `patience` seconds. `on_lost` may return another client to go on with (the
        embedded server has another address after each start).
        """
        client, pause, lost = self, 0.1, 0.0
        while True:
            try:
                page = client.events(after, run, wait=wait, kinds=kinds)
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
            except EventsGone as error:
                after = error.oldest - 1  # retention was faster than this reader
                continue
            pause, lost = 0.1, 0.0
            after = max(after, page["last"])  # also past events that the caller may not see
            yield page["events"]

    # --- people and tokens
    def whoami(self) -> Json:
        """Who the token belongs to: `owner`, `group`, `role`, `kind`, `scopes`, `expires`, `token`."""
        return self._json("GET", "/v1/whoami")

    def users(self) -> Json:
        """The people: `users`."""
        return self._json("GET", "/v1/users")

    def add_user(self, name: str, group: str = "", role: str = "") -> Json:
        """Add a person, or change the group and role of one."""
        return self._json("POST", "/v1/users", body=_given(name=name, group=group, role=role))

    def groups(self) -> Json:
        """The groups: `groups`."""
        return self._json("GET", "/v1/groups")

    def add_group(self, name: str) -> Json:
        """Add a group."""
        return self._json("POST", "/v1/groups", body={"name": name})

    def sites(self) -> Json:
        """Sites whose names the caller may use: `sites`."""
        return self._json("GET", "/v1/sites")

    def share_site(self, name: str, holders: Sequence[str], only: bool = False) -> Json:
        """Let users, "@GROUP"s or "*" use the name of a site; `only`: nobody else any more."""
        return self._json("POST", "/v1/sites", body={"name": name, "holders": list(holders), "only": only})

    def pilot_zip(self) -> bytes:
        """The pilot that this server serves."""
        return bytes(self._send("GET", "/v1/pilot.pyz", None, True, self._timeout).data)

    def demand(self) -> Json:
        """What your ready tasks need, and the pilots that serve you."""
        return self._json("GET", "/v1/demand")

    def weather(self) -> Json:
        """How your sites do, and are expected to do: by site and quantity."""
        return self._json("GET", "/v1/sites/weather")

    def report_site(self, status: Mapping[str, Any]) -> Json:
        """Tell the server what happens at one of your sites."""
        return self._json("POST", "/v1/sites/report", body=status)

    def tokens(self, all_: bool = False) -> Json:
        """Tokens without their secrets: `tokens`; `all_`: also revoked and expired ones."""
        return self._json("GET", "/v1/tokens", {"all": 1 if all_ else ""})

    def new_token(self, kind: str, **fields: Any) -> Json:
        """A new token, shown this once: `id`, `token`, `expires`, `addresses`, `fingerprint`, `pilot_sha256`."""
        return self._json("POST", "/v1/tokens", body={"kind": kind, **_given(**fields)})

    def revoke(self, tokens: Iterable[str] = (), user: str = "", site: str = "", all_: bool = False) -> Json:
        """Revoke tokens, and end the pilots that registered with them: `revoked`, `pilots`."""
        body = _given(tokens=list(tokens), user=user, site=site) | ({"all": True} if all_ else {})
        return self._json("POST", "/v1/tokens/revoke", body=body)

    def audit(self, limit: int = MAX_PAGE, before: int | None = None, token: str = "", owner: str = "") -> Json:
        """Who did what, newest first: `audit`, `next`."""
        return self._json("GET", "/v1/audit", {"limit": limit, "before": before, "token": token, "owner": owner})

    # --- policy and shares
    def policy(self) -> Json:
        """The policy as far as it concerns the caller: `version`, `author`, `changed`, `policy`, `hidden`, `quotas`."""
        return self._json("GET", "/v1/policy")

    def set_policy(self, policy: Mapping[str, Any], version: int, dry_run: bool = False) -> Json:
        """Replace the policy of this version, or say what would change: `version`, `changes`, `notes`, `dry_run`."""
        body = {"version": version, "policy": dict(policy), **({"dry_run": True} if dry_run else {})}
        return self._json("POST", "/v1/policy", body=body)

    def shares(self) -> Json:
        """Shares of people and groups and their usage: `shares`, `groups`."""
        return self._json("GET", "/v1/shares")

    def set_shares(self, shares: Mapping[str, float]) -> Json:
        """Change these shares: `version`, `changes`, `notes`, `dry_run`."""
        return self._json("POST", "/v1/policy/shares", body={"shares": dict(shares)})

    # --- blobs
    def put_blob(self, parts: Sequence[Bytes]) -> str:
        """Upload bytes, given in parts that are not joined; returns their digest. What the server has is not sent."""
        from shoal.client import blobs  # most commands move none

        return blobs.put_blob(self._transport, parts)

    def put_file(self, fd: int, tell: Callable[[int], None] = lambda sent: None) -> tuple[str, int]:
        """Upload an open file; returns its digest and size. What the server has, also of an upload that broke off, is not sent;
        `tell` is called with how many bytes it has."""
        from shoal.client import blobs

        return blobs.put_file(self._transport, fd, tell)

    def get_blob(self, digest: str) -> bytearray:
        """The bytes of a blob, checked."""
        from shoal.client import blobs

        return blobs.get_blob(self._transport, digest)

    def save_blob(self, digest: str, file: BinaryIO) -> None:
        """Write the bytes of a blob, checked, into an empty file."""
        from shoal.client import blobs

        blobs.save_blob(self._transport, digest, file)

    def tell_files(self, run: str, files: Mapping[str, int], end: bool = False) -> Json:
        """Tell the rules of a run of files (names as seen from its directory, with their bytes): `files` that were new, and
        the `tasks` that they made. `end`: no more will come."""
        return self._json("POST", f"/v1/runs/{run}/files", body={"files": dict(files), "end": end})

    def accept(self, run: str) -> Json:
        """Accept what was predicted of a run that the server plans: its planning `stage`."""
        return self._json("POST", f"/v1/runs/{run}/accept", body={})

    # --- pilots and the server itself
    def hosts(self, limit: int = MAX_PAGE) -> Json:
        """What each host did over all its pilots: `hosts`."""
        return self._json("GET", "/v1/hosts", {"limit": limit})

    def pilots(self, state: str = "") -> Json:
        """The pilots: `pilots`."""
        return self._json("GET", "/v1/pilots", {"state": state})

    def acct(self, by: str = "", since: float = 0.0, until: float | None = None) -> Json:
        """Sums of the accounts by columns such as `owner,site`: `by`, `since`, `until`, `lines`, `places`."""
        query = {"by": by, "since": int(since) or "", "until": until if until is None else int(until)}
        return self._json("GET", "/v1/acct", query)

    def drain(self, pilots: Iterable[str] = (), within: float | None = None, stop: bool = False) -> Json:
        """Ask pilots to finish what runs and end, within a time if one is given; none named: all. `stop`: what can write a
        checkpoint does so at once and goes on elsewhere."""
        more = {**({"within": within} if within is not None else {}), **({"stop": True} if stop else {})}
        return self._json("POST", "/v1/pilots/drain", body={"pilots": list(pilots), **more})

    def prune(self, older_than: float, keep: int) -> Json:
        """Delete old events and logs."""
        return self._json("POST", "/v1/prune", body={"older_than": older_than, "keep": keep})

    def server(self) -> Json:
        """The server's status."""
        return self._json("GET", "/v1/server")

    def metrics(self) -> str:
        """The server's metrics in the format of Prometheus."""
        return self._send("GET", "/metrics", None, True, self._timeout).data.decode()

    def stop(self) -> Json:
        """Stop the server; pilots keep running tasks and connect to the next one."""
        return self._json("POST", "/v1/server/stop", body={})

    def open_tunnel_socket(self) -> Json:
        """Have the server serve TLS on a Unix socket for tunnels; returns its `socket` (path) and CA `fingerprint`."""
        return self._json("POST", "/v1/server/tunnel", body={})

    def health(self, timeout: float = 2.0) -> bool:
        """True if a server answers; needs no token."""
        try:
            return self._json("GET", "/v1/health", timeout=timeout).get("ok") is True
        except ShoalError:
            return False

    # --- requests
    def _waits(self, wait: float) -> contextlib.AbstractContextManager[None]:
        """For a request that the server may hold: in a task, the task waits for others meanwhile."""
        return waiting() if wait and self.lends else contextlib.nullcontext()

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
        data = self._send(method, _target(path, query), sent, may_repeat, timeout or self._timeout).data
        try:
            answer = json.loads(data) if data else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Refused(
                f"{self.url} does not speak Shoal's language", code="not_shoal", hint="is another program on that port?"
            )
        return answer

    def _send(self, method: str, target: str, data: bytes | None, may_repeat: bool, timeout: float) -> Answer:
        """The response to one request; a refusal is raised."""
        answer = self._transport.send(method, target, data, may_repeat, timeout)
        if answer.status >= 400:
            raise error_of(answer.status, answer.data, self.url)
        return answer


def _target(path: str, query: Mapping[str, object] | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def _with_id(row: Json) -> Json:
    """A run's row with its id, r12, instead of its number."""
    return row if isinstance(row["run"], str) else {**row, "run": run_text(row["run"])}


def _given(**fields: Any) -> Json:
    """The fields of a body that were given; the server has defaults for the others."""
    return {name: value for name, value in fields.items() if value not in ("", None, (), [], {})}


def encode(body: Mapping[str, Any]) -> bytes:
    """Encode the body of a request."""
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
    """The exception for a response with an error."""
    try:
        found = json.loads(answer)["error"]
        if isinstance(found.get("oldest"), int):
            return EventsGone(str(found["message"]), oldest=found["oldest"])
        fields = {name: str(found.get(name) or "") for name in ("message", "code", "field", "hint")}
    except (ValueError, TypeError, KeyError, AttributeError):
        fields = {"message": f"{url} answered {status}", "code": f"http_{status}", "field": "", "hint": ""}
        if status >= 500:
            fields["hint"] = "see server.log in its state directory"
    if status == 401 and (not fields["hint"] or url.startswith("https:")):
        fields["hint"] = "log in with `shoal login -`, or give the token in $SHOAL_TOKEN or token_file"
    kind = _BY_STATUS.get(status, Refused)
    error = kind(fields["message"], code=fields["code"], field=fields["field"], hint=fields["hint"])
    error.transient = error.transient or status == TOO_MUCH
    return error
