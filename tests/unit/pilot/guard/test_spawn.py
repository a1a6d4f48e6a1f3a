"""Starting one process: the quick way and the one that explains itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot.guard import spawn
from shoal.pilot.guard.messages import Start
from shoal.pilot.guard.spawn import BASES_KEPT, Spawner, SpawnFailed


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spawner = Spawner()
        self.files = [os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in ("out", "err")]

    def start(self, *argv: str, env: dict[str, str], **more: Any) -> int:
        start = Start("a", list(argv), str(self.folder), env, "out", "err", 5.0, 0o027, **more)
        return self.spawner.spawn(self.spawner.prepare(start), *self.files)

    def send_base(self, number: int, env: dict[str, str]) -> None:
        start = Start("a", ["true"], "/", {}, "out", "err", 5.0, 0o027, base=number, base_env=env)
        self.spawner.prepare(start)

    def run(self, *argv: str, env: dict[str, str], **more: Any) -> str:
        _, status = os.waitpid(self.start(*argv, env=env, **more), 0)
        assert status == 0, (self.folder / "err").read_text()
        return (self.folder / "out").read_text()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir("/")
    return Place(tmp_path)


@pytest.fixture(params=["quick", "popen"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for a start holds in both ways to do it."""
    if request.param == "quick":
        monkeypatch.setattr(spawn, "_popen", None)
    else:
        monkeypatch.setattr(spawn, "_HAS_SPAWN", False)


@pytest.mark.usefixtures("way")
def test_directory_umask_session_and_environment_are_the_tasks_and_ours_stay(place: Place) -> None:
    before = os.umask(0o022)
    os.umask(before)
    code = "import os; m = os.umask(0); print(os.getcwd(), oct(m), os.getsid(0) == os.getpid(), os.environb[b'A'])"
    said = place.run(sys.executable, "-S", "-c", code, env={"A": "\udce9"})
    assert said.split() == [str(place.folder), "0o27", "True", r"b'\xe9'"]
    after = os.umask(before)
    assert (os.getcwd(), after) == ("/", before)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", ["/nowhere:tools:/bin", "tools", "/usr/bin/env:tools"])
def test_a_program_is_looked_for_in_the_tasks_own_path_from_its_own_directory(place: Place, path: str) -> None:
    (place.folder / "tools").mkdir()
    (place.folder / "tools" / "thing").write_text("#!/bin/sh\necho found\n")
    (place.folder / "tools" / "thing").chmod(0o755)
    assert place.run("thing", env={"PATH": path}) == "found\n"
    assert place.run("tools/thing", env={}) == "found\nfound\n"


def test_what_is_no_program_but_comes_first_in_path_is_passed_over(place: Place) -> None:
    for folder, text in (("a", "no #! line"), ("b", "#!/bin/sh\necho b\n")):
        (place.folder / folder).mkdir()
        (place.folder / folder / "thing").write_text(text)
        (place.folder / folder / "thing").chmod(0o755)
    (place.folder / "c" / "thing").mkdir(parents=True)
    assert place.run("thing", env={"PATH": "c:a:b"}) == "b\n"


def test_an_environment_told_once_serves_many_starts(place: Place) -> None:
    place.send_base(7, {"PATH": os.environ["PATH"], "A": "base", "B": "base"})
    assert place.run("sh", "-c", "echo $A $B $C", env={"B": "own", "C": "own"}, base=7) == "base own own\n"
    assert place.run("sh", "-c", "echo $A $B $C", env={}, base=7).endswith("base base\n")


def test_only_the_last_few_environments_are_kept(place: Place) -> None:
    for number in range(BASES_KEPT + 1):
        place.send_base(number, {"N": str(number)})
    assert sorted(place.spawner._bases) == list(range(1, BASES_KEPT + 1))


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize("env", [{"A": "\ud800"}, {"A": "nul\0"}, {"A=B": "x"}])
def test_an_environment_that_no_process_can_have_is_the_tasks_error(
    place: Place, env: dict[str, str], base: bool
) -> None:
    place.send_base(1, env if base else {})
    with pytest.raises(SpawnFailed) as caught:
        place.start("true", env={} if base else env, base=1)
    assert (caught.value.cause, caught.value.exit_code) == ("task_error", 126)
    assert "shoal: cannot run true" in (place.folder / "err").read_text()


def test_no_file_of_ours_reaches_a_task_not_even_an_inherited_one() -> None:
    code = "from shoal.pilot.guard import spawn; import os; spawn.keep_files()\n"
    code += "found = [f for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists('/proc/self/fd/' + f)]\n"
    code += "print([os.get_inheritable(int(f)) for f in found])"
    read, write = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", code], pass_fds=[read, write], stdout=subprocess.PIPE, text=True, check=True
    )
    os.close(read)
    os.close(write)
    assert "True" not in done.stdout and done.stdout.count("False") >= 2
