"""What is in the files that a task reads: each with the blob that holds it, for pilots that do not see the submitter's files.

The text of one file is `sha256:DIGEST MODE`, with its permission bits in octal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_CONTENT
from shoal.model.task.checks import short_text


class Content(NamedTuple):
    """The bytes of one file, and its permission bits."""

    digest: str
    mode: int

    @property
    def text(self) -> str:
        """As it travels."""
        return f"{self.digest} {self.mode:03o}"


def parse_content(text: str, field: str = "content") -> Content:
    """The content from its text."""
    digest, _, mode = text.partition(" ")
    if not is_digest(digest) or len(mode) != 3 or mode.strip("01234567"):
        hint = "the client writes it; leave the field out"
        raise BadInput(f"{echo(text)!r} is no content of a file", code="bad_digest", field=field, hint=hint)
    return Content(digest, int(mode, 8))


def read_content(value: Any, field: str) -> dict[str, str]:
    """Names of files with their content, checked."""
    if not isinstance(value, dict) or len(value) > MAX_CONTENT:
        raise BadInput(f"expected at most {MAX_CONTENT:,} files with their content", code="wrong_type", field=field)
    for name, text in value.items():
        short_text(name, field, 4096)
        parse_content(short_text(text, field, 128), field)
    return dict(value)
