"""What the commands of a submit description, other than those of the program and its streams, say about a task."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.flow.formats.dagman.macros import MARK, expand
from shoal.flow.formats.dagman.source import wrong
from shoal.flow.formats.dagman.words import split_environment
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_RETRIES
from shoal.model.quantities import parse_size

_UNIVERSES = ("", "vanilla", "local", "scheduler", "container", "docker")
# Commands that change what runs, and that have no equal here.
_NOT_CARRIED = {
    "requirements": "write `require` or `site` in a task file",
    "rank": "write `rank` in a task file",
    "on_exit_remove": "use RETRY and UNLESS-EXIT",
    "on_exit_hold": "no task is put on hold",
    "periodic_remove": "use allowed_execute_duration",
    "periodic_hold": "no task is put on hold",
    "deferral_time": "a task starts when it can",
    "concurrency_limits": "use CATEGORY and MAXJOBS, or licences of the policy",
}
# All commands that are read here.
NAMES = frozenset(_NOT_CARRIED) | {
    "universe", "initialdir", "initial_dir", "job_iwd", "request_memory", "request_disk", "request_cpus", "request_gpus",
    "container_image", "docker_image", "priority", "prio", "allowed_execute_duration", "allowed_job_duration", "max_retries",
    "environment", "env", "transfer_input_files", "transferinputfiles", "transfer_output_files", "transferoutputfiles",
    "should_transfer_files", "transfer_output_remaps",
}  # fmt: skip
_ELSEWHERE = ("/", "../", "-")  # such names are no outputs of a task
_WHOLE = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"-?[0-9]{1,9}")


class Commands(NamedTuple):
    """The commands of one job, and where they stand."""

    macros: Mapping[str, str]
    places: Mapping[str, str]  # FILE:LINE
    name: str  # of the description: the place of what has no line
    env: Mapping[str, str]

    def value(self, *names: str) -> str:
        """The value of the first of these commands that there is, with its macros replaced."""
        for one in names:
            text = self.macros.get(one)
            if text is not None:
                return expand(text, self.macros, self.env, self.where(one)).strip() if "$" in text else text
        return ""

    def where(self, *names: str) -> str:
        """The place of the first of these commands that there is."""
        return next((self.places.get(one, self.name) for one in names if one in self.macros), self.name)


class JobFields(NamedTuple):
    """Task fields, and how the job is run."""

    table: dict[str, Any]
    env: dict[str, str]
    folder: str  # `initialdir`
    boxed: list[str] | None  # inputs, if it runs in a directory of its own
    returned: list[tuple[str, str]] | None  # files that come back from there, and where; None: what is new
    notices: list[str]  # what is not carried over


def job_fields(given: Commands) -> JobFields:
    """The fields that a description gives to a job."""
    value = given.value
    universe = value("universe")
    if universe.lower() not in _UNIVERSES:
        raise wrong(
            given.where("universe"),
            f"universe {echo(universe)!r} is not supported",
            "vanilla, local, container and docker are",
        )
    table: dict[str, Any] = {}
    left_out = [(name, hint) for name, hint in _NOT_CARRIED.items() if name in given.macros]
    notices = [f"{given.where(name)}: {name} is not carried over ({hint})" for name, hint in left_out]
    _needs(table, given)
    if container := value("container_image", "docker_image"):
        prefix = "docker://" if "docker_image" in given.macros and "://" not in container else ""
        table["container"] = prefix + container
    priority = value("priority", "prio")
    if _NUMBER.fullmatch(priority):
        table["priority"] = int(priority)
    limit = value("allowed_execute_duration", "allowed_job_duration")
    if _WHOLE.fullmatch(limit) and int(limit):
        table["time"] = int(limit)
    retries = value("max_retries")
    if _WHOLE.fullmatch(retries) and int(retries):
        table["retries"] = min(int(retries), MAX_RETRIES)
    environment = ("environment", "env")
    env = split_environment(text, given.where(*environment)) if (text := value(*environment)) else {}
    folder = value("initialdir", "initial_dir", "job_iwd")
    boxed, returned = _transfers(table, given, notices)
    return JobFields(table, env, folder, boxed, returned, notices)


def _needs(table: dict[str, Any], given: Commands) -> None:
    for field, name, unit in (("memory", "request_memory", "M"), ("disk", "request_disk", "K")):
        if text := given.value(name):
            sized = (text if re.search(r"[A-Za-z]", text) else text + unit).replace(" ", "")
            try:
                parse_size(sized, field)
            except BadInput:
                hint = "a number, or one with K, M, G or T"
                raise wrong(given.where(name), f"{name} = {echo(text)} is no size", hint) from None
            table[field] = sized
    for field, name in (("cores", "request_cpus"), ("gpus", "request_gpus")):
        if text := given.value(name):
            if not _WHOLE.fullmatch(text):
                raise wrong(given.where(name), f"{name} = {echo(text)} is no number", "a whole number")
            if int(text) or field == "gpus":
                table[field] = int(text)


def _transfers(
    table: dict[str, Any], given: Commands, notices: list[str]
) -> tuple[list[str] | None, list[tuple[str, str]] | None]:
    """Whether the job runs in a directory of its own, to which inputs are brought under their last names: what it would find
    in its submitter's directory anyway needs none."""
    value, names_of_inputs = given.value, ("transfer_input_files", "transferinputfiles")
    inputs = _names(value(*names_of_inputs))
    outputs = _names(value("transfer_output_files", "transferoutputfiles"))
    remote = [name for name in inputs if "://" in name]
    if remote:
        notices.append(f"{given.where(*names_of_inputs)}: {echo(remote[0])} is not fetched: only files are transferred")
    inputs = [name for name in inputs if "://" not in name]
    should = value("should_transfer_files").upper()
    pairs = [one.partition("=") for one in value("transfer_output_remaps").strip('"').split(";") if "=" in one]
    remaps = {name.strip(): target.strip() for name, _, target in pairs}
    is_elsewhere = any("/" in name for name in (*inputs, *outputs))
    declared = [name for name in inputs if not name.endswith("/") and MARK not in name]
    if declared:
        table["inputs"] = declared
    if should != "NO" and (should == "YES" or is_elsewhere or remaps):
        return inputs, [(name, remaps.get(name, "")) for name in outputs] if outputs else None
    if outputs:
        plain = dict.fromkeys(posixpath.normpath(name) for name in outputs if MARK not in name)
        table["outputs"] = [name for name in plain if not name.startswith(_ELSEWHERE) and name not in (".", "..")]
    return None, None


def _names(text: str) -> list[str]:
    """Files of a list, each once: HTCondor does not mind one that is named twice."""
    return list(dict.fromkeys(name for one in text.strip('"').split(",") if (name := one.strip())))
