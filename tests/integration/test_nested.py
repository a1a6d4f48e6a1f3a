"""Tasks that submit tasks and wait for them: calls with executors of their own, commands that call `shoal`; and futures
as arguments of calls, per-call needs, results that stay on the server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

import shoal
from shoal.client.client import Client
from shoal.client.executor.dependencies import DependencyFailed
from tests.integration import functions, nested_functions
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
SOON = 90.0
SHOAL = f"{sys.executable} -m shoal.cli"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, pilot_zip: Path) -> Iterator[Cluster]:
    """A server and a pilot with two cores, for all tests here; executors find them by the environment."""
    made = Cluster(tmp_path_factory.mktemp("nested") / "cluster", pilot_zip)
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start_server()
            made.start_pilot(2)
            patch.setenv("SHOAL_SERVER", made.address()["url"])
            patch.setenv("SHOAL_TOKEN", made.address()["token"])
            yield made
        finally:
            made.close()


# --- tasks that wait lend their cores
def test_six_calls_with_executors_of_their_own_on_two_cores(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        assert list(ex.map(nested_functions.outer, range(6), timeout=SOON)) == [2 * n + 1 for n in range(6)]


def test_three_levels_of_calls_on_two_cores(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        assert ex.submit(nested_functions.deep, 3).result(SOON) == 8


def test_every_way_to_wait_lends(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        futures = {way.__name__: ex.submit(way, 21) for way in nested_functions.WAYS}
        assert {name: future.result(SOON) for name, future in futures.items()} == dict.fromkeys(futures, 42)


def test_a_command_that_runs_and_waits_for_others_on_one_core(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    inner = f"{SHOAL} run --quiet -- echo inner"
    waits = f"run=$({SHOAL} submit -- echo later) && {SHOAL} wait --quiet $run"
    for outer in [cluster.submit({"shell": inner}), cluster.submit({"shell": waits})]:
        assert cluster.wait_run(outer, SOON) == {"succeeded": 1}


def test_calls_submitted_to_the_executor_that_makes_them(pool: Cluster) -> None:
    with shoal.Executor(attach=False, name="same") as ex:
        futures = [ex.submit(lambda x: ex.submit(lambda y: y + 1, x).result() + 1, n) for n in range(3)]
        assert [future.result(SOON) for future in futures] == [2, 3, 4]
        with pool.client() as client:
            runs = [row["run"] for row in client.runs(name="same")["runs"]]
        assert ex.run in runs and len(runs) == 4  # each call has a run of its own


def test_a_task_that_would_wait_for_its_own_run_is_told(pool: Cluster) -> None:
    run = pool.submit({"shell": f"{SHOAL} wait $SHOAL_RUN"})
    assert pool.wait_run(run, SOON) == {"failed": 1}
    with pool.client() as client:
        told = client.logs(f"r{run}.1", "stderr").data.decode()
    assert told == (
        f"shoal: r{run} cannot end before r{run}.1, which would wait for it (name a run that this task submitted)\n"
    )


def test_an_inner_run_names_its_task_and_is_cancelled_with_it(pool: Cluster, tmp_path: Path) -> None:
    story = tmp_path / "story"
    with shoal.Executor(attach=False) as ex:
        task, parent = ex.submit(nested_functions.parent_of_inner).result(SOON)
        assert task == parent == f"{ex.run}.1"
        below = ex.submit(nested_functions.hang_below, str(story))
        pool.until(lambda: "hangs" in (story.read_text() if story.exists() else ""), "the inner call runs", SOON)
        run = int(story.read_text().split("hangs r")[1])
        with pool.client() as client:
            client.cancel([below.task])
        with pytest.raises(CancelledError):
            below.result(SOON)
    assert pool.wait_run(run, SOON) == {"cancelled": 1}
    assert pool.row(run)["message"] == f"{below.task} was cancelled, which submitted this run"


# --- futures as arguments
def test_futures_anywhere_in_the_arguments_become_their_values(pool: Cluster) -> None:
    plain: Future[int] = Future()
    with shoal.Executor(attach=False) as ex, shoal.Executor(attach=False) as other:
        one, two, three = (
            ex.submit(functions.double, 1),
            ex.submit(functions.double, 2),
            other.submit(functions.double, 3),
        )
        nested = {"a": [one, (two, {three})], "b": {"c": plain}}
        waits = ex.submit(nested_functions.total, nested)
        keyword = ex.submit(nested_functions.total, values=one)
        mapped = ex.map(nested_functions.add, [one, 10, waits], [two, 20, waits])
        chain = one
        for _ in range(20):
            chain = ex.submit(nested_functions.add, chain, 1)
        plain.set_result(100)
        assert waits.result(SOON) == 2 + 4 + 6 + 100
        assert (keyword.result(SOON), chain.result(SOON)) == (2, 22)
        assert list(mapped) == [6, 30, 224]


def test_a_dependency_that_fails_or_is_cancelled_ends_what_needs_it(pool: Cluster) -> None:
    plain: Future[int] = Future()
    never: Future[int] = Future()
    with shoal.Executor(attach=False) as ex:
        failed = ex.submit(functions.fail, "why")
        below = ex.submit(nested_functions.add, [ex.submit(nested_functions.add, failed, never)], 1)
        with pytest.raises(KeyError, match="why") as raised:
            below.result(SOON)
        cause = raised.value.__cause__
        assert isinstance(cause, DependencyFailed) and "failed, whose result this call needs" in str(cause)
        cancelled = ex.submit(nested_functions.add, plain)
        last = ex.submit(nested_functions.add, cancelled, 1)
        assert cancelled.cancel() and cancelled.cancelled()
        with pytest.raises(CancelledError):
            last.result(SOON)
        mapped = ex.map(nested_functions.add, [failed, 1])
        with pytest.raises(KeyError):
            next(mapped)
        assert ex.submit(nested_functions.add, 1, 2).result(SOON) == 3  # the executor is as good as before


def test_calls_that_wait_are_made_after_the_with_block_has_ended(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        last = ex.submit(nested_functions.add, ex.submit(nested_functions.add, ex.submit(functions.double, 1), 1), 1)
    assert last.result(0) == 4


def test_a_large_result_stays_on_the_server_until_it_is_asked_for(
    pool: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    get_blob = Client.get_blob

    def fetch(self: Client, digest: str) -> bytearray:
        fetched.append(digest)
        return get_blob(self, digest)

    monkeypatch.setattr(Client, "get_blob", fetch)
    with shoal.Executor(attach=False) as ex:
        large = ex.submit(nested_functions.big, 1_000_000)
        sizes = [ex.submit(nested_functions.size_of, data) for data in (large, large)]
        assert [size.result(SOON) for size in sizes] == [1_000_000, 1_000_000]
        assert large.done() and not fetched
        assert len(large.result()) == len(large.result()) == 1_000_000
        assert len(fetched) == 1
        unread = ex.submit(nested_functions.big, 100_000)
    assert len(unread.result()) == 100_000  # also after the end of the executor


def test_a_killed_script_with_futures_as_arguments_goes_on_where_it_was(pool: Cluster, tmp_path: Path) -> None:
    """The calls that need others are made of the same bytes again, so that only what is missing is computed."""
    import os
    import signal
    import subprocess

    from tests.integration.cluster import clean_env

    story, gate, script = tmp_path / "story", tmp_path / "gate", pool.cwd / "script.py"
    script.write_text(
        f"""
import shoal
from tests.integration.functions import wait_for
from tests.integration.nested_functions import big, logged, size_of
with shoal.Executor() as ex:
    one = ex.submit(logged, {str(story)!r}, "one", 1)
    two = ex.submit(logged, {str(story)!r}, "two", one, 1)
    size = ex.submit(size_of, ex.submit(big, 100_000))
    large = list(ex.map(big, [100_001]))
    last = ex.submit(logged, {str(story)!r}, "last", two, size, ex.submit(wait_for, {str(gate)!r}, 1))
    print(two.result(), size.result(), len(large[0]), flush=True)
    print(last.result())
""",
        encoding="utf-8",
    )
    root = Path(__file__).resolve().parents[2]
    env = clean_env() | {"CLUSTER": str(pool.folder), "PYTHONPATH": str(root)}
    env |= {name: os.environ[name] for name in ("SHOAL_SERVER", "SHOAL_TOKEN")}
    first = subprocess.Popen([sys.executable, str(script)], env=env, cwd=pool.cwd, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None and first.stdout.readline() == "2 100000 100001\n"
    first.send_signal(signal.SIGKILL)
    first.wait(SOON)
    first.stdout.close()
    gate.touch()
    again = subprocess.run(
        [sys.executable, str(script)], env=env, cwd=pool.cwd, capture_output=True, text=True, timeout=SOON
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout == "2 100000 100001\n100003\n"
    assert "re-attached to r" in again.stderr
    assert sorted(story.read_text().split()) == ["last", "one", "two"]


# --- needs of single calls
def test_options_give_single_calls_other_needs_in_the_same_run(pool: Cluster) -> None:
    with shoal.Executor(attach=False, memory="100M", cores=2) as ex:
        plain, narrow = ex.submit(functions.double, 1), ex.options(cores=1, memory="200M", retries=1)
        future = narrow.submit(functions.double, 2)
        assert (plain.result(SOON), future.result(SOON), list(narrow.map(functions.double, [3]))) == (2, 4, [6])
        with pool.client() as client:
            tables = [array["task"] for array in client.run(ex.run)["arrays"]]
    needs = [{name: table.get(name) for name in ("cores", "memory", "retries")} for table in tables]
    first, second = {"cores": 2, "memory": "100M", "retries": None}, {"cores": None, "memory": "200M", "retries": 1}
    assert needs == [first, second, second]
    assert future.task.startswith(ex.run)
