"""Files that are named by a URL: inputs, and places where outputs are stored.

`https://host/path/name`, `http://...`, `file:///path/name` for a file that hosts see under this path, and `root://host//path/name`
(XRootD) are read and written by the pilot. Any other scheme, such as `s3://bucket/name`, is fsspec's: the submitter's side
reads it when the task is submitted, and writes it when outputs are fetched, with the credentials that are there. With
`#sha256=HEX` at the end of an input its bytes are checked, and stay in the cache of the host for other tasks.
`storage:NAME` is a place for an output: the storage of the site, by its own rules of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_FILES
from shoal.model.task.checks import short_text

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_DIGEST = re.compile(r"sha256=[0-9a-f]{64}")
FILE, STORAGE = "file", "storage"
WEB = ("http", "https")
XROOTD = ("root", "roots", "xroot", "xroots")
_PILOTS = (FILE, STORAGE, *WEB, *XROOTD)


class UrlInput(NamedTuple):
    """A file that is, or will be, elsewhere."""

    url: str  # without the digest; of a file its path, of a file in the site's storage its name there
    name: str  # in the task's directory
    digest: str  # empty: it was not said
    scheme: str

    @property
    def is_remote(self) -> bool:
        """True if pilots do not read or write such URLs, but the submitter's side does."""
        return self.scheme not in _PILOTS


def is_url(text: str) -> bool:
    """True if an input is named by a URL."""
    return _SCHEME.match(text) is not None


def has_urls(inputs: Iterable[str]) -> bool:
    """True if any input is named by a URL: then the task has a directory of its own."""
    return any(map(is_url, inputs))


def parse_url(text: str, field: str = "inputs") -> Optional[UrlInput]:
    """The URL of an input; None if it is the name of a file."""
    if not is_url(text):
        return None
    from urllib.parse import unquote, urlsplit  # few processes need it, and none to start

    try:
        parts = urlsplit(text)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        raise BadInput(
            f"{echo(text)!r} is no URL", code="bad_path", field=field, hint="check its host and port"
        ) from None
    if "@" in parts.netloc:
        hint = "whoever lists the run would read them: let the task fetch this file by itself"
        raise BadInput("a URL with a name or password", code="bad_path", field=field, hint=hint)
    fragment = parts.fragment
    if fragment and not _DIGEST.fullmatch(fragment):
        hint = "#sha256= and 64 hexadecimal digits in lower case"
        raise BadInput(f"{echo('#' + fragment)!r} is no digest", code="bad_digest", field=field, hint=hint)
    name, scheme = unquote(parts.path).rpartition("/")[2], parts.scheme.lower()
    if scheme == FILE:
        is_right = not parts.netloc and not parts.query
    else:
        is_right = port_is_right and (bool(parts.hostname) or scheme not in (*WEB, *XROOTD))
    if not is_right or name in ("", ".", "..") or not {"\0", "\n"}.isdisjoint(text) or name.startswith("-"):
        hint = "such as https://host/path/name, or file:///path/name"
        raise BadInput(f"{echo(text)!r} names no file", code="bad_path", field=field, hint=hint)
    digest = fragment.replace("=", ":", 1)
    url = unquote(parts.path) if scheme == FILE else scheme + text.partition("#")[0][len(scheme) :]
    return UrlInput(url, name, digest, scheme)


def parse_place(text: str, field: str = "store") -> UrlInput:
    """Where an output is to be stored: a URL, or `storage:NAME`."""
    if text.startswith(STORAGE + ":") and not is_url(text):
        name = text[len(STORAGE) + 1 :]
        if name[:1] in ("", "/", "-") or not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name:
            hint = "such as storage:results/out.dat, relative and without .."
            raise BadInput(f"{echo(text)!r} names no file", code="bad_path", field=field, hint=hint)
        return UrlInput(name, name.rpartition("/")[2], "", STORAGE)
    found = parse_url(text, field)
    if found is None or found.digest or (" " in text and found.scheme in WEB):
        hint = "such as file:///store/out.dat, https://host/out.dat, s3://bucket/out.dat or storage:out.dat"
        raise BadInput(f"{echo(text)!r} is no place for an output", code="bad_path", field=field, hint=hint)
    return found


def read_places(value: Any, field: str) -> dict[str, str]:
    """Names of outputs with the places where they are stored, checked."""
    if not isinstance(value, dict) or len(value) > MAX_FILES:
        raise BadInput(f"expected a table of at most {MAX_FILES:,} outputs with places", code="wrong_type", field=field)
    for name, place in value.items():
        short_text(name, field, 4096)
        parse_place(short_text(place, field, 4096), field)
    return dict(value)


def place_text(store: Mapping[str, str], output: str, file: str) -> str:
    """Where a file of an output is to be stored: the output itself, or a file in it, which keeps its place below; empty: nowhere
    in particular."""
    text, below = store.get(output, ""), file[len(output) :]
    if not text or not below or text.partition(":")[0].lower() not in (FILE, *WEB):
        return text + below if text else ""
    from urllib.parse import quote

    return text + quote(below)


def place_of(store: Mapping[str, str], output: str, file: str) -> Optional[UrlInput]:
    """The same, read."""
    text = place_text(store, output, file)
    return parse_place(text) if text else None
