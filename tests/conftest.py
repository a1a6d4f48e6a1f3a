"""What all tests share: children that hear the signals which this process was told to ignore, the order of tests, and an
end for a test that its time limit did not end."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Iterator
from itertools import chain, islice

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

pytest_plugins = ("tests.cpu_times",)

# `nohup`, a job in the background of a script and some CI services start us with these ignored, and a child would
# inherit that through exec and be deaf to the Ctrl-C of a test. A handler of ours is not inherited: children get the
# default action, while this process still ignores them.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


# Tests with real batch systems mostly wait. Each process that runs one of them starts what it needs, Slurm in ten seconds
# and one of a processor.
REAL_SYSTEMS = "tests/integration/batch/"
LONGEST = ("tests/property/test_queue_machine", "tests/sim/", *(
    f"tests/integration/test_{name}."
    for name in (
        "cpython_suite", "full_state_disk", "canaries", "fuzz", "documents", "wrong_inputs", "time_left", "start", "day",
    )
))  # fmt: skip
INTEGRATION = "tests/integration/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each process begins with its part of what takes long, and then of the other files with real processes, whose servers
    serve all tests of a file; what is quick comes last, and is taken over by whoever has nothing left to do."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files: dict[str, list[pytest.Item]] = {}
    longest: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        if item.nodeid.startswith(LONGEST):
            longest.append(item)
        elif item.nodeid.startswith(INTEGRATION):
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        else:
            others.append(item)
    real = [found for name, found in files.items() if name.startswith(REAL_SYSTEMS)]
    own = [found for name, found in files.items() if not name.startswith(REAL_SYSTEMS)]
    share, rest = -(-len(items) // processes), iter(others)
    ordered: list[pytest.Item] = []
    for at in range(processes):
        mine = [*chain(*real[at::processes]), *longest[at::processes], *chain(*own[at::processes])]
        ordered += [*mine, *islice(rest, max(0, share - len(mine)))]
    items[:] = [*ordered, *rest]


gc.disable()  # while tests are collected, which makes no garbage


def pytest_collection_finish() -> None:
    """Thousands of collected tests are no garbage: no collection need look through them."""
    gc.enable()
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
