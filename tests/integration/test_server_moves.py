"""A server that wakes up at another address is found by the pilots that lost it: what they finished meanwhile is delivered."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.batch.person import Person
from tests.integration.batch.sshd import SshServer
from tests.integration.cluster import Cluster, free_port
from tests.integration.mesh_site import Site, missing

pytestmark = pytest.mark.integration


def test_pilots_find_a_server_that_moved_by_what_another_pilot_left_in_their_shared_directory(cluster: Cluster) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    site, shared = Site(cluster), cluster.folder / "shared"
    shared.mkdir()
    pilots = [site.host("--shared-dir", str(shared)) for _ in range(2)]
    stop = cluster.folder / "stop"
    cluster.tale = cluster.folder / "tale"  # where hosts of the site see it
    run = cluster.submit(cluster.telling(stop, cwd="own", array="1-4"))
    cluster.wait_running(run, range(1, 5))
    cluster.kill_server()
    stop.touch()
    cluster.until(lambda: sum(life.end is not None for life in cluster.lives()) == 4, "all tasks end")
    (file,) = (shared / f"shoal-addresses-{os.getuid()}").iterdir()
    text = file.read_text()
    file.write_text(f"127.0.0.1:1,{text}")  # a lie among them
    site.port = free_port()
    cluster.start_server("--listen", f"127.0.0.1:{site.port}", "--no-pilot")
    newcomer = site.host("--shared-dir", str(shared))
    assert cluster.wait_run(run) == {"succeeded": 4}
    cluster.check_recorded_once(run, 4)
    assert len(cluster.lives()) == 4, "none ran twice"
    assert {row["pilot"] for row in cluster.rows(run)} == {pilot.name for pilot in pilots}
    assert f"127.0.0.1:{site.port}" in file.read_text()
    assert newcomer.is_alive and all(pilot.is_alive for pilot in pilots)


@pytest.fixture
def anna(tmp_path: Path) -> Iterator[Person]:
    made = Person(tmp_path / "anna")
    yield made
    made.end()


def test_the_provisioner_leaves_the_new_address_at_its_sites(
    anna: Person, ssh_server: Callable[..., SshServer]
) -> None:
    box = ssh_server()

    def start() -> int:
        port = free_port()
        anna.shoal("server", "start", "--listen", f"127.0.0.1:{port}")
        return port

    before = start()
    anna.shoal(
        "site", "add", "box", "ssh://login", "--ssh-config", str(box.client_config()), "--cores", "1", "--no-test",
        "--max-pilots", "1",
    )  # fmt: skip
    go, count = anna.work / "go", anna.work / "count"
    task = f"echo >>{count}; until [ -e {go} ]; do sleep 0.1; done; echo done"
    anna.shoal("submit", "--site", "box", "--cwd", "own", "--", "sh", "-c", task)
    anna.wait_for(lambda: count.exists())
    (file,) = Path(anna.json("site", "show", "box")["directory"]).glob("server-*")
    assert re.match(rf"127\.0\.0\.1:{before}[,#]", file.read_text())
    (server_file,) = (anna.folder / "state").rglob("server.json")
    pid = json.loads(server_file.read_text())["pid"]
    os.kill(pid, 9)
    go.touch()
    anna.wait_for(lambda: not Path(f"/proc/{pid}").exists())
    after = start()
    assert "succeeded" in anna.shoal("wait", "r1")
    assert re.match(rf"127\.0\.0\.1:{after}[,#]", file.read_text())
    assert count.read_text() == "\n", "it ran once"
    assert "nothing of it runs" in anna.shoal("site", "remove", "box")
    assert not file.exists(), "nobody looks for the server there any more"
