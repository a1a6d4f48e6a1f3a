"""Files at any URL of fsspec (s3, gs, sftp, ...): read when they are inputs, written when they are places of outputs.

It happens where the submitter's commands run, with the credentials that fsspec finds there; neither the server nor pilots get
any. fsspec is the extra `storage`, and each kind of storage has a package of its own (s3fs, gcsfs, ...).
"""

from __future__ import annotations

import contextlib
import shutil
from typing import Any, BinaryIO

from shoal.model.errors import BadInput, Refused, echo

PIECE = 1 << 20
EXTRA = "pip install 'shoal[storage]'"


def read_into(url: str, file: BinaryIO) -> int:
    """Write the bytes at a URL into a file; returns how many there are."""
    with _explained(url, "read"), _open(url, "rb") as source:
        shutil.copyfileobj(source, file, PIECE)
        return file.tell()


def write_from(url: str, file: BinaryIO) -> None:
    """Write what is in a file to a URL, in place of what is there. Folders on the way are made where there are any."""
    with _explained(url, "written"):
        system, path = _import(url).core.url_to_fs(url)
        parent = system._parent(path)
        with contextlib.suppress(NotImplementedError, PermissionError):  # of object stores there is nothing to make
            if parent and parent != path:
                system.makedirs(parent, exist_ok=True)
        with system.open(path, "wb") as target:
            shutil.copyfileobj(file, target, PIECE)


def is_stored(url: str, size: int, since: float) -> bool:
    """True if there is a file of this size that was written since: to write it again is not needed."""
    with contextlib.suppress(Exception):  # whatever a file system cannot tell: then it is written
        system, path = _import(url).core.url_to_fs(url)
        return bool(system.size(path) == size and system.modified(path).timestamp() >= since)
    return False


def _open(url: str, mode: str) -> Any:
    return _import(url).open(url, mode)


def _import(url: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped]  # it ships no types, and is an extra
    except ImportError:
        raise Refused(f"{echo(url)} needs fsspec, which is not installed", code="no_fsspec", hint=EXTRA) from None
    return fsspec


@contextlib.contextmanager
def _explained(url: str, what: str) -> Any:
    """Errors of fsspec and of the packages behind it, of whatever kind, as one of ours."""
    try:
        yield
    except (BadInput, Refused):
        raise
    except ImportError as error:  # it says which package is missing
        raise Refused(
            f"{echo(url)} cannot be {what}: {error}", code="no_fsspec", hint=f"{EXTRA} and that package"
        ) from None
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {echo(url)}", code="no_such_file", field="inputs", hint="check the URL"
        ) from None
    except Exception as error:
        hint = "check the URL, and the credentials that fsspec finds on this machine"
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise Refused(f"{echo(url)} cannot be {what}: {text}", code="storage", hint=hint) from None
