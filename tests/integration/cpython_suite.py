"""CPython's own tests of process pools, run with `shoal.Executor` in place of `ProcessPoolExecutor`.

A program of its own, because it changes modules of the standard library: `python cpython_suite.py FOLDER [NAME...]`,
where FOLDER has the package `test` of this Python. Prints one line of JSON for each test: its name and what became of it.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import importlib
import json
import os
import pickle
import sys
import unittest
from typing import Any

import shoal
from shoal.client.executor.outcome import RemoteTraceback

SUITE = "test.test_concurrent_futures"
CONTEXT = "ProcessPoolSpawn"  # processes are always new interpreters: one kind of context stands for all
# Classes that are named otherwise, or not at all, and so are replaced in the suite. There a call that ends its process
# breaks the whole pool; here that call fails alone, and with its own error if there is one.
ONE_CALL_FAILED = (
    concurrent.futures.process.BrokenProcessPool, shoal.TaskFailed, pickle.UnpicklingError, SystemExit
)  # fmt: skip


class Outcomes(unittest.TestResult):
    """Prints what becomes of each test."""

    def _tell(self, test: unittest.TestCase, outcome: str, detail: str = "") -> None:
        name = test.id().removeprefix(f"{SUITE}.{CONTEXT}")
        print(json.dumps({"test": name, "outcome": outcome, "detail": detail[-4000:]}), flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._tell(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._tell(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._tell(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]  # as runners do

    addError = addFailure


def load(folder: str) -> Any:
    """The suite, with Shoal's classes in it."""
    sys.path.insert(0, folder)
    suite = importlib.import_module(SUITE)
    suite.support.verbose = False
    concurrent.futures.ProcessPoolExecutor = shoal.Executor  # type: ignore[assignment,misc]
    concurrent.futures.process._RemoteTraceback = RemoteTraceback  # type: ignore[attr-defined]
    suite.BrokenProcessPool = ONE_CALL_FAILED  # type: ignore[attr-defined]
    run_python = suite.assert_python_ok  # type: ignore[attr-defined]

    def run_with_shoal(*args: str, **env: str) -> Any:
        """Programs of the suite import the class by its name."""
        *options, text = args
        text = text.replace("from concurrent.futures import Executor", "from shoal import Executor")
        return run_python(*options, text, **{**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env})

    suite.assert_python_ok = run_with_shoal  # type: ignore[attr-defined]
    for name in dir(suite):
        if name.startswith("ProcessPool") and name.endswith("Mixin"):
            getattr(suite, name).executor_type = shoal.Executor
    return suite


def main() -> None:
    """Run the tests named, or all."""
    folder, *wanted = sys.argv[1:]
    suite = load(folder)
    tests = unittest.TestSuite()
    for name in sorted(dir(suite)):
        if name.startswith(CONTEXT) and not name.endswith("Mixin"):
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(getattr(suite, name)):
                assert isinstance(test, unittest.TestCase)
                if not wanted or test.id().removeprefix(f"{SUITE}.{CONTEXT}") in wanted:
                    tests.addTest(test)
    suite.setUpModule()
    tests.run(Outcomes())
    unittest.case.doModuleCleanups()


if __name__ == "__main__":
    main()
