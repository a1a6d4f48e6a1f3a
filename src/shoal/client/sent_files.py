"""The files that tasks read, sent to the server, for pilots that do not see the submitter's files [ADR 0046].

Sent are declared inputs and a program that is named by a relative path. Each content is sent once, however many tasks read
it, and not at all if the server has it.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from shoal.client.config import echo_path
from shoal.model.blobs import Bytes
from shoal.model.errors import BadInput, TooLarge
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_CONTENT
from shoal.model.task.content import Content
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import Value, fill, holes

Put = Callable[[Sequence[Bytes]], str]  # sends a blob, and returns its digest
Tell = Callable[[int, int], None]  # is called with the files and the bytes that were sent so far


@dataclass
class SentFiles:
    """Sends the files of one submission; a file that several tasks read is looked at once."""

    put: Put
    tell: Tell = lambda files, size: None
    _known: dict[str, str] = field(default_factory=dict)  # path -> text of its content
    _bytes: int = 0

    def of(self, spec: Spec, run_cwd: str) -> dict[str, str]:
        """The field `content` of a task: its files are on the server when this returns."""
        found: dict[str, str] = {}
        for name in dict.fromkeys(_names(spec, run_cwd)):
            if len(found) >= MAX_CONTENT:
                hint = "submit fewer at a time, or pack them into one"
                raise TooLarge(
                    f"the tasks read more than {MAX_CONTENT:,} files", code="too_many", field="inputs", hint=hint
                )
            found[name] = self._send(os.path.join(run_cwd, name), name)
        return found

    def _send(self, path: str, name: str) -> str:
        known = self._known.get(path)
        if known is None:
            try:
                with open(path, "rb") as file:
                    state = os.fstat(file.fileno())
                    if not stat.S_ISREG(state.st_mode):
                        raise BadInput(
                            f"{echo_path(name)} is no plain file", code="not_regular_file", field="inputs",
                            hint="name the files in it",
                        )  # fmt: skip
                    # Mapped, so that a large file takes no memory: it is read twice, for the digest and to be sent.
                    size = state.st_size
                    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
                    digest = self.put([memoryview(mapped)])
            except OSError as error:
                raise BadInput(
                    f"cannot read {echo_path(name)}: {error.strerror}", code="no_such_file", field="inputs",
                    hint="name a file that you can read",
                ) from None  # fmt: skip
            known = self._known[path] = Content(digest, stat.S_IMODE(state.st_mode) & 0o777).text
            self._bytes += size
            self.tell(len(self._known), self._bytes)
        return known


def may_send(spec: Spec) -> bool:
    """True if the files of a task are to go along: it declares some, or asks for a site; it is a command that runs in the run's
    directory or in one of its own; its files lie below that; and which ones it reads is known before. A task that declares
    nothing may read and write whatever is in its directory, so that it waits for a host that sees it."""
    if not (spec.inputs or spec.outputs or spec.site):
        return False
    if spec.function or spec.cwd not in (None, OWN) or spec.units is not None or spec.stdout or spec.stderr:
        return False
    names = {fill(text, values) for text in spec.inputs for values in _values(spec, text)}
    return not any(os.path.isabs(name) or os.path.normpath(name).startswith("..") for name in names)


def _values(spec: Spec, text: str) -> Iterator[dict[str, Value]]:
    """The parameters of each task for which a text may differ; one without any if it is the same for all."""
    if spec.sweep is None or not holes(text):
        yield {}
    else:
        yield from (spec.sweep.at(at) for at in range(spec.sweep.count))


def _names(spec: Spec, run_cwd: str) -> Iterator[str]:
    """The names of all files that the tasks of a spec read."""
    program = spec.command[0] if spec.command else ""
    texts = [*spec.inputs]
    is_relative = "/" in program and not os.path.isabs(program) and not holes(program)
    if is_relative and os.path.isfile(os.path.join(run_cwd, program)):  # one that is not here may be there
        texts.append(program)
    for text in texts:
        for values in _values(spec, text):
            yield fill(text, values) if spec.sweep is not None else text
