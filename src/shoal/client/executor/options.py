"""Options of an executor, checked where they are given: what the server would say later is said now."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.client.executor.script_session import INTERACTIVE, script
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_NAME

CHECK_WITHIN = 30.0  # seconds that an interpreter may take to say which it is
_CHECK = "import sys; print('%d.%d' % sys.version_info[:2]); import cloudpickle; print('yes')"
_PLAIN = {
    "cores": 1, "memory": None, "gpus": 0, "time": None, "retries": 0, "rerun": "safe", "priority": 0, "require": None,
    "rank": None, "deadline": None,
}  # fmt: skip


def fields_of(**given: Any) -> dict[str, Any]:
    """The task fields that differ from what the server takes anyway; expressions are read here as the server reads them."""
    for name in ("require", "rank"):
        if isinstance(given.get(name), str):
            from shoal.sched.expr.parse import parse  # few programs have any

            parse(given[name], name)
    return {name: value for name, value in given.items() if value != _PLAIN[name]}


def default_name() -> str:
    """What a run is called if nobody named it: the script."""
    program = script()
    return "python" if program == INTERACTIVE else Path(program).name[:MAX_NAME] or "python"


def script_folder() -> list[str]:
    """Where a script's own modules lie."""
    program = script()
    return [] if program == INTERACTIVE else [str(Path(program).parent)]


def place_of(cwd: str | os.PathLike[str] | None) -> str:
    """The directory of the calls; `own` stays as it is."""
    return "" if cwd is None else "own" if cwd == "own" else os.path.abspath(cwd)


@lru_cache
def check_python(python: str, is_far: bool) -> str:
    """The interpreter, if it can run what this one pickles; on hosts elsewhere it is found out there."""
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
        raise BadInput(f"{python} cannot be run: {why}", code="bad_python", field="python") from None
    told = done.stdout.split()
    if not told or told[0] != ours:
        raise BadInput(
            f"{python} is Python {told[0] if told else '?'}, this is {ours}: functions cannot travel between them",
            code="bad_python", field="python", hint=f"name a Python {ours}, or run this script with that one",
        )  # fmt: skip
    if told[-1] != "yes":
        raise BadInput(
            f"{python} has no cloudpickle", code="bad_python", field="python",
            hint=f"{python} -m pip install cloudpickle",
        )  # fmt: skip
    return python
