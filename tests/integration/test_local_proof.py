"""A server on this machine proves itself before it hears a token, to a second account in particular [SECURITY.md].

The second account is a real one: these tests need root, and say so where they cannot run.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.client import Client
from shoal.model.errors import Refused, Unreachable
from shoal.model.file_names import SERVER_FILE, SOCKET_FILE
from tests.integration.cluster import Cluster
from tests.unix_http import connect

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can act as a second account"),
]
STRANGER = 31_338  # an account without a name: nobody else's
# The interpreter may lie where that account cannot read, so it is loaded first.
BECOME = f"import os, socket, sys, threading; os.setgroups([]); os.setresgid(*{3 * (STRANGER,)}); "
BECOME += f"os.setresuid(*{3 * (STRANGER,)})\n"

# Listens at a path as an intruder would, writes down every byte that it is sent, and answers that all is well.
INTRUDER = """
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(64)
print("listening", flush=True)
def serve(link):
    while data := link.recv(65536):
        with open(sys.argv[2], "ab") as heard:
            heard.write(data)
        link.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 11\\r\\n\\r\\n" + b'{"ok": true}'[:11])
while True:
    link, _ = server.accept()
    with open(sys.argv[2] + ".count", "ab") as count:
        count.write(b"x")
    threading.Thread(target=serve, args=(link,), daemon=True).start()
"""
BIND = "socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
ASK = """
link = socket.socket(socket.AF_UNIX)
link.settimeout(10)
link.connect(sys.argv[1])
try:
    link.sendall(b"GET /v1/health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    sys.stdout.buffer.write(link.recv(1000))
except ConnectionError:
    pass
"""


class Intruder:
    """The second account, with a directory that it can use."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-stranger-", dir="/tmp"))
        os.chown(self.folder, STRANGER, STRANGER)
        self.folder.chmod(0o755)
        self.heard = self.folder / "heard"
        self._process: subprocess.Popen[str] | None = None

    def run(self, code: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Do something as that account."""
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", BECOME + code, *words], capture_output=True, timeout=60, cwd="/", check=False,
        )  # fmt: skip

    def listen_at(self, path: Path) -> None:
        """Have a socket of that account where ours was: as if its directory had been open to others."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BECOME + INTRUDER, str(self.folder / "sock"), str(self.heard)],
            stdout=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stdout.readline() == "listening\n"
        (self.folder / "sock").replace(path)

    @property
    def visits(self) -> int:
        """How often somebody connected."""
        count = Path(f"{self.heard}.count")
        return count.stat().st_size if count.exists() else 0

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def intruder() -> Iterator[Intruder]:
    made = Intruder()
    try:
        yield made
    finally:
        made.close()


def test_after_kill_9_a_pilot_and_a_client_give_nothing_to_another_account_and_say_why(
    cluster: Cluster, intruder: Intruder
) -> None:
    cluster.start_server()
    pilot = cluster.start_pilot(1)
    told, where = cluster.address(), cluster.state / SOCKET_FILE
    gate = cluster.folder / "gate"
    run = cluster.submit(cluster.telling(gate))
    cluster.wait_start(f"r{run}.1")
    cluster.kill_server()
    # The directory is closed: the name cannot be had.
    tried = intruder.run(BIND, str(where))
    assert tried.returncode != 0 and b"PermissionError" in tried.stderr
    where.unlink()
    intruder.listen_at(where)  # and if it were open
    with (
        pytest.raises(Unreachable, match=f"served by another account .uid {STRANGER}.") as refused,
        Client(told["url"], told["token"]) as client,
    ):
        client.whoami()
    assert refused.value.code == "foreign_server"
    before = intruder.visits
    cluster.until(lambda: intruder.visits >= before + 2, "the pilot looks for its server")
    cluster.until(lambda: "is served by another account" in pilot.log.read_text(), "the pilot says why")
    assert not intruder.heard.exists(), "neither sent a byte"
    assert pilot.is_alive, "an intruder cannot end what runs"
    gate.touch()
    cluster.start_server()  # takes the socket's place
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert len(cluster.lives()) == 1 and not intruder.heard.exists()
    cluster.stop_server()
    assert not where.exists()


def test_a_server_answers_no_other_account(cluster: Cluster, intruder: Intruder) -> None:
    cluster.start_server("--no-pilot")
    where = cluster.state / SOCKET_FILE
    assert stat.S_IMODE(cluster.state.stat().st_mode) == 0o700 and stat.S_IMODE(where.stat().st_mode) == 0o600
    assert intruder.run(ASK, str(where)).returncode != 0  # cannot even reach it
    # A hole in the directories: still nobody but the own account is answered.
    open_one = intruder.folder / "opened"
    os.link(where, open_one)
    open_one.chmod(0o777)
    connect(str(open_one)).close()
    answered = intruder.run(ASK, str(open_one))
    assert (answered.returncode, answered.stdout) == (0, b""), answered
    with cluster.client() as client:
        assert client.health()
    cluster.stop_server()


def test_a_server_file_that_names_the_socket_of_another_account_is_refused(
    cluster: Cluster, intruder: Intruder
) -> None:
    """It cannot get there, but if it did: no token goes to it, and the embedded mode goes on with a server of its own."""
    cluster.state.mkdir(mode=0o700)
    elsewhere = intruder.folder / "laid"
    intruder.listen_at(elsewhere)
    file = cluster.state / SERVER_FILE
    file.touch(0o600)
    file.write_text(json.dumps({"url": f"unix:{elsewhere}", "token": "t0ken", "enrol": "enr0l", "pid": os.getpid()}))
    env = {**os.environ, "XDG_STATE_HOME": str(cluster.folder / "xdg"), "HOME": str(cluster.folder)}
    env = {name: value for name, value in env.items() if not name.startswith("SHOAL_")}
    (cluster.folder / "xdg").mkdir()
    (cluster.folder / "xdg" / "shoal").symlink_to(cluster.state)
    words = [sys.executable, "-m", "shoal.cli", "run", "--", "echo", "home"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, cwd=cluster.cwd, check=False)
    try:
        assert done.stdout == "home\n", done
        assert intruder.visits and not intruder.heard.exists()
    finally:
        subprocess.run([sys.executable, "-m", "shoal.cli", "server", "stop"], env=env, timeout=60, check=False)


def test_the_server_file_of_an_older_server_gets_a_clean_answer(cluster: Cluster) -> None:
    from shoal.client.connection.embedded_server import running

    cluster.state.mkdir(mode=0o700)
    file = cluster.state / SERVER_FILE
    file.write_text(json.dumps({"url": "http://127.0.0.1:8443", "token": "t", "pid": os.getpid()}))
    assert running(cluster.state) is None  # no server has this number: it is gone
    code = "import sys, time; time.sleep(600)"
    old = subprocess.Popen([sys.executable, "-c", code, "-m", "shoal.server", "--state", str(cluster.state)])
    try:
        # Popen returns at exec, and the kernel shows the new words a moment later.
        cluster.until(lambda: b"shoal.server" in Path(f"/proc/{old.pid}/cmdline").read_bytes(), "it shows its words")
        file.write_text(json.dumps({"url": "http://127.0.0.1:8443", "token": "t", "pid": old.pid}))
        with pytest.raises(Refused, match=r"older Shoal.*plain http only.*kill"):
            running(cluster.state)
    finally:
        old.kill()
        old.wait()


def test_a_folder_in_tmp_that_somebody_else_made_does_not_stop_the_embedded_mode(
    cluster: Cluster, intruder: Intruder
) -> None:
    laid = intruder.folder / f"shoal-{os.getuid()}"
    assert intruder.run("os.mkdir(sys.argv[1], 0o777)", str(laid)).returncode == 0
    cluster.start_server()
    log = cluster.folder / "laid.log"
    with log.open("wb") as out:
        pilot = subprocess.Popen(
            [sys.executable, "-I", str(cluster.zip), "--server-file", str(cluster.state / SERVER_FILE), "--cores", "1"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", start_new_session=True,
            env={**os.environ, "TMPDIR": str(intruder.folder), "CLUSTER": str(cluster.folder)},
        )  # fmt: skip
    try:
        run = cluster.submit({"command": ["true"]})
        assert cluster.wait_run(run) == {"succeeded": 1}, log.read_text()
        assert not list(laid.iterdir())
        beside = [path for path in intruder.folder.iterdir() if path.name.startswith(f"{laid.name}-")]
        assert len(beside) == 1 and stat.S_IMODE(beside[0].stat().st_mode) == 0o700
    finally:
        pilot.terminate()
        pilot.wait(30)
    assert not [path for path in intruder.folder.iterdir() if path.name.startswith(f"{laid.name}-")], "nothing is left"
    cluster.stop_server()


def test_a_state_directory_whose_path_is_too_long_for_a_socket_works(tmp_path: Path, pilot_zip: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    made = Cluster(deep, pilot_zip)
    try:
        made.start_server()
        assert len(str(made.state / SOCKET_FILE)) > 107
        made.start_pilot(1)
        assert made.wait_run(made.submit(made.telling(0))) == {"succeeded": 1}
        began = time.monotonic()
        made.stop_server()
        assert time.monotonic() - began < 60
    finally:
        made.close()
