"""IBM Spectrum LSF 10.1: bsub, bjobs -json, bkill, blaunch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from shoal.provision import batch_script
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Command, Order, Result, Status
from shoal.provision.batch_values import check_options

STATES = {
    **dict.fromkeys(("PEND", "PROV", "PSUSP", "WAIT"), QUEUED),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP", "UNKWN"), RUNNING),
    **dict.fromkeys(("DONE", "EXIT", "ZOMBI"), ENDED),
}
FIELDS = "jobid job_name stat exec_host exit_code exit_reason pend_reason"
SUBMITTED = re.compile(r"^Job <(\d+)> is submitted to ", re.M)
NONE = re.compile(r"No (?:unfinished |matching )?job found|is not found")
ON_HOSTS = (
    "hosts=$(printf '%s\\n' $LSB_HOSTS | sort -u | tr '\\n' ' ')",
    'blaunch -z "$hosts" /bin/sh "$file" "$SHOAL_ALLOCATION_ENDS"',
)


class Lsf:
    """Allocations of LSF. It knows those that ended for an hour."""

    name = "lsf"
    options = frozenset({"queue", "project", "group", "application", "sla"})

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """All that it needs is in the order."""

    def script(self, order: Order) -> str:
        """Directives; `blaunch` for several hosts."""
        batch_script.check_order(order)
        options = check_options(order.options, self.options, self.name)
        shape, memory = order.shape, batch_script.mebibytes(order.shape.memory)
        wanted = [f"-J {order.name}", f"-o {order.log}", "-rn", f"-n {shape.cores * shape.hosts}"]
        wanted += [f'-R "span[ptile={shape.cores}]"', f"-W {-(-shape.seconds // 60)}"]
        letters = {"queue": "q", "project": "P", "group": "G", "application": "app", "sla": "sla"}
        wanted += [f"-{letters[name]} {value}" for name, value in options.items()]
        wanted += [f'-M {memory}MB -R "rusage[mem={memory}MB/host]"'] if memory else []
        wanted += [f'-gpu "num={shape.gpus}/host"'] if shape.gpus else []
        launch = batch_script.start_here(order) if shape.hosts == 1 else batch_script.start_on_hosts(order, ON_HOSTS)
        return batch_script.script(order, [f"#BSUB {one}" for one in wanted], launch)

    def submit(self, order: Order, script: str) -> Command:
        """`bsub` reads directives from its standard input only."""
        return Command(("sh", "-c", 'exec bsub <"$1"', "sh", script))

    def parse_submit(self, result: Result) -> str:
        """`Job <ID> is submitted to queue <QUEUE>.`"""
        out = batch_script.expect_success("bsub", result)
        return batch_script.find_id("bsub", SUBMITTED.findall(out), result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """By the beginning of the name, with those that ended lately."""
        return Command(("bjobs", "-a", "-J", f"{prefix}*", "-json", "-o", FIELDS))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """Records of strings; `-` or nothing where there is no value."""
        if NONE.search(result.err) and not result.out.strip():
            return []
        text = batch_script.expect_success("bjobs", result)
        found: dict[str, Status] = {}
        try:
            for record in json.loads(text)["RECORDS"]:
                if "ERROR" in record:  # of a job that it does not know
                    continue
                id, name, word, place, code, ended, waits = (
                    "" if record.get(field) in (None, "-") else str(record[field]) for field in FIELDS.upper().split()
                )
                if not id.isdigit() or not word:
                    raise ValueError(id)
                state = STATES.get(word, RUNNING)
                if name.startswith(prefix):
                    failed = ended or (f"exit status {code}" if code not in ("", "0") else "")
                    reason = {
                        QUEUED: waits or ("" if word == "PEND" else word),
                        ENDED: failed if word != "DONE" else "",
                    }
                    hosts = ",".join(dict.fromkeys(one.rpartition("*")[2] for one in place.split(":") if one))
                    found[id] = Status(id, name, state, " ".join(reason.get(state, "").split()), hosts)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise batch_script.not_understood("bjobs", result) from None
        return list(found.values())

    def cancel(self, ids: Sequence[str]) -> Command:
        """`bkill`; of ids that have ended it only complains."""
        return Command(("bkill", *ids))
