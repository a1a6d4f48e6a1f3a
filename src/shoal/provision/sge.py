"""Grid Engine (SGE, Univa, Altair, Open Cluster Scheduler): qsub, qstat -xml, qdel, qrsh -inherit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence

from shoal.provision import batch_script
from shoal.provision.backend import QUEUED, RUNNING, Command, Order, Result, Status
from shoal.provision.batch_values import check_options

STATUS = 'exec qstat -xml -u "$(id -un)"'
ID = re.compile(r"(\d+)(?:\.[\d:-]+)?")
# Each host of the allocation once; qrsh would quote arguments in its own way, so it gets none that needs it.
ON_HOSTS = (
    "while read -r host rest; do",
    '  qrsh -inherit -nostdin "$host" /bin/sh "$file" "$SHOAL_ALLOCATION_ENDS" &',
    'done < "$PE_HOSTFILE"',
    "wait",
)


class Sge:
    """Allocations of Grid Engine. What it no longer lists has ended."""

    name = "sge"
    options = frozenset({"queue", "project", "pe", "gpu_resource", "memory_resource"})

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """All that it needs is in the order."""

    def script(self, order: Order) -> str:
        """Directives; slots of several hosts come from a parallel environment with as many on each."""
        batch_script.check_order(order)
        options = check_options(order.options, self.options, self.name)
        shape = order.shape
        slots = shape.cores * shape.hosts
        memory = -(-batch_script.mebibytes(shape.memory) // shape.cores)  # of one slot
        wanted = ["-S /bin/sh", f"-N {order.name}", "-j y", f"-o {order.log}", "-r n", f"-l h_rt={shape.seconds}"]
        wanted += [f"-q {options['queue']}"] if "queue" in options else []
        wanted += [f"-P {options['project']}"] if "project" in options else []
        wanted += [f"-pe {options.get('pe', 'smp')} {slots}"] if slots > 1 else []
        wanted += [f"-l {options.get('memory_resource', 'h_vmem')}={memory}M"] if memory else []
        wanted += [f"-l {options.get('gpu_resource', 'gpu')}={shape.gpus}"] if shape.gpus else []
        launch = batch_script.start_here(order) if shape.hosts == 1 else batch_script.start_on_hosts(order, ON_HOSTS)
        return batch_script.script(order, [f"#$ {one}" for one in wanted], launch)

    def submit(self, order: Order, script: str) -> Command:
        """`qsub -terse` prints nothing but the id."""
        return Command(("qsub", "-terse", script))

    def parse_submit(self, result: Result) -> str:
        """A number on a line of its own."""
        lines = batch_script.expect_success("qsub", result).splitlines()
        found = [match[1] for match in map(ID.fullmatch, map(str.strip, lines)) if match]
        return batch_script.find_id("qsub", found, result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """All of this account's, with whole names."""
        return Command(("sh", "-c", STATUS, "sh"))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """One `job_list` for each job, and for each host of one that runs on several."""
        text = batch_script.expect_success("qstat", result)
        try:
            if "<!" in text:  # qstat declares no document type; entities could grow without end
                raise ElementTree.ParseError("a declaration")
            root = ElementTree.fromstring(text)
        except ElementTree.ParseError:
            raise batch_script.not_understood("qstat", result) from None
        found: dict[str, Status] = {}
        for job in root.iter("job_list"):
            id, name, code, queue = (
                (job.findtext(tag) or "").strip() for tag in ("JB_job_number", "JB_name", "state", "queue_name")
            )
            if not id.isdigit() or not code:
                raise batch_script.not_understood("qstat", result)
            if not name.startswith(prefix):
                continue
            # r running, t transferring, s S T N P suspended; with q or w it waits: qw, hqw, Eqw (an error), Rq
            state = QUEUED if "q" in code or "w" in code else RUNNING
            hosts = ",".join(filter(None, (found[id].hosts if id in found else "", queue.partition("@")[2])))
            found[id] = Status(id, name, state, "" if code in ("qw", "r", "t", "Rr") else code, hosts)
        return list(found.values())

    def cancel(self, ids: Sequence[str]) -> Command:
        """`qdel`; of ids that it does not know it only complains."""
        return Command(("qdel", *ids))
