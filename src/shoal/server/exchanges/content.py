"""What an exchange brings besides news for the engine: results and checkpoints whose blobs have to be held, answers about files.

An exchange that its pilot sends itself and one that comes sealed by way of its leader are handled here alike.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace

from shoal.engine.exchanges.bounds import check_exchange
from shoal.engine.exchanges.kept_reports import open_copy
from shoal.engine.pilots.lease_proofs import Proofs
from shoal.engine.pilots.old_protocol import complete
from shoal.engine.records import Pilot
from shoal.engine.tasks.reports import may_report
from shoal.model.credentials import digest
from shoal.model.errors import NotFound
from shoal.model.ids import parse_attempt
from shoal.model.task.kept_files import unpack
from shoal.server.context import Context
from shoal.wire.chunk import shift
from shoal.wire.messages import Exchange, Reply
from shoal.wire.old_protocol import NONCES_SINCE


def begin(context: Context, exchange: Exchange, is_sealed: bool = False) -> asyncio.Future[Reply]:
    """Carry out an exchange; answered, perhaps at once, when the engine has something to send, or its time is over."""
    pilot = context.service.engine.state.pilots.get(exchange.pilot)
    if pilot is not None and _is_read_here(exchange):
        check_exchange(exchange, pilot)  # the engine checks it, too, but only when its content was read
        if exchange.protocol < NONCES_SINCE:
            exchange = complete(context.service.engine.state, pilot, exchange)
        if is_sealed or pilot.session == digest(exchange.session):  # otherwise it is refused
            _claim_results(context, exchange, pilot)
            _claim_kept(context, exchange)
            context.file_answers.deliver(pilot.names, exchange.files)
            exchange = _hold_checkpoints(context, exchange, pilot)
    return context.service.exchange(exchange, is_sealed)


def _is_read_here(exchange: Exchange) -> bool:
    """True if there is something in an exchange that is used before the engine gets it."""
    return bool(
        exchange.protocol < NONCES_SINCE or exchange.files or exchange.checkpoints or exchange.tails or exchange.batches
        or exchange.sealed or any(report.result or report.files for report in exchange.reports)
    )  # fmt: skip


def _claim_kept(context: Context, exchange: Exchange) -> None:
    for sealed in exchange.sealed:
        opened = open_copy(context.service.engine.state, sealed)
        if opened is not None:
            _claim_results(context, opened[1], opened[0])


def _claim_results(context: Context, exchange: Exchange, pilot: Pilot) -> None:
    """Have the runs hold the blobs of large results and of kept outputs, of reports that may count."""
    results = [(report.attempt, 0, report.result) for report in exchange.reports if report.result]
    results += [(batch.attempt, at, text) for batch in exchange.batches for at, text in enumerate(batch.result)]
    large = [(first, at, [text]) for first, at, text in results if text.startswith("sha256:")]
    large += [(first, at, kept) for first, at, text in results if (kept := [f.digest for f in unpack(text).values()])]
    if not large:
        return
    state = context.service.engine.state
    named: dict[int, list[str]] = {}
    proofs = Proofs(state.lease_key, pilot.names, exchange.proofs)
    for first, at, texts in large:
        attempt = shift(parse_attempt(first), at)
        if may_report(state, pilot, attempt, proofs):
            named.setdefault(attempt.run, []).extend(texts)
    for number, digests in named.items():
        run = state.runs.get(number)
        if run is None:
            continue
        for text in digests:
            with contextlib.suppress(NotFound):  # readers of that result get an error: its blob is missing
                context.blobs.claim(run.owner, number, [text])


def _hold_checkpoints(context: Context, exchange: Exchange, pilot: Pilot) -> Exchange:
    """Hold the blobs of checkpoints while their tasks need them; drops a checkpoint of which a blob is missing."""
    for report in exchange.reports:
        if report.files and pilot.holds(parse_attempt(report.attempt)):
            _hold_files(context, pilot, report.attempt, report.files)
    if not exchange.checkpoints:
        return exchange
    kept = [one for one in exchange.checkpoints if _hold_files(context, pilot, one.attempt, one.files)]
    return replace(exchange, checkpoints=kept)


def _hold_files(context: Context, pilot: Pilot, attempt: str, files: Mapping[str, str]) -> bool:
    number, state = parse_attempt(attempt).run, context.service.engine.state
    run = state.runs.get(number)
    if run is None or not state.serves(pilot, run.owner):
        return False
    return context.blobs.keep_checkpoint(run.owner, number, files.values())
