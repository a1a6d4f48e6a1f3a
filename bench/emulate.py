"""Emulated pilots: the real protocol against a real server, no execution. Blocking and simple: one thread a pilot."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from shoal.wire.messages import PROTOCOL


class EmulatedPilot:
    """Registers, takes leases and reports each as succeeded at once."""

    def __init__(self, url: str, enrol: str, cores: int = 16) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=60)
        self._head = {"Authorization": f"Bearer {enrol}", "Content-Type": "application/json"}
        self._cores, self._seq, self.done = cores, 0, 0
        room = {"cores": cores, "memory": 1 << 36, "disk": 1 << 36, "gpus": 0}
        said = {"protocol": PROTOCOL, "version": "bench", "host": "bench", "identity": "bench", "room": room}
        joined = self._post("/v1/pilots", said)
        self._name, self._session, self._room = joined["pilot"], joined["session"], room
        self._head["Authorization"] = f"Bearer {self._session}"

    def _post(self, path: str, body: Any) -> Any:
        self._http.request("POST", path, json.dumps(body), self._head)
        answer = self._http.getresponse()
        data = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {data}")
        return data

    def work(self, go_on: Callable[[], bool]) -> None:
        """Exchange until told to stop."""
        reports: list[dict[str, Any]] = []
        while go_on():
            self._seq += 1
            said = {
                "protocol": PROTOCOL, "pilot": self._name, "session": self._session, "seq": self._seq, "ack": self._seq - 1,
                "free": self._room, "reports": reports, "nonce": str(self._seq),
            }  # fmt: skip
            reply = self._post(f"/v1/pilots/{self._name}/exchange", said)
            self.done += len(reports)
            reports = [
                {"attempt": lease["attempt"], "outcome": "succeeded", "exit_code": 0, "duration": 0.001, "started": 1.0e9,
                 "last_line": "42"}
                for lease in reply["leases"]
            ]  # fmt: skip


def run_until(pilots: list[EmulatedPilot], total: int) -> None:
    """Let all pilots work until they have finished `total` tasks together, counted from their beginning."""

    def go_on() -> bool:
        return sum(p.done for p in pilots) < total

    threads = [threading.Thread(target=p.work, args=(go_on,)) for p in pilots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
