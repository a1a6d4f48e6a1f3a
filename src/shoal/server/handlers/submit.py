"""Submission of runs: idempotency keys, the submitter's environment, and results that `--resume` uses again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from shoal.db.reader import Reader
from shoal.engine.changes import TaskRow
from shoal.engine.commands import Submit
from shoal.engine.tasks.runs import again
from shoal.model.errors import BadInput, Refused, echo
from shoal.model.ids import parse_run, run_text
from shoal.model.layout import LOGS, environment_name
from shoal.model.limits import MAX_ENV_BYTES, MAX_ENV_ITEMS
from shoal.model.spec import Spec, Submission
from shoal.model.states import TaskState
from shoal.server.handlers.check_expressions import check_expressions, check_fits, rank_warnings, tag_warnings
from shoal.server.private_files import write_private
from shoal.server.service import Service
from shoal.wire.submission import canonical, parse_submission
from shoal.wire.task import parse_spec

_ENV_FILE = re.compile(r"/[^\0\n]{0,4000}/[0-9a-f]{64}\.json")
Reused = tuple[tuple[int, TaskRow], ...]
Claim = Callable[[str, int, list[str]], None]  # holds blobs of an owner for a run


class ResumeRequest(NamedTuple):
    """What `--resume` asks for: results of earlier runs that are not older than the newest input."""

    newest: float | None  # when an input was changed last
    file: str  # which one it was


class SubmissionRequest(NamedTuple):
    """The body of a submission, parsed and checked."""

    submission: Submission
    digest: str
    signature: str
    env_file: str
    environment: dict[str, str] | None
    resume: ResumeRequest | None
    strict: bool


def read_submission(body: Mapping[str, Any]) -> SubmissionRequest:
    """Parse a body. Pure, because a large one is parsed on another thread."""
    rest = dict(body)
    env_file = _env_file(rest.pop("environment_file", None), rest)
    environment, resume = _environment(rest.pop("environment", None)), _resume(rest.pop("resume", None))
    strict = rest.pop("strict", False)
    if not isinstance(strict, bool):
        raise BadInput("expected true or false", code="wrong_type", field="strict")
    submission = parse_submission(rest)
    digest = hashlib.sha256(canonical(rest).encode()).hexdigest()
    return SubmissionRequest(submission, digest, sign(submission), env_file, environment, resume, strict)


async def submit(
    service: Service, owner: str, request: SubmissionRequest, claim: Claim, size: int = 0
) -> dict[str, Any]:
    """Accept a run of an owner, sent as so many bytes; returns after the commit."""
    submission, digest, signature, env_file, environment, resume, strict = request
    warnings = check_submission(service, owner, submission, strict)
    check_space(service, size)
    blobs = blobs_of(submission)
    if blobs:
        claim(owner, 0, blobs)
    reused: Reused = ()
    reruns: list[dict[str, Any]] = []
    if resume is not None:
        reused, reruns = await service.query(lambda reader: earlier(reader, owner, submission, signature, resume))
    # From here to the command nothing is awaited: a key is either in the database or in the engine's memory.
    if submission.key:
        found = service.reader.find_key(owner, submission.key)
        if found is not None:
            row = service.reader.run_row(found.run)
            total = row.total if row is not None else 0
            return {**again(found.run, total, found.digest, digest), "reruns": [], "warnings": warnings}
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
        Submit(submission, owner, digest, signature, reused, env_file),
        lambda result: service.accept(parse_run(result["run"])),
    )
    return {**answer, "reruns": reruns, "warnings": warnings}


def check_submission(service: Service, owner: str, submission: Submission, strict: bool = False) -> list[str]:
    """Refuse wrong expressions, and with `strict` tasks that no pilot could run; returns warnings."""
    check_expressions(submission.specs)
    state = service.engine.state
    warnings = tag_warnings(state, owner, submission.specs) + rank_warnings(state, owner, submission.specs)
    return warnings + check_fits(state, owner, submission.specs) if strict else warnings


def check_space(service: Service, wanted: int = 0) -> None:
    """Refuse new work while accepted work cannot be written, and work that would fill the disk."""
    trouble = service.writer.trouble
    if not trouble and not service.reserve.has_space(2 * wanted):  # once in the log, once in the database
        trouble = service.reserve.trouble()
    if trouble:
        raise Refused(trouble, code="disk_full", hint="free some space: accepted work goes on meanwhile")


def blobs_of(submission: Submission) -> list[str]:
    """The blobs that a submission names."""
    texts = (text for spec in submission.specs for text in (spec.function, spec.initializer, *spec.calls))
    return list(dict.fromkeys(text for text in texts if text.startswith("sha256:")))


def _env_file(value: Any, body: Mapping[str, Any]) -> str:
    """The file in which the submitter keeps the environment: named by the digest of its content, so it cannot change."""
    if value is None:
        return ""
    if not isinstance(value, str) or not _ENV_FILE.fullmatch(value) or "/../" in value or "environment" in body:
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


def _resume(value: Any) -> ResumeRequest | None:
    if value is None:
        return None
    good = isinstance(value, dict) and set(value) <= {"newest", "file"}
    newest = value.get("newest") if good else None
    if not good or (newest is not None and (not isinstance(newest, (int, float)) or isinstance(newest, bool))):
        raise BadInput("expected newest (seconds) and file", code="wrong_type", field="resume")
    return ResumeRequest(newest, str(value.get("file") or "")[:4096])


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


def sign(submission: Submission) -> str:
    """The signature by which `--resume` finds runs that differ in their parameters only."""
    parts = [
        [list(s.command), s.shell, s.cwd, s.env, s.stdin, list(s.inputs), list(s.outputs)] for s in submission.specs
    ]
    return hashlib.sha256(canonical([submission.cwd, parts]).encode()).hexdigest()


def earlier(
    reader: Reader, owner: str, submission: Submission, signature: str, resume: ResumeRequest
) -> tuple[Reused, list[dict[str, Any]]]:
    """Results of earlier runs for elements of this one, and why the other elements run (again)."""
    good: dict[str, TaskRow] = {}
    bad: dict[str, str] = {}
    for run in reader.earlier(owner, signature):
        arrays = _arrays(reader, run)
        for row in reader.task_rows(run, [TaskState.SUCCEEDED]):
            good.setdefault(_element_key(arrays, row.element), row)
        for row in reader.task_rows(run, [TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST]):
            bad.setdefault(_element_key(arrays, row.element), f"{row.state} in {run_text(run)}")
    newest, changed = resume.newest, f"{resume.file or 'an input'} changed since they ran"
    reused: list[tuple[int, TaskRow]] = []
    why: dict[str, int] = {}
    first = 1
    ran = {json.loads(key)[0] for key in (*good, *bad)}
    for position, spec in enumerate(submission.specs):
        if position not in ran:  # ten million elements need not be looked up one by one to find none
            why["not run before"] = why.get("not run before", 0) + spec.count
            first += spec.count
            continue
        for offset in range(spec.count):
            key = _key(position, spec, offset)
            found = good.get(key)
            if found is not None and (newest is None or (found.started or found.ended or 0.0) >= newest):
                reused.append((first + offset, found))
            else:
                reason = changed if found is not None else bad.get(key, "not run before")
                why[reason] = why.get(reason, 0) + 1
        first += spec.count
    return tuple(reused), [{"count": n, "why": reason} for reason, n in why.items()]


def _arrays(reader: Reader, run: int) -> list[tuple[int, int, Spec]]:
    found = reader.run(run)
    rows = found["arrays"] if found is not None else []
    return [(row["first"], position, parse_spec(row["task"])) for position, row in enumerate(rows)]


def _element_key(arrays: list[tuple[int, int, Spec]], element: int) -> str:
    first, position, spec = max((a for a in arrays if a[0] <= element), key=lambda a: a[0])
    return _key(position, spec, element - first)


def _key(position: int, spec: Spec, offset: int) -> str:
    return canonical([position, spec.sweep.at(offset) if spec.sweep is not None else {}])
