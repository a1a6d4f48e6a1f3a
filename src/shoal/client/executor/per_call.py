"""Executors with other task fields for some calls: `ex.options(cores=2).submit(...)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor as StandardExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.client.executor.futures import CallFuture
from shoal.client.executor.options import fields_of
from shoal.client.pickling.serialize import name_of
from shoal.model.task.spec import Spec
from shoal.model.task.task_field import fields_with
from shoal.wire.task import parse_spec

if TYPE_CHECKING:
    from shoal.client.executor.executor import Executor

MAX_TABLES = 1_000  # functions whose table is cached
R = TypeVar("R")


class Tables:
    """The tables of calls: what all calls of a function have in common. The same object for the same function, so that
    calls are sent together."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        parse_spec({"function": "AA==", "calls": ["AA=="], **fields})  # the checks of the server, made early
        self.fields = fields
        self._tables: dict[str, dict[str, Any]] = {}
        self._common: Mapping[str, Any] = {}

    def find(self, function: Callable[..., Any], text: str, common: Mapping[str, Any]) -> dict[str, Any]:
        """The table of a function with this payload text, and with the fields that all calls of the executor have now."""
        if common is not self._common or len(self._tables) >= MAX_TABLES:
            self._tables.clear()
            self._common = common
        table = self._tables.get(text)
        if table is None:
            labels = {"function": name_of(function)}
            table = self._tables[text] = {**self.fields, **common, "function": text, "labels": labels}
        return table


def kept_fields() -> frozenset[str]:
    """The task fields that an executor takes as keywords."""
    return frozenset(field.name for field in fields_with(Spec, "keyword"))


class ExecutorView(StandardExecutor):
    """An executor whose calls have task fields of their own; run, session and end are those of the executor it is of."""

    def __init__(self, executor: Executor, fields: Mapping[str, Any]) -> None:
        for name in fields:
            if name in executor._given and name not in kept_fields():
                raise TypeError(
                    f"{name} is the same for all calls of an executor: give it to shoal.Executor({name}=...)"
                )
        self._executor = executor
        self._max_workers = executor._max_workers  # other libraries look at it
        kept = {name: value for name, value in executor._tables.fields.items() if name != "env"}
        env = executor._tables.fields.get("env")
        self._given = {**kept, **fields}
        self._tables = Tables(fields_of(self._given) | ({"env": env} if env else {}))
        executor._check_site(self._tables)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> CallFuture[R]:
        """As `Executor.submit`."""
        return self._executor._submit(self._tables, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> Iterator[R]:
        """As `Executor.map`."""
        return self._executor._map(self._tables, fn, iterables, timeout, chunksize, progress)

    def command(self, command: list[str] | str, **fields: Any) -> CallFuture[str]:
        """As `Executor.command`."""
        return self._executor.command(command, **{**self._given, **fields})

    def put(self, obj: Any) -> Any:
        """As `Executor.put`."""
        return self._executor.put(obj)

    def options(self, **fields: Any) -> ExecutorView:
        """The same with further fields."""
        return ExecutorView(self._executor, {**self._given, **fields})

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing: the executor that this is of ends by itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ExecutorView, (self._executor, self._given)
