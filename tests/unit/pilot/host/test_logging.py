"""No secret gets into a log line or a line for people [security S12]."""

from __future__ import annotations

import logging

import pytest

from shoal.model import credentials
from shoal.pilot.host.logging import Redacted, say

SECRET = credentials.make(credentials.SESSION, "x" * 43)


def test_a_log_line_and_its_traceback_hold_no_secret() -> None:
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("pilot", logging.ERROR, __file__, 1, "with %s", (SECRET,), info)
    text = Redacted("%(message)s").format(record)
    assert "ValueError" in text and "with shoal_ses_" in text
    assert SECRET not in text and "xxxx" not in text


def test_what_is_said_holds_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"the server says {SECRET}")
    assert capsys.readouterr().out == "the server says shoal_ses_[...]\n"
