"""What is told of sites while somebody waits: scouts of a big bag, and the first pilot that fails."""

from __future__ import annotations

from typing import Any

from shoal.cli.output.machine_notes import MachineNotes
from shoal.client.client import Client

ROW = {"run": "r1", "total": 20_000, "created": 100.0, "counts": {"succeeded": 0}}
FIRST = {"kind": "task_finished", "time": 161.0, "data": {"state": "succeeded"}}
LEARNED = {"samples": 20, "median": 96.0, "p95": 210.0, "memory": 780 << 20, "request": 1 << 30, "output": 0}
SHAPE = {"cores": 16, "seconds": 14_400.0, "memory": 17_314_086_912, "hosts": 1}


def site(name: str = "hpc", **more: Any) -> dict[str, Any]:
    return {"site": name, "trouble": "", "fix": "", "failure": "", "shape": None, **more}


class Machines(Client):
    """Gives what a test says."""

    def __init__(self) -> None:
        super().__init__("unix:/run/shoal-9")
        self.found: dict[str, Any] = {"running": {}, "learned": None, "sites": [site()]}

    def machines(self, run: str) -> dict[str, Any]:
        return self.found


def rig() -> tuple[MachineNotes, Machines, list[str], list[float]]:
    said: list[str] = []
    now = [0.0]
    return MachineNotes(said.append, lambda: now[0]), Machines(), said, now


def test_the_scouts_of_a_big_bag_are_told_once_when_they_are_in() -> None:
    notes, client, said, now = rig()
    client.found["running"] = {"local": 4, "box": 16}
    notes.look(client, ROW)
    assert not said, "nothing is back"
    notes.take(FIRST)
    client.found |= {"learned": LEARNED, "running": {"local": 3, "box": 16}}
    notes.look(client, {**ROW, "counts": {"succeeded": 1}})
    assert said == ["  20,000 tasks. 20 scouts running on box and local ... first result after 1m01s"]
    notes.look(client, {**ROW, "counts": {"succeeded": 20}})
    assert len(said) == 1, "the pilots that are made for it are not asked for yet"
    client.found["sites"] = [site(shape=SHAPE), site("box")]
    for _ in range(3):
        now[0] += 1.0
        notes.look(client, {**ROW, "counts": {"succeeded": 30}})
    assert said[1:] == ["  median 1m36s, p95 3m30s, 780.0M -> pilots of 16 cores x 4h00m x 16.1G"]


def test_without_new_pilots_only_what_tasks_take_is_told() -> None:
    notes, client, said, now = rig()
    notes.take(FIRST)
    client.found["learned"] = {**LEARNED, "memory": 0, "output": 2048}
    notes.look(client, {**ROW, "counts": {"succeeded": 50}})
    now[0] = 16.0
    notes.look(client, {**ROW, "counts": {"succeeded": 60}})
    assert said[1] == "  median 1m36s, p95 3m30s, output 2.0K"


def test_sites_with_pilots_of_several_shapes_are_told_apart() -> None:
    notes, client, said, _ = rig()
    notes.take(FIRST)
    small = {"cores": 2, "seconds": 600.0, "memory": 0, "hosts": 2}
    client.found |= {"learned": LEARNED, "sites": [site(shape=SHAPE), site("box", shape=small)]}
    notes.look(client, {**ROW, "counts": {"succeeded": 50}})
    assert said[1].endswith("-> box: pilots of 2 cores x 10m00s x 2 hosts; hpc: pilots of 16 cores x 4h00m x 16.1G")


def test_of_a_small_bag_only_what_goes_wrong_is_told_and_once() -> None:
    notes, client, said, _ = rig()
    notes.take(FIRST)
    failure = "an allocation ended before its pilot came (exit status 1): no such module \x1b[31m"
    client.found |= {"learned": LEARNED, "sites": [site(failure=failure)]}
    for _ in range(2):
        notes.look(client, {**ROW, "total": 100, "counts": {"succeeded": 50}})
    client.found["sites"] = [site(trouble="Invalid account", fix="name another one")]
    notes.look(client, {**ROW, "total": 100})
    assert said == [
        "shoal: hpc: an allocation ended before its pilot came (exit status 1): no such module \\x1b[31m",
        "shoal: no pilot comes from hpc: Invalid account (name another one)",
    ]
