"""A server and its pool without sockets or processes: open runs kept by the rules of the interface, calls made in place.

`Pool.connect` stands in for a connection. Faults are planted by hand: answers lost before or after they took effect,
results that come twice or out of order, a server that is gone.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shoal.client.client import LogPart
from shoal.client.connection.reconnect import Reconnecting
from shoal.model.blobs import is_digest
from shoal.model.errors import Conflict, NotFound, ShoalError, Unreachable
from shoal.wire import payload
from tests.unit.blobbed import joined

Json = dict[str, Any]
Row = list[Any]  # the columns of a result as the server sends them


class FakeRun:
    """One open run."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.arrays: list[Json] = []
        self.additions: dict[int, list[Json]] = {}
        self.calls: dict[int, tuple[Json, str]] = {}  # element -> its table and call
        self.results: list[Row] = []
        self.final: set[int] = set()
        self.running: set[int] = set()
        self.open = True
        self.nonce = "a" * 16

    @property
    def next(self) -> int:
        return len(self.calls) + 1


class Pool:
    """What a server knows."""

    def __init__(self, auto: bool = True) -> None:
        self.auto = auto  # calls are made as soon as they are added
        self.tells_early = False  # the answer to an addition brings results, as of a server of this version
        self.news = threading.Condition(threading.RLock())
        self.runs: dict[str, FakeRun] = {}
        self.blobs: dict[str, bytes] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, Any]] = []
        self.before: Callable[[str], None] = lambda what: None  # raises: the request is lost
        self.after: Callable[[str], None] = lambda what: None  # raises: its answer is lost
        self.initialized: list[str] = []
        self.events: list[Json] = []

    def connect(self, link: Reconnecting) -> Any:
        return FakeClient(self)

    @property
    def run(self) -> FakeRun:
        """The only run, or the latest."""
        return list(self.runs.values())[-1]

    def additions(self) -> list[int]:
        """How many calls each addition brought."""
        return [sum(len(table.get("calls", ["?"])) for table in tables) for tables in self.run.additions.values()]

    def await_calls(self, count: int) -> None:
        """Until so many calls came in."""
        with self.news:
            assert self.news.wait_for(lambda: bool(self.runs) and len(self.run.calls) >= count, 30.0)

    # --- the work
    def work(self, *elements: int, run: str = "") -> None:
        """Make these calls, or all that are not done."""
        found = self.runs[run] if run else self.run
        for element in elements or [n for n in list(found.calls) if n not in found.final]:
            self.finish(element, self.made(found, element), found)

    def made(self, run: FakeRun, element: int) -> Row:
        """Make a call; its row."""
        table, call = run.calls[element]
        if "function" not in table:
            return [element, "succeeded", "", "", "", 1, f"ran {table.get('command') or table.get('shell')}", 9, 0]
        payload.resolver, payload.binder = lambda digest: payload.load(self.blobs[digest]), self.bind
        try:
            if table.get("initializer") and table["initializer"] not in self.initialized:
                self.initialized.append(table["initializer"])
                try:
                    function, args = payload.load(self.bytes_of(table["initializer"]))
                    function(*args)
                except Exception as error:
                    failure = self.text_of((error, ""))
                    return [element, "failed", failure, "initializer", f"initializer failed: {error!r}", 1, "", 0, 0]
            args, kwargs = payload.load(self.bytes_of(call))
            value = payload.load(self.bytes_of(table["function"]))(*args, **kwargs)
            return [element, "succeeded", self.text_of(value), "", "", 1, "", 0, 0]
        except BaseException as error:
            result = self.text_of((error, traceback.format_exc()))
            return [element, "failed", result, "task_error", repr(error)[:80], 1, "", 0, 0]
        finally:
            payload.resolver = payload.binder = None

    def bind(self, text: str, values: list[str]) -> Any:
        """Arguments with the results of other calls in their places, as a runner has them."""
        found = [payload.load(self.bytes_of(value)) for value in values]
        unpickler = pickle.Unpickler(io.BytesIO(self.bytes_of(text)))
        unpickler.persistent_load = found.__getitem__  # type: ignore[method-assign]
        return unpickler.load()

    def finish(self, element: int, row: Row, run: FakeRun | None = None) -> None:
        """Record a row, once."""
        found = run or self.run
        with self.news:
            found.running.discard(element)
            if element not in found.final:
                found.final.add(element)
                found.results.append(row)
            self.news.notify_all()

    def bytes_of(self, text: str) -> bytes:
        return self.blobs[text] if is_digest(text) else payload.of_text(text)

    def text_of(self, value: Any) -> str:
        import cloudpickle  # type: ignore[import-untyped]

        data = cloudpickle.dumps(value)
        return payload.to_text(data) if len(data) <= 64 * 1024 else self.put([data])

    def put(self, parts: Sequence[Any]) -> str:
        data = joined(parts)
        name = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[name] = data
        return name


class FakeClient:
    """One connection to the pool."""

    url = "unix:/run/shoal-1"

    def __init__(self, pool: Pool) -> None:
        self._pool, self._cut = pool, False

    def close(self) -> None:
        pass

    def interrupt(self) -> None:
        with self._pool.news:
            self._cut = True
            self._pool.news.notify_all()

    def _do(self, what: str, told: Any, do: Callable[[], Any]) -> Any:
        with self._pool.news:
            self._pool.asked.append((what, told))
        self._pool.before(what)
        with self._pool.news:
            answer = do()
        self._pool.after(what)
        return answer

    def submit(self, document: Mapping[str, Any]) -> Json:
        def do() -> Json:
            for name, run in self._pool.runs.items():
                if run.document["key"] == document["key"]:
                    return {"run": name, "again": True}
            name = f"r{len(self._pool.runs) + 1}"
            self._pool.runs[name] = FakeRun(document)
            return {"run": name}

        return self._do("submit", document, do)  # type: ignore[no-any-return]

    def add(self, run: str, first: int, tasks: Sequence[Mapping[str, Any]], after: int | None = None) -> Json:
        tables = [dict(table) for table in tasks]

        def do() -> Json:
            found = self._pool.runs[run]
            if first in found.additions:
                if found.additions[first] != tables:
                    raise Conflict("another content")
                return {"run": run, "first": first, "again": True}
            if first != found.next:
                raise Conflict(f"{first} is not {found.next}")
            found.additions[first] = tables
            for table in tables:
                at, calls = found.next, table.get("calls", [""])
                found.arrays.append({"first": at, "count": len(calls), "name": "", "task": table})
                found.calls.update({at + n: (table, call) for n, call in enumerate(calls)})
            self._pool.news.notify_all()
            return {"run": run, "first": first}

        answer: Json = self._do("add", first, do)
        if self._pool.auto:
            self._pool.work(run=run)
        if self._pool.tells_early:
            with self._pool.news:
                page = self._page(run, after, 10_000) if after is not None else None
            return {**answer, "page": page if page is not None and page["results"] else None}
        assert after is None, "an older server refuses what it does not know"
        return answer

    def results(self, run: str, after: int = 0, limit: int = 10_000, wait: float = 0.0) -> Json:
        def do() -> Json:
            found = self._pool.runs[run]
            self._pool.news.wait_for(lambda: self._cut or len(found.results) > after, wait)
            if self._cut:
                raise Unreachable("cut")
            return self._page(run, after, limit)

        return self._do("results", after, do)  # type: ignore[no-any-return]

    def _page(self, run: str, after: int, limit: int) -> Json:
        found = self._pool.runs[run]
        rows = [list(row) for row in found.results[after : after + limit]]
        return {"results": rows, "last": after + len(rows), "finished": False, "foreign": [], "nonce": found.nonce}

    def close_run(self, run: str) -> Json:
        def do() -> Json:
            self._pool.runs[run].open = False
            return {"run": run, "finished": True}

        return self._do("close", run, do)  # type: ignore[no-any-return]

    def cancel(self, targets: Iterable[str], unless_running: bool = False) -> Json:
        def do() -> Json:
            count = 0
            for target in targets:
                run, _, element = target.partition(".")
                found = self._pool.runs[run]
                for n in [int(element)] if element else list(found.calls):
                    if n not in found.final and not (unless_running and n in found.running):
                        count += 1
                        self._pool.finish(n, [n, "cancelled", "", "cancelled", "", 1, "", 0, 0], found)
            return {"cancelled": count, "already_final": 0}

        return self._do("cancel", targets, do)  # type: ignore[no-any-return]

    def task(self, task: str) -> Json:
        run, _, element = task.partition(".")
        return {"state": "running" if int(element) in self._pool.runs[run].running else "ready"}

    def tasks(self, run: str, after: int = 0, limit: int = 0, states: Iterable[str] = ()) -> Json:
        assert list(states) == ["running"]
        return {"tasks": [{"element": n} for n in sorted(self._pool.runs[run].running)], "next": None}

    def runs(self, state: str = "", name: str = "", limit: int = 50, before: str = "") -> Json:
        rows = [
            {"run": key, "name": run.document["name"], "labels": run.document["labels"], "open": run.open}
            for key, run in self._pool.runs.items()
            if name in ("", run.document["name"])
        ]
        return {"runs": rows[::-1], "next": None}

    def run_row(self, run: str) -> Json:
        return self.run(run)

    def run(self, run: str) -> Json:
        if run not in self._pool.runs:
            raise NotFound(f"there is no {run}")
        found = self._pool.runs[run]
        return {"run": run, "name": found.document["name"], "arrays": list(found.arrays), "open": found.open}

    def events(self, after: int = 0, run: str = "", kinds: Iterable[str] = ()) -> Json:
        found = [event for event in self._pool.events if event["kind"] in kinds]
        return self._do("events", after, lambda: {"events": found[after:], "last": len(found)})  # type: ignore[no-any-return]

    def whoami(self) -> Json:
        return {"owner": "anna"}

    def why(self, run: str) -> Json:
        return {"reasons": []}

    def logs(self, task: str, stream: str = "stdout", offset: int = 0) -> LogPart:
        data = self._pool.logs.get((task, stream), b"")[offset:]
        return LogPart(data, offset + len(data), False)

    def put_blob(self, parts: Sequence[Any]) -> str:
        return self._do("put", None, lambda: self._pool.put(parts))  # type: ignore[no-any-return]

    def get_blob(self, digest: str) -> bytearray:
        return self._do("get", digest, lambda: bytearray(self._pool.blobs[digest]))  # type: ignore[no-any-return]


def lose(what: str, times: int = 1, error: ShoalError | None = None) -> Callable[[str], None]:
    """A fault: so many requests of a kind are lost, or answered with an error."""
    left = [times]

    def fault(kind: str) -> None:
        if kind == what and left[0] > 0:
            left[0] -= 1
            raise error or Unreachable(f"{what} was lost")

    return fault
