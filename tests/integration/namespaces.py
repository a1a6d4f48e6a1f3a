"""Hosts on one machine: network namespaces joined by virtual cables, made for a test and removed by it.

A namespace is a network of its own: its processes reach nothing but the other ends of its cables. `Namespace.do` has a
function run there (a thread enters the namespace, so its sockets are of that network); `Namespace.argv` has a
program run there. What is hidden from a program is covered by an empty file system that only it and its children see.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
NEAR, FAR = "10.213.7.1", "10.213.7.2"  # every pair has its own 10.213.7.0/30: nobody else sees it
LAPTOP, LOGIN = "10.213.8.1", "10.213.8.2"
LOGIN_INSIDE, COMPUTE = "10.213.9.1", "10.213.9.2"
_CLONE_NEWNET = 0x40000000
_TIME_WAIT = "06"
# Waits until nobody holds its standard input open; ends what still runs in the networks it was given, by its numbers, and
# removes them. Until it is gone a network has processes, and each of them was started by the test that made it.
_JANITOR = """
import os, subprocess, sys, time
sys.stdin.read()
for name in sys.argv[1:]:
    for _ in range(100):
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        if not pids:
            break
        for pid in pids:
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
    if os.path.exists(f"/run/netns/{name}"):
        subprocess.run(["ip", "netns", "del", name], check=True)
"""


def missing() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if shutil.which("ip") is None:
        return "no ip (package iproute2)"
    if os.geteuid() != 0:
        return "network namespaces are made by root only"
    name = f"shoal-try-{secrets.token_hex(3)}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode:
        return f"`ip netns add` does not work here: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


@dataclass(frozen=True)
class Namespace:
    """One network."""

    name: str
    _inside: ThreadPoolExecutor = field(repr=False)
    links: list[str] = field(default_factory=list)  # its ends of cables

    def argv(self, *command: str, hidden: Sequence[Path] = ()) -> list[str]:
        """The command line that runs a program here; folders that are hidden from it are empty to it."""
        covers = " && ".join('mount -t tmpfs -o mode=1777 shoal-test "$1" && shift' for _ in hidden)
        wrapped = ["/bin/sh", "-c", f'{covers} && exec "$@"', "sh", *map(str, hidden)] if hidden else []
        return ["ip", "netns", "exec", self.name, *wrapped, *command]

    def do(self, work: Callable[[], T]) -> T:
        """Have a function run in this network."""
        return self._inside.submit(work).result()

    def pids(self) -> list[int]:
        """Every process of this network."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, timeout=60, check=True
        ).stdout.split()
        return [int(pid) for pid in found if int(pid) != os.getpid()]

    def sockets(self) -> list[str]:
        """What is open in this network: TCP (but what only waits for late packets), UDP and named Unix sockets."""
        text = subprocess.run(
            self.argv("cat", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/unix"),
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        lines = [line.split() for line in text.splitlines()]
        return [
            " ".join(fields)
            for fields in lines
            if fields[0].endswith(":") and fields[0] != "Num:" and not (len(fields) > 9 and fields[3] == _TIME_WAIT)
        ]

    def set_link(self, up: bool) -> None:
        """Plug the cables in, or pull them out."""
        for link in self.links:
            _ip("-n", self.name, "link", "set", link, "up" if up else "down")


@contextlib.contextmanager
def joined() -> Iterator[tuple[Namespace, Namespace]]:
    """A near and a far network; whatever happens, they and what still runs in them are gone afterwards."""
    with _networks("near", "far") as (near, far):
        _connect(near, far, "near0", NEAR, "far0", FAR)
        yield near, far


@contextlib.contextmanager
def in_a_row() -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """A laptop, a login host and a compute host: the first and the last reach only the one between."""
    with _networks("laptop", "login", "compute") as (laptop, login, compute):
        _connect(laptop, login, "laptop0", LAPTOP, "login0", LOGIN)
        _connect(login, compute, "login1", LOGIN_INSIDE, "compute0", COMPUTE)
        login.do(lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("0"))
        yield laptop, login, compute


@contextlib.contextmanager
def _networks(*words: str) -> Iterator[list[Namespace]]:
    mark = f"shoal{os.getpid()}-{secrets.token_hex(3)}"
    names = [f"{mark}-{word}" for word in words]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_janitor(*names))
        found = []
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            inside = stack.enter_context(ThreadPoolExecutor(4, initializer=_enter, initargs=(name,)))
            found.append(Namespace(name, inside))
        yield found


def _connect(one: Namespace, other: Namespace, link: str, address: str, other_link: str, other_address: str) -> None:
    """Lay a cable."""
    _ip("link", "add", link, "netns", one.name, "type", "veth", "peer", "name", other_link, "netns", other.name)
    for end, name, own in ((one, link, address), (other, other_link, other_address)):
        _ip("-n", end.name, "addr", "add", f"{own}/30", "dev", name)
        _ip("-n", end.name, "link", "set", name, "up")
        end.links.append(name)


@contextlib.contextmanager
def _janitor(*names: str) -> Iterator[None]:
    """Whatever becomes of this process, even kill -9: another one waits for its end and cleans up after it."""
    waits = subprocess.Popen(
        [sys.executable, "-I", "-c", _JANITOR, *names], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        assert waits.stdin is not None
        waits.stdin.close()
        assert waits.wait(30.0) == 0, "the networks could not be removed"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _enter(name: str) -> None:
    """This thread, and only this one, is in that network from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {name}")
