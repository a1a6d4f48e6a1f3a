"""CPython's own tests of process pools, on `shoal.Executor`. They are run where they are installed (on Debian in the
package `libpython3.11-testsuite`), and all that are not excepted below have to pass.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration

PARTS = 4  # programs at once: most tests wait
WITHIN = 280.0
DEBIAN = Path(f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}")
# Tests that look at what only the standard library's class has, and so cannot pass; what they are about beside that is
# tested in test_standard_behaviour.py and test_executor_points.py.
PRIVATE = "reads {} of the standard library's class"
_PROCESSES, _MANAGER = PRIVATE.format("`_processes`"), PRIVATE.format("`_executor_manager_thread`")
EXCEPTED: dict[str, str] = {
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": _MANAGER,
    "FailingInitializerTest.test_initializer": PRIVATE.format("`_broken`")
    + ", and gives a queue that only a fork inherits",
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": _PROCESSES,
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": _PROCESSES,
    "ProcessPoolExecutorTest.test_killed_child": _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child": _PROCESSES,
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": PRIVATE.format("`_mp_context`"),
    "ProcessPoolExecutorTest.test_saturation": _PROCESSES,
    "ProcessPoolShutdownTest.test_context_manager_shutdown": _PROCESSES,
    "ProcessPoolShutdownTest.test_del_shutdown": _MANAGER,
    "ProcessPoolShutdownTest.test_processes_terminate": _PROCESSES,
    "ProcessPoolShutdownTest.test_shutdown_no_wait": _PROCESSES,
}
SKIPPED = {  # by the suite itself
    "ProcessPoolExecutorTest.test_max_workers_too_large": "Windows-only process limit",
    "ProcessPoolShutdownTest.test_hang_gh83386": "Hangs, see https://github.com/python/cpython/issues/83386",
}


def suite_folder(tmp_path: Path) -> Path | None:
    """A folder in which `test` is the package with the suite, if there is one: of this Python, or of Debian's."""
    found = importlib.util.find_spec("test")
    folders = [Path(one) for one in (found.submodule_search_locations or ())] if found is not None else []
    for folder in (*folders, DEBIAN / "test"):
        if (folder / "test_concurrent_futures.py").exists():
            (tmp_path / "suite").mkdir()
            (tmp_path / "suite" / "test").symlink_to(folder)
            return tmp_path / "suite"
    return None


def test_cpythons_own_tests_of_process_pools_pass(cluster: Cluster, tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    if folder is None:
        package = f"libpython{sys.version_info[0]}.{sys.version_info[1]}-testsuite"
        pytest.skip(f"CPython's own test-suite is not installed (Debian: apt-get install {package})")
    cluster.start_server()
    cluster.start_pilot(5 * PARTS)
    env = {
        **os.environ, "SHOAL_SERVER": cluster.address()["url"], "SHOAL_TOKEN": cluster.address()["token"],
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
    }  # fmt: skip
    program = str(Path(__file__).with_name("cpython_suite.py"))
    outs = [tmp_path / f"out{part}" for part in range(PARTS)]
    running = []
    for part, out in enumerate(outs):
        with out.open("wb") as file:
            argv = [sys.executable, program, str(folder), str(part), str(PARTS)]
            running.append(subprocess.Popen(argv, env=env, stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path))
    try:
        for process in running:
            assert process.wait(WITHIN) == 0, "\n".join(out.read_text()[-2000:] for out in outs)
    finally:
        for process in running:
            process.kill()
            process.wait()
    lines = [line for out in outs for line in out.read_text().splitlines() if line.startswith('{"test"')]
    rows = {row["test"]: row for row in map(json.loads, lines)}
    failed = {name: row["detail"] for name, row in rows.items() if row["outcome"] == "failed"}
    assert len(rows) >= 50, "the suite was run"
    assert not {name: text for name, text in failed.items() if name not in EXCEPTED}
    assert set(EXCEPTED) == set(failed), "those that pass are no exceptions any more"
    assert all(
        "AttributeError: 'Executor' object has no attribute '_" in text or "Queue" in text for text in failed.values()
    )
    skipped = {name: row["detail"] for name, row in rows.items() if row["outcome"] == "skipped"}
    assert skipped == SKIPPED
