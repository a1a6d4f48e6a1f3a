"""What a task of a group takes, from those that ended and those that run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

LIKELY = 0.95


def likely_seconds(ended: Sequence[float], running: Sequence[float]) -> Optional[float]:
    """The 0.95 quantile. The first that end are the short ones: one that has run for longer than the quantile of those counts,
    too, as half done. None if none has ended, or if more run for longer than have ended: then nothing is known."""
    if not ended:
        return None
    usual = _quantile(ended)
    late = [2.0 * age for age in running if age > usual]
    return _quantile([*ended, *late]) if len(late) <= len(ended) else None


def _quantile(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(LIKELY * len(values)))]
