"""A workflow of commands that a server has: waiting for it, results, states; the program that submitted it may have ended."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from shoal.client.client import Client
from shoal.client.connection.reconnect import Reconnecting, ServerConnection
from shoal.client.executor.outcome import SUCCEEDED
from shoal.client.executor.script_session import glob_of
from shoal.client.workflows.failed import BELOW, End, WorkflowFailed, failed, of_workflow
from shoal.model.errors import EventsGone, NotFound, echo
from shoal.model.limits import MAX_WAIT
from shoal.model.states import FINAL
from shoal.wire.did_you_mean import did_you_mean

UNFINISHED = "unfinished"
_KINDS = ("task_finished", "tasks_closed", "run_finished", "run_reopened", "tasks_reset")


class SubmittedWorkflow:
    """A workflow on a server: `run` is its id. Dropping this object changes nothing there."""

    def __init__(self, link: Reconnecting, run: str, elements: Mapping[str, range]) -> None:
        self.run = run
        self._elements = dict(elements)  # of each vertex: its tasks
        self._connection = ServerConnection(link)
        self._ends: dict[int, End] = {}
        self._after = 0
        self._is_over = False

    def __repr__(self) -> str:
        return f"<{self.run}: {len(self._ends):,} tasks finished>"

    @property
    def names(self) -> list[str]:
        """The names of its vertices."""
        return list(self._elements)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all tasks are final; False if the time was over before."""
        return self._poll(None if timeout is None else time.monotonic() + timeout, [])

    def done(self) -> bool:
        """True if all tasks are final now."""
        return self._poll(0.0, [])

    def states(self) -> dict[str, Counter[str]]:
        """Of each vertex how many tasks are in which final state; the rest is `unfinished`."""
        self._poll(0.0, [])
        return {
            name: Counter(self._ends[one].state if one in self._ends else UNFINISHED for one in elements)
            for name, elements in self._elements.items()
        }

    def result(self, vertex: object, timeout: float | None = None) -> Any:
        """The last line that a vertex printed, of a sweep a list of them; waits for it, raises what became of it if it failed."""
        name = self._name_of(vertex)
        elements = self._elements[name]
        if not self._poll(None if timeout is None else time.monotonic() + timeout, list(elements)):
            raise TimeoutError(f"{name} has not finished within {timeout:g} s")
        for element in elements:
            if self._ends[element].state != SUCCEEDED:
                raise failed(name, f"{self.run}.{element}", self._ends[element])
        lines = [self._line(element) for element in elements]
        return lines[0] if len(lines) == 1 else lines

    def results(self, timeout: float | None = None) -> dict[str, Any]:
        """The results of all vertices by name; raises WorkflowFailed if one failed."""
        if not self.wait(timeout):
            raise TimeoutError(f"{self.run} has not finished within {timeout:g} s")
        self.check()
        return {name: self.result(name) for name in self._elements}

    def check(self) -> None:
        """Raise WorkflowFailed if a task that is final did not succeed."""
        error = self._failure()
        if error is not None:
            raise error

    def cancel(self) -> None:
        """Cancel what is not final."""
        self._connection.ask(lambda client: client.cancel([self.run]))

    def _failure(self) -> WorkflowFailed | None:
        failures: dict[str, BaseException] = {}
        skipped = 0
        for name, elements in self._elements.items():
            bad = [one for one in elements if one in self._ends and self._ends[one].state != SUCCEEDED]
            own = [one for one in bad if self._ends[one].cause != BELOW]
            if own:
                failures[name] = failed(name, f"{self.run}.{own[0]}", self._ends[own[0]])
            skipped += bool(bad and not own)
        known = {element for elements in self._elements.values() for element in elements}
        for element, end in self._ends.items():  # those that rules made
            if element not in known and end.state != SUCCEEDED:
                failures[f"{self.run}.{element}"] = failed("a rule", f"{self.run}.{element}", end)
        return of_workflow(self.run, len(self._elements), failures, skipped) if failures or skipped else None

    def _name_of(self, vertex: object) -> str:
        name = str(getattr(vertex, "name", vertex))
        if name not in self._elements:
            raise NotFound(
                f"there is no vertex {echo(name)!r} in {self.run}", code="unknown_task",
                hint=did_you_mean(name, list(self._elements)),
            )  # fmt: skip
        return name

    def _poll(self, end: float | None, wanted: list[int]) -> bool:
        """Read ends of tasks until the wanted ones, or else all, are there; False if the time is over before."""
        while not self._is_over and not (wanted and all(element in self._ends for element in wanted)):
            left = MAX_WAIT if end is None else min(MAX_WAIT, end - time.monotonic())
            page = self._connection.ask(partial(self._ask, wait=max(0, math.ceil(left))))
            for event in page["events"]:
                self._take(event)
            self._after = max(self._after, int(page["last"]))
            if left <= 0 and not page["events"]:
                break
        if self._is_over:
            self._connection.drop()
        return self._is_over or bool(wanted and all(element in self._ends for element in wanted))

    def _ask(self, client: Client, wait: int) -> Any:
        client.lends = wait > 0  # inside a task, which lends its cores meanwhile
        try:
            return client.events(self._after, self.run, wait=wait, kinds=_KINDS)
        except EventsGone as error:  # pruned: what they told is in the rows
            self._read_rows(client)
            return {"events": [], "last": error.oldest - 1}

    def _take(self, event: Mapping[str, Any]) -> None:
        data = event["data"]
        if event["kind"] == "task_finished":
            end = End(str(data["state"]), str(data.get("cause") or ""), str(data.get("message") or ""), None)
            self._ends[int(event["task"])] = end
        elif event["kind"] == "tasks_closed":
            end = End(str(data["state"]), str(data.get("cause") or ""), str(data.get("why") or ""), "")
            self._ends.update((element, end) for low, high in data["ranges"] for element in range(low, high + 1))
        elif event["kind"] == "run_finished":
            self._connection.ask(self._read_rows)
        else:  # somebody retries what failed
            self._ends.clear()
            self._is_over = False

    def _read_rows(self, client: Client) -> None:
        """Read the run as it is: of a run that is over that is all."""
        info = client.run(self.run)
        after: int | None = 0
        while after is not None:
            page = client.tasks(self.run, after, states=[state.value for state in FINAL])
            for row in page["tasks"]:
                self._ends[int(row["element"])] = End(row["state"], row["cause"], row["message"], row["last_line"])
            after = page["next"]
        for span in info["spans"]:
            end = End(span["state"], span["cause"], span["message"], "")
            self._ends.update(dict.fromkeys(range(int(span["low"]), int(span["high"])), end))
        self._is_over = info["finished"] is not None

    def _line(self, element: int) -> str:
        """The last line that a task printed."""
        end = self._ends[element]
        if end.last_line is None:
            found = self._connection.ask(lambda client: client.task(f"{self.run}.{element}"))
            end = self._ends[element] = end._replace(last_line=(found["task"] or {}).get("last_line") or "")
        return end.last_line or ""


def attach(name: str, server: str | None = None) -> SubmittedWorkflow:
    """The workflow that was submitted as this run (`r12`), or the latest with this name."""
    link = Reconnecting(server)
    connection = ServerConnection(link)
    try:
        if not re.fullmatch(r"r[0-9]+", name):
            me = connection.ask(lambda client: client.whoami()).get("owner")
            page = connection.ask(lambda client: client.runs(name=glob_of(name)))
            row = next((row for row in page["runs"] if row.get("owner", me) == me), None)
            if row is None:
                raise NotFound(f"there is no run named {echo(name)!r}", code="unknown_run", hint="see `shoal ps`")
            name = str(row["run"])
        info = connection.ask(lambda client: client.run(name))
    finally:
        connection.drop()
    elements: dict[str, range] = {}
    for array in sorted(info["arrays"], key=lambda one: int(one["first"])):
        first, count = int(array["first"]), int(array["count"])
        own = array["name"] or f"{name}.{first}"
        elements[own if own not in elements else f"{own}.{first}"] = range(first, first + count)  # pieces share a name
    return SubmittedWorkflow(link, name, elements)
