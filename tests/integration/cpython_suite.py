"""CPython's own tests of process pools, run with `shoal.Executor` in place of `ProcessPoolExecutor`.

A program of its own, because it changes modules of the standard library: `python cpython_suite.py FOLDER PART PARTS`,
where FOLDER has the package `test` of this Python. Runs every test whose number is PART modulo PARTS, and prints a line of
JSON for each: its name and what became of it.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import gc
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

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802  # of unittest
        # After a test that left a thread the suite collects garbage three hundred times. What was there before is none.
        gc.collect()
        gc.freeze()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802  # of unittest
        super().stopTest(test)
        bad = [text for one, text in (*self.errors, *self.failures) if one is test]
        reasons = [text for one, text in self.skipped if one is test]
        outcome = "failed" if bad else "skipped" if reasons else "passed"
        name = test.id().removeprefix(f"{SUITE}.{CONTEXT}")
        print(json.dumps({"test": name, "outcome": outcome, "detail": "".join(bad or reasons)[-4000:]}), flush=True)


def load(folder: str) -> Any:
    """The suite, with Shoal's classes in it."""
    sys.path.insert(0, folder)
    suite: Any = importlib.import_module(SUITE)
    suite.support.verbose = False
    vars(concurrent.futures)["ProcessPoolExecutor"] = shoal.Executor
    vars(concurrent.futures.process)["_RemoteTraceback"] = RemoteTraceback
    suite.BrokenProcessPool = ONE_CALL_FAILED
    run_python = suite.assert_python_ok

    def run_with_shoal(*args: str, **env: str) -> Any:
        """Programs of the suite import the class by its name."""
        *options, text = args
        text = text.replace("from concurrent.futures import Executor", "from shoal import Executor")
        return run_python(*options, text, **{**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env})

    suite.assert_python_ok = run_with_shoal
    for name in dir(suite):
        if name.startswith("ProcessPool") and name.endswith("Mixin"):
            getattr(suite, name).executor_type = shoal.Executor
    return suite


def main() -> None:
    """Run one part of the tests."""
    folder, part, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    suite = load(folder)
    names = [name for name in sorted(dir(suite)) if name.startswith(CONTEXT) and not name.endswith("Mixin")]
    tests = [test for name in names for test in unittest.defaultTestLoader.loadTestsFromTestCase(getattr(suite, name))]
    suite.setUpModule()
    unittest.TestSuite(tests[part::parts]).run(Outcomes())


if __name__ == "__main__":
    main()
