"""Partial results with real processes: the ledger of the payload is the truth [DIANE U13; ADR 0053]."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shoal
from shoal.model.errors import BadInput
from tests.integration.cluster import PROVE, Cluster, Json, clean_env

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SHOAL = str(Path(sys.executable).with_name("shoal"))
TASKS = 400 if PROVE else 60

# Emits some values, slowly, in both forms, and writes into its ledger what it emitted; one attempt in four fails at its end.
# The ledger of an attempt is a file of its own: which of them counts, only the server's record says.
EMITTER = """
import json, os, random, sys, time
ledger, each = sys.argv[1], float(sys.argv[2])
task, attempt = os.environ["SHOAL_TASK"], os.environ["SHOAL_ATTEMPT"]
rng = random.Random(attempt)
told = []
for at in range(rng.randrange(1, 6)):
    x = rng.gauss(5.0, 1.0)
    told.append(x)
    with open(os.environ["SHOAL_EMIT"], "a") as file:
        file.write(f"x={x!r}\\n" if at % 2 else json.dumps({"x": x}) + "\\n")
    time.sleep(each)
with open(f"{ledger}/{attempt}", "w") as file:
    json.dump(told, file)
sys.exit(rng.random() < 0.25)
"""


def emitter(cluster: Cluster, each: float = 0.02, **more: object) -> Json:
    script, ledger = cluster.folder / "emitter.py", cluster.folder / "ledger"
    script.write_text(EMITTER, encoding="utf-8")
    ledger.mkdir(exist_ok=True)
    return {"command": [sys.executable, "-I", "-S", str(script), str(ledger), str(each)], **more}


def truth(cluster: Cluster, run: int) -> list[float]:
    """What the winning attempts of the tasks that succeeded wrote down."""
    values: list[float] = []
    for row in cluster.rows(run):
        if row["state"] == "succeeded":
            number = row["winner"].partition("@")[0]
            values += json.loads((cluster.folder / "ledger" / f"r{run}.{row['element']}#{number}").read_text())
    return values


def partial(cluster: Cluster, run: int) -> Json:
    with cluster.client() as client:
        return client.partial(f"r{run}")


def test_each_task_counts_once_through_failures_and_kills_of_pilot_and_server(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    victim = cluster.start_pilot(2)
    run = cluster.submit(emitter(cluster, array=f"1-{TASKS}", retries=9), reduce={"x": "hist(0,10,20)"})
    cluster.wait_succeeded(run, TASKS // 6)
    victim.kill_group()
    cluster.wait_succeeded(run, TASKS // 3)
    cluster.kill_server()
    cluster.start_server()
    cluster.start_pilot(2)
    counts = cluster.wait_run(run, 120.0)
    assert counts == {"succeeded": TASKS}
    values = truth(cluster, run)
    found = partial(cluster, run)
    (answer,) = found["answers"]
    assert (found["tasks"], found["running"], found["left_out"]) == (TASKS, 0, 0)
    assert answer["n"] == len(values) and sum(answer["counts"]) + answer["below"] + answer["above"] == len(values)
    assert answer["value"] == pytest.approx(sum(values) / len(values), rel=1e-14)
    cluster.kill_server()
    cluster.start_server()
    assert partial(cluster, run)["answers"] == [answer], "from the database, too"


def test_the_answer_grows_while_tasks_run_and_is_there_again_after_a_restart(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    gate = cluster.folder / "gate"
    line = f'echo x=1 >> "$SHOAL_EMIT"; echo x=2 >> "$SHOAL_EMIT"; while ! [ -e {gate} ]; do sleep 0.02; done'
    run = cluster.submit({"shell": line, "array": "1-2"})
    cluster.until(lambda: partial(cluster, run)["running"] == 2, "what both emitted is there", 30.0)
    assert partial(cluster, run)["answers"][0]["sum"] == 6.0
    cluster.kill_server()
    cluster.start_server()
    cluster.until(lambda: partial(cluster, run)["running"] == 2, "pilots send it again", 30.0)
    gate.touch()
    assert cluster.wait_run(run) == {"succeeded": 2}
    found = partial(cluster, run)
    assert (found["tasks"], found["running"], found["answers"][0]["sum"]) == (2, 0, 6.0)


def test_short_commands_and_calls_count_by_the_hundred(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    monkeypatch.setenv("SHOAL_SERVER", cluster.address()["url"])
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    many = cluster.submit({"shell": 'echo "x={i}" >> "$SHOAL_EMIT"', "array": "1-200"}, reduce={"x": "sum"})
    assert cluster.wait_run(many) == {"succeeded": 200}
    assert partial(cluster, many)["answers"][0]["value"] == 20_100

    def call(at: int) -> int:
        if at % 3 == 0:
            shoal.emit({"at": at}, square=at * at)
        return at

    with shoal.Executor(reduce={"square": "best(2)"}, attach=False) as executor:
        assert list(executor.map(call, range(300))) == list(range(300))
        found = executor.partial()
    by_name = {answer["name"]: answer for answer in found["answers"]}
    assert (by_name["at"]["n"], by_name["at"]["sum"]) == (100, float(sum(range(0, 300, 3))))
    assert [one["value"] for one in by_name["square"]["values"]] == [297.0**2, 294.0**2]
    assert by_name["square"]["values"][0]["task"] == f"{executor.run}.298"
    with pytest.raises(BadInput, match="no reducer"):
        shoal.Executor(reduce={"x": "media"})


def test_emit_does_nothing_outside_of_shoal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOAL_EMIT", raising=False)
    shoal.emit(x=1)


def test_a_goal_ends_a_run_with_status_0_and_says_so(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    address = cluster.address()
    env = {**clean_env(), "SHOAL_SERVER": address["url"], "SHOAL_TOKEN": address["token"]}
    line = 'echo "y=1{x}" >> "$SHOAL_EMIT"; sleep 0.05'

    def shoal_(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SHOAL, *argv],
            capture_output=True,
            text=True,
            timeout=120,
            env=env,
            cwd=cluster.cwd,
            stdin=subprocess.DEVNULL,
        )

    began = time.monotonic()
    done = shoal_("sweep", "x=1..5000", "--until", "rel_err(y) < 0.2", "--shell", "--", line)
    assert done.returncode == 0, done.stderr
    assert "goal: rel_err(y) < 0.2 is reached: rel_err(y) = 0." in done.stdout
    assert time.monotonic() - began < 60.0, "nobody waited for five thousand tasks"
    shown = shoal_("show", "r1")
    assert "until" in shown.stdout and "succeeded" in shown.stdout.splitlines()[2]
    document = json.loads(shoal_("partial", "r1", "--json").stdout)
    assert document["goal"]["reached"] and document["goal"]["values"]["rel_err(y)"] < 0.2
    retried = shoal_("retry", "r1")
    assert retried.returncode == 3 and "is reached" in retried.stderr
    followed = shoal_("partial", "r1", "--follow")
    assert followed.returncode == 0 and "goal:" in followed.stdout
    line = 'echo "{\\"y\\": [{x}e200, 1e308]}" >> "$SHOAL_EMIT"'
    large = shoal_("sweep", "x=1..20", "--until", "rel_err(y) < 0.01", "--reduce", "y=sum", "--shell", "--", line)
    assert large.returncode == 0 and "y: beyond the range of numbers (sum of 40)" in large.stdout, large
    assert "rel_err(y) = 0.1" in large.stdout and '"value": null' in shoal_("partial", "r2", "--json").stdout
    for argv, told in (
        (("--until", "rel_err(y < 1"), "until: rel_err has one argument"),
        (("--until", "mean(y) > 1", "--reduce", "y=best(3)"), "y is reduced by best(3)"),
        (("--reduce", "y=media"), "is no reducer"),
        (("--reduce", "y"), "is not a pair"),
    ):
        refused = shoal_("submit", *argv, "--", "true")
        assert refused.returncode == 2 and told in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    assert list(cluster.pilots[0].work.rglob("emit/*")) == [], "files of attempts that are over are removed"
