"""What all tests share: children that hear the signals which this process was told to ignore, the order of tests, and an
end for a test that its time limit did not end."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Iterator
from itertools import islice

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

# `nohup`, a job in the background of a script and some CI services start us with these ignored, and a child would
# inherit that through exec and be deaf to the Ctrl-C of a test. A handler of ours is not inherited: children get the
# default action, while this process still ignores them.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


LONGEST = ("tests/property/test_queue_machine", "tests/sim/", *(
    f"tests/integration/test_{name}."
    for name in (
        "cpython_suite", "full_state_disk", "canaries", "fuzz", "documents", "wrong_inputs", "stale_code", "time_left",
        "two_hosts",
    )
))  # fmt: skip


# Each process that runs one of these starts batch systems of its own, and then mostly waits: one process begins with all.
REAL_SYSTEMS = "tests/integration/batch/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, an equal part of them in the share that each process begins with, so that at the end none works
    alone."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    real = [item for item in items if item.nodeid.startswith(REAL_SYSTEMS)]
    longest = [item for item in items if item.nodeid.startswith(LONGEST)]
    others = iter([item for item in items if not item.nodeid.startswith((*LONGEST, REAL_SYSTEMS))])
    share = -(-len(items) // processes)
    ordered: list[pytest.Item] = []
    for at in range(processes):
        mine = [*(real if at == 0 else ()), *longest[at::processes]]
        ordered += [*mine, *islice(others, max(0, share - len(mine)))]
    items[:] = [*ordered, *others]


def pytest_collection_finish() -> None:
    """Thousands of collected tests are no garbage: no collection need look through them."""
    gc.collect()
    gc.freeze()


# The time limit of a test raises an exception in it. What waits again after that (a `with` that joins a thread, an event
# loop that waits for a task) would hang the whole run, and nobody would learn where: after this the process is ended, with
# the stacks of all its threads, and pytest-xdist names the test.
GRACE = 180.0  # seconds


def _end_after(item: pytest.Item) -> None:
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker else item.config.getoption("timeout") or item.config.getini("timeout")
    faulthandler.dump_traceback_later(
        float(limit) + GRACE, exit=True, file=item.config.stash[fault_handler_stderr_fd_key]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _end_after(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest itself has just cancelled it, for the sake of a debugger."""
    if isinstance(node, pytest.Item):
        _end_after(node)
