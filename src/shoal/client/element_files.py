"""How the files of each task of a sweep look when it is submitted: what `--resume` compares task by task.

A run of one task has its files in `cli/tasks/preflight.py`; here are those whose names hold parameters, and those that
tasks write.
"""

from __future__ import annotations

import hashlib
import os
import stat

from shoal.model.limits import FINGERPRINT_WIDTH, MAX_COMPARED
from shoal.model.task.spec import OWN, Spec, Submission
from shoal.model.task.sweep import Value, fill, holes

MAX_DIGESTED = 64 << 20  # bytes of files that are read for one submission; of others size, date and inode are taken
ABSENT = "-" * FINGERPRINT_WIDTH
NOT_LOOKED_AT, GONE = 0.0, -1.0
_MAX_PATH = 4096


def fingerprint(path: str, state: os.stat_result, budget: int) -> str:
    """A digest of a file's content; of one that is too large to be read, of what tells it from another file."""
    if state.st_size > budget:
        return f"{state.st_size}-{state.st_mtime_ns}-{state.st_ino}"
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(budget + 1)).hexdigest()


def is_compared(spec: Spec) -> bool:
    """True for a sweep whose tasks are compared one by one, and not only as a whole."""
    return spec.sweep is not None and spec.units is None and 1 <= spec.sweep.count <= MAX_COMPARED


def texts_with_files(submission: Submission, spec: Spec) -> list[str]:
    """The texts of a sweep that may name a file it reads once they are filled; what its run writes is none."""
    written = {text for one in submission.specs for text in (*one.outputs, one.stdout, one.stderr) if text}
    named = [text for text in (*spec.command, *spec.inputs, spec.stdin or "") if holes(text) and text not in written]
    values = [f"{{{name}}}" for text in (*named, spec.shell or "", *spec.setup) for name in holes(text)]
    return list(dict.fromkeys([*named, *values]))


class ElementFiles:
    """The files of one submission, each looked at once."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._seen: dict[str, str] = {}
        self._budget = MAX_DIGESTED

    def read(self) -> list[str]:
        """For each spec the files that its tasks read: so many characters for each task and text; empty if there are none."""
        found = []
        for spec in self._submission.specs:
            texts = texts_with_files(self._submission, spec) if is_compared(spec) else []
            states = [state for params in _elements(spec) for state in self._of(spec, texts, params)] if texts else []
            found.append("" if all(state == ABSENT for state in states) else "".join(states))
        return found

    def written(self, is_far: bool) -> list[list[float]]:
        """For each spec and task the date of the newest file that it alone writes, or that one is gone.

        `is_far`: the tasks may have run where files are not seen from here; then they say something only if some are seen.
        """
        found = []
        for spec in self._submission.specs:
            has_any = (spec.outputs or spec.stdout or spec.stderr) and (spec.sweep is None or is_compared(spec))
            dates = [self._date(spec, params) for params in _elements(spec)] if has_any and not spec.function else []
            is_seen = not is_far or any(date != GONE for date in dates)
            found.append(dates if is_seen else [])
        return found

    def _of(self, spec: Spec, texts: list[str], params: dict[str, Value]) -> list[str]:
        base = self._base(spec, params)
        own = {fill(text, params) for text in (*spec.outputs, spec.stdout, spec.stderr) if text}
        names = [fill(text, params) for text in texts]
        return [ABSENT if name in own else self._state(base, name) for name in names]

    def _state(self, base: str, name: str) -> str:
        if not name or len(name) > _MAX_PATH or "\0" in name or "\n" in name:
            return ABSENT
        path = os.path.join(base, name)
        if path not in self._seen:
            self._seen[path] = ABSENT
            try:
                state = os.stat(path)
                if stat.S_ISREG(state.st_mode):
                    text = fingerprint(path, state, self._budget)
                    self._budget -= min(self._budget, state.st_size)
                    self._seen[path] = hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_WIDTH]
            except (OSError, ValueError):
                pass
        return self._seen[path]

    def _base(self, spec: Spec, params: dict[str, Value]) -> str:
        """The directory from which a task names its files."""
        inside = "" if spec.cwd in (None, OWN) else fill(spec.cwd or "", params) if spec.sweep is not None else spec.cwd
        return os.path.join(self._submission.cwd, inside or "")

    def _date(self, spec: Spec, params: dict[str, Value]) -> float:
        base = self._base(spec, params)
        named = [(text, base) for text in spec.outputs]
        named += [(text, self._submission.cwd) for text in (spec.stdout, spec.stderr) if text]
        newest = NOT_LOOKED_AT
        for text, folder in named:
            name = fill(text, params) if spec.sweep is not None else text
            try:
                state = os.stat(os.path.join(folder, name))
            except (OSError, ValueError):
                return GONE
            # A file that all tasks of a sweep write is newer than the end of most of them.
            if stat.S_ISREG(state.st_mode) and (spec.sweep is None or holes(text)):
                newest = max(newest, state.st_mtime)
        return newest


def _elements(spec: Spec) -> list[dict[str, Value]]:
    return [{}] if spec.sweep is None else [spec.sweep.at(k) for k in range(spec.sweep.count)]
