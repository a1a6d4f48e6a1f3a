"""How real pilots describe themselves, and what real tasks publish on them [GWP G3, G4]."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import shoal
from tests.integration.cluster import Cluster, Json, clean_env
from tests.integration.guests import ANNA, serving

pytestmark = pytest.mark.integration

SHOAL = str(Path(sys.executable).with_name("shoal"))
FLOOD = 'i=0; while [ $i -lt 20000 ]; do echo "t$i = $i"; echo "x = $i"; i=$((i+1)); done > "$SHOAL_TAGS"'


def tags_of(cluster: Cluster) -> Json:
    """The tags of the only pilot that is here, as everybody sees them."""
    with cluster.client() as client:
        rows = [row for row in client.pilots()["pilots"] if row["state"] != "gone"]
    (row,) = rows
    tags: Json = row["tags"]
    return tags


def shell(line: str, **more: object) -> Json:
    return {"shell": line, **more}


def test_a_pilot_says_what_its_host_is_and_what_it_was_told_to_say(cluster: Cluster) -> None:
    cluster.start_server()
    pilot = cluster.start_pilot(1, "--tag", "disk=ssd", "--tag", "rack=7", "--tag", "fast=true", "--tag", 'code="7"')
    tags = tags_of(cluster)
    assert (tags["disk"], tags["rack"], tags["fast"], tags["code"]) == ("ssd", 7, True, "7")
    assert (tags["pid"], tags["hostname"], tags["kernel"]) == (pilot.pid, os.uname().nodename, os.uname().release)
    assert tags["arch"] == os.uname().machine
    assert tags["python"] == ".".join(map(str, sys.version_info[:3]))
    assert Path(tags["scratch"]).parent == pilot.work
    for name in ("os", "user", "cpu"):
        assert isinstance(tags[name], str) and tags[name], name
    for name in ("load", "memory_available_mb", "disk_available_mb", "task_memory_mb", "task_cpu"):
        assert isinstance(tags[name], int | float), name
    assert tags["memory_available_mb"] > 0 and tags["disk_available_mb"] > 0


def test_a_bad_tag_is_told_in_one_line_and_nothing_is_started(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(cluster.zip), "--server-file", "none", "--tag", "cores=64"],
        capture_output=True, text=True, timeout=60, env=clean_env(),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cores has a meaning already" in done.stderr


def test_what_a_task_publishes_is_seen_while_it_runs_and_stays_after_it(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    gate = cluster.folder / "gate"
    line = f'printf "prepared = true\\nversion = 2.5\\nnote = a b\\n" > $SHOAL_TAGS; while ! [ -e {gate} ]; do sleep 0.02; done'
    run = cluster.submit(shell(f"{line}; echo last = 1 > $SHOAL_TAGS"))
    owner = cluster.run_row(run)["owner"]
    cluster.until(lambda: tags_of(cluster).get(f"{owner}.prepared") is True, "the tag is there", 10.0)
    tags = tags_of(cluster)
    assert (tags[f"{owner}.version"], tags[f"{owner}.note"]) == (2.5, "a b")
    assert f"{owner}.last" not in tags
    gate.touch()
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert tags_of(cluster)[f"{owner}.last"] == 1, "it is known no later than the end of its task"
    assert tags_of(cluster)[f"{owner}.prepared"] is True
    second = cluster.submit(shell("echo prepared = > $SHOAL_TAGS; printf 'note = without end' > $SHOAL_TAGS"))
    assert cluster.wait_run(second) == {"succeeded": 1}
    tags = tags_of(cluster)
    assert f"{owner}.prepared" not in tags, "an empty value takes it away"
    assert tags[f"{owner}.note"] == "without end"


def test_a_published_tag_comes_within_a_moment(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    go = cluster.folder / "go"
    run = cluster.submit(shell(f"echo x = 1 > $SHOAL_TAGS; while ! test -e {go}; do sleep 0.05; done"))
    key = f"{cluster.run_row(run)['owner']}.x"
    cluster.until(lambda: key in tags_of(cluster), "the tag is there while its task runs")
    assert cluster.run_row(run)["finished"] is None
    go.touch()
    assert cluster.wait_run(run) == {"succeeded": 1}


def test_many_tasks_publish_at_once_and_each_is_heard(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    array = {"shell": 'echo "t$SHOAL_INDEX = $SHOAL_INDEX" > $SHOAL_TAGS', "array": "1-40"}
    run = cluster.submit(array)
    owner = cluster.run_row(run)["owner"]
    assert cluster.wait_run(run) == {"succeeded": 40}
    mine = {name: value for name, value in tags_of(cluster).items() if name.startswith(f"{owner}.t")}
    assert len(mine) == 40
    assert all(name == f"{owner}.t{value}" for name, value in mine.items())


def test_a_task_that_floods_its_pipe_harms_nobody(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    flood = cluster.submit(shell(FLOOD))
    cluster.wait_running(flood)
    began = time.monotonic()
    run = cluster.submit({"command": ["true"], "array": "1-50"})
    assert cluster.wait_run(run) == {"succeeded": 50}
    assert time.monotonic() - began < 60.0
    assert cluster.wait_run(flood) == {"succeeded": 1}
    owner = cluster.run_row(flood)["owner"]
    assert 1 <= sum(name.startswith(f"{owner}.") for name in tags_of(cluster)) <= 64


def test_what_was_published_while_the_server_was_away_is_not_lost(cluster: Cluster) -> None:
    cluster.timing |= {"lease": 30.0, "quarantine": 20.0}  # nobody is given up, however busy the machine
    cluster.start_server()
    cluster.start_pilot(1)
    gate = cluster.folder / "gate"
    wait = f"while ! [ -e {gate} ]; do sleep 0.02; done"
    run = cluster.submit(shell(f"echo before = 1 > $SHOAL_TAGS; {wait}; echo away = 1 > $SHOAL_TAGS; sleep 1"))
    owner = cluster.run_row(run)["owner"]
    cluster.until(lambda: f"{owner}.before" in tags_of(cluster), "the first tag is there")
    cluster.kill_server()
    gate.touch()
    time.sleep(0.3)
    cluster.start_server()
    assert cluster.wait_run(run) == {"succeeded": 1}
    tags = cluster.until(lambda: tags_of(cluster) if f"{owner}.away" in tags_of(cluster) else {}, "the tag is there")
    assert (tags[f"{owner}.before"], tags[f"{owner}.away"]) == (1, 1)


# --- functions
def publish(name: str, value: object) -> str:
    """Publish a tag as any program does."""
    path = os.environ["SHOAL_TAGS"]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{name} = {value}\n")
    return path


def in_a_child(name: str) -> int:
    return os.system(f"echo {name} = 1 > $SHOAL_TAGS")


@pytest.fixture
def by_value() -> Callable[..., object]:
    import cloudpickle  # type: ignore[import-untyped]

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return publish


def test_functions_and_initializers_publish_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, by_value: Callable[..., object]
) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    monkeypatch.setenv("SHOAL_SERVER", cluster.address()["url"])
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    with shoal.Executor(attach=False, initializer=publish, initargs=("ready", "true")) as ex:
        paths = set(ex.map(publish, [f"f{number}" for number in range(30)], range(30)))
        assert ex.submit(in_a_child, "child").result(60) == 0
    assert all(path.startswith(str(cluster.work)) for path in paths)

    def mine() -> Json:
        return {name.partition(".")[2]: value for name, value in tags_of(cluster).items() if "." in name}

    wanted = {"ready": True, "child": 1, **{f"f{number}": number for number in range(30)}}
    cluster.until(lambda: mine() == wanted, "all of them are there", 10.0)


def test_the_listing_finds_what_matching_finds(tmp_path: Path) -> None:
    """A tag that changes while the pilot works, and the server's own facts: `pilots --where` reads what `require` reads."""
    with serving(tmp_path / "guests") as guests:
        guests.invite()
        anna, pilot = guests.people[ANNA], guests.people[ANNA].host
        nothing = [{"attempt": "r999.1#1@1", "tags": {"x": 1}}]  # has the answer come at once
        assert pilot.talk(tags={"task_memory_mb": 500}, published=nothing).status == 200

        def found(where: str) -> list[str]:
            done = subprocess.run(
                [SHOAL, "pilots", "--where", where, "--json"], capture_output=True, text=True, timeout=60, check=True,
                env={**clean_env(), "SHOAL_SERVER": guests.url, "SHOAL_TOKEN": anna.token},
            )  # fmt: skip
            return [row["pilot"] for row in json.loads(done.stdout)["pilots"]]

        run = guests.submit(anna.token, ANNA, tasks=[{"command": ["true"], "require": "task_memory_mb > 100"}])
        assert found("task_memory_mb > 100") == [pilot.name]
        assert found("free_memory_mb >= 0 and free_disk_mb >= 0 and free_gpus == 0") == [pilot.name]
        assert found("task_memory_mb > 1000") == []
        why = guests.do("GET", f"/v1/why/{run}", token=anna.token)
        assert "holds on no pilot" not in json.dumps(why), "matching sees the same"
