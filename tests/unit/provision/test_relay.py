"""The relay's file works alone, on an old Python, and speaks the preamble of `wire/http/relay_preamble.py`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from shoal.model.credentials import RELAY_PREFIX
from shoal.provision import relay
from shoal.wire.http import relay_preamble

KEY, OURS, THEIRS = RELAY_PREFIX + "k" * 43, b"1" * 64, b"2" * 64


def test_it_needs_nothing_but_the_standard_library_of_python_3_9() -> None:
    tree = ast.parse(Path(relay.__file__).read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_both_sides_compute_the_same() -> None:
    assert relay.GREETING == relay_preamble.GREETING and relay.PROOF == relay_preamble.PROOF_SIZE
    for word in (relay_preamble.CONNECT, relay_preamble.QUIT, relay_preamble.OPEN):
        assert relay.proof(KEY.encode(), word, THEIRS, OURS) == relay_preamble.proof(KEY, word, THEIRS, OURS)


def test_a_caller_believes_only_a_relay_with_its_key() -> None:
    greeting = relay_preamble.GREETING + THEIRS + b"\n"
    assert len(relay_preamble.answer(KEY, greeting, OURS)) == relay_preamble.PROOF_SIZE
    good = b"open " + relay_preamble.proof(KEY, b"open", THEIRS, OURS) + b"\n"
    relay_preamble.check_verdict(KEY, greeting, OURS, good)
    for bad in (b"", good[:-1], good.replace(b"open", b"full"), b"open " + b"0" * 64 + b"\n"):
        with pytest.raises(OSError, match="refused"):
            relay_preamble.check_verdict(KEY, greeting, OURS, bad)
    down = b"down " + relay_preamble.proof(KEY, b"down", THEIRS, OURS) + b"\n"
    with pytest.raises(OSError, match="tunnel behind it is down"):
        relay_preamble.check_verdict(KEY, greeting, OURS, down)
    for odd in (b"", b"SSH-2.0-OpenSSH\r\n", greeting[:-2] + b"\n"):
        with pytest.raises(OSError, match="no relay"):
            relay_preamble.answer(KEY, odd, OURS)
