"""How far an attempt came before its command began, and what a killed container runtime leaves. The guard uses it too."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Optional, Union

from shoal.model.lazy_dataclass import dataclass

COMMAND, IMAGE, NO_RUNTIME = "command", "image", "none"  # stages of a script, besides the number of its line
REMOVE_PATIENCE = 20.0  # seconds
_WHERE = re.compile(rf"(?:[0-9]+|{COMMAND}|{IMAGE}|{NO_RUNTIME})")
_Environment = Union[Mapping[str, str], Mapping[bytes, bytes]]


@dataclass(frozen=True)
class StartStage:
    """What comes before the command of an attempt: set-up lines, then perhaps a container."""

    mark: str  # the file in which its script records its stage
    lines: tuple[str, ...] = ()
    image: str = ""
    name: str = ""  # of the container

    def reached(self) -> tuple[str, str]:
        """The stage of the script, or the last one if it has ended, and the container runtime that it chose; empty: unknown."""
        with contextlib.suppress(OSError, ValueError), open(self.mark, encoding="utf-8") as file:
            where, _, runtime = file.read(4096).rstrip("\n").partition(" ")
            if _WHERE.fullmatch(where):
                return where, runtime
        return "", ""

    def removal(self) -> Optional[list[str]]:
        """The command that ends and removes what a killed runtime may have left; None: there can be nothing."""
        where, runtime = self.reached()
        kind = os.path.basename(runtime)
        if where != COMMAND or kind not in ("podman", "docker"):
            return None  # the processes of others are descendants of ours
        return [runtime, "rm", "--force", *(["--time=0", "--ignore"] if kind == "podman" else []), self.name]

    def remove(self, env: _Environment, patience: float = REMOVE_PATIENCE) -> str:
        """End and remove the container of an attempt whose runtime was killed; returns what went wrong."""
        argv = self.removal()
        if argv is None:
            return ""
        try:
            subprocess.run(
                argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=patience, check=False,
            )  # fmt: skip
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"container {self.name} could not be removed: {error}"
        return ""
