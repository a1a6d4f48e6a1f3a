"""Seals: only the pilot and the server can make one, and nothing under it can be changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.model.credentials import alias, digest
from shoal.wire.seal import ANSWER, EXCHANGE, KEPT, YOURSELF, SealedAnswer, is_genuine, parse_answer, seal

SESSION = digest("shoal_ses_" + "a" * 43)


def test_a_seal_is_of_one_pilot_one_kind_and_one_message() -> None:
    sealed = seal(SESSION, EXCHANGE, "p1", '{"seq":1}')
    assert is_genuine(SESSION, EXCHANGE, sealed)
    assert not is_genuine(SESSION, ANSWER, sealed)
    assert not is_genuine(SESSION, KEPT, sealed)
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, pilot="p2"))
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, body='{"seq":2}'))
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, body=sealed.body[:-1]))
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, seal=sealed.seal[:-1]))
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, seal=""))
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, seal="é" * 64))


def test_where_the_name_of_a_pilot_ends_cannot_be_moved() -> None:
    sealed = seal(SESSION, EXCHANGE, "p1", "2\nx")
    assert not is_genuine(SESSION, EXCHANGE, replace(sealed, pilot="p1\n2", body="x"))


def test_what_tasks_can_read_of_a_session_makes_no_seal() -> None:
    secret = "shoal_ses_" + "a" * 43
    assert alias(secret) == digest(SESSION)
    sealed = seal(alias(secret), EXCHANGE, "p1", "{}")
    assert not is_genuine(SESSION, EXCHANGE, sealed)


def test_an_answer_says_to_which_exchange_and_how_it_ended() -> None:
    answer = SealedAnswer(7, 409, '{"error":{}}\nmore')
    assert parse_answer(answer.pack()) == answer
    assert parse_answer(SealedAnswer(7, YOURSELF).pack()) == SealedAnswer(7, YOURSELF)


@pytest.mark.parametrize("body", ["", "7", "7 \nx", "-7 200\nx", "7 20x\n", "\u0667 200\n", "1" * 17 + " 200\n"])
def test_what_is_no_answer_is_none(body: str) -> None:
    assert parse_answer(body) is None
