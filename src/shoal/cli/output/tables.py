"""Text for terminals: control characters removed, aligned columns, colours. No markup, so nothing to escape."""

from __future__ import annotations

import codecs
import itertools
import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from shoal.model.errors import printable

PEEK = 100  # rows that decide the widths of a table that streams
MAX_CELL = 60
STATE_COLOURS = {
    "succeeded": "green", "failed": "red", "lost": "red", "cancelled": "yellow",
    "running": "cyan", "leased": "cyan", "busy": "cyan",
}  # fmt: skip


def clean(text: object) -> str:
    """User text for one cell: control, format and direction characters shown as escapes [input E20-E22]."""
    return printable(text if isinstance(text, str) else str(text))


def clean_block(text: str) -> str:
    """A log for a terminal: newlines and tabs stay, every other control character is removed [input E22]."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def width(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, most: int = MAX_CELL) -> str:
    """A text of at most so many columns, its end marked if cut."""
    if width(text) <= most:
        return text
    kept, used = [], 0
    for c in text:
        used += width(c)
        if used >= most:
            break
        kept.append(c)
    return "".join(kept) + "…"


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False)
    return clean(value)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], cut: int | None = MAX_CELL) -> Iterator[str]:
    """Lines of aligned columns, streamed: the first rows decide the widths; numbers are aligned right."""
    stream = iter(rows)
    peeked = list(itertools.islice(stream, PEEK))
    right = [
        bool(peeked) and all(isinstance(row[at], (int, float)) or row[at] is None for row in peeked)
        for at in range(len(head))
    ]
    texts = [_texts(row, cut) for row in peeked]
    widths = [max([width(name), *(width(row[at]) for row in texts)]) for at, name in enumerate(head)]
    yield click.style(_line(head, widths, right, coloured=False), bold=True)
    for row in texts:
        yield _line(row, widths, right)
    for later in stream:
        yield _line(_texts(later, cut), widths, right)


def _texts(row: Sequence[object], cut: int | None) -> list[str]:
    return [shorten(cell(value), cut) if cut else cell(value) for value in row]


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], coloured: bool = True) -> str:
    parts = []
    for at, text in enumerate(texts):
        gap = " " * max(0, widths[at] - width(text))
        colour = STATE_COLOURS.get(text) if coloured else None
        shown = click.style(text, fg=colour) if colour else text
        parts.append(gap + shown if right[at] else shown + gap)
    return "  ".join(parts).rstrip()


def pairs(items: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Lines of `name  value`, names aligned."""
    shown = [(name, cell(value)) for name, value in items]
    widest = max((width(name) for name, _ in shown), default=0)
    for name, text in shown:
        yield f"{click.style(name, dim=True)}{' ' * (widest - width(name))}  {text}"


def print_lines(lines: Iterable[str]) -> None:
    """To standard output; colours only if it is a terminal."""
    for line in lines:
        click.echo(line)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Print a table, or a sentence if there are no rows."""
    print_lines(table(head, rows) if rows else [empty])


def print_answer(answer: Any, as_json: bool, *lines: str) -> None:
    """Print the answer of the server as JSON, or lines for a person."""
    if as_json:
        print_json(answer)
    else:
        print_lines(lines)


def print_json(document: Any) -> None:
    """Print a JSON document on one line; everything but ASCII is escaped, so it is safe on a terminal, too."""
    click.echo(json.dumps(document, separators=(",", ":"), default=str))


def write_stream(parts: Iterable[bytes], to_stderr: bool = False) -> int:
    """Write a log part by part: every byte to a pipe or file, text without control characters to a terminal; returns the
    number of bytes."""
    stream = sys.stderr if to_stderr else sys.stdout
    if not stream.isatty():
        return sum(write_raw(part, to_stderr) for part in parts)
    decoder, count, last = codecs.getincrementaldecoder("utf-8")("replace"), 0, b""
    for part in parts:
        click.echo(clean_block(decoder.decode(part)), nl=False, err=to_stderr)
        count, last = count + len(part), part or last
    rest = clean_block(decoder.decode(b"", final=True))
    click.echo(rest, nl=bool(last) and not last.endswith(b"\n"), err=to_stderr)
    return count


def write_raw(data: bytes, to_stderr: bool = False) -> int:
    """Write every byte to a pipe or file; returns their number."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.flush()
    binary = getattr(stream, "buffer", None)
    if binary is None:  # a stream of text only, as in tests
        stream.write(data.decode("utf-8", "replace"))
    else:
        binary.write(data)
        binary.flush()
    return len(data)
