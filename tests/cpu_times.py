"""`pytest --cpu-times N`: the tests that took the most processor time, which does not depend on how busy the machine is.

Counted are the process that runs the tests and the children that it waited for, not a server or pilot that went on by
itself and was adopted by another process."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator

import pytest

_PROPERTY = "cpu"


def _used() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CpuTimes:
    """Measures each phase of a test, in each process that runs tests, and adds them up where the summary is printed."""

    def __init__(self, shown: int) -> None:
        self._shown, self._before = shown, _used()
        self._taken: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logstart(self) -> None:
        self._before = _used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _used()
        report.user_properties.append((_PROPERTY, now - self._before))
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken[report.nodeid] += sum(
            float(str(value)) for name, value in report.user_properties if name == _PROPERTY
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"{sum(self._taken.values()):.0f} CPU seconds in tests; the most")
        for test, seconds in sorted(self._taken.items(), key=lambda taken: -taken[1])[: self._shown]:
            terminalreporter.line(f"{seconds:8.2f}  {test}")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "show the N tests that took the most processor time, of their own and of children"
    parser.addoption("--cpu-times", type=int, default=0, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("cpu_times"):
        config.pluginmanager.register(CpuTimes(config.getoption("cpu_times")))
