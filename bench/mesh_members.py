"""Emulated members of a mesh: they follow a real leader over TLS, keep its window, bid, and take what they are given. A process
of its own, `python -m bench.mesh_members`, told on its standard input what to do.

A line of JSON first: the leader's address and id, its term, how many entries there are, and the certificates. It prints `ready`
when all of its members have the window. Then, for each round, two lines: all stop what they ask (`set` is printed), and every
member bids for one task; the time at which the last of them was free to begin it is printed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from shoal.dht.key import parse_key
from shoal.dht.peers import parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.pilot.leader.bidding import kind_name
from shoal.pilot.leader.messages import GIVEN, TASK, Follow, KindBid
from shoal.pilot.mesh import frames
from shoal.pilot.mesh.links import Credentials, Links
from shoal.pilot.uplink.tls import peer_contexts
from shoal.wire import codec
from shoal.wire.messages import Capacity, Lease

WITHIN = 60.0


class Member:
    """One of them."""

    def __init__(self, told: dict[str, Any], uri: str, chain: str) -> None:
        named = parse_mesh_uri(uri)
        assert named is not None
        self.id, self.term = named.id, int(told["term"])
        contexts = peer_contexts(chain.encode(), [bytes.fromhex(told["ca"])])
        links = Links(Credentials(named, *contexts), "127.0.0.1:1")
        self._link = links.connect(Contact(parse_key(told["id"]), told["address"]), WITHIN)
        self._link.stream.settimeout(WITHIN)
        self._seq = self.version = self.committed = 0
        self.kind = ""
        self.given: dict[str, int] = {}  # attempt -> number of the entry

    def follow(self, bids: list[KindBid]) -> None:
        """Ask the leader, and take what it says."""
        self._seq += 1
        frames.send(self._link.stream, Follow(self.term, self._seq, self.version, True, Capacity(cores=1), bids))
        lead = self._receive()
        for entry in lead["entries"]:
            self.version = max(self.version, entry["number"])
            if entry["kind"] == TASK and not self.kind:
                self.kind = kind_name(codec.from_plain(Lease, entry["lease"]))
            elif entry["kind"] == GIVEN and entry["value"] == self.id:
                self.given[entry["name"]] = entry["number"]
        self.committed = max(self.committed, min(lead["committed"], self.version))

    def _receive(self) -> Any:
        """The leader's answer. A hundred members share this process: what each pilot checks by itself is not checked here."""
        head = bytearray(5)
        frames.fill(self._link.stream, memoryview(head))
        body = bytearray(int.from_bytes(head[:4], "big"))
        frames.fill(self._link.stream, memoryview(body))
        return json.loads(body)

    def round(self) -> float:
        """Bid for one task; when it may be begun."""
        had = len(self.given)
        while len(self.given) == had or max(self.given.values()) > self.committed:
            self.follow([KindBid(self.kind, 0.0)] if len(self.given) == had else [])
        return time.monotonic()


class Together:
    """All members of this process, each on a thread of its own: they follow their leader, except between `set` and the end of a
    round."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self._state = threading.Condition()
        self._step, self._arrived = 0, 0  # odd: everybody stops; even: a round
        self._ends: list[float] = []
        for member in members:
            threading.Thread(target=self._live, args=(member,), daemon=True).start()

    def step(self) -> list[float]:
        """Have all stop, or all bid; returns when each may begin its task."""
        with self._state:
            self._step, self._arrived, self._ends = self._step + 1, 0, []
            self._state.notify_all()
            self._state.wait_for(lambda: self._arrived == len(self._members))
            return self._ends

    def _live(self, member: Member) -> None:
        done = 0
        while True:
            with self._state:
                while done % 2 and self._step == done:
                    self._state.wait()
                is_told, is_round = self._step > done, self._step % 2 == 0
            if not is_told:
                member.follow([])
                continue
            done += 1
            end = member.round() if is_round else 0.0
            with self._state:
                self._arrived += 1
                self._ends.append(end)
                self._state.notify_all()


def main() -> None:
    """Do as told."""
    threading.stack_size(1 << 18)
    told = json.loads(sys.stdin.readline())
    members = [Member(told, uri, chain) for uri, chain in told["members"]]
    together = Together(members)
    while any(member.version < told["entries"] for member in members):
        time.sleep(0.05)
    print("ready", flush=True)
    for _ in sys.stdin:
        together.step()
        print("set", flush=True)
        sys.stdin.readline()
        print(max(together.step()), flush=True)


if __name__ == "__main__":
    main()
