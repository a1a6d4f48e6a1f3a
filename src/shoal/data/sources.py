"""Where a file is looked for, in which order, and for how long [CMS C7; LBO D4].

The kinds of places in order: another pilot's files on the same host, a peer of the site, the site's storage, the server's blobs,
the origin. The cache of the host comes before all of them and is no place of this list. A place that failed is tried last for a
while, longer each time, and each failure is kept to be reported; one that just does not have the file has not failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.model.lazy_dataclass import dataclass
from shoal.model.task.url_input import WEB, XROOTD
from shoal.wire.messages import ORIGINS

CACHE, DIRECTORY, *_KINDS = ORIGINS  # the first two: nothing was fetched
HOST, PEER, STORAGE, SERVER, ORIGIN = ORDER = tuple(_KINDS)
# Seconds in which the whole file must come beside the time for its bytes; none for a place after which there is none: a slow
# line is better than no file, and that bytes keep coming is watched by the transfer itself.
TIMEOUTS = {HOST: 10.0, PEER: 30.0, STORAGE: 60.0}
LEAST_RATE = 256 * 1024.0  # bytes a second, below which another place is better
DEMOTED, MOST_DEMOTED = 30.0, 1800.0  # seconds after the first failure, doubled each time
FAILURES_KEPT = 100
PLACES_KEPT = 1_000


class Place(NamedTuple):
    """One place that may have a file."""

    kind: str
    name: str  # of the peer, the URL, the path: what people read, and what is demoted


class Failure(NamedTuple):
    """A place that did not give a file that it should have."""

    place: Place
    digest: str
    why: str
    at: float


class Rule(NamedTuple):
    """Names that begin with `prefix` are below `target` at this site: a directory, or an http(s) or XRootD URL."""

    prefix: str
    target: str


def parse_rule(text: str) -> Rule:
    """A rule from `PREFIX=TARGET`; ValueError says what is wrong with it."""
    prefix, equals, target = text.partition("=")
    if not equals or not target:
        raise ValueError(
            f"{text!r} is no PREFIX=PLACE, such as data/=/lustre/phys/data/ or =https://store.example.org/"
        )
    if not target.startswith("/") and target.partition("://")[0].lower() not in (*WEB, *XROOTD):
        raise ValueError(f"{target!r} is no absolute path, and no http(s) or root URL")
    return Rule(prefix, target)


def places_of(name: str, rules: Iterable[Rule]) -> list[str]:
    """Where the storage of a site has a file, by its name: the longest prefix first. A name that leads out of its directory has
    no place."""
    if not name or name.startswith("/") or not {"..", "."}.isdisjoint(name.split("/")) or "\0" in name:
        return []
    fitting = sorted((rule for rule in rules if name.startswith(rule.prefix)), key=lambda rule: -len(rule.prefix))
    return [rule.target + name[len(rule.prefix) :] for rule in fitting]


@dataclass
class _Strikes:
    count: int = 0
    until: float = 0.0


class Places:
    """What is known of the places of one pilot."""

    def __init__(self) -> None:
        self._strikes: dict[Place, _Strikes] = {}
        self._failures: list[Failure] = []

    def order(self, places: Sequence[Place], now: float) -> list[int]:
        """The places to try as numbers of this list: by kind, then as given; those that failed lately behind all others."""
        keys = [(self.is_demoted(place, now), ORDER.index(place.kind), at) for at, place in enumerate(places)]
        return [at for _, _, at in sorted(keys)]

    def is_demoted(self, place: Place, now: float) -> bool:
        """True if it failed lately."""
        found = self._strikes.get(place)
        return found is not None and now < found.until

    def deadline(self, place: Place, size: int, now: float, is_last: bool) -> float:
        """Until when a file of this size must have come from a place."""
        timeout = TIMEOUTS.get(place.kind)
        return float("inf") if timeout is None or is_last else now + timeout + size / LEAST_RATE

    def failed(self, place: Place, digest: str, why: str, now: float) -> Failure:
        """Note a failure: the place is demoted."""
        if len(self._strikes) >= PLACES_KEPT:
            del self._strikes[next(iter(self._strikes))]
        found = self._strikes.setdefault(place, _Strikes())
        found.count += 1
        found.until = now + min(DEMOTED * 2 ** (found.count - 1), MOST_DEMOTED)
        failure = Failure(place, digest, why, now)
        if len(self._failures) < FAILURES_KEPT:
            self._failures.append(failure)
        return failure

    def succeeded(self, place: Place) -> None:
        """Note that a place gave right bytes: what it did before is forgotten."""
        self._strikes.pop(place, None)

    def take_failures(self) -> list[Failure]:
        """The failures since the last call, to be reported; the first hundred of them."""
        taken, self._failures = self._failures, []
        return taken
