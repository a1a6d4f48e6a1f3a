"""Fetching the outputs that tasks left on the server, with a line now and then about how far it is."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shoal.cli.session import say
from shoal.client.client import Client
from shoal.model.quantities import many, show_size
from shoal.report.data_source import Source
from shoal.report.kept_outputs import Fetched, fetch, outputs_of

TELL_EVERY = 3.0  # seconds


def fetch_outputs(client: Client, source: Source, run: str, folder: str, patterns: Sequence[str] = ()) -> Fetched:
    """Bring the outputs of a run into a directory."""
    told = time.monotonic()

    def tell(done: Fetched) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            say(f"fetching outputs: {many(done.files, 'file')} so far, {show_size(done.size)}")

    return fetch(client, outputs_of(source, run, patterns), folder, tell)
