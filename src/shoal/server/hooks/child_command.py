"""Commands that the server runs for somebody, such as hooks: in a session of their own, for a bounded time, with the
beginning of what they print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

GONE_WITHIN = 2.0  # seconds to wait for a killed command
MAX_OUTPUT = 4_096  # bytes of its output that are kept
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")  # of the server's variables: no token is among them


class CommandEnd(NamedTuple):
    """How a command ended: empty `wrong` if with status 0; and what it printed."""

    wrong: str
    output: str


async def run_command(
    argv: Sequence[str], env: Mapping[str, str], folder: Path, within: float, stdin: bytes = b""
) -> CommandEnd:
    """Run a command to its end, or kill it with everything it started when its time is over."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=folder,
            env=kept_variables() | dict(env), start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return CommandEnd(f"cannot be started: {error}", "")
    output, wrong = bytearray(), ""
    try:
        async with asyncio.timeout(within):
            if process.stdin is not None:
                with contextlib.suppress(OSError):  # it need not read it
                    process.stdin.write(stdin)
                    process.stdin.close()
            await _gather(process, output)
            status = await process.wait()
            wrong = f"ended with status {status}" if status else ""
    except TimeoutError:
        await _end(process)
        wrong = f"was ended after {within:g} s"
    except asyncio.CancelledError:
        await _end(process)
        raise
    return CommandEnd(wrong, bytes(output).decode("utf-8", "replace").strip())


def kept_variables() -> dict[str, str]:
    """The variables of the server that such a command gets."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


async def _gather(process: asyncio.subprocess.Process, output: bytearray) -> None:
    """Read the output of a command to its end, and keep the beginning."""
    assert process.stdout is not None
    while piece := await process.stdout.read(65_536):
        output += piece[: max(0, MAX_OUTPUT - len(output))]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a command with everything it started (its own process group, which exists while its output is open), and wait
    until it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_WITHIN):
            await _gather(process, bytearray())
            await process.wait()
