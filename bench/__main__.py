"""`make bench`: every `exp_*.py`, one question each, as lines of JSON to the terminal and to bench/out/latest.jsonl.

    python -m bench [EXPERIMENT ...] [--runs N] [--against CHECKOUT]

With `--runs` all experiments are repeated N times, one round after another. With `--against` each experiment is also
run in another checkout of the repository (with its own .venv) right after it, so that both meet the same machine.
`python -m bench.figures` writes the medians into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from bench.figures import OUT, compare, read

HERE = Path(__file__).parent


def run(name: str, python: str, folder: Path, extra: dict[str, Any], file: IO[str]) -> bool:
    """Run one experiment in a checkout and write its lines down; False if it failed."""
    argv = [python, "-m", f"bench.{name}"]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("{"):  # else it is of a process that the experiment started
                file.write(json.dumps({**json.loads(line), **extra}) + "\n")
                file.flush()
    return process.returncode == 0


def main() -> int:
    """Run all experiments, or those named; 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("experiments", nargs="*")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout, with its own .venv")
    chosen = parser.parse_args()
    wanted = chosen.experiments or sorted(path.stem for path in HERE.glob("exp_*.py"))
    OUT.parent.mkdir(exist_ok=True)
    failed = 0
    with OUT.open("w", encoding="utf-8") as file:
        for number in range(1, chosen.runs + 1):
            for name in wanted:
                print(f"# {name}, run {number}", flush=True)
                extra = {"run": number, "experiment": name}
                failed += not run(name, sys.executable, HERE.parent, {**extra, "checkout": "this"}, file)
                if chosen.against:
                    print(f"# {name}, run {number}, the other checkout", flush=True)
                    other = chosen.against.resolve()
                    python = str(other / ".venv" / "bin" / "python")
                    failed += not run(name, python, other, {**extra, "checkout": "other"}, file)
    if chosen.against:
        print(compare(read(OUT)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
