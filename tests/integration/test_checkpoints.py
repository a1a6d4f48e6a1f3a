"""Tasks that go on later, with a real pilot: what is kept when one ends or is stopped, what the next part finds
[GWP G10]."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.model.blobs import digest_of
from shoal.wire.messages import Lease, Order, Report
from tests.integration.test_pilot_hands import OLDEST, World, python, pyz, world

__all__ = ["pyz", "world"]  # fixtures

pytestmark = pytest.mark.integration

# Counts on from what is there; writes where it is when it is told to end, as a good task does.
COUNTER = """
import os, signal, sys, time
at = int(open("state").read()) if os.path.exists("state") else 0
print("part", os.environ["SHOAL_PART"], "from", at, flush=True)
def end(*_):
    with open("state.new", "w") as file:
        file.write(str(at + 1))
    os.rename("state.new", "state")
    sys.exit({code})
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
time.sleep(60)
"""


def counter(world: World, code: int = 0, **more: object) -> Lease:
    return world.lease(*python(COUNTER.replace("{code}", str(code))), checkpoint=["state"], **more)


def begin(world: World, lease: Lease) -> None:
    world.server.give(lease)
    world.until(lambda: world.log(lease).exists() and "from" in world.log(lease).read_text())
    world.until((world.home / "ready").exists)
    (world.home / "ready").unlink()


def leave_now(pilot: subprocess.Popen[str]) -> None:
    """The first signal finishes what runs, the second stops it."""
    pilot.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    pilot.send_signal(signal.SIGTERM)


# --- a task that says so itself ---


@pytest.mark.parametrize("own", [False, True])
def test_a_task_that_ends_with_85_goes_on_with_the_files_it_declared(world: World, own: bool) -> None:
    pilot = world.pilot(python=str(OLDEST or sys.executable))
    write = "mkdir -p deep; echo 7 >deep/state; echo model >big; echo scrap >scrap; exit 85"
    lease = world.lease(shell=write, checkpoint=["deep/state", "big"], own=own)
    report = world.server.run(lease)
    assert (report.outcome, report.cause, report.exit_code) == ("checkpointed", "", 85)
    digests = {"deep/state": digest_of([b"7\n"]), "big": digest_of([b"model\n"])}
    assert report.files == digests and report.staging > 0
    assert world.server.asked == [f"PUT {digest}?run=r1&for=checkpoint" for digest in digests.values()]
    world.server.asked.clear()
    for file in world.home.rglob("*"):
        if file.is_file():
            file.unlink()  # as on another host

    more = world.lease(
        shell="cat deep/state big; ls; echo $SHOAL_PART",
        checkpoint=lease.checkpoint,
        restored=report.files,
        part=1,
        own=own,
    )
    report = world.server.run(more)
    assert report.outcome == "succeeded" and report.staging > 0, report
    assert world.log(more).read_text() == "7\nmodel\nbig\ndeep\n1\n"
    assert len(world.server.asked) == 2
    world.end(pilot)


def test_where_both_parts_see_one_directory_nothing_is_fetched(world: World) -> None:
    pilot = world.pilot()
    report = world.server.run(world.lease(shell="echo 7 >state; exit 85", checkpoint=["state"]))
    world.server.asked.clear()
    more = {"checkpoint": ["state"], "restored": report.files, "part": 1}
    assert world.server.run(world.lease("cat", "state", **more)).last_line == "7"
    assert world.server.asked == []
    (world.home / "state").write_text("8\n")  # half of a later part, which was lost
    assert world.server.run(world.lease("cat", "state", **more)).last_line == "7"
    assert len(world.server.asked) == 1 and os.stat(world.home / "state").st_mode & 0o200
    assert [file.name for file in world.home.iterdir()] == ["state"]
    world.end(pilot)


def test_a_missing_file_is_named_and_85_without_a_declaration_is_a_failure(world: World) -> None:
    pilot = world.pilot()
    report = world.server.run(world.lease(shell="echo 7 >state; exit 85", checkpoint=["state", "other"]))
    assert (report.outcome, report.cause) == ("failed", "output_missing")
    assert report.message == "checkpoint other was not written" and world.server.asked == []
    report = world.server.run(world.lease(shell="echo 7 >state; exit 85"))
    assert (report.outcome, report.cause, report.message) == ("failed", "task_error", "exit code 85")
    report = world.server.run(world.lease("true", setup=["(exit 85)"], checkpoint=["state"]))
    assert (report.outcome, report.cause) == ("failed", "host_unfit"), "it was not the task that said so"
    world.end(pilot)


def test_no_link_leads_out_of_the_directory(world: World, tmp_path: Path) -> None:
    pilot = world.pilot()
    secret = tmp_path / "secret"
    secret.write_text("hush")
    inner = tmp_path / "elsewhere"
    inner.mkdir()
    for make, name in ((f"ln -s {secret} state", "state"), (f"ln -s {inner} deep; echo 1 >deep/state", "deep/state")):
        report = world.server.run(world.lease(shell=f"{make}; exit 85", checkpoint=[name]))
        assert (report.outcome, report.cause) == ("failed", "stage_out")
        assert report.message == f"checkpoint_refused: {name} is a symbolic link or no plain file"
    assert world.server.asked == []
    world.server.blobs[digest_of([b"x"])] = b"x"
    for name in ("state", "deep/state"):
        lease = world.lease("true", checkpoint=[name], restored={name: digest_of([b"x"])}, part=1)
        report = world.server.run(lease)
        assert (report.outcome, report.cause) == ("failed", "stage_in"), report
        assert report.message.startswith("checkpoint_refused: ")
    assert secret.read_text() == "hush" and (inner / "state").read_text() == "1\n"
    for name in ("../out", "/tmp/out", "a/../../out"):
        report = world.server.run(world.lease("true", checkpoint=["a"], restored={name: digest_of([b"x"])}, part=1))
        assert report.message == f"checkpoint_refused: {name} is no path below the task's directory"
    world.end(pilot)


def test_a_checkpoint_that_is_gone_is_said(world: World) -> None:
    pilot = world.pilot()
    lost = digest_of([b"lost"])
    report = world.server.run(world.lease("true", checkpoint=["state"], restored={"state": lost}, part=1))
    assert (report.outcome, report.cause) == ("failed", "stage_in")
    assert report.message == f"checkpoint state cannot be had: the server: {lost}: there is no such blob"
    world.end(pilot)


# --- a task that is stopped ---


def ended(world: World, lease: Lease, how: str, pilot: subprocess.Popen[str]) -> Report:
    if how == "leave":
        leave_now(pilot)
    else:
        world.server.order(Order(how, lease.attempt, "somebody said so"))
    return world.server.report(lease)


@pytest.mark.parametrize("how", ["leave", "move"])
@pytest.mark.parametrize("code", [0, 85, 1])
def test_a_stopped_task_that_writes_its_checkpoint_goes_on_from_it(world: World, how: str, code: int) -> None:
    pilot = world.pilot()
    lease = counter(world, code)
    begin(world, lease)
    report = ended(world, lease, how, pilot)
    assert (report.outcome, report.cause, report.files) == ("checkpointed", "", {"state": digest_of([b"1"])})
    assert report.message.startswith("wrote its checkpoint when it was stopped: ")
    if how == "leave":
        world.end(pilot)
        world.server.replies.clear()  # the next pilot counts from one
        pilot = world.pilot()
    more = counter(world, restored=report.files, part=1)
    begin(world, more)
    assert world.log(more).read_text() == "part 1 from 1\n"
    world.server.order(Order("cancel", more.attempt, "enough"))
    world.server.report(more)
    world.end(pilot)


@pytest.mark.parametrize("how", ["leave", "move"])
def test_what_was_not_written_in_this_part_does_not_count(world: World, how: str) -> None:
    pilot = world.pilot()
    (world.home / "state").write_text("of an earlier part")
    lease = world.lease(shell="echo from; touch ready; sleep 60", checkpoint=["state"])
    begin(world, lease)
    report = ended(world, lease, how, pilot)
    assert (report.outcome, report.files, world.server.asked) == ("returned", {}, [])
    world.end(pilot)


def test_what_was_written_long_before_the_end_counts(world: World) -> None:
    pilot = world.pilot()
    lease = world.lease(shell="echo 3 >state; echo from; touch ready; sleep 60", checkpoint=["state"])
    begin(world, lease)
    leave_now(pilot)
    assert world.server.report(lease).files == {"state": digest_of([b"3\n"])}
    world.end(pilot)


def test_a_cancelled_task_keeps_nothing(world: World) -> None:
    pilot = world.pilot()
    lease = counter(world, 85)
    begin(world, lease)
    report = ended(world, lease, "cancel", pilot)
    assert (report.outcome, report.files, world.server.asked) == ("cancelled", {}, [])
    assert (world.home / "state").read_text() == "1", "it did write it"
    world.end(pilot)


def test_only_what_can_go_on_is_moved(world: World) -> None:
    pilot = world.pilot()
    plain = world.lease(shell="echo from; touch ready; sleep 1; echo done")
    begin(world, plain)
    waits = [world.lease("sleep", "30", checkpoint=["state"]) for _ in range(3)]
    world.server.give(*waits)
    world.server.wait(lambda: world.server.stage_of(waits[2]) == "leased")
    world.server.order(Order("move", plain.attempt, "slow here"), Order("move", waits[2].attempt, "slow here"))
    report = world.server.report(waits[2])
    assert (report.outcome, report.message) == ("returned", "slow here"), "it had not begun"
    assert world.server.report(plain).last_line == "done"
    leave_now(pilot)
    world.end(pilot)


# --- the end of an allocation ---


def test_before_the_allocation_ends_tasks_are_asked_to_end_and_none_has_failed(world: World) -> None:
    pilot = subprocess.Popen(
        [sys.executable, "-I", str(world.pyz), "--server-file", str(world.server.file), "--cores", "2"],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(world.tmp), "SLURM_JOB_END_TIME": str(int(time.time()) + 14)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    world.pilots.append(pilot)
    lease, plain = counter(world), world.lease("sleep", "60")
    begin(world, lease)
    world.server.give(plain)
    assert world.server.report(lease).files == {"state": digest_of([b"1"])}
    report = world.server.report(plain)
    assert report.outcome == "returned" and report.message.startswith("the allocation ends in ")
    assert "pilot ended: the allocation ends in " in world.end(pilot)
