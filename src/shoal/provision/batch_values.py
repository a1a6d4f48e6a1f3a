"""Which values may stand in a batch script's directives or in a command line; what they are is never left to a shell.

A directive is read by the batch system, with rules of quoting of its own. So its values come from an allow-list of
characters, which has no quote, `$`, backtick, newline, backslash, semicolon or space [security S10]. Whatever else is in
a script goes through `shlex.quote`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shoal.model.errors import BadInput, echo
from shoal.wire.did_you_mean import did_you_mean

MAX_VALUE = 256


class Kind(NamedTuple):
    """One kind of value: what it may look like, and how to say so."""

    pattern: re.Pattern[str]
    allowed: str


WORD = Kind(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:+@=/-]*"), "letters, digits and _.,:+@=/-")
# Alternatives of features and hosts, as Slurm has them: intel&gpu, [rack1|rack2], n[1-4]
EXPRESSION = Kind(
    re.compile(r"[A-Za-z0-9_(\[!][A-Za-z0-9_.,:+@=/&|()\[\]*!-]*"), "letters, digits and _.,:+@=/&|()[]*!-"
)
# No `%`, which batch systems replace in names of files, and no `:`, before which some expect a host.
PATH = Kind(re.compile(r"/[A-Za-z0-9_./+@=,-]*"), "an absolute path of letters, digits and _./+@=,-")
NAME = Kind(re.compile(r"[a-z][a-z0-9-]*"), "lower-case letters, digits and -, a letter first")
# Options that are no plain words.
KINDS = {"constraint": EXPRESSION, "exclude": EXPRESSION, "nodelist": EXPRESSION, "mount": PATH}


def check(field: str, value: str, kind: Kind = WORD) -> str:
    """The value, if it may stand in a directive or an argument."""
    if len(value) > MAX_VALUE or not kind.pattern.fullmatch(value):
        what = "is empty" if not value else f"{echo(value)} cannot be used with a batch system"
        hint = f"allowed: {kind.allowed}, at most {MAX_VALUE}"
        raise BadInput(f"{field} {what}", code="bad_batch_value", field=field, hint=hint)
    return value


def check_count(field: str, value: int, least: int = 1) -> int:
    """The number, if it is a whole one and not below the least."""
    if type(value) is not int or not least <= value < 2**53:
        hint = f"a whole number from {least} on"
        raise BadInput(f"{field} is {echo(value)}", code="bad_batch_value", field=field, hint=hint)
    return value


def check_options(options: Mapping[str, str], known: Iterable[str], backend: str) -> dict[str, str]:
    """A site's options, if its backend has them all and each may stand in a directive."""
    names = list(known)
    for name, value in options.items():
        if name not in names:
            hint = did_you_mean(name, names) if names else "it has no options"
            raise BadInput(f"{backend} has no option {echo(name)}", code="unknown_option", field=name, hint=hint)
        check(name, value, KINDS.get(name, WORD))
    return dict(options)
