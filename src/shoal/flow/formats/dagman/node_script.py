"""The shell text that runs a node: its PRE script, its job and its POST script in one attempt, with DAGMan's rules of what
follows what, and with values that are known only when the attempt begins.

As DAGMan has it: if PRE fails, neither the job nor POST runs, unless it exits with the code that skips the node, which
is a success then; POST runs however the job ended; and what ran last says how the node ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shoal.flow.formats.dagman.macros import MARK
from shoal.flow.formats.dagman.nodes import Script

_HEAD = """\
retry=${SHOAL_RETRY:-0} failed_count=${SHOAL_FAILED:-0} dag_id=${SHOAL_RUN#r} dag_status=0
[ "$failed_count" -eq 0 ] || dag_status=2
[ "${SHOAL_CANCELLED:-0}" -eq 0 ] || dag_status=3
call() { if [ -f "./$1" ] && [ "${1#*/}" = "$1" ]; then program=./$1; else program=$1; fi; shift; "$program" "$@"; }"""
# A shell tells of a program that signal N ended by 128 + N, and the task then ends by that signal, too: with -N, not 128 + N.
# A core file of the program stays; signals that stop a process end none.
_END = """\
end() {
  case $1 in %s) exit "$1" ;; esac
  if [ "$1" -gt 128 ]; then
    case $(kill -l "$1" 2>/dev/null) in
    "" | STOP | TSTP | TTIN | TTOU) ;;
    *) ulimit -c 0; exec /bin/sh -c 'kill -"$0" $$; exit "$1"' "$(($1 - 128))" "$1" ;;
    esac
  fi
  exit "$1"
}"""
# Inputs are brought under their last names, as HTCondor does; what is new afterwards goes back.
_BOX = """\
box=$(mktemp -d "${TMPDIR:-/tmp}/shoal-node.XXXXXX") || exit 125
trap 'rm -rf "$box"' EXIT
trap 'exit 143' TERM INT HUP
home=$(pwd)"""
# At a limit or a cancel all processes of a task get a signal; the outermost shell waits until the directory is removed. Not
# every shell runs what EXIT says when a signal ends it.
_WAIT_FOR_BOX = "trap 'end 143' TERM; trap 'end 130' INT; trap 'end 129' HUP"

_LOOK = """\
touch "$box/.shoal-begun"
names="
$(ls -A "$box")
"
"""
# A directory is filled up where there is one of its name, as HTCondor does: several nodes may write to the same one.
_BRING_BACK = """\
bring_back() {
  case $1 in /*) from=$1 ;; *) from=$box/$1 ;; esac
  if [ -d "$from" ]; then
    mkdir -p -- "$2" && cp -RL -- "$from/." "$2"/ || result=125
  elif [ -e "$from" ]; then
    cp -L -- "$from" "$2" || result=125
  elif [ "$result" -eq 0 ]; then
    echo "output $1 was not written" >&2; result=125
  fi
}"""
_RETURN_NEW = """\
for file in "$box"/* "$box"/.[!.]*; do
  [ -f "$file" ] || continue
  case "$names" in *"
${file##*/}
"*) [ "$file" -nt "$box/.shoal-begun" ] || continue ;; esac
  cp -p -- "$file" "$home"/ || result=125
done"""


class Job(NamedTuple):
    """The job of a node as the shell runs it."""

    words: Sequence[str]  # the program and its arguments; none: there is nothing to run
    env: Mapping[str, str]
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    boxed: Sequence[str] | None = None  # inputs, if it runs in a directory of its own
    returned: Sequence[tuple[str, str]] | None = None  # files that go back from there, and where; None: what is new
    folder: str = ""  # where it runs, and its names are seen from, if that is not where the scripts run


def quoted(text: str) -> str:
    """A text as one word of the shell, with its marks replaced by variables."""
    if MARK not in text:
        return shlex.quote(text)
    parts = text.split(MARK)
    return "".join(f'"${{{part}}}"' if at % 2 else shlex.quote(part) if part else "" for at, part in enumerate(parts))


def is_late(*texts: str) -> bool:
    """True if one of these is known only when an attempt begins."""
    return any(MARK in text for text in texts)


def node_script(
    name: str,
    job: Job,
    pre: Script | None,
    post: Script | None,
    skip: int | None,
    retries: int,
    codes: Collection[int] = (),
) -> str:
    """The whole text. `codes`: exit codes that something depends on, which therefore are no signals."""
    lines = [_HEAD, _END % "|".join(map(str, (0, *codes)))]
    if job.boxed is not None:
        lines.append(_WAIT_FOR_BOX)
    own = {"$JOB": shlex.quote(name), "$RETRY": '"$retry"', "$MAX_RETRIES": str(retries)}
    own |= {"$FAILED_COUNT": '"$failed_count"', "$DAG_STATUS": '"$dag_status"'}
    if pre is not None:
        lines += _script(pre, own, "pre")
        skipped = f' [ "$pre" -ne {skip} ] || exit 0;' if skip is not None else ""
        lines.append(f'if [ "$pre" -ne 0 ]; then{skipped} end "$pre"; fi')
    else:
        lines.append("pre=-1")
    lines += _job(job)
    if post is None:
        lines.append('end "$result"')
    else:
        lines.append('returned=$result; [ "$result" -le 128 ] || [ "$result" -gt 192 ] || returned=$((128 - result))')
        own |= {"$RETURN": '"$returned"', "$PRE_SCRIPT_RETURN": '"$pre"', "$JOBID": '"${SHOAL_TASK:-0.0}"'}
        lines += [*_script(post, own, "post"), 'end "$post"']
    return "\n".join(lines)


def _script(script: Script, macros: Mapping[str, str], variable: str) -> list[str]:
    """Run a script, and again while it defers; its exit code is in the variable."""
    words = " ".join(macros.get(word) or shlex.quote(word) for word in script.words)
    redirection = ""
    if script.debug is not None:
        file = shlex.quote(script.debug[0])
        redirection = {"STDOUT": f" >>{file}", "STDERR": f" 2>>{file}", "ALL": f" >>{file} 2>&1"}[script.debug[1]]
    call = f"call {words}{redirection} </dev/null; {variable}=$?"
    if script.defer is None:
        return [call]
    return [f'while :; do {call}; [ "${variable}" -eq {script.defer[0]} ] || break; sleep {script.defer[1]}; done']


def _job(job: Job) -> list[str]:
    if not job.words:
        return ["result=0"]
    env = "".join(f"export {name}={quoted(value)}; " for name, value in job.env.items() if is_late(value))
    streams = f" <{quoted(job.stdin)}" if job.stdin else " </dev/null"
    folders = ""
    for descriptor, file in (("", job.stdout), ("2", job.stderr)):
        if file and file == job.stdout and descriptor:
            streams += " 2>&1"
        elif file:
            streams += f" {descriptor}>{quoted(file)}"
            folders += f' mkdir -p "$(dirname {quoted(file)})" &&' if "/" in file and file != "/dev/null" else ""
    words = " ".join(map(quoted, job.words))
    enter = [f"cd -- {quoted(job.folder)} || exit 125"] if job.folder else []
    leave = ['exit "$result"', "); result=$?"]
    if job.boxed is None:
        call = f"({folders} {env}call {words}){streams}; result=$?"
        if folders:
            call = f"{folders[:-3].strip()}; ({env}call {words}){streams}; result=$?"
        return ["(", *enter, call, *leave] if enter else [call]
    lines = ["(", *enter, _BOX]
    for name in job.boxed:
        source = f"{name}." if name.endswith("/") else name  # with a slash behind it: what is in the directory
        lines.append(f'cp -RL -- {quoted(source)} "$box"/ || exit 125')
    program = quoted(job.words[0])
    lines.append(f'program={program}; case $program in /*) ;; *) [ ! -f "$program" ] || program=$home/$program ;; esac')
    arguments = "".join(f" {quoted(word)}" for word in job.words[1:])
    lines.append(_LOOK.rstrip("\n"))
    if folders:
        lines.append(folders[:-3].strip())
    lines.append(f'( cd "$box" && {env}exec "$program"{arguments} ){streams}; result=$?')
    if job.returned is None:
        lines.append(_RETURN_NEW)
    else:
        lines.append(_BRING_BACK)
        for name, target in job.returned:
            target = target or name.rstrip("/").rpartition("/")[2]
            lines.append(f"bring_back {quoted(name)} {quoted(target)}")
    return [*lines, *leave]


# A PROVISIONER tells that it is ready as under HTCondor, by `condor_chirp set_job_attr ProvisionerState 2`, or by making the
# file $SHOAL_READY. The gate, for which the other nodes wait, lends its core meanwhile.
_PROVISIONER = """\
SHOAL_READY=$(pwd)/.shoal-$SHOAL_RUN-ready; export SHOAL_READY
tools=$(mktemp -d "${TMPDIR:-/tmp}/shoal-chirp.XXXXXX") || exit 125
trap 'rm -rf "$tools"; if [ -e "$SHOAL_READY-seen" ]; then rm -f "$SHOAL_READY-seen"; else touch "$SHOAL_READY-ended"; fi' EXIT
trap 'exit 143' TERM INT HUP
cat >"$tools/condor_chirp" <<'END'
#!/bin/sh
[ "$1 $2 $3" != "set_job_attr ProvisionerState 2" ] || touch "$SHOAL_READY"
END
chmod +x "$tools/condor_chirp"; PATH=$tools:$PATH; export PATH
(
"""
_GATE = """\
ready=$(pwd)/.shoal-$SHOAL_RUN-ready
[ -z "$SHOAL_TAGS" ] || echo "!waits $SHOAL_ATTEMPT" >>"$SHOAL_TAGS"
until [ -e "$ready" ]; do
  if [ -e "$ready-ended" ] && [ ! -e "$ready" ]; then
    echo "the PROVISIONER ended without being ready" >&2
    rm -f "$ready-ended"
    exit 1
  fi
  sleep 0.2
done
if [ -e "$ready-ended" ]; then rm -f "$ready" "$ready-ended"; else mv "$ready" "$ready-seen"; fi
"""


def gate_script() -> str:
    """The text of the task that ends when the PROVISIONER of its workflow is ready."""
    return _GATE


def provisioner_script(text: str) -> str:
    """The text of a PROVISIONER, around that of its job."""
    return f"{_PROVISIONER}{text}\n)\n"
