"""PBS: OpenPBS and PBS Professional, and Torque with the option `dialect=torque`. qsub, qselect, qstat, qdel, pbsdsh."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from shoal.model.errors import BadInput
from shoal.provision import batch_script
from shoal.provision.backend import ENDED, QUEUED, RUNNING, Command, Order, Result, Status
from shoal.provision.batch_values import check_options

# This account's jobs, and those asked for, which may be in the history. Torque knows no JSON: it gets the old form.
STATUS = (
    'own=$(qselect -u "$(id -un)") || exit; set -- $own "$@"; [ $# -gt 0 ] || exit 0; '
    'out=$(qstat -x -f -F json "$@" 2>/dev/null); '
    'case "$out" in "{"*) printf "%s\\n" "$out" ;; *) exec qstat -f "$@" ;; esac'
)
GONE = (153, 35)  # exit statuses of qstat if some id is unknown, or only in the history
STATES = {**dict.fromkeys("QHWTMU", QUEUED), **dict.fromkeys("RESB", RUNNING), **dict.fromkeys("FXC", ENDED)}
ID = re.compile(r"\d+(?:\.[A-Za-z0-9][\w.-]*)?")


class Pbs:
    """Allocations of PBS."""

    name = "pbs"
    options = frozenset({"queue", "account", "project", "dialect"})

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """All that it needs is in the order."""

    def script(self, order: Order) -> str:
        """Directives; `pbsdsh` for several hosts."""
        batch_script.check_order(order)
        options = check_options(order.options, self.options, self.name)
        is_torque = options.get("dialect") == "torque"
        if options.get("dialect", "openpbs") not in ("openpbs", "torque"):
            hint = "openpbs or torque"
            raise BadInput("no such dialect", code="bad_batch_value", field="dialect", hint=hint)
        shape, memory = order.shape, batch_script.mebibytes(order.shape.memory)
        wanted = [f"-N {order.name}", "-j oe", f"-o {order.log}", "-r n", "-S /bin/sh"]
        wanted += [
            f"-{letter} {options[name]}"
            for letter, name in zip("qAP", ("queue", "account", "project"), strict=True)
            if name in options
        ]
        if is_torque:
            wanted.append(f"-l nodes={shape.hosts}:ppn={shape.cores}" + (f":gpus={shape.gpus}" if shape.gpus else ""))
            wanted += [f"-l mem={memory * shape.hosts}mb"] if memory else []
        else:
            chunk = f"{shape.hosts}:ncpus={shape.cores}"
            chunk += (f":mem={memory}mb" if memory else "") + (f":ngpus={shape.gpus}" if shape.gpus else "")
            wanted += [f"-l select={chunk}", "-l place=scatter"]
        wanted.append(f"-l walltime={batch_script.clock(shape.seconds)}")
        launch = batch_script.start_here(order)
        if shape.hosts > 1:
            each = "pbsdsh -u" if is_torque else "pbsdsh --"
            launch = batch_script.start_on_hosts(order, [f'{each} /bin/sh "$file" "$SHOAL_ALLOCATION_ENDS"'])
        return batch_script.script(order, [f"#PBS {one}" for one in wanted], launch)

    def submit(self, order: Order, script: str) -> Command:
        """`qsub`, which prints the id."""
        return Command(("qsub", script))

    def parse_submit(self, result: Result) -> str:
        """`NUMBER.SERVER` on a line of its own."""
        lines = batch_script.expect_success("qsub", result).splitlines()
        found = [line.strip() for line in lines if ID.fullmatch(line.strip())]
        return batch_script.find_id("qsub", found, result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """qselect finds this account's; its names are exact, so a prefix is looked for here."""
        return Command(("sh", "-c", STATUS, "sh", *ids))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """JSON, or `Job Id:` with indented lines."""
        text = batch_script.expect_success("qstat", result, GONE).strip()
        try:
            jobs = list(_read_json(text) if text.startswith("{") else _read_text(text))
        except (ValueError, AttributeError, TypeError):
            raise batch_script.not_understood("qstat", result) from None
        found: dict[str, Status] = {}
        for id, job in jobs:
            name, letter = job.get("Job_Name", ""), job.get("job_state", "")
            if not ID.fullmatch(id) or not name or not letter:
                raise batch_script.not_understood("qstat", result)
            if name.startswith(prefix):
                state = STATES.get(letter, RUNNING)
                exit_status = job.get("Exit_status", "")
                failed = f"exit status {exit_status}" if exit_status not in ("", "0") else ""
                held = "held" if letter == "H" else ""
                reason = failed if state == ENDED else job.get("comment", "") or held if state == QUEUED else ""
                hosts = dict.fromkeys(re.findall(r"(?:^|\+)\(?([\w.-]+)/", job.get("exec_host", "")))
                found[id] = Status(id, name, state, reason, ",".join(hosts))
        return list(found.values())

    def cancel(self, ids: Sequence[str]) -> Command:
        """`qdel`; of ids that it does not know it only complains."""
        return Command(("qdel", *ids))


def _read_json(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for id, job in json.loads(text, strict=False).get("Jobs", {}).items():
        yield id, {key: str(value) for key, value in job.items()}


def _read_text(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What is too long for a line goes on in the next one, after a tab."""
    text = text.replace("\n\t", "")
    if text and not text.startswith("Job Id:"):
        raise ValueError(text[:80])
    for block in re.split(r"^Job Id:", text, flags=re.M)[1:]:
        id, *lines = block.strip().splitlines()
        yield id.strip(), {key.strip(): value.strip() for key, _, value in (line.partition(" = ") for line in lines)}
