"""A tunnel from a login host, or an ssh box, to the server: `ssh -R`, with a relay at its far end [ADR 0045].

The first half is pure: the command line of ssh, and what ssh says. `Tunnel` keeps ssh alive: when it ends, because a
laptop slept or its network changed, it is started again, and the relay gets the same port, so that pilots find the
server where it was. The relay's code and its key go over standard input; they are in no argument and no environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from shoal.model.credentials import is_relay_key, redact
from shoal.model.errors import BadInput, echo
from shoal.provision import relay
from shoal.wire.join import relay_address

T = TypeVar("T")
BEAT = 10.0  # seconds between lines to the relay, which ends without them
START_WITHIN = 60.0  # seconds until ssh has connected, or the relay listens
STOP_WITHIN = 3.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two tries
STEADY = 60.0  # seconds after which a tunnel counts as good: the next pause is the first one again
MAX_ADDRESSES = 5
_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"),
    # A person's own forwards may fail here because another ssh has them; of ours ssh tells us at this level.
    *("-o", "ExitOnForwardFailure=no", "-o", "LogLevel=VERBOSE", "-o", "RemoteCommand=none"),
)
_ALLOCATED = re.compile(r"Allocated port ([0-9]{1,5}) for remote forward")
_REFUSED = re.compile(r"remote port forwarding failed", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_PLAIN = re.compile(r"[A-Za-z0-9._/@+=-]{1,100}")  # a path that ssh neither expands nor finds too long
# What ssh says at that level, and is no reason for its end.
_NOISE = re.compile(
    r"Authenticated to |Authenticated using |Transferred: |Bytes per second: |debug[0-9]: |Allocated port |"
    r"Warning: Permanently added |Server host key: |.* line [0-9]+: |\*\*"
)


# --- pure
def ssh_command(ssh_argv: Sequence[str], target: str | tuple[str, int], code_size: int) -> list[str]:
    """The command that makes the tunnel and runs the relay. Options may follow the destination."""
    if isinstance(target, str):
        plain = target if _PLAIN.fullmatch(target) else f"/proc/self/cwd/{os.path.basename(target)}"
    else:
        plain = f"{f'[{target[0]}]' if ':' in target[0] else target[0]}:{target[1]}"
    return [*ssh_argv, *_OPTIONS, "-R", f"127.0.0.1:0:{plain}", f'exec python3 -I -c "{_start_of(code_size)}"']


def relay_command(code_size: int) -> list[str]:
    """The command that runs the relay on this host, for whoever works on the login host itself."""
    return [sys.executable, "-I", "-c", _start_of(code_size)]


def _start_of(code_size: int) -> str:
    """Python that reads the relay from standard input and becomes it."""
    return f"import sys;exec(compile(sys.stdin.buffer.read({code_size}),'relay','exec'))"


def allocated_port(line: str) -> int | None:
    """The port that ssh got on the other host, if this line tells."""
    found = _ALLOCATED.search(line)
    return int(found[1]) if found is not None else None


class Announced(NamedTuple):
    """What the relay said when it started."""

    port: int
    hosts: tuple[str, ...]
    trouble: str = ""  # why it does not listen


def announced(line: str) -> Announced | None:
    """Where the relay listens, or why it does not; None if a line is not the relay's. What it says of itself is checked:
    it becomes part of join strings."""
    if not line.startswith(relay.ANNOUNCED):
        return None
    try:
        said = json.loads(line[len(relay.ANNOUNCED) :])
        if "error" in said:
            return Announced(0, (), echo(str(said["error"])))
        port, hosts = int(said["port"]), [str(host) for host in said["addresses"] if _HOST.fullmatch(str(host))]
    except (ValueError, KeyError, TypeError):
        return Announced(0, (), "the relay says what cannot be understood")
    if not 0 < port < 65536 or not hosts:
        return Announced(0, (), "the relay has no address")
    return Announced(port, tuple(hosts[:MAX_ADDRESSES]))


def why_ended(lines: Iterable[str], status: int | None) -> str:
    """Why there is no tunnel, in one line: the last of what ssh said that is a reason."""
    said = [line for line in lines if line and not _NOISE.match(line)]
    refused = next((line for line in said if _REFUSED.search(line)), "")
    if refused:
        return "the other host forwards no ports (AllowTcpForwarding in its sshd_config)"
    return redact(echo(said[-1])) if said else f"ssh ended with status {status}"


def next_pause(before: float, lasted: float) -> float:
    """Seconds to the next try: each time twice as long, unless the tunnel was good."""
    return FIRST_PAUSE if lasted >= STEADY or not before else min(LONGEST_PAUSE, 2 * before)


# --- the process
class Tunnel:
    """One tunnel. `start` returns at once; `address` has what pilots need as soon as it is up for the first time."""

    def __init__(
        self,
        ssh_argv: Sequence[str],  # up to the destination: ("ssh", "user@login"); empty: a relay on this host
        tls_socket: str | tuple[str, int],  # where the server speaks TLS: a Unix socket, or a host and port
        relay: bool,  # False: pilots are on that host itself, so only its loopback is listened on
        key: str,  # RELAY_PREFIX and 256 random bits
        log: Callable[[str], None],
        host: str = "",  # the interface of the login host that compute hosts reach; empty: all
        ports: Sequence[int] = (0,),  # that the relay may use, in order of preference; 0: any
    ) -> None:
        if not is_relay_key(key):
            raise BadInput("this is no key of a relay", code="bad_relay_key")
        self._argv, self._target, self._key, self._log = tuple(ssh_argv), tls_socket, key, log
        self._host = host if relay else "127.0.0.1"
        self._ports = tuple(ports)
        self._found: Announced | None = None
        self._trouble, self._is_up = "not started", False
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str | None:
        """What a join string has before its fingerprint: one address or several, separated by commas. None until the
        tunnel was up; while it is down it is what it was, since it comes back there."""
        if self._found is None:
            return None
        return ",".join(relay_address(host, self._found.port, self._key) for host in self._found.hosts)

    @property
    def port(self) -> int:
        """The relay's port, to be the first of `ports` of the next provisioner; 0: not known."""
        return self._found.port if self._found is not None else 0

    @property
    def trouble(self) -> str:
        """Why the tunnel is down, in one line; empty while it is up."""
        return self._trouble

    @property
    def is_up(self) -> bool:
        """True while pilots get through, as far as ssh knows."""
        return self._is_up

    def start(self) -> None:
        """Make it, and keep it until `stop`."""
        self._trouble = "ssh is connecting"
        self._thread = threading.Thread(target=self._run, name="tunnel", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, and the relay with it."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(3 * STOP_WITHIN)
            self._thread = None
        self._is_up, self._trouble = False, "stopped"

    def _run(self) -> None:
        pause = 0.0
        while not self._end.is_set():
            began = time.monotonic()
            try:
                why = self._keep_one()
            except OSError as error:
                why = f"ssh cannot be started: {error.strerror}"
            if self._end.is_set():
                return
            self._is_up, self._trouble = False, why
            pause = next_pause(pause, time.monotonic() - began)
            self._log(f"the tunnel is down: {why}; the next try is in {pause:.0f} s")
            self._end.wait(pause * random.uniform(0.8, 1.2))

    def _keep_one(self) -> str:
        """Run ssh once, to its end; returns why it ended."""
        code = Path(relay.__file__).read_bytes()
        target = self._target
        argv = ssh_command(self._argv, target, len(code)) if self._argv else relay_command(len(code))
        # A path that ssh does not take is named by the directory in which ssh runs.
        folder = os.path.dirname(target) if isinstance(target, str) else "/"
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
            start_new_session=True,  # Ctrl-C at the terminal of whoever started us is not for it
        )  # fmt: skip
        session = _Session(process)
        try:
            why = self._serve(session, code)
        finally:
            session.close()
        return why

    def _serve(self, session: _Session, code: bytes) -> str:
        # The relay runs in the directory of the socket, whose whole path may be too long for a socket's address.
        to: int | str | list[Any] | None = (
            os.path.basename(self._target) if isinstance(self._target, str) else list(self._target)
        )
        if self._argv:
            to = session.wait_for("err", allocated_port, self._end)
        if to is None:
            return session.why()
        order = {"key": self._key, "to": to, "host": self._host, "ports": self._wanted_ports()}
        session.send(code + json.dumps(order).encode() + b"\n")
        found = session.wait_for("out", announced, self._end)
        if found is None or found.trouble:
            return found.trouble if found is not None else session.why()
        if self._found is not None and self._found.port != found.port:
            self._log(f"the relay has port {found.port} now, not {self._found.port}: pilots that run do not find it")
        self._found, self._is_up, self._trouble = found, True, ""
        self._log(f"the tunnel is up: the relay listens on port {found.port}")
        while not self._end.is_set() and session.wait_end(BEAT, self._end) is None:
            session.send(b"\n")
        return session.why()

    def _wanted_ports(self) -> list[int]:
        last = [self._found.port] if self._found is not None else []
        return list(dict.fromkeys([*last, *self._ports]))


class _Session:
    """One process of ssh: what it says comes by a queue."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._said: deque[str] = deque(maxlen=50)  # on stderr
        self._open = 2
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            assert stream is not None
            threading.Thread(target=self._read, args=(name, stream), name=f"tunnel-{name}", daemon=True).start()

    def _read(self, name: str, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(8192):
                self._lines.put((name, line.decode("utf-8", "replace").strip()))
        self._lines.put(("end", ""))

    def send(self, data: bytes) -> None:
        """Write to its standard input, if it still lives."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def wait_for(self, name: str, read: Callable[[str], T | None], end: threading.Event) -> T | None:
        """What the first line of a stream that is understood means; None if there is none in time."""
        until = time.monotonic() + START_WITHIN
        while time.monotonic() < until and self._open and not end.is_set():
            got = self._next(min(0.5, until - time.monotonic()))
            if got is not None and got[0] == name and (found := read(got[1])) is not None:
                return found
            if got is not None and got[0] == "err" and _REFUSED.search(got[1]):
                return None
        if self._open and not end.is_set():
            self._said.append(f"no answer within {START_WITHIN:.0f} s")
        return None

    def wait_end(self, seconds: float, end: threading.Event) -> int | None:
        """Wait for the end of ssh, at most so long; its status."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._open and not end.is_set():
            self._next(min(0.5, until - time.monotonic()))
        return None if self._open else self._process.wait()

    def _next(self, within: float) -> tuple[str, str] | None:
        try:
            name, line = self._lines.get(timeout=max(0.0, within))
        except queue.Empty:
            return None
        if name == "err":
            self._said.append(line)
        elif name == "end":
            self._open -= 1
        return name, line

    def why(self) -> str:
        """Why it ended, or has to."""
        return why_ended(self._said, self._process.poll())

    def close(self) -> None:
        """End it: without standard input the relay ends, and ssh with it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
