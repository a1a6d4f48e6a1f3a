"""An exchange that passes a leader does what it would have done by itself, also where the leader repeats old ones
[promise I18; ADR 0062]."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.engine.changes import Answer
from shoal.engine.commands import Talk
from shoal.engine.exchanges.bundles import Envelope, open_exchange
from shoal.model.credentials import digest
from shoal.model.errors import Conflict
from shoal.wire import codec
from shoal.wire.messages import Exchange, Sealed
from shoal.wire.seal import EXCHANGE, seal
from tests.property.test_chunks import Play
from tests.unit.engine.stand import FakePilot

PROVE = os.environ.get("SHOAL_PROVE") == "1"


@contextmanager
def by_leader(rng: Random, repeats: bool) -> Iterator[None]:
    seen: list[tuple[str, Sealed]] = []

    def send(self: FakePilot, exchange: Exchange) -> Answer | None:
        session = digest(self.session)
        body = codec.encode(replace(exchange, session="")).decode()
        seen.append((session, seal(session, EXCHANGE, self.name, body)))
        if repeats:
            for old in rng.sample(seen, min(len(seen), 2)):
                with suppress(Conflict):
                    if old[1].pilot in self.stand.engine.state.pilots and old is not seen[-1]:
                        self.stand.do(Talk(open_exchange(Envelope(*old)), is_sealed=True))
        outcome = self.stand.do(Talk(open_exchange(Envelope(*seen[-1])), is_sealed=True))
        found = [a for a in outcome.answers if (a.pilot, a.seq) == (self.name, exchange.seq)]
        return found[0] if found else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakePilot, "send", send)
        yield


@given(st.integers(0, 10**9), st.integers(5, 40), st.booleans())
@settings(max_examples=100 if PROVE else 10, deadline=None)
def test_by_way_of_a_leader_and_alone_is_the_same(seed: int, steps: int, repeats: bool) -> None:
    alone = Play(seed, batched=False)
    for _ in range(steps):
        alone.step()
    with by_leader(Random(seed), repeats):
        handed_on = Play(seed, batched=False)
        for _ in range(steps):
            handed_on.step()
    assert handed_on.told == alone.told
    assert handed_on.ends() == alone.ends()
