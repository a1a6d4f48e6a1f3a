"""A workflow with function calls, driven from this process: each vertex is sent when what it waits for has succeeded.

The results of calls go to other calls as an executor's futures do: a large one never comes home. All vertices are tasks of one
open run of an executor; the same script started again takes over the calls that were made.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from shoal.client.executor.dependencies import failure_of
from shoal.client.workflows.failed import BELOW, named, never_ran, of_workflow
from shoal.flow.dag import Dag
from shoal.model.errors import NotFound, echo
from shoal.wire.did_you_mean import did_you_mean

if TYPE_CHECKING:
    from shoal.client.executor.executor import Executor
    from shoal.client.executor.futures import CallFuture

UNFINISHED = "unfinished"
_CANCEL, _DETACH = -1, -2
# Sends a vertex; it is given the futures of its parents.
Start = Callable[["Executor", Mapping[str, Future[Any]]], "CallFuture[Any]"]


class DrivenWorkflow:
    """A workflow that goes on while this process lives: `run` is the run that holds its tasks."""

    def __init__(self, executor: Executor, dag: Dag, starts: Sequence[Start]) -> None:
        self._executor, self._dag, self._starts = executor, dag, starts
        self._at = {vertex.name: at for at, vertex in enumerate(dag.vertices)}
        self._futures: list[Future[Any] | None] = [None] * len(dag.vertices)  # of what was sent
        self._errors: dict[int, BaseException] = {}
        self._messages: queue.SimpleQueue[int] = queue.SimpleQueue()  # vertices that are done, or an order
        self._changed = threading.Condition()
        self._final: set[int] = set()
        # No daemon: a program that ends without waiting ends when its workflow has, as with an executor's calls.
        threading.Thread(target=self._drive, name="shoal-workflow").start()

    def __repr__(self) -> str:
        return f"<{self.run}: {len(self._final):,} of {len(self._at):,} vertices finished>"

    @property
    def run(self) -> str:
        """The run that holds its tasks; empty until the first was sent."""
        return self._executor.run

    @property
    def names(self) -> list[str]:
        """The names of its vertices."""
        return list(self._at)

    # --- the driver
    def _drive(self) -> None:
        unmet = [len(self._dag.parents(at)) for at in range(len(self._dag.vertices))]
        for at in [at for at, count in enumerate(unmet) if count == 0]:
            self._start(at)
        while len(self._final) < len(self._dag.vertices):
            at = self._messages.get()
            if at == _DETACH:
                return
            if at == _CANCEL:
                for one in range(len(self._dag.vertices)):
                    if self._futures[one] is None:
                        self._settle(one, CancelledError(f"{self._dag.vertices[one].name} was cancelled"))
                continue
            if at in self._final:
                continue
            future = self._futures[at]
            assert future is not None
            name = self._dag.vertices[at].name
            error = CancelledError(f"{name} was cancelled") if future.cancelled() else failure_of(future)
            self._settle(at, named(error, name, self.run) if error is not None else None)
            if error is not None:
                self._fail_below(at)
                continue
            for child in self._dag.children[at]:
                unmet[child] -= 1
                if unmet[child] == 0 and child not in self._final:
                    self._start(child)
        self._executor.shutdown(wait=False)

    def _start(self, at: int) -> None:
        found = {self._dag.vertices[one].name: self._futures[one] for one in self._dag.after[at]}
        try:
            future = self._starts[at](self._executor, {name: one for name, one in found.items() if one is not None})
        except BaseException as error:  # whatever the server or pickling refuses: it concerns this vertex
            self._settle(at, named(error, self._dag.vertices[at].name, self.run))
            self._fail_below(at)
            return
        self._futures[at] = future
        future.add_done_callback(lambda _: self._messages.put(at))

    def _settle(self, at: int, error: BaseException | None) -> None:
        with self._changed:
            if at not in self._final:
                if error is not None:
                    self._errors[at] = error
                self._final.add(at)
                self._changed.notify_all()

    def _fail_below(self, at: int) -> None:
        left = [(child, at) for child in self._dag.children[at]]
        while left:
            below, parent = left.pop()
            if below not in self._final:
                names = self._dag.vertices
                error = never_ran(names[below].name, names[parent].name)
                error.__cause__ = self._errors.get(at)
                self._settle(below, error)
                left += [(child, below) for child in self._dag.children[below]]

    # --- what people ask
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all vertices are final; False if the time was over before."""
        return self._wait(lambda: len(self._final) == len(self._at), timeout)

    def done(self) -> bool:
        """True if all vertices are final now."""
        return len(self._final) == len(self._at)

    def _wait(self, is_over: Callable[[], bool], timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not is_over():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(1.0 if left is None else min(1.0, left))  # so that Ctrl-C is heard
        return True

    def states(self) -> dict[str, Counter[str]]:
        """Of each vertex its final state, or `unfinished`."""
        with self._changed:
            return {name: Counter([self._state(at)]) for name, at in self._at.items()}

    def _state(self, at: int) -> str:
        if at not in self._final:
            return UNFINISHED
        error = self._errors.get(at)
        return "succeeded" if error is None else "cancelled" if isinstance(error, CancelledError) else "failed"

    def result(self, vertex: object, timeout: float | None = None) -> Any:
        """What a call returned, or the last line that a command printed; waits for it, raises what it raised."""
        name = str(getattr(vertex, "name", vertex))
        if name not in self._at:
            hint = did_you_mean(name, list(self._at))
            raise NotFound(f"there is no vertex {echo(name)!r} in {self.run}", code="unknown_task", hint=hint)
        at = self._at[name]
        if not self._wait(lambda: at in self._final, timeout):
            raise TimeoutError(f"{name} has not finished within {timeout:g} s")
        if at in self._errors:
            raise self._errors[at]
        future = self._futures[at]
        assert future is not None
        return future.result()

    def results(self, timeout: float | None = None) -> dict[str, Any]:
        """The results of all vertices by name; raises WorkflowFailed if one failed."""
        if not self.wait(timeout):
            raise TimeoutError(f"{self.run} has not finished within {timeout:g} s")
        self.check()
        return {name: self.result(name) for name in self._at}

    def check(self) -> None:
        """Raise WorkflowFailed if a vertex that is final did not succeed."""
        with self._changed:
            errors = {self._dag.vertices[at].name: error for at, error in sorted(self._errors.items())}
        own = {name: error for name, error in errors.items() if getattr(error, "cause", "") != BELOW}
        if errors:
            raise of_workflow(self.run, len(self._at), own, len(errors) - len(own))

    def detach(self) -> None:
        """Send no more vertices, and leave those that were sent to the server; the same program, started again, goes on."""
        self._messages.put(_DETACH)
        self._executor.detach()

    def cancel(self) -> None:
        """Cancel what is not final."""
        self._messages.put(_CANCEL)
        self._executor.cancel_all()
