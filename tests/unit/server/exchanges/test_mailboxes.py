"""Mailboxes of leaders: answers wait for the next request, one request at a time, and nothing grows without bound."""

from __future__ import annotations

import asyncio

import pytest

from shoal.model.errors import TooBusy
from shoal.model.limits import MAX_BUNDLE, MAX_BUNDLE_BYTES, MAX_BUNDLED
from shoal.server.exchanges.mailboxes import Mailbox, Mailboxes
from shoal.wire.messages import Sealed


def sealed(number: int, size: int = 1) -> Sealed:
    return Sealed(f"p{number}", "x" * size, "")


def test_a_request_is_answered_as_soon_as_there_is_something_and_a_newer_one_replaces_it() -> None:
    async def play() -> None:
        box, loop = Mailbox(), asyncio.get_running_loop()
        coming: asyncio.Future[Sealed] = loop.create_future()

        async def later() -> Sealed:
            return await coming

        box.expect(("p1", 1), later())
        assert box.expects(("p1", 1))
        first = loop.create_task(box.take(30.0))
        await asyncio.sleep(0)
        second = loop.create_task(box.take(30.0))
        assert await first == [], "its pilot asks anew"
        coming.set_result(sealed(1))
        assert await second == [sealed(1)]
        assert not box.expects(("p1", 1))
        assert box.is_idle
        assert await box.take(0.0) == []

    asyncio.run(play())


def test_an_answer_that_nobody_took_waits_for_the_next_request() -> None:
    async def play() -> None:
        box = Mailbox()
        for number in range(3):
            box.put(sealed(number))
        assert await box.take(30.0) == [sealed(0), sealed(1), sealed(2)]

    asyncio.run(play())


def test_answers_are_bounded_by_number_and_bytes() -> None:
    async def play() -> None:
        box = Mailbox()
        for number in range(MAX_BUNDLE + 1):
            box.put(sealed(number))
        assert len(await box.take(0.0)) == MAX_BUNDLE
        assert len(await box.take(0.0)) == 1
        for number in range(5):
            box.put(sealed(number, MAX_BUNDLE_BYTES // 2))
        assert [len(await box.take(0.0)) for _ in range(3)] == [2, 2, 1]
        for number in range(3 * MAX_BUNDLED):
            box.put(sealed(number))
        assert (await box.take(0.0))[0] == sealed(MAX_BUNDLED), "the oldest are dropped: their pilots ask again"

    asyncio.run(play())


def test_exchanges_that_wait_are_bounded() -> None:
    async def play() -> None:
        box = Mailbox()

        async def never() -> Sealed:
            await asyncio.sleep(3600)
            return sealed(0)

        for number in range(MAX_BUNDLED):
            box.expect(("p", number), never())
        with pytest.raises(TooBusy):
            box.expect(("p", MAX_BUNDLED), never())

    asyncio.run(play())


LIVING = {"p1", "p2"}


def test_a_mailbox_whose_leader_has_ended_is_forgotten_with_all_that_it_did_not_take() -> None:
    async def play() -> None:
        boxes = Mailboxes()
        one = boxes.of("p1", LIVING)
        one.put(sealed(1))
        boxes.of("p2", {"p2"})
        assert boxes.of("p1", LIVING) is not one

    asyncio.run(play())


def test_a_mailbox_that_is_idle_is_forgotten() -> None:
    async def play() -> None:
        boxes = Mailboxes()
        one = boxes.of("p1", LIVING)
        one.put(sealed(1))
        boxes.of("p2", LIVING)
        assert boxes.of("p1", LIVING) is one
        await one.take(0.0)
        assert boxes.of("p2", LIVING) is not one
        assert boxes.of("p1", LIVING) is not one

    asyncio.run(play())
