"""Installs the peers: a venv each below one directory, Work Queue with apt-get. Nothing is done twice.

    python -m bench.peers.install [--peers DIRECTORY] [NAME ...]

A peer that cannot be installed is named with the reason and left out of the measurement; the others go on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ROOT / "bench" / "out" / "peers"

# Versions are pinned, so that a figure can be had again; take newer ones by changing them here.
VENVS: dict[str, tuple[str, ...]] = {
    "hyperqueue": ("hyperqueue==0.27.0",),
    "dask": ("distributed==2026.8.0",),
    "ray": ("ray==2.60.0",),
    "parsl": ("parsl==2026.10.26",),
}
NAMES = (*VENVS, "work_queue")
# The library for a program of one's own is in -dev; the command-line tools start only where openmpi-bin is.
DEBIAN = (
    "coop-computing-tools",
    "coop-computing-tools-dev",
    "openmpi-bin",
    "gcc",
    "libc6-dev",
    "libssl-dev",
    "zlib1g-dev",
)
LIBRARIES = ("work_queue", "batch_job", "dttools", "ssl", "crypto", "z", "m", "pthread", "dl")
HEADER = Path("/usr/include/cctools/work_queue.h")
VENV = ".venv"  # hidden, so that mypy does not read the programs in it as ours
STAMP = "installed"  # beside it: the requirements, written when it is complete


def venv_python(peers: Path, name: str) -> Path:
    """The interpreter of a peer's venv."""
    return peers / name / VENV / "bin" / "python"


def work_queue_program(peers: Path) -> Path:
    """The compiled program that drives Work Queue."""
    return peers / "work_queue" / "drive"


def is_installed(peers: Path, name: str) -> bool:
    """True if this peer is installed in the wanted version."""
    if name == "work_queue":
        program, source = work_queue_program(peers), Path(__file__).with_name("work_queue.c")
        fresh = program.is_file() and program.stat().st_mtime >= source.stat().st_mtime
        return fresh and shutil.which("work_queue_worker") is not None
    stamp = peers / name / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(VENVS[name])


def run(log: Path, command: Sequence[str], **env: str) -> None:
    """One step; its output goes to the log, and the end of it into the error."""
    with log.open("ab") as file:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **env}, check=False
        )
    if done.returncode:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: " + " | ".join(last))


def install_venv(peers: Path, name: str) -> None:
    """A fresh venv with exactly what is pinned."""
    directory = peers / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    log = directory / "log"
    run(log, [sys.executable, "-m", "venv", str(directory / VENV)])
    python = str(venv_python(peers, name))
    run(log, [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", *VENVS[name]])
    (directory / STAMP).write_text("\n".join(VENVS[name]) + "\n", encoding="utf-8")


def install_work_queue(peers: Path) -> None:
    """The Debian packages, where they are missing and we may, and our small program linked to the library."""
    program = work_queue_program(peers)
    program.parent.mkdir(exist_ok=True)
    log = program.with_name("log")
    if shutil.which("work_queue_worker") is None or shutil.which("gcc") is None or not HEADER.is_file():
        if shutil.which("apt-get") is None:
            raise RuntimeError("no apt-get here")
        if os.geteuid() != 0:
            raise RuntimeError("needs root once: apt-get install " + " ".join(DEBIAN))
        get = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=120"]
        run(log, [*get, "update"])
        run(log, [*get, "install", "--no-install-recommends", *DEBIAN], DEBIAN_FRONTEND="noninteractive")
    source = str(Path(__file__).with_name("work_queue.c"))
    include = ["-I", str(HEADER.parent)]
    run(log, ["gcc", "-O2", *include, "-o", str(program), source, *(f"-l{name}" for name in LIBRARIES)])


def install(peers: Path, name: str) -> str:
    """Make sure that a peer is there; empty, or why it is not."""
    if is_installed(peers, name):
        return ""
    print(f"# installing {name}", file=sys.stderr, flush=True)
    try:
        if name == "work_queue":
            install_work_queue(peers)
        else:
            install_venv(peers, name)
    except (RuntimeError, OSError) as error:
        return str(error)
    return ""


def main() -> int:
    """All, or those named; 0 also if some are missing: the rows of the measurement show that."""
    parser = argparse.ArgumentParser(description="Install the peers.")
    parser.add_argument("--peers", type=Path, default=DEFAULT, help="where the venvs go")
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(NAMES)} (default: all)")
    args = parser.parse_args()
    if not set(args.names) <= set(NAMES):
        parser.error(f"no such peer: {' '.join(set(args.names) - set(NAMES))}")
    peers = args.peers.resolve()
    peers.mkdir(parents=True, exist_ok=True)
    for name in args.names or NAMES:
        problem = install(peers, name)
        if problem:
            print(f"# {name} is left out: {problem}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
