"""Where a task runs: only where its submitter's files are seen, proven by how they look and not by an equal path.

Two pilots of one machine have different mount namespaces. To one of them another directory, with a program of the same
name, lies at the very path that the submitter is in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from tests.integration.cluster import PATIENCE, Cluster, clean_env

pytestmark = pytest.mark.integration
SHOAL = (sys.executable, "-m", "shoal.cli")
COVER = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
SIM = '#!/bin/sh\necho "$0 {which} $*"\necho {which} >> "{ledger}"\n'


def other_namespace(*cover: Path) -> tuple[str, ...]:
    """What a program is started under to have a mount namespace of its own, with one directory over another."""
    words = ("unshare", "--mount")
    return (*words, "sh", "-c", COVER, "sh", *map(str, cover)) if cover else words


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A server; in its directory the right program, and beside it a directory with the wrong one."""
    if os.geteuid() != 0 or subprocess.run([*other_namespace(), "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here: that tasks go where their files are was NOT tested")
    write_sim(cluster.cwd, "right", cluster.folder)
    other = cluster.folder / "other"
    other.mkdir()
    write_sim(other, "wrong", cluster.folder)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(cluster.folder / "home" / name.lower()))
    monkeypatch.setenv("SHOAL_SERVER", cluster.start_server())
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    monkeypatch.chdir(cluster.cwd)
    yield cluster


def write_sim(folder: Path, which: str, ledger: Path) -> None:
    """A program that says which one it is, and keeps a ledger of its runs."""
    (folder / "sim").write_text(SIM.format(which=which, ledger=ledger / "ledger"))
    (folder / "sim").chmod(0o755)


def typed(
    *words: str, under: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command of a person in the present directory."""
    return subprocess.run(
        [*under, *SHOAL, *words], capture_output=True, text=True, timeout=2 * PATIENCE, check=False,
        env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def reasons(pool: Cluster, run: str) -> list[dict[str, Any]]:
    """Why a run waits."""
    with pool.client() as client:
        found: list[dict[str, Any]] = client.why(run)["reasons"]
    return found


def wait_blind(pool: Cluster, run: str) -> str:
    """Wait until it is known that no pilot sees what a run needs; the reason in words."""
    pool.until(lambda: [r["code"] for r in reasons(pool, run)] == ["not_visible"], f"{run} waits: {reasons(pool, run)}")
    return str(reasons(pool, run)[0]["text"])


def test_a_task_goes_only_to_the_pilot_that_sees_its_directory(pool: Cluster) -> None:
    """Equal paths, other content: nothing fails, nothing is burnt, and as soon as a pilot sees it, it runs there."""
    blind = pool.start_pilot(2, under=other_namespace(pool.folder / "other", pool.cwd))
    run = typed("submit", "--retries", "3", "--", "./sim").stdout.strip()
    text = wait_blind(pool, run)
    assert text.startswith(f"1 task: no pilot sees {pool.cwd} as you do: 1 pilot looked")
    assert "; its command names './sim'\n" in typed("why", run).stdout
    assert pool.events("task_retried", "task_finished") == []
    told = typed("submit", "--", "./sim").stderr
    # At once, now that it is known.
    assert "shoal: note: none of 1 pilot sees " in told and "; it waits for one that does\n" in told, told
    seeing = pool.start_pilot(2, under=other_namespace())  # another namespace, too: it sees by the look of the files
    pool.wait_run(int(run[1:]) + 1)
    done = typed("sweep", "-q", "x=1..30", "--", "./sim", "{x}")
    assert done.returncode == 0, done.stderr
    again = typed("run", "--shell", "--", "cat sim > copy; pwd")
    assert (again.returncode, again.stdout) == (0, f"{pool.cwd}\n"), again.stderr
    assert (pool.cwd / "copy").exists()
    assert set((pool.folder / "ledger").read_text().split()) == {"right"}
    rows = [row for number in (1, 2, 3, 4) for row in pool.rows(number)]
    # On a busy machine a pilot may have been taken for lost, and have come back under another name.
    assert {row["pilot"] for row in rows} <= set(seeing.names) and not set(seeing.names) & set(blind.names)
    assert {row["retries"] for row in rows} == {0} and {row["state"] for row in rows} == {"succeeded"}
    assert pool.events("place_banned") == []


def test_a_task_without_files_of_its_submitter_runs_anywhere(pool: Cluster) -> None:
    """In a directory of its own, where its submitter's is another: it would find the wrong files there."""
    pool.start_pilot(2, under=other_namespace(pool.folder / "other", pool.cwd))
    done = typed("run", "--", "sh", "-c", "pwd; ls")
    assert done.returncode == 0 and str(pool.cwd) not in done.stdout and "sim" not in done.stdout, done
    run = typed("submit", "--cwd", ".", "--", "hostname").stdout.strip()
    wait_blind(pool, run)  # unless the directory is asked for


def test_calls_with_a_directory_go_only_where_it_is_seen(pool: Cluster) -> None:
    """A function that reads a file of its submitter's directory reads that one."""
    pool.start_pilot(2, under=other_namespace(pool.folder / "other", pool.cwd))

    def read() -> str:
        with open("sim") as file:
            return "right" if "right" in file.read() else "wrong"

    with shoal.Executor(cwd=pool.cwd) as executor:
        futures = [executor.submit(read) for _ in range(5)]
        command = executor.command(["./sim"])
        pool.until(lambda: executor.run, "it is submitted")
        wait_blind(pool, executor.run)
        pool.start_pilot(2, under=other_namespace())
        assert [future.result(PATIENCE) for future in futures] == ["right"] * 5
        assert command.result(PATIENCE) == "./sim right "
    assert pool.events("task_retried") == []


def test_on_an_embedded_server_that_sees_nothing_of_it_the_command_ends_with_the_reason(pool: Cluster) -> None:
    """The server was started elsewhere, and no other pilot will come: it is said, and not waited for ever."""
    home = {**clean_env(), "HOME": str(pool.folder / "home"), "SHOAL_SERVER": "embedded"}
    try:
        assert typed("run", "--", "true", env=home).returncode == 0
        done = typed("run", "--", "./sim", under=other_namespace(pool.folder / "other", pool.cwd), env=home)
    finally:
        stopped = typed("server", "stop", "--pilots", env=home)
    assert done.returncode == 125, done
    assert f"no pilot sees {pool.cwd} as you do" in done.stderr and "--cwd own" in done.stderr
    assert "its command names './sim'" in done.stderr
    assert stopped.returncode == 0
