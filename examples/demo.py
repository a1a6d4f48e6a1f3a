"""`make demo`: a parameter sweep of real commands on an embedded server of its own, from submit to results.

Everything happens in a temporary directory; at the end the server and its pilot are stopped and the directory is removed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PI = "examples/pi.py"


def shoal(environment: dict[str, str], *arguments: str, echo: bool = True) -> int:
    """Run one command as a person would, shown before it runs."""
    if echo:
        print(f"\n$ shoal {shlex.join(arguments)}", flush=True)
    return subprocess.call([sys.executable, "-m", "shoal.cli", *arguments], env=environment, cwd=ROOT)


def main() -> int:
    """The demonstration; returns 0 if everything went as it should."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shoal-demo-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        environment |= {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        try:
            codes = [
                shoal(environment, "run", "--", "python3", PI, "--seed", "1"),
                shoal(
                    environment, "sweep", "--name", "pi", "--retries", "2", "--time", "1m",
                    "points=1000,100000,1000000", "seed=1..10",
                    "--", "python3", PI, "--points", "{points}", "--seed", "{seed}", "--flaky",
                ),
                shoal(environment, "results", "r2"),
                shoal(environment, "ps"),
                shoal(environment, "show", "r2.5"),
            ]  # fmt: skip
        finally:
            shoal(environment, "server", "stop", "--pilots", echo=False)
    print(f"\nthe demonstration took {time.monotonic() - began:.1f} s; its server and its files are gone")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
