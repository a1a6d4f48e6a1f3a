"""Tasks run where their inputs are: two pilots on hosts of their own, each with a cache of its own [CMS IV.E].

The pilots are in mount namespaces: each has a machine id and a host name of its own, and sees neither the submitter's directory
nor what the server keeps, so that what a task reads has to travel.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.cluster import Cluster, free_port
from tests.integration.test_files_travel import typed

pytestmark = pytest.mark.integration
# A host with its own name and machine id, on which two directories are empty.
HOST = (
    'hostname "$1" && mount --bind "$2" /etc/machine-id && mount --bind "$3" "$4" && mount --bind "$3" "$5" && shift 5 && '
    'exec "$@"'
)
KB = 200  # of each input


def on_host(name: str, cluster: Cluster) -> tuple[str, ...]:
    """What a program is started under to be on a host of its own."""
    machine, empty = cluster.folder / f"machine-id of {name}", cluster.folder / "empty"
    machine.write_text(f"{hash(name) & 0xFFFF_FFFF:032x}\n")
    empty.mkdir(exist_ok=True)
    words = ("unshare", "--mount", "--uts", "sh", "-c", HOST, "sh", name)
    return (*words, str(machine), str(empty), str(cluster.cwd), str(cluster.state / "logs"))


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A server with two pilots of one slot, on hosts `north` and `south`; in the directory there are eight inputs."""
    tried = ("unshare", "--mount", "--uts", "true")
    if os.geteuid() != 0 or subprocess.run(tried, check=False, capture_output=True).returncode:
        pytest.skip("no namespaces here: that tasks run where their data is was NOT tested")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(cluster.folder / "home" / name.lower()))
    monkeypatch.setenv("SHOAL_SERVER", cluster.start_server("--listen", f"127.0.0.1:{free_port()}"))
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    monkeypatch.chdir(cluster.cwd)
    for number in range(8):
        (cluster.cwd / f"in{number}").write_bytes(os.urandom(KB * 1024))
    yield cluster


def sweep(pool: Cluster, run: int, inputs: list[str], *words: str) -> dict[str, str]:
    """Run a task for each input; on which host each of them ran, as it says itself."""
    script = "wc -c < {f} >&2 && sleep 0.3 && echo {f} $(hostname)"
    typed("sweep", "--input", "{f}", *words, f"f={','.join(inputs)}", "--shell", "--", script)
    return dict(row["last_line"].split() for row in pool.rows(run))


def test_tasks_run_where_their_inputs_are(pool: Cluster) -> None:
    """First the caches are filled by hand. Then tasks that read the same come to where it is: nearly all of them, since a pilot
    that has nothing else to do takes what is elsewhere, too; and all of them where they ask for it."""
    here = {f"in{number}": ("north", "south")[number % 2] for number in range(8)}
    for host in ("north", "south"):
        pool.start_pilot(1, under=on_host(host, pool))
    for run, host in enumerate(("north", "south"), 1):
        ran = sweep(pool, run, [name for name in here if here[name] == host], "--require", f'hostname == "{host}"')
        assert set(ran.values()) == {host}
    ran = sweep(pool, 3, [*here])
    assert sum(ran[name] == here[name] for name in here) >= 6, ran
    assert sweep(pool, 4, [*here], "--require", "data_local_fraction == 1") == here
    assert "1 of 1 input on its host (200.0K of 200.0K)" in typed("show", "r4.1")
