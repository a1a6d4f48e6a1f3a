"""The pure half of the tunnel: the command line of ssh, and what ssh and the relay say."""

from __future__ import annotations

import pytest

from shoal.model.credentials import RELAY_PREFIX
from shoal.model.errors import BadInput
from shoal.provision.tunnel import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    STEADY,
    Announced,
    Tunnel,
    allocated_port,
    announced,
    next_pause,
    ssh_command,
    why_ended,
)

KEY = RELAY_PREFIX + "k" * 43


@pytest.mark.parametrize(
    ("target", "forward"),
    [
        ("/run/anna/shoal/tls.sock", "127.0.0.1:0:/run/anna/shoal/tls.sock"),
        (f"/{'long' * 40}/tls.sock", "127.0.0.1:0:/proc/self/cwd/tls.sock"),
        ("/run/a:b/100%/tls.sock", "127.0.0.1:0:/proc/self/cwd/tls.sock"),
        (("box.example", 8443), "127.0.0.1:0:box.example:8443"),
        (("fe80::1", 8443), "127.0.0.1:0:[fe80::1]:8443"),
    ],
)
def test_ssh_is_asked_for_any_port_of_loopback(target: str | tuple[str, int], forward: str) -> None:
    argv = ssh_command(("ssh", "-S", "/c", "anna@login"), target, 123)
    assert argv[:4] == ["ssh", "-S", "/c", "anna@login"]
    assert argv[argv.index("-R") + 1] == forward
    assert "read(123)" in argv[-1] and "\n" not in argv[-1] and "'" not in argv[-1].replace("'relay','exec'", "")


def test_the_port_is_read_from_what_ssh_says() -> None:
    assert allocated_port("Allocated port 43125 for remote forward to /x/tls.sock:-2") == 43125
    assert allocated_port("debug1: something") is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Welcome to the cluster", None),
        (
            'shoal-relay {"port": 4000, "addresses": ["10.0.0.1", "login1"]}',
            Announced(4000, ("10.0.0.1", "login1")),
        ),
        ('shoal-relay {"port": 4000, "addresses": ["a#b", "x,y", "ok"]}', Announced(4000, ("ok",))),
        ('shoal-relay {"port": 4000, "addresses": ["a#b"]}', Announced(0, (), "the relay has no address")),
        ('shoal-relay {"port": 70000, "addresses": ["a"]}', Announced(0, (), "the relay has no address")),
        ('shoal-relay {"error": "no port"}', Announced(0, (), "no port")),
        ("shoal-relay [1", Announced(0, (), "the relay says what cannot be understood")),
        ("shoal-relay 1", Announced(0, (), "the relay says what cannot be understood")),
    ],
)
def test_what_the_relay_says_is_checked_before_it_becomes_part_of_a_join_string(
    line: str, found: Announced | None
) -> None:
    assert announced(line) == found


def test_the_reason_is_one_line_without_the_noise_of_ssh() -> None:
    said = [
        'Authenticated to 10.0.0.1 ([10.0.0.1]:22) using "publickey".',
        "bash: python3: command not found",
        "Transferred: sent 1, received 2 bytes, in 0.1 seconds",
        "Bytes per second: sent 1.0, received 2.0",
    ]
    assert why_ended(said, 127) == "bash: python3: command not found"
    assert "AllowTcpForwarding" in why_ended(["Warning: remote port forwarding failed for listen port 0", "x"], 255)
    assert why_ended([], 255) == "ssh ended with status 255"
    assert KEY not in why_ended([f"odd {KEY}"], 1)


def test_pauses_grow_and_begin_anew_after_a_good_time() -> None:
    pauses = [0.0]
    for _ in range(10):
        pauses.append(next_pause(pauses[-1], 1.0))
    assert pauses[1:4] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] and pauses[-1] == LONGEST_PAUSE
    assert next_pause(LONGEST_PAUSE, STEADY) == FIRST_PAUSE


def test_a_key_that_is_none_is_refused_without_being_shown() -> None:
    with pytest.raises(BadInput) as caught:
        Tunnel(("ssh", "x"), "/s", True, "secret-of-somebody", print)
    assert "secret-of-somebody" not in str(caught.value)
