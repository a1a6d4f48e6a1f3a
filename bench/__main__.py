"""`make bench`: every `exp_*.py`, one question each, as lines of JSON to the terminal and to bench/out/latest.jsonl.

    python -m bench [EXPERIMENT ...] [--runs N] [--against CHECKOUT]

With `--runs` all experiments are repeated N times, one round after another. With `--against` each experiment is also
run in another checkout of the repository (with its own .venv) right after it, so that both meet the same machine.
`python -m bench.figures` writes the medians into docs/performance.md. A run of some experiments only goes to
bench/out/part.jsonl, so that the figures of the page are always of one complete run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import FIGURES, OUT, PART, compare, read, summary, table
from bench.provenance import provenance
from bench.serving import REPETITIONS

HERE = Path(__file__).parent
ENOUGH = 3  # runs for a median; then slow experiments measure once in each
Write = Callable[[dict[str, Any]], None]


def run(name: str, python: str, folder: Path, extra: dict[str, Any], write: Write, repeated: dict[str, str]) -> bool:
    """Run one experiment in a checkout and write its lines down, and how it ended; False if it failed."""
    argv = [python, "-m", f"bench.{name}"]
    began = time.monotonic()
    env = {**os.environ, **repeated}
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("{"):  # else it is of a process that the experiment started
                write({**json.loads(line), **extra})
    seconds = round(time.monotonic() - began, 1)
    write({**extra, "seconds": seconds, "code": process.returncode})
    print(f"# {seconds} s" + (f", failed with {process.returncode}" if process.returncode else ""), flush=True)
    return process.returncode == 0


def main() -> int:
    """Run all experiments, or those named; 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("experiments", nargs="*")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout, with its own .venv")
    chosen = parser.parse_args()
    every = sorted(path.stem for path in HERE.glob("exp_*.py"))
    wanted = chosen.experiments or every
    if unknown := set(wanted) - set(every):
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    out = OUT if wanted == every else PART
    out.parent.mkdir(exist_ok=True)
    failed, repeated = 0, {REPETITIONS: "1"} if chosen.runs >= ENOUGH else {}
    with out.open("w", encoding="utf-8") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        write({"provenance": provenance()._asdict(), "rounds": chosen.runs})
        for number in range(1, chosen.runs + 1):
            for name in wanted:
                print(f"# {name}, run {number}", flush=True)
                extra = {"run": number, "experiment": name}
                failed += not run(name, sys.executable, HERE.parent, {**extra, "checkout": "this"}, write, repeated)
                if chosen.against:
                    print(f"# {name}, run {number}, the other checkout", flush=True)
                    other = chosen.against.resolve()
                    python = str(other / ".venv" / "bin" / "python")
                    failed += not run(name, python, other, {**extra, "checkout": "other"}, write, repeated)
    done = read(out)
    printed = {row.name for row in done.rows}
    shown = [figure for figure in FIGURES if out == OUT or figure.name in printed]
    print(compare(done.rows) if chosen.against else table(done, shown), summary(done, shown), sep="\n\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
