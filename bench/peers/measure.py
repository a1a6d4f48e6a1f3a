"""Measures Shoal and its peers on this machine, side by side: `make bench-peers`.

    python -m bench.peers.measure [--systems dask,ray] [--measures commands] [--scale 0.01] [--rounds 1] ...

Round 1 of every measure and system, then round 2, then 3. Each repetition runs in a fresh process of the system's own
interpreter, with its own empty directory (HOME and the state of servers too) and a time limit; whatever it left
running is then ended by process id. Every figure of every round is written at once as a line of JSON {"name", "value",
"unit", "note", "round"}. The value is null where there was no result, and the note gives the reason; what failed or took
too long once is not tried again. Only a complete run at full scale goes to peers.jsonl, of which the page is made; any
other is a trial.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import baseline, dask_, hyperqueue, parsl_, ray_, shoal_, work_queue
from bench.peers.install import DEFAULT, ROOT, VENVS, is_installed, venv_python
from bench.peers.processes import adopt_orphans, end_descendants, machine_busy, own_busy
from bench.peers.system import MEASURES, Case, Figures, System, unit_of
from bench.peers.timing import STARTED
from bench.provenance import provenance

ROUNDS = 3
LIMIT = 100.0  # seconds that one repetition may take
FAILED, TOO_LONG, NOT_INSTALLED = "failed", "too long", "not installed"
OUT = ROOT / "bench" / "out" / "peers.jsonl"
TRIAL = OUT.with_name("peers-trial.jsonl")
SYSTEMS: tuple[System, ...] = (
    *baseline.SYSTEMS,
    *shoal_.SYSTEMS,
    *ray_.SYSTEMS,
    *parsl_.SYSTEMS,
    *dask_.SYSTEMS,
    *hyperqueue.SYSTEMS,
    *work_queue.SYSTEMS,
)
# Of the caller's environment, nothing may change what a system does.
_DROPPED = re.compile(r"SHOAL_|PYTHON|RAY_|DASK_|PARSL_|HQ_|VIRTUAL_ENV$|XDG_")

Write = Callable[[dict[str, Any]], None]


@dataclass
class Repetition:
    """What one repetition gave: figures, or a problem."""

    figures: Figures = field(default_factory=dict)
    version: str = ""
    problem: str = ""
    others: float = 0.0  # cores that other people's processes used meanwhile


@dataclass
class Step:
    """A case of a system, and how many tasks it has in this run."""

    system: System
    case: Case
    count: int
    is_given_up: bool = False

    @property
    def name(self) -> str:
        """What a line about all of it is called."""
        return f"{self.system.name}.{self.case.measure}"

    def lines(self, done: Repetition, number: int) -> list[dict[str, Any]]:
        """The lines of one repetition."""
        if done.problem:
            return [{"name": self.name, "value": None, "unit": "", "note": done.problem, "round": number}]
        note = f"{self.count:,}; {self.case.note}" if self.case.note and self.count > 1 else self.case.note
        note = note or (f"{self.count:,}" if self.count > 1 else "")
        rest = {"note": note, "round": number, "others": round(done.others, 2)}
        figures = {f"{self.name}_{key}": value for key, value in done.figures.items()}
        lines = [{"name": k, "value": round(v, 4), "unit": unit_of(k), **rest} for k, v in figures.items()]
        version = {"name": f"{self.system.name}.version", "value": None, "unit": "", "note": done.version}
        return [*lines, {**version, "round": number}]


def interpreter(system: System, peers: Path) -> Path:
    """The Python that a system lives in; Work Queue is driven by ours."""
    return venv_python(peers, system.peer) if system.peer in VENVS else Path(sys.executable)


def environment(system: System, directory: Path, peers: Path) -> dict[str, str]:
    """What a case sees: nothing of the caller's home, settings and state."""
    env = {name: value for name, value in os.environ.items() if not _DROPPED.match(name)}
    env["PATH"] = f"{interpreter(system, peers).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    env |= {"HOME": str(directory), "TMPDIR": str(directory), "XDG_STATE_HOME": str(directory / "state")}
    return env | {"PYTHONPATH": str(ROOT), work_queue.PEERS: str(peers), STARTED: repr(time.time())}


def repeat(step: Step, peers: Path, limit: float) -> Repetition:
    """One repetition in a fresh process; nothing of it is left afterwards."""
    system, case = step.system, step.case
    directory = Path(tempfile.mkdtemp(prefix="peers-", dir=os.environ.get("SHOAL_BENCH_DIR", "/var/tmp")))
    result, errors = directory / "result.json", directory / "errors"
    command = [str(interpreter(system, peers)), "-m", "bench.peers.child", system.module, system.name, case.measure]
    command += [str(step.count), str(result)]
    busy, own, began = machine_busy(), own_busy(), time.monotonic()
    problem = ""
    try:
        with errors.open("wb") as log:
            env = environment(system, directory, peers)
            process = subprocess.Popen(
                command,
                cwd=directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            problem = f"{TOO_LONG}: no result within {limit:.0f} s"
        end_descendants()
        others = (machine_busy() - busy - own_busy() + own) / (time.monotonic() - began)
        if not result.exists():
            text = (
                errors.read_text(encoding="utf-8", errors="replace")
                .replace(str(directory), ".")
                .replace(f"{ROOT}/", "")
            )
            lines = text.strip().splitlines()
            return Repetition(problem=problem or f"{FAILED}: " + (lines or ["no output"])[-1][:200])
        output = json.loads(result.read_text(encoding="utf-8"))
        return Repetition(output["figures"], output["version"], "", max(0.0, others))
    finally:
        end_descendants()
        shutil.rmtree(directory, ignore_errors=True)


def progress(text: str) -> None:
    """Print a line of progress."""
    print(f"# {text}", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    """The options of the command line."""
    names = [system.name for system in SYSTEMS]
    parser = argparse.ArgumentParser(description="Measure Shoal and its peers side by side.")
    parser.add_argument("--peers", type=Path, default=DEFAULT, help="where the peers are installed")
    parser.add_argument("--systems", default="", help=f"which of {', '.join(names)}")
    parser.add_argument("--measures", default="", help=f"which of {', '.join(MEASURES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="0.01: a hundredth of the tasks, to try it out")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a repetition may take")
    args = parser.parse_args()
    is_trial = bool(args.systems or args.measures) or args.scale != 1.0 or args.rounds < ROUNDS
    args.out = TRIAL if is_trial else OUT
    args.systems, args.measures = args.systems or ",".join(names), args.measures or ",".join(MEASURES)
    args.systems, args.measures = args.systems.split(","), args.measures.split(",")
    unknown = {*args.systems} - {*names} | {*args.measures} - {*MEASURES}
    if unknown:
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    return args


def plan(args: argparse.Namespace, write: Write) -> list[Step]:
    """What is to be done in a round, in order; what is not installed is written down."""
    steps: list[Step] = []
    for system in (s for s in SYSTEMS if s.name in args.systems):
        if system.peer and not is_installed(args.peers.resolve(), system.peer):
            write({"name": f"{system.name}.version", "value": None, "unit": "", "note": NOT_INSTALLED, "round": 1})
            continue
        steps += [Step(system, case, case.scaled(args.scale)) for case in system.cases if case.measure in args.measures]
    steps.sort(key=lambda step: MEASURES.index(step.case.measure))  # systems keep their order within a measure
    return steps


def main() -> int:
    """Measure everything that the options name; 1 if something failed. To need too long is a result, and no failure."""
    args = parse()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through every `finally`, so that nothing stays behind
    args.out.parent.mkdir(parents=True, exist_ok=True)
    failed = False
    with args.out.open("w", encoding="utf-8") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        header = {"rounds": args.rounds, "scale": args.scale, "limit": args.limit}
        write({"provenance": provenance()._asdict(), **header})
        steps, began = plan(args, write), time.monotonic()
        for number in range(1, args.rounds + 1):
            for step in steps:
                if step.is_given_up:
                    continue
                done = repeat(step, args.peers.resolve(), args.limit)
                step.is_given_up = bool(done.problem)
                failed |= done.problem.startswith(FAILED)
                for line in step.lines(done, number):
                    write(line)
                text = done.problem or ", ".join(f"{name} {value:.4g}" for name, value in done.figures.items())
                progress(f"{time.monotonic() - began:5.0f} s, round {number}, {step.name} {step.count:,}: {text}")
        write({"seconds": round(time.monotonic() - began)})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
