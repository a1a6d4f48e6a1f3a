"""What WfFormat 1.5 documents of its files, checked without the code that reads and writes them.

The rules are those of the format's README and schema (WfCommons, version 1.5), in words of our own: which members are
required, of what type each is, which characters ids have, and that references lead somewhere.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

TEXT, NUMBER, WHOLE, DATE = "text", "number", "whole", "date"
TASK_ID, FILE_ID = re.compile(r"[0-9a-zA-Z\-_.#/]*"), re.compile(r"[0-9a-zA-Z\-_./:#]+")
# Member -> its type, with `!` if it is required. A list holds what stands in brackets.
TOP = {"name!": TEXT, "description": TEXT, "createdAt": DATE, "schemaVersion!": TEXT, "runtimeSystem": {}, "author": {},
       "workflow!": {}}  # fmt: skip
SYSTEM = {"name!": TEXT, "version!": TEXT, "url": TEXT}
WORKFLOW: dict[str, Any] = {"specification!": {}, "execution": {}}
SPECIFICATION: dict[str, Any] = {"tasks!": [], "files": []}
TASK = {"name!": TEXT, "id!": TEXT, "parents!": [TASK_ID], "children!": [TASK_ID], "inputFiles": [FILE_ID],
        "outputFiles": [FILE_ID]}  # fmt: skip
FILE = {"id!": FILE_ID, "sizeInBytes!": WHOLE}
EXECUTION = {"makespanInSeconds!": NUMBER, "executedAt!": DATE, "tasks!": [], "machines": []}
MEASURED = {"id!": TEXT, "runtimeInSeconds!": NUMBER, "executedAt": DATE, "command": {}, "coreCount": NUMBER, "avgCPU": NUMBER,
            "readBytes": NUMBER, "writtenBytes": NUMBER, "memoryInBytes": NUMBER, "energyInKWh": NUMBER, "avgPowerInW": NUMBER,
            "priority": NUMBER, "machines": [TEXT]}  # fmt: skip
COMMAND = {"program": TEXT, "arguments": [TEXT]}
MACHINE = {"system": TEXT, "architecture": TEXT, "nodeName!": TEXT, "release": TEXT, "memoryInBytes": WHOLE, "cpu": {}}
CPU = {"coreCount": WHOLE, "speedInMHz": WHOLE, "vendor": TEXT}


def complaints(document: Any) -> list[str]:
    """All that is wrong with a document; nothing if it is a workflow in WfFormat 1.5."""
    found: list[str] = []
    _object(document, TOP, "", found)
    if found:
        return found
    if document["schemaVersion"] != "1.5":
        found.append("schemaVersion is not 1.5")
    if "runtimeSystem" in document:
        _object(document["runtimeSystem"], SYSTEM, "runtimeSystem", found)
    workflow = document["workflow"]
    _object(workflow, WORKFLOW, "workflow", found)
    specification = workflow["specification"]
    _object(specification, SPECIFICATION, "specification", found)
    tasks, files = specification["tasks"], specification.get("files", [])
    for at, task in enumerate(tasks):
        _object(task, TASK, f"tasks[{at}]", found)
    for at, file in enumerate(files):
        _object(file, FILE, f"files[{at}]", found)
    _references(tasks, files, found)
    if "execution" in workflow:
        _execution(workflow["execution"], {task["id"] for task in tasks}, found)
    return found


def _execution(execution: Any, ids: set[str], found: list[str]) -> None:
    _object(execution, EXECUTION, "execution", found)
    machines = {machine["nodeName"] for machine in execution.get("machines", [])}
    for at, machine in enumerate(execution.get("machines", [])):
        _object(machine, MACHINE, f"machines[{at}]", found)
        _object(machine.get("cpu", {}), CPU, f"machines[{at}].cpu", found)
    names = [task["id"] for task in execution["tasks"]]
    if not names or len(names) != len(set(names)) or set(names) - ids:
        found.append("the tasks of the execution are none, twice there, or unknown")
    for at, task in enumerate(execution["tasks"]):
        _object(task, MEASURED, f"execution.tasks[{at}]", found)
        _object(task.get("command", {}), COMMAND, f"execution.tasks[{at}].command", found)
        if task.get("coreCount", 1) < 1 or set(task.get("machines", [])) - machines:
            found.append(f"execution.tasks[{at}] has less than a core, or an unknown machine")


def _references(tasks: list[Any], files: list[Any], found: list[str]) -> None:
    ids = [task["id"] for task in tasks]
    known = {file["id"] for file in files}
    if not ids or len(ids) != len(set(ids)) or len(known) != len(files):
        found.append("there are no tasks, or ids are there twice")
    edges = {(parent, task["id"]) for task in tasks for parent in task["parents"]}
    if edges != {(task["id"], child) for task in tasks for child in task["children"]}:
        found.append("parents and children do not agree")
    for task in tasks:
        if set(task["parents"]) - set(ids) or {*task.get("inputFiles", []), *task.get("outputFiles", [])} - known:
            found.append(f"{task['id']} names what is not there")


def _object(value: Any, members: dict[str, Any], where: str, found: list[str]) -> None:
    if not isinstance(value, dict):
        found.append(f"{where} is no object")
        return
    names = {name.removesuffix("!") for name in members}
    found += [f"{where} has the unknown member {name}" for name in value.keys() - names]
    for name, kind in members.items():
        key = name.removesuffix("!")
        if key not in value:
            found += [f"{where} lacks {key}"] if name.endswith("!") else []
        elif not _fits(value[key], kind):
            found.append(f"{where}.{key} is {value[key]!r}"[:200])


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, part) for one in value for part in kind)
    if isinstance(kind, dict):
        return isinstance(value, dict)
    if isinstance(kind, re.Pattern):
        return isinstance(value, str) and kind.fullmatch(value) is not None
    if kind == WHOLE:
        return type(value) is int and value >= 0
    if kind == NUMBER:
        return type(value) in (int, float) and value >= 0
    return isinstance(value, str) and value != "" and (kind != DATE or datetime.fromisoformat(value) is not None)
