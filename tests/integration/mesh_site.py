"""Pilots of one site as real processes, each on a host of its own: another machine id, another temporary directory, and neither
the server's nor the submitter's files to be seen. TLS everywhere; all on loopback.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.model.credentials import ENROL
from shoal.wire.join import Join
from tests.integration.cluster import PATIENCE, Cluster, PilotProcess, clean_env, free_port

Json = dict[str, Any]
# Lies over what another host has otherwise, in a mount namespace of its own.
_COVER = 'mount --bind "$1" /etc/machine-id && mount --bind "$2" "$3" && mount --bind "$2" "$4" && shift 4 && exec "$@"'
_PRINT_DIGEST = "import hashlib; print(hashlib.sha256(open('data', 'rb').read()).hexdigest())"
_GOT = re.compile(r'shoal_requests_total\{route="/v1/blobs/\{digest\}",status="20[06]"\} (\d+)')


def missing() -> str:
    """Why there can be no such hosts here; empty if there can."""
    tried = ["unshare", "--mount", "mount", "--bind", "/etc/hostname", "/etc/machine-id"]
    if os.geteuid() != 0 or subprocess.run(tried, check=False, capture_output=True).returncode:
        return "no mount namespaces here: files from pilot to pilot were NOT tested"
    return ""


class Site:
    """A server that others reach, and the hosts of a site."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = free_port()
        cluster.start_server("--listen", f"127.0.0.1:{self.port}", "--no-pilot")
        self.empty = cluster.folder / "empty"
        self.empty.mkdir()
        self._count = self._joins = 0

    def join_file(self, token: str = "", **terms: Any) -> Path:
        """A file with a join string, for a new enrolment token if none is given."""
        with self.cluster.client() as client:
            answer = client.new_token(ENROL, **terms)
        self._joins += 1
        join = Join((f"127.0.0.1:{self.port}",), str(answer["fingerprint"]), token or str(answer["token"]))
        path = self.cluster.folder / f"join{self._joins}"
        ticket = answer.get("ticket")
        path.write_text(f"{join}\n{json.dumps(ticket)}\n" if ticket else str(join))
        path.chmod(0o600)
        return path

    def host(
        self,
        *options: str,
        under: Sequence[str] = (),
        join: Path | None = None,
        at: str = "",
        is_awaited: bool = True,
        **terms: Any,
    ) -> PilotProcess:
        """A pilot on another host, which has joined unless it is not awaited; `at`: on the host of this name, where there may
        be others."""
        cluster = self.cluster
        self._count += 1
        join, name = join or self.join_file(**terms), at or str(self._count)
        machine, folder = cluster.folder / f"machine{name}", cluster.folder / f"host{name}"
        machine.write_text(hashlib.md5(name.encode()).hexdigest())
        folder.mkdir(exist_ok=True)
        argv = ["unshare", "--mount", "sh", "-c", _COVER, "sh", str(machine), str(self.empty), str(cluster.state)]
        argv += [str(cluster.cwd), *under, *cluster.pilot_argv(), "--join-file", str(join), "--cores", "2"]
        argv += ["--cache-dir", str(folder / "cache")]
        log = cluster.folder / f"pilot{self._count}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*argv, "--work-dir", str(folder), "--verbose", *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                cwd="/", start_new_session=True,
                env={**clean_env(), "TMPDIR": str(folder), "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
            )  # fmt: skip
        pilot = PilotProcess(process, log, folder)
        cluster.pilots.append(pilot)
        if not is_awaited:
            return pilot
        cluster.until(lambda: pilot.names or not pilot.is_alive, "the pilot joins")
        assert pilot.is_alive, cluster.story()
        return pilot

    def put(self, size: int) -> tuple[str, bytes]:
        """Random bytes on the server; returns their digest."""
        data = os.urandom(size)
        with self.cluster.client() as client:
            return client.put_blob([data]), data

    def task(self, digest: str, pilot: PilotProcess | None = None, **more: Any) -> Json:
        """A task that reads a file, on a certain host."""
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            "import hashlib,sys; print(hashlib.sha256(open('data','rb').read()).hexdigest())",
        ]
        where = {"require": f'pilot == "{pilot.name}"'} if pilot is not None else {}
        return {"command": command, "inputs": ["data"], "content": {"data": f"{digest} 644"}, **where, **more}

    def read(self, digest: str, *pilots: PilotProcess, within: float = PATIENCE) -> None:
        """Have these hosts read a file, all at once; every task succeeds."""
        run = self.cluster.submit(*[self.task(digest, pilot) for pilot in pilots])
        counts = self.cluster.wait_run(run, within)
        assert counts == {"succeeded": len(pilots)}, (counts, self.cluster.story(40))
        lines = {row["last_line"] for row in self.cluster.rows(run)}
        assert lines == {digest.partition(":")[2]}

    @property
    def downloads(self) -> int:
        """Requests for the bytes of blobs that the server answered so far, by its own count; uploads are among them."""
        with self.cluster.client() as client:
            return sum(int(found) for found in _GOT.findall(client.metrics()))
