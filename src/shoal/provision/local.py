"""A process on the machine itself, found again by its pid and start time; over ssh it makes a box a site.

The process table takes the place of a batch system: it has no names, so a file for each allocation keeps the pid and
when that process was born, in `~/.local/state/shoal/allocations/HOST` (homes are shared between hosts, pids are not).
The id is PID.BORN.BOOT: a process that got the pid later, or after a boot, has another id and is never killed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shoal.model.errors import BadInput
from shoal.provision import batch_script
from shoal.provision.backend import ENDED, RUNNING, Command, Order, Result, Status
from shoal.provision.batch_values import check_options

# These are single lines, without exclamation marks: they pass through whatever shell a login has, csh among them.
# A process that is dead and not yet reaped has no birth. Field 22 of stat is the start, in ticks since the boot.
BORN = (
    "born() { s=; b=0; "
    "if [ -d /proc/self ]; then s=$(cat /proc/$1/stat 2>/dev/null); "
    "case ${#s} in 0) return ;; esac; "
    'read -r b 2>/dev/null </proc/sys/kernel/random/boot_id; set -- ${s##*") "}; '
    'case "$1" in [ZX]) ;; *) echo "${20}.${b%%-*}" ;; esac; '
    'else ps -o stat= -o lstart= -p "$1" | while read -r z s; do case $z in Z*) ;; *) echo "$s.0" | tr " " _ ;; esac; done; '
    'fi; }; d="$HOME/.local/state/shoal/allocations/$(uname -n)"; '
)
# The wrapper begins when its id is noted: what ends at once has one too, and nothing runs that nobody would find again.
# It outlives what it runs, to note its exit status; signals are for that, and not for the wrapper.
WRAPPER = (
    'f=$1; shift; n=0; until [ -e "$f" ]; do n=$((n+1)); [ $n -lt 100 ] || exit 1; sleep 0.1 2>/dev/null || sleep 1; done; '
    'trap : HUP INT TERM; "$@"; s=$?; echo "$s" >"$f.exit"; exit "$s"'
)
SUBMIT = (
    f'{BORN}umask 077; mkdir -p "$d" || exit; f="$d/$1"; '
    'if [ -e "$f" ]; then echo "an allocation $1 is there already" >&2; exit 1; fi; '
    "detach=setsid; command -v setsid >/dev/null || { detach=; set -m; }; "
    '$detach sh -c "$4" sh "$f" sh "$2" </dev/null >>"$3" 2>&1 & pid=$!; '
    'at=$(born "$pid"); echo "$pid.$at" >"$f.part" && mv "$f.part" "$f" && echo "$pid.$at"'
)
# A file whose process has ended, and of which nobody asks any more, is removed.
STATUS = (
    f'{BORN}prefix=$1; shift; asked=" $* "; for f in "$d/$prefix"*; do '
    'case "$f" in *.exit | *.part) continue ;; esac; [ -f "$f" ] || continue; '
    'read -r id <"$f" || continue; pid=${id%%.*}; name=${f##*/}; '
    'if [ "$id" = "$pid.$(born "$pid")" ]; then echo "$id $name running"; else case "$asked" in '
    '*" $id "*) echo "$id $name ended $(cat "$f.exit" 2>/dev/null)" ;; *) rm -f "$f" "$f.exit" ;; esac; fi; done'
)
CANCEL = (
    f'{BORN}same() {{ [ "$1" = "${{1%%.*}}.$(born "${{1%%.*}}")" ]; }}; '
    'for id in "$@"; do if same "$id"; then kill -TERM "-${id%%.*}"; fi; done; '
    '(n=0; while [ $n -lt 20 ]; do live=; for id in "$@"; do if same "$id"; then live=1; fi; done; [ "$live" ] || exit; '
    "sleep 1; n=$((n+1)); done; "
    'for id in "$@"; do if same "$id"; then kill -KILL "-${id%%.*}"; fi; done) </dev/null >/dev/null 2>&1 & :'
)
ID = re.compile(r"\d+\.[\w:]+\.[0-9a-f]+")
LINE = re.compile(rf"({ID.pattern}) ([\w-]+) (running|ended)(?: (\d*))?")


class Local:
    """Processes of this account on one machine."""

    name = "local"
    options: frozenset[str] = frozenset()

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """It has no options."""

    def script(self, order: Order) -> str:
        """Nothing but the start of the pilot; 0 seconds are no limit."""
        batch_script.check_order(order, is_timed=False)
        check_options(order.options, self.options, self.name)
        if order.shape.hosts != 1:
            hint = "add each machine as a site of its own"
            raise BadInput("one machine is one host", code="bad_batch_value", field="hosts", hint=hint)
        return batch_script.script(order, (), batch_script.start_here(order))

    def submit(self, order: Order, script: str) -> Command:
        """Start the script in a session of its own."""
        return Command(("sh", "-c", SUBMIT, "sh", order.name, script, order.log, WRAPPER))

    def parse_submit(self, result: Result) -> str:
        """The id, alone."""
        out = batch_script.expect_success("sh", result).strip()
        return batch_script.find_id("sh", [out] if ID.fullmatch(out) else [], result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """Look at the file of each allocation."""
        return Command(("sh", "-c", STATUS, "sh", prefix, *ids))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """`ID NAME running` or `ID NAME ended EXIT`."""
        found = []
        for line in batch_script.expect_success("sh", result).splitlines():
            match = LINE.fullmatch(line.strip())
            if not match:
                raise batch_script.not_understood("sh", result)
            id, name, state, code = match.groups()
            reason = f"exit status {code}" if code and code != "0" else ""
            found.append(Status(id, name, RUNNING if state == "running" else ENDED, reason))
        return found

    def cancel(self, ids: Sequence[str]) -> Command:
        """End the process groups, with a signal that cannot be ignored after 20 s."""
        return Command(("sh", "-c", CANCEL, "sh", *ids))
