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
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar

from shoal.client.connection.reconnect import Reconnecting
from shoal.client.console import say
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
    place_of,
    script_folder,
    signature_with_fields,
)
from shoal.client.executor.script_session import INTERACTIVE, Session, is_interactive, script
from shoal.client.executor.serialize import Functions, call_texts, chunked, dump, name_of, renewed, text_of, with_hint
from shoal.client.executor.slot_choice import PoolView
from shoal.client.executor.stream import Stream
from shoal.client.user_modules import user_modules
from shoal.client.visible_files import VisibleFiles
from shoal.client.working_directory import working_directory
from shoal.model.errors import Unreachable
from shoal.model.quantities import many
from shoal.wire.payload import Ref, container
from shoal.wire.task import parse_spec

PIECES = (500, 1_000, 2_000, 4_000)  # calls of a map that go out together: the first soon, the others cheaply
MAX_PIECE_BYTES = 8 * 1024 * 1024
MAX_SMALL = 1_024  # bytes of module sources that every lease may carry; larger ones are a blob that a runner reads once
MAX_TABLES = 1_000  # functions whose table is cached
AGAIN_WITHIN = 2.0  # seconds in which a second Ctrl-C cancels what the first one left running

R = TypeVar("R")
_ordinals = itertools.count(1)
_all: weakref.WeakSet[Executor] = weakref.WeakSet()
_streams: set[Stream] = set()  # those that have not ended
_inherited: list[Stream] = []  # of the parent, in a forked child: referenced, so that nothing of them is closed here


class _Tables(NamedTuple):
    """The tables of calls, while the modules and the search path of this process stay the same."""

    sources: bytes | None
    path: list[str]
    base: dict[str, Any]
    by_text: dict[str, dict[str, Any]]


_NO_TABLES = _Tables(None, [], {}, {})


class Executor(StandardExecutor):
    """An executor whose calls run on the pilots of a server, each as a task of its own.

    `max_workers`: so many calls of this executor run at once at most, on all hosts together; without it the pool and what
    each call needs decide. `max_tasks_per_child`: so many calls at most in one process, then it ends; with 1 each call has
    a fresh interpreter. `mp_context` is accepted for programs that give it: processes are always new interpreters.
    `initializer` is called in each process before its first call, `finalizer` when it ends in an orderly way.
    Fields of a task such as `cores` and `time` are options too (`help(shoal.Executor)` lists them).
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
        trust: str | Iterable[type | tuple[str, str] | str] | None = None,
        **fields: Any,
    ) -> None:
        max_workers = count_of("max_workers", max_workers)
        self._max_tasks = count_of("max_tasks_per_child", max_tasks_per_child)
        check_context(mp_context, self._max_tasks)
        self._max_workers = max_workers or os.cpu_count() or 1  # other libraries look at it
        self._link = Reconnecting(server, trust=trust)
        self._fields = fields_of(fields, named=[*OPTIONS])
        self._env, self._seed, self._cwd = dict(env or {}), seed, place_of(cwd)
        self._fields |= {"env": self._env} if self._env else {}
        parse_spec({"function": "AA==", "calls": ["AA=="], **self._fields})  # the checks of the server, made early
        self._python = check_python(python, self._link.target.is_remote) if python is not None else sys.executable
        self._initializer = function_with("initializer", initializer, "initargs", initargs)
        self._finalizer = function_with("finalizer", finalizer, "finalargs", finalargs)
        user_modules.add_imports_of(initializer)
        user_modules.add_imports_of(finalizer)
        named = {str(key): str(value) for key, value in (labels or {}).items()}
        self._session = Session(name or default_name(), next(_ordinals), seed, named, attach, max_workers)
        self._echo = echo
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._is_shut = False
        self._functions = Functions()
        self._tables = _NO_TABLES
        self._runner_session = os.urandom(16).hex()  # no interpreter serves two executors
        user_modules.sources()  # those of now: a file may be edited before the first call
        _all.add(self)

    @property
    def run(self) -> str:
        """The run that holds the calls (`shoal show`, `shoal results`, `shoal cancel`); empty before the first one."""
        return self._stream.run if self._stream is not None else ""

    # --- calls
    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> CallFuture[R]:
        """Schedule `fn(*args, **kwargs)`; an error of pickling is set on the future."""
        check_callable(fn, "submit(f, 3)")
        stream = self._begin()
        future: CallFuture[R] = CallFuture(None)
        part = f"the function {name_of(fn)}"
        try:
            table = self._table(fn)
            part = f"the arguments of {name_of(fn)}"
            text = text_of((args, kwargs), self._put)
        except Unreachable:
            raise
        except Exception as error:  # whatever pickling an object may raise
            future.set_exception(with_hint(error, part))
            return future
        stream.add_call(table, text, future)
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
        check_callable(fn, "map(f, [1, 2, 3])")
        chunksize = count_of("chunksize", chunksize, "1") or 1
        end = None if timeout is None else clock.monotonic() + timeout
        stream = self._begin()
        calls: Iterator[tuple[Any, ...]] = zip(*checked_iterables(iterables), strict=False)
        batch = Batch(stream)
        if progress:
            from shoal.client.progress import MapProgress  # few programs watch

            with MapProgress(name_of(fn), batch, chunksize) as bar:
                return bar.over(self._map(stream, batch, fn, bar.count(calls), chunksize, end))
        return self._map(stream, batch, fn, calls, chunksize, end)

    def _map(
        self, stream: Stream, batch: Batch, fn: Callable[..., R], calls: Iterator[tuple[Any, ...]], chunksize: int,
        end: float | None,
    ) -> Iterator[R]:  # fmt: skip
        """Send all calls of a map; returns the iterator over their results."""
        if chunksize > 1:
            fn, calls = chunked(fn), _chunks(calls, chunksize)  # type: ignore[assignment]  # lists, flattened below
        try:
            table = self._table(fn)
        except Unreachable:
            raise
        except Exception as error:  # as in submit, once for each call
            batch.extend(sum(1 for _ in calls))
            batch.fail(with_hint(error, f"the function {name_of(fn)}"))
            return batch.results(end)
        self._send(stream, table, call_texts(calls, self._put), batch)
        results = batch.results(end)
        return itertools.chain.from_iterable(results) if chunksize > 1 else results

    def command(self, command: list[str] | str, **fields: Any) -> CallFuture[str]:
        """Schedule a command (a list of arguments, or a text for the shell) with any task fields.

        The result is the last line of its standard output.
        """
        stream = self._begin()
        future: CallFuture[str] = CallFuture(None)
        how = {"shell": command} if isinstance(command, str) else {"command": list(command)}
        table = {**self._fields, **how, **fields}
        table.setdefault("visible", VisibleFiles().of(parse_spec(table), os.getcwd()))
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

    def _send(self, stream: Stream, table: dict[str, Any], texts: Iterator[str | Exception], batch: Batch) -> None:
        sizes = itertools.chain(PIECES, itertools.repeat(PIECES[-1]))
        piece, size, most = list[str](), 0, next(sizes)
        for text in texts:
            if isinstance(text, Exception):
                if piece:
                    stream.add_calls(table, piece, batch)
                    piece, size = [], 0
                batch.fail(with_hint(text, "the arguments of a call"), batch.extend(1), 1)
                continue
            piece.append(text)
            size += len(text)
            if len(piece) >= most or size > MAX_PIECE_BYTES:
                stream.add_calls(table, piece, batch)
                piece, size, most = [], 0, next(sizes)
        if piece:
            stream.add_calls(table, piece, batch)

    def _table(self, function: Callable[..., Any]) -> dict[str, Any]:
        """The table of a function's calls; the same object for the same function, so that calls are sent together."""
        text = self._functions.text_of(function, self._put)
        tables = self._tables
        if tables.sources is not user_modules.sources() or tables.path != sys.path:
            tables = self._tables = self._make_tables()
        table = tables.by_text.get(text)
        if table is None:
            if len(tables.by_text) >= MAX_TABLES:
                tables.by_text.clear()
            table = {**tables.base, "function": text, "labels": {"function": name_of(function)}}
            tables.by_text[text] = table
        return table

    def _make_tables(self) -> _Tables:
        """What all calls have in common, with the modules and the search path of this process as they are now."""
        sources, here, searched = user_modules.sources(), working_directory(), list(sys.path)
        path = [entry or here for entry in searched]
        env = {
            **self._env,
            "SHOAL_PYTHON_VERSION": "{}.{}".format(*sys.version_info[:2]),
            "SHOAL_PYTHONPATH": os.pathsep.join(dict.fromkeys([*path, *script_folder()])),
        } | ({"SHOAL_RESEED": "1"} if self._seed is not None else {})
        modules = text_of(sources, self._put, MAX_SMALL)
        base = {
            **self._fields, "python": self._python, "env": env, "modules": modules, "session": self._runner_session,
        }  # fmt: skip
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
        return _Tables(sources, searched, base, {})

    def _put(self, parts: Any) -> str:
        return self._begin().put_blob(parts)

    # --- the stream
    def _begin(self) -> Stream:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
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
        self._runner_session, self._tables = os.urandom(16).hex(), _NO_TABLES
        if self._stream is not None:
            self._stream.is_foreign = True
            _inherited.append(self._stream)
            self._stream = None


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
