"""Blobs that runners need and make: fetched before they are asked for, stored after the call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Optional

from shoal.pilot.commands import streams
from shoal.pilot.functions.call_batch import Then
from shoal.pilot.functions.runner_process import RunnerProcess
from shoal.pilot.guard import proctree
from shoal.pilot.runner.messages import Blob

KEPT = 60.0  # a blob that was fetched so long before it is needed may be gone again


class RunnerBlobs:
    """The blobs of all runners of a pilot. `resumed` is told of a runner that has waited for one."""

    def __init__(
        self,
        fetch: Callable[[str, Then], None],
        store: Callable[[str, Then], None],
        resumed: Callable[[RunnerProcess], None],
    ) -> None:
        self._fetch, self._store, self._resumed = fetch, store, resumed

    def need(self, one: RunnerProcess, digest: str) -> None:
        """A runner waits for a blob."""
        one.needed = digest
        self._answer(one) if one.blobs.get(digest) else self.request(one, digest)

    def request(self, one: RunnerProcess, digest: str) -> None:
        """Fetch a blob that a runner will need."""
        if digest not in one.blobs:
            one.blobs[digest] = None
            self._fetch(digest, partial(self._on_fetched, one, digest))

    def _on_fetched(self, one: RunnerProcess, digest: str, path: Optional[str], error: str) -> None:
        if digest in one.blobs:
            one.blobs[digest] = (path, error, proctree.now())
            if one.needed == digest:
                self._answer(one)

    def _answer(self, one: RunnerProcess) -> None:
        found, now = one.blobs.pop(one.needed, None), proctree.now()
        if found is not None and now > found[2] + KEPT:
            self.request(one, one.needed)
        elif found is not None:
            digest, one.needed, one.began = one.needed, "", now
            one.send(Blob(digest, found[0], "" if found[0] else f"cannot get {digest}: {found[1]}"))
            self._resumed(one)  # its time counts again

    def put_away(self, path: str, then: Then) -> None:
        """Store a large result, and remove its file."""

        def after(digest: Optional[str], error: str) -> None:
            streams.remove(path)
            then(digest, error)

        self._store(path, after)
