"""Checks on this machine before anything is sent: files, directories and programs exist [input E44, E45]."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator

from shoal.cli.tasks.submission import Draft
from shoal.client.config import echo_path
from shoal.client.element_files import is_compared, texts_with_files, texts_written
from shoal.client.file_states import FileStates, parts_of
from shoal.client.visible_files import Presence
from shoal.client.working_directory import check_directory
from shoal.flow.file_edges import is_workflow
from shoal.model.errors import BadInput, Refused, ShoalError, echo
from shoal.model.limits import MAX_FINGERPRINTS, MAX_NAME
from shoal.model.task.kept_files import is_written
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import fill, holes
from shoal.model.task.url_input import is_url

MAX_CHECKED = 2_000  # names looked up per spec and field; others are checked when their task is prepared


Place = Callable[[ShoalError, int], ShoalError]  # an error with the place of the table of this number


def check_here(draft: Draft, far: bool = False, place: Place | None = None) -> None:
    """Refuse a missing directory, file or program. `far`: tasks run on other hosts, whose programs are not known here."""
    checked: set[tuple[str | None, ...]] = set()
    for number, spec in enumerate(draft.submission.specs):
        try:
            _check_spec(draft, spec, far, checked)
        except ShoalError as error:
            if place is None:
                raise
            raise place(error, number) from None


def _check_spec(draft: Draft, spec: Spec, far: bool, checked: set[tuple[str | None, ...]]) -> None:
    base = directory_of(draft, spec)
    if base is not None and (base,) not in checked:
        check_directory(base)
        checked.add((base,))
    waits = bool(spec.after or spec.after_any)  # then what it waits for may write what it reads
    for field, name in named_files(spec) if not waits else ():
        _check_file(field, os.path.join(base or draft.submission.cwd, name), name)
    for field, pattern in (("stdout", spec.stdout), ("stderr", spec.stderr)):
        for name in _each(spec, pattern) if pattern else ():
            _check_writable(field, os.path.join(draft.submission.cwd, name), name)
    program = (base, spec.command[0] if spec.command else None, spec.env.get("PATH"), "may be made" if waits else "")
    if not far and (program not in checked or spec.sweep is not None):
        _check_program(spec, base)
        checked.add(program)


def awaited_files(draft: Draft) -> list[tuple[str, str]]:
    """Inputs that are not there, of tasks that wait for others, and that no table says it writes: each with its table's name.
    Whoever runs before may write them all the same."""
    written = {
        os.path.normpath(name)
        for spec in draft.submission.specs
        for pattern in (*spec.outputs, spec.stdout or "", spec.stderr or "")
        for name in (_each(spec, pattern) if pattern else ())
    }
    found: list[tuple[str, str]] = []
    present, here = Presence(), draft.submission.cwd
    for spec in draft.submission.specs:
        base = directory_of(draft, spec) or here
        for _, name in named_files(spec) if spec.after or spec.after_any else ():
            seen = os.path.relpath(os.path.join(base, name), here)
            if not present.has_in(base, name) and not is_written(seen, written):
                found.append((spec.name, name))
    return found


def directory_of(draft: Draft, spec: Spec) -> str | None:
    """The directory of a spec's tasks; None for a directory of their own or one per element."""
    if spec.cwd == OWN:
        return None
    if spec.cwd is None:
        return draft.submission.cwd
    if spec.sweep is not None and holes(spec.cwd):
        return None
    return os.path.join(draft.submission.cwd, _plain(spec, spec.cwd))


def named_files(spec: Spec) -> Iterator[tuple[str, str]]:
    """The files a spec reads, by field, placeholders filled."""
    for name in spec.inputs:
        for filled in _each(spec, name):
            if not is_url(filled):
                yield "inputs", filled
    if spec.stdin is not None:
        for filled in _each(spec, spec.stdin):
            yield "stdin", filled


def _each(spec: Spec, text: str) -> Iterator[str]:
    if spec.sweep is None or not holes(text):
        yield _plain(spec, text)
        return
    if spec.units is not None:
        return  # which files pieces read is known when they are cut
    seen: set[str] = set()
    for k in range(min(spec.sweep.count, MAX_CHECKED)):
        filled = fill(text, spec.sweep.at(k))
        if filled not in seen:
            seen.add(filled)
            yield filled


def _plain(spec: Spec, text: str) -> str:
    return fill(text, {}) if spec.sweep is not None else text


def _check_file(field: str, path: str, name: str) -> None:
    if field == "stdin" and path == os.devnull:
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        raise BadInput(
            f"there is no file '{echo_path(name)}'", code="no_such_file", field=field, hint="name an existing file"
        ) from None
    if field == "inputs" and stat.S_ISDIR(mode) and os.access(path, os.R_OK | os.X_OK):
        return
    if not stat.S_ISREG(mode) or not os.access(path, os.R_OK):
        raise BadInput(
            f"'{echo_path(name)}' is not a regular file that can be read", code="not_regular_file", field=field,
            hint="name a plain file" if field == "stdin" else "name a plain file or a directory",
        )  # fmt: skip


def _check_writable(field: str, path: str, name: str) -> None:
    """Refuse a file for a stream that cannot be written; folders that are missing will be made."""
    if os.path.isdir(path):
        wrong = f"'{echo_path(name)}' is a directory"
    else:
        found = path
        while not os.path.exists(found):
            found = os.path.dirname(found)
        if found == path and os.access(path, os.W_OK):
            return
        if found != path and os.path.isdir(found) and os.access(found, os.W_OK | os.X_OK):
            return
        wrong = f"'{echo_path(name)}' cannot be written"
        wrong += (
            "" if found == path else f": {echo_path(found)} is {'closed to you' if os.path.isdir(found) else 'a file'}"
        )
    raise BadInput(wrong, code="bad_path_value", field=field, hint="name a file that you can write")


def _check_program(spec: Spec, base: str | None) -> None:
    """Refuse a program that does not exist: otherwise it fails a whole sweep task by task."""
    if (spec.after or spec.after_any) and spec.command and "/" in spec.command[0]:
        return  # what it waits for may make it
    if not spec.command or (spec.sweep is not None and holes(spec.command[0])):
        return
    program = _plain(spec, spec.command[0])
    if "/" not in program:
        path = spec.env.get("PATH", os.environ.get("PATH", os.defpath))
        if shutil.which(program, path=path) is None and not holes(path):
            here = base is not None and os.path.isfile(os.path.join(base, program))
            fix = f"write ./{program} for the file in this directory" if here else "check the spelling and $PATH"
            what = f"there is no program {echo(program)!r} on this machine"
            raise Refused(what, code="no_such_program", field="command", hint=fix)
        return
    if base is None and not program.startswith("/"):
        return
    path = os.path.join(base or "/", program)
    if not os.path.isfile(path):
        raise Refused(
            f"there is no program {echo(program)!r}", code="no_such_program", field="command",
            hint=f"it is looked for from {base}" if not program.startswith("/") else "check the path",
        )  # fmt: skip
    if not os.access(path, os.X_OK):
        raise Refused(
            f"{echo(program)} cannot be executed", code="not_executable", field="command",
            hint=f"chmod +x {echo(program)}, or name its interpreter before it",
        )  # fmt: skip


def fingerprints(draft: Draft) -> dict[str, str]:
    """The state of every file that all tasks name: `--resume` takes over no result of a run that saw another.

    Names with placeholders are compared task by task (`client/element_files.py`), and so is everything in a workflow; of a
    sweep that is too large for it, the parameters that are files are here, all together.
    """
    found: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    states, written, present = FileStates(draft.submission), texts_written(draft.submission), Presence()
    by_task = is_workflow(draft.submission.specs)
    for spec in draft.submission.specs:
        if by_task and (spec.sweep is None or is_compared(spec)):
            continue
        base = directory_of(draft, spec) or draft.submission.cwd
        words = [part for word in spec.command for part in (word, *parts_of(word))]
        arguments = [_plain(spec, text) for text in words if spec.sweep is None or not holes(text)]
        named = [text for text in arguments if text not in spec.outputs]
        inputs = {_plain(spec, text) for text in spec.inputs if spec.sweep is None or not holes(text)}
        if is_compared(spec):
            named += [*inputs, *([_plain(spec, spec.stdin)] if spec.stdin and not holes(spec.stdin) else [])]
        else:
            named += [name for _, name in named_files(spec)]
            inputs |= {name for field, name in named_files(spec) if field == "inputs"}
            inputs |= {text for text in spec.inputs if is_url(text)}
            used = {name for text in texts_with_files(written, spec) for name in holes(text)}
            named += [value for name in sorted(used) for value in (spec.sweep.values(name) if spec.sweep else ())]
        for name in dict.fromkeys([*named, spec.container or ""]):
            path = os.path.join(base, name)
            if (path not in found or name in inputs) and present.has_in(base, name):
                found |= {path: text} if (text := states.of(path, name in inputs)) else {}
        for url in filter(is_url, inputs):
            elsewhere |= {f"{url} may have": text} if (text := states.of_url(url)) else {}
        if arguments and spec.command and not (spec.sweep is not None and holes(spec.command[0])):
            text = states.of_program(arguments[0], spec)
            elsewhere |= {f"the program {arguments[0]}": text} if text else {}
    shown = elsewhere | {os.path.relpath(path, draft.submission.cwd): text for path, text in found.items()}
    if len(shown) <= MAX_FINGERPRINTS and all(len(os.fsencode(name)) <= MAX_NAME for name in shown):
        return shown
    together = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
    return {f"one of {len(shown):,} files": together}
