"""The output of tasks, while it grows: from the file, which a pilot on another host fills while somebody follows it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from shoal.engine.commands import Watch
from shoal.model.errors import BadInput, echo
from shoal.model.file_names import LOGS, SUFFIX, log_name
from shoal.model.ids import TaskId, parse_task
from shoal.model.limits import MAX_LOG_PART
from shoal.server.context import CallHandler
from shoal.server.handlers.runs import check_exists
from shoal.server.http.messages import Response
from shoal.server.http.request import Call

POLL = 0.2  # seconds between reads of a file that may grow
AFTERWARDS = 5.0  # seconds that output may still come after a task's report


class LogsHandler(CallHandler):
    """Calls about what tasks print."""

    async def read(self, call: Call) -> Response:
        """A stream of an attempt from a byte on, as text; waits for more if asked to."""
        task, stream = parse_task(call.path_part("task")), call.text("stream") or "stdout"
        if stream not in SUFFIX:
            raise BadInput(f"{echo(stream)!r} is not a stream", code="range", field="stream", hint="stdout or stderr")
        await check_exists(self.context, task)
        offset, attempt = call.number("offset"), call.number_or_none("attempt")
        wait = call.number("wait")
        end = self.service.clock() + wait
        while True:
            name, more = await self._find(task, attempt, stream, watch=wait > 0)
            data, size = await asyncio.to_thread(_read, self.service.state_dir / LOGS / name, offset)
            if data or not more or self.service.clock() >= end:
                break
            call.rest()
            await asyncio.sleep(POLL)
        missing, is_coming = self.service.uploaded_logs.missing(name)
        more = more or is_coming or offset + len(data) < size
        headers = {"X-Shoal-Next": str(offset + len(data)), "X-Shoal-More": "1" if more else "0"}
        if missing and not more:
            headers["X-Shoal-Missing"] = str(missing)
        return Response(body=data, headers={"Content-Type": "text/plain; charset=utf-8", **headers})

    async def _find(self, task: TaskId, attempt: int | None, stream: str, watch: bool) -> tuple[str, bool]:
        """The file of the attempt below the log directory, and whether it may still grow. `watch`: its pilot sends what is
        new."""
        row = await self.service.query(lambda r: r.task_row(*task))
        if row is not None and row.reused:
            task = parse_task(row.reused)
            row = await self.service.query(lambda r: r.task_row(*task))
        number = attempt or (row.attempt if row is not None else 1)
        live = self.service.post(Watch(task, stream)) if watch else False
        ended = row.ended if row is not None else None
        fresh = ended is not None and self.service.clock() - ended < AFTERWARDS
        unfinished = row is None or ended is None
        more = watch and (live or unfinished or fresh) and (row is None or number >= row.attempt)
        return log_name(task.run, task.element, number, stream), more


def _read(path: Path, offset: int) -> tuple[bytes, int]:
    """A part of a file from an offset on, and the size of the whole file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if offset >= size:
                return b"", size  # far beyond the end a file system may refuse to seek
            file.seek(offset)
            return file.read(MAX_LOG_PART), size
    except FileNotFoundError:
        return b"", 0  # empty streams leave no file
