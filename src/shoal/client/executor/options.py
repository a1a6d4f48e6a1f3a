"""Options of an executor, checked where they are given instead of when the server refuses them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.client.executor.script_session import INTERACTIVE, script
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_NAME
from shoal.model.task.spec import Spec
from shoal.model.task.task_field import EXPRESSION, NUMBER, WHOLE, fields_with
from shoal.wire.did_you_mean import did_you_mean

CHECK_WITHIN = 30.0  # seconds that an interpreter may take to print its version
_CHECK = "import sys; print('%d.%d' % sys.version_info[:2]); import cloudpickle; print('yes')"


def fields_of(given: Mapping[str, Any], table: type[Spec] = Spec) -> dict[str, Any]:
    """The task fields among an executor's keywords that differ from their defaults, checked as the server does."""
    known = {field.name: field for field in fields_with(table, "keyword")}
    found = {}
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"Executor has no option {name!r} ({did_you_mean(name, list(known))})")
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


def script_folder() -> list[str]:
    """The directory of the script, where its own modules are."""
    program = script()
    return [] if program == INTERACTIVE else [str(Path(program).parent)]


def place_of(cwd: object) -> str:
    """The directory of the calls; `own` stays as it is."""
    if not isinstance(cwd, (str, os.PathLike, type(None))):
        hint = 'the path of a directory, or "own" for a fresh one per call'
        raise BadInput(f"expected a path, found {echo(cwd)!r}", code="wrong_type", field="cwd", hint=hint)
    return "" if cwd is None else "own" if cwd == "own" else os.path.abspath(cwd)


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
        hint = f"name a Python {ours} of this machine, or leave python= out"
        raise BadInput(f"{python} cannot be run: {why}", code="bad_python", field="python", hint=hint) from None
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
