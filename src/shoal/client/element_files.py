"""How the files of each task of a sweep look when it is submitted: what `--resume` compares task by task.

A run of one task has its files in `cli/tasks/preflight.py`; here are those whose names hold parameters, those that
tasks write, and of a workflow all that each of its tasks reads and none of them writes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from shoal.client.file_states import FileStates, parts_of
from shoal.client.visible_files import Presence
from shoal.flow.file_edges import is_workflow, passed_on
from shoal.model.limits import FINGERPRINT_WIDTH, MAX_COMPARED
from shoal.model.task.spec import OWN, Spec, Submission
from shoal.model.task.sweep import Value, fill, holes
from shoal.model.task.url_input import is_url

ABSENT = "-" * FINGERPRINT_WIDTH
NOT_LOOKED_AT, GONE = 0.0, -1.0
_MAX_PATH = 4096
_AT_ONCE = 0.05  # s: a file may be closed, and get its mode, so long after it was written last


def is_compared(spec: Spec) -> bool:
    """True for a sweep whose tasks are compared one by one, and not only as a whole."""
    return spec.sweep is not None and spec.units is None and 1 <= spec.sweep.count <= MAX_COMPARED


def texts_written(submission: Submission) -> frozenset[str]:
    """The names, as they were given, of what the tasks of a submission write."""
    return frozenset(text for one in submission.specs for text in (*one.outputs, one.stdout, one.stderr) if text)


def texts_with_files(written: frozenset[str], spec: Spec) -> list[str]:
    """The texts of a sweep that may name a file it reads once they are filled; what its run writes is none."""
    if spec.sweep is None:
        return []
    words = [part for word in spec.command for part in (word, *parts_of(word))]
    named = [text for text in (*words, *spec.inputs, spec.stdin or "") if holes(text) and text not in written]
    values = [f"{{{name}}}" for text in (*named, spec.shell or "", *spec.setup) for name in holes(text)]
    return list(dict.fromkeys([*named, *values]))


class ElementFiles:
    """The files of one submission, each looked at once."""

    def __init__(self, submission: Submission) -> None:
        self._submission, self._written = submission, texts_written(submission)
        self._is_workflow = is_workflow(submission.specs)
        self._passed = passed_on(submission.specs) if self._is_workflow else frozenset()
        self._seen: dict[tuple[str, bool], str] = {}
        self._present = Presence()
        self._states = FileStates(submission)

    def read(self) -> list[str]:
        """For each spec the files that its tasks read: so many characters for each task and text; empty if there are none."""
        found = []
        for spec in self._submission.specs:
            texts = self._texts(spec)
            states = [state for params in _elements(spec) for state in self._of(spec, texts, params)] if texts else []
            found.append("" if all(state == ABSENT for state in states) else "".join(states))
        return found

    def _texts(self, spec: Spec) -> list[str]:
        """The texts of a table that may name a file that its tasks read."""
        texts = texts_with_files(self._written, spec) if is_compared(spec) else []
        if self._is_workflow and (spec.sweep is None or is_compared(spec)) and not spec.function:
            words = [part for word in spec.command for part in (word, *parts_of(word))]
            plain = [text for text in (*words, *spec.inputs, spec.stdin or "") if text]
            texts = list(dict.fromkeys([*texts, *(one for one in plain if spec.sweep is None or not holes(one))]))
        return texts

    def written(self, is_far: bool) -> list[list[float]]:
        """For each spec and task the date of the newest file that it alone writes, or that one is gone.

        `is_far`: the tasks may have run where files are not seen from here; then they say something only if some are seen.
        """
        found = []
        for spec in self._submission.specs:
            here = spec.outputs if len(spec.store) < len(spec.outputs) else ()
            has_any = (here or spec.stdout or spec.stderr) and (spec.sweep is None or is_compared(spec))
            dates = [self._date(spec, params) for params in _elements(spec)] if has_any and not spec.function else []
            is_seen = not is_far or any(date != GONE for date in dates)
            found.append(dates if is_seen else [])
        return found

    def renamed(self) -> list[list[list[float]]]:
        """For each spec and task two dates of each file that it alone writes whose inode was changed after its content: those of
        its content and of its inode. `--resume` sees by them that a file was replaced by an older one."""
        found = []
        for spec in self._submission.specs:
            has_any = (spec.outputs or spec.stdout or spec.stderr) and (spec.sweep is None or is_compared(spec))
            pairs = [self._pairs(spec, params) for params in _elements(spec)] if has_any and not spec.function else []
            found.append(pairs if any(pairs) else [])
        return found

    def _of(self, spec: Spec, texts: list[str], params: dict[str, Value]) -> list[str]:
        base = self._base(spec, params)
        own = {_filled(spec, text, params) for text in (*spec.outputs, spec.stdout, spec.stderr) if text}
        inputs = {_filled(spec, text, params) for text in spec.inputs}
        program = _filled(spec, spec.command[0], params) if spec.command else ""
        found = []
        for name in [_filled(spec, text, params) for text in texts]:
            if name == program and "/" not in name:
                found.append(self._program(name, spec))
            elif name in own or self._is_passed(base, name):
                found.append(ABSENT)
            else:
                found.append(self._state(base, name, name in inputs))
        return found

    def _program(self, name: str, spec: Spec) -> str:
        key = f"{spec.env.get('PATH', '')}\0{name}", False
        if key not in self._seen:
            self._seen[key] = _shortened(self._states.of_program(name, spec))
        return self._seen[key]

    def _is_passed(self, base: str, name: str) -> bool:
        """True for a file that a task of the run writes: who reads it runs again if its writer does."""
        return bool(self._passed) and os.path.relpath(os.path.join(base, name), self._submission.cwd) in self._passed

    def _state(self, base: str, name: str, is_input: bool) -> str:
        if not name or len(name) > _MAX_PATH or "\0" in name:
            return ABSENT
        key = os.path.join(base, name), is_input
        if key not in self._seen:
            text = ""
            if is_input and is_url(name):
                text = self._states.of_url(name)
            elif not self._is_workflow or self._present.has_in(base, name):
                text = self._states.of(*key)
            self._seen[key] = _shortened(text)
        return self._seen[key]

    def _base(self, spec: Spec, params: dict[str, Value]) -> str:
        """The directory from which a task names its files."""
        inside = "" if spec.cwd in (None, OWN) else fill(spec.cwd or "", params) if spec.sweep is not None else spec.cwd
        return os.path.join(self._submission.cwd, inside or "")

    def _date(self, spec: Spec, params: dict[str, Value]) -> float:
        newest = NOT_LOOKED_AT
        for path, is_own in self._paths(spec, params):
            try:
                state = os.stat(path)
            except (OSError, ValueError):
                return GONE
            if stat.S_ISREG(state.st_mode) and is_own:
                newest = max(newest, state.st_mtime)
        return newest

    def _pairs(self, spec: Spec, params: dict[str, Value]) -> list[float]:
        found: list[float] = []
        for path in [path for path, is_own in self._paths(spec, params) if is_own]:
            try:
                state, link = os.stat(path), os.lstat(path)
            except (OSError, ValueError):
                continue
            came = max(state.st_ctime, link.st_ctime)
            if stat.S_ISREG(state.st_mode) and came > state.st_mtime + _AT_ONCE:
                found += [state.st_mtime, came]
        return found

    def _paths(self, spec: Spec, params: dict[str, Value]) -> Iterator[tuple[str, bool]]:
        """The files that a task writes; True for its own: one that all tasks of a sweep write is newer than the end of most."""
        base = self._base(spec, params)
        named = [(text, base) for text in spec.outputs if text not in spec.store]  # which are not here
        named += [(text, self._submission.cwd) for text in (spec.stdout, spec.stderr) if text]
        for text, folder in named:
            yield os.path.join(folder, _filled(spec, text, params)), spec.sweep is None or bool(holes(text))


def _shortened(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_WIDTH] if text else ABSENT


def _filled(spec: Spec, text: str, params: dict[str, Value]) -> str:
    return text if spec.sweep is None else fill(text, params)


def _elements(spec: Spec) -> list[dict[str, Value]]:
    return [{}] if spec.sweep is None else [spec.sweep.at(k) for k in range(spec.sweep.count)]
