"""`make bench`: every `exp_*.py`, one question each; lines of JSON to the terminal and to bench/out/latest.jsonl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run all, or those named; 1 if any of them failed."""
    here = Path(__file__).parent
    wanted = sys.argv[1:] or sorted(path.stem for path in here.glob("exp_*.py"))
    out = here / "out"
    out.mkdir(exist_ok=True)
    failed = 0
    with (out / "latest.jsonl").open("w", encoding="utf-8") as file:
        for name in wanted:
            print(f"# {name}", flush=True)
            with subprocess.Popen(
                [sys.executable, "-m", f"bench.{name}"], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", flush=True)
                    file.write(line)
            failed += process.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
