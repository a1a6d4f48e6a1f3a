"""`shoal.Executor`: the pool as an executor of the standard library. What it promises: docs/howto/python-functions.md."""

from __future__ import annotations

import atexit
import inspect
import itertools
import os
import sys
import threading
import time as clock
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor as StandardExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar

from shoal.client.connection.reconnect import Reconnecting
from shoal.client.console import say
from shoal.client.executor.dependencies import Arguments, Dependent, text_or_arguments, with_futures
from shoal.client.executor.futures import Batch, CallFuture
from shoal.client.executor.options import (
    check_callable,
    check_context,
    check_python,
    checked_iterables,
    count_of,
    default_name,
    fields_of,
    function_with,
    own_arguments,
    place_of,
    reducers_of,
    script_folder,
    signature_with_fields,
    table_of,
)
from shoal.client.executor.per_call import ExecutorView, Tables
from shoal.client.executor.script_session import INTERACTIVE, Session, is_interactive, next_ordinal, script
from shoal.client.executor.slot_choice import PoolView
from shoal.client.executor.stream import Stream
from shoal.client.pickling.serialize import Functions, call_texts, chunked, dump, name_of, renewed, text_of, with_hint
from shoal.client.pickling.user_modules import user_modules
from shoal.client.visible_files import VisibleFiles
from shoal.client.working_directory import working_directory
from shoal.model.errors import Unreachable
from shoal.model.quantities import many
from shoal.wire.payload import Ref, container
from shoal.wire.task import parse_spec

PIECES = (500, 1_000, 2_000, 4_000)  # calls of a map that go out together: the first soon, the others cheaply
MAX_PIECE_BYTES = 8 * 1024 * 1024
MAX_SMALL = 1_024  # bytes of module sources that every lease may carry; larger ones are a blob that a runner reads once
AGAIN_WITHIN = 2.0  # seconds in which a second Ctrl-C cancels what the first one left running

R = TypeVar("R")
_all: weakref.WeakSet[Executor] = weakref.WeakSet()
_streams: set[Stream] = set()  # those that have not ended
_inherited: list[Stream] = []  # of the parent, in a forked child: referenced, so that nothing of them is closed here


class _Common(NamedTuple):
    """What all calls have in common, while the modules and the search path of this process stay the same."""

    sources: bytes | None
    path: list[str]
    fields: dict[str, Any]


_NOTHING = _Common(None, [], {})


class Executor(StandardExecutor):
    """An executor whose calls run on the pilots of a server, each as a task of its own.

    `max_workers`: so many calls of this executor run at once at most, on all hosts together; without it the pool and what
    each call needs decide. `max_tasks_per_child`: so many calls at most in one process, then it ends; with 1 each call has
    a fresh interpreter. `mp_context` is accepted for programs that give it: processes are always new interpreters.
    `initializer` is called in each process before its first call, `finalizer` when it ends in an orderly way.
    Fields of a task such as `cores` and `time` are options too (`help(shoal.Executor)` lists them).
    `reduce` says how values that calls emit are merged (`{"E": "mean", "h": "hist(0,10,50)"}`); `partial()` has the answers.
    `seed` gives every call random numbers of its own that are the same each time. `attach`: the same script, started
    again after it was killed, goes on where it was. `trust`:
    what is loaded of results that pilots of a group made, which are not your own: "own" (plain data, numpy and pandas
    values), "group" (anything), or the further classes that may be loaded.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        finalizer: Callable[..., object] | None = None,
        finalargs: tuple[Any, ...] = (),
        name: str | None = None,
        server: str | None = None,
        seed: int | None = None,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        echo: bool = True,
        attach: bool = True,
        reduce: Mapping[str, str] | None = None,
        trust: str | Iterable[type | tuple[str, str] | str] | None = None,
        **fields: Any,
    ) -> None:
        self._given = {
            "max_workers": max_workers, "initializer": initializer, "initargs": initargs, "finalizer": finalizer,
            "finalargs": finalargs, "max_tasks_per_child": max_tasks_per_child, "name": name, "seed": seed, "python": python,
            "env": env, "labels": labels, "cwd": cwd, "echo": echo, "attach": attach, "reduce": reduce, "trust": trust,
            **fields,
        }  # fmt: skip
        max_workers = count_of("max_workers", max_workers)
        self._max_tasks = count_of("max_tasks_per_child", max_tasks_per_child)
        check_context(mp_context, self._max_tasks)
        self._max_workers = max_workers or os.cpu_count() or 1  # other libraries look at it
        self._link = Reconnecting(server, trust=trust)
        self._env, self._seed, self._cwd = table_of("env", env), seed, place_of(cwd)
        self._tables = Tables(fields_of(fields, named=[*OPTIONS]) | ({"env": self._env} if self._env else {}))
        self._check_site(self._tables)
        self._python = check_python(python, self._link.target.is_remote) if python is not None else sys.executable
        self._initializer = function_with("initializer", initializer, "initargs", initargs)
        self._finalizer = function_with("finalizer", finalizer, "finalargs", finalargs)
        user_modules.add_imports_of(initializer)
        user_modules.add_imports_of(finalizer)
        named = {str(key): str(value) for key, value in table_of("labels", labels).items()}
        chosen = reducers_of(reduce)
        self._session = Session(name or default_name(), next_ordinal(), seed, named, attach, max_workers, chosen)
        self._echo = echo
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._attempt = ""  # the task's, in which the stream was begun
        self._is_shut = False
        self._functions = Functions()
        self._common = _NOTHING
        self._runner_session = os.urandom(16).hex()  # no interpreter serves two executors
        user_modules.sources()  # those of now: a file may be edited before the first call
        _all.add(self)

    def _check_site(self, tables: Tables) -> None:
        """Refuse a site that nobody knows."""
        if tables.fields.get("site"):
            from shoal.client.site_check import check_sites  # few programs name a site

            check_sites(self._link.target, self._link.connect, [str(tables.fields["site"])])

    def __reduce__(self) -> tuple[Any, ...]:
        """In a call, an executor that travelled with it is one of the same server and options, with a run of its own."""
        return _made_again, ({name: value for name, value in self._given.items() if value is not None},)

    @property
    def run(self) -> str:
        """The run that holds the calls (`shoal show`, `shoal results`, `shoal cancel`); empty before the first one."""
        return self._stream.run if self._stream is not None else ""

    def partial(self) -> dict[str, Any]:
        """What the calls emitted so far by `shoal.emit`, merged: `answers` has an entry for each name."""
        if not self.run:
            raise RuntimeError("nothing was submitted yet")
        with self._link.connect() as client:
            return client.partial(self.run)

    # --- calls
    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> CallFuture[R]:
        """Schedule `fn(*args, **kwargs)`; an error of pickling is set on the future. Futures among the arguments, also
        inside of lists and the like, are waited for: the call gets their values."""
        return self._submit(self._tables, fn, args, kwargs)

    def _submit(
        self, tables: Tables, fn: Callable[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> CallFuture[R]:
        check_callable(fn, "submit(f, 3)")
        stream = self._begin()
        future: CallFuture[R] = CallFuture(None)
        try:
            table = self._table(tables, fn)
        except Unreachable:
            raise
        except Exception as error:  # whatever pickling an object may raise
            future.set_exception(with_hint(error, f"the function {name_of(fn)}"))
            return future
        text = text_or_arguments((args, kwargs), self._put)
        if isinstance(text, str):
            stream.add_call(table, text, future)
        elif isinstance(text, Arguments):
            stream.hold(Dependent(table, text, self._put, future))
        else:
            future.set_exception(with_hint(text, f"the arguments of {name_of(fn)}"))
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> Iterator[R]:
        """The results of `fn` for all arguments in order, as `Executor.map` has them; all calls are sent at once.

        With `chunksize` each task makes so many calls. `progress` shows how many are done, on standard error or in the
        notebook.
        """
        return self._map(self._tables, fn, iterables, timeout, chunksize, progress)

    def _map(
        self, tables: Tables, fn: Callable[..., R], iterables: tuple[Iterable[Any], ...], timeout: float | None,
        chunksize: int, progress: bool,
    ) -> Iterator[R]:  # fmt: skip
        check_callable(fn, "map(f, [1, 2, 3])")
        chunksize = count_of("chunksize", chunksize, "1") or 1
        end = None if timeout is None else clock.monotonic() + timeout
        stream = self._begin()
        calls: Iterator[tuple[Any, ...]] = zip(*checked_iterables(iterables), strict=False)
        batch = Batch(stream)
        if progress:
            from shoal.client.progress import MapProgress  # few programs watch

            with MapProgress(name_of(fn), batch, chunksize) as bar:
                return bar.over(self._send_map(tables, stream, batch, fn, bar.count(calls), chunksize, end))
        return self._send_map(tables, stream, batch, fn, calls, chunksize, end)

    def _send_map(
        self, tables: Tables, stream: Stream, batch: Batch, fn: Callable[..., R], calls: Iterator[tuple[Any, ...]],
        chunksize: int, end: float | None,
    ) -> Iterator[R]:  # fmt: skip
        """Send all calls of a map; returns the iterator over their results."""
        if chunksize > 1:
            fn, calls = chunked(fn), _chunks(calls, chunksize)  # type: ignore[assignment]  # lists, flattened below
        try:
            table = self._table(tables, fn)
        except Unreachable:
            raise
        except Exception as error:  # as in submit, once for each call
            batch.extend(sum(1 for _ in calls))
            batch.fail(with_hint(error, f"the function {name_of(fn)}"))
            return batch.results(end)
        self._send(stream, table, call_texts(calls, self._put, with_futures), batch)
        results = batch.results(end)
        return itertools.chain.from_iterable(results) if chunksize > 1 else results

    def command(self, command: list[str] | str, **fields: Any) -> CallFuture[str]:
        """Schedule a command (a list of arguments, or a text for the shell) with any task fields.

        The result is the last line of its standard output.
        """
        stream = self._begin()
        future: CallFuture[str] = CallFuture(None)
        how = {"shell": command} if isinstance(command, str) else {"command": list(command)}
        table = {**self._tables.fields, **how, **fields}
        table.setdefault("visible", VisibleFiles().of(parse_spec(table), working_directory()))
        stream.add_call(table, "", future)
        return future

    def put(self, obj: Any) -> Ref:
        """Send a large object once; give what this returns to as many calls as you like, and each gets the object."""
        self._begin()
        return Ref(self._put(container(*dump(obj))))

    def look_at_pool(self) -> PoolView:
        """The pilots as the server lists them, and how many calls of this executor they have now."""
        return self._begin().look_at_pool()

    def cancel_all(self) -> None:
        """Cancel every call that is not done, also those that run."""
        if self._stream is not None:
            self._stream.cancel_all()

    def options(self, **fields: Any) -> ExecutorView:
        """This executor with other task fields for some calls: `ex.options(cores=4, memory="8G").submit(fit, x)`."""
        return ExecutorView(self, fields)

    def _send(
        self, stream: Stream, table: dict[str, Any], texts: Iterator[str | Exception | Arguments], batch: Batch
    ) -> None:
        sizes = itertools.chain(PIECES, itertools.repeat(PIECES[-1]))
        piece, size, most = list[str](), 0, next(sizes)
        for text in texts:
            if not isinstance(text, str):
                if piece:
                    stream.add_calls(table, piece, batch)
                    piece, size = [], 0
                at = batch.extend(1)
                if isinstance(text, Arguments):
                    stream.hold(Dependent(table, text, self._put, None, batch, at))
                else:
                    batch.fail(with_hint(text, "the arguments of a call"), at, 1)
                continue
            piece.append(text)
            size += len(text)
            if len(piece) >= most or size > MAX_PIECE_BYTES:
                stream.add_calls(table, piece, batch)
                piece, size, most = [], 0, next(sizes)
        if piece:
            stream.add_calls(table, piece, batch)

    def _table(self, tables: Tables, function: Callable[..., Any]) -> dict[str, Any]:
        text = self._functions.text_of(function, self._put)
        common = self._common
        if common.sources is not user_modules.sources() or common.path != sys.path:
            common = self._common = self._make_common()
        return tables.find(function, text, common.fields)

    def _make_common(self) -> _Common:
        """What all calls have in common, with the modules and the search path of this process as they are now."""
        sources, here, searched = user_modules.sources(), working_directory(), list(sys.path)
        path = [entry or here for entry in searched]
        env = {
            **self._env,
            "SHOAL_PYTHON_VERSION": "{}.{}".format(*sys.version_info[:2]),
            "SHOAL_PYTHONPATH": os.pathsep.join(dict.fromkeys([*path, *script_folder()])),
            **own_arguments(),
        } | ({"SHOAL_RESEED": "1"} if self._seed is not None else {})
        modules = text_of(sources, self._put, MAX_SMALL)
        base: dict[str, Any] = {"python": self._python, "env": env, "modules": modules, "session": self._runner_session}
        if self._cwd:
            base["cwd"] = self._cwd
            visible = VisibleFiles().of(parse_spec({"function": "AA==", "calls": ["AA=="], "cwd": self._cwd}), here)
            base |= {"visible": visible} if visible else {}
        for name, value in (("initializer", self._initializer), ("finalizer", self._finalizer)):
            if value is not None:
                try:
                    function, arguments = value
                    base[name] = text_of((renewed(function), arguments), self._put)
                except Exception as error:
                    raise with_hint(error, f"the {name} with its arguments") from None
        if self._max_tasks is not None:
            base["max_tasks_per_child"] = self._max_tasks
        return _Common(sources, searched, base)

    def _put(self, parts: Any) -> str:
        return self._begin().put_blob(parts)

    # --- the stream
    def _begin(self) -> Stream:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            attempt = os.environ.get("SHOAL_ATTEMPT", "")
            if self._stream is not None and self._attempt != attempt:
                # In a runner: an executor that is kept from one task to the next has a run for each of them.
                _retire(self._stream)
                self._session = replace(self._session, ordinal=next_ordinal())
                self._stream = None
            self._attempt = attempt
            if self._stream is None:
                self._stream = Stream(self._link, self._session.open, self._echo, self._session.max_running or 0)
                _streams.add(self._stream)
                # An executor without references ends when its calls have: the stream must not refer to it.
                weakref.finalize(self, _retire, self._stream).atexit = False
            elif self._stream.broken is not None:
                raise self._stream.broken
            return self._stream

    # --- the end
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. `wait`: until all have ended; `cancel_futures`: what has not begun is cancelled."""
        with self._lock:
            self._is_shut = True
            stream = self._stream
        if stream is not None:
            stream.shutdown(wait, cancel_futures)
            if stream.closed.is_set():
                _streams.discard(stream)

    def detach(self) -> None:
        """Leave the calls to the server, without their results in this process; `shoal.attach` finds them again."""
        with self._lock:
            self._is_shut = True
            stream = self._stream
        if stream is not None:
            _detach(stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Wait for all calls; Ctrl-C detaches instead, and a second one within 2 s cancels them."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.detach()
        else:
            try:
                self.shutdown(wait=True)
            except KeyboardInterrupt:
                self.detach()
                raise
        return False

    def _after_fork(self) -> None:
        """In a forked child: the stream belongs to the parent; the next call here makes a run of its own."""
        self._lock = threading.Lock()
        self._runner_session, self._common = os.urandom(16).hex(), _NOTHING
        if self._stream is not None:
            self._stream.is_foreign = True
            _inherited.append(self._stream)
            self._stream = None


def _made_again(options: dict[str, Any]) -> Executor:
    return Executor(**options)


def _detach(stream: Stream, wait: Callable[[float], object] = clock.sleep) -> None:
    """After the first Ctrl-C: leave the calls and say how to come back; a second one cancels them."""
    left = stream.detach()
    _streams.discard(stream)
    if not left or not stream.run:
        return
    run, how = stream.run, "shoal.attach()" if script() == INTERACTIVE else "start the same script again"
    try:
        say(
            f"detached, {many(left, 'call')} of {run} {'goes' if left == 1 else 'go'} on.  come back: {how}"
            f"   stop: shoal cancel {run}   (or Ctrl-C again within {AGAIN_WITHIN:.0f} s)"
        )
        wait(AGAIN_WITHIN)
    except KeyboardInterrupt:
        stream.cancel_all()
        say(f"{run}: cancelled")


def _retire(stream: Stream) -> None:
    stream.shutdown(wait=False)


def _at_exit() -> None:
    """As the standard library does, a script ends when its calls have; a person at a prompt is not kept waiting."""
    for stream in list(_streams):
        leave = is_interactive() or getattr(sys, "last_type", None) is KeyboardInterrupt
        try:
            if leave and stream.left:
                _detach(stream, wait=lambda _: None)
            else:
                stream.shutdown(wait=True)
        except KeyboardInterrupt:
            _detach(stream)


def _in_child() -> None:
    _streams.clear()
    for executor in list(_all):
        executor._after_fork()


OPTIONS = inspect.signature(Executor.__init__).parameters.keys() - {"self", "fields"}  # beside the fields of a task
Executor.__signature__ = signature_with_fields(Executor.__init__)  # type: ignore[attr-defined]
atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)


def _chunks(calls: Iterator[tuple[Any, ...]], size: int) -> Iterator[tuple[list[tuple[Any, ...]]]]:
    while chunk := list(itertools.islice(calls, size)):
        yield (chunk,)
