"""Workflows in the WfCommons format (1.4, 1.5) as jobs: recorded run times, parents, and the sizes of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal.model.errors import BadInput, echo
from shoal.sim.planning.workloads import Batch, Given, Job

MB = 1_000_000


def read_wfformat(path: str) -> Given:
    """Read a trace; each task gets the run time that was recorded."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {echo(path)}: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"{echo(path)} is no JSON: {error}") from None
    try:
        return Given(Batch(_jobs(path, document["workflow"])))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"{echo(path)} is no workflow in WfFormat: {type(error).__name__} {error}") from None


def _jobs(path: str, workflow: dict[str, Any]) -> list[Job]:
    tasks = workflow["specification"]["tasks"]
    sizes = {file["id"]: float(file["sizeInBytes"]) / MB for file in workflow["specification"].get("files", [])}
    ran = {task["id"]: task for task in workflow["execution"]["tasks"]}
    numbers = {task["id"]: number for number, task in enumerate(tasks)}
    jobs = []
    for task in tasks:
        name = task["id"]
        if name not in ran:
            raise BadInput(f"{echo(path)}: task {echo(name)} has no recorded run time")
        unknown = [parent for parent in task.get("parents", []) if parent not in numbers]
        if unknown:
            raise BadInput(f"{echo(path)}: task {echo(name)} waits for {echo(unknown[0])}, which is not in it")
        seconds = float(ran[name]["runtimeInSeconds"])
        if not 0.0 <= seconds < float("inf"):
            raise BadInput(f"{echo(path)}: task {echo(name)} has the run time {seconds}")
        jobs.append(
            Job(
                seconds,
                tuple(numbers[parent] for parent in task.get("parents", [])),
                max(1, int(ran[name].get("coreCount") or 1)),
                0.0,
                sum(sizes.get(file, 0.0) for file in task.get("inputFiles", [])),
                sum(sizes.get(file, 0.0) for file in task.get("outputFiles", [])),
            )
        )
    return jobs
