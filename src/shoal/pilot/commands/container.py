"""A command in a container: which runtime, and what of this host and of the task it is given.

The script that runs before the command (`setup`) decides it, since set-up lines such as `module load apptainer`
may bring the runtime. Values of variables are never written into an argument, where every user of the host could read
them: a runtime gets their names and takes the values from its own environment [security S7].
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.commands.files import StageError
from shoal.pilot.commands.setup import is_file, record_stage
from shoal.pilot.guard.start_progress import COMMAND, IMAGE, NO_RUNTIME, StartStage

# Variables that belong to the host: the image has its own, or none of what they name.
_HOST_VARS = "PATH HOME PWD OLDPWD SHLVL _ SHELL TMPDIR HOSTNAME LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH XDG_RUNTIME_DIR"
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
    env: Mapping[str, str] = field(default_factory=dict)  # the task's own variables, which it has in any case
    gpus: int = 0
    memory: int = 0
    has_stdin: bool = False


def become(stage: StartStage, request: ContainerRequest) -> str:
    """The end of a script that becomes the command in a container."""
    for path in (*request.folders, *request.files):
        if ":" in path or "," in path:
            raise StageError("stage_in", f"{path} cannot be mounted into a container: its name has a comma or a colon")
    choices = [("apptainer singularity", _apptainer(stage, request))]
    if not is_file(stage.image):
        choices.append(("podman docker", _docker(stage, request)))
    text = ""
    for number, (names, body) in enumerate(choices):
        found = " || ".join(f"command -v {name}" for name in names.split())
        text += f"{'elif' if number else 'if'} SHOAL_RUNTIME=$({found}); then\n{body}"
    return f"{text}else\n{record_stage(stage.mark, NO_RUNTIME)}\nexit 69\nfi\n"


def _apptainer(stage: StartStage, request: ContainerRequest) -> str:
    image = stage.image
    if "://" not in image:
        image = os.path.join(request.submitted or request.cwd, image) if is_file(image) else f"docker://{image}"
    options = ["exec", "--pwd", request.cwd]
    for path in (*request.folders, *request.files):
        options += ["--bind", path]
    if request.gpus:
        options.append("--nv")
    return f'{_record(stage, COMMAND)}exec "$SHOAL_RUNTIME" {shlex.join([*options, image, *request.argv])}\n'


def _docker(stage: StartStage, request: ContainerRequest) -> str:
    image = shlex.quote(stage.image.partition("docker://")[2] or stage.image)
    own = sorted(request.env)
    options = [
        "--rm",
        "--pull=never",
        "--name",
        stage.name,
        "--network=host",
        "--workdir",
        request.cwd,
        "--entrypoint=",
    ]
    options += ["--log-driver=none", "--security-opt=label=disable"]
    for path in (*request.folders, *request.files):
        options += ["--volume", f"{path}:{path}"]
    for name in own:
        options += ["--env", name]
    if "HOME" not in own:
        options += ["--env", "HOME=/tmp"]  # the person's own is not in there
    if request.has_stdin:
        options.append("--interactive")
    # Only what the script has exported is known to it: the set-up lines may have added some.
    hosts = "|".join(_HOST_VARS.split())
    return (
        _record(stage, IMAGE)
        + f'"$SHOAL_RUNTIME" image inspect {image} </dev/null >/dev/null 2>&1 || '
        + f'"$SHOAL_RUNTIME" pull {image} </dev/null >&2 || exit $?\n'
        + "unset IFS; set -f; set --\n"
        + f"for SHOAL_NAME in {_NAMES}; do\n"
        + f'case $SHOAL_NAME in {hosts}) ;; *) set -- "$@" --env "$SHOAL_NAME" ;; esac\ndone\n'
        + 'case "$SHOAL_RUNTIME" in\n'
        + f'*podman) set -- "$@" {shlex.join(_podmans(request))} ;;\n'
        + f'*) set -- "$@" {shlex.join(_dockers(request))} ;;\nesac\n'
        + _record(stage, COMMAND)
        + f'exec "$SHOAL_RUNTIME" run "$@" {shlex.join(options)} {image} {shlex.join(request.argv)}\n'
    )


def _record(stage: StartStage, where: str) -> str:
    return record_stage(stage.mark, f"{where} $SHOAL_RUNTIME") + "\n"


def _podmans(request: ContainerRequest) -> list[str]:
    uid, gid = os.getuid(), os.getgid()
    if uid and not _has_subuids(uid):
        uid = gid = 0  # there is one user in the container, and it is the person outside
    options = ["--user", f"{uid}:{gid}"]
    if uid:
        options.append("--userns=keep-id")
    if any(map(os.path.exists, _INIT)):
        options.append("--init")  # else process 1 is the command, to which a SIGTERM means nothing by itself
    if request.gpus:
        options += ["--device", "nvidia.com/gpu=all"]  # CUDA_VISIBLE_DEVICES selects among them
    return options


def _dockers(request: ContainerRequest) -> list[str]:
    options = ["--user", f"{os.getuid()}:{os.getgid()}", "--init"]
    for group in os.getgroups():
        options += ["--group-add", str(group)]
    if request.gpus:
        options += ["--gpus", "all"]
    if request.memory:
        options += ["--memory", f"{request.memory}b"]  # its processes are no descendants of ours: we cannot watch them
    return options


@lru_cache(maxsize=1)
def _has_subuids(uid: int) -> bool:
    names = {str(uid)}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(uid).pw_name)
    with contextlib.suppress(OSError, UnicodeError), open("/etc/subuid", encoding="utf-8") as file:
        return any(line.partition(":")[0] in names for line in file)
    return False
