"""Options of an executor, checked where they are given instead of when the server refuses them."""

from __future__ import annotations

import inspect
import json
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.client.executor.script_session import INTERACTIVE, script
from shoal.client.waiting import is_inside
from shoal.client.working_directory import check_directory
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_INLINE, MAX_NAME
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.task_field import EXPRESSION, NUMBER, WHOLE, fields_with
from shoal.wire.did_you_mean import did_you_mean

CHECK_WITHIN = 30.0  # seconds that an interpreter may take to print its version
_CHECK = "import sys; print('%d.%d' % sys.version_info[:2]); import cloudpickle; print('yes')"


def count_of(name: str, value: Any, default: str = "no limit") -> int | None:
    """A whole number above 0, or None."""
    if value is None:
        return None
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, this is {type(value).__name__} (leave it out for {default})")
    if count <= 0:
        raise ValueError(f"{name} must be greater than 0 (leave it out for {default})")
    return count


def check_context(context: Any, max_tasks: int | None) -> None:
    """Refuse what is no context of multiprocessing, and what the standard library refuses with it."""
    if context is None:
        return
    method = getattr(context, "get_start_method", None)
    if not callable(method):
        raise TypeError(
            f"mp_context must be a context of multiprocessing, this is {type(context).__name__} "
            '(leave it out, or give multiprocessing.get_context("spawn"))'
        )
    if max_tasks is not None and method() == "fork":
        raise ValueError("max_tasks_per_child does not go with a fork context (leave mp_context out, or give spawn)")


def function_with(
    name: str, function: Callable[..., object] | None, args_name: str, args: Any
) -> tuple[Callable[..., object], tuple[Any, ...]] | None:
    """A function that is called in each process, and its arguments."""
    if function is None:
        return None
    if not callable(function):
        raise TypeError(f"{name} must be a callable, this is {type(function).__name__} (give the function itself)")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"{args_name} must be a tuple, this is {type(args).__name__} (write {args_name}=(x,))")
    return function, tuple(args)


def check_callable(function: Any, example: str) -> None:
    """Refuse what cannot be called, such as the result of a function that was called by mistake."""
    if not callable(function):
        raise TypeError(f"the first argument must be a function, this is {type(function).__name__} (write {example})")


def checked_iterables(given: tuple[Iterable[Any], ...]) -> Iterator[Iterator[Any]]:
    """Iterators over the arguments of a map."""
    for one in given:
        try:
            yield iter(one)
        except TypeError:
            raise TypeError(f"map takes iterables, this is {type(one).__name__} (write map(f, [1, 2, 3]))") from None


def fields_of(given: Mapping[str, Any], table: type[Spec] = Spec, named: Sequence[str] = ()) -> dict[str, Any]:
    """The task fields among an executor's keywords that differ from their defaults, checked as the server does."""
    known = {field.name: field for field in fields_with(table, "keyword")}
    found = {}
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"Executor has no option {name!r} ({did_you_mean(name, sorted([*known, *named]))})")
        if value is not None and known[name].read(value, name) != known[name].default:
            found[name] = value
        if known[name].kind is EXPRESSION and name in found:
            from shoal.sched.expr.parse import parse  # few programs have any

            parse(value, name)
    return found


def signature_with_fields(function: Callable[..., Any], table: type[Spec] = Spec) -> inspect.Signature:
    """The signature of a function whose `**fields` are keywords of the table, for `help` and editors."""
    written = inspect.signature(function)
    parameters = [one for one in written.parameters.values() if one.kind is not one.VAR_KEYWORD and one.name != "self"]
    for field in fields_with(table, "keyword"):
        default = field.default if field.default else 0 if field.kind in (WHOLE, NUMBER) else None
        parameters.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return written.replace(parameters=parameters)


def default_name() -> str:
    """The default name of a run: the script."""
    program = script()
    return "python" if program == INTERACTIVE else Path(program).name[:MAX_NAME] or "python"


def own_arguments() -> dict[str, str]:
    """`sys.argv` for the calls, as a variable; not of a notebook, whose kernel has others each time, nor if it is long,
    since every lease carries it."""
    text = json.dumps([str(one) for one in sys.argv])
    return {} if script() == INTERACTIVE or len(text) > MAX_INLINE else {"SHOAL_ARGV": text}


def script_folder() -> list[str]:
    """The directory of the script, where its own modules are."""
    program = script()
    return [] if program == INTERACTIVE else [str(Path(program).parent)]


def place_of(cwd: object) -> str:
    """The directory of the calls; `own` stays as it is."""
    if not isinstance(cwd, (str, os.PathLike, type(None))):
        hint = 'the path of a directory, or "own" for a fresh one per call'
        raise BadInput(f"expected a path, found {echo(cwd)!r}", code="wrong_type", field="cwd", hint=hint)
    if cwd is None or cwd == OWN:
        return cwd or ""
    path = os.path.abspath(cwd)
    if not is_inside():  # an executor that travelled with a call may name a directory of its maker's host
        check_directory(path)
    return path


def table_of(name: str, given: Any) -> dict[str, Any]:
    """The variables or labels of an executor."""
    if not isinstance(given, (Mapping, type(None))):
        hint = f'give {name}={{"NAME": "text"}}'
        raise BadInput(f"expected names with texts, found {echo(given)!r}", code="wrong_type", field=name, hint=hint)
    return dict(given or {})


def reducers_of(given: Any) -> dict[str, str]:
    """How values that calls emit are merged, checked."""
    found = table_of("reduce", given)
    if found:
        from shoal.sched.partial.goal import check  # few programs say anything of that

        for name, text in found.items():
            if not isinstance(text, str):
                raise TypeError(f'reduce must have texts such as "mean", {name!r} has {type(text).__name__}')
        check(found, "")
    return found


@lru_cache
def check_python(python: str, is_far: bool) -> str:
    """The interpreter, if it can run what this one pickles; for other hosts that is checked there."""
    ours = "{}.{}".format(*sys.version_info[:2])
    try:
        done = subprocess.run(
            [python, "-c", _CHECK], capture_output=True, text=True, timeout=CHECK_WITHIN, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        if is_far:
            return python
        why = error.strerror if isinstance(error, OSError) else "no answer"
        raise BadInput(
            f"{python} cannot be run: {why}", code="bad_python", field="python",
            hint=f"name a Python {ours} of this machine, or leave it out",
        ) from None  # fmt: skip
    printed = done.stdout.split()
    if not printed or printed[0] != ours:
        raise BadInput(
            f"{python} is Python {printed[0] if printed else '?'}, this is {ours}: functions cannot travel between them",
            code="bad_python", field="python", hint=f"name a Python {ours}, or run this script with that one",
        )  # fmt: skip
    if printed[-1] != "yes":
        raise BadInput(
            f"{python} has no cloudpickle", code="bad_python", field="python",
            hint=f"{python} -m pip install cloudpickle",
        )  # fmt: skip
    return python
