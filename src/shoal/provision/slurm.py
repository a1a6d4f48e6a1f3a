"""Slurm: sbatch, squeue with sacct for what squeue has forgotten, scancel, srun."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal.provision import batch_script
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Command, Order, Result, Status
from shoal.provision.batch_values import check_options

STATES = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), QUEUED
    ),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"), RUNNING),
    **dict.fromkeys(
        ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"), ENDED
    ),
    **dict.fromkeys(("PREEMPTED", "REVOKED"), ENDED),
}
# Jobs of this account, with those that ended lately. sacct, a load for the database of a site, is asked only about ids
# that squeue no longer knows; its lines have no `|` in front. Where it does not work they are left out.
STATUS = (
    'out=$(squeue --noheader --states=all --user="$(id -un)" --format="|%i|%j|%T|%N|%r") || exit; '
    'printf "%s\\n" "$out"; lost=; '
    'for id in "$@"; do case "$out" in *"|$id|"*) ;; *) lost="$lost,$id" ;; esac; done; '
    '[ -z "$lost" ] || ! command -v sacct >/dev/null || sacct --allocations --noheader --parsable2 '
    '--jobs="${lost#,}" --format=JobIDRaw,JobName,State,NodeList,ExitCode 2>/dev/null || :'
)
ID = re.compile(r"(\d+)(?:;[\w.-]+)?")
# Nothing of the submitter's environment but this goes to the hosts; no login shell is started there as NONE would.
EXPORT = "PATH,HOME,USER,LOGNAME,SHELL,LANG"


class Limits(NamedTuple):
    """What one allocation may have."""

    seconds: float | None = None  # None: it may last as long as it likes, or that is not told
    cores: int = 0  # of the smallest host; 0: not known
    memory: int = 0  # bytes, likewise


class Slurm:
    """Allocations of Slurm."""

    name = "slurm"
    options = frozenset(
        {"partition", "account", "qos", "constraint", "reservation", "licenses", "exclude", "nodelist", "gres"}
    )

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """Those of an order are in the order; the limits are those of the partition that is named here."""
        self._partition = options.get("partition", "")

    def script(self, order: Order) -> str:
        """Directives, and `srun` for several hosts."""
        batch_script.check_order(order)
        options = check_options(order.options, self.options, self.name)
        gres = options.pop("gres", "gpu")
        shape = order.shape
        days, seconds = divmod(shape.seconds, 86400)
        wanted = {
            "job-name": order.name,
            "output": order.log,
            "open-mode": "append",
            "export": EXPORT,
            "nodes": str(shape.hosts),
            "ntasks-per-node": "1",
            "cpus-per-task": str(shape.cores),
            "time": f"{days}-{batch_script.clock(seconds)}",
            **({"mem": f"{batch_script.mebibytes(shape.memory)}M"} if shape.memory else {}),
            **({"gres": f"{gres}:{shape.gpus}"} if shape.gpus else {}),
            **options,
        }
        directives = ["#SBATCH --no-requeue", *(f"#SBATCH --{name}={value}" for name, value in wanted.items())]
        launch = batch_script.start_here(order)
        if shape.hosts > 1:
            # Without --export here srun would take the list above, which lacks SHOAL_ALLOCATION_ENDS; and from 22.05
            # on it does not inherit the number of cores. The end of one pilot must not end the others.
            each = f"--ntasks={shape.hosts} --ntasks-per-node=1 --cpus-per-task={shape.cores}"
            rest = "--export=ALL --kill-on-bad-exit=0 --wait=0 --no-kill"
            launch = ["unset SLURM_EXPORT_ENV", f"exec srun {each} {rest} {shlex.join(order.start)}"]
        return batch_script.script(order, directives, launch)

    def submit(self, order: Order, script: str) -> Command:
        """`sbatch`; its input is empty, so that it never waits for one."""
        return Command(("sbatch", "--parsable", script))

    def parse_submit(self, result: Result) -> str:
        """`ID` or `ID;CLUSTER`, on a line of its own."""
        lines = batch_script.expect_success("sbatch", result).splitlines()
        found = [match[1] for match in map(ID.fullmatch, map(str.strip, lines)) if match]
        return batch_script.find_id("sbatch", found, result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """All of this account's; squeue cannot select by a prefix."""
        return Command(("sh", "-c", STATUS, "sh", *ids))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """Lines of squeue, and of sacct. An id that another job has got since is not ours: its name shows it."""
        found: dict[str, Status] = {}
        for line in batch_script.expect_success("squeue", result).splitlines():
            if not line.strip():
                continue
            fields = line.removeprefix("|").split("|", 4)
            if len(fields) != 5 or not re.match(r"\d", fields[0]):
                raise batch_script.not_understood("squeue", result)
            id, name, word, hosts, reason = (field.strip() for field in fields)
            if name.startswith(prefix) and id not in found:
                found[id] = _status(id, name, word, hosts, reason, is_live=line.startswith("|"))
        return list(found.values())

    def limits(self) -> Command:
        """The command that tells what an allocation may have in the partition that is used."""
        chosen = ("-p", self._partition) if self._partition else ()
        return Command(("sinfo", "--noheader", "--exact", "--format=%l|%P|%c|%m", *chosen))

    def parse_limits(self, result: Result) -> Limits:
        """What was told, of the partition that is named or the default one; nothing if the command failed."""
        rows = [fields for line in result.out.splitlines() if len(fields := line.strip().split("|")) == 4]
        rows = [row for row in rows if row[1].endswith("*")] or rows
        if result.status != 0 or not rows:
            return Limits()
        seconds = [found for found in (_seconds(row[0]) for row in rows) if found is not None]
        cores, mebibytes = ([int(row[at]) for row in rows if row[at].isdecimal()] for at in (2, 3))
        return Limits(max(seconds, default=None), min(cores, default=0), min(mebibytes, default=0) * 2**20)

    def cancel(self, ids: Sequence[str]) -> Command:
        """`scancel`, which says nothing of those that have ended."""
        return Command(("scancel", "--quiet", *ids))


def _status(id: str, name: str, word: str, hosts: str, reason: str, *, is_live: bool) -> Status:
    """A word that this module does not know counts as running: no allocation is forgotten for it."""
    first = word.split()[0] if word else ""  # CANCELLED by 1000
    state = STATES.get(first, RUNNING)
    if not is_live:  # sacct has an exit code instead of a reason
        reason = f"exit code {reason}" if first == "FAILED" else ""
    if reason == "None":
        reason = ""
    if state == ENDED:
        reason = "" if first == "COMPLETED" else f"{first} {reason}".strip() if first == "FAILED" else first
    elif first not in ("PENDING", "RUNNING"):
        reason = reason or word
    return Status(id, name, state, reason, "" if hosts in ("None assigned", "(null)") else hosts)


def _seconds(text: str) -> float | None:
    """A time of Slurm, `1-02:00:00` or `30:00` or `60`, in seconds; None for `infinite` and what is none."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts) or len(parts) > 3 or (dash and not days.isdigit()):
        return None
    numbers = [int(part) for part in parts]
    if dash or len(numbers) == 3:  # hours first
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:  # minutes first
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
