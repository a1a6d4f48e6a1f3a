"""Parameters in texts for the shell: each value is quoted for the place where its placeholder stands, so that it arrives
as it is, as part of one word, and nothing of it is executed. `{x:raw}` is the value as it is, for those who mean it.

A scanner walks the text as a POSIX shell reads it, and finds whether a placeholder stands between words, in single or in
double quotes. Where no quoting holds for certain (arithmetic, backquotes, here-documents, `${...}`), only plain values
are taken, which mean the same everywhere. In doubt a place counts as such a one.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import field
from functools import lru_cache
from typing import NamedTuple, Optional, Union

from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.task.sweep import HOLE, Sweep, Value, hole_value, path_part

PLAIN = re.compile(r"[A-Za-z0-9_.,:/@%+=-]*")  # values that mean the same wherever they stand in a text
RAW, BARE, SINGLE, DOUBLE, COMMENT, ONLY_PLAIN, VARIABLE = "raw", "bare", "single", "double", "comment", "plain", "$"
_NESTED = ("tick", "brace", "arith", "ansi")  # frames in which no quoting holds for certain
_COMMANDS = ("top", "sub", "paren")
_DOUBLE = re.compile(r'([\\"$`])')
_END_OF_WORD = " \t\n;|&<>()"


class Hole(NamedTuple):
    """One placeholder of a text."""

    text: str  # as it was written
    name: str
    place: str
    delimiter: str = ""  # of the here-document that it stands in
    part: str = ""  # of a value that is a path


Token = Union[str, Hole]  # a character, or a placeholder


def fill_shell(text: str, params: dict[str, Value]) -> str:
    """Put parameters into the placeholders of a text for the shell, each quoted for its place."""
    return "".join(part if isinstance(part, str) else _quoted(part, params) for part in _plan(text))


def check_shell(text: str, sweep: Sweep, field_name: str) -> None:
    """Refuse a placeholder where a value of the sweep could not be quoted."""
    for part in _plan(text):
        if isinstance(part, str) or part.place not in (ONLY_PLAIN, VARIABLE) or part.name not in sweep.names:
            continue
        if part.place == VARIABLE:
            raise BadInput(
                f"${part.text} is neither a parameter nor a variable of the shell", code="unquotable", field=field_name,
                hint=f"write {part.text} for the parameter, ${{{{{part.name}}}}} for the shell's variable",
            )  # fmt: skip
        wrong = _first_wrong(sweep, part)
        if wrong is not None:
            raise BadInput(
                f"{part.text} stands where the value {echo(wrong)!r} cannot be quoted", code="unquotable", field=field_name,
                hint=f"give it by --env and write \"$NAME\", or {{{part.name}:raw}} if the shell shall read it",
            )  # fmt: skip


def _first_wrong(sweep: Sweep, hole: Hole) -> Optional[str]:
    """The first value of a parameter that cannot stand in this place."""
    shown = (path_part(text, hole.part) if hole.part else text for text in sweep.values(hole.name))
    return next((text for text in shown if not PLAIN.fullmatch(text) or text == hole.delimiter != ""), None)


def _quoted(hole: Hole, params: dict[str, Value]) -> str:
    found = HOLE.fullmatch(hole.text)
    assert found is not None
    value = hole_value(found, params)
    if hole.place == BARE:
        return shlex.quote(value)
    if hole.place == SINGLE:
        return value.replace("'", "'\\''")
    if hole.place == DOUBLE:
        return _DOUBLE.sub(r"\\\1", value)
    if hole.place == COMMENT:
        return value.replace("\n", " ").replace("\r", " ")
    return value


@lru_cache(maxsize=256)
def _plan(text: str) -> tuple[Union[str, Hole], ...]:
    """The text in pieces: literal ones, and placeholders with their places."""
    tokens: list[Token] = []
    end = 0
    for found in HOLE.finditer(text):
        tokens += text[end : found.start()]
        hole = Hole(found[0], found[1] or "", RAW if found[3] else "", part=found[2] or "")
        tokens.append(found[0][0] if found[0] in ("{{", "}}") else hole)
        end = found.end()
    tokens += text[end:]
    if not any(isinstance(token, Hole) for token in tokens):
        return ("".join(str(token) for token in tokens),)
    pieces: list[Union[str, Hole]] = []
    for piece in _Scanner(tokens).scan():
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return tuple(pieces)


@dataclass
class _Scanner:
    """The walk along one text."""

    tokens: list[Token]
    at: int = 0
    frames: list[str] = field(default_factory=lambda: ["top"])
    depth: list[int] = field(default_factory=list)  # open parentheses of each frame of arithmetic
    unsure: bool = False  # from here on shells may differ, or this scanner may be wrong
    comment: bool = False
    word: str = ""  # as far as it was read; empty at the beginning of one
    here: list[tuple[str, bool]] = field(default_factory=list)  # here-documents that begin with the next line
    found: list[Union[str, Hole]] = field(default_factory=list)

    def scan(self) -> list[Union[str, Hole]]:
        """All pieces in order."""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if isinstance(token, Hole):
                self._hole()
                self.word += "x"
            elif self.comment:
                self.comment = token != "\n"
                self._take(1)
                if not self.comment:
                    self._begin_line()
            else:
                self._step(token)
        return self.found

    def _peek(self, ahead: int = 1) -> Optional[Token]:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def _take(self, count: int) -> None:
        """Pass so many tokens."""
        for token in self.tokens[self.at : self.at + count]:
            if isinstance(token, Hole):
                self._hole(ONLY_PLAIN)
            else:
                self.found.append(token)
                self.at += 1

    def _hole(self, place: str = "", delimiter: str = "") -> None:
        hole = self.tokens[self.at]
        assert isinstance(hole, Hole)
        if hole.place != RAW:
            hole = hole._replace(place=place or self._place(), delimiter=delimiter)
        self.found.append(hole)
        self.at += 1

    def _place(self) -> str:
        if self.comment:
            return COMMENT
        if self.unsure or any(frame in _NESTED for frame in self.frames):
            return ONLY_PLAIN
        return {"sq": SINGLE, "dq": DOUBLE}.get(self.frames[-1], BARE)

    def _step(self, char: str) -> None:
        frame = self.frames[-1]
        if frame == "sq":
            self._take(1)
            if char == "'":
                self.frames.pop()
        elif char == "\\":
            if frame == "ansi":
                self.unsure = True  # `\'` ends it in some shells, and does not in others
            self._take(2)
            self.word += "x"
        elif frame == "ansi":
            self._take(1)
            if char == "'":
                self.frames.pop()
        elif char == "`":
            self._take(1)
            if "tick" in self.frames:
                while self.frames.pop() != "tick":
                    pass
            else:
                self.frames.append("tick")
        elif frame == "tick":
            self._take(1)
        elif char == "$":
            self._dollar()
        elif frame == "dq":
            self._take(1)
            if char == '"':
                self.frames.pop()
        elif frame == "brace":
            self._in_brace(char)
        elif frame == "arith":
            self._in_arithmetic(char)
        else:
            self._in_command(char)

    def _dollar(self) -> None:
        first, second = self._peek(), self._peek(2)
        self.word += "$"
        if isinstance(first, Hole):
            self._take(1)
            self._hole(VARIABLE)
        elif first == "(" and second == "(":
            self._take(3)
            self.frames.append("arith")
            self.depth.append(0)
        elif first == "(":
            self._take(2)
            self.frames.append("sub")
            self.word = ""
        elif first == "{":
            self._take(2)
            self.frames.append("brace")
        elif first == "'" and self.frames[-1] in _COMMANDS:
            self._take(2)
            self.frames.append("ansi")
        else:
            self._take(1)

    def _in_brace(self, char: str) -> None:
        self._take(1)
        if char == "}":
            self.frames.pop()
        elif char == '"':
            self.frames.append("dq")
        elif char == "'":
            self.unsure = True  # a quote, or a character like any other

    def _in_arithmetic(self, char: str) -> None:
        if char in "'\"":
            self.unsure = True
        if char == "(":
            self.depth[-1] += 1
        elif char == ")" and self.depth[-1]:
            self.depth[-1] -= 1
        elif char == ")":
            self.frames.pop()
            self.depth.pop()
            if self._peek() == ")":
                self._take(1)
            else:
                self.unsure = True  # a subshell in a substitution looks alike
                self.frames.append("sub")
        self._take(1)

    def _in_command(self, char: str) -> None:
        if char == "#" and not self.word:
            self.comment = True
        elif char == "'":
            self.frames.append("sq")
        elif char == '"':
            self.frames.append("dq")
        elif char == "(" and self._peek() == "(":
            self._take(1)
            self.frames.append("arith")
            self.depth.append(0)
        elif char == "(":
            self.frames.append("paren")
        elif char == ")" and self.frames[-1] != "top":
            self.frames.pop()
        elif char == "<" and self._peek() == "<":
            self._here_document()
            return
        self._take(1)
        if char in _END_OF_WORD:
            # The patterns of `case` have parentheses without partners, so that the end of `$(` is not known any more.
            self.unsure = self.unsure or (self.word == "case" and "sub" in self.frames)
            self.word = ""
        else:
            self.word += char
        if char == "\n":
            self._begin_line()

    def _here_document(self) -> None:
        """`<<WORD`: the next lines up to one that is WORD are no commands."""
        if self._peek(2) == "<":
            self._take(3)
            return
        self._take(2)
        strip = self.at < len(self.tokens) and self.tokens[self.at] == "-"
        self._take(1 if strip else 0)
        while self.at < len(self.tokens) and self.tokens[self.at] in (" ", "\t"):
            self._take(1)
        delimiter = ""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if isinstance(token, Hole) or token in "$`":
                self.unsure = True
            if isinstance(token, str) and token in _END_OF_WORD:
                break
            delimiter += token if isinstance(token, str) and token not in "'\"\\" else ""
            self._take(1)
        self.here.append((delimiter, strip))
        self.unsure = self.unsure or self.frames != ["top"]  # where its body begins depends on the shell

    def _begin_line(self) -> None:
        """Pass the here-documents that were announced in the line before."""
        self.word = ""
        while self.here:
            delimiter, strip = self.here.pop(0)
            line = ""
            while self.at < len(self.tokens):
                token = self.tokens[self.at]
                if isinstance(token, Hole):
                    self._hole(ONLY_PLAIN, delimiter)
                    line += "\0"
                    continue
                self._take(1)
                if token == "\n":
                    if (line.lstrip("\t") if strip else line) == delimiter:
                        break
                    line = ""
                else:
                    line += token
