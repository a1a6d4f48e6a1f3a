"""A command in a container: which runtime, and what of this host and of the task it is given.

It is decided in the script that runs before the command (`setup`), since set-up lines such as `module load apptainer`
may bring the runtime. Values of variables are never written into an argument, where every user of the host could read
them: a runtime is told their names and takes the values from its own environment [security S7].
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


def become(start_stage: StartStage, container_request: ContainerRequest) -> str:
    """The end of a script that becomes the command in a container."""
    for path in (*container_request.folders, *container_request.files):
        if ":" in path or "," in path:
            raise StageError("stage_in", f"{path} cannot be mounted into a container: its name has a comma or a colon")
    choices = [("apptainer singularity", _apptainer(start_stage, container_request))]
    if not is_file(start_stage.image):
        choices.append(("podman docker", _docker(start_stage, container_request)))
    text = ""
    for number, (names, body) in enumerate(choices):
        found = " || ".join(f"command -v {name}" for name in names.split())
        text += f"{'elif' if number else 'if'} SHOAL_RUNTIME=$({found}); then\n{body}"
    return f"{text}else\n{tell(start_stage.mark, NO_RUNTIME)}\nexit 69\nfi\n"


def _apptainer(start_stage: StartStage, container_request: ContainerRequest) -> str:
    image = start_stage.image
    if "://" not in image:
        image = (
            os.path.join(container_request.submitted or container_request.cwd, image)
            if is_file(image)
            else f"docker://{image}"
        )
    words = ["exec", "--pwd", container_request.cwd]
    for path in (*container_request.folders, *container_request.files):
        words += ["--bind", path]
    if container_request.gpus:
        words.append("--nv")
    return (
        f'{_told(start_stage, COMMAND)}exec "$SHOAL_RUNTIME" {shlex.join([*words, image, *container_request.argv])}\n'
    )


def _docker(start_stage: StartStage, container_request: ContainerRequest) -> str:
    image = shlex.quote(start_stage.image.partition("docker://")[2] or start_stage.image)
    own = sorted(container_request.env)
    words = [
        "--rm",
        "--pull=never",
        "--name",
        start_stage.name,
        "--network=host",
        "--workdir",
        container_request.cwd,
        "--entrypoint=",
    ]
    words += ["--log-driver=none", "--security-opt=label=disable"]
    words += [word for path in container_request.folders for word in ("--volume", f"{path}:{path}")]
    words += [word for path in container_request.files for word in ("--volume", f"{path}:{path}")]
    words += [word for name in own for word in ("--env", name)]
    if "HOME" not in own:
        words += ["--env", "HOME=/tmp"]  # the person's own is not in there
    if container_request.has_stdin:
        words.append("--interactive")
    # Only what the script has exported is known to it: the set-up lines may have added some.
    hosts = "|".join(_HOSTS.split())
    return (
        _told(start_stage, IMAGE)
        + f'"$SHOAL_RUNTIME" image inspect {image} </dev/null >/dev/null 2>&1 || '
        + f'"$SHOAL_RUNTIME" pull {image} </dev/null >&2 || exit $?\n'
        + "unset IFS; set -f; set --\n"
        + f"for SHOAL_NAME in {_NAMES}; do\n"
        + f'case $SHOAL_NAME in {hosts}) ;; *) set -- "$@" --env "$SHOAL_NAME" ;; esac\ndone\n'
        + 'case "$SHOAL_RUNTIME" in\n'
        + f'*podman) set -- "$@" {shlex.join(_podmans(container_request))} ;;\n'
        + f'*) set -- "$@" {shlex.join(_dockers(container_request))} ;;\nesac\n'
        + _told(start_stage, COMMAND)
        + f'exec "$SHOAL_RUNTIME" run "$@" {shlex.join(words)} {image} {shlex.join(container_request.argv)}\n'
    )


def _told(start_stage: StartStage, where: str) -> str:
    return tell(start_stage.mark, f"{where} $SHOAL_RUNTIME") + "\n"


def _podmans(container_request: ContainerRequest) -> list[str]:
    uid, gid = os.getuid(), os.getgid()
    if uid and not _has_subuids(uid):
        uid = gid = 0  # there is one user in the container, and it is the person outside
    words = ["--user", f"{uid}:{gid}"]
    if uid:
        words.append("--userns=keep-id")
    if any(map(os.path.exists, _INIT)):
        words.append("--init")  # else process 1 is the command, to which a SIGTERM means nothing by itself
    if container_request.gpus:
        words += ["--device", "nvidia.com/gpu=all"]  # CUDA_VISIBLE_DEVICES says which
    return words


def _dockers(container_request: ContainerRequest) -> list[str]:
    words = ["--user", f"{os.getuid()}:{os.getgid()}", "--init"]
    for group in os.getgroups():
        words += ["--group-add", str(group)]
    if container_request.gpus:
        words += ["--gpus", "all"]
    if container_request.memory:
        words += [
            "--memory",
            f"{container_request.memory}b",
        ]  # its processes are no descendants of ours: we cannot watch them
    return words


@lru_cache(maxsize=1)
def _has_subuids(uid: int) -> bool:
    names = {str(uid)}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(uid).pw_name)
    with contextlib.suppress(OSError, UnicodeError), open("/etc/subuid", encoding="utf-8") as file:
        return any(line.partition(":")[0] in names for line in file)
    return False
