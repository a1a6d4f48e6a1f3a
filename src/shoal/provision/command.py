"""Any other batch system, by three commands that the person gives: submit, status and cancel.

Each is split into arguments once, as a shell would, and run without a shell. Placeholders are replaced inside arguments, so no
value can become a second command:
    submit = "mysub -n {name} -c {cores} {script}"     status = "mystat {ids}"     cancel = "mykill {ids}"
submit prints the id (its last line, or group 1 of the regular expression `id_pattern`) and runs the script once on each host.
status prints lines `ID STATE REASON`, or such that `line_pattern` matches with groups `id`, `state` and, if there are, `reason`,
`name` and `hosts`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from shoal.model.errors import BadInput, echo
from shoal.provision import batch_script
from shoal.provision.backend import ENDED, QUEUED, RUNNING, BackendError, Command, Order, Result, Status
from shoal.provision.batch_values import PATH, check
from shoal.wire.did_you_mean import did_you_mean

PLACEHOLDERS = {
    "submit": frozenset(
        {"name", "script", "cores", "hosts", "seconds", "minutes", "memory_mb", "gpus", "log", "directory"}
    ),
    "status": frozenset({"ids", "prefix"}),
    "cancel": frozenset({"ids"}),
}
PLACEHOLDER = re.compile(r"\{(\w+)\}")
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/\[\]-]{0,127}")
LINE = r"(?P<id>\S+)\s+(?P<state>\S+)\s*(?P<reason>.*)"
WORDS = {
    **dict.fromkeys(("q", "pd", "queued", "pending", "pend", "idle", "waiting", "wait", "held", "submitted"), QUEUED),
    **dict.fromkeys(("r", "running", "run", "active", "started", "suspended"), RUNNING),
    **dict.fromkeys(
        ("ended", "done", "completed", "complete", "finished", "failed", "exit", "cancelled", "canceled"), ENDED
    ),
    **dict.fromkeys(("timeout", "removed", "killed", "error"), ENDED),
}


class CommandBackend:
    """A batch system that is known by its commands only."""

    name = "command"
    options = frozenset({"submit", "status", "cancel", "id_pattern", "line_pattern"})
    checks_options = True

    def __init__(self, options: Mapping[str, str]) -> None:
        for option in options:
            if option not in self.options:
                hint = did_you_mean(option, sorted(self.options))
                raise BadInput(f"command has no option {echo(option)}", code="unknown_option", field=option, hint=hint)
        self._argv = {step: _split(step, options.get(step, "")) for step in PLACEHOLDERS}
        self._id = _compile("id_pattern", options.get("id_pattern", ""), ())
        self._line = _compile("line_pattern", options.get("line_pattern") or LINE, ("id", "state"))

    def script(self, order: Order) -> str:
        """No directives: what is wanted goes through the arguments of `submit`."""
        batch_script.check_order(order, is_timed=False)
        return batch_script.script(order, (), batch_script.start_here(order))

    def submit(self, order: Order, script: str) -> Command:
        """The person's command."""
        batch_script.check_order(order, is_timed=False)
        shape = order.shape
        values = {
            "name": order.name,
            "script": check("script", script, PATH),
            "log": order.log,
            "directory": order.directory,
            "cores": str(shape.cores),
            "hosts": str(shape.hosts),
            "seconds": str(shape.seconds),
            "minutes": str(-(-shape.seconds // 60)),
            "memory_mb": str(batch_script.mebibytes(shape.memory)),
            "gpus": str(shape.gpus),
        }
        return Command(_fill(self._argv["submit"], values, ()))

    def parse_submit(self, result: Result) -> str:
        """The last line, or what the pattern finds; a text with spaces is no id."""
        out = batch_script.expect_success("submit", result)
        if self._id:
            found = [match[1] if self._id.groups else match[0] for match in self._id.finditer(out)]
        else:
            found = out.strip().splitlines()[-1:]
        found = [one.strip() for one in found if one and ID.fullmatch(one.strip())]
        return batch_script.find_id("submit", found, result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """The person's command."""
        return Command(_fill(self._argv["status"], {"prefix": prefix}, ids))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """Lines that match. If it prints no names, it is believed only about the ids that were asked for."""
        found = []
        for line in batch_script.expect_success("status", result).splitlines():
            match = self._line and self._line.fullmatch(line.strip())
            groups = match.groupdict(default="") if match else {}
            state = WORDS.get(groups.get("state", "").lower())
            if state is None or not ID.fullmatch(groups["id"]):
                if line.strip() and self._line and self._line.pattern == LINE:
                    raise batch_script.not_understood("status", result)
                continue  # a pattern of one's own may leave out headings
            name = groups.get("name", "")
            if name.startswith(prefix) if name else groups["id"] in ids:
                found.append(
                    Status(groups["id"], name, state, groups.get("reason", "").strip(), groups.get("hosts", ""))
                )
        return found

    def cancel(self, ids: Sequence[str]) -> Command:
        """The person's command."""
        return Command(_fill(self._argv["cancel"], {}, ids))


def _split(step: str, template: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(template))
    except ValueError as error:
        raise BadInput(f"{step} cannot be split into arguments: {error}", code="bad_batch_value", field=step) from None
    if not argv:
        hint = "give submit, status and cancel"
        raise BadInput(f"{step} is missing", code="bad_batch_value", field=step, hint=hint)
    for placeholder in PLACEHOLDER.findall(template):
        if placeholder not in PLACEHOLDERS[step]:
            hint = did_you_mean(placeholder, sorted(PLACEHOLDERS[step]))
            raise BadInput(f"{step} knows no {{{placeholder}}}", code="bad_batch_value", field=step, hint=hint)
    return argv


def _compile(field: str, pattern: str, needed: Sequence[str]) -> re.Pattern[str] | None:
    try:
        compiled = re.compile(pattern, re.M) if pattern else None
    except re.error as error:
        raise BadInput(f"{field} is no regular expression: {error}", code="bad_batch_value", field=field) from None
    if compiled and not set(needed) <= set(compiled.groupindex):
        hint = "with groups (?P<id>...) and (?P<state>...)"
        raise BadInput(f"{field} lacks a group", code="bad_batch_value", field=field, hint=hint)
    return compiled


def _fill(argv: Sequence[str], values: Mapping[str, str], ids: Sequence[str]) -> tuple[str, ...]:
    """Ids are arguments of their own where the placeholder is one, and joined by commas inside of another."""
    if any(not ID.fullmatch(id) for id in ids):
        raise BackendError("an id that no batch system has given")
    filled: list[str] = []
    known = {**values, "ids": ",".join(ids)}
    for argument in argv:
        if argument == "{ids}":
            filled += ids
        else:
            filled.append(PLACEHOLDER.sub(lambda match: known[match[1]], argument))
    return tuple(filled)
