"""The files that tasks read, sent to the server, for pilots that do not see the submitter's files [ADR 0046].

Sent are declared inputs and a program that is named by a relative path. Each content is sent once, however many tasks read
it, and not at all if the server has it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from shoal.client.config import echo_path
from shoal.model.errors import BadInput, Conflict, TooLarge, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_CONTENT, MAX_DIRECTORY
from shoal.model.task.content import DIRECTORY, Content
from shoal.model.task.kept_files import is_written
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import fill, holes
from shoal.model.task.url_input import UrlInput, has_urls, is_url, parse_url

_DIRECTORY = Content(DIRECTORY, 0o755).text
Put = Callable[[int, Callable[[int], None]], tuple[str, int]]  # sends an open file, as `Client.put_file`
Tell = Callable[
    [int, int, int], None
]  # is called with the files and bytes that were sent so far, and bytes of the next file


@dataclass
class SentFiles:
    """Sends the files of one submission; a file that several tasks read is looked at once."""

    put: Put
    tell: Tell = lambda files, size, part: None
    _known: dict[str, str] = field(default_factory=dict)  # path -> text of its content
    _bytes: int = 0
    _inside: dict[str, list[str]] = field(default_factory=dict)  # directory -> names of what is in it

    def of(
        self, spec: Spec, run_cwd: str, written: Container[str] = (), earlier: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """The field `content` of a task: its files are on the server when this returns. `written`: names of files that tasks
        write for which it waits; what is there now under such a name is older. `earlier`: what earlier runs left on the server,
        for inputs that are not here."""
        found: dict[str, str] = {}
        for named in dict.fromkeys(_names(spec, run_cwd)):
            if is_written(os.path.normpath(named), written):
                continue
            if not os.path.lexists(os.path.join(run_cwd, named)) and (known := _earlier(earlier, named)):
                found |= known
                continue
            path = os.path.join(run_cwd, named)
            inside = self._look_into(path, named) if os.path.isdir(path) else [named]
            for name in (one for one in inside if not is_written(os.path.normpath(one), written)):
                if len(found) >= MAX_CONTENT:
                    raise _too_many()
                here = os.path.join(run_cwd, name)
                found[name] = _DIRECTORY if os.path.isdir(here) else self._send(here, name)
        return found

    def of_urls(self, spec: Spec) -> dict[str, str]:
        """The part of `content` for inputs at URLs that pilots do not read: read here, and sent."""
        found: dict[str, str] = {}
        for text in spec.inputs if has_urls(spec.inputs) else ():
            for name in _each_name(spec, text):
                url = parse_url(name)
                if url is not None and url.is_remote and name not in found:
                    found[name] = self._send_remote(name, url)
                    if len(found) > MAX_CONTENT:
                        raise _too_many()
        return found

    def _send_remote(self, name: str, url: UrlInput) -> str:
        known = self._known.get(name)
        if known is None:
            import tempfile  # few runs read such files

            from shoal.storage.fsspec_files import read_into

            with tempfile.TemporaryFile() as file:
                read_into(url.url, file)
                file.flush()
                digest, size = self._put(file.fileno(), name)
            if url.digest not in ("", digest):
                message = f"what is at {echo(url.url)} is not {url.digest}"
                raise BadInput(message, code="wrong_digest", field="inputs", hint=f"it is {digest}")
            known = self._note(name, Content(digest, 0o644, size))
        return known

    def _put(self, fd: int, name: str) -> tuple[str, int]:
        try:
            return self.put(fd, lambda part: self.tell(len(self._known), self._bytes, part))
        except Conflict as error:
            raise Conflict(f"{echo_path(name)}: {error.message}", code=error.code, hint=error.hint) from None

    def _note(self, path: str, content: Content) -> str:
        self._known[path] = content.text
        self._bytes += content.size or 0
        self.tell(len(self._known), self._bytes, 0)
        return content.text

    def _look_into(self, path: str, named: str) -> list[str]:
        """The files in a directory that is an input, and the directories in it that are empty. What is a link to a file
        goes as the file; one to a directory is refused, for it may lead anywhere, and round in circles."""
        known = self._inside.get(path)
        if known is not None:
            return known
        found: list[str] = []
        name = os.path.normpath(named)
        for folder, folders, files in os.walk(path, onerror=_refuse_unreadable):
            at = os.path.normpath(os.path.join(name, os.path.relpath(folder, path)))
            linked = next((one for one in folders if os.path.islink(os.path.join(folder, one))), None)
            if linked is not None:
                raise BadInput(
                    f"{echo_path(os.path.join(at, linked))} is a link to a directory", code="not_regular_file", field="inputs",
                    hint="name what it leads to as an input of its own",
                )  # fmt: skip
            folders.sort()
            found += [os.path.join(at, one) for one in sorted(files)] or ([] if folders else [at])
            if len(found) > MAX_DIRECTORY:
                raise TooLarge(
                    f"{echo_path(named)} has more than {MAX_DIRECTORY:,} files", code="too_many", field="inputs",
                    hint="pack it into one file, such as with tar, and unpack that in the task",
                )  # fmt: skip
        self._inside[path] = found
        return found

    def _send(self, path: str, name: str) -> str:
        known = self._known.get(path)
        if known is None:
            try:
                with open(
                    os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
                ) as file:  # a pipe must not block us
                    state = os.fstat(file.fileno())
                    if not stat.S_ISREG(state.st_mode):
                        raise BadInput(
                            f"{echo_path(name)} is no plain file", code="not_regular_file", field="inputs",
                            hint="name the files in it",
                        )  # fmt: skip
                    digest, size = self._put(file.fileno(), name)
            except OSError as error:
                raise BadInput(
                    f"cannot read {echo_path(name)}: {error.strerror}", code="no_such_file", field="inputs",
                    hint="name a file that you can read",
                ) from None  # fmt: skip
            known = self._note(path, Content(digest, stat.S_IMODE(state.st_mode) & 0o777, size))
        return known


def written_by(specs: Iterable[Spec]) -> set[str]:
    """The names of all files that the tasks of these specs write."""
    return {name for spec in specs for text in spec.outputs for name in _each_name(spec, text)}


def _earlier(earlier: Mapping[str, str], named: str) -> dict[str, str]:
    """What earlier runs wrote under a name, or in a directory of this name."""
    name = os.path.normpath(named)
    if name in earlier:
        return {named: earlier[name]}
    return {one: text for one, text in earlier.items() if one.startswith(name + "/")}


def _too_many() -> TooLarge:
    hint = "submit fewer at a time, or pack them into one"
    return TooLarge(f"the tasks read more than {MAX_CONTENT:,} files", code="too_many", field="inputs", hint=hint)


def _refuse_unreadable(error: OSError) -> None:
    message = f"cannot read {echo_path(str(error.filename))}: {error.strerror}"
    raise BadInput(message, code="no_such_file", field="inputs", hint="name a directory that you can read") from None


def may_send(spec: Spec) -> bool:
    """True if the files of a task are to go along: it declares some, or asks for a site; it is a command that runs in the run's
    directory or in one of its own; its files lie below that; and which ones it reads is known before. A task that declares
    nothing may read and write whatever is in its directory, so that it waits for a host that sees it."""
    if not (spec.inputs or spec.outputs or spec.site):
        return False
    if spec.function or spec.cwd not in (None, OWN) or spec.units is not None or spec.stdout or spec.stderr:
        return False
    names = {name for text in spec.inputs for name in _each_name(spec, text)}
    return not any(os.path.isabs(name) or os.path.normpath(name).startswith("..") for name in names if not is_url(name))


def _each_name(spec: Spec, text: str) -> Iterator[str]:
    """The names that a text stands for in the tasks of a spec; where there are no parameters, braces are part of a name."""
    if spec.sweep is None:
        yield text
    elif not holes(text):
        yield fill(text, {})
    else:
        yield from (fill(text, spec.sweep.at(at)) for at in range(spec.sweep.count))


def _names(spec: Spec, run_cwd: str) -> Iterator[str]:
    """The names of all files that the tasks of a spec read."""
    program = spec.command[0] if spec.command else ""
    texts = [*spec.inputs]
    differs = spec.sweep is not None and holes(program)
    is_relative = "/" in program and not os.path.isabs(program) and not differs
    if is_relative and os.path.isfile(os.path.join(run_cwd, program)):  # one that is not here may be there
        texts.append(program)
    for text in texts:
        for name in _each_name(spec, text):
            if not is_url(name):
                yield name
