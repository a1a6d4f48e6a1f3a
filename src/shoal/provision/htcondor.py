"""HTCondor: condor_submit, condor_q with condor_history for what has left the queue, condor_rm.

An allocation is a cluster of as many processes as it has hosts; it is found by an attribute of its own, `ShoalName`. The
hosts must share the file system of the submitter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.provision import batch_script
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Command, Order, Result, Status
from shoal.provision.batch_values import PATH, check, check_options

STATES = {1: QUEUED, 2: RUNNING, 3: ENDED, 4: ENDED, 5: QUEUED, 6: RUNNING, 7: RUNNING}
ATTRIBUTES = (
    "ClusterId,ProcId,ShoalName,JobStatus,HoldReason,LastRejMatchReason,RemoteHost,RemoveReason,ExitCode,ExitSignal"
)
# The history is long: it is asked only about clusters that have left the queue, and for no more than these.
STATUS = (
    f'out=$(condor_q -json -attributes {ATTRIBUTES} -constraint "ShoalName isnt undefined") || exit; '
    'printf "%s\\n--\\n" "$out"; lost=; '
    'here=" $(printf %s "$out" | tr -cs "A-Za-z0-9" " ")"; '
    'for id in "$@"; do case "$here" in *" ClusterId $id "*) ;; '
    '*) lost="$lost $id" ;; esac; done; '
    f'[ -z "$lost" ] || condor_history -json -attributes {ATTRIBUTES} -limit 1000 $lost 2>/dev/null || :'
)
SUBMITTED = re.compile(r"^(\d+)\.\d+ - \1\.\d+$", re.M)


class HtCondor:
    """Allocations of HTCondor."""

    name = "htcondor"
    options = frozenset({"accounting_group", "concurrency_limits"})

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """All that it needs is in the order."""

    def script(self, order: Order) -> str:
        """What one process runs; how many there are is in the description."""
        batch_script.check_order(order)
        return batch_script.script(order, (), batch_script.start_here(order))

    def submit(self, order: Order, script: str) -> Command:
        """The description goes through standard input. One that was evicted or is too old is removed, not run again."""
        options = check_options(order.options, self.options, self.name)
        shape = order.shape
        log = order.log if shape.hosts == 1 else order.log.removesuffix("log") + "$(Process).log"
        too_old = f"JobStatus == 2 && time() - EnteredCurrentStatus > {shape.seconds}"
        wanted = {
            "universe": "vanilla",
            "executable": check("script", script, PATH),
            "output": log,
            "error": log,
            "should_transfer_files": "NO",
            "getenv": "False",
            "notification": "Never",
            "request_cpus": str(shape.cores),
            **({"request_memory": str(batch_script.mebibytes(shape.memory))} if shape.memory else {}),
            **({"request_gpus": str(shape.gpus)} if shape.gpus else {}),
            "periodic_remove": f"({too_old}) || (JobStatus == 1 && NumJobStarts > 0)",
            "+ShoalName": f'"{order.name}"',
            **options,
        }
        lines = [*(f"{name} = {value}" for name, value in wanted.items()), f"queue {shape.hosts}", ""]
        return Command(("condor_submit", "-terse", "-"), "\n".join(lines))

    def parse_submit(self, result: Result) -> str:
        """`12.0 - 12.0`: the cluster is the id."""
        out = batch_script.expect_success("condor_submit", result)
        return batch_script.find_id("condor_submit", SUBMITTED.findall(out), result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """Those with a name of ours."""
        return Command(("sh", "-c", STATUS, "sh", *ids))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """Two lists, of queue and history; either may be empty text. A cluster runs as long as one of its processes does."""
        text = batch_script.expect_success("condor_q", result)
        queue, mark, history = text.partition("\n--\n")
        clusters: dict[str, list[Status]] = {}
        try:
            if not mark:
                raise ValueError("no mark")
            for part in (queue, history):
                for job in json.loads(part) if part.strip() else ():
                    one = _status(job)
                    if one.name.startswith(prefix):
                        clusters.setdefault(one.id, []).append(one)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise batch_script.not_understood("condor_q", result) from None
        return [_join(processes) for processes in clusters.values()]

    def cancel(self, ids: Sequence[str]) -> Command:
        """`condor_rm`; of ids that have left the queue it only complains."""
        return Command(("condor_rm", *ids))


def _status(job: dict[str, Any]) -> Status:
    number = int(job["JobStatus"])
    state = STATES.get(number, RUNNING)
    reason = ""
    if number == 5:
        reason = f"held: {job.get('HoldReason', '')}"
    elif state == QUEUED:
        reason = str(job.get("LastRejMatchReason", ""))
    elif state == ENDED:
        code, signal = job.get("ExitCode", 0), job.get("ExitSignal", 0)
        failed = f"exit status {code}" if code else f"signal {signal}" if signal else ""
        reason = str(job.get("RemoveReason", "")) or failed
    host = str(job.get("RemoteHost") or "").rpartition("@")[2]
    return Status(str(int(job["ClusterId"])), str(job.get("ShoalName", "")), state, " ".join(reason.split()), host)


def _join(processes: list[Status]) -> Status:
    """One status of all processes of a cluster: the most alive of them counts."""
    best = min(processes, key=lambda one: (RUNNING, QUEUED, ENDED).index(one.state))
    return best._replace(hosts=",".join(one.hosts for one in processes if one.hosts))
