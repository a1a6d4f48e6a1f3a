"""What is in the files that a task reads: each with the blob that holds it, for pilots that do not see the submitter's files.

The text of one file is `sha256:DIGEST MODE SIZE`, with its permission bits in octal, and then the place (`url_input`) where it is
if that is not on the server; that of an empty directory `directory MODE`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_CONTENT
from shoal.model.task.checks import short_text

DIRECTORY = "directory"  # instead of a digest


class Content(NamedTuple):
    """The bytes of one file, and its permission bits."""

    digest: str  # `DIRECTORY`: it is an empty one
    mode: int
    size: Optional[int] = None  # None: it was not said
    url: str = ""  # the place where it is, if it is not on the server

    @property
    def text(self) -> str:
        """As it travels."""
        text = f"{self.digest} {self.mode:03o}" + (f" {self.size}" if self.size is not None else "")
        return f"{text} {self.url}" if self.url and self.size is not None else text

    @property
    def is_directory(self) -> bool:
        """True if there are no bytes to fetch."""
        return self.digest == DIRECTORY


def parse_content(text: str, field: str = "content") -> Content:
    """The content from its text."""
    digest, _, rest = text.partition(" ")
    mode, _, rest = rest.partition(" ")
    size, _, url = rest.partition(" ")
    is_size = not size or (size.isascii() and size.isdigit() and len(size) <= 15)
    if not (is_digest(digest) or digest == DIRECTORY) or len(mode) != 3 or mode.strip("01234567") or not is_size:
        hint = "the client writes it; leave the field out"
        raise BadInput(f"{echo(text)!r} is no content of a file", code="bad_digest", field=field, hint=hint)
    return Content(digest, int(mode, 8), int(size) if size else None, url)


def read_content(value: Any, field: str) -> dict[str, str]:
    """Names of files with their content, checked."""
    if not isinstance(value, dict) or len(value) > MAX_CONTENT:
        raise BadInput(f"expected at most {MAX_CONTENT:,} files with their content", code="wrong_type", field=field)
    for name, text in value.items():
        short_text(name, field, 4096)
        parse_content(short_text(text, field, 128), field)
    return dict(value)
