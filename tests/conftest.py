"""What all tests share: children that hear the signals which this process was told to ignore, and the order of tests."""

from __future__ import annotations

import gc
import os
import signal
from itertools import islice

import pytest

# `nohup`, a job in the background of a script and some CI services start us with these ignored, and a child would
# inherit that through exec and be deaf to the Ctrl-C of a test. A handler of ours is not inherited: children get the
# default action, while this process still ignores them.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


LONGEST = ("tests/property/test_queue_machine", "tests/sim/", *(
    f"tests/integration/test_{name}." for name in ("cpython_suite", "fuzz", "wrong_inputs", "canaries", "stale_code")
))  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, an equal part of them in the share that each process begins with, so that at the end none works
    alone."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    longest = [item for item in items if item.nodeid.startswith(LONGEST)]
    others = iter([item for item in items if not item.nodeid.startswith(LONGEST)])
    share = -(-len(items) // processes)
    ordered: list[pytest.Item] = []
    for at in range(processes):
        mine = longest[at::processes]
        ordered += [*mine, *islice(others, max(0, share - len(mine)))]
    items[:] = [*ordered, *others]


def pytest_collection_finish() -> None:
    """Thousands of collected tests are no garbage: no collection need look through them."""
    gc.collect()
    gc.freeze()
