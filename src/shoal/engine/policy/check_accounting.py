"""Count again what policy keeps count of, from the live attempts, and compare [promise I14, I24]."""

from __future__ import annotations

from collections import Counter

from shoal.engine.state import State


def check_books(state: State) -> list[str]:
    """Everything that does not add up; empty if all is well."""
    wrong: list[str] = []
    cores: Counter[tuple[str, str]] = Counter()
    licences: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    queued: Counter[str] = Counter()
    for run in state.runs.values():
        queued[run.owner] += run.total - run.settled
        for array in run.arrays:
            needs = array.spec.needs
            for task in array.tasks.values():
                for attempt in task.live.values():
                    if attempt.site is None:
                        continue
                    cores[run.owner, attempt.site] += needs.cores
                    shares[run.owner] += attempt.cores
                    licences.update(dict(needs.licences))
            for chunk in array.chunks:
                cores[run.owner, state.pilots[chunk.pilot].site] += needs.cores * len(chunk.left)
                licences.update({name: count * len(chunk.left) for name, count in needs.licences})
    counted = state.accounting.ledger.counts()
    for name, found, kept in (
        ("cores by owner and site", cores, counted.running),
        ("licences", licences, state.accounting.licences),
        ("cores by share", shares, state.accounting.tree.cores()),
        ("queued tasks", queued, counted.queued),
        ("cores of sites", _capacity(state), counted.capacity),
    ):
        left, right = ({key: value for key, value in table.items() if value} for table in (found, kept))
        if left != right:
            wrong.append(f"{name}: {left} found, {right} counted")
    return wrong


def _capacity(state: State) -> Counter[str]:
    found: Counter[str] = Counter()
    for pilot in state.pilots.values():
        if not pilot.draining:
            found[pilot.site] += pilot.room.cores
    return found
