"""Questions about the files of running tasks that wait for the answer of a pilot, which comes with an exchange."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence
from typing import NamedTuple

from shoal.model.errors import TooBusy
from shoal.model.limits import MAX_PEEKS
from shoal.wire.messages import FileAnswer


class _Question(NamedTuple):
    pilot: str
    answer: asyncio.Future[FileAnswer]


class FileAnswers:
    """Who waits for which answer."""

    def __init__(self) -> None:
        self._questions: dict[str, _Question] = {}

    def new_request(self) -> str:
        """The name of a new question: no other pilot can guess it."""
        return secrets.token_hex(16)

    async def wait(self, pilot: str, request: str, within: float) -> FileAnswer | None:
        """The answer of a pilot; None if it does not come in time."""
        if sum(question.pilot == pilot for question in self._questions.values()) >= MAX_PEEKS:
            raise TooBusy(f"pilot {pilot} has many such questions to answer", after=1.0, hint="ask again in a second")
        question = _Question(pilot, asyncio.get_running_loop().create_future())
        self._questions[request] = question
        try:
            return await asyncio.wait_for(question.answer, within)
        except TimeoutError:
            return None
        finally:
            del self._questions[request]

    def deliver(self, names: Collection[str], answers: Sequence[FileAnswer]) -> None:
        """Give answers of a pilot, by any of the names it had, to whoever waits for them."""
        for one in answers:
            question = self._questions.get(one.request)
            if question is not None and question.pilot in names and not question.answer.done():
                question.answer.set_result(one)
