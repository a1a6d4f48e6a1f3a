"""Accepting a submission: idempotency keys, blobs, and the submitter's environment."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from shoal.engine.commands import Submit
from shoal.engine.tasks.runs import again
from shoal.model.errors import BadInput, Refused, echo
from shoal.model.file_names import LOGS, environment_name
from shoal.model.ids import TaskId, parse_run, run_text
from shoal.model.limits import MAX_ENV_BYTES, MAX_ENV_ITEMS
from shoal.model.task.content import parse_content
from shoal.model.task.spec import Submission
from shoal.sched.partial.goal import check as check_partial
from shoal.server.hooks.notify import check_target
from shoal.server.private_files import write_private
from shoal.server.service import Service
from shoal.server.submission.check_expressions import (
    check_expressions,
    check_fits,
    rank_warnings,
    tag_warnings,
    visible_warnings,
)
from shoal.server.submission.check_outputs import output_warnings
from shoal.server.submission.dependencies import outcomes_of, targets_of
from shoal.server.submission.resume import (
    Renamed,
    Reused,
    Written,
    find_earlier,
    read_fingerprints,
    read_renamed,
    read_written,
    sign,
)
from shoal.wire.submission import canonical, parse_submission

Claim = Callable[[str, int, list[str]], None]  # holds blobs of an owner for a run

MAX_ORIGINS = 100  # results taken over that an answer names
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
    dry_run: bool
    written: Written = ()
    renamed: Renamed = ()


def read_submission(body: Mapping[str, Any]) -> SubmissionRequest:
    """Parse and check a body. Pure: a large one is parsed on another thread."""
    fields = dict(body)
    env_file = _env_file(fields.pop("environment_file", None), fields)
    environment, fingerprints = _environment(fields.pop("environment", None)), fields.pop("fingerprints", None)
    resume, strict, dry_run = (_flag(fields.pop(name, False), name) for name in ("resume", "strict", "dry_run"))
    submission = parse_submission(fields)
    # How files looked when they were submitted is no part of the work: the same work has the same key later, too.
    same = dict(fields)
    for name in ("tasks", "rules"):
        if name in fields:
            same[name] = [{k: v for k, v in table.items() if k != "visible"} for table in fields[name]]
    digest = hashlib.sha256(canonical(same).encode()).hexdigest()
    signature = sign(submission, read_fingerprints(fingerprints))
    written, renamed = read_written(fingerprints), read_renamed(fingerprints)
    if resume and submission.rules:
        hint = "leave out --resume; `shoal retry` goes on with a run that failed"
        raise BadInput("a run with rules takes over nothing of an earlier one", code="usage", field="rules", hint=hint)
    return SubmissionRequest(
        submission, digest, signature, env_file, environment, resume, strict, dry_run, written, renamed
    )


async def submit(
    service: Service, owner: str, request: SubmissionRequest, claim: Claim, size: int = 0
) -> dict[str, Any]:
    """Accept a run of an owner, sent as so many bytes; returns after the commit."""
    submission, digest, signature, env_file, environment, resume, strict, dry_run, written, renamed = request
    warnings = check_submission(service, owner, submission, strict)
    reused: Reused = ()
    reruns: list[dict[str, Any]] = []
    dates = {"written": written, "renamed": renamed}
    plan = {"accept": submission.plan, "resume": resume, **dates} if submission.plan is not None else None
    if resume and (plan is None or dry_run):
        asked = submission
        submission, reused, reruns = await service.query(
            lambda reader: find_earlier(reader, owner, asked, signature, written, renamed)
        )
    if dry_run:
        would = {
            "run": "",
            "tasks": submission.count,
            "reused": len(reused),
            "again": False,
            "reuses": _origins(reused),
        }
        outlook = await _outlook(service, owner, submission)
        return {**would, "reruns": reruns, "warnings": warnings, "outlook": outlook}
    check_space(service, size)
    blobs = blobs_of(submission)
    if blobs:
        claim(owner, 0, blobs)
    outcomes = await outcomes_of(service, targets_of(submission.specs))
    # From here to the command nothing is awaited: a key is either in the database or in the engine's memory.
    if submission.key:
        found = service.reader.find_key(owner, submission.key)
        if found is not None:
            row = service.reader.run_row(found.run)
            total = row.total if row is not None else 0
            return {
                **again(found.run, total, found.digest, digest),
                "reuses": [],
                "reruns": [],
                "warnings": warnings,
                "outlook": None,
            }
    state = service.engine.state
    is_new = not submission.key or (owner, submission.key) not in state.keys
    if is_new:
        try:
            _keep(service.state_dir / environment_name(state.next_run), environment)
            _set_aside_logs(service.state_dir / LOGS, run_text(state.next_run))
        except OSError as error:
            hint = "free some space: accepted work goes on meanwhile"
            raise Refused(f"the disk is full, or nearly: {error.strerror}", code="disk_full", hint=hint) from None
    if blobs and is_new:
        claim(owner, state.next_run, blobs)  # written before the run is
    if submission.open:
        service.results.follow(state.next_run, state.next_seq - 1)
    answer = await service.command(
        Submit(submission, owner, digest, signature, reused, env_file, outcomes, plan),
        lambda result: service.accept(parse_run(result["run"]), 1, result["tasks"]),
    )
    return {**answer, "reuses": _origins(reused), "reruns": reruns, "warnings": warnings, "outlook": None}


async def _outlook(service: Service, owner: str, submission: Submission) -> dict[str, Any] | None:
    """What is known of a run before it starts, by its largest table: the slots for such tasks, and runs of the same command."""
    spec = max(submission.specs, key=lambda spec: spec.count, default=None)
    if spec is None:
        return None
    slots = service.engine.slots_for(owner, spec.needs)
    alike = (
        await service.query(lambda reader: reader.alike(owner, spec.command, spec.shell)) if not spec.function else []
    )
    return {"slots": slots, "alike": [run_text(run) for run in alike]}


def _origins(reused: Reused) -> list[dict[str, Any]]:
    """The first elements whose results are taken over, and the tasks that they are of."""
    return [
        {"element": element, "task": row.reused or str(TaskId(row.run, row.element))}
        for element, row in reused[:MAX_ORIGINS]
    ]


def check_submission(service: Service, owner: str, submission: Submission, strict: bool = False) -> list[str]:
    """Refuse wrong expressions, and with `strict` tasks that no pilot could run; returns warnings."""
    check_expressions(submission.checked)
    check_partial(submission.reduce, submission.until)
    state = service.engine.state
    for target in submission.notify:
        check_target(target, service.mode, state.accounting.policy.notify.hosts)
    warnings = tag_warnings(state, owner, submission.checked) + rank_warnings(state, owner, submission.checked)
    warnings += visible_warnings(state, owner, submission.checked) + output_warnings(submission.checked)
    return warnings + check_fits(state, owner, submission.checked) if strict else warnings


def check_space(service: Service, wanted: int = 0) -> None:
    """Refuse new work while accepted work cannot be written, and work that would fill the disk."""
    if service.writer.trouble:
        service.writer.watch()  # there may be space again since it looked last
    trouble = service.writer.trouble
    if not trouble and not service.reserve.has_space(2 * wanted):  # once in the log, once in the database
        trouble = service.reserve.trouble()
    if trouble:
        raise Refused(trouble, code="disk_full", hint="free some space: what runs goes on meanwhile")


def blobs_of(submission: Submission) -> list[str]:
    """The blobs that a submission names."""
    texts = (
        text
        for spec in submission.specs
        for text in (spec.function, spec.initializer, spec.finalizer, spec.modules, spec.stdin_data, *spec.calls)
    )
    contents = (parse_content(text) for spec in submission.specs for text in spec.content.values())
    digests = (content.digest for content in contents if not content.is_directory)
    return list(dict.fromkeys([*(text for text in texts if text.startswith("sha256:")), *digests]))


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
    """Rename logs that lie under the number of a new run: they belong to a database that was replaced. They are kept
    until the logs need their space."""
    if (folder / run).is_dir():
        number = next(n for n in count(1) if not (folder / f"{run}.lost-{n}").exists())
        (folder / run).rename(folder / f"{run}.lost-{number}")


def _keep(path: Path, environment: dict[str, str] | None) -> None:
    """Write the environment durably to a file that only its owner reads: a pilot reads it without asking the server.

    A file that is there belongs to a submission that a crash undid, whose number the new run has.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    if environment is None:
        return
    write_private(path, json.dumps(environment).encode())
