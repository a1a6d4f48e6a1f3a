"""How long jobs wait in queues: distributions as quantiles, interpolated on a logarithmic scale; the user's own from a file."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass

Floats = NDArray[np.float64]
SHORTEST = 1e-3  # seconds; less counts as this, since its logarithm is used
LONGEST = 10 * 365 * 86_400.0
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Waits:
    """A distribution of waits, in seconds. Between two shares p the logarithm of the wait is linear in log(1 - p), as a
    power law is."""

    name: str
    shares: Floats  # rising, from 0 to below 1
    seconds: Floats  # the wait that this share of the jobs does not exceed

    def at(self, share: Floats) -> Floats:
        """The wait at these shares."""
        return self._beyond(-np.log1p(-np.minimum(share, self.shares[-1])))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats:
        """Waits, drawn independently."""
        return self._beyond(rng.standard_exponential(size))  # what -log(1 - p) of an even share p is

    def draw(self, rng: Random) -> float:
        """One wait, as the distributions of a world are drawn."""
        return float(self._beyond(np.array([rng.expovariate(1.0)]))[0])

    def _beyond(self, hazard: Floats) -> Floats:
        found: Floats = np.exp(np.interp(hazard, -np.log1p(-self.shares), np.log(self.seconds)))
        return found


def waits_of(name: str, seconds: Floats) -> Waits:
    """The distribution of observed waits."""
    ordered = np.sort(np.maximum(seconds, SHORTEST))
    return Waits(name, np.arange(len(ordered)) / len(ordered), ordered)


def read_waits(path: str) -> Waits:
    """The user's own waits: seconds, one number per line; empty lines and lines that begin with # do not count."""
    try:
        data = Path(path).read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise BadInput(
            f"cannot read {echo(path)}: {error.strerror}", code="bad_waits", field="--waits"
        ) from None  # fmt: skip
    if len(data) > MOST_BYTES:
        raise BadInput(f"{echo(path)} has more than {MOST_BYTES >> 20} MiB", code="bad_waits", field="--waits")
    found = []
    for line, raw in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= LONGEST:
            raise BadInput(
                f"{echo(path)}, line {line}: {echo(text)!r} is not a wait", code="bad_waits", field="--waits",
                hint="write seconds from 0 to ten years, one number per line",
            )  # fmt: skip
        found.append(value)
    if not found:
        raise BadInput(
            f"{echo(path)} holds no wait", code="bad_waits", field="--waits", hint="write seconds, one number per line"
        )
    return waits_of("own", np.array(found))
