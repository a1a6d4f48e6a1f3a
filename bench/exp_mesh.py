"""A large file from one pilot of a site to eight others at once, over eight plain copies with digests on the same machine.

Real processes, TLS, each pilot a host of its own: another machine id and another temporary directory, and the server's and the
submitter's directories hidden from it (mount namespaces: root only). One pilot fetches the file from the server; then eight
tasks, each bound to another pilot, need it at once. What counts is the time from their submission to the last one's end. The
server counts what was fetched from it. Plain copies: eight processes at once, each hashing what it copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.mesh_peer import Seeker
from bench.serving import Serving, bench_directory, events_of, report, serving
from shoal.dht.key import parse_key
from shoal.model.credentials import ENROL
from shoal.wire.join import Join

SIZE = 200 << 20
OTHERS = 8
ROUNDS = 3
LOOKUPS, SMALL = 50, 100_000
FIRST_UID = 20_000
_COVER = 'mount --bind "$1" /etc/machine-id && mount --bind "$2" "$3" && shift 3 && exec "$@"'
_SENT = re.compile(r'shoal_requests_total\{route="/v1/blobs/\{digest\}",status="20[06]"\} (\d+)')
_COPY = """
import hashlib, os, sys
found, buffer = hashlib.sha256(), memoryview(bytearray(1 << 20))
with open(sys.argv[1], "rb", buffering=0) as source, open(sys.argv[2], "wb", buffering=0) as target:
    while count := source.readinto(buffer):
        found.update(buffer[:count])
        target.write(buffer[:count])
print(found.hexdigest())
"""


class Hosts:
    """A server that others reach, and pilots on hosts of their own."""

    def __init__(self, server: Serving, port: int, folder: Path) -> None:
        self.server, self._port, self.folder = server, port, folder
        self.pilots: list[subprocess.Popen[bytes]] = []
        self.names: list[str] = []

    def add(self) -> None:
        """Start a pilot and wait until it has joined."""
        number = len(self.pilots)
        home, machine = self.folder / f"host{number}", self.folder / f"machine{number}"
        empty = self.folder / "empty"
        for folder in (home, empty):
            folder.mkdir(exist_ok=True)
        machine.write_text(hashlib.md5(str(number).encode()).hexdigest())
        join = self.join(str(number))
        before = set(self._living())
        argv = ["unshare", "--mount", "sh", "-c", _COVER, "sh", str(machine), str(empty), str(self.server.state)]
        account = FIRST_UID + number  # an account of its own: root's tasks get copies of what others get links to
        for path in (home, join):
            os.chown(path, account, account)
        argv += ["setpriv", "--reuid", str(account), "--regid", str(account), "--clear-groups"]
        argv += [sys.executable, "-m", "shoal.pilot", "--join-file", str(join), "--work-dir", str(home), "--cores", "1"]
        argv += ["--cache-dir", str(home / "cache")]
        env = {**os.environ, "TMPDIR": str(home), "HOME": str(home), "XDG_CACHE_HOME": str(home)}
        log = (self.folder / f"pilot{number}.log").open("wb")
        self.pilots.append(subprocess.Popen(argv, stdout=log, stderr=log, cwd="/", env=env))
        while not (new := set(self._living()) - before):
            if self.pilots[-1].poll() is not None:
                raise RuntimeError((self.folder / f"pilot{number}.log").read_text())
            time.sleep(0.05)
        self.names += new

    def join(self, name: str) -> Path:
        """A file with a join string."""
        with self.server.client as client:
            answer = client.new_token(ENROL)
        path = self.folder / f"join-{name}"
        path.write_text(str(Join((f"127.0.0.1:{self._port}",), str(answer["fingerprint"]), str(answer["token"]))))
        return path

    def _living(self) -> list[str]:
        with self.server.client as client:
            return [row["pilot"] for row in client.pilots()["pilots"] if row["state"] != "gone"]

    def read(self, digest: str, names: list[str], size: int) -> float:
        """Have these pilots fetch a file, all at once; seconds from the submission to the end of the last task."""
        tasks = [
            {
                "command": ["true"],
                "inputs": ["data"],
                "content": {"data": f"{digest} 644 {size}"},
                "require": f'pilot == "{name}"',
            }
            for name in names
        ]
        with self.server.client as client:
            began = time.monotonic()
            run = client.submit({"tasks": tasks, "cwd": "/nowhere"})["run"]
            (end,) = [event for event in events_of(client, run) if event["kind"] == "run_finished"]
            took = time.monotonic() - began
        if end["data"]["counts"] != {"succeeded": len(names)}:
            raise RuntimeError(end)
        return took

    def sent(self) -> int:
        """Blobs that the server sent so far."""
        with self.server.client as client:
            return sum(map(int, _SENT.findall(client.metrics())))


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """A server and so many pilots."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with bench_directory() as folder, serving("--listen", f"127.0.0.1:{port}") as server:
        folder.chmod(0o711)
        found = Hosts(server, port, folder)
        try:
            for _ in range(count):
                found.add()
            yield found
        finally:
            for pilot in found.pilots:
                pilot.terminate()
            for pilot in found.pilots:
                pilot.wait(60)


def copies(folder: Path, data: bytes) -> float:
    """Seconds of eight plain copies with digests at once."""
    source = folder / "source"
    source.write_bytes(data)
    began = time.monotonic()
    running = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", _COPY, str(source), str(folder / f"copy{at}")], stdout=-1)
        for at in range(OTHERS)
    ]
    digests = {process.communicate()[0].decode().strip() for process in running}
    took = time.monotonic() - began
    if digests != {hashlib.sha256(data).hexdigest()}:
        raise RuntimeError("the copies differ")
    for path in folder.glob("copy*"):
        path.unlink()
    return took


def lookups(found: Hosts) -> list[float]:
    """Seconds of lookups of files that one pilot has, from the question to the holders."""
    digests = []
    with found.server.client as client:
        for _ in range(LOOKUPS):
            digests.append(client.put_blob([os.urandom(SMALL)]))
    for number, digest in enumerate(digests):
        found.read(digest, [found.names[number % len(found.names)]], SMALL)
    seeker = Seeker(found.join("seeker"))
    try:
        time.sleep(1.0)  # it has joined, and the last file is known
        return [seeker.find(parse_key(digest.partition(":")[2])) for digest in digests]
    finally:
        seeker.close()


def main() -> None:
    """In turn, and print."""
    if os.geteuid() != 0:
        print("# exp_mesh needs root for hosts of their own: nothing was measured", file=sys.stderr)
        return
    with hosts(1 + OTHERS) as found:
        mesh, plain = [], []
        for _ in range(ROUNDS):
            data = os.urandom(SIZE)
            with found.server.client as client:
                digest = client.put_blob([data])
            before = found.sent()
            found.read(digest, found.names[:1], SIZE)
            mesh.append(found.read(digest, found.names[1:], SIZE))
            if found.sent() != before + 1:
                raise RuntimeError(f"the server sent it {found.sent() - before} times")
            plain.append(copies(found.folder, data))
        total = SIZE * OTHERS / 1e6
        note = f"200 MB to {OTHERS} hosts, TLS; fetched from the server once"
        report("mesh_200mb_x8", statistics.median(total / s for s in mesh), "MB/s", note)
        report("cp_200mb_x8", statistics.median(total / s for s in plain), "MB/s", "eight copies with digests at once")
        ratios = [one / other for one, other in zip(plain, mesh, strict=True)]
        report("mesh_200mb_x8_vs_cp", statistics.median(ratios), "ratio", f"median of {ROUNDS}, in turn")
        took = statistics.median(lookups(found)) * 1e3
        report("dht_lookup_ms", took, "ms", f"{LOOKUPS} files at {1 + OTHERS} pilots, TLS, from question to holders")


if __name__ == "__main__":
    main()
