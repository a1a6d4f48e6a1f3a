"""Where figures come from: the commit that was measured, the day, and the machine without its name."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("src", "bench", "pyproject.toml", "requirements.lock")  # a change of anything else changes no figure


class Provenance(NamedTuple):
    """What stands with a table of figures."""

    commit: str
    date: str
    machine: str

    def __str__(self) -> str:
        return f"Commit {self.commit}, {self.date}. Machine: {self.machine}."


def git(*arguments: str) -> str:
    """What git prints; empty where there is none, or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def commit() -> str:
    """The commit of this clone, and whether what is measured was changed since."""
    found = git("rev-parse", "--short=12", "HEAD")
    if not found:
        return "unknown"
    changed = git("status", "--porcelain", "--", *MEASURED)
    return f"{found} with uncommitted changes" if changed else found


def machine() -> str:
    """Cores, memory, system and versions."""
    models = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    kilobytes = re.findall(r"MemTotal:\s*([0-9]+)", Path("/proc/meminfo").read_text())
    parts = [
        f"{os.cpu_count()} cores" + (f" ({models[0]})" if models else ""),
        f"{int(kilobytes[0]) / 2**20:.0f} GB",
        platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
    ]
    return ", ".join(parts)


def provenance() -> Provenance:
    """Of a run that begins now."""
    return Provenance(commit(), time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), machine())
