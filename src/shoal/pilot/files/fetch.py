"""A file by its digest: from the host's cache, or from the first place that gives the right bytes [CMS C7; LBO D4].

What comes is written to a private file and hashed on the way; only whole and right bytes get a name [promise I15]. A place
that fails is tried last for a while, and what was wrong with it is kept to be reported. Everything here blocks: it is called on
`file_threads`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Optional, Protocol, Union

from shoal.data.sources import CACHE, Failure, Place, Places
from shoal.model.blobs import Bytes, parse_digest
from shoal.model.errors import BadInput
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.files.parts import PIECE, Held, NoRoom, Part, PrivatePart, WrongBytes
from shoal.pilot.host import disk_space

log = logging.getLogger(__name__)

PATIENCE = 600.0  # seconds for which another pilot of the host may fetch the file that we need
UNKNOWN_KEPT = 10_000
UNWANTED = "the task that needs it was stopped"
LOOK, LONGEST_LOOK = 0.01, 0.2  # seconds between two looks whether it has it


class Write(Protocol):
    """Where the bytes of a file go, in order. What it raises is not the place's to handle, except `WrongBytes`."""

    def __call__(self, data: Bytes) -> None:
        """Append bytes."""

    @property
    def written(self) -> int:
        """How many there are."""

    def expect(self, size: int) -> None:
        """The place says how large the file is: it gets the time for so many bytes."""

    def restart(self) -> None:
        """Forget them: a place that has several to ask begins anew with another."""

    def is_right(self) -> bool:
        """True if they are the whole file."""


class NoBlob(Exception):
    """A blob cannot be fetched or stored; the text says why. `transient`: a later try may succeed; `no_space`: there is no space
    for it here; `too_large`: while there is for others."""

    def __init__(self, why: str, transient: bool = False, no_space: bool = False, too_large: bool = False) -> None:
        super().__init__(why)
        self.transient, self.no_space, self.too_large = transient, no_space, too_large


class NotHere(Exception):
    """A place does not have the file: no fault of its."""


class SourceFailed(Exception):
    """A place did not give a file that it should have; the text says why. `transient`: a later try may succeed."""

    def __init__(self, why: str, transient: bool = True) -> None:
        super().__init__(why)
        self.transient = transient


class _Unwanted(Exception):
    """Nobody needs the file any more. It passes through every place: none of them failed."""


class Source(Protocol):
    """A place that may have files."""

    @property
    def place(self) -> Place:
        """Its kind, and its name for people."""

    def fetch(self, digest: str, size: Optional[int], write: Write, deadline: float) -> None:
        """Give all bytes of a file in order to `write`, until `time.monotonic()` is `deadline`. NotHere if it has no such file,
        SourceFailed if it breaks off; what `write` raises passes through. Nothing needs to be checked: `write` does that."""


class Fetched(NamedTuple):
    """A file that is here now, until `held` is closed."""

    held: Held
    origin: str  # `CACHE`, or the kind of the place that it came from
    seconds: float


class Fetcher:
    """Fetches files for one pilot. May be used by several threads."""

    def __init__(
        self,
        cache: HostCache,
        sources: Sequence[Source] = (),
        private: str = "",
        came: Callable[[Place, int, float], None] = lambda place, size, seconds: None,
    ) -> None:
        """`private`: a directory for files that have no place in the cache; `came` is called with each file that was fetched."""
        self.cache, self.places = cache, Places()
        self._sources: list[Source] = list(sources)
        self._private, self._numbers = private, itertools.count(1)
        self._came = came
        self._unknown: dict[str, str] = {}  # what `fetch_unknown` found
        self._end = threading.Event()
        self._mutex = threading.Lock()  # of `places`
        self._thread = threading.local()  # `is_wanted`: of what this thread fetches

    def add(self, source: Source) -> None:
        """Look for files there, too."""
        self._sources.append(source)

    def close(self) -> None:
        """The pilot ends: nothing waits for others any longer."""
        self._end.set()

    @contextlib.contextmanager
    def while_wanted(self, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """What this thread fetches meanwhile is given up, with NoBlob, when it is not wanted any more: the last place for a file
        has all the time that it needs, and would hold the thread as long."""
        self._thread.is_wanted = is_wanted
        try:
            yield
        finally:
            del self._thread.is_wanted

    def _is_wanted(self) -> bool:
        is_wanted: Optional[Callable[[], bool]] = getattr(self._thread, "is_wanted", None)
        return is_wanted is None or is_wanted()

    def take_failures(self) -> list[Failure]:
        """Places that failed since the last call, to be reported."""
        with self._mutex:
            return self.places.take_failures()

    def note_failure(self, place: Place, digest: str, why: str) -> None:
        """A place with many behind it says which of them failed."""
        with self._mutex:
            self.places.failed(place, digest, why, time.monotonic())

    def fetch(self, digest: str, size: Optional[int] = None, near: Sequence[Source] = ()) -> Fetched:
        """A file with these bytes; `near`: places of this very file, beside those of all. NoBlob says what every place said."""
        try:
            parse_digest(digest)
        except BadInput as error:
            raise NoBlob(str(error)) from None
        began, pause = time.monotonic(), LOOK
        while True:
            held = self.cache.open(digest)
            if held is not None:
                return Fetched(held, CACHE, time.monotonic() - began)
            part = self._begin(digest, size)
            if part is not None:
                break
            if time.monotonic() - began > PATIENCE:
                raise NoBlob(f"{digest}: another pilot of this host fetches it, and does not get on", transient=True)
            if self._end.wait(pause):
                raise NoBlob("the pilot ends", transient=True)
            if not self._is_wanted():
                raise NoBlob(UNWANTED, transient=True)
            pause = min(2 * pause, LONGEST_LOOK)
        return self._fill(digest, size, part, [*near, *self._sources], began)

    def fetch_unknown(self, source: Source, key: str) -> Fetched:
        """A file of which only the place is known. Its bytes go into the cache under the digest that they turn out to have; with
        the same key, the same bytes are given again as long as they are there."""
        with self._mutex:
            known = self._unknown.get(key)
        if known is not None:
            held = self.cache.open(known)
            if held is not None:
                return Fetched(held, CACHE, 0.0)
        began = time.monotonic()
        part = PrivatePart(self._private_path("unknown"), "", None)
        try:
            writing = _Writing(part, lambda why: self._begin_private("", None, why), self._is_wanted)
            source.fetch("", None, writing, float("inf"))
            held = part.finish()
        except (NotHere, SourceFailed) as error:
            part.drop()
            raise NoBlob(f"{source.place.name}: {error}", transient=getattr(error, "transient", False)) from None
        except NoRoom as error:
            part.drop()
            raise self._no_room(source.place.name, None, error) from None
        except _Unwanted:
            part.drop()
            raise NoBlob(UNWANTED, transient=True) from None
        except BaseException:
            part.drop()
            raise
        seconds = time.monotonic() - began
        self._came(source.place, held.size, seconds)
        with self._mutex:
            self._unknown[key] = part.digest
            if len(self._unknown) > UNKNOWN_KEPT:
                del self._unknown[next(iter(self._unknown))]
        with open(held.path, "rb", buffering=0) as file:
            self.keep(part.digest, held.size, iter(lambda: file.read(PIECE), b""))
        return Fetched(held, source.place.kind, seconds)

    def keep(self, digest: str, size: int, pieces: Iterator[bytes]) -> bool:
        """Put bytes that are on this host already into the cache; False where it has no space, or where they were changed
        meanwhile: then what needs them fetches them."""
        here = self.cache.open(digest)
        if here is not None:
            here.close()
            return True
        try:
            part = self.cache.begin(digest, size)
            if part is None:
                return False  # somebody fetches it
            try:
                for data in pieces:
                    part.write(data)
                part.finish().close()
            except BaseException:
                part.drop()
                raise
        except (NoRoom, WrongBytes):
            return False
        return True

    def _private_path(self, name: str) -> str:
        folder = self._private or f"{self.cache.folder}-{os.getpid()}"
        return os.path.join(folder, f"{name}-{os.getpid()}-{next(self._numbers)}")

    def _begin(self, digest: str, size: Optional[int]) -> Optional[Union[Part, PrivatePart]]:
        try:
            return self.cache.begin(digest, size)
        except NoRoom as error:
            return self._begin_private(digest, size, error)

    def _begin_private(self, digest: str, size: Optional[int], why: NoRoom) -> PrivatePart:
        """Without the cache there is one file for each use: that takes time, and no task fails for it."""
        if not self._private:
            raise NoBlob(f"{digest} finds no room here: {why}", transient=True, no_space=True)
        try:
            return PrivatePart(self._private_path(digest[-16:]), digest, size)
        except NoRoom as error:
            raise self._no_room(digest, size, error) from None

    def _no_room(self, digest: str, size: Optional[int], why: NoRoom) -> NoBlob:
        """A disk that is full is the host's failure; a file that has no place on one where tasks can run, is not."""
        with contextlib.suppress(OSError):
            folder = os.path.dirname(self._private or self.cache.folder)
            free = disk_space.free(folder)
            if size is not None and size > free and free >= disk_space.PLENTY:
                return NoBlob(f"it has {size:,} bytes, and {free:,} are free in {folder}", too_large=True)
        return NoBlob(f"{digest} finds no room here: {why}", transient=True, no_space=True)

    def _fill(
        self, digest: str, size: Optional[int], part: Union[Part, PrivatePart], sources: Sequence[Source], began: float
    ) -> Fetched:
        writing = _Writing(part, lambda why: self._begin_private(digest, size, why), self._is_wanted)
        said: list[str] = []
        may_pass = False  # True: a later try may succeed
        try:
            with self._mutex:
                order = self.places.order([source.place for source in sources], time.monotonic())
            for at, number in enumerate(order):
                source, now = sources[number], time.monotonic()
                writing.time_for = partial(self.places.deadline, source.place, now=now, is_last=at == len(order) - 1)
                writing.deadline = writing.time_for(size or 0)
                try:
                    source.fetch(digest, size, writing, writing.deadline)
                    held = writing.finish()
                except NotHere as error:
                    said.append(f"{source.place.name}: {error}")
                except (SourceFailed, WrongBytes) as error:
                    said.append(f"{source.place.name}: {error}")
                    may_pass = may_pass or (isinstance(error, SourceFailed) and error.transient)
                    with self._mutex:
                        self.places.failed(source.place, digest, str(error), time.monotonic())
                    log.warning("file from=%s digest=%s failed: %s", source.place.name, digest, error)
                else:
                    with self._mutex:
                        self.places.succeeded(source.place)
                    self._came(source.place, held.size, time.monotonic() - now)
                    return Fetched(held, source.place.kind, time.monotonic() - began)
                writing.part.restart()
        except NoRoom as error:
            writing.part.drop()
            raise self._no_room(digest, size, error) from None
        except _Unwanted:
            writing.part.drop()
            raise NoBlob(UNWANTED, transient=True) from None
        except BaseException:
            writing.part.drop()
            raise
        writing.part.drop()
        raise NoBlob("; ".join(said) or f"nobody has {digest}", transient=may_pass)


class _Writing:
    """The file that is being written: in the cache, or beside it as soon as that has no place."""

    def __init__(
        self,
        part: Union[Part, PrivatePart],
        begin_private: Callable[[NoRoom], PrivatePart],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.part, self.deadline = part, float("inf")
        # Until when the place that is asked now may take for so many bytes.
        self.time_for: Callable[[int], float] = lambda size: float("inf")
        self._begin_private, self._is_wanted = begin_private, is_wanted

    @property
    def written(self) -> int:
        return self.part.written

    def expect(self, size: int) -> None:
        self.deadline = max(self.deadline, self.time_for(size))

    def restart(self) -> None:
        self.part.restart()

    def is_right(self) -> bool:
        return self.part.is_right()

    def __call__(self, data: Bytes) -> None:
        """Append bytes, until the deadline: a place that gives a byte now and then is cut, too [input E66]."""
        if not self._is_wanted():
            raise _Unwanted
        if time.monotonic() > self.deadline:
            raise SourceFailed("it is too slow")
        try:
            self.part.write(data)
        except NoRoom as error:
            self._go_beside(error)
            self.part.write(data)

    def finish(self) -> Held:
        """The whole file, in the cache if that takes it."""
        try:
            return self.part.finish()
        except NoRoom as error:
            self._go_beside(error)
            return self.part.finish()

    def _go_beside(self, error: NoRoom) -> None:
        if isinstance(self.part, PrivatePart):
            raise error
        beside = self._begin_private(error)
        try:
            self.part.copy_to(beside)
        except BaseException:
            beside.drop()
            raise
        self.part.drop()
        self.part = beside
