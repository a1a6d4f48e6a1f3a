"""Does the simulator repeat what really happened, and does the forecast hold?

Five kinds of real runs, with a server and pilots of their own and tasks that sleep: equal tasks, skewed ones, a pilot that
is killed half-way, pilots that come late, and two pilots of which one takes twice as long for everything. Each run is replayed
from its journal; one with 2 slots is also replayed with 4 and 8, and really run with them. The forecast is the one that
`shoal run` makes at a quarter of the tasks; BENCH_FORECASTS is how many runs of each kind are made for it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.serving import Serving, report, serving
from shoal.model.file_names import PILOT_ZIP, SERVER_FILE

KINDS = ("equal", "skewed", "killed", "late", "speeds")
RUNS = int(os.environ.get("BENCH_FORECASTS", "2"))
SECONDS = 20.0  # about how long a run takes
SLOTS = 2  # of a pilot
SLOW = 2.0  # times as long on the slow pilot
MARK = "SHOAL_BENCH_SLOW"
# A task looks into its guard's environment whether it runs on the slow pilot.
PAYLOAD = f'if tr "\\0" "\\n" < /proc/$PPID/environ | grep -q ^{MARK}=; then sleep $2; else sleep $1; fi'
AT_ONCE = 5  # runs side by side: they mostly sleep


class Result(NamedTuple):
    """One real run: how long it took, its replay, and the forecast made at a quarter."""

    kind: str
    took: float
    replayed: float
    forecast: dict[str, Any] | None
    wider: dict[int, float]  # slots -> replayed with so many


class Lab:
    """A server and its pilots."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._pilots: list[subprocess.Popen[bytes]] = []
        home = server.state.parent
        token = {"SHOAL_SERVER": server.url, "SHOAL_TOKEN": server.token}
        self._env = {
            **os.environ,
            **token,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
        }

    def start(self, slots: int = SLOTS, slow: bool = False) -> subprocess.Popen[bytes]:
        """Start a pilot."""
        zipped = self._server.state / PILOT_ZIP
        while not zipped.exists():
            time.sleep(0.01)
        command = [sys.executable, str(zipped), "--server-file", str(self._server.state / SERVER_FILE)]
        env = {**os.environ, **({MARK: "1"} if slow else {})}
        scratch = ["--cores", str(slots)]
        self._pilots.append(
            subprocess.Popen([*command, *scratch], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        )
        return self._pilots[-1]

    def shoal(self, *words: str) -> Any:
        """A command with --json; what it told."""
        argv = [sys.executable, "-m", "shoal.cli", *words]
        found = subprocess.run(
            argv, env=self._env, cwd=self._server.state.parent, capture_output=True, text=True, check=False
        )
        if found.returncode:
            raise RuntimeError(f"{words[:3]}: {found.returncode} {found.stderr[-500:]}")
        return json.loads(found.stdout)

    def end(self) -> None:
        """End the pilots that live."""
        for pilot in self._pilots:
            pilot.terminate()
        for pilot in self._pilots:
            pilot.wait(60)


def lengths(kind: str, rng: Random, slots: int) -> list[float]:
    """How long the tasks of a run take on a usual pilot."""
    count = rng.randint(10, 30) * slots
    each = SECONDS * slots / count
    if kind == "skewed":
        return [round(each * rng.lognormvariate(-0.32, 0.8), 3) for _ in range(count)]
    return [round(each * rng.uniform(0.9, 1.1), 3) for _ in range(count)]


def write_tasks(path: Path, tasks: list[float]) -> None:
    """A task file: the same script with a parameter of its own for each task."""
    rows = ", ".join(f'{{ s = "{one}", slow = "{SLOW * one:.3f}" }}' for one in tasks)
    command = json.dumps(["sh", "-c", PAYLOAD, "payload", "{s}", "{slow}"])
    path.write_text(f"[[tasks]]\ncommand = {command}\nparams = [{rows}]\n", encoding="utf-8")


def real_run(kind: str, seed: int | str, sizes: tuple[int, ...] = ()) -> Result:
    """Make a real run of a kind, and replay it."""
    rng = Random(f"{kind}/{seed}")
    with serving() as server:
        lab = Lab(server)
        pilots = 1 if sizes else 3 if kind in ("killed", "late") else 2
        tasks = lengths(kind, rng, SLOTS * pilots)
        there = 1 if kind == "late" else pilots
        started = [lab.start(slow=kind == "speeds" and number == 1) for number in range(there)]
        wait_for_pilots(lab, there)
        path = server.state.parent / "tasks.toml"
        write_tasks(path, tasks)
        timers = []
        if kind == "killed":
            timers.append(threading.Timer(SECONDS * rng.uniform(0.3, 0.6), started[-1].kill))
        if kind == "late":
            timers += [threading.Timer(SECONDS * rng.uniform(0.1, 0.6), lab.start) for _ in range(2)]
        for timer in timers:
            timer.start()
        try:
            told = lab.shoal("run", str(path), "--json")
            replayed = lab.shoal("replay", told["run"], "--json")
            wider = {}
            for size in sizes:
                words = ("replay", told["run"], "--pilots", "1", "--slots", str(size), "--json")
                wider[size] = lab.shoal(*words)["changed"]["seconds"]["p50"]
        finally:
            for timer in timers:
                timer.join()
            lab.end()
    return Result(kind, replayed["measured"], replayed["replayed"]["seconds"]["p50"], told["forecast"], wider)


def real_seconds(slots: int) -> float:
    """How long the first run takes with other slots."""
    with serving() as server:
        lab = Lab(server)
        lab.start(slots)
        wait_for_pilots(lab, 1)
        path = server.state.parent / "tasks.toml"
        write_tasks(path, lengths("skewed", Random("skewed/slots"), SLOTS))
        try:
            told = lab.shoal("run", str(path), "--json")
        finally:
            lab.end()
    return float(told["seconds"])


def wait_for_pilots(lab: Lab, count: int) -> None:
    """Until so many have registered."""
    end = time.monotonic() + 60.0
    while len(lab.shoal("pilots", "--json")["pilots"]) < count:
        if time.monotonic() > end:
            raise RuntimeError("the pilots do not register")
        time.sleep(0.1)


def report_forecasts(results: list[Result]) -> None:
    """How often P10 to P90 held the end, and how wide it was."""
    made = [one for one in results if one.forecast is not None]
    held = [one.forecast["p10"] <= one.forecast["took"] <= one.forecast["p90"] for one in made if one.forecast]
    width = [(one.forecast["p90"] - one.forecast["p10"]) / one.forecast["took"] for one in made if one.forecast]
    by_kind = ", ".join(
        f"{kind} {sum(h for one, h in zip(made, held, strict=True) if one.kind == kind)} of "
        f"{sum(one.kind == kind for one in made)}"
        for kind in KINDS
    )
    report("forecast_held", sum(held) / len(held), "part", f"{len(held)} of {len(results)} runs made one; {by_kind}")
    report("forecast_width", statistics.fmean(width), "part", "P10 to P90 over the time that was left, mean")


def main() -> None:
    """Measure."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        made = [threads.submit(real_run, kind, seed) for seed in range(RUNS) for kind in KINDS]
        results = [one.result() for one in made if not isinstance(one.exception(), RuntimeError)]
    if len(results) < len(made):
        print(f"# {len(made) - len(results)} of {len(made)} runs could not be made", flush=True)
    first = {kind: next(one for one in results if one.kind == kind) for kind in KINDS}
    errors = {kind: one.replayed / one.took - 1.0 for kind, one in first.items()}
    text = ", ".join(f"{kind} {100 * error:+.1f} %" for kind, error in errors.items())
    report("replay_error", max(map(abs, errors.values())), "part", f"replayed over measured, the worst of: {text}")
    every = [abs(one.replayed / one.took - 1.0) for one in results]
    report(
        "replay_error_median", statistics.median(every), "part", f"of all {len(every)} runs, {max(every):.3f} at most"
    )
    with ThreadPoolExecutor(AT_ONCE) as threads:
        narrow = threads.submit(real_run, "skewed", "slots", (4, 8))
        wide = {slots: threads.submit(real_seconds, slots) for slots in (4, 8)}
        wider = {slots: narrow.result().wider[slots] / wide[slots].result() - 1.0 for slots in (4, 8)}
    text = ", ".join(f"{slots} slots {100 * error:+.1f} %" for slots, error in wider.items())
    report("replay_slots_error", max(map(abs, wider.values())), "part", f"a journal of 2 slots over real runs: {text}")
    report_forecasts(results)


if __name__ == "__main__":
    main()
