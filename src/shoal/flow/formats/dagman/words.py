"""How HTCondor writes lists of words: arguments and environments, each in an old and a new syntax."""

from __future__ import annotations

import re

from shoal.flow.formats.dagman.source import wrong
from shoal.model.errors import echo

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def split_arguments(text: str, where: str) -> list[str]:
    """The arguments of a command. New syntax: all of it in double quotes, single quotes group, quotes are doubled. Old
    syntax: words with blanks between; a backslash keeps a double quote."""
    text = text.strip()
    if text.startswith('"'):
        return _split_quoted(_unquoted(text, where), where)
    if re.search(r'(?<!\\)"', text):
        hint = r"write \" for the quote itself, or put all arguments into double quotes"
        raise wrong(where, f"a double quote inside arguments of the old syntax: {echo(text)}", hint)
    return [word.replace('\\"', '"') for word in text.split()]


def split_environment(text: str, where: str) -> dict[str, str]:
    """The variables of a job. New syntax: quoted as arguments are, `A=1 B='two words'`. Old syntax: `A=1;B=2`."""
    text = text.strip()
    new = text.startswith('"')
    words = _split_quoted(_unquoted(text, where), where) if new else [one for one in text.split(";") if one.strip()]
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip() if not new else name
        if not equals or not _NAME.fullmatch(name):
            raise wrong(where, f"{echo(word)!r} is no variable", "write NAME=VALUE")
        found[name] = value
    return found


def _unquoted(text: str, where: str) -> str:
    """What is between the double quotes; two of them stand for one."""
    if len(text) < 2 or not text.endswith('"'):
        raise wrong(where, f"a double quote is not closed: {echo(text)}", 'end the value with "')
    inner = text[1:-1]
    if '"' in inner.replace('""', ""):
        raise wrong(where, f"a double quote stands alone: {echo(text)}", 'write "" for the quote itself')
    return inner.replace('""', '"')


def _split_quoted(text: str, where: str) -> list[str]:
    """Words with blanks between; single quotes group, and two of them inside stand for one."""
    words: list[str] = []
    at, end, word, is_word = 0, len(text), "", False
    while at < end:
        char = text[at]
        if char.isspace():
            if is_word:
                words.append(word)
            word, is_word, at = "", False, at + 1
        elif char == "'":
            is_word, at = True, at + 1
            while True:
                close = text.find("'", at)
                if close < 0:
                    raise wrong(where, f"a single quote is not closed: {echo(text)}", "write '' for the quote itself")
                word, at = word + text[at:close], close + 1
                if text[at : at + 1] != "'":
                    break
                word, at = word + "'", at + 1
        else:
            word, is_word, at = word + char, True, at + 1
    return [*words, word] if is_word else words
