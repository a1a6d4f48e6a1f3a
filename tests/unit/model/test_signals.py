"""A signal has one name, however it is written; what tasks may not be sent is refused with the list."""

from __future__ import annotations

import signal

import pytest

from shoal.model.errors import BadInput
from shoal.model.signals import SIGNALS, parse_signal


@pytest.mark.parametrize("text", ["USR1", "usr1", "SIGUSR1", "sigusr1", "10", 10])
def test_a_signal_has_one_name(text: str | int) -> None:
    assert parse_signal(text) == "USR1"


@pytest.mark.parametrize("text", ["", "0", "999", "NOPE", "SIG", "-9", "USR1;", "SEGV", "9" * 5_000, 0, -1])
def test_what_is_no_signal_is_answered_with_those_there_are(text: str | int) -> None:
    with pytest.raises(BadInput, match="USR1") as caught:
        parse_signal(text)
    assert "TERM" in caught.value.hint


def test_numbers_are_those_of_this_system() -> None:
    assert {name: int(signal.Signals[f"SIG{name}"]) for name in SIGNALS} == SIGNALS
