"""`shoal.attach`: futures for calls that an earlier process submitted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from shoal.client.connection.reconnect import Reconnecting, ServerConnection
from shoal.client.console import say
from shoal.client.executor.futures import CallFuture
from shoal.client.executor.open_run import read_run
from shoal.client.executor.script_session import CLIENT, MAX_LOOKED, glob_of
from shoal.client.executor.stream import Stream
from shoal.model.errors import NotFound, echo
from shoal.model.quantities import many


class Attached:
    """The calls of an executor whose process has ended: `futures` in the order of submission, `run`, `name`.

    No call can be added. Dropping this object changes nothing on the server.
    """

    def __init__(self, stream: Stream, run: str, name: str, futures: list[CallFuture[Any]]) -> None:
        self.run, self.name, self.futures = run, name, futures
        self._stream = stream

    def __len__(self) -> int:
        return len(self.futures)

    def __iter__(self) -> Iterator[CallFuture[Any]]:
        return iter(self.futures)

    def __repr__(self) -> str:
        done = sum(future.done() for future in self.futures)
        return f"<{self.run} {self.name}: {many(len(self.futures), 'call')}, {done:,} done>"

    def results(self, timeout: float | None = None) -> Iterator[Any]:
        """The values in order; raises what a call raised. `timeout` is for each."""
        return (future.result(timeout) for future in self.futures)

    def cancel(self) -> None:
        """Cancel every call that is not done."""
        self._stream.cancel_all()


def attach(
    name: str | None = None,
    *,
    server: str | None = None,
    trust: str | Iterable[type | tuple[str, str] | str] | None = None,
) -> Attached:
    """The calls of an earlier executor: of the latest one, of the latest with this name, or of this run (`r12`).

    `trust` is that of `Executor`.
    """
    link = Reconnecting(server, trust=trust)
    connection = ServerConnection(link)
    try:
        row = _find(connection, name)
        run = str(row["run"])
        opened = read_run(connection, run, compares=False)
    finally:
        connection.drop()
    opened.is_ours = False
    futures: dict[int, CallFuture[Any]] = {element: CallFuture(None) for element in range(1, opened.first)}
    say(f"attached to {run}: {many(len(futures), 'call')}, {len(opened.rows):,} of them finished")
    stream = Stream(link, lambda *_: opened, echo=False)
    stream.open()
    if futures:
        stream.adopt(futures, list(opened.rows.values()))
    stream.shutdown(wait=False)
    return Attached(stream, run, str(row.get("name") or ""), list(futures.values()))


def _find(connection: ServerConnection, name: str | None) -> dict[str, Any]:
    if name is not None and re.fullmatch(r"r[0-9]+", name):
        return connection.ask(lambda client: client.run(name))
    me = connection.ask(lambda client: client.whoami()).get("owner")
    page = connection.ask(lambda client: client.runs(name=glob_of(name or ""), limit=MAX_LOOKED))
    for row in page["runs"]:
        if CLIENT in row["labels"] and row.get("owner", me) == me:
            return row  # type: ignore[no-any-return]  # rows are plain JSON
    what = f"run of an executor named {echo(name)!r}" if name else "run of an executor"
    raise NotFound(f"there is no {what}", code="unknown_run", hint="see `shoal ps`")
