"""The pilot that this server hands out: built by a process of its own, since the server never imports the pilot."""

from __future__ import annotations

import asyncio
import hashlib
import sys

from shoal.server.context import Context


async def build_pilot(context: Context) -> None:
    """Build the zip and tell everyone its digest; pilots with another one renew themselves when idle."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal.pilot.build", str(context.pilot_path),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, words = await process.communicate()
    if process.returncode:
        text = words.decode("utf-8", "replace")[-300:]
        context.service.engine.describe_server(trouble=f"the pilot could not be built: {text}")
        return
    context.pilot_path.chmod(0o700)  # no secret, but nothing in a state directory is for others
    data = await asyncio.to_thread(context.pilot_path.read_bytes)
    context.pilot_sha256 = hashlib.sha256(data).hexdigest()
    context.service.engine.describe_server(pilot_zip=context.pilot_sha256)
    context.pilot_built.set()
