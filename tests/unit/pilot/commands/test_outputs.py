"""Outputs that are directories, and those that are stored where the task asks for it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from shoal.data.sources import parse_rule
from shoal.model.task.kept_files import KeptFile, unpack
from shoal.pilot.commands.files import StageError
from shoal.pilot.commands.outputs import Outputs
from shoal.pilot.commands.staging import Environment, Prepared, Staging
from shoal.pilot.commands.staging import PilotFacts as Facts
from shoal.wire.messages import Capacity, Lease
from tests.unit.pilot.commands.test_staging import FakeBlobs


class World:
    """An attempt with a directory of its own, of which a test says what is in it."""

    def __init__(self, root: Path, *storage: str) -> None:
        self.root, self.home, self.own = root, root / "home", root / "own"
        self.home.mkdir()
        self.own.mkdir()
        self.blobs = FakeBlobs(root / "blobs")
        self.rules = [parse_rule(text) for text in storage]
        self.made = self.lease()

    def lease(self, sees: bool = False, **more: Any) -> Prepared:
        lease = Lease("r1.2#3@4", Capacity(1), "safe", ["true"], cwd=str(self.home), own=True, **more)
        self.made = Prepared(lease, [], str(self.own), Environment(1, {}), own_dir=str(self.own), sees=sees)
        return self.made

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.own / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def collect(self) -> dict[str, KeptFile]:
        return unpack(Outputs(0o022, self.rules).collect(self.made, self.blobs))  # type: ignore[arg-type]  # stands for them

    def settle(self, accepted: bool = True) -> list[str]:
        return Staging(Facts(str(self.root), {})).settle(self.made, accepted)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, f"results/={tmp_path}/store/", "raw/=https://store.example.org/")


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_a_directory_is_an_output_with_all_that_is_in_it(world: World) -> None:
    world.lease(outputs=["out", "one"], shared=True)
    world.write(out__a="A", out__deep__b="B", one="1", other="no output")
    kept = world.collect()
    assert {name: file.digest for name, file in kept.items()} == {
        "out/a": digest("A"), "out/deep/b": digest("B"), "one": digest("1"),
    }  # fmt: skip
    assert sorted(world.blobs.here) == sorted(file.digest for file in kept.values()), "others wait for them"
    assert not any(file.url for file in kept.values())


def test_where_the_submitters_directory_is_seen_it_gets_them_when_the_server_has_accepted(world: World) -> None:
    world.lease(sees=True, outputs=["out", "empty"])
    world.write(out__a="A", out__deep__b="B")
    (world.own / "empty").mkdir()
    (world.home / "out").mkdir()
    (world.home / "out" / "before").write_text("stays")
    assert world.collect() == {}
    assert not (world.home / "out" / "a").exists()
    assert world.settle() == []
    assert (world.home / "out" / "deep" / "b").read_text() == "B" and (world.home / "out" / "a").read_text() == "A"
    assert (world.home / "out" / "before").exists() and (world.home / "empty").is_dir()
    assert not list(world.home.rglob("*.part"))


def test_an_output_may_have_the_longest_name_that_there_is(world: World) -> None:
    name = "x" * 255
    world.lease(sees=True, outputs=[name])
    world.write(**{name: "X"})
    world.collect()
    assert world.settle() == []
    assert [(path.name, path.read_text()) for path in world.home.iterdir()] == [(name, "X")]


def test_an_output_goes_to_the_path_or_the_sites_storage_that_the_task_names(world: World) -> None:
    place = world.root / "place of mine"
    store = {
        "x": f"file://{str(place).replace(' ', '%20')}/x.dat",
        "y": "storage:results/y",
        "d": "storage:results/all",
    }
    world.lease(sees=True, outputs=["x", "y", "d"], store=store)
    world.write(x="X", y="Y", d__1="1")
    kept = world.collect()
    assert kept["x"].digest == digest("X") and kept["x"].url == f"file://{str(place).replace(' ', '%20')}/x.dat"
    assert not (place / "x.dat").exists(), "not before the server has accepted the result"
    assert world.settle() == []
    assert (place / "x.dat").read_text() == "X"
    assert (world.root / "store" / "y").read_text() == "Y" and (world.root / "store" / "all" / "1").read_text() == "1"
    assert not list(world.home.iterdir()) and not list(place.glob("*.part")), "there and nowhere else"


def test_what_is_not_accepted_is_stored_nowhere(world: World) -> None:
    world.lease(outputs=["x"], store={"x": f"file://{world.root}/x.dat"})
    world.write(x="X")
    world.collect()
    world.settle(accepted=False)
    assert not list(world.root.glob("x.dat*"))


def test_a_place_that_does_not_exist_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(world.root))
    for place, why in (
        ("storage:other/x", "this site has no storage for it"),
        ("root://host//x", "there is no xrdcp on this host"),
        ("storage:../x", "is no place|names no file"),
        ("http://127.0.0.1:1/x", "cannot be stored"),
    ):
        world.lease(outputs=["x"], store={"x": place})
        world.write(x="X")
        monkeypatch.setattr("shoal.pilot.files.upload.PAUSE", 0.001)
        with pytest.raises(StageError, match=why) as caught:
            world.collect()
        assert caught.value.cause == "stage_out"


@pytest.fixture
def web() -> Iterator[tuple[str, dict[str, bytes], list[int]]]:
    """A web server that takes files; the first answers are those of a list, if there are any."""
    files: dict[str, bytes] = {}
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers.pop(0) if answers else 201
            if status == 201:
                files[self.path] = data
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", files, answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_output_is_put_to_a_web_server_which_may_be_busy(
    world: World, web: tuple[str, dict[str, bytes], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, files, answers = web
    monkeypatch.setattr("shoal.pilot.files.upload.PAUSE", 0.001)
    answers += [503, 500]
    world.lease(outputs=["x", "empty"], store={"x": f"{url}/deep/x", "empty": f"{url}/empty"})
    world.write(x="X" * 3_000_000, empty="")
    assert {file.url for file in world.collect().values()} == {f"{url}/deep/x", f"{url}/empty"}
    assert files == {"/deep/x": b"X" * 3_000_000, "/empty": b""}
    answers += [403]
    with pytest.raises(StageError, match="403"):
        world.collect()


def test_what_only_fsspec_reaches_stays_on_the_server_for_the_submitters_side(world: World) -> None:
    world.lease(sees=True, outputs=["x"], store={"x": "s3://bucket/x"})
    world.write(x="X")
    kept = world.collect()
    assert kept["x"].digest == digest("X") and not kept["x"].url


def test_what_is_read_elsewhere_goes_to_the_server_and_to_the_submitters_directory(world: World) -> None:
    world.lease(sees=True, outputs=["out", "one"], sent_on=True, shared=True)
    world.write(out__a="A", one="1")
    assert {name: file.digest for name, file in world.collect().items()} == {"out/a": digest("A"), "one": digest("1")}
    assert world.settle() == []
    assert (world.home / "out" / "a").read_text() == "A" and (world.home / "one").read_text() == "1"


def test_it_goes_to_the_server_from_the_submitters_directory_too(world: World) -> None:
    lease = Lease("r1.2#3@4", Capacity(1), "safe", ["true"], cwd=str(world.home), outputs=["d", "x"], sent_on=True)
    world.made = Prepared(lease, [], str(world.home), Environment(1, {}), sees=True)
    (world.home / "d").mkdir()
    (world.home / "d" / "a").write_text("A")
    (world.home / "x").write_text("X")
    assert {name: file.digest for name, file in world.collect().items()} == {"d/a": digest("A"), "x": digest("X")}
    (world.home / "x").unlink()
    (world.home / "x").symlink_to("d/a")
    (world.home / "d" / "second").hardlink_to(world.home / "d" / "a")
    (world.home / "d" / "away").symlink_to("..")
    found = {name: file.digest for name, file in world.collect().items()}
    assert found == dict.fromkeys(("d/a", "d/second", "x"), digest("A")), "the task succeeds without sent_on, too"
