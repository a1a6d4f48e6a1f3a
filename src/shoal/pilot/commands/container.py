"""A command in a container: which runtime, and what of this host and of the task it is given.

It is decided in the script that runs before the command (`setup`), since set-up lines such as `module load apptainer`
may bring the runtime. Values of variables are never written into an argument, where every user of the host could read
them: a runtime is told their names and takes the values from its own environment [S7].
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from shoal.pilot.commands.files import StageError
from shoal.pilot.commands.setup import is_file, tell
from shoal.pilot.guard.start_stage import COMMAND, IMAGE, NO_RUNTIME, StartStage

# Variables that belong to the host: the image has its own, or none of what they name.
_HOSTS = "PATH HOME PWD OLDPWD SHLVL _ SHELL TMPDIR HOSTNAME LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH XDG_RUNTIME_DIR"
_INIT = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
_NAMES = "$(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p')"


@dataclass(frozen=True)
class ContainerRequest:
    """What runs in a container, and what it sees of the host."""

    argv: Sequence[str]
    cwd: str
    submitted: str = ""  # the submitter's directory, from which the path of an image counts
    folders: Sequence[str] = ()
    files: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # what the task itself states; it has it in any case
    gpus: int = 0
    memory: int = 0
    has_stdin: bool = False


def become(gate: StartStage, wish: ContainerRequest) -> str:
    """The end of a script that becomes the command in a container."""
    for path in (*wish.folders, *wish.files):
        if ":" in path or "," in path:
            raise StageError("stage_in", f"{path} cannot be mounted into a container: its name has a comma or a colon")
    choices = [("apptainer singularity", _apptainer(gate, wish))]
    if not is_file(gate.image):
        choices.append(("podman docker", _docker(gate, wish)))
    text = ""
    for number, (names, body) in enumerate(choices):
        found = " || ".join(f"command -v {name}" for name in names.split())
        text += f"{'elif' if number else 'if'} SHOAL_RUNTIME=$({found}); then\n{body}"
    return f"{text}else\n{tell(gate.mark, NO_RUNTIME)}\nexit 69\nfi\n"


def _apptainer(gate: StartStage, wish: ContainerRequest) -> str:
    image = gate.image
    if "://" not in image:
        image = os.path.join(wish.submitted or wish.cwd, image) if is_file(image) else f"docker://{image}"
    words = ["exec", "--pwd", wish.cwd]
    for path in (*wish.folders, *wish.files):
        words += ["--bind", path]
    if wish.gpus:
        words.append("--nv")
    return f'{_told(gate, COMMAND)}exec "$SHOAL_RUNTIME" {shlex.join([*words, image, *wish.argv])}\n'


def _docker(gate: StartStage, wish: ContainerRequest) -> str:
    image = shlex.quote(gate.image.partition("docker://")[2] or gate.image)
    own = sorted(wish.env)
    words = ["--rm", "--pull=never", "--name", gate.name, "--network=host", "--workdir", wish.cwd, "--entrypoint="]
    words += ["--log-driver=none", "--security-opt=label=disable"]
    words += [word for path in wish.folders for word in ("--volume", f"{path}:{path}")]
    words += [word for path in wish.files for word in ("--volume", f"{path}:{path}")]
    words += [word for name in own for word in ("--env", name)]
    if "HOME" not in own:
        words += ["--env", "HOME=/tmp"]  # the person's own is not in there
    if wish.has_stdin:
        words.append("--interactive")
    # Only what the script has exported is known to it: the set-up lines may have added some.
    hosts = "|".join(_HOSTS.split())
    return (
        _told(gate, IMAGE)
        + f'"$SHOAL_RUNTIME" image inspect {image} </dev/null >/dev/null 2>&1 || '
        + f'"$SHOAL_RUNTIME" pull {image} </dev/null >&2 || exit $?\n'
        + "unset IFS; set -f; set --\n"
        + f"for SHOAL_NAME in {_NAMES}; do\n"
        + f'case $SHOAL_NAME in {hosts}) ;; *) set -- "$@" --env "$SHOAL_NAME" ;; esac\ndone\n'
        + 'case "$SHOAL_RUNTIME" in\n'
        + f'*podman) set -- "$@" {shlex.join(_podmans(wish))} ;;\n'
        + f'*) set -- "$@" {shlex.join(_dockers(wish))} ;;\nesac\n'
        + _told(gate, COMMAND)
        + f'exec "$SHOAL_RUNTIME" run "$@" {shlex.join(words)} {image} {shlex.join(wish.argv)}\n'
    )


def _told(gate: StartStage, where: str) -> str:
    return tell(gate.mark, f"{where} $SHOAL_RUNTIME") + "\n"


def _podmans(wish: ContainerRequest) -> list[str]:
    uid, gid = os.getuid(), os.getgid()
    if uid and not _has_subuids(uid):
        uid = gid = 0  # there is one user in the container, and it is the person outside
    words = ["--user", f"{uid}:{gid}"]
    if uid:
        words.append("--userns=keep-id")
    if any(map(os.path.exists, _INIT)):
        words.append("--init")  # else process 1 is the command, to which a SIGTERM means nothing by itself
    if wish.gpus:
        words += ["--device", "nvidia.com/gpu=all"]  # CUDA_VISIBLE_DEVICES says which
    return words


def _dockers(wish: ContainerRequest) -> list[str]:
    words = ["--user", f"{os.getuid()}:{os.getgid()}", "--init"]
    for group in os.getgroups():
        words += ["--group-add", str(group)]
    if wish.gpus:
        words += ["--gpus", "all"]
    if wish.memory:
        words += ["--memory", f"{wish.memory}b"]  # its processes are no descendants of ours: we cannot watch them
    return words


@lru_cache(maxsize=1)
def _has_subuids(uid: int) -> bool:
    names = {str(uid)}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(uid).pw_name)
    with contextlib.suppress(OSError, UnicodeError), open("/etc/subuid", encoding="utf-8") as file:
        return any(line.partition(":")[0] in names for line in file)
    return False
