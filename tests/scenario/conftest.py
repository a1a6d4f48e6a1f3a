"""The option that writes transcripts anew: `pytest tests/scenario --rewrite`, and read the diff."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts of tests/scenario anew")
