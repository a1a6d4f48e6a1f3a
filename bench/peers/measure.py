"""Measures Shoal and its peers on this machine, side by side: `make bench-peers`.

    python -m bench.peers.measure [--systems dask,ray] [--measures commands] [--scale 0.01] [--repetitions 1] ...

Repetition 1 of every system and measure, then repetition 2 and 3. Each runs in a fresh process of the system's own
interpreter, with its own empty directory (HOME and the state of servers too) and a time limit; whatever it left
running is then ended by process id. What takes 30 s or longer is done once. The medians are written as lines of JSON
{"name", "value", "unit", "note"} after every step, so that a run that is broken off is not lost. The value is null
where there was no result, and the note gives the reason. A run of some systems or measures only keeps the rows of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import baseline, dask_, hyperqueue, parsl_, ray_, shoal_, work_queue
from bench.peers.install import DEFAULT, ROOT, VENVS, is_installed, venv_python
from bench.peers.processes import adopt_orphans, end_descendants, machine_busy, own_busy
from bench.peers.system import MEASURES, REPETITIONS, Case, Figures, System, unit_of
from bench.peers.timing import STARTED

LIMIT = 175.0  # seconds that one repetition may take
LONG = 30.0  # what takes so long is done once
FAILED = "failed"
DISTURBED = 0.2  # cores used by others from which on a note mentions it
OUT = ROOT / "bench" / "out" / "peers.jsonl"
TRIAL = OUT.with_name("peers-trial.jsonl")
SYSTEMS: tuple[System, ...] = (
    *baseline.SYSTEMS,
    *shoal_.SYSTEMS,
    *ray_.SYSTEMS,
    *dask_.SYSTEMS,
    *parsl_.SYSTEMS,
    *hyperqueue.SYSTEMS,
    *work_queue.SYSTEMS,
)
_QUEUED = re.compile(r"(?P<system>\w+)\.(?P<kind>queue|array)_(?P<count>[0-9]+)_us")
# Of the caller's environment, nothing may change what a system does.
_DROPPED = re.compile(r"SHOAL_|PYTHON|RAY_|DASK_|PARSL_|HQ_|VIRTUAL_ENV$|XDG_")

Row = dict[str, Any]


@dataclass
class Repetition:
    """What one repetition gave: figures, or a problem."""

    figures: Figures = field(default_factory=dict)
    version: str = ""
    problem: str = ""
    took: float = 0.0
    others: float = 0.0  # cores that other people's processes used meanwhile


@dataclass
class Step:
    """A case of a system, and its repetitions so far."""

    system: System
    case: Case
    count: int
    done: list[Repetition] = field(default_factory=list)

    def wants_more(self, repetitions: int) -> bool:
        """Is there a point in another repetition?"""
        if not self.done:
            return True
        last = self.done[-1]
        return len(self.done) < repetitions and not (self.case.once or last.problem or last.took >= LONG)


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
    command = [str(interpreter(system, peers)), "-m", "bench.peers.child", system.module, system.name, case.key]
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
            problem = f"no result within {limit:.0f} s"
        took = time.monotonic() - began
        end_descendants()
        others = (machine_busy() - busy - own_busy() + own) / (time.monotonic() - began)
        if not result.exists():
            text = (
                errors.read_text(encoding="utf-8", errors="replace")
                .replace(str(directory), ".")
                .replace(f"{ROOT}/", "")
            )
            lines = text.strip().splitlines()
            return Repetition(problem=problem or f"{FAILED}: " + (lines or ["no output"])[-1][:200], took=took)
        output = json.loads(result.read_text(encoding="utf-8"))
        return Repetition(output["figures"], output["version"], "", took, max(0.0, others))
    finally:
        end_descendants()
        shutil.rmtree(directory, ignore_errors=True)


def summarise(steps: Iterable[Step]) -> Iterator[Row]:
    """The rows of what was measured: medians, and the version of each system."""
    versions: dict[str, str] = {}
    for step in steps:
        name = step.system.name
        good = [r for r in step.done if not r.problem]
        for problem in {r.problem for r in step.done if r.problem}:
            yield row(f"{name}.{step.case.label(step.count)}", None, f"{step.count:,}: {problem}")
        if not good:
            continue
        versions[name] = good[-1].version
        for metric in good[0].figures:
            if step.case.measure == "queue" and not _QUEUED.fullmatch(f"{name}.{metric}"):
                continue  # a rate with another number of tasks than all others
            values = [r.figures[metric] for r in good]
            yield row(f"{name}.{metric}", statistics.median(values), note_of(step, good, values))
    for name, version in versions.items():
        yield row(f"{name}.version", None, version)


def growths(rows: Iterable[Row]) -> Iterator[Row]:
    """How the time per task grows with the queue: at the longest that was measured over that at the shortest."""
    queues: dict[tuple[str, str], dict[int, float]] = {}
    for found in rows:
        match = _QUEUED.fullmatch(found["name"])
        if match and found["value"] is not None:
            queues.setdefault((match["system"], match["kind"]), {})[int(match["count"])] = found["value"]
    for (name, kind), times in queues.items():
        few, many = min(times), max(times)
        if few < many:
            text = f"time per task: {times[many]:.0f} us with {many:,} queued over {times[few]:.0f} us with {few:,}"
            yield row(f"{name}.{kind}_growth", times[many] / times[few], text)


def note_of(step: Step, good: list[Repetition], values: list[float]) -> str:
    """How many of what, how often, how far apart, and whether others disturbed."""
    parts = [f"{step.count:,}" if step.count > 1 else "", step.case.note]
    if len(values) > 1:
        parts.append(f"median of {len(values)}, {min(values):.4g} to {max(values):.4g}")
    else:
        parts.append("one run")
    others = max(r.others for r in good)
    if others >= DISTURBED:
        parts.append(f"others used up to {others:.1f} cores")
    return "; ".join(part for part in parts if part)


def row(name: str, value: float | None, note: str) -> Row:
    """One line of the result."""
    return {"name": name, "value": None if value is None else round(value, 4), "unit": unit_of(name), "note": note}


def machine() -> Row:
    """This machine, without its name."""
    models = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    kilobytes = re.findall(r"MemTotal:\s*([0-9]+)", Path("/proc/meminfo").read_text())
    parts = [
        f"{os.cpu_count()} cores" + (f" ({models[0]})" if models else ""),
        f"{int(kilobytes[0]) / 2**20:.0f} GB",
        platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        time.strftime("%Y-%m-%d"),
    ]
    return {"name": "machine", "value": float(os.cpu_count() or 0), "unit": "cores", "note": ", ".join(parts)}


def write(path: Path, kept: Iterable[Row], steps: list[Step], missing: Iterable[Row]) -> None:
    """All rows, the new ones instead of the kept ones that they replace, in one move."""
    replaced = {f"{step.system.name}.{step.case.label(step.count)}" for step in steps if step.done}
    by_name = {r["name"]: r for r in kept if r["name"] not in replaced}
    by_name |= {r["name"]: r for r in (machine(), *missing, *summarise(steps))}
    by_name |= {r["name"]: r for r in growths(list(by_name.values()))}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text("".join(json.dumps(r) + "\n" for r in by_name.values()), encoding="utf-8")
    draft.replace(path)


def read(path: Path) -> list[Row]:
    """The rows of an earlier run."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a repetition may take")
    parser.add_argument("--out", type=Path, help=f"where the rows go (default: {OUT.name}, scaled ones {TRIAL.name})")
    args = parser.parse_args()
    args.is_part = bool(args.systems or args.measures)
    args.systems, args.measures = args.systems or ",".join(names), args.measures or ",".join(MEASURES)
    args.out = args.out or (OUT if args.scale == 1.0 else TRIAL)
    args.systems, args.measures = args.systems.split(","), args.measures.split(",")
    unknown = {*args.systems} - {*names} | {*args.measures} - {*MEASURES}
    if unknown:
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    return args


def main() -> int:
    """Measure everything that the options name; 1 if something failed. To need too long is a result, and no failure."""
    args = parse()
    peers = args.peers.resolve()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through every `finally`, so that nothing stays behind
    kept = read(args.out) if args.is_part else []
    missing: list[Row] = []
    steps: list[Step] = []
    for system in (s for s in SYSTEMS if s.name in args.systems):
        if system.peer and not is_installed(peers, system.peer):
            missing.append(row(f"{system.name}.version", None, "not installed"))
            continue
        steps += [Step(system, case, case.scaled(args.scale)) for case in system.cases if case.measure in args.measures]
    steps.sort(key=lambda step: MEASURES.index(step.case.measure))  # systems keep their order within a measure
    began = time.monotonic()
    for number in range(1, args.repetitions + 1):
        for step in steps:
            if len(step.done) >= number or not step.wants_more(args.repetitions):
                continue
            done = repeat(step, peers, args.limit)
            step.done.append(done)
            text = done.problem or ", ".join(f"{name} {value:.4g}" for name, value in done.figures.items())
            progress(
                f"{time.monotonic() - began:5.0f} s, repetition {number}, {step.system.name} {step.count:,}: {text}"
            )
            write(args.out, kept, steps, missing)
    for line in read(args.out):
        print(json.dumps(line))
    return 1 if any(r.problem.startswith(FAILED) for step in steps for r in step.done) else 0


if __name__ == "__main__":
    sys.exit(main())
