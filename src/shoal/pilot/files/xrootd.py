"""Files at an XRootD server, by the command `xrdcp` of the host: `root://host//path/name`.

Credentials are those that the command finds on the host. Where there is no such command, there is no such place.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import IO, Optional

from shoal.data.sources import ORIGIN, Place
from shoal.pilot.files.fetch import NoBlob, NotHere, SourceFailed, Write
from shoal.pilot.files.parts import PIECE
from shoal.pilot.files.web_source import STALL

COMMAND = "xrdcp"
_ABSENT = ("no such file", "[3011]", "unable to open file")  # how its message says that there is no such file
_MESSAGE = 500  # bytes of what it says that are told


class XrootdSource:
    """One file at such a server."""

    def __init__(self, url: str, kind: str = ORIGIN) -> None:
        self.url, self.place = url, Place(kind, url)

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """As `Source.fetch`."""
        command = shutil.which(COMMAND)
        if command is None:
            raise NotHere(f"there is no {COMMAND} on this host")
        with tempfile.TemporaryFile() as said:
            # Its standard output is the file.
            process = subprocess.Popen(
                [command, "-s", "-f", self.url, "-"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            )
            try:
                assert process.stdout is not None
                _read(process.stdout.fileno(), write, deadline)
                status = process.wait(STALL)
            except subprocess.TimeoutExpired:
                raise SourceFailed(f"{COMMAND} does not end") from None
            finally:
                _end(process)
            if status:
                why = _last_words(said, status)
                raise NotHere(why) if any(text in why.lower() for text in _ABSENT) else SourceFailed(why)


def store_at(url: str, fd: int, patience: float) -> None:
    """Store an open file there; NoBlob says what is wrong."""
    command = shutil.which(COMMAND)
    if command is None:
        raise NoBlob(f"{url}: there is no {COMMAND} on this host")
    os.lseek(fd, 0, os.SEEK_SET)
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                [command, "-s", "-f", "-", url], stdin=fd, stdout=subprocess.DEVNULL, stderr=said, timeout=patience,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoBlob(f"{url}: {COMMAND} was ended after {patience:.0f} s", transient=True) from None
        except OSError as error:
            raise NoBlob(f"{url}: {COMMAND} cannot be run: {error.strerror}") from None
        if done.returncode:
            raise NoBlob(f"{url}: {_last_words(said, done.returncode)}", transient=True)


def _read(fd: int, write: Write, deadline: float) -> None:
    while True:
        left = min(STALL, deadline - time.monotonic())
        if left <= 0:
            raise SourceFailed("it is too slow")
        poll = select.poll()  # a pilot may have more files open than `select` takes
        poll.register(fd, select.POLLIN)
        if not poll.poll(left * 1000.0):
            raise SourceFailed(f"no byte came for {left:.0f} s")
        data = os.read(fd, PIECE)
        if not data:
            return
        write(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        process.kill()
        process.wait()


def _last_words(said: IO[bytes], status: int) -> str:
    """The last line that the command wrote."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _MESSAGE))
    lines = said.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), f"{COMMAND} ended with {status}")
