"""One suite for all backends: recorded outputs, and whole lives of allocations with stand-ins for the commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from shoal.model.errors import BadInput
from shoal.provision import registry, shell
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Backend, BackendError, Order, Result, Shape, Status
from shoal.provision.shell import LocalShell

FOLDER = Path(__file__).parent
PREFIX = "shoal-k3f9a2"


class Case(NamedTuple):
    """A backend, the options of its site, its commands, and the reason that its stand-in gives for an end."""

    name: str
    options: Mapping[str, str]
    tools: tuple[str, ...]
    reason: str


CASES = [
    Case("slurm", {"partition": "short"}, ("sbatch", "squeue", "sacct", "scancel"), "TIMEOUT"),
    Case("sge", {"queue": "all.q"}, ("qsub", "qstat", "qdel"), ""),
    Case("pbs", {"queue": "workq"}, ("qsub", "qselect", "qstat", "qdel"), "exit status 1"),
    Case("lsf", {"queue": "normal"}, ("bsub", "bjobs", "bkill"), "exit status 1"),
    Case("htcondor", {}, ("condor_submit", "condor_q", "condor_history", "condor_rm"), "exit status 1"),
    Case("kubernetes", {"image": "python:3.12", "namespace": "phys"}, ("kubectl",), "DeadlineExceeded"),
    Case(
        "command",
        {"submit": "mysub {name} {script}", "status": "mystat {ids}", "cancel": "mykill {ids}"},
        ("mysub", "mystat", "mykill"),
        "because",
    ),
]
NAMES = [*(case.name for case in CASES), "local"]
OPTIONS = {case.name: case.options for case in CASES}


class Site:
    """A directory, and a shell that finds the stand-ins before anything else."""

    def __init__(self, root: Path, tools: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.directory = root / "bin", str(root / "site")
        self.bin.mkdir()
        for tool in tools:
            file = self.bin / tool
            file.write_text(f"#!{sys.executable} -IS\n" + (FOLDER / "fake_batch.py").read_text())
            file.chmod(0o755)
        for tool in ("sh", "id", "cat", "tr", "uname", "mkdir", "mv", "rm", "ps", "sleep", "date", "setsid"):
            where = shutil.which(tool)
            if where:
                (self.bin / tool).symlink_to(where)
        monkeypatch.setattr(shell, "SEARCHED", str(self.bin))  # batch systems that are really installed stay out
        self.shell = LocalShell({"PATH": str(self.bin), "HOME": str(root), "SECRET": "x"})
        self.shell.make_directory(self.directory)

    def submit(self, backend: Backend, order: Order) -> str:
        path = f"{self.directory}/{order.name}.sh"
        self.shell.put(path, backend.script(order).encode(), 0o700)
        return backend.parse_submit(self.shell.run(backend.submit(order, path), 20))

    def status(self, backend: Backend, *ids: str) -> list[Status]:
        return backend.parse_status(self.shell.run(backend.status(PREFIX, ids), 20), PREFIX, ids)

    def change(self, id: str, state: str) -> None:
        file = self.bin / "jobs.json"
        jobs = json.loads(file.read_text())
        jobs[id][1] = state
        file.write_text(json.dumps(jobs))

    def order(self, case: Case, number: int = 1) -> Order:
        options = {} if case.name == "command" else case.options
        return Order(f"{PREFIX}-{number}", Shape(2, 600), self.directory, ("python3", "pilot.pyz"), options)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found = request.param
    assert isinstance(found, Case)
    return found


@pytest.fixture
def site(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, case.tools, monkeypatch)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, (), monkeypatch)


def recorded(name: str) -> Iterator[tuple[Path, Path]]:
    for file in sorted((FOLDER / name).glob("status*.txt")):
        yield file, file.with_name(file.name.removesuffix(".txt") + ".expected.json")


# --- recorded outputs
@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_answer_to_a_submission_gives_the_id(name: str) -> None:
    backend = registry.make(name, OPTIONS.get(name, {}))
    wanted = (FOLDER / name / "submit.expected.txt").read_text().strip()
    assert backend.parse_submit(Result(0, (FOLDER / name / "submit.txt").read_text(), "some warning")) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_states_are_read(name: str) -> None:
    backend = registry.make(name, OPTIONS.get(name, {}))
    ids = ["J-17", "J-18", "J-19"] if name == "command" else []
    for file, expected in recorded(name):
        found = backend.parse_status(Result(0, file.read_text(), ""), PREFIX, ids)
        assert [list(status) for status in found] == json.loads(expected.read_text()), file.name


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_answer_is_an_error_or_less_but_never_something_else(name: str) -> None:
    """What is cut off may be missed; nothing is read that was not there."""
    backend = registry.make(name, OPTIONS.get(name, {}))
    for file, _ in recorded(name):
        text = file.read_text()
        known = {status.id for status in backend.parse_status(Result(0, text, ""), PREFIX, ["J-17"])}
        for length in range(0, len(text) - 1, max(1, len(text) // 40)):
            try:
                found = backend.parse_status(Result(0, text[:length], ""), PREFIX, ["J-17"])
            except BackendError:
                continue
            assert {status.id for status in found} <= known


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "result",
    [
        Result(0, "", ""),
        Result(0, "submitted, thank you\n", "maintenance at noon"),
        Result(0, "\x00\xff\n", ""),
        Result(0, "-1\n", ""),
        Result(0, "1 2\n3;rm -rf\n", ""),
        Result(1, "12345\n", "error: Batch job submission failed: Invalid account"),
        Result(127, "", "sh: 1: exec: sbatch: not found"),
    ],
)
def test_no_id_comes_from_an_answer_without_one(name: str, result: Result) -> None:
    """[input E83]"""
    with pytest.raises(BackendError) as caught:
        registry.make(name, OPTIONS.get(name, {})).parse_submit(result)
    assert result.tail.split()[0] in caught.value.message


# --- scripts
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hosts", [1, 3])
def test_every_script_is_sound_and_tells_when_the_allocation_ends(name: str, hosts: int) -> None:
    backend = registry.make(name, OPTIONS.get(name, {}))
    options = {} if name == "command" else OPTIONS.get(name, {})
    start = ("python3", "/opt/a b/pilot.pyz", "--site", "it's")
    order = Order(f"{PREFIX}-1", Shape(4, 3600, hosts, 2**30, 1), "/data/shoal/site", start, options)
    if name == "local" and hosts > 1:
        with pytest.raises(BadInput, match="one host"):
            backend.script(order)
        return
    text = backend.script(order)
    assert text.startswith("#!/bin/sh\n")
    assert "SHOAL_ALLOCATION_ENDS=$(( $(date +%s) + 3600 ))\nexport SHOAL_ALLOCATION_ENDS\n" in text
    assert "umask 077\n" in text
    subprocess.run(["sh", "-n"], input=text, text=True, check=True, timeout=20)


# --- whole lives
def test_an_allocation_is_queued_runs_and_ends(case: Case, site: Site) -> None:
    backend = registry.make(case.name, case.options)
    order = site.order(case)
    assert site.status(backend) == []
    id = site.submit(backend, order)
    seen = [site.status(backend, id)[0]]
    site.change(id, "running")
    seen += site.status(backend, id)
    site.change(id, "ended")
    seen += site.status(backend, id) or [Status(id, order.name, ENDED)]  # Grid Engine forgets it
    assert [status.state for status in seen] == [QUEUED, RUNNING, ENDED]
    assert {status.id for status in seen} == {id}
    assert {status.name for status in seen[:2]} == {"" if case.name == "command" else order.name}
    assert seen[-1].reason == case.reason


def test_an_allocation_is_found_again_by_its_name(case: Case, site: Site) -> None:
    """A provisioner that was killed after it had submitted does not know the id."""
    backend = registry.make(case.name, case.options)
    ids = [site.submit(backend, site.order(case, number)) for number in (1, 2)]
    found = site.status(backend) if case.name != "command" else site.status(backend, *ids)
    assert [status.id for status in found] == ids


def test_cancelled_allocations_end_and_cancelling_them_again_does_no_harm(case: Case, site: Site) -> None:
    backend = registry.make(case.name, case.options)
    ids = [site.submit(backend, site.order(case, number)) for number in (1, 2)]
    for _ in range(2):
        assert site.shell.run(backend.cancel(ids[:1]), 20).status == 0
    states = {status.id: status.state for status in site.status(backend, *ids)}
    assert states.get(ids[0], ENDED) == ENDED
    assert states[ids[1]] == QUEUED


def test_an_id_that_another_job_has_now_is_not_ours(case: Case, site: Site) -> None:
    """[input E83] Ids are used again; only the name says whose they are."""
    if case.name == "command":
        pytest.skip("what it says about an id has no name")
    backend = registry.make(case.name, case.options)
    id = site.submit(backend, site.order(case))
    (site.bin / "jobs.json").write_text(json.dumps({id: ["analysis", "running"]}))
    assert site.status(backend, id) == []


# --- commands that misbehave [input E83]
@pytest.mark.parametrize("mode", ["garbage", "fail"])
def test_trouble_of_a_command_is_told_in_its_own_words(case: Case, site: Site, mode: str) -> None:
    backend = registry.make(case.name, case.options)
    (site.bin / "mode").write_text(mode)
    words = "lorem" if mode == "garbage" else "the controller does not answer"
    with pytest.raises(BackendError, match=words):
        site.submit(backend, site.order(case))
    with pytest.raises(BackendError, match=words if case.name != "pbs" or mode == "fail" else "not understood|failed"):
        site.status(backend, "100")


def test_an_exit_status_of_0_without_an_id_is_an_error(case: Case, site: Site) -> None:
    (site.bin / "mode").write_text("silent")
    with pytest.raises(BackendError, match="printed nothing"):
        site.submit(registry.make(case.name, case.options), site.order(case))


def test_a_command_that_is_missing_is_an_error(case: Case, site: Site) -> None:
    backend = registry.make(case.name, case.options)
    for tool in case.tools:
        (site.bin / tool).unlink()
    for call in (lambda: site.submit(backend, site.order(case)), lambda: site.status(backend, "100")):
        with pytest.raises(BackendError, match="not found"):
            call()


def test_a_command_that_hangs_is_ended(case: Case, site: Site) -> None:
    backend = registry.make(case.name, case.options)
    (site.bin / "mode").write_text("hang")
    order = site.order(case)
    path = f"{site.directory}/x.sh"
    site.shell.put(path, backend.script(order).encode(), 0o700)
    begun = time.monotonic()
    with pytest.raises(BackendError, match=r"did not end within 0.4 s: (trying again|it printed nothing)") as caught:
        site.shell.run(backend.submit(order, path), 0.4)
    assert caught.value.transient
    assert time.monotonic() - begun < 10


# --- processes of this machine
def await_state(check: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not check():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_local_allocation_runs_ends_and_leaves_nothing(local: Site) -> None:
    backend = registry.make("local")
    gate = f"{local.directory}/gate"
    os.mkfifo(gate)
    start = ("sh", "-c", f'echo "$SHOAL_ALLOCATION_ENDS ${{SECRET-none}}"; cat {gate}; exit 3')
    order = Order(f"{PREFIX}-1", Shape(1, 600), local.directory, start, {})
    id = local.submit(backend, order)
    assert local.status(backend) == local.status(backend, id) == [Status(id, order.name, RUNNING)]
    with pytest.raises(BackendError, match="is there already"):
        local.submit(backend, order)
    Path(gate).write_text("go on")
    await_state(lambda: local.status(backend, id) == [Status(id, order.name, ENDED, "exit status 3")])
    ends, secret, _ = local.shell.read_tail(order.log, 1000).decode().split(maxsplit=2)
    assert time.time() < int(ends) <= time.time() + 600
    assert secret == "none"
    assert local.status(backend) == []
    assert [file for file in (Path(local.directory).parent / ".local").rglob("*") if file.is_file()] == []


def members(group: int) -> list[str]:
    """Processes of a group that live; the dead ones may wait for somebody to reap them."""
    shown = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True, timeout=20)
    rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()]
    return [row[-1] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]


def test_a_local_allocation_is_cancelled_with_its_group_and_no_other_process_is(local: Site) -> None:
    backend = registry.make("local")
    order = Order(f"{PREFIX}-1", Shape(1, 0), local.directory, ("sh", "-c", "sleep 300 & sleep 300"), {})
    id = local.submit(backend, order)
    pid, born, boot = id.split(".")
    other = f"{pid}.{int(born) + 1}.{boot}" if born.isdigit() else f"{pid}.x.{boot}"
    local.shell.run(backend.cancel([other]))  # the pid of one that ended before
    assert local.status(backend, id)[0].state == RUNNING
    local.shell.run(backend.cancel([id]))
    await_state(lambda: local.status(backend, id)[0].state == ENDED)
    await_state(lambda: not members(int(pid)))
