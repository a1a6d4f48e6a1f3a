"""`shoal.Executor` with real servers, pilots and scripts: large data, prints, seeds, crashes of each, coming back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import numpy
import pytest

import shoal
from shoal.client.executor import result_poll
from tests.integration import functions
from tests.integration.cluster import Cluster, clean_env, is_dead, processes_with

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
SOON = 60.0


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A server and a pilot; executors find them by the environment."""
    cluster.start_server()
    cluster.start_pilot(2)
    monkeypatch.setenv("SHOAL_SERVER", cluster.address()["url"])
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    return cluster


class Scripts:
    """Scripts as a person starts them, against the pool."""

    def __init__(self, pool: Cluster) -> None:
        self.pool = pool
        self.env = clean_env() | {"SHOAL_SERVER": os.environ["SHOAL_SERVER"], "SHOAL_TOKEN": os.environ["SHOAL_TOKEN"]}
        self.env |= {"CLUSTER": str(pool.folder)}

    def start(self, text: str, name: str = "script.py", *words: str) -> subprocess.Popen[str]:
        file = self.pool.cwd / name
        file.write_text(text, encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, str(file), *words], env=self.env, cwd=self.pool.cwd, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, text: str, name: str = "script.py", *words: str) -> tuple[str, str]:
        """What it printed on both streams; it has to end well."""
        process = self.start(text, name, *words)
        out, err = process.communicate(timeout=SOON)
        assert process.returncode == 0, out + err
        return out, err


@pytest.fixture
def scripts(pool: Cluster) -> Scripts:
    return Scripts(pool)


def until(condition: Callable[[], Any], within: float = SOON) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- data
def test_arguments_and_results_of_any_size(pool: Cluster) -> None:
    array = numpy.random.default_rng(1).random((300, 400))
    with shoal.Executor(attach=False) as ex:
        got = ex.submit(lambda a: a.T, array).result(SOON)
        assert (got == array.T).all()
        got[0, 0] = 5.0
        sizes = [10, 70_000, 5_000_000, 0, 65_536]
        assert list(ex.map(len, [bytes(size) for size in sizes])) == sizes
        assert [len(data) for data in ex.map(bytes, sizes)] == sizes
        error = ex.submit(functions.fail, "x" * 200_000).exception(SOON)
        assert isinstance(error, KeyError) and len(error.args[0]) == 200_000
        big = bytes(100_000)
        assert ex.submit(lambda: len(big)).result(SOON) == 100_000  # a function larger than a message


def test_an_object_is_put_once(pool: Cluster) -> None:
    table = numpy.arange(200_000)
    with shoal.Executor(attach=False) as ex:
        ref = ex.put(table)
        assert list(ex.map(lambda t, n: int(t[n]), [ref] * 40, range(40))) == list(range(40))
        assert ex.submit(lambda pair: int(pair["t"].sum()), {"t": ref}).result(SOON) == int(table.sum())


def test_every_call_has_a_row_of_results(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        assert list(ex.map(functions.double, range(99))) == [2 * n for n in range(99)]
        assert isinstance(ex.submit(functions.fail, "x").exception(SOON), KeyError)
    rows = shoal.results(ex.run)
    assert [row["call"] for row in rows] == [*(f"double({n})" for n in range(99)), "fail('x')"]
    assert [row["result"] for row in rows] == [*(2 * n for n in range(99)), None]
    assert {row["state"] for row in rows[:99]} == {"succeeded"} and rows[99]["state"] == "failed"
    assert all(0 < row["started"] <= row["ended"] for row in rows)


def test_progress_of_a_map_goes_to_standard_error(pool: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    with shoal.Executor(attach=False) as ex:
        assert list(ex.map(functions.double, range(30), progress=True)) == [2 * n for n in range(30)]
        slow = ex.map(time.sleep, [1.5, 0.0, 0.0], chunksize=2, progress=True)
        assert list(slow) == [None] * 3
    said = capfd.readouterr()
    assert said.out == ""
    # On a busy machine the quick map takes a second, too, and is then told of.
    lines = [line for line in said.err.splitlines() if not line.startswith("shoal: double  ")]
    assert lines[0].startswith("shoal: sleep  ") and lines[-1].startswith("shoal: sleep  3/3")


def test_what_functions_print_is_shown(pool: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    with shoal.Executor(attach=False) as ex:
        list(ex.map(functions.talk, range(20)))
        ex.submit(functions.talk_much).result(SOON)
    said = capfd.readouterr()
    assert sorted(said.out.splitlines()) == sorted([*(f"says {n}" for n in range(20)), "one", "three"])
    assert said.err == "two\n"
    with shoal.Executor(attach=False, echo=False) as ex:
        list(ex.map(functions.talk, range(20)))
    assert capfd.readouterr().out == ""


def test_a_seed_gives_the_same_numbers_each_time_and_others_to_each_call(pool: Cluster) -> None:
    def draw(_: int) -> tuple[float, float]:
        return random.random(), float(numpy.random.random())

    drawn = []
    for seed in (42, 42, 43):
        with shoal.Executor(seed=seed, attach=False) as ex:
            drawn.append([*ex.map(draw, range(30)), ex.submit(draw, 0).result(SOON)])
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({number for pair in drawn[0] for number in pair}) == 62


def test_a_function_knows_its_task(pool: Cluster) -> None:
    def tell(_: int) -> list[Any]:
        import shoal

        task = shoal.current_task()
        assert task is not None
        return [task.run, task.task, task.attempt, task.index]

    with shoal.Executor(attach=False) as ex:
        told = list(ex.map(tell, range(5)))
        assert told == [[ex.run, f"{ex.run}.{n}", 1, n] for n in range(1, 6)]
    assert shoal.current_task() is None


def test_options_of_tasks_are_those_of_calls(pool: Cluster) -> None:
    with shoal.Executor(
        attach=False, env={"WORD": "hi"}, cwd=str(pool.folder), labels={"paper": "2"}, name="fit"
    ) as ex:
        assert ex.submit(lambda: (os.environ["WORD"], os.getcwd())).result(SOON) == ("hi", str(pool.folder))
        row = pool.run_row(int(ex.run[1:]))
    assert row["name"] == "fit" and row["labels"]["paper"] == "2"
    with shoal.Executor(attach=False, time="1s") as ex:
        error = ex.submit(time.sleep, 60).exception(SOON)
        assert isinstance(error, shoal.TaskFailed) and error.cause == "over_time"
    with shoal.Executor(attach=False, retries=2) as ex:
        mark = str(pool.cwd / "tries")

        def flaky(path: str) -> int:
            with open(path, "a") as file:
                file.write("x")
            if os.path.getsize(path) < 3:
                raise ValueError("not yet")
            return os.path.getsize(path)

        assert ex.submit(flaky, mark).result(SOON) == 3


def test_commands_and_functions_in_one_run(pool: Cluster) -> None:
    class Mixed(shoal.Run):
        def __init__(self) -> None:
            self.words: list[Any] = []

        def start(self) -> None:
            self.command(["echo", "one line"])
            self.command("printf 'a\\nlast'", cores=2)
            self.submit(functions.double, 4)

        def done(self, task: Any) -> None:
            self.words.append(task.value)
            if task.value == 8:
                self.submit(functions.double, 8)

        def result(self) -> list[Any]:
            return sorted(map(str, self.words))

    assert Mixed().execute(attach=False) == ["16", "8", "last", "one line"]


def test_an_event_loop_may_wait_for_calls(pool: Cluster) -> None:
    async def work(ex: shoal.Executor) -> list[int]:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(ex, functions.double, n) for n in range(10)]
        return [*await asyncio.gather(*calls), await asyncio.wrap_future(ex.submit(functions.double, 10))]

    with shoal.Executor(attach=False) as ex:
        assert asyncio.run(work(ex)) == [2 * n for n in range(11)]


def test_cancelling_the_awaiting_takes_a_call_back_unless_it_runs(pool: Cluster, tmp_path: Path) -> None:
    go, ledger = tmp_path / "go", tmp_path / "ledger"

    async def work(ex: shoal.Executor) -> list[int]:
        loop = asyncio.get_running_loop()
        begun = [tmp_path / "one", tmp_path / "two"]
        busy = [loop.run_in_executor(ex, functions.wait_for, str(go), n, str(file)) for n, file in enumerate(begun)]
        while not all(file.exists() for file in begun):  # both slots are taken
            await asyncio.sleep(0.01)
        queued = loop.run_in_executor(ex, functions.append, str(ledger), "cancelled")
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.wrap_future(ex.submit(functions.append, str(ledger), "too late"))
        go.touch()
        return list(await asyncio.gather(*busy))

    with shoal.Executor(attach=False) as ex:
        assert asyncio.run(work(ex)) == [0, 1]
    assert not ledger.exists()


def test_a_call_that_nobody_can_run_says_why(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.start_server()
    monkeypatch.setattr(result_poll, "WAIT", 1.0)
    monkeypatch.setattr(result_poll, "WHY_AFTER", 0.3)
    monkeypatch.setenv("SHOAL_SERVER", cluster.address()["url"])
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    said = ""
    with shoal.Executor(attach=False) as ex:
        future = ex.submit(abs, -1)
        end = time.monotonic() + SOON
        while "waits" not in said and time.monotonic() < end:
            said += capfd.readouterr().err
            time.sleep(0.01)
        cluster.start_pilot(1)
        assert future.result(SOON) == 1
    assert "shoal: r1 waits: 1 task: no pilot is connected" in said and said.count("waits") == 1


# --- crashes
def test_a_pilot_killed_in_the_middle_of_a_map_loses_nothing(pool: Cluster) -> None:
    tale = str(pool.cwd / "calls")
    with shoal.Executor(attach=False) as ex:

        def work(n: int) -> int:
            functions.append(tale, str(n))
            time.sleep(0.01)
            return n

        results = ex.map(work, range(400))
        until(lambda: Path(tale).exists() and len(Path(tale).read_text().splitlines()) > 30)
        pool.pilots[0].kill_group()
        pool.start_pilot(2)
        assert list(results) == list(range(400))
    assert pool.succeeded(int(ex.run[1:])) == 400


def test_a_server_killed_in_the_middle_is_waited_for(pool: Cluster) -> None:
    with shoal.Executor(attach=False) as ex:
        results = ex.map(functions.pid, [0.01] * 300)
        assert next(results) > 0
        pool.kill_server()
        late = ex.submit(functions.double, 21)  # while nobody is there
        pool.start_server()
        assert len(list(results)) == 299
        assert late.result(SOON) == 42
        assert list(ex.map(functions.double, range(100))) == [2 * n for n in range(100)]
    assert pool.run_row(int(ex.run[1:]))["total"] == 401


def test_a_fork_leaves_the_parent_alone(scripts: Scripts) -> None:
    out, _ = scripts.run(
        """
import os, sys, shoal
ex = shoal.Executor(attach=False)
print(ex.submit(abs, -1).result(), ex.run, flush=True)
slow = ex.submit(lambda: __import__("time").sleep(0.5) or "slow")
child = os.fork()
if child == 0:
    print(ex.submit(abs, -2).result(60), ex.run, flush=True)
    ex.shutdown()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(ex.submit(abs, -3).result(60), slow.result(60), ex.run)
ex.shutdown()
"""
    )
    assert out.splitlines() == ["1 r1", "2 r2", "3 slow r1"]


# --- scripts
GUARDED = """
import shoal
from dataclasses import dataclass

@dataclass
class Point:
    x: int

def square(p):
    return Point(p.x ** 2)

if __name__ == "__main__":
    with shoal.Executor() as ex:
        print([p.x for p in ex.map(square, [Point(n) for n in range(5)])])
"""


@pytest.mark.parametrize("text", [GUARDED, GUARDED.replace('if __name__ == "__main__":', "if True:")])
def test_scripts_with_and_without_a_guard(scripts: Scripts, text: str) -> None:
    assert scripts.run(text) == ("[0, 1, 4, 9, 16]\n", "")


def test_a_script_uses_modules_beside_it(scripts: Scripts) -> None:
    (scripts.pool.cwd / "neighbour.py").write_text("def triple(x): return 3 * x\n", encoding="utf-8")
    out, _ = scripts.run(
        "import shoal, neighbour\nwith shoal.Executor() as ex: print(list(ex.map(neighbour.triple, range(3))))"
    )
    assert out == "[0, 3, 6]\n"


def test_a_script_ends_when_its_calls_have(scripts: Scripts) -> None:
    out, _ = scripts.run(
        "import shoal, time\nex = shoal.Executor()\n"
        "ex.submit(time.sleep, 0.3).add_done_callback(lambda f: print('done', f.result()))\nprint('end of script')"
    )
    assert out.splitlines() == ["end of script", "done None"]
    until(lambda: scripts.pool.run_row(1)["finished"] is not None)


SLOW = """
import os, shoal, sys, time
def work(n):
    while n >= 3 and not os.path.exists("go"):
        time.sleep(0.01)
    with open("calls", "a") as file:
        file.write(f"{n}\\n")
    return n
with shoal.Executor(name="slow") as ex:
    results = ex.map(work, range(40))
    for value in results:
        print(value, flush=True)
"""


def test_the_same_script_again_goes_on_where_it_was(scripts: Scripts) -> None:
    first = scripts.start(SLOW)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
    first.kill()
    first.communicate()
    (scripts.pool.cwd / "go").touch()
    out, err = scripts.run(SLOW)
    assert out.splitlines() == [str(n) for n in range(40)]
    assert err.startswith("shoal: re-attached to r1: 40 calls known, ")
    assert sorted(map(int, (scripts.pool.cwd / "calls").read_text().split())) == list(range(40))  # each was made once
    until(lambda: scripts.pool.run_row(1)["finished"] is not None)
    out, err = scripts.run(SLOW)  # the run was closed: this is a new one
    assert out.splitlines() == [str(n) for n in range(40)] and err == ""
    assert scripts.pool.run_row(2)["total"] == 40


def test_futures_of_a_dead_process_come_back(scripts: Scripts, capfd: pytest.CaptureFixture[str]) -> None:
    first = scripts.start(SLOW)
    assert first.stdout is not None and first.stdout.readline() == "0\n"
    first.kill()
    first.communicate()
    attached = shoal.attach("slow")
    assert len(attached.futures) == 40 and attached.run == "r1"
    assert "shoal: attached to r1: 40 calls, " in capfd.readouterr().err
    (scripts.pool.cwd / "go").touch()
    assert {future.result() for future in as_completed(attached.futures, SOON)} == set(range(40))
    assert list(attached.results()) == list(range(40))
    again = shoal.attach()
    assert list(again.results(SOON)) == list(range(40))


def test_ctrl_c_detaches_and_a_second_one_cancels(scripts: Scripts) -> None:
    for times in (1, 2):
        process = scripts.start(SLOW.replace('"slow"', f'"slow{times}"'))
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.readline()
        assert said.startswith("shoal: detached, ") and f"shoal cancel r{times}" in said
        if times == 2:
            process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=SOON)
        assert (f"shoal: r{times}: cancelled" in rest) == (times == 2), rest
        row = scripts.pool.run_row(times)
        assert bool(row["counts"].get("cancelled")) == (times == 2), rest
        with scripts.pool.client() as client:
            client.cancel([f"r{times}"])


def test_importing_the_executor_does_not_take_long() -> None:
    code = "import time; t = time.process_time(); import shoal; shoal.Executor; print(time.process_time() - t)"
    least = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(5)
    )
    assert least < 0.5


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a person without any server; the embedded one is stopped at the end."""
    env = clean_env() | {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    yield env
    subprocess.run(
        [sys.executable, "-m", "shoal.cli", "server", "stop", "--pilots"], env=env, check=False, timeout=SOON
    )
    left = [pid for pid, _ in processes_with(str(tmp_path)) if pid != os.getpid()]
    end = time.monotonic() + 10.0
    while any(not is_dead(pid) for pid in left) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in left:
        if not is_dead(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["functions.py", "hooks.py"])
def test_examples_run_on_an_embedded_server(alone: dict[str, str], name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        env=alone,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pi" in done.stdout


def test_an_embedded_server_that_ended_is_started_again(alone: dict[str, str], tmp_path: Path) -> None:
    code = f"""
import json, os, signal, time, shoal
ex = shoal.Executor(attach=False)
print(ex.submit(abs, -1).result(60))
pid = json.load(open({str(tmp_path / "shoal" / "server.json")!r}))["pid"]
os.kill(pid, signal.SIGKILL)
print(list(ex.map(abs, range(-3, 0))))
ex.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=alone, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["1", "[3, 2, 1]"]
