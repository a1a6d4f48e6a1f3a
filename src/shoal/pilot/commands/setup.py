"""Set-up lines: shell code that runs before a command, in the same shell.

A small script runs the lines one by one, stops at the first that fails, and then becomes the command. Before each step
it records its stage in a file: so a failing set-up is distinguished from a failing command with certainty.

The lines run in bash where there is one, since `module` and `conda activate` are functions of it, else in /bin/sh. Where
the submitter's environment is not available it begins as a login shell, which has those functions from its start-up files.
Each line must be whole by itself. Its output goes to stderr, and it has no input: both are the command's.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from shoal.model.limits import MAX_ECHO
from shoal.pilot.guard.outcome import signal_name
from shoal.pilot.guard.start_progress import COMMAND, IMAGE, NO_RUNTIME, StartStage
from shoal.wire.messages import Report

_BASH = ("/bin/bash", "/usr/bin/bash")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUNTIMES = "apptainer, podman, docker"
# How a runtime shows that it failed itself, not the command: by its exit code and what it wrote to stderr last.
_FAILED = {
    "podman": (125, re.compile(r"^Error: ", re.MULTILINE)),
    "docker": (125, re.compile(r"^docker: ", re.MULTILINE)),
    "apptainer": (255, re.compile(r"^(?:\x1b\[[0-9;]*m)*FATAL:", re.MULTILINE)),
}
_FAILED["singularity"] = _FAILED["apptainer"]

# In a shell that is no login shell the functions are unknown, although the submitter's session had them.
_FIND_MODULE = """if ! command -v module >/dev/null 2>&1; then
  for at in "${LMOD_PKG:-/none}/init/bash" "${MODULESHOME:-/none}/init/bash" \
      /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
    if [ -r "$at" ]; then . "$at" </dev/null >&2; break; fi
  done
  unset at
fi
"""
_LOG_IN = """for at in /etc/profile; do if [ -r "$at" ]; then . "$at" </dev/null >&2; fi; done
for at in ${BASH:+~/.bash_profile ~/.bash_login} ~/.profile; do
  if [ -r "$at" ]; then . "$at" </dev/null >&2; break; fi
done
unset at
"""
_FIND_CONDA = """if at=$(command -v "${CONDA_EXE:-conda}") && [ -r "${at%/*}/../etc/profile.d/conda.sh" ]; then
  . "${at%/*}/../etc/profile.d/conda.sh" </dev/null >&2
fi
unset at
"""


def shell() -> str:
    """The shell that the lines run in."""
    return next((path for path in _BASH if os.access(path, os.X_OK)), "/bin/sh")


def script(start_stage: StartStage, then: str, declared: Optional[Sequence[str]] = None) -> str:
    """A shell script that runs the lines, and then `then`, which records its stage itself.

    `declared` is set where it begins as a login shell does: the task's own variables survive that.
    """
    words = {word for line in start_stage.lines for word in re.split(r"[^A-Za-z0-9_.-]+", line)}
    text = "" if declared is None or not start_stage.lines else _log_in(declared)
    if words & {"module", "ml"}:
        text += _FIND_MODULE
    if "conda" in words or "mamba" in words:
        text += _FIND_CONDA
    for number, line in enumerate(start_stage.lines):
        text += f"{record_stage(start_stage.mark, str(number))}\neval {shlex.quote(line)} </dev/null >&2 || exit $?\n"
    return text + then


def _log_in(declared: Sequence[str]) -> str:
    names = [name for name in declared if _NAME.fullmatch(name)]
    text = "".join(f"shoal_{name}=${name}\n" for name in names) + _LOG_IN
    return text + "".join(f"export {name}=$shoal_{name}; unset shoal_{name}\n" for name in names)


def record_stage(mark: str, where: str) -> str:
    """A line of shell that records the stage of the script. The shell does it itself: no process is started."""
    return f'echo "{where}" >|{shlex.quote(mark)} || exit 1'


def run_command(mark: str, argv: Sequence[str]) -> str:
    """The end of a script that becomes the command."""
    return f"{record_stage(mark, COMMAND)}\nexec {shlex.join(argv)}\n"


def judge(start_stage: StartStage, report: Report, where: str, runtime: str, stderr: str) -> Report:
    """Correct a report on an end that was not the command's: the host is unfit for the task, not the task wrong."""
    if report.cause not in ("", "task_error", "signal"):
        return report  # we ended it ourselves, or the kernel did: that is the cause
    how = f"exit {report.exit_code}" if report.signal is None else signal_name(report.signal)
    if where == COMMAND:
        code, pattern = _FAILED.get(os.path.basename(runtime), (None, None))
        if pattern is None or report.exit_code != code or not pattern.search(stderr):
            return report
        message = f"the container could not be started by {os.path.basename(runtime)} ({how})"
    elif where == IMAGE:
        message = f"container image {start_stage.image} cannot be had with {os.path.basename(runtime)} ({how})"
    elif where == NO_RUNTIME:
        message = no_runtime(start_stage.image)
    elif where and int(where) < len(start_stage.lines):
        line = start_stage.lines[int(where)].strip()
        message = f"set-up failed: {line if len(line) <= MAX_ECHO else line[:MAX_ECHO] + '...'} ({how})"
    else:
        message = f"set-up failed: it could not begin ({how})"
    return replace(report, outcome="failed", cause="host_unfit", message=message)


def no_runtime(image: str) -> str:
    """The message where nothing can run an image."""
    if is_file(image):
        return f"no container runtime that reads {image} (apptainer) on this host"
    return f"no container runtime ({_RUNTIMES}) on this host"


def is_file(image: str) -> bool:
    """True if only apptainer can read it: a file, or an address of its own kind."""
    scheme, found, _ = image.partition("://")
    if found:
        return scheme != "docker"
    return image.startswith("/") or image.endswith((".sif", ".simg", ".img"))
