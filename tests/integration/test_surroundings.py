"""Set-up lines, containers and evidence of the kernel, with a real pilot: what comes before a command, and whose fault an
end is."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.wire.messages import Capacity, Order
from tests.integration.test_pilot_hands import OLDEST, World, python, pyz, world

__all__ = ["pyz", "world"]  # fixtures

pytestmark = pytest.mark.integration

HAS_BASH = os.access("/bin/bash", os.X_OK)


def show(name: str) -> tuple[str, ...]:
    return python(f"import os; print(os.environ.get({name!r}))")


# --- set-up lines ---


def test_lines_act_on_the_command_as_if_typed_before_it(world: World) -> None:
    pilot = world.pilot(python=str(OLDEST or sys.executable))
    (world.home / "activate.sh").write_text("export COLOUR='a  green \"one\"'\ncd inner\n")
    (world.home / "inner").mkdir()
    (world.home / "in.txt").write_text("typed\n")
    lease = world.lease(
        *python("import os, sys; print(os.getcwd(), os.environ['COLOUR'], sys.stdin.read(), sys.argv[1:])"),
        "it's $HOME",
        setup=["# a comment", "cat", "echo loud", ". ./activate.sh", ""],
        stdin="in.txt",
    )
    report = world.server.run(lease)
    assert (report.outcome, report.exit_code) == ("succeeded", 0)
    expected = f'{world.home}/inner a  green "one" typed\n ["it\'s $HOME"]\n'
    assert world.log(lease).read_text() == expected, "the lines have no input, and their output is not the command's"
    assert world.log(lease, "err").read_text() == "loud\n"
    world.end(pilot)


def test_a_shell_task_has_what_its_lines_exported(world: World) -> None:
    pilot = world.pilot()
    lease = world.lease(shell='echo "$FRUIT is $COLOUR"', setup=["export COLOUR=green"])
    assert world.server.run(lease).last_line == "apple is green"
    world.end(pilot)


def test_a_failing_line_is_told_from_a_failing_command(world: World) -> None:
    pilot = world.pilot()
    touch = ("touch", str(world.home / "ran"))
    broken = ["export A=1", "echo no such module >&2; (exit 3)", "echo not reached >&2"]
    report = world.server.run(world.lease(*touch, setup=broken))
    assert (report.outcome, report.cause, report.exit_code) == ("failed", "host_unfit", 3)
    assert report.message == "set-up failed: echo no such module >&2; (exit 3) (exit 3)"
    assert report.stderr_tail == "no such module\n"
    assert not (world.home / "ran").exists()
    for line, message in {
        "exit 0": "set-up failed: exit 0 (exit 0)",
        "nonesuch --x": "set-up failed: nonesuch --x (exit 127)",
        "kill -SEGV $$": "set-up failed: kill -SEGV $$ (SIGSEGV)",
    }.items():
        report = world.server.run(world.lease(*touch, setup=[line]))
        assert (report.outcome, report.cause, report.message) == ("failed", "host_unfit", message)
    report = world.server.run(world.lease(*touch, setup=["echo 'unfinished"]))
    assert (report.cause, report.message[:40]) == ("host_unfit", "set-up failed: echo 'unfinished (exit 2)"[:40])
    assert not (world.home / "ran").exists()
    report = world.server.run(world.lease("/bin/sh", "-c", "exit 3", setup=["true"]))
    assert (report.outcome, report.cause, report.message) == ("failed", "task_error", "exit code 3")
    report = world.server.run(world.lease("nonesuch", setup=["true"]))
    assert (report.outcome, report.cause, report.exit_code) == ("failed", "task_error", 127)
    world.end(pilot)  # it is still there: a host that a task does not suit may suit others


def test_a_set_up_that_lasts_too_long_is_over_time_and_a_cancelled_one_cancelled(world: World) -> None:
    pilot = world.pilot()
    report = world.server.run(world.lease("true", setup=["sleep 60"], time=0.5))
    assert (report.outcome, report.cause) == ("failed", "over_time")
    lease = world.lease("true", setup=["sleep 60"])
    world.server.give(lease)
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    world.server.order(Order("cancel", lease.attempt, "not wanted"))
    report = world.server.report(lease)
    assert (report.outcome, report.message) == ("cancelled", "not wanted")
    world.end(pilot)


@pytest.mark.skipif(not HAS_BASH, reason="no /bin/bash here: functions of bash in set-up lines were NOT tested")
def test_module_and_conda_are_found_as_in_the_submitters_session(world: World) -> None:
    """Both are functions of bash: one is exported to the environment, the other has to be found beside its program."""
    conda = world.root / "conda"
    (conda / "bin").mkdir(parents=True)
    (conda / "etc" / "profile.d").mkdir(parents=True)
    (conda / "bin" / "conda").write_text("#!/bin/sh\necho run conda init first >&2; exit 1\n")
    (conda / "bin" / "conda").chmod(0o755)
    (conda / "etc" / "profile.d" / "conda.sh").write_text('conda() { export CONDA_PREFIX="/envs/$2"; }\n')
    world.env_file.write_text(
        json.dumps(
            {
                "PATH": os.environ["PATH"],
                "CONDA_EXE": str(conda / "bin" / "conda"),
                "BASH_FUNC_module%%": '() {  export LOADED="$2"\n}',
            }
        )
    )
    pilot = world.pilot()
    lease = world.lease(
        *python("import os; print(os.environ['LOADED'], os.environ['CONDA_PREFIX'])"),
        setup=["module load gcc/12", "conda activate science"],
    )
    assert world.server.run(lease).last_line == "gcc/12 /envs/science"
    world.end(pilot)


@pytest.mark.skipif(not HAS_BASH, reason="no /bin/bash here: login shells for set-up lines were NOT tested")
def test_where_the_submitters_environment_is_not_seen_it_is_a_login_shell(world: World) -> None:
    (world.home / ".bash_profile").write_text("module() { export LOADED=$2$X; }; X=profile; PATH=/usr/bin\n")
    pilot = world.pilot()
    world.env_file.unlink()
    lease = world.lease(
        "/bin/sh", "-c", "echo $LOADED $PATH $X", setup=["module load gcc"], env={"PATH": "/bin:/own", "X": "1"}
    )
    assert world.server.run(lease).last_line == "gcc1 /bin:/own 1", (
        "but what the task states is not the profile's to say"
    )
    world.end(pilot)


# --- containers, with runtimes that are only played ---

PLAYED = """#!/bin/sh
# Note the arguments and the variable that must not be among them; then do as a runtime does.
for word in "$@"; do echo "$word"; done >"$PLAY/$(basename "$0")-$1"
case "$(basename "$0") $1 $2" in
"podman image"*|"docker image"*) exit 1 ;;
"podman pull missing"*) echo "Error: no such image" >&2; exit 125 ;;
"podman pull"*|"docker pull"*) exit 0 ;;
"podman rm"*|"docker rm"*) exit 0 ;;
esac
for word in "$@"; do [ "$word" = broken ] && { echo "Error: cannot start" >&2; exit 125; }; done
while [ "$1" != image:1 ] && [ "$1" != docker://image:1 ] && [ "$#" -gt 1 ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def play(world: World) -> Iterator[Path]:
    """A folder for programs that play container runtimes; nothing else on PATH does."""
    folder = world.root / "played"
    folder.mkdir()
    for name in ("sh", "cat", "env", "sed", "basename", "sleep", "touch", "dirname", "id"):
        (folder / name).symlink_to(shutil.which(name) or "/nonexistent")
    world.env_file.write_text(json.dumps({"PATH": str(folder), "FRUIT": "apple", "PLAY": str(folder)}))
    yield folder


def act(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(PLAYED)
        (folder / name).chmod(0o755)


def said(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().splitlines()


def test_without_a_runtime_the_host_is_unfit_for_the_task(world: World, play: Path) -> None:
    pilot = world.pilot()
    report = world.server.run(world.lease("true", container="image:1"))
    assert (report.outcome, report.cause) == ("failed", "host_unfit")
    assert report.message == "no container runtime (apptainer, podman, docker) on this host"
    act(play, "docker")
    report = world.server.run(world.lease("true", container="lib/tool.sif"))
    assert report.message == "no container runtime that reads lib/tool.sif (apptainer) on this host"
    world.end(pilot)


def test_the_first_runtime_in_the_order_is_given_the_task(world: World, play: Path) -> None:
    pilot = world.pilot()
    act(play, "docker")
    lease = world.lease(
        *show("SECRET"), container="image:1", env={"SECRET": "hush", "PATH": str(play)}, setup=["export AND=1"]
    )
    assert world.server.run(lease).last_line == "hush"
    words = said(play, "docker-run")
    assert not [word for word in words if "hush" in word], "values are not for every user to see"
    for pair in (
        ["--env", "SECRET"], ["--env", "AND"], ["--env", "FRUIT"], ["--env", "SHOAL_ATTEMPT"], ["--env", "PATH"],
        ["--volume", f"{world.home}:{world.home}"], ["--workdir", str(world.home)],
        ["--user", f"{os.getuid()}:{os.getgid()}"],
    ):  # fmt: skip
        at = [number for number, word in enumerate(words) if words[number : number + 2] == pair]
        assert at, pair
    assert "--network=host" in words and "--rm" in words and "--gpus" not in words and "HOME=/tmp" in words
    act(play, "podman")
    assert world.server.run(world.lease(*show("FRUIT"), container="docker://image:1")).last_line == "apple"
    words = said(play, "podman-run")
    assert "PATH" not in words and "image:1" in words and said(play, "podman-pull") == ["pull", "image:1"]
    act(play, "apptainer")
    report = world.server.run(world.lease(*show("FRUIT"), container="image:1"))
    assert (report.outcome, report.last_line) == ("succeeded", "apple")
    words = said(play, "apptainer-exec")
    assert words[:5] == ["exec", "--pwd", str(world.home), "--bind", str(world.home)] and "docker://image:1" in words
    world.end(pilot)


def test_set_up_lines_may_bring_the_runtime(world: World, play: Path) -> None:
    pilot = world.pilot()
    (play / "opt").mkdir()
    act(play / "opt", "apptainer")
    lease = world.lease(shell='echo "shell $FRUIT"', container="image:1", setup=[f"PATH=$PATH:{play}/opt"])
    assert world.server.run(lease).last_line == "shell apple"
    words = said(play, "apptainer-exec")
    script = next(word for word in words if word.endswith(".sh"))
    assert words[words.index(script) - 1] == "--bind", "the script is seen in there"
    world.end(pilot)


def test_an_image_that_cannot_be_had_and_a_runtime_that_fails_are_the_hosts_fault(world: World, play: Path) -> None:
    pilot = world.pilot()
    act(play, "podman")
    report = world.server.run(world.lease("true", container="missing:1"))
    assert (report.outcome, report.cause, report.stderr_tail) == ("failed", "host_unfit", "Error: no such image\n")
    assert report.message == "container image missing:1 cannot be had with podman (exit 125)"
    report = world.server.run(world.lease("broken", container="image:1"))
    assert (report.cause, report.message) == ("host_unfit", "the container could not be started by podman (exit 125)")
    report = world.server.run(world.lease("sh", "-c", "exit 125", container="image:1"))
    assert (report.cause, report.message) == ("task_error", "exit code 125"), "the runtime said nothing"
    world.end(pilot)


def test_devices_are_handed_on_where_the_task_has_some(world: World, play: Path) -> None:
    pilot = subprocess.Popen(
        [sys.executable, "-I", str(world.pyz), "--server-file", str(world.server.file), "--cores", "2"],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(world.tmp), "CUDA_VISIBLE_DEVICES": "3"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    world.pilots.append(pilot)
    for name, words in {
        "docker": ["--gpus", "all"],
        "podman": ["--device", "nvidia.com/gpu=all"],
        "apptainer": ["--nv"],
    }.items():
        act(play, name)
        lease = world.lease(*show("CUDA_VISIBLE_DEVICES"), container="image:1", room=Capacity(1, gpus=1))
        assert world.server.run(lease).last_line == "3"
        assert set(words) <= set(said(play, f"{name}-{'exec' if name == 'apptainer' else 'run'}"))
    world.end(pilot)


@pytest.mark.parametrize("who", ["the server", "the pilot's death"])
def test_whoever_ends_the_task_its_container_is_removed(world: World, play: Path, who: str) -> None:
    act(play, "docker")
    pilot = world.pilot()
    lease = world.lease("sleep", "60", container="image:1")
    world.server.give(lease)
    world.server.wait(lambda: world.server.stage_of(lease) == "running")
    world.until(lambda: (play / "docker-run").exists())
    guards = world.guards_of(pilot)
    if who == "the server":
        world.server.order(Order("cancel", lease.attempt, "not wanted"))
        assert world.server.report(lease).outcome == "cancelled"
    else:
        pilot.kill()
        pilot.wait()
        world.until(lambda: not any(Path(f"/proc/{guard}").exists() for guard in guards))
    words = said(play, "docker-rm")
    name = said(play, "docker-run")[said(play, "docker-run").index("--name") + 1]
    assert words == ["rm", "--force", name] and name.startswith("shoal-r1.1-1-1-")
    if who == "the server":
        world.end(pilot)


# --- containers, with podman ---


class Podman:
    """Podman with a store of its own, and an image that holds only busybox."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        # A sandbox may let nobody raise limits, and have old and new cgroups at once, which crun does not take.
        runtime = "runc" if shutil.which("runc") else "crun"
        (root / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
            f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "{runtime}"\n'
        )
        (root / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{root}/store"\nrunroot = "{root}/run"\n'
        )
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "CONTAINERS_CONF": str(root / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(root / "storage.conf"),
        }

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["podman", *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """A podman that works here."""
    busybox = shutil.which("busybox")
    for name, package in (("podman", "podman"), ("busybox", "busybox-static")):
        if not shutil.which(name):
            pytest.skip(f"no {name} (package {package}): containers were only played")
    assert busybox is not None
    if not shutil.which("runc") and not shutil.which("crun"):
        pytest.skip("no runc and no crun: containers were only played")
    root = tmp_path_factory.mktemp("podman")
    tree = root / "image"
    (tree / "bin").mkdir(parents=True)
    (tree / "tmp").mkdir()
    shutil.copy(busybox, tree / "bin" / "busybox")
    for name in ("sh", "cat", "echo", "env", "id", "pwd", "sleep", "kill", "true"):
        (tree / "bin" / name).symlink_to("busybox")
    subprocess.run(["tar", "-C", str(tree), "-cf", str(root / "image.tar"), "."], check=True)
    made = Podman(root)
    try:
        made("import", "--change", "ENV=INSIDE=yes", str(root / "image.tar"), "shoal-test:1")
        made("run", "--rm", "--network=host", "shoal-test:1", "/bin/sleep", "0.5")  # see `in_podman`
    except (AssertionError, subprocess.SubprocessError) as error:
        pytest.skip(f"podman does not run in this sandbox, containers were only played: {error}")
    yield made
    with contextlib.suppress(AssertionError, subprocess.SubprocessError):
        made("rmi", "--all", "--force")


def in_podman(world: World, podman: Podman) -> subprocess.Popen[str]:
    """A pilot whose tasks use that podman. They last half a second: of a container that ends before podman looks it
    notices the end after 20 s only."""
    podman("rm", "--all", "--force")  # what an earlier test left is its failure alone
    world.env_file.write_text(json.dumps({**podman.env, "FRUIT": "apple"}))
    return world.pilot()


def test_podman_runs_a_command_as_its_submitter_in_the_same_directory(world: World, podman: Podman) -> None:
    pilot = in_podman(world, podman)
    (world.home / "in.txt").write_text("from a file\n")
    lease = world.lease(
        "sh", "-c", 'cat; pwd; id -u; echo "$FRUIT $INSIDE $SECRET $LINE $PATH"; echo out >out.txt; sleep 0.5; exit 7',
        container="shoal-test:1", env={"SECRET": "hush"}, stdin="in.txt", setup=["export LINE=set"],
    )  # fmt: skip
    report = world.server.run(lease)
    assert (report.outcome, report.exit_code) == ("failed", 7), report
    lines = world.log(lease).read_text().splitlines()
    assert lines[:3] == ["from a file", str(world.home), str(os.getuid())]
    assert lines[3].startswith("apple yes hush set ") and os.environ["PATH"] not in lines[3]
    assert (world.home / "out.txt").stat().st_uid == os.getuid()
    own = world.lease(
        shell="echo made >made.txt; echo speed = 7 >$SHOAL_TAGS; pwd; sleep 0.5",
        container="shoal-test:1",
        own=True,
        outputs=["made.txt"],
    )
    report = world.server.run(own)
    assert report.outcome == "succeeded" and report.last_line.endswith("/tasks/r1.2-1-1") and report.staging > 0
    world.until(lambda: (world.home / "made.txt").exists())
    world.server.wait(lambda: [one.tags for ex in world.server.exchanges for one in ex.published] == [{"speed": 7}])
    assert podman("ps", "--all", "--quiet") == ""
    world.end(pilot)


def test_podman_says_that_there_is_no_such_image(world: World, podman: Podman) -> None:
    pilot = in_podman(world, podman)
    report = world.server.run(world.lease("true", container="localhost/nonesuch:1"))
    assert (report.outcome, report.cause) == ("failed", "host_unfit")
    assert report.message.startswith("container image localhost/nonesuch:1 cannot be had with podman")
    assert "nonesuch" in report.stderr_tail
    report = world.server.run(world.lease("nonesuch", container="shoal-test:1"))
    assert (report.cause, report.exit_code) == ("task_error", 127), "that it lacks the command is the task's"
    world.end(pilot)


@pytest.mark.parametrize("deaf", [False, True])
def test_podmans_containers_end_with_their_task(world: World, podman: Podman, deaf: bool) -> None:
    pilot = in_podman(world, podman)
    trap = "trap '' TERM" if deaf else "trap 'echo told; told=1' TERM"
    wait = "while [ -z $told ]; do sleep 0.1; done; sleep 0.3; exit 1"
    lease = world.lease("sh", "-c", f"{trap}; echo began; {wait}", container="shoal-test:1")
    world.server.give(lease)
    world.until(lambda: world.log(lease).exists() and "began" in world.log(lease).read_text())
    assert podman("ps", "--quiet") != ""
    world.server.order(Order("cancel", lease.attempt, "not wanted"))
    report = world.server.report(lease)
    assert (report.outcome, report.message) == ("cancelled", "not wanted")
    assert world.log(lease).read_text() == ("began\n" if deaf else "began\ntold\n"), "it is asked once"
    assert podman("ps", "--all", "--quiet") == "" and world.processes() == []
    world.end(pilot)


def test_a_killed_pilots_containers_end_with_it(world: World, podman: Podman) -> None:
    pilot = in_podman(world, podman)
    lease = world.lease("sh", "-c", "trap '' TERM; echo began; sleep 60", container="shoal-test:1")
    world.server.give(lease)
    world.until(lambda: world.log(lease).exists() and "began" in world.log(lease).read_text())
    guards = world.guards_of(pilot)
    pilot.kill()
    pilot.wait()
    world.until(lambda: not any(Path(f"/proc/{guard}").exists() for guard in guards), 15)
    assert podman("ps", "--all", "--quiet") == "" and world.processes() == []


def test_a_container_over_its_memory_is_killed(world: World, podman: Podman) -> None:
    pilot = in_podman(world, podman)
    # Each round doubles a text that the shell holds.
    grow = "x=0123456789abcdef; while true; do x=$x$x; sleep 0.02; done"
    report = world.server.run(
        world.lease("sh", "-c", grow, container="shoal-test:1", room=Capacity(1, memory=64 << 20))
    )
    assert (report.outcome, report.cause) == ("failed", "out_of_memory")
    assert podman("ps", "--all", "--quiet") == "" and world.processes() == []
    world.end(pilot)


# --- evidence ---


class Cage:
    """A cgroup with little memory."""

    def __init__(self, limit: int) -> None:
        self.path = _find_cage() / f"shoal-test-{secrets.token_hex(4)}"
        self.path.mkdir()
        name = "memory.max" if (self.path / "memory.max").exists() else "memory.limit_in_bytes"
        (self.path / name).write_text(str(limit))
        for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
            with contextlib.suppress(OSError):
                (self.path / swap).write_text("0" if swap == "memory.swap.max" else str(limit))

    def close(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.05)


def _find_cage() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            return Path("/sys/fs/cgroup/memory") / path.strip("/")
        if number == "0" and "memory" in _subtree(Path("/sys/fs/cgroup") / path.strip("/")):
            return Path("/sys/fs/cgroup") / path.strip("/")
    raise OSError("no memory cgroup")


def _subtree(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return (path / "cgroup.subtree_control").read_text().split()
    return []


@pytest.fixture
def cage() -> Iterator[Cage]:
    try:
        made = Cage(256 << 20)
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here ({error}): the kernel's own kill was NOT tested")
    yield made
    made.close()


GREED = "x = [bytes(1 << 20) + b'1' * (1 << 20) for _ in range(2000)]"


@pytest.mark.parametrize("way", ["itself", "below a shell"])
def test_a_task_that_the_kernel_kills_for_memory_is_known_as_such(world: World, cage: Cage, way: str) -> None:
    enter = world.root / "python-in-cage"
    enter.write_text(f'#!/bin/sh\necho $$ >{cage.path}/cgroup.procs && exec {sys.executable} "$@"\n')
    enter.chmod(0o755)
    pilot = world.pilot(python=str(enter))
    greedy = python(GREED)
    command = greedy if way == "itself" else ("/bin/sh", "-c", '"$@"; exit $?', "sh", *greedy)
    report = world.server.run(world.lease(*command))
    assert (report.outcome, report.cause, report.evidence) == ("failed", "out_of_memory", "oom_kill")
    report = world.server.run(world.lease("/bin/true"))
    assert (report.outcome, report.evidence) == ("succeeded", "")
    world.end(pilot)


def test_a_kill_from_outside_is_a_signal(world: World) -> None:
    pilot = world.pilot()
    report = world.server.run(world.lease(*python(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")))
    assert (report.outcome, report.cause, report.evidence) == ("failed", "signal", "")
    world.end(pilot)
