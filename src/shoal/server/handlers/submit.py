"""Accepting a submission: idempotency keys, blobs, and the submitter's environment."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from shoal.engine.commands import Submit
from shoal.engine.tasks.runs import again
from shoal.model.errors import BadInput, Refused, echo
from shoal.model.ids import parse_run, run_text
from shoal.model.layout import LOGS, environment_name
from shoal.model.limits import MAX_ENV_BYTES, MAX_ENV_ITEMS
from shoal.model.spec import Submission
from shoal.server.handlers.check_expressions import check_expressions, check_fits, rank_warnings, tag_warnings
from shoal.server.handlers.resume import Reused, find_earlier, read_fingerprints, sign
from shoal.server.service import Service
from shoal.wire.submission import canonical, parse_submission

_ENV_FILE = re.compile(r"/[^\0\n]{0,4000}/[0-9a-f]{64}\.json")


class SubmissionRequest(NamedTuple):
    """The body of a submission, parsed and checked."""

    submission: Submission
    digest: str
    signature: str
    env_file: str
    environment: dict[str, str] | None
    resume: bool
    strict: bool


def read_submission(body: Mapping[str, Any]) -> SubmissionRequest:
    """Parse and check a body. Pure: a large one is parsed on another thread."""
    fields = dict(body)
    env_file = _env_file(fields.pop("environment_file", None), fields)
    environment, fingerprints = _environment(fields.pop("environment", None)), fields.pop("fingerprints", None)
    resume, strict = _flag(fields.pop("resume", False), "resume"), _flag(fields.pop("strict", False), "strict")
    submission = parse_submission(fields)
    digest = hashlib.sha256(canonical(fields).encode()).hexdigest()
    signature = sign(submission, read_fingerprints(fingerprints))
    return SubmissionRequest(submission, digest, signature, env_file, environment, resume, strict)


async def submit(
    service: Service,
    owner: str,
    request: SubmissionRequest,
    claim: Callable[[str, int, list[str]], None],
    size: int = 0,
) -> dict[str, Any]:
    """Accept a run of an owner, sent as `size` bytes; answered after the commit."""
    submission, digest, signature, env_file, environment, resume, strict = request
    warnings = look_at(service, owner, submission, strict)
    check_space(service, size)
    claimed = blobs_of(submission)
    if claimed:
        claim(owner, 0, claimed)
    reused: Reused = ()
    reruns: list[dict[str, Any]] = []
    if resume:
        reused, reruns = await service.look(lambda reader: find_earlier(reader, owner, submission, signature))
    # From here to the engine nothing is awaited: a key is either in the database or in the engine's memory.
    if submission.key:
        found = service.reader.find_key(owner, submission.key)
        if found is not None:
            total = (service.reader.run(found["run"]) or {"total": 0})["total"]
            return {**again(found["run"], total, found["digest"], digest), "reruns": [], "warnings": warnings}
    if not submission.key or (owner, submission.key) not in service.engine.state.keys:
        try:
            _keep(service.state_dir / environment_name(service.engine.state.next_run), environment)
            _set_aside_logs(service.state_dir / LOGS, run_text(service.engine.state.next_run))
        except OSError as error:
            hint = "free some space: accepted work goes on meanwhile"
            raise Refused(f"the disk is full, or nearly: {error.strerror}", code="disk_full", hint=hint) from None
    if claimed and not (submission.key and (owner, submission.key) in service.engine.state.keys):
        claim(owner, service.engine.state.next_run, claimed)  # written before the run is
    if submission.open:
        service.results.follow(service.engine.state.next_run, service.engine.state.next_seq - 1)
    answer = await service.command(
        Submit(submission, owner, digest, signature, reused, env_file),
        lambda result: service.accept(parse_run(result["run"])),
    )
    return {**answer, "reruns": reruns, "warnings": warnings}


def look_at(service: Service, owner: str, submission: Submission, strict: bool = False) -> list[str]:
    """Refuse expressions that cannot be parsed, and with `strict` tasks that fit nowhere; returns warnings about others."""
    check_expressions(submission.specs)
    state = service.engine.state
    warnings = tag_warnings(state, owner, submission.specs) + rank_warnings(state, owner, submission.specs)
    return warnings + check_fits(state, owner, submission.specs) if strict else warnings


def check_space(service: Service, wanted: int = 0) -> None:
    """Refuse new work while accepted work cannot be written, or if it would fill the disk."""
    trouble = service.writer.trouble
    if not trouble and not service.reserve.has_space(2 * wanted):  # once in the log, once in the database
        trouble = service.reserve.trouble()
    if trouble:
        raise Refused(trouble, code="disk_full", hint="free some space: accepted work goes on meanwhile")


def blobs_of(submission: Submission) -> list[str]:
    """The blobs that a submission names."""
    found: dict[str, None] = {}
    for spec in submission.specs:
        for text in (spec.function, spec.initializer, *spec.calls):
            if text.startswith("sha256:"):
                found[text] = None
    return list(found)


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput("expected true or false", code="wrong_type", field=field)
    return value


def _env_file(value: Any, fields: Mapping[str, Any]) -> str:
    """The file in which the submitter keeps the environment: named by its digest, so that no other file can replace it."""
    if value is None:
        return ""
    if not isinstance(value, str) or not _ENV_FILE.fullmatch(value) or "/../" in value or "environment" in fields:
        raise BadInput(
            "expected an absolute path that ends with SHA256.json, without environment", code="bad_path_value",
            field="environment_file", hint="leave both out for tasks that need neither",
        )  # fmt: skip
    return value


def _environment(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MAX_ENV_ITEMS:
        raise BadInput(f"expected at most {MAX_ENV_ITEMS} names with texts", code="wrong_type", field="environment")
    for name, text in value.items():
        if not isinstance(text, str) or "\0" in text or "\0" in name or "=" in name or not name:
            raise BadInput(f"{echo(name)!r} is not a variable", code="bad_env_name", field="environment")
    if sum(len(k) + len(v) for k, v in value.items()) > MAX_ENV_BYTES:
        raise BadInput(f"longer than {MAX_ENV_BYTES} bytes", code="too_long", field="environment")
    return {name: text for name, text in value.items() if not name.startswith("SHOAL_")}


def _set_aside_logs(folder: Path, run: str) -> None:
    """Rename logs that lie under the number of a new run: they belong to a history that was lost, and are kept until the
    logs need their space."""
    if (folder / run).is_dir():
        number = next(n for n in count(1) if not (folder / f"{run}.lost-{n}").exists())
        (folder / run).rename(folder / f"{run}.lost-{number}")


def _keep(path: Path, environment: dict[str, str] | None) -> None:
    """Write the environment durably where only its owner reads it, for a pilot of the same account.

    A file that is already there belongs to a submission that a crash undid, whose number this one gets.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    if environment is None:
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(environment, file)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the name, too, must survive a power cut
    finally:
        os.close(folder)
