"""`shoal.Executor`: the pool as an executor of the standard library. What it promises: docs/howto/python-functions.md."""

from __future__ import annotations

import atexit
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
from typing import Any, Literal, TypeVar

from shoal.client.connection.reconnect import Reconnecting
from shoal.client.console import say
from shoal.client.executor.dependencies import Arguments, Dependent, text_or_arguments, with_futures
from shoal.client.executor.futures import Batch, CallFuture
from shoal.client.executor.options import (
    check_python,
    default_name,
    fields_of,
    place_of,
    script_folder,
    signature_with_fields,
)
from shoal.client.executor.per_call import ExecutorView, Tables
from shoal.client.executor.script_session import INTERACTIVE, Session, is_interactive, next_ordinal, script
from shoal.client.executor.serialize import Functions, call_texts, chunked, dump, text_of
from shoal.client.executor.stream import Stream
from shoal.model.errors import Unreachable
from shoal.model.quantities import many
from shoal.wire.payload import Ref, container
from shoal.wire.task import parse_spec

PIECES = (500, 1_000, 2_000, 4_000)  # calls of a map that go out together: the first soon, the others cheaply
MAX_PIECE_BYTES = 8 * 1024 * 1024
AGAIN_WITHIN = 2.0  # seconds in which a second Ctrl-C cancels what the first one left running

R = TypeVar("R")
_all: weakref.WeakSet[Executor] = weakref.WeakSet()
_streams: set[Stream] = set()  # those that have not ended
_inherited: list[Stream] = []  # of the parent, in a forked child: referenced, so that nothing of them is closed here


class Executor(StandardExecutor):
    """An executor whose calls run on the pilots of a server, each as a task of its own.

    `max_workers` is there for programs that give it: how many calls run at once is decided by the pool and by what
    each call needs. Fields of a task such as `cores` and `time` are options too (`help(shoal.Executor)` lists them).
    `seed` gives every call random numbers of its own that are the same each time. `attach`: the same script, started
    again after it was killed, goes on where it was. `trust`:
    what is loaded of results that pilots of a group made, which are not your own: "own" (plain data, numpy and pandas
    values), "group" (anything), or the further classes that may be loaded.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        name: str | None = None,
        server: str | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
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
        self._given = {
            "max_workers": max_workers, "name": name, "initializer": initializer, "initargs": initargs, "seed": seed,
            "python": python, "env": env, "labels": labels, "cwd": cwd, "echo": echo, "attach": attach, "trust": trust,
            **fields,
        }  # fmt: skip
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._max_workers = max_workers or os.cpu_count() or 1  # other libraries look at it
        self._link = Reconnecting(server, trust=trust)
        self._env, self._seed, self._cwd = dict(env or {}), seed, place_of(cwd)
        self._tables = Tables(fields_of(fields) | ({"env": self._env} if self._env else {}))
        self._python = check_python(python, self._link.target.is_remote) if python is not None else sys.executable
        self._initializer = (initializer, initargs) if initializer is not None else None
        named = {str(key): str(value) for key, value in (labels or {}).items()}
        self._session = Session(name or default_name(), next_ordinal(), seed, named, attach)
        self._echo = echo
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._attempt = ""  # the task's, in which the stream was begun
        self._is_shut = False
        self._functions = Functions()
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """In a call, an executor that travelled with it is one of the same server and options, with a run of its own."""
        return _made_again, ({name: value for name, value in self._given.items() if value is not None},)

    @property
    def run(self) -> str:
        """The run that holds the calls (`shoal show`, `shoal results`, `shoal cancel`); empty before the first one."""
        return self._stream.run if self._stream is not None else ""

    # --- calls
    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> CallFuture[R]:
        """Schedule `fn(*args, **kwargs)`; an error of pickling is set on the future. Futures among the arguments, also
        inside of lists and the like, are waited for: the call gets their values."""
        return self._submit(self._tables, fn, args, kwargs)

    def _submit(
        self, tables: Tables, fn: Callable[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> CallFuture[R]:
        stream = self._begin()
        future: CallFuture[R] = CallFuture(None)
        try:
            table = self._table(tables, fn)
        except Unreachable:
            raise
        except Exception as error:  # whatever pickling an object may raise
            future.set_exception(error)
            return future
        text = text_or_arguments((args, kwargs), self._put)
        if isinstance(text, str):
            stream.add_call(table, text, future)
        elif isinstance(text, Arguments):
            stream.hold(Dependent(table, text, self._put, future))
        else:
            future.set_exception(text)
        return future

    def map(
        self, fn: Callable[..., R], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[R]:
        """The results of `fn` for all arguments in order, as `Executor.map` has them; all calls are sent at once.

        With `chunksize` each task makes so many calls.
        """
        return self._map(self._tables, fn, iterables, timeout, chunksize)

    def _map(
        self,
        tables: Tables,
        fn: Callable[..., R],
        iterables: tuple[Iterable[Any], ...],
        timeout: float | None,
        chunksize: int,
    ) -> Iterator[R]:
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else clock.monotonic() + timeout
        stream = self._begin()
        calls: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
        if chunksize > 1:
            fn, calls = chunked(fn), _chunks(calls, chunksize)  # type: ignore[assignment]  # lists, flattened below
        batch = Batch(stream)
        try:
            table = self._table(tables, fn)
        except Unreachable:
            raise
        except Exception as error:  # as in submit, once for each call
            batch.extend(sum(1 for _ in calls))
            batch.fail(error)
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
        parse_spec(table)
        stream.add_call(table, "", future)
        return future

    def put(self, obj: Any) -> Ref:
        """Send a large object once; give what this returns to as many calls as you like, and each gets the object."""
        self._begin()
        return Ref(self._put(container(*dump(obj))))

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
                    batch.fail(text, at, 1)
                continue
            piece.append(text)
            size += len(text)
            if len(piece) >= most or size > MAX_PIECE_BYTES:
                stream.add_calls(table, piece, batch)
                piece, size, most = [], 0, next(sizes)
        if piece:
            stream.add_calls(table, piece, batch)

    def _table(self, tables: Tables, function: Callable[..., Any]) -> dict[str, Any]:
        return tables.find(function, self._functions.text_of(function, self._put), self._make_base)

    def _make_base(self) -> dict[str, Any]:
        here = os.getcwd()
        path = [entry or here for entry in sys.path]
        env = {
            **self._env,
            "SHOAL_PYTHON_VERSION": "{}.{}".format(*sys.version_info[:2]),
            "SHOAL_PYTHONPATH": os.pathsep.join(dict.fromkeys([*path, *script_folder()])),
        } | ({"SHOAL_RESEED": "1"} if self._seed is not None else {})
        base: dict[str, Any] = {"python": self._python, "env": env}
        if self._cwd:
            base["cwd"] = self._cwd
        if self._initializer is not None:
            base["initializer"] = text_of(self._initializer, self._put)
        return base

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
                self._stream = Stream(self._link, self._session.open, self._echo)
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


Executor.__signature__ = signature_with_fields(Executor.__init__)  # type: ignore[attr-defined]
atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)


def _chunks(calls: Iterator[tuple[Any, ...]], size: int) -> Iterator[tuple[list[tuple[Any, ...]]]]:
    while chunk := list(itertools.islice(calls, size)):
        yield (chunk,)
