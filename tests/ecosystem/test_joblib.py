"""`joblib.parallel_config("shoal")`: scikit-learn's `n_jobs`, and what joblib promises of its own backends."""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest

from shoal.client.client import Client
from tests.ecosystem import payloads
from tests.ecosystem.conftest import SLOTS
from tests.integration.cluster import Cluster, clean_env

if importlib.util.find_spec("joblib") is not None:
    import joblib

    import shoal.joblib  # noqa: F401  # it registers the backend

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("pool"), pytest.mark.filterwarnings("default")]
ROOT = Path(__file__).resolve().parents[2]
OLDEST = "1.3.0"  # of joblib; pyproject.toml says the same


def client_of(pool: Cluster) -> Client:
    return Client(pool.address()["url"], pool.address()["token"])


def newest_run(pool: Cluster) -> dict[str, Any]:
    with client_of(pool) as client:
        return client.run(client.runs(limit=1)["runs"][0]["run"])


def test_grid_search_through_n_jobs(pool: Cluster, ledger: Path) -> None:
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(n_samples=200, random_state=0)
    grid = {"C": [0.01, 0.1, 1.0, 10.0], "fit_intercept": [True, False]}
    here = GridSearchCV(LogisticRegression(), grid, cv=3).fit(x, y)
    scoring = functools.partial(payloads.score, ledger=ledger)
    with joblib.parallel_config("shoal", name="grid"):
        there = GridSearchCV(LogisticRegression(), grid, cv=3, scoring=scoring, n_jobs=-1).fit(x, y)
    assert there.best_params_ == here.best_params_
    assert (there.cv_results_["mean_test_score"] == here.cv_results_["mean_test_score"]).all()
    pids = payloads.notes(ledger)
    assert len(pids) == 8 * 3 and str(os.getpid()) not in pids  # each once, and none here
    run = newest_run(pool)
    assert run["name"] == "grid"
    assert {array["task"]["labels"]["function"] for array in run["arrays"]} == {"_fit_and_score"}


def test_all_slots_are_used_and_n_jobs_bounds_how_many_run_at_once(ledger: Path, tmp_path: Path) -> None:
    running = tmp_path / "running"
    running.mkdir()
    with joblib.parallel_config("shoal"):
        assert [joblib.effective_n_jobs(n) for n in (-1, -2, 1, 7, None)] == [SLOTS, SLOTS - 1, 1, 7, SLOTS]
        with pytest.raises(ValueError, match="n_jobs == 0"):
            joblib.effective_n_jobs(0)
        work = [joblib.delayed(payloads.overlap)(ledger, running) for _ in range(12)]
        joblib.Parallel(n_jobs=2, batch_size=1)(work)
    counts = payloads.notes(ledger)
    assert len(counts) == 12 and set(counts) <= {"1", "2"}


def test_n_jobs_of_one_runs_here() -> None:
    with joblib.parallel_config("shoal"):
        assert joblib.Parallel(n_jobs=1)([joblib.delayed(os.getpid)()]) == [os.getpid()]


def test_small_calls_travel_together(pool: Cluster) -> None:
    with joblib.parallel_config("shoal"):
        # With "auto" joblib decides by how long batches take, which on a busy machine may be long.
        found = joblib.Parallel(batch_size=10)(joblib.delayed(payloads.square)(n) for n in range(500))
    assert found == [n * n for n in range(500)]
    assert newest_run(pool)["total"] < 100


def test_functions_of_a_script_and_closures_go_by_value() -> None:
    add = 3
    with joblib.parallel_config("shoal"):
        assert joblib.Parallel()(joblib.delayed(lambda n: n + add)(n) for n in range(5)) == [3, 4, 5, 6, 7]


def test_an_exception_is_raised_with_its_traceback_and_ends_the_rest(pool: Cluster, ledger: Path) -> None:
    with joblib.parallel_config("shoal"):
        with pytest.raises(LookupError, match="no 2") as raised:
            joblib.Parallel(batch_size=1)(joblib.delayed(payloads.fail_at)(n, 2, ledger) for n in range(20))
        assert "payloads.py" in str(raised.value.__cause__)
        assert joblib.Parallel()(joblib.delayed(payloads.square)(n) for n in range(3)) == [0, 1, 4]
    assert len(payloads.notes(ledger)) < 19
    with client_of(pool) as client:
        aborted = client.run(client.runs(limit=2)["runs"][1]["run"])
    until = time.monotonic() + 60.0
    while aborted["finished"] is None and time.monotonic() < until:
        with client_of(pool) as client:
            aborted = client.run(aborted["run"])
        time.sleep(0.05)
    assert aborted["counts"]["failed"] == 1 and aborted["counts"]["cancelled"] >= 2


def test_a_timeout_is_raised_and_ends_the_rest(ledger: Path) -> None:
    with joblib.parallel_config("shoal"), pytest.raises(multiprocessing.TimeoutError):
        joblib.Parallel(timeout=0.5)(joblib.delayed(payloads.fail_at)(n, -1, ledger) for n in range(2))


def test_results_come_as_a_generator() -> None:
    work = [joblib.delayed(payloads.square)(n) for n in range(50)]
    with joblib.parallel_config("shoal"):
        assert list(joblib.Parallel(return_as="generator")(work)) == [n * n for n in range(50)]
        unordered = joblib.Parallel(return_as="generator_unordered")(work)
        assert sorted(unordered) == [n * n for n in range(50)]
        left = joblib.Parallel(return_as="generator")(work)
        assert next(left) == 0
        left.close()  # the rest is cancelled


def test_a_loop_may_run_while_another_is_read_as_a_generator() -> None:
    with joblib.parallel_config("shoal", n_jobs=2):
        outer = joblib.Parallel(return_as="generator")(joblib.delayed(payloads.square)(n) for n in range(20))
        for n, found in enumerate(outer):
            inner = joblib.Parallel()(joblib.delayed(payloads.square)(k) for k in (n, n + 1))
            assert (found, inner) == (n * n, [n * n, (n + 1) ** 2])


def test_a_large_array_is_sent_once_and_read_only(pool: Cluster) -> None:
    array = numpy.random.default_rng(1).random(500_000)  # 4 MB
    before = stored(pool)
    with joblib.parallel_config("shoal"):
        found = joblib.Parallel(batch_size=1)(joblib.delayed(payloads.describe)(array, n) for n in range(20))
        assert found == [(array[n], False) for n in range(20)]
        assert array.nbytes < stored(pool) - before < 2 * array.nbytes
        array[0] = 7.0  # another Parallel sees it as it is then
        assert joblib.Parallel(n_jobs=2)([joblib.delayed(payloads.describe)(array, 0)] * 2) == [(7.0, False)] * 2
        own = joblib.Parallel(n_jobs=2, max_nbytes=None)([joblib.delayed(payloads.describe)(array, 0)] * 2)
        assert own == [(7.0, True)] * 2


def stored(pool: Cluster) -> int:
    """Bytes of blobs that the server holds."""
    return sum(file.stat().st_size for file in pool.state.rglob("blobs/**/*") if file.is_file())


def test_loops_inside_calls_do_not_wait_for_slots() -> None:
    with joblib.parallel_config("shoal"):
        found = joblib.Parallel()(joblib.delayed(payloads.inner)(n) for n in range(2 * SLOTS))
    assert found == [[(n + k) ** 2 for k in range(3)] for n in range(2 * SLOTS)]


def test_libraries_start_as_many_threads_as_a_call_has_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    work = [joblib.delayed(payloads.variable)("OMP_NUM_THREADS")] * 2
    for options, threads in (({}, "1"), ({"cores": 2}, "2"), ({"inner_max_num_threads": 4}, "4")):
        with joblib.parallel_config("shoal", **options):
            assert joblib.Parallel()(work) == [threads] * 2, options


def test_one_executor_serves_all_loops_of_a_block(pool: Cluster) -> None:
    runs = set()
    with joblib.parallel_config("shoal", n_jobs=2):
        for _ in range(3):
            joblib.Parallel()(joblib.delayed(payloads.square)(n) for n in range(4))
            runs.add(newest_run(pool)["run"])
    assert len(runs) == 1


def test_options_of_an_executor_are_options_here_and_wrong_ones_are_told_at_once() -> None:
    with pytest.raises(TypeError, match="Executor has no option 'memry'"):
        joblib.parallel_config("shoal", memry="2G")
    with (
        joblib.parallel_config("shoal", initializer=payloads.variable, initargs=("NOT_SET",)),
        pytest.raises((BrokenExecutor, KeyError)),  # the error of the initializer, or what it leaves
    ):
        joblib.Parallel()(joblib.delayed(payloads.square)(n) for n in range(2))


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the oldest joblib that is promised."""
    folder = tmp_path_factory.mktemp("joblib")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-deps"]
    done = subprocess.run([*pip, "--target", str(folder), f"joblib=={OLDEST}"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"joblib {OLDEST} could not be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder


OLD_SCRIPT = """
import joblib, shoal.joblib, sys
assert joblib.__version__ == sys.argv[1]
def f(n):
    return n * n
def bad(n):
    raise LookupError(n)
with joblib.parallel_config("shoal"):
    print(joblib.Parallel()(joblib.delayed(f)(n) for n in range(100)) == [n * n for n in range(100)])
    print(list(joblib.Parallel(return_as="generator")(joblib.delayed(f)(n) for n in range(5))))
    try:
        joblib.Parallel()(joblib.delayed(bad)(n) for n in range(5))
    except LookupError as error:
        print("raised", error.args[0] in range(5))
"""


def test_the_oldest_joblib_works(oldest: Path, tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text(OLD_SCRIPT, encoding="utf-8")
    env = clean_env() | {"PYTHONPATH": str(oldest)} | {n: os.environ[n] for n in ("SHOAL_SERVER", "SHOAL_TOKEN")}
    done = subprocess.run(
        [sys.executable, str(script), OLDEST], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["True", "[0, 1, 4, 9, 16]", "raised True"], done.stderr


def test_without_joblib_the_import_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['joblib'] = None; import shoal.joblib"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert f"ImportError: shoal.joblib needs joblib 1.3 or newer in {sys.executable} (pip install" in done.stderr
