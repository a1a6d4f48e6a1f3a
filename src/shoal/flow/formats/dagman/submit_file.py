"""HTCondor's submit descriptions: commands, macros, conditions, and what `queue` makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shoal.flow.formats.dagman.macros import expand
from shoal.flow.formats.dagman.source import MAX_INCLUDED, Line, Surroundings, logical_lines, wrong
from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass

MAX_QUEUED = 100_000  # processes of one description
_ASSIGNMENT = re.compile(r"([+A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)", re.DOTALL)
_QUEUE = re.compile(r"queue\b\s*(.*)", re.IGNORECASE | re.DOTALL)
_INCLUDE = re.compile(r"include\b\s*(?:(ifexist|output|command)\b\s*(?:into\b.*)?)?:\s*(.*)", re.IGNORECASE)
_ITEMS = re.compile(
    r"(?P<count>[0-9]+\b|\$\([^()]*\))?\s*(?P<names>[A-Za-z_][\w]*(?:\s*,\s*[A-Za-z_]\w*|\s+(?!in\b|from\b|matching\b)[A-Za-z_]\w*)*)?"
    r"\s*\b(?P<how>in|from|matching)\b\s*(?P<kind>(?:files|dirs|any)\b)?\s*(?P<slice>\[[^\]]*\])?\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SELF = re.compile(r"\$\(\s*([A-Za-z_][A-Za-z0-9_.]*)\s*(?::[^()]*)?\)")


class Plain(NamedTuple):
    """What the lines of a description say."""

    macros: dict[str, str]
    queue: Line | None
    places: dict[str, str]  # of the macros: FILE:LINE


@dataclass(eq=False)
class Description:
    """The lines of a submit description, read once for all nodes that use it."""

    name: str
    lines: tuple[Line, ...]
    is_inline: bool = False
    plain: Plain | None = None  # what it says, if that is the same for all nodes
    is_read: bool = False  # it is known whether it is


class Process(NamedTuple):
    """One job that a description queues: its macros, by names in small letters."""

    macros: Mapping[str, str]
    places: Mapping[str, str]  # FILE:LINE of those that the description sets
    items: tuple[str, ...] = ()  # those that its queue statement sets, to something else for each job


def read_description(text: str, name: str, is_inline: bool = False, first: int = 1) -> Description:
    """The lines of a description; `first`: the line of a file that it begins with."""
    lines = tuple(_joined(logical_lines(text, name)))
    if first > 1:
        lines = tuple(Line(_moved(line.where, first - 1), line.text) for line in lines)
    return Description(name, lines, is_inline)


def _moved(where: str, by: int) -> str:
    name, _, number = where.rpartition(":")
    return f"{name}:{int(number) + by}"


def _joined(lines: Iterator[Line]) -> Iterator[Line]:
    """Lines of which a list of items in parentheses is one."""
    for line in lines:
        if _QUEUE.fullmatch(line.text) and line.text.endswith("("):
            items = [line.text]
            for more in lines:
                items.append(more.text)
                if more.text.endswith(")"):
                    break
            else:
                raise wrong(line.where, "the list of items is not closed", "end it with )")
            yield Line(line.where, "\n".join(items))
        else:
            yield line


def processes(
    description: Description, before: Mapping[str, str], behind: Mapping[str, str], around: Surroundings, base: str
) -> list[Process]:
    """The jobs of a description: macros that are set before it is read, its own, and those set behind it. `base`: the
    directory that its files are seen from."""
    plain = _plain(description, around)
    if plain is not None:
        macros, queue, places = {**before, **plain.macros, **behind}, plain.queue, plain.places
    else:
        reader = _Reader(dict(before), around, base)
        reader.read(description.lines, 0)
        macros, queue, places = reader.macros, reader.queue, reader.places
        macros.update(behind)
    if not places.keys().isdisjoint(behind):
        places = {name: where for name, where in places.items() if name not in behind}
    if queue is None:
        if not description.is_inline:
            raise wrong(f"{description.name}:{_last(description)}", "there is no queue statement", "end it with: queue")
        return [
            Process(
                {**macros, "process": "0", "procid": "0", "step": "0", "item": "", "itemindex": "0", "row": "0"}, places
            )
        ]
    if description.is_inline:
        raise wrong(queue.where, "an inline description has no queue statement", "leave it out: it is one job")
    return list(_queued(queue, macros, places, around, base))


def _plain(description: Description, around: Surroundings) -> Plain | None:
    """What a description says if that is the same for all nodes, since nothing of it depends on macros set before it."""
    if not description.is_read:
        description.is_read = True
        words = {line.text.split(None, 1)[0].lower().rstrip(":") for line in description.lines}
        if not words & {"if", "include"} and not any(_is_of_itself(line.text) for line in description.lines):
            reader = _Reader({}, around, "")
            reader.read(description.lines, 0)
            description.plain = Plain(reader.macros, reader.queue, reader.places)
    return description.plain


def _is_of_itself(text: str) -> bool:
    found = _ASSIGNMENT.fullmatch(text)
    return found is not None and any(one[1].lower() == found[1].lower() for one in _SELF.finditer(found[2]))


def _last(description: Description) -> int:
    return int(description.lines[-1].where.rpartition(":")[2]) if description.lines else 1


class _Reader:
    """Reads the lines of a description, with what is included and what conditions leave of it."""

    def __init__(self, macros: dict[str, str], around: Surroundings, base: str) -> None:
        self.macros, self.around, self.base = macros, around, base
        self.queue: Line | None = None
        self.places: dict[str, str] = {}

    def read(self, lines: Sequence[Line], depth: int) -> None:
        """Take in lines, in order."""
        open_ifs: list[tuple[bool, bool, str]] = []  # (this branch is taken, one was, where)
        for line in lines:
            first = line.text.split(None, 1)[0].lower() if line.text else ""
            if first in ("if", "elif", "else", "endif"):
                self._branch(first, line, open_ifs)
            elif not all(taken for taken, _, _ in open_ifs):
                continue
            elif self.queue is not None:
                hint = "a node is one cluster of jobs: one queue statement, at the end"
                raise wrong(line.where, "something follows the queue statement", hint)
            else:
                self._take(line, depth)
        if open_ifs:
            raise wrong(open_ifs[-1][2], "this if has no endif", "add it")

    def _branch(self, word: str, line: Line, open_ifs: list[tuple[bool, bool, str]]) -> None:
        condition = line.text[len(word) :].strip()
        if word == "if":
            taken = self._holds(condition, line)
            open_ifs.append((taken, taken, line.where))
            return
        if not open_ifs:
            raise wrong(line.where, f"{word} without if", "an if comes first")
        _, was, where = open_ifs.pop()
        if word == "elif":
            taken = not was and self._holds(condition, line)
            open_ifs.append((taken, was or taken, where))
        elif word == "else":
            open_ifs.append((not was, True, where))

    def _holds(self, condition: str, line: Line) -> bool:
        text = condition
        negated = False
        while text.startswith("!"):
            negated, text = not negated, text[1:].strip()
        words = text.split()
        if words and words[0].lower() == "defined" and len(words) == 2:
            name = words[1].lower().removeprefix("$(").removesuffix(")")
            return (name in self.macros) is not negated
        value = expand(text, self.macros, self.around.env, line.where).strip().lower()
        if value in ("true", "yes"):
            return not negated
        if value in ("false", "no"):
            return negated
        if re.fullmatch(r"-?[0-9.]+", value) and value.count(".") <= 1 and value.strip("-."):
            return (float(value) != 0) is not negated
        hint = "known: true, false, a number, defined NAME, and ! before these"
        raise wrong(line.where, f"{echo(condition)!r} is no condition", hint)

    def _take(self, line: Line, depth: int) -> None:
        queue = _QUEUE.fullmatch(line.text)
        found = None if queue is not None else _ASSIGNMENT.fullmatch(line.text)
        if queue is not None:
            self.queue = Line(line.where, queue[1].strip())
        elif found is not None:
            name, value = found[1].lower(), found[2].strip()
            if "$(" in value:  # a macro that is defined by itself takes its value of before
                old = self.macros.get(name, "")
                value = _SELF.sub(lambda one: old if one[1].lower() == name else one[0], value)
            self.macros[name] = value
            self.places[name] = line.where
        elif (included := _INCLUDE.fullmatch(line.text)) is not None:
            self._include(included, line, depth)
        else:
            hint = "write NAME = VALUE, queue, if, or include : FILE"
            raise wrong(line.where, f"{echo(line.text)!r} is no line of a submit description", hint)

    def _include(self, included: re.Match[str], line: Line, depth: int) -> None:
        how = (included[1] or "").lower()
        if how in ("output", "command"):
            raise wrong(line.where, "output of commands is not included", "write it to a file, and include that")
        if depth >= MAX_INCLUDED:
            raise wrong(line.where, "files include each other without end", "take one of these lines out")
        name = joined(self.base, expand(included[2].strip(), self.macros, self.around.env, line.where))
        if how == "ifexist" and not self.around.exists(name):
            return
        self.read(read_description(_read(self.around, name, line.where), name).lines, depth + 1)


def joined(base: str, name: str) -> str:
    """A name as seen from the directory of the run."""
    return name if name.startswith("/") or not base else f"{base}/{name}"


def _read(around: Surroundings, name: str, where: str) -> str:
    """The text of a file that a line names."""
    try:
        return around.read(name)
    except BadInput as error:
        raise wrong(where, error.message, error.hint) from None


def _queued(
    queue: Line, macros: dict[str, str], places: dict[str, str], around: Surroundings, base: str
) -> Iterator[Process]:
    """The jobs that a queue statement makes."""
    text = queue.text
    found = _ITEMS.fullmatch(text)
    if found is None:
        count = _count(expand(text, macros, around.env, queue.where), queue)
        names, rows = ["item"], [[""]]
    else:
        count = _count(expand(found["count"] or "", macros, around.env, queue.where), queue)
        names = re.split(r"[\s,]+", found["names"].lower().strip()) if found["names"] else ["item"]
        rows = _rows(found, names, macros, around, base, queue)
        places = {**places, **dict.fromkeys(names, queue.where)}
    if count * len(rows) > MAX_QUEUED:
        raise wrong(
            queue.where, f"{count * len(rows):,} jobs are too many", f"at most {MAX_QUEUED:,} of one description"
        )
    number = 0
    for at, row in enumerate(rows):
        for step in range(count):
            own = dict(zip(names, [*row, *[""] * (len(names) - len(row))], strict=False))
            numbers = {
                "process": str(number),
                "procid": str(number),
                "step": str(step),
                "row": str(at),
                "itemindex": str(at),
            }
            item = {} if "item" in own else {"item": row[0] if row else ""}
            yield Process({**macros, **numbers, **item, **own}, places, tuple(names))
            number += 1


def _count(text: str, queue: Line) -> int:
    text = text.strip()
    if not text:
        return 1
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        hint = "write queue, queue N, or queue [N] NAMES in (...), from FILE, or matching PATTERN"
        raise wrong(queue.where, f"{echo(text)!r} is no number of jobs", hint)
    return int(text)


def _rows(
    found: re.Match[str], names: list[str], macros: Mapping[str, str], around: Surroundings, base: str, queue: Line
) -> list[list[str]]:
    """The items of a queue statement, each as the values of its names."""
    if found["slice"]:
        raise wrong(queue.where, "a slice of items is not supported", "write the items that you want")
    how, rest = found["how"].lower(), expand(found["rest"].strip(), macros, around.env, queue.where)
    if how == "from":
        if rest.startswith("("):
            lines = _inside(rest, queue).splitlines()
        elif rest.endswith("|"):
            raise wrong(queue.where, "output of commands is not read", "write it to a file: queue ... from FILE")
        else:
            lines = _read(around, joined(base, rest), queue.where).splitlines()
        kept = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
        return [_values(line, len(names)) for line in kept]
    if how == "in":
        text = _inside(rest, queue) if rest.startswith("(") else rest
        return [[item] for item in re.split(r"[\s,]+", text.strip()) if item]
    patterns = re.split(r"[\s,]+", (_inside(rest, queue) if rest.startswith("(") else rest).strip())
    kind = (found["kind"] or "files").lower()
    matched = [name for pattern in patterns if pattern for name in around.match(joined(base, pattern), kind)]
    prefix = f"{base}/" if base else ""
    return [[name.removeprefix(prefix)] for name in dict.fromkeys(matched)]


def _inside(text: str, queue: Line) -> str:
    if not text.endswith(")"):
        raise wrong(queue.where, "the list of items is not closed", "end it with )")
    return text[1:-1]


def _values(line: str, count: int) -> list[str]:
    """The values of one line: with commas between if there are any, else blanks; the last name takes the rest."""
    if count == 1:
        return [line]
    parts = line.split(",", count - 1) if "," in line else line.split(None, count - 1)
    return [part.strip() for part in parts]
