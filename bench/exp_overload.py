"""Ten times too much: does the server stay small, and are 200 pilots over TLS answered while people flood it?
[promise I21]"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from typing import Any

from bench.serving import Serving, percentile, report, serving
from shoal.wire.join import SERVER_NAME

PILOTS = 200
PAUSE = 3.0  # seconds a task takes: 67 exchanges a second is the normal rate
NORMAL, STORM, AFTER = 30.0, 40.0, 10.0


def start(
    server: Serving, port: int, what: str, count: int, until: float, token: str, **more: float
) -> subprocess.Popen[str]:
    """A process of clients."""
    options = [f"--{name}={value}" for name, value in more.items()]
    process = subprocess.Popen(
        [
            sys.executable, "-m", "bench.storm", what, "--port", str(port), "--ca", str(server.state.parent / "ca.pem"),
            "--count", str(count), "--until", str(until), *options,
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(token + "\n")
    process.stdin.flush()
    return process


def ca_of(port: int) -> bytes:
    """The certificate of the server's CA, from the server itself: it is ours, on this machine."""
    request = urllib.request.Request(f"https://127.0.0.1:{port}/v1/ca", headers={"Host": SERVER_NAME})
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(request, timeout=10, context=unverified) as answer:
        return bytes(answer.read())


def results(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The results that it prints at its end."""
    output, _ = process.communicate(timeout=60)
    return dict(json.loads(output))


def main() -> None:
    """Normal, then the storm on top of it, then normal again."""
    with serving("--listen", "127.0.0.1:0") as server:
        client = server.client
        port = int(client.server()["addresses"][0].rpartition(":")[2])
        (server.state.parent / "ca.pem").write_bytes(ca_of(port))
        client.submit({"tasks": [{"command": ["true"], "array": "1-1000000"}], "cwd": "/", "name": "honest"})
        began = time.time()
        storm, calm = began + NORMAL, began + NORMAL + STORM
        end = calm + AFTER
        honest = start(server, port, "pilots", PILOTS, end, server.enrol, pause=PAUSE)
        time.sleep(max(0.0, storm - time.time()))
        base = server.rss_mb()
        first = client.events(after=0, kinds=["task_finished"])["last"]
        tokens = [client.new_token("submit", note=f"flood {n}")["token"] for n in range(4)]
        floods = [start(server, port, "flood", 24, calm, token) for token in tokens]
        peak = base
        while time.time() < calm:
            peak = max(peak, server.rss_mb())
            time.sleep(0.2)
        seen: dict[str, int] = {}
        accepted = 0
        for process in floods:
            flooded = results(process)
            accepted += flooded["accepted"]
            for status, times in flooded["seen"].items():
                seen[status] = seen.get(status, 0) + times
        result = results(honest)
        late_normal = [s for at, s in result["late"] if began + 10 < at < storm]
        late_storm = [s for at, s in result["late"] if storm < at < calm]
        requests = sum(times for status, times in seen.items() if int(status) > 0)
        normal_rate = len(late_normal) / (NORMAL - 10)
        gone = [
            e for e in all_events(client, first) if e["kind"] in ("pilot_suspect", "pilot_gone") and e["time"] < calm
        ]
        runs = count_runs(client)
        report(
            "overload_rate",
            requests / STORM / normal_rate,
            "ratio",
            f"{requests / STORM:.0f} requests/s over {normal_rate:.0f}/s; answers {json.dumps(seen)}; wanted: 10",
        )
        report("overload_rss_normal_mb", base, "MB")
        report("overload_rss", peak / base, "ratio", f"peak {peak:.0f} MB; wanted: <= 2")
        report("beat_p99_normal_s", percentile(late_normal, 0.99), "s", f"{len(late_normal)} beats")
        report("beat_p99_storm_s", percentile(late_storm, 0.99), "s", f"{len(late_storm)} beats; wanted: <= 1")
        report("false_losses", float(len(gone) + result["lost"]), "pilots", f"of {PILOTS}; wanted: 0")
        report("reports_kept", float(result["done"]), "tasks", f"acknowledged; connections broken {result['errors']}")
        missing = max(0, accepted - (runs - 1))
        report("accepted_lost", float(missing), "runs", f"of {accepted} accepted in the storm; wanted: 0")


def all_events(client: Any, after: int) -> list[dict[str, Any]]:
    """The journal after an event, to its end."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.events(after=after)
        found += page["events"]
        if page["last"] == after:
            return found
        after = page["last"]


def count_runs(client: Any) -> int:
    """How many runs there are."""
    return int(client.server()["runs"])


if __name__ == "__main__":
    main()
