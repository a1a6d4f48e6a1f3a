"""`shoal.Run`: user code that makes tasks while it runs, merges their results, and decides when it is over [DIANE U1].

The paper's ApplicationManager [DIANE 4.5.5]: `initialize`, `tasks_done`, `has_more_work`, `finalize` are here `start`,
`done`, `is_over`, `result`; its task-failure policy is `failed`. Departures: one class instead of three, and tasks are
Python calls or commands.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from shoal.client.executor.executor import Executor
from shoal.client.executor.futures import CallFuture
from shoal.client.executor.slot_choice import LOOK_AGAIN, free_slots
from shoal.client.waiting import waiting


class Task:
    """One task of a Run. `value` or `error` is there when `done` or `failed` is called with it."""

    def __init__(self, make: Callable[[], CallFuture[Any]], tag: Any = None) -> None:
        self.tag = tag  # set by the user to recognise the task
        self.value: Any = None
        self.error: BaseException | None = None
        self.tries = 0
        self._make = make
        self._future: CallFuture[Any] | None = None
        self.withdraw: Callable[[], bool] = lambda: False  # takes it back while the run keeps it

    @property
    def id(self) -> str:
        """Its id on the server: `r12.7`."""
        return self._future.task if self._future is not None else ""

    def cancel(self) -> bool:
        """Cancel the task unless it runs; a cancelled task is neither done nor failed."""
        return self.withdraw() if self._future is None else self._future.cancel()

    def begin(self, on_end: Callable[[Task], None]) -> None:
        """Submit the task; `on_end` is called at its end."""
        self.tries += 1
        self.error = None
        self._future = self._make()
        self._future.add_done_callback(lambda _: on_end(self))

    def settle(self) -> bool:
        """Set `value` or `error`; False if the task was cancelled."""
        assert self._future is not None
        try:
            self.value = self._future.result()
        except CancelledError:
            return False
        except BaseException as error:  # also SystemExit: it was raised by the task
            self.error = error
        return True


class Run:
    """A run that makes its own tasks: override the hooks, then `execute()`.

    Hooks are called one at a time, in the thread of `execute`, so they need no locks.
    """

    _executor: Executor | None = None

    # --- hooks
    def start(self) -> None:
        """Submit the first tasks."""

    def done(self, task: Task) -> None:
        """A task succeeded: merge `task.value`, submit more if need be."""

    def failed(self, task: Task) -> str:
        """A task failed with `task.error`: `raise` ends the run with it, `retry` tries once more, `ignore` goes on."""
        return "raise"

    def is_over(self) -> bool:
        """True if the result is good enough. Called after every task; tasks that still run are then cancelled."""
        return False

    def result(self) -> Any:
        """The result so far; at the end, the final one."""
        return None

    def choose(self, waiting: list[Task], pilot: dict[str, Any]) -> Task | None:
        """Pick the task that a free slot of this pilot gets; None leaves the slot free for now.

        Only called if it is overridden: then the run keeps its tasks and hands out one for each free slot. `pilot` has
        the tags of the pilot, `pilot`, `host`, `site`, `cores` and `free_cores`; it is empty where no pilot is there
        yet. The slot is a promise to nobody: the task goes to it unless another task takes it first.
        """
        return waiting[0]

    # --- for hooks
    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """Submit a call as a task; set `tag` on the returned task to recognise it later."""
        executor = self._running()
        return self._begin(Task(lambda: executor.submit(function, *args, **kwargs)))

    def command(self, command: list[str] | str, **fields: Any) -> Task:
        """Submit a command as a task, with any task fields; its value is the last line it prints."""
        executor = self._running()
        return self._begin(Task(lambda: executor.command(command, **fields)))

    def partial(self) -> dict[str, Any]:
        """What the tasks emitted so far by `shoal.emit`, merged: `answers` has an entry for each name."""
        return self._running().partial()

    @property
    def unfinished(self) -> int:
        """The number of tasks that have not ended."""
        return self._count

    @property
    def id(self) -> str:
        """The run on the server: `r12`; empty before the first task."""
        return self._executor.run if self._executor is not None else ""

    # --- running it
    def execute(self, **options: Any) -> Any:
        """Run until `is_over()`, or until no task is left; returns `result()`. Options are those of `shoal.Executor`."""
        if self._executor is not None:
            raise RuntimeError("it runs already")
        self._ended: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._count = self._handed_out = 0
        self._waiting: list[Task] = []
        self._keeps = type(self).choose is not Run.choose
        self._cores = int(options.get("cores") or 1)
        self._executor = Executor(**options)
        try:
            with self._executor as executor:
                try:
                    self.start()
                    while self._count and not self.is_over():
                        self._hand_out()
                        ended = self._next_ended()
                        if ended is not None:
                            self._handle(ended)
                except KeyboardInterrupt:
                    raise  # detaches, as a `with` block of an executor does
                except BaseException:
                    executor.cancel_all()
                    raise
                if self._count:
                    executor.cancel_all()
                return self.result()
        finally:
            self._executor = None

    def launch(self, **options: Any) -> Future[Any]:
        """Run `execute` in a thread of its own; meanwhile `result()` is the result so far."""
        future: Future[Any] = Future()

        def work() -> None:
            future.set_running_or_notify_cancel()
            try:
                future.set_result(self.execute(**options))
            except BaseException as error:  # raised where the result is read
                future.set_exception(error)

        threading.Thread(target=work, name="shoal-run", daemon=True).start()
        return future

    _count = 0

    def _running(self) -> Executor:
        if self._executor is None:
            raise RuntimeError("tasks are made by hooks, while the run is executed")
        return self._executor

    def _begin(self, task: Task) -> Task:
        self._count += 1
        if self._keeps:
            self._waiting.append(task)
            task.withdraw = lambda: self._withdraw(task)
        else:
            self._start(task)
        return task

    def _start(self, task: Task) -> None:
        self._handed_out += 1
        task.begin(self._ended.put)

    def _withdraw(self, task: Task) -> bool:
        if task not in self._waiting:
            return False
        self._waiting.remove(task)
        self._count -= 1
        return True

    def _hand_out(self) -> None:
        """Let `choose` pick a task for each free slot; without a `choose` of its own nothing waits here."""
        if not self._waiting:
            return
        view = self._running().look_at_pool()
        for pilot in free_slots(view.pilots, self._cores, max(0, self._handed_out - view.live)):
            task = self.choose(list(self._waiting), pilot) if self._waiting else None
            if task is None:
                return
            if task not in self._waiting:
                raise ValueError("choose() returned a task that does not wait: return one of `waiting`, or None")
            self._waiting.remove(task)
            self._start(task)

    def _next_ended(self) -> Task | None:
        """The next task that ended; None if it is time to look for free slots again. A run that is executed in a task lends
        the task's cores meanwhile."""
        within = LOOK_AGAIN if self._waiting else None
        try:
            if not self._ended.empty():
                return self._ended.get_nowait()
            with waiting():
                return self._ended.get(timeout=within)
        except queue.Empty:
            return None

    def _handle(self, task: Task) -> None:
        self._count -= 1
        self._handed_out -= 1
        if not task.settle():
            return
        if task.error is None:
            self.done(task)
            return
        policy = self.failed(task)
        if policy == "retry":
            self._begin(task)
        elif policy == "raise":
            raise task.error
        elif policy != "ignore":
            raise ValueError(f"failed() returned {policy!r}: raise, retry or ignore") from task.error
