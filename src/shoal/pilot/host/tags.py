"""Tags as people write them: NAME=VALUE on a command line, `name = value` in the pipe of a task [GWP G3, G4, table 2].

A tag has no declared type [GWP 4.1]: what looks like a number, true or false becomes such, the rest is text, and so
is whatever is in quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Optional

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_TASK_TAG
from shoal.wire.messages import TagValue

MAX_OWN_TAGS = 64  # --tag of one pilot: with what it finds out itself far below MAX_TAGS
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Tags that the server sets, those that the pilot updates all the time, and keywords of expressions.
RESERVED = frozenset(
    {
        "pilot", "host", "site", "owner", "group", "slots", "free_slots", "cores", "free_cores", "memory_mb", "free_memory_mb",
        "disk_mb", "free_disk_mb", "gpus", "free_gpus", "time_left", "state", "data_local_mb", "data_local_fraction",
        "pid", "zip", "load", "memory_available_mb", "disk_available_mb", "task_memory_mb", "task_cpu", "lag_ms",
        "bandwidth_mbps", "certain_end", "unfit",
        "and", "or", "not", "in", "true", "false", "my", "task", "has", "glob", "min", "max", "abs",
    }
)  # fmt: skip
# No zeros in front: 007 is a name. More digits than a double holds are text as well.
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,14})?(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")


def value_of(text: str) -> TagValue:
    """What a tag's text means."""
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    if text[-1:].isdigit() and _NUMBER.fullmatch(text) and text.lstrip("+-")[:1] not in ("e", "E"):
        number = float(text)
        return number if math.isfinite(number) else text
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def parse_tags(options: Iterable[str], field: str = "--tag") -> dict[str, TagValue]:
    """What was given as NAME=VALUE, each of them checked."""
    tags: dict[str, TagValue] = {}
    for option in options:
        name, is_given, text = option.partition("=")
        name, text = name.strip(), text.strip()
        if not is_given:
            raise _bad(f"{echo(option)} is not NAME=VALUE", field, f"for example {field} disk=ssd")
        if not NAME.fullmatch(name):
            raise _bad(
                f"{echo(name)!r} is not a name of a tag", field, "up to 64 letters, digits and _, no digit first"
            )
        if name in RESERVED:
            raise _bad(f"{name} has a meaning already", field, f"choose another name, for example my_{name}")
        if name in tags:
            raise _bad(f"{name} is given twice", field, "give it once")
        if not text:
            raise _bad(f"{name} has no value", field, f"for example {field} {name}=1")
        if len(text.encode("utf-8", "replace")) > MAX_TASK_TAG or not text.isprintable():
            raise _bad(
                f"the value of {name} is too long or not plain text", field, f"at most {MAX_TASK_TAG} bytes in one line"
            )
        tags[name] = value_of(text)
    if len(tags) > MAX_OWN_TAGS:
        raise _bad(f"{len(tags)} tags are too many", field, f"at most {MAX_OWN_TAGS}")
    return tags


def _bad(message: str, field: str, hint: str) -> BadInput:
    return BadInput(message, code="bad_tag", field=field, hint=hint)


def parse_line(line: bytes) -> Optional[tuple[str, TagValue]]:
    """The tag in a line that a task wrote; None: it is no tag. An empty value removes the tag."""
    try:
        name, is_given, text = line.decode("utf-8").partition("=")
    except UnicodeDecodeError:
        return None
    name, text = name.strip(), text.strip()
    if not is_given or not NAME.fullmatch(name) or not text.isprintable():
        return None
    if len(text) > MAX_TASK_TAG or len(text.encode("utf-8")) > MAX_TASK_TAG:
        return None
    return name, value_of(text)
