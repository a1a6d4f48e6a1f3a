"""Bounds of what a pilot sends: an exchange is checked whole before anything of it is handled [GWP G14]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.engine.pilots import mesh
from shoal.engine.records import Pilot
from shoal.engine.tasks.checkpoints import check_files
from shoal.engine.tasks.reports import check, check_batch, check_emitted
from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.ids import parse_attempt
from shoal.model.limits import (
    MAX_BYTES,
    MAX_CACHE_CHANGES,
    MAX_ELEMENT,
    MAX_EMITS,
    MAX_ENTRIES,
    MAX_FILE_ANSWERS,
    MAX_HELD,
    MAX_LINE,
    MAX_NAME,
    MAX_PEEK,
    MAX_PROOFS,
    MAX_REPORTS,
    MAX_SEALED_BYTES,
    MAX_SEALED_REPORTS,
    MAX_SIBLINGS,
    MAX_TAG_BYTES,
    MAX_TAG_NUMBER,
    MAX_TAGS,
    MAX_TAILS,
    MAX_WHOLE,
)
from shoal.wire.messages import Exchange, FileAnswer, Sealed

STAGES = ("leased", "running", "done")  # of what a pilot holds


def check_ended(sessions: Sequence[str]) -> None:
    """Refuse more dead pilots than a host has."""
    if len(sessions) > MAX_SIBLINGS or any(len(session) > MAX_NAME for session in sessions):
        raise BadInput("too many pilots ended", code="range", field="ended", hint=f"at most {MAX_SIBLINGS} at once")


def check_tags(tags: Mapping[str, object]) -> None:
    """Refuse more tags, or larger ones, than a pilot may have."""
    if any(isinstance(value, int) and abs(value) > MAX_TAG_NUMBER for value in tags.values()):
        raise BadInput("a tag with too large a number", code="range", field="tags", hint=f"at most {MAX_TAG_NUMBER}")
    if len(tags) > MAX_TAGS or sum(len(k) + len(str(v)) for k, v in tags.items()) > MAX_TAGS * MAX_TAG_BYTES:
        raise BadInput("too many tags", code="too_large", field="tags", hint=f"at most {MAX_TAGS}")


def check_exchange(exchange: Exchange, pilot: Pilot) -> None:
    """Refuse an exchange that is out of bounds."""
    free, room = exchange.free, pilot.room
    is_part = 0 <= free.cores <= room.cores and 0 <= free.memory <= room.memory
    if not (is_part and 0 <= free.disk <= room.disk and 0 <= free.gpus <= room.gpus):
        raise BadInput("more is free than there is", code="range", field="free", hint="from 0 to what was registered")
    if len(exchange.tails) > MAX_TAILS or len(exchange.nonce) > MAX_NAME or len(exchange.leaving) > MAX_LINE:
        raise BadInput("the exchange is out of bounds", code="range", hint=f"at most {MAX_TAILS} tails")
    if exchange.seq > MAX_WHOLE or not 0 <= exchange.ack <= MAX_WHOLE:
        raise BadInput("that is no number of an exchange", code="range", field="seq", hint=f"1 to {MAX_WHOLE}")
    reported = len(exchange.reports) + sum([batch.count for batch in exchange.batches])
    if exchange.seq < 1 or sum([held.count for held in exchange.held]) > MAX_HELD or reported > MAX_REPORTS:
        raise BadInput(
            "the exchange is out of bounds", code="range", hint=f"at most {MAX_HELD} held, {MAX_REPORTS} reports"
        )
    for report in exchange.reports:
        check(report)
    for batch in exchange.batches:
        check_batch(batch)
    check_ended(exchange.ended)
    if exchange.sealed:
        _check_sealed(exchange.sealed)
    if exchange.accusations:
        mesh.check_accusations(exchange.accusations)
    if exchange.published or exchange.emitted or exchange.proofs or exchange.checkpoints or exchange.waits:
        _check_of_tasks(exchange)
    if exchange.files:
        _check_files(exchange.files)
    if exchange.cached or exchange.uncached:
        _check_cache(exchange)
    for held in exchange.held:
        if held.count < 1 or parse_attempt(held.attempt).element + held.count - 1 > MAX_ELEMENT:
            raise BadInput("no such attempts can be held", code="range", field="held")
        if held.stage not in STAGES:
            raise BadInput(
                f"{echo(held.stage)!r} is no stage", code="unknown_state", field="held.stage", hint=", ".join(STAGES)
            )


def _check_of_tasks(exchange: Exchange) -> None:
    """Check what few exchanges bring of running tasks."""
    if len(exchange.published) > MAX_REPORTS:
        raise BadInput("too many tasks publish at once", code="range", field="published")
    for published in exchange.published:
        parse_attempt(published.attempt)
        check_tags(published.tags)
    if len(exchange.emitted) > MAX_EMITS:
        raise BadInput("too many tasks emit at once", code="range", field="emitted", hint=f"at most {MAX_EMITS}")
    for emitted in exchange.emitted:
        parse_attempt(emitted.attempt)
        check_emitted(emitted.text, "emitted")
    if len(exchange.proofs) > MAX_PROOFS:
        raise BadInput("too many proofs of leases", code="range", field="proofs", hint=f"at most {MAX_PROOFS}")
    for proof in exchange.proofs:
        parse_attempt(proof.attempt)
        if not 1 <= proof.count <= MAX_HELD or len(proof.proof) > MAX_NAME:
            raise BadInput("that is no proof of a lease", code="range", field="proofs")
    if len(exchange.checkpoints) > MAX_REPORTS:
        raise BadInput("too many checkpoints at once", code="range", field="checkpoints")
    for checkpoint in exchange.checkpoints:
        parse_attempt(checkpoint.attempt)
        check_files(checkpoint.files, "checkpoints.files")
        check_emitted(checkpoint.emitted, "checkpoints.emitted")
        if not 0 <= checkpoint.number <= MAX_BYTES:
            raise BadInput("no number of a checkpoint", code="range", field="checkpoints.number")
    if len(exchange.waits) > MAX_HELD:
        raise BadInput("too many attempts wait", code="range", field="waits", hint=f"at most {MAX_HELD}")
    for name in exchange.waits:
        parse_attempt(name)


def _check_cache(exchange: Exchange) -> None:
    if len(exchange.cached) + len(exchange.uncached) > MAX_CACHE_CHANGES:
        hint = f"at most {MAX_CACHE_CHANGES} at once"
        raise BadInput("too many changes of the cache", code="range", field="cached", hint=hint)
    digests = [*(one.digest for one in exchange.cached), *exchange.uncached]
    if not all(map(is_digest, digests)) or not all(0 <= one.size <= MAX_BYTES for one in exchange.cached):
        raise BadInput("that is no file of a cache", code="bad_digest", field="cached")


def _check_files(answers: Sequence[FileAnswer]) -> None:
    if len(answers) > MAX_FILE_ANSWERS:
        raise BadInput("too many answers about files", code="range", field="files", hint=f"at most {MAX_FILE_ANSWERS}")
    for one in answers:
        texts = (one.request, one.code, one.error, one.directory, *(entry.name for entry in one.entries))
        if len(one.data) > 4 * MAX_PEEK // 3 + 4 or len(one.entries) > MAX_ENTRIES or max(map(len, texts)) > MAX_LINE:
            raise BadInput("an answer about files is out of bounds", code="range", field="files")


def _check_sealed(sealed: Sequence[Sealed]) -> None:
    size = sum(len(one.body) for one in sealed)
    if len(sealed) > MAX_SEALED_REPORTS or size > MAX_SEALED_BYTES:
        hint = f"at most {MAX_SEALED_REPORTS} copies of {MAX_SEALED_BYTES} bytes in all"
        raise BadInput("too many copies of reports at once", code="range", field="sealed", hint=hint)
    if any(len(one.pilot) > MAX_NAME or len(one.seal) > MAX_NAME for one in sealed):
        raise BadInput("that is no copy of reports", code="range", field="sealed")
