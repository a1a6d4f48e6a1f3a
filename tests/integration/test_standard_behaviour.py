"""What users of `concurrent.futures` take for granted, of `shoal.Executor` on two real pilots."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

import shoal
from tests.integration import functions, kinds_of_classes
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
SOON = 60.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, pilot_zip: Path) -> Iterator[Cluster]:
    """A server and two pilots for the whole module; executors find it by the environment."""
    made = Cluster(tmp_path_factory.mktemp("standard") / "cluster", pilot_zip)
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start_server()
            made.start_pilot(2)
            made.start_pilot(2)
            patch.setenv("SHOAL_SERVER", made.address()["url"])
            patch.setenv("SHOAL_TOKEN", made.address()["token"])
            yield made
        finally:
            made.close()


@pytest.fixture
def ex(pool: Cluster) -> Iterator[shoal.Executor]:
    with shoal.Executor(attach=False) as made:
        yield made


def run_script(pool: Cluster, text: str) -> subprocess.CompletedProcess[str]:
    script = pool.cwd / "script.py"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=SOON, check=False, cwd=pool.cwd
    )


# --- results that cannot be loaded
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
def test_an_error_while_a_result_is_loaded_settles_that_future_alone(
    ex: shoal.Executor, kind: type[BaseException]
) -> None:
    bad = ex.submit(functions.Bomb, kind.__name__)
    others = [ex.submit(functions.double, n) for n in range(5)]
    error = bad.exception(SOON)
    assert type(error) is kind and str(error) == "boom"
    assert "could not be read here" in error.__notes__[0]
    assert [future.result(SOON) for future in others] == [0, 2, 4, 6, 8]
    with pytest.raises(kind, match="boom"):
        list(ex.map(functions.Bomb, [kind.__name__]))
    assert ex.submit(functions.double, 4).result(SOON) == 8


def test_an_exception_that_cannot_be_changed_is_the_one_that_is_raised(ex: shoal.Executor) -> None:
    error = ex.submit(functions.raise_frozen).exception(SOON)
    assert error == functions.Frozen(7)
    assert "raise Frozen(7)" in str(error.__cause__)


def test_a_callback_that_exits_keeps_no_other_future_waiting(ex: shoal.Executor) -> None:
    first = ex.submit(functions.double, 1)
    first.add_done_callback(lambda _: sys.exit("from a callback"))
    assert [ex.submit(functions.double, n).result(SOON) for n in range(3)] == [0, 2, 4]
    assert first.result(SOON) == 2


# --- initializer and finalizer
def test_a_failing_initializer_breaks_the_executor_for_all_with_its_error_as_cause(pool: Cluster) -> None:
    with shoal.Executor(initializer=functions.no_licence, attach=False) as ex:
        futures = [ex.submit(functions.double, n) for n in range(8)]
        for future in futures:
            error = future.exception(SOON)
            assert isinstance(error, BrokenProcessPool)
            assert str(error) == "initializer failed: RuntimeError: no licence"
            assert isinstance(error.__cause__, RuntimeError) and str(error.__cause__) == "no licence"
            assert "in no_licence" in str(error.__cause__.__cause__)
        with pytest.raises(BrokenExecutor):
            ex.submit(functions.double, 1)
        assert "initializer" in {row["cause"] for row in pool.rows(int(ex.run[1:]))}


def test_an_error_that_only_reads_like_a_failed_initializer_breaks_nothing(ex: shoal.Executor) -> None:
    def misleading() -> None:
        raise type("initializer failed", (Exception,), {"__module__": "builtins"})

    assert ex.submit(misleading).exception(SOON) is not None
    assert ex.submit(functions.double, 2).result(SOON) == 4


def test_a_finalizer_is_called_once_in_each_process_that_ends(pool: Cluster, tmp_path: Path) -> None:
    ledger = tmp_path / "ended"
    with shoal.Executor(
        finalizer=functions.last_words, finalargs=(str(ledger),), max_tasks_per_child=1, attach=False
    ) as ex:
        pids = list(ex.map(functions.pid, [0.0] * 4))
    wanted = {f"ended {pid}" for pid in pids}
    pool.until(lambda: ledger.exists() and set(ledger.read_text().splitlines()) == wanted, "all have ended")
    assert len(ledger.read_text().splitlines()) == 4


def test_a_pilot_that_ends_in_order_lets_finalizers_be_called(cluster: Cluster, tmp_path: Path) -> None:
    ledger = tmp_path / "ended"
    cluster.start_server()
    pilot = cluster.start_pilot(2)
    address = cluster.address()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_SERVER", address["url"])
        patch.setenv("SHOAL_TOKEN", address["token"])
        with shoal.Executor(finalizer=functions.last_words, finalargs=(str(ledger),), attach=False) as ex:
            pid = ex.submit(functions.pid).result(SOON)
            assert not ledger.exists()
    pilot.process.terminate()
    pilot.process.wait(SOON)
    assert ledger.read_text() == f"ended {pid}\n"


# --- how many at once, and how many in one process
def overlaps(ledger: Path) -> tuple[int, int]:
    """How many calls there were, and how many of them at once."""
    edges: list[tuple[float, int]] = []
    for line in ledger.read_text().splitlines():
        began, ended = map(float, line.split())
        edges += [(began, 1), (ended, -1)]
    now = most = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return len(edges) // 2, most


@pytest.mark.parametrize(("workers", "calls", "seconds"), [(1, 300, 0.0005), (1, 6, 0.05), (3, 300, 0.003)])
def test_no_more_calls_run_at_once_than_max_workers_on_all_pilots_together(
    pool: Cluster, tmp_path: Path, workers: int, calls: int, seconds: float
) -> None:
    ledger = tmp_path / "ledger"
    with shoal.Executor(workers, attach=False) as ex:
        assert list(ex.map(functions.double, range(20))) == [2 * n for n in range(20)]  # it is known to be short
        assert set(ex.map(functions.stamp, [str(ledger)] * calls, [seconds] * calls)) == {None}
        run = ex.run
    made, most = overlaps(ledger)
    assert made == calls and most <= workers
    assert most > 1 or workers == 1
    assert pool.run_row(int(run[1:]))["max_running"] == workers


def test_each_call_has_a_fresh_interpreter_with_max_tasks_per_child_1(pool: Cluster) -> None:
    with shoal.Executor(max_tasks_per_child=1, attach=False) as ex:
        pids = [ex.submit(functions.pid).result(SOON), *ex.map(functions.pid, [0.0] * 5)]
    assert len(set(pids)) == 6


def test_no_process_makes_more_calls_than_max_tasks_per_child(pool: Cluster) -> None:
    with shoal.Executor(1, max_tasks_per_child=3, attach=False) as ex:
        pids = [ex.submit(functions.pid).result(SOON) for _ in range(8)]
        pids += ex.map(functions.pid, [0.0] * 10)
    assert max(Counter(pids).values()) <= 3
    assert len(set(pids[:8])) < 8, "and a process is used again until then"


# --- what travels
def test_decorated_functions_of_a_script_work(pool: Cluster) -> None:
    done = run_script(
        pool,
        """
        import functools, os
        import shoal

        @functools.lru_cache(maxsize=None)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        @functools.cache
        def where():
            return os.getpid()

        def twice(f):
            @functools.wraps(f)
            def wrapper(*args):
                return 2 * f(*args)
            wrapper.calls = 5
            return wrapper

        @twice
        @functools.lru_cache
        def plus(a, b=1):
            return a + b

        def noted():
            return noted.word
        noted.word = "kept"

        @functools.singledispatch
        def kind(x):
            return "other"

        @kind.register
        def _(x: list):
            return [kind(one) for one in x]

        @kind.register
        def _(x: int):
            return "int"

        class Shape:
            def __init__(self, side):
                self.side = side
            def __call__(self, x):
                return self.side * x
            @functools.cached_property
            def area(self):
                return self.side ** 2
            def get_area(self):
                return self.area
            def scale(self, by):
                return self.side * by
            double = functools.partialmethod(scale, 2)
            @staticmethod
            def fixed():
                return "static"
            @classmethod
            def name(cls):
                return cls.__name__
            @functools.lru_cache
            def cached(self):
                return self.side + 1

        async def later(x):
            import asyncio
            await asyncio.sleep(0)
            return x + 1

        def numbers():
            yield 1

        with shoal.Executor(attach=False) as ex:
            calls = [
                (fib, 30), (plus, 3), (functools.partial(plus, 10), 5), (noted,), (kind, [1, "a", [2]]),
                (Shape(3), 4), (Shape(3).get_area,), (Shape(3).double,), (Shape.fixed,), (Shape.name,),
                (Shape(3).cached,), (later, 1), (lambda: plus.calls,),
            ]
            print([ex.submit(*call).result(60) for call in calls])
            print(fib.cache_info().currsize, ex.submit(where).result(60) != os.getpid())
            print(ex.submit(numbers).exception(60))
        """,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[832040, 8, 30, 'kept', ['int', 'other', ['int']], 12, 9, 6, 'static', 'Shape', 4, 2, 5]",
        "0 True",
        "numbers is a generator, which cannot leave its process: return a list of what it yields",
    ]


def test_objects_of_every_kind_of_class_come_home_as_they_were_of_a_script_and_of_a_module(pool: Cluster) -> None:
    """Found by an adversary: with `__slots__` they could not be read, or had slots in their `__dict__` too."""
    done = run_script(pool, Path(kinds_of_classes.__file__).read_text(encoding="utf-8"))
    assert (done.stderr, done.stdout) == ("", f"{len(kinds_of_classes.KINDS)} []\n")
    with shoal.Executor(attach=False) as ex:
        assert kinds_of_classes.compare(ex) == []


def test_objects_of_a_manager_reach_calls_on_this_host(pool: Cluster) -> None:
    done = run_script(
        pool,
        """
        import multiprocessing
        import shoal

        def put(queue, shared, x):
            queue.put(x)
            shared[x] = x * x

        if __name__ == "__main__":
            with multiprocessing.Manager() as manager, shoal.Executor(attach=False) as ex:
                queue, shared = manager.Queue(), manager.dict()
                list(ex.map(put, [queue] * 3, [shared] * 3, range(3)))
                print(sorted(queue.get() for _ in range(3)), dict(sorted(shared.items())))
        """,
    )
    assert (done.stderr, done.stdout) == ("", "[0, 1, 2] {0: 0, 1: 1, 2: 4}\n")


def test_what_put_sent_cannot_be_changed_by_one_call_for_the_next(pool: Cluster) -> None:
    numpy = pytest.importorskip("numpy")
    with shoal.Executor(1, attach=False) as ex:
        box = ex.put({"list": [1, 2]})
        assert list(ex.map(functions.change, [box] * 10)) == [3] * 10
        array = ex.put(numpy.arange(50_000))
        assert set(ex.map(functions.write_into, [array] * 3)) == {"assignment destination is read-only"}
        assert ex.submit(len, array).result(SOON) == 50_000


# --- what is printed
def test_output_is_echoed_in_the_order_of_completion_before_the_result(pool: Cluster) -> None:
    done = run_script(
        pool,
        f"""
        import sys
        sys.path.insert(0, {os.getcwd()!r})
        import shoal
        from tests.integration.functions import say_lines

        with shoal.Executor(1, attach=False) as ex:
            for x, count in enumerate([3, 1, 200, 1, 2]):
                ex.submit(say_lines, x, count).result(60)
                print("result", x)
            list(ex.map(say_lines, range(10, 30), [1, 4] * 10))
        """,
    )
    lines = done.stdout.splitlines()
    wanted = []
    for x, count in enumerate([3, 1, 200, 1, 2]):
        wanted += [f"{x}.{n} " + "x" * 40 for n in range(count)] + [f"result {x}"]
    assert lines[: len(wanted)] == wanted
    rest = [f"{x}.{n} " + "x" * 40 for x, count in zip(range(10, 30), [1, 4] * 10, strict=True) for n in range(count)]
    assert lines[len(wanted) :] == rest
    assert done.stderr.splitlines() == [f"{x} err" for x in (0, 2, 4, *range(11, 30, 2))]
