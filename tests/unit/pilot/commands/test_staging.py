"""Directory, environment, inputs and outputs of an attempt."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from shoal.model.blobs import digest_of
from shoal.model.task.kept_files import unpack
from shoal.pilot.commands import setup
from shoal.pilot.commands.files import LINKED, StageError, put_input
from shoal.pilot.commands.staging import PilotFacts, Prepared, Staging
from shoal.pilot.files.fetch import Fetched, NoBlob
from shoal.pilot.files.parts import Held
from shoal.wire import payload
from shoal.wire.messages import Capacity, Lease

PILOT_ENV = {"PATH": "/bin", "LC_ALL": "C", "SHOAL_TOKEN": "secret", "AWS_KEY": "secret", "HOME": "/data/p"}


class Site:
    def __init__(self, root: Path) -> None:
        self.home, self.work = root / "home", root / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.env_file = root / "env.json"
        self.env_file.write_text(json.dumps({"PATH": "/usr/bin", "FRUIT": "apple", "SHOAL_SERVER": "x"}))
        self.stage = Staging(PilotFacts(str(self.work), PILOT_ENV, ["GPU-a", "GPU-b"], umask=0o022))

    def lease(self, visible: bool = True, **more: Any) -> Lease:
        base: dict[str, Any] = {
            "attempt": "r1.2#3@4", "room": Capacity(2), "rerun": "safe", "command": ["prog", "x"],
            "cwd": str(self.home), "env_file": str(self.env_file) if visible else "/nowhere/env.json",
        }  # fmt: skip
        return Lease(**{**base, **more})

    def prepare(self, visible: bool = True, gpus: tuple[int, ...] = (), **more: Any) -> Prepared:
        return self.stage.prepare(self.lease(visible, **more), gpus)

    def left(self) -> list[str]:
        return [str(path.relative_to(self.work)) for path in self.work.rglob("*") if not path.is_dir()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_where_the_submitters_files_are_seen_the_task_runs_among_them(site: Site) -> None:
    made = site.prepare(env={"X": "1", "SHOAL_SEED": "7"})
    assert (made.argv, made.cwd, made.own_dir) == (["prog", "x"], str(site.home), "")
    assert made.env == {
        "PATH": "/usr/bin", "FRUIT": "apple", "PWD": str(site.home), "X": "1", "OMP_NUM_THREADS": "2",
        "SHOAL_RUN": "r1", "SHOAL_TASK": "r1.2", "SHOAL_ATTEMPT": "r1.2#3", "SHOAL_SEED": "7",
    }  # fmt: skip
    assert not site.stage.is_slow(made.lease)


def test_elsewhere_it_gets_a_directory_and_little_of_our_environment(site: Site) -> None:
    made = site.prepare(visible=False)
    assert made.cwd == made.own_dir == str(site.work / "tasks" / "r1.2-3-4")
    assert os.stat(made.own_dir).st_mode & 0o777 == 0o700
    assert made.env["PATH"] == "/bin" and made.env["LC_ALL"] == "C" and made.env["HOME"] == "/data/p"
    assert not {"SHOAL_TOKEN", "AWS_KEY", "FRUIT"} & set(made.env)
    assert site.stage.is_slow(made.lease)


def test_an_environment_named_by_its_digest_counts_only_if_it_is_that_one(site: Site) -> None:
    data = json.dumps({"FRUIT": "plum"}).encode()
    named = site.home.parent / f"{hashlib.sha256(data).hexdigest()}.json"
    named.write_bytes(data)
    assert site.prepare(env_file=str(named)).env["FRUIT"] == "plum"
    named.write_bytes(data.replace(b"plum", b"pear"))
    lease = site.lease(env_file=str(named))
    made = site.stage.prepare(lease)
    assert "FRUIT" not in made.env and made.own_dir
    assert site.stage.is_slow(lease)
    named.unlink()
    os.mkfifo(named)
    assert site.stage.is_slow(lease), "and nothing here holds us up"


def test_the_task_may_choose_its_threads(site: Site) -> None:
    assert site.prepare(env={"OMP_NUM_THREADS": "9"}).env["OMP_NUM_THREADS"] == "9"


def test_graphics_devices_are_set_only_if_given(site: Site) -> None:
    assert site.prepare(gpus=(1, 0)).env["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert "CUDA_VISIBLE_DEVICES" not in site.prepare().env


def test_a_changed_environment_file_is_read_again(site: Site) -> None:
    first = site.prepare().env
    first["FRUIT"] = "changed by someone"
    assert site.prepare().env["FRUIT"] == "apple"
    site.env_file.write_text(json.dumps({"FRUIT": "pear", "MORE": "1"}))
    assert site.prepare().env["FRUIT"] == "pear"


@pytest.mark.parametrize("text", ["", "[]", '{"A": 1}', "\xff"])
def test_a_damaged_environment_file_is_named(site: Site, text: str) -> None:
    site.env_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(StageError, match="environment"):
        site.prepare()


def test_shell_text_becomes_a_script_outside_the_tasks_directory(site: Site) -> None:
    made = site.prepare(command=[], shell="echo 'a' | tr a b", own=True)
    assert made.argv == ["/bin/sh", made.script]
    assert Path(made.script).read_text() == "echo 'a' | tr a b\n"
    assert os.stat(made.script).st_mode & 0o777 == 0o700
    assert not made.script.startswith(made.own_dir)
    site.stage.settle(made, True)
    assert site.left() == []


def test_inputs_come_in_under_their_names(site: Site) -> None:
    (site.home / "data").mkdir()
    (site.home / "data" / "a").write_text("a")
    (site.home.parent / "b").write_text("b")
    (site.home / "link").symlink_to("data/a")
    made = site.prepare(own=True, inputs=["data/a", str(site.home.parent / "b"), "link"])
    own = Path(made.own_dir)
    assert ((own / "data/a").read_text(), (own / "b").read_text(), (own / "link").read_text()) == ("a", "b", "a")
    assert not (own / "link").is_symlink()
    (own / "new").touch()
    assert site.stage.new_files(made) == ["new"]


def test_an_input_from_above_comes_in_under_its_last_name(site: Site) -> None:
    (site.home.parent / "up").write_text("u")
    made = site.prepare(own=True, inputs=["../up"])
    assert (Path(made.own_dir) / "up").read_text() == "u"


def test_an_input_that_is_rewritten_is_a_copy(site: Site) -> None:
    (site.home / "state").write_text("old")
    made = site.prepare(own=True, inputs=["state"], outputs=["state"])
    (Path(made.own_dir) / "state").write_text("new")
    assert (site.home / "state").read_text() == "old"
    site.stage.collect(made)
    assert (site.home / "state").read_text() == "old"
    site.stage.settle(made, True)
    assert (site.home / "state").read_text() == "new"


@pytest.mark.parametrize("written", [{"outputs": ["res"]}, {"checkpoint": ["res/a"]}])
def test_an_input_inside_what_the_task_writes_is_a_copy(site: Site, written: dict[str, Any]) -> None:
    (site.home / "res").mkdir()
    (site.home / "res" / "a").write_text("old")
    made = site.prepare(own=True, inputs=["res/a"], **written)
    with (Path(made.own_dir) / "res" / "a").open("a") as file:
        file.write(" and new")
    assert (site.home / "res" / "a").read_text() == "old", "the submitter's own file until the attempt is accepted"
    if made.lease.outputs:
        site.stage.collect(made)
        site.stage.settle(made, True)
        assert (site.home / "res" / "a").read_text() == "old and new"


def test_a_fetched_input_inside_what_the_task_writes_is_a_copy(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)  # of root nothing is linked: it may write to every file
    cached = tmp_path / "cached"
    cached.write_bytes(bytes(LINKED))
    cached.chmod(0o444)
    held = Held(str(cached), os.open(cached, os.O_RDONLY), LINKED)
    put_input("plain", held, str(site.work), 0o600, frozenset({"res"}))
    put_input("res/a", held, str(site.work), 0o600, frozenset({"res"}))
    held.close()
    assert (site.work / "plain").samefile(cached) and not (site.work / "res" / "a").samefile(cached)


def test_what_is_read_where_the_server_keeps_it_is_copied(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that makes its input writable and writes to it must not change what everybody gets from the server."""
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    blobs = FakeBlobs(tmp_path / "blobs")
    digest = blobs.add(bytes(LINKED))
    stored = Path(blobs.fetch(digest))
    content = {"in": f"{digest} 644 {LINKED}"}
    made = site.stage.prepare(site.lease(visible=False, inputs=["in"], content=content), (), blobs)  # type: ignore[arg-type]
    brought = Path(made.own_dir) / "in"
    assert brought.stat().st_size == LINKED and not brought.samefile(stored)


@pytest.mark.parametrize("bad", ["missing", "pipe"])
def test_an_input_that_cannot_come_in_is_named_and_nothing_is_left(site: Site, bad: str) -> None:
    os.mkfifo(site.home / "pipe")
    with pytest.raises(StageError, match=bad) as caught:
        site.prepare(own=True, inputs=[bad], shell="x")
    assert caught.value.cause == "stage_in"
    assert site.left() == [] and list((site.work / "tasks").iterdir()) == []


def test_a_directory_comes_in_with_all_that_is_in_it(site: Site) -> None:
    (site.home / "d" / "e" / "empty").mkdir(parents=True)
    (site.home / "d" / "a").write_text("A")
    made = site.prepare(own=True, inputs=["d"], shell="x")
    assert (Path(made.own_dir) / "d" / "a").read_text() == "A"
    assert (Path(made.own_dir) / "d" / "e" / "empty").is_dir() and made.brought == ["d/a"]


def test_a_directory_that_does_not_come_in_whole_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links to directories were left out without a word, and so was what cannot be read."""
    (site.home / "d" / "v3").mkdir(parents=True)
    (site.home / "d" / "v3" / "a").write_text("A")
    (site.home / "d" / "latest").symlink_to("v3")
    with pytest.raises(StageError, match="input d/latest is a link to a directory") as caught:
        site.prepare(own=True, inputs=["d"])
    assert caught.value.cause == "stage_in"
    assert site.prepare(own=True, inputs=["d/latest"]).brought == ["d/latest/a"]
    (site.home / "d" / "latest").unlink()
    scandir = os.scandir

    def closed(path: str) -> Any:
        if str(path).endswith("v3"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)  # no directory is closed to root
    with pytest.raises(StageError, match="d/v3 cannot be brought in: Permission denied"):
        site.prepare(own=True, inputs=["d"])


def test_two_inputs_of_one_name_are_refused(site: Site) -> None:
    for folder in ("p", "q"):
        (site.home / folder).mkdir()
        (site.home / folder / "same").touch()
    with pytest.raises(StageError, match="two inputs are named same"):
        site.prepare(own=True, inputs=[str(site.home / "p" / "same"), str(site.home / "q" / "same")])


class FakeBlobs:
    """Blobs in a directory, as `uplink.blobs.Blobs` has them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lent = folder, 0
        self.here: list[str] = []  # digests that stay in the cache of this host
        self.fetcher = self
        folder.mkdir()

    def take_failures(self) -> list[object]:
        return []

    def keep_here(self, fd: int, digest: str) -> None:
        self.here.append(digest)

    def add(self, data: bytes) -> str:
        digest = digest_of([data])
        (self.folder / digest.partition(":")[2]).write_bytes(data)
        return digest

    def fetch(self, digest: str) -> str:
        path = self.folder / digest.partition(":")[2]
        if not path.exists():
            raise NoBlob("there is no such blob")
        self.lent += 1
        return str(path)

    def free(self, digest: str) -> None:
        self.lent -= 1

    def get(self, digest: str, size: int | None = None, near: object = (), holders: object = ()) -> Fetched:
        blobs, path = self, self.fetch(digest)

        class Lent(Held):
            def close(self) -> None:
                blobs.free(digest)

        return Fetched(Lent(path, -1, os.path.getsize(path)), "server", 0.0)

    def store_file(self, fd: int, run: str = "", patience: float | None = None, use: str = "") -> str:
        assert run == "r1"
        return self.add(os.pread(fd, 1 << 20, 0))


def test_where_they_are_not_seen_files_come_from_the_server_or_the_task_fails(site: Site, tmp_path: Path) -> None:
    blobs = FakeBlobs(tmp_path / "blobs")
    program, data = blobs.add(b"#!/bin/sh"), blobs.add(b"data")
    content = {"./sim": f"{program} 755", "deep/in": f"{data} 444", "gone": f"sha256:{'0' * 64} 644"}
    lease = site.lease(visible=False, command=["./sim"], inputs=["deep/in"], outputs=["a/out"], content=content)
    made = site.stage.prepare(lease, (), blobs)  # type: ignore[arg-type]
    own_dir = Path(made.own_dir)
    assert (own_dir / "sim").read_bytes() == b"#!/bin/sh"
    assert (own_dir / "deep" / "in").read_bytes() == b"data"
    assert [oct((own_dir / name).stat().st_mode & 0o777) for name in ("sim", "deep/in")] == ["0o700", "0o600"]
    assert (own_dir / "a").is_dir(), "a command that was written for a directory with this folder finds it"
    assert blobs.lent == 0
    (own_dir / "deep" / "in").write_text("changed")  # its own copy: what was fetched serves others
    assert blobs.add(b"data") == data
    both = site.lease(visible=False, command=["./sim"], inputs=["sim"], content={**content, "sim": content["./sim"]})
    assert site.stage.prepare(both, (), blobs).brought == ["sim"], "the program may be declared, too"  # type: ignore[arg-type]
    for inputs, text in ((["other"], "was not sent along"), (["gone"], "there is no such blob")):
        with pytest.raises(StageError, match=text):
            site.stage.prepare(site.lease(visible=False, inputs=inputs, content=content), (), blobs)  # type: ignore[arg-type]
    with pytest.raises(StageError, match="no way to its content"):
        site.prepare(visible=False, inputs=["deep/in"], content=content)
    with pytest.raises(StageError, match="files of stdout and stderr"):
        site.prepare(visible=False, stdout="/nowhere/out")


def test_where_they_are_not_seen_outputs_are_kept_on_the_server(site: Site, tmp_path: Path) -> None:
    blobs = FakeBlobs(tmp_path / "blobs")
    made = site.stage.prepare(site.lease(visible=False, outputs=["out", "b/c"]), (), blobs)  # type: ignore[arg-type]
    (Path(made.own_dir) / "out").write_bytes(b"one")
    (Path(made.own_dir) / "out").chmod(0o640)
    with pytest.raises(StageError, match="output b/c was not written"):
        site.stage.collect(made, blobs)  # type: ignore[arg-type]
    (Path(made.own_dir) / "b" / "c").write_bytes(b"")
    (Path(made.own_dir) / "b" / "c").chmod(0o755)
    found = unpack(site.stage.collect(made, blobs))  # type: ignore[arg-type]
    assert {name: (file.size, file.mode) for name, file in found.items()} == {"out": (3, 0o640), "b/c": (0, 0o755)}
    assert Path(blobs.fetch(found["out"].digest)).read_bytes() == b"one"
    (Path(made.own_dir) / "out").unlink()
    (Path(made.own_dir) / "out").symlink_to("/etc/passwd")
    with pytest.raises(StageError, match="output_refused"):
        site.stage.collect(made, blobs)  # type: ignore[arg-type]


def test_stdin_is_found_or_named(site: Site) -> None:
    (site.home / "in").touch()
    os.mkfifo(site.home / "pipe")
    assert site.prepare(stdin="in").stdin == str(site.home / "in")
    own = site.prepare(stdin="in", own=True, inputs=["in"])
    assert own.stdin == os.path.join(own.own_dir, "in")
    for bad in ("gone", "pipe"):
        with pytest.raises(StageError, match=bad):
            site.prepare(stdin=bad)


# --- outputs ---


def own(site: Site, *outputs: str) -> Prepared:
    return site.prepare(own=True, outputs=list(outputs))


def test_outputs_wait_under_the_attempts_name_until_accepted(site: Site) -> None:
    made = own(site, "deep/out")
    (Path(made.own_dir) / "deep").mkdir()
    (Path(made.own_dir) / "deep" / "out").write_text("result")
    (site.home / "deep").mkdir()
    (site.home / "deep" / "out").write_text("before")
    site.stage.collect(made)
    assert (site.home / "deep" / "out.r1.2-3.part").read_text() == "result"
    assert (site.home / "deep" / "out").read_text() == "before"
    assert site.stage.settle(made, True) == []
    assert [path.name for path in (site.home / "deep").iterdir()] == ["out"]
    assert (site.home / "deep" / "out").read_text() == "result"
    assert site.left() == []


def test_outputs_that_were_not_accepted_vanish(site: Site) -> None:
    made = own(site, "out")
    (Path(made.own_dir) / "out").write_text("result")
    site.stage.collect(made)
    site.stage.settle(made, False)
    assert list(site.home.iterdir()) == []
    assert site.left() == []


def test_outputs_cross_file_systems(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = own(site, "out")
    (Path(made.own_dir) / "out").write_text("result")
    (Path(made.own_dir) / "out").chmod(0o750)

    def refuse(*args: object, **more: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", refuse)
    site.stage.collect(made)
    site.stage.settle(made, True)
    assert (site.home / "out").read_text() == "result"
    assert (site.home / "out").stat().st_mode & 0o777 == 0o750


def test_folders_for_outputs_are_made_as_the_person_would(site: Site) -> None:
    before = os.umask(0o077)
    try:
        made = own(site, "x/y/out")
        (Path(made.own_dir) / "x" / "y").mkdir(parents=True)
        (Path(made.own_dir) / "x" / "y" / "out").touch()
        site.stage.collect(made)
    finally:
        os.umask(before)
    assert (site.home / "x" / "y").stat().st_mode & 0o777 == 0o755


def test_a_missing_output_is_named_and_the_others_do_not_stay(site: Site) -> None:
    made = own(site, "here", "gone")
    (Path(made.own_dir) / "here").touch()
    with pytest.raises(StageError, match="gone") as caught:
        site.stage.collect(made)
    assert caught.value.cause == "output_missing"
    assert list(site.home.iterdir()) == []


def test_in_the_submitters_directory_outputs_must_be_there(site: Site) -> None:
    made = site.prepare(outputs=["out"])
    with pytest.raises(StageError) as caught:
        site.stage.collect(made)
    assert caught.value.cause == "output_missing"
    (site.home / "out").touch()
    site.stage.collect(made)


def link_out(folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")


def hard_link(folder: Path) -> None:
    (folder / "secret").touch()
    os.link(folder / "secret", folder / "out")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "out")


def link_in_directory(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "link").symlink_to("/etc/passwd")


def linked_directory(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "link").symlink_to("/etc")


@pytest.mark.parametrize("make", [link_out, hard_link, pipe, link_in_directory, linked_directory])
def test_an_output_that_is_no_plain_file_is_refused(site: Site, make: Any) -> None:
    made = own(site, "out")
    make(Path(made.own_dir))
    with pytest.raises(StageError, match="output_refused") as caught:
        site.stage.collect(made)
    assert caught.value.cause == "stage_out"
    assert list(site.home.iterdir()) == []


def test_a_linked_folder_on_the_way_to_an_output_is_refused(site: Site) -> None:
    made = own(site, "deep/passwd")
    (Path(made.own_dir) / "deep").symlink_to("/etc")
    with pytest.raises(StageError, match="output_refused"):
        site.stage.collect(made)


def test_new_files_are_listed_but_not_without_end(site: Site) -> None:
    made = own(site, "out")
    for number in range(150):
        (Path(made.own_dir) / f"f{number:03}").touch()
    (Path(made.own_dir) / "out").touch()
    assert len(site.stage.new_files(made)) == 100


def test_a_directory_that_its_task_locked_is_removed(site: Site) -> None:
    made = own(site)
    (Path(made.own_dir) / "locked").mkdir()
    (Path(made.own_dir) / "locked" / "file").touch()
    (Path(made.own_dir) / "locked").chmod(0)
    site.stage.settle(made, True)
    assert not Path(made.own_dir).exists()


# --- what comes before a command


def test_without_set_up_container_and_checkpoint_nothing_is_written(site: Site) -> None:
    made = site.prepare()
    assert (made.argv, made.start_stage, made.before, site.left()) == (["prog", "x"], None, {}, [])


def test_a_script_comes_before_the_command_and_goes_with_it(site: Site) -> None:
    made = site.prepare(setup=["export A=1"])
    assert made.start_stage is not None and made.start_stage.lines == ("export A=1",)
    assert made.argv == [setup.shell(), made.surround] and Path(made.surround).read_text().rstrip().endswith(
        "exec prog x"
    )
    Path(made.start_stage.mark).write_text("command\n")
    assert made.start_stage.reached() == ("command", "")
    site.stage.settle(made, True)
    assert site.left() == []


def test_the_mark_of_an_earlier_pilot_is_not_believed(site: Site) -> None:
    made = site.prepare(setup=["true"])
    assert made.start_stage is not None
    Path(made.start_stage.mark).write_text("command\n")
    again = site.prepare(setup=["true"])
    assert again.start_stage is not None and again.start_stage.reached() == ("", "")


def test_a_login_shell_is_played_only_where_the_submitters_environment_is_not_seen(site: Site) -> None:
    assert "/etc/profile" not in Path(site.prepare(setup=["true"]).surround).read_text()
    text = Path(site.prepare(visible=False, setup=["true"], env={"KEY": "secret", "a-b": "1"}).surround).read_text()
    assert "/etc/profile" in text and "export KEY=$shoal_KEY" in text and "secret" not in text and "a-b" not in text
    assert "/etc/profile" not in Path(site.prepare(visible=False, container="a:1").surround).read_text()


def test_in_a_container_the_task_sees_its_directories_script_and_pipe(site: Site) -> None:
    pipe = site.work / "pipe"
    os.mkfifo(pipe)
    site.stage.pipes = {"r1.2#3@4": str(pipe)}
    made = site.prepare(own=True, container="debian:12", command=[], shell="echo x")
    text = Path(made.surround).read_text()
    assert made.argv == ["/bin/sh", made.surround]
    for path in (made.own_dir, site.home, made.script, pipe):
        assert f"--volume {path}:{path}" in text
    site.stage.settle(made, False)
    assert not Path(made.surround).exists()


def test_a_part_knows_its_number_and_how_its_files_were(site: Site) -> None:
    (site.home / "state").write_text("7")
    made = site.prepare(checkpoint=["state", "other"], part=3)
    assert made.env["SHOAL_PART"] == "3" and made.before["state"] is not None and made.before["other"] is None
    assert not site.stage.is_slow(made.lease)
    assert site.stage.is_slow(site.lease(checkpoint=["state"], restored={"state": "sha256:" + "0" * 64}))


def test_no_checkpoint_lies_outside_the_directory(site: Site) -> None:
    with pytest.raises(StageError, match=r"checkpoint_refused: \.\./x is no path") as caught:
        site.prepare(checkpoint=["../x"])
    assert caught.value.cause == "stage_in"


# --- files for streams, and input that was sent
def test_a_stream_has_its_file_from_the_start_and_the_accepted_attempt_has_it_in_the_end(site: Site) -> None:
    file = site.home / "out" / "a.txt"
    made = site.prepare(stdout=str(file))
    Path(made.own_streams["stdout"]).write_bytes(b"first")
    assert file.read_bytes() == b"first" and file.stat().st_mode & 0o777 == 0o644
    other = site.prepare(stdout=str(file), attempt="r1.2#4@4")
    Path(other.own_streams["stdout"]).write_bytes(b"second")
    assert file.read_bytes() == b"second"
    assert site.stage.settle(made, accepted=True) == []  # a late success that was adopted
    assert site.stage.settle(other, accepted=False) == []
    assert file.read_bytes() == b"first"
    assert os.listdir(file.parent) == ["a.txt"]


def test_a_stream_may_have_the_longest_name_that_there_is(site: Site) -> None:
    file = site.home / ("é" * 127)
    made = site.prepare(stdout=str(file))
    Path(made.own_streams["stdout"]).write_bytes(b"said")
    assert file.read_bytes() == b"said"
    assert site.stage.settle(made, accepted=True) == []
    assert file.read_bytes() == b"said" and not list(site.home.glob("*.part*"))


def test_two_streams_of_one_name_share_their_file(site: Site) -> None:
    file = str(site.home / "both")
    made = site.prepare(stdout=file, stderr=file)
    assert made.own_streams["stdout"] == made.own_streams["stderr"] and len(made.parts) == 1


def test_a_device_is_written_to_as_it_is(site: Site) -> None:
    made = site.prepare(stdout="/dev/null")
    assert (made.own_streams, made.parts) == ({"stdout": "/dev/null"}, [])


@pytest.mark.parametrize("kind", ["directory", "pipe", "below a file"])
def test_a_stream_that_cannot_be_written_is_told(site: Site, kind: str) -> None:
    name = site.home / "x"
    if kind == "directory":
        name.mkdir()
    elif kind == "pipe":
        os.mkfifo(name)
    else:
        name.write_text("")
        name = name / "y"
    with pytest.raises(StageError, match="cannot write stdout to") as caught:
        site.prepare(stdout=str(name))
    assert caught.value.cause == "stage_in"


def test_a_host_that_does_not_see_the_submitters_files_refuses_streams_in_words(site: Site) -> None:
    with pytest.raises(StageError, match="cannot see the submitter's files, so files of stdout and stderr"):
        site.prepare(visible=False, stdout="/somewhere/x")


@pytest.mark.parametrize("visible", [True, False])
def test_input_that_was_sent_is_a_file_until_the_attempt_is_settled(site: Site, visible: bool) -> None:
    made = site.prepare(visible=visible, stdin_data=payload.to_text(b"a\0b"))
    assert made.stdin is not None and Path(made.stdin).read_bytes() == b"a\0b"
    assert site.stage.is_slow(made.lease)
    site.stage.settle(made, accepted=True)
    assert site.left() == []
