"""The pilot's log, and its messages to whoever started it. No secret gets into either [security S12]."""

from __future__ import annotations

import logging
import os
import sys

from shoal.model.credentials import redact


class Redacted(logging.Formatter):
    """Works on the finished text, so tracebacks are covered as well, which a filter would not see."""

    def format(self, record: logging.LogRecord) -> str:
        """The formatted record, without any secret of ours."""
        return redact(super().format(record))


def set_up(verbose: bool) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Redacted("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


def say(text: str) -> None:
    """Print a message for whoever started us, who may be gone."""
    try:
        print(redact(text), flush=True)
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # else the interpreter complains at its end
