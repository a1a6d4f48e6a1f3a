"""What all tests share: children that hear the signals which this process was told to ignore, and the order of tests."""

from __future__ import annotations

import signal

import pytest

# `nohup`, a job in the background of a script and some CI services start us with these ignored, and a child would
# inherit that through exec and be deaf to the Ctrl-C of a test. A handler of ours is not inherited: children get the
# default action, while this process still ignores them.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that at the end no process works alone."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/property/test_queue_machine", "tests/sim/")))
