"""How long does a leader's round over 200 pilots take, and what does a leader cost while the server is there?

Rounds: a real leader (`pilot/mesh/leading` behind a real listener) and 199 emulated members over TLS on loopback, in two
processes. Each has the whole window; all bid at once for one task each, and a round is over when the last of them may begin: its
task is given, a majority knows that, and it knows of the majority. The members' processor time is in it.

Throughput: one server, real pilots of one core each that join it over TLS, tasks of 0.1 s; in mode `central` and `distributed` in
turns on the same pilots. Requests for each task, as the server counts them, are printed for both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.serving import Serving, bench_directory, events_of, repetitions, report_median, serving
from shoal.dht.peers import mesh_uri, parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.model.credentials import ENROL
from shoal.pilot.guard import proctree
from shoal.pilot.mesh.leading import Handlers, Leading
from shoal.pilot.mesh.links import Credentials, Links
from shoal.pilot.mesh.listener import Listener, open_port
from shoal.pilot.mesh.peer_table import PeerTable
from shoal.pilot.uplink.tls import peer_contexts
from shoal.server.auth.certificate_authority import CertificateAuthority
from shoal.wire.join import Join
from shoal.wire.messages import Capacity, Leadership, Lease

MEMBERS, PROCESSES, ROUNDS = 200, 2, 3
BEAT = 0.5
PILOTS = int(os.environ.get("SHOAL_BENCH_PILOTS", "60"))
SECONDS = 0.1
TASKS_EACH = 60  # of one pilot in one turn
_REQUESTS = re.compile(
    r'^shoal_requests_total\{route="/v1/pilots/\{pilot\}/(?:exchange|bundle)",status="200"\} (\S+)', re.M
)


# --- rounds
class Round(NamedTuple):
    """Milliseconds of one: by the clock, and of processor time of the leader."""

    took: float
    leader: float


def rounds() -> list[Round]:
    """Some rounds."""
    with bench_directory() as folder, contextlib.ExitStack() as stack:
        authority = CertificateAuthority.open(folder, [], time.time())
        uris = [mesh_uri("site", "anna", f"{Random(at).getrandbits(256):064x}") for at in range(MEMBERS)]
        chains = [
            "\n".join(authority.pilot_certificate(f"p{at:08x}", 3600.0, time.time(), uri))
            for at, uri in enumerate(uris)
        ]
        ca = ssl.PEM_cert_to_DER_cert(authority.ca_pem)
        own = parse_mesh_uri(uris[0])
        server = open_port((0,))
        assert own is not None and server is not None
        address = f"127.0.0.1:{server.getsockname()[1]}"
        contact = Contact(int(own.id, 16), address)
        links = Links(Credentials(own, *peer_contexts(chains[0].encode(), [ca])), address)
        table = PeerTable(contact, links, Random(1), lambda id: True)
        listener = Listener(server, lambda digest: None)
        leading = Leading(contact, BEAT, links, Handlers(lambda leases: None, lambda *kept: None))
        listener.leading = leading
        listener.serve(table, links, lambda id: True)
        stack.callback(leading.close)
        stack.callback(listener.close)
        term = (1 << 40) | (1 << 20)
        leading.state(Capacity(), {}, False)
        leading.named(Leadership(term, own.id, address), BEAT)
        window = [
            Lease(f"r1.{number}#1@1~00000000000000aa", Capacity(cores=1), "safe", ["true"])
            for number in range(1, MEMBERS * ROUNDS + 1)
        ]
        for number, low in enumerate(range(0, len(window), 100), 1):
            leading.granted(number, window[low : low + 100], [])
        told = {"term": term, "id": own.id, "address": address, "ca": ca.hex(), "entries": len(window) + MEMBERS}
        others = list(zip(uris, chains, strict=True))[1:]
        processes = []
        for at in range(PROCESSES):
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.mesh_members"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
            say(process, json.dumps({**told, "members": others[at::PROCESSES]}))
        has_window = threading.Event()
        threading.Thread(target=keep_contact, args=(leading, has_window), daemon=True).start()
        for process in processes:
            if hear(process) != "ready":
                raise RuntimeError("the members do not get the window")
        has_window.set()
        time.sleep(4 * BEAT)  # the server has not answered for three beats
        return [one_round(processes) for _ in range(ROUNDS)]


def keep_contact(leading: Leading, until: threading.Event) -> None:
    """The server answers the leader."""
    while not until.wait(BEAT / 2):
        leading.contact(proctree.now())


def one_round(processes: list[subprocess.Popen[str]]) -> Round:
    """All bid at once, until the last one may begin."""
    for process in processes:
        say(process, "set")
    if [hear(process) for process in processes] != ["set"] * len(processes):
        raise RuntimeError("the members do not follow")
    began, used = time.monotonic(), time.process_time()
    for process in processes:
        say(process, "go")
    took = max(float(hear(process)) for process in processes) - began
    return Round(took * 1e3, (time.process_time() - used) * 1e3)


def say(process: subprocess.Popen[str], line: str) -> None:
    """Tell a process something."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """What a process answers."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- throughput
@contextlib.contextmanager
def pilots(server: Serving, port: int, folder: Path) -> Iterator[None]:
    """Real pilots of one core each."""
    with server.client as client:
        answer = client.new_token(ENROL)
    join = folder / "join"
    join.write_text(str(Join((f"127.0.0.1:{port}",), str(answer["fingerprint"]), str(answer["token"]))))
    join.chmod(0o600)
    argv = [sys.executable, "-m", "shoal.pilot", "--join-file", str(join), "--cores", "1"]
    with contextlib.ExitStack() as stack:
        for number in range(PILOTS):
            home = folder / f"host{number}"
            home.mkdir()
            log = stack.enter_context((folder / f"pilot{number}.log").open("wb"))
            more = ["--work-dir", str(home), "--cache-dir", str(home / "cache")]
            process = subprocess.Popen([*argv, *more], stdout=log, stderr=log, cwd="/")
            stack.callback(process.wait, 120)
            stack.callback(process.terminate)
        until = time.monotonic() + 300
        while living(server) < PILOTS:
            if time.monotonic() > until:
                raise RuntimeError(f"only {living(server)} pilots joined")
            time.sleep(0.5)
        yield


def living(server: Serving) -> int:
    """Pilots that have joined."""
    with server.client as client:
        return sum(row["state"] != "gone" for row in client.pilots()["pilots"])


def requests(server: Serving) -> int:
    """Exchanges and bundles that the server answered so far."""
    with server.client as client:
        return sum(int(float(count)) for count in _REQUESTS.findall(client.metrics()))


def turn(server: Serving, mode: str) -> tuple[float, float]:
    """Tasks a second and requests for each task, in one mode."""
    with server.client as client:
        client.set_policy({"data": {"mode": mode}}, client.policy()["version"])
    time.sleep(12.0)  # more than a beat: every pilot has heard of its leader, or that there is none
    total = TASKS_EACH * PILOTS
    before, began = requests(server), time.monotonic()
    run = server.submit([{"command": ["sleep", str(SECONDS)], "array": f"1-{total}"}])
    with server.client as client:
        (end,) = [event for event in events_of(client, run) if event["kind"] == "run_finished"]
    took = time.monotonic() - began
    if end["data"]["counts"] != {"succeeded": total}:
        raise RuntimeError(end)
    return total / took, (requests(server) - before) / total


def throughput() -> None:
    """Both modes in turns."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found: dict[str, list[tuple[float, float]]] = {"central": [], "distributed": []}
    with bench_directory() as folder, serving("--listen", f"127.0.0.1:{port}") as server, pilots(server, port, folder):
        turn(server, "central")
        for _ in range(repetitions()):
            for mode, turns in found.items():
                turns.append(turn(server, mode))
    ratios = [led[0] / alone[0] for alone, led in zip(found["central"], found["distributed"], strict=True)]
    rates = {mode: statistics.median(rate for rate, _ in turns) for mode, turns in found.items()}
    asked = {mode: statistics.median(each for _, each in turns) for mode, turns in found.items()}
    note = (
        f"{PILOTS} real pilots, {SECONDS:g} s tasks: {rates['distributed']:.0f} over {rates['central']:.0f} tasks/s; requests "
        f"for each task {asked['distributed']:.3f} and {asked['central']:.3f}"
    )
    report_median("leader_vs_central_throughput", ratios, "ratio", note)


def main() -> None:
    """Measure and print."""
    found = rounds()
    used = statistics.median(one.leader for one in found)
    note = f"{MEMBERS} members; the leader used {used:.0f} ms of processor time"
    report_median("round_200_pilots_ms", [one.took for one in found], "ms", note)
    throughput()


if __name__ == "__main__":
    main()
