"""Bodies in memory: charged as they come, for each owner and for all, and let go again."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shoal.model.credentials import SESSION, SUBMIT
from shoal.model.errors import TooBusy, TooLarge
from shoal.model.limits import MAX_SMALL_BODY, MAX_VALUES
from shoal.server.http.bodies import Bodies


def test_an_owner_has_half_and_everybody_together_the_whole() -> None:
    bodies = Bodies(total=100, of_owner=50)
    charges = {name: bodies.charge(SUBMIT, name) for name in ("anna", "mike", "olaf")}
    charges["anna"].take(b"x" * 50)
    with pytest.raises(TooBusy):
        bodies.charge(SUBMIT, "anna").take(b"x")
    charges["mike"].take(b"x" * 50)
    with pytest.raises(TooBusy):
        charges["olaf"].take(b"x")
    bodies.charge(SESSION, "anna").take(b"x" * 50)  # pilots have room of their own
    charges["anna"].release()
    charges["anna"].release()
    charges["olaf"].take(b"x" * 50)
    assert sum(bodies._in_flight.values()) == 150


def test_values_are_counted_while_they_come() -> None:
    charge = Bodies().charge(SUBMIT, "anna")
    with pytest.raises(TooLarge) as caught:
        for _ in range(MAX_VALUES // 1_000):
            charge.take(b"[]," * 1_000)
    assert caught.value.code == "too_many_values"


def test_large_ones_are_worked_on_by_another_thread_and_small_ones_at_once() -> None:
    async def story() -> tuple[str, str]:
        bodies = Bodies()
        names = []
        for size in (MAX_SMALL_BODY, MAX_SMALL_BODY + 1):
            charge = bodies.charge(SUBMIT, "anna")
            charge.take(b"x" * size)
            names.append(await charge.work(lambda: threading.current_thread().name))
            charge.release()
        bodies.close()
        return names[0], names[1]

    small, large = asyncio.run(story())
    assert small == threading.current_thread().name and large.startswith("body")
