"""Questions about files that wait for the answer of a pilot."""

from __future__ import annotations

import asyncio

import pytest

from shoal.model.errors import TooBusy
from shoal.model.limits import MAX_PEEKS
from shoal.server.file_answers import FileAnswers
from shoal.wire.messages import FileAnswer


def test_an_answer_reaches_who_asked_also_under_a_later_name_of_the_pilot() -> None:
    async def story() -> FileAnswer | None:
        answers = FileAnswers()
        waiting = asyncio.ensure_future(answers.wait("p1", "q", 60.0))
        await asyncio.sleep(0)
        answers.deliver(["p2"], [FileAnswer("q", data="lie")])  # another pilot cannot answer for it
        answers.deliver(
            ["p3", "p1"], [FileAnswer("other"), FileAnswer("q", data="eA=="), FileAnswer("q", data="twice")]
        )
        return await waiting

    found = asyncio.run(story())
    assert found is not None and found.data == "eA=="


def test_what_is_not_answered_in_time_is_none_and_forgotten() -> None:
    async def story() -> FileAnswer | None:
        answers = FileAnswers()
        found = await answers.wait("p1", "q", 0.01)
        answers.deliver(["p1"], [FileAnswer("q")])  # too late, and no harm
        return found

    assert asyncio.run(story()) is None


def test_one_pilot_is_asked_a_few_things_at_a_time() -> None:
    async def story() -> None:
        answers = FileAnswers()
        waiting = [asyncio.ensure_future(answers.wait("p1", f"q{n}", 60.0)) for n in range(MAX_PEEKS)]
        await asyncio.sleep(0)
        with pytest.raises(TooBusy, match="pilot p1 has many such questions"):
            await answers.wait("p1", "one more", 60.0)
        other = asyncio.ensure_future(answers.wait("p2", "q", 60.0))
        await asyncio.sleep(0)
        answers.deliver(["p1"], [FileAnswer(f"q{n}") for n in range(MAX_PEEKS)])
        answers.deliver(["p2"], [FileAnswer("q")])
        assert all(await asyncio.gather(*waiting, other))

    asyncio.run(story())
