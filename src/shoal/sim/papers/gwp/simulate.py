"""One system in one test of the first experiment, simulated: from the settings of an experiment to an outcome. The same run
is not made twice in a process, so that a variation costs only the systems that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.sim.papers.experiment import Parameter, Source
from shoal.sim.papers.gwp.pilots import GridTest, PilotSystem, TaskTimes
from shoal.sim.papers.gwp.systems import (
    Diane,
    DianeOptions,
    Dirac,
    DiracOptions,
    Gwpilot,
    GwpilotOptions,
    ScriptOptions,
)
from shoal.sim.papers.gwp.workload import DIANE, GWPILOT, MANAGED, TABLE_6, TASKS, is_long, starts

Seconds = NDArray[np.float32]
Options = DianeOptions | tuple[GwpilotOptions | DiracOptions, ScriptOptions]


class Outcome(NamedTuple):
    """What a simulated test gave."""

    makespan: float  # seconds
    filling: float  # per cent
    mean_up: float
    submitted: int
    enrolled: int
    failed: int
    parts: dict[str, Seconds]  # of the turnaround of each task that was done


GRID = (
    Parameter("tasks", TASKS, Source.PAPER, "6.2.1"),
    Parameter("managed", MANAGED, Source.PAPER, "6.1, 6.2.1: tasks at once of an application, pilots of a system"),
    Parameter(
        "slow_share", 0.5, Source.CHOSEN,
        "hosts as the slower machine of table 5, the others as the faster one: the paper calls them the references",
    ),
)  # fmt: skip
GWPILOT_PARAMETERS = (
    Parameter("gw_interval", 10.0, Source.PAPER, "table 4, SCHEDULING_INTERVAL"),
    Parameter("gw_chunk", 100, Source.PAPER, "table 4 and 6.1, DISPATCH_CHUNK: 1,000 pilots in 100 s"),
    Parameter("gw_pulling", 30.0, Source.PAPER, "table 4, PI"),
    Parameter("gw_tries", 20, Source.PAPER, "table 4, T"),
    Parameter("gw_transfer", 2.0, Source.CHOSEN, "seconds of a file transfer beside its bytes; not printed"),
    Parameter("gw_bandwidth", 1e6, Source.CHOSEN, "bytes a second of a transfer; not printed"),
    Parameter("gw_command", 0.1, Source.CHOSEN, "seconds of a command of the script; not printed"),
    Parameter(
        "gw_script_task", 0.2, Source.CHOSEN,
        "seconds for which the script checks an output, writes a template and submits; not printed",
    ),
    Parameter("gw_over_short", 0, Source.CHOSEN, "pilots beyond the tasks, an option of table 3; not printed", varied=False),
    Parameter(
        "gw_over_long", 200, Source.FITTED, "the same in tests d to f, where more pilots were up than tasks",
        fitted_to=f"makespan.d.{GWPILOT}",
    ),
    Parameter("script_pause", 60.0, Source.PAPER, "6.2.1: when nothing has ended"),
)  # fmt: skip
DIANE_PARAMETERS = (
    Parameter(
        "diane_submission",
        5.1,
        Source.FITTED,
        "seconds, one after another; 6.2.2 says about 1,000 an hour at most, that is 3.6 s, and above 3 s for each contact with "
        "the broker; table 6 has 625 to 685 an hour in a to c",
        fitted_to=f"makespan.a.{DIANE}",
    ),
    Parameter("diane_request", 1.0 / 115.0, Source.PAPER, "DIANE 6.5: dispatch peaks of 110 to 120 Hz"),
    Parameter("diane_pull_delay", 0.2, Source.PAPER, "table 4, PULL_REQUEST_DELAY"),
    Parameter("diane_retry", 10.0, Source.PAPER, "table 4, HEARTBEAT_DELAY"),
    Parameter("diane_idle_limit", 600.0, Source.PAPER, "table 4, IDLE_WORKER_TIMEOUT"),
    Parameter("diane_drops", True, Source.PAPER, "table 4, REMOVE_FAILED_WORKER_ATTEMPTS"),
)
DIRAC_PARAMETERS = (
    Parameter("dirac_submission_delay", 10.0, Source.PAPER, "table 4, SubmissionDelay"),
    Parameter("dirac_retry", 120.0, Source.PAPER, "table 4: after a request that found no task"),
    Parameter("dirac_failed_matches", 10, Source.PAPER, "table 4, StopAfterFailedMatches"),
    Parameter("dirac_most_matches", 100, Source.PAPER, "table 4, MaxJobsInFillMode"),
    Parameter("dirac_iteration", 10.0, Source.PAPER, "table 4, ListMatchDelay"),
    Parameter("dirac_per_iteration", 100, Source.PAPER, "table 4, pilotsPerIteration"),
    Parameter("dirac_extra_pilots", 2, Source.PAPER, "table 4, extraPilots"),
    Parameter("dirac_match", 0.01, Source.PAPER, "6.2.2: the matcher takes milliseconds"),
    Parameter("dirac_command", 1.35, Source.PAPER, "6.2.1: an operation takes 1.2 to 1.5 s"),
    Parameter("dirac_command_task", 0.187, Source.PAPER, "6.2.2: a command of 100 tasks takes up to 20 s"),
    Parameter(
        "dirac_classify", 60.0, Source.CHOSEN, "6.2.2 names the delay until a task can be matched, without a number"
    ),
    Parameter(
        "dirac_complete", 60.0, Source.CHOSEN, "6.2.2 names the delay until an output is there, without a number"
    ),
)


def grid_of(settings: Mapping[str, Any], test: str, system: str) -> GridTest:
    """A test of table 6 as a system meets it."""
    cell = TABLE_6[test, system]
    fails = cell.failed / (TASKS + cell.failed)
    return GridTest(
        test,
        int(settings["tasks"]),
        int(settings["managed"]),
        starts(test, system),
        fails,
        float(settings["slow_share"]),
    )


def outcome(settings: Mapping[str, Any], test: str, system: str, seed: int) -> Outcome:
    """The outcome of one system in one test of table 6."""
    return simulate(grid_of(settings, test, system), options_of(settings, test, system), seed)


def smaller(settings: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """The same experiment with so many times fewer tasks and pilots, and everything that limits their rate as much slower."""
    less = {
        name: settings[name] // factor
        for name in ("tasks", "managed", "gw_chunk", "gw_over_short", "gw_over_long")
        if name in settings
    }
    slow = ("gw_script_task", "diane_submission", "diane_request")
    return {**settings, **less, **{name: settings[name] * factor for name in slow if name in settings}}


def options_of(settings: Mapping[str, Any], test: str, system: str) -> Options:
    """The options of a system from the settings of an experiment."""
    long_tasks = is_long(test)
    if system == DIANE:
        return DianeOptions(
            settings["diane_submission"], settings["diane_request"], settings["diane_pull_delay"],
            settings["diane_retry"], settings["diane_idle_limit"], settings["diane_drops"],
        )  # fmt: skip
    if system == GWPILOT:
        return (
            GwpilotOptions(
                settings["gw_interval"], settings["gw_chunk"], settings["gw_pulling"], settings["gw_tries"],
                settings["gw_transfer"], settings["gw_bandwidth"], settings["gw_over_long" if long_tasks else "gw_over_short"],
            ),
            ScriptOptions(settings["gw_command"], settings["gw_script_task"], 1, False, settings["script_pause"]),
        )  # fmt: skip
    return (
        DiracOptions(
            settings["dirac_submission_delay"], settings["dirac_retry"], settings["dirac_failed_matches"],
            settings["dirac_most_matches"], settings["dirac_classify"], settings["dirac_complete"],
            settings["dirac_match"], settings["dirac_iteration"], settings["dirac_per_iteration"],
            settings["dirac_extra_pilots"],
        ),
        # Outputs are downloaded, deleted, and new tasks submitted: three commands about each group.
        ScriptOptions(settings["dirac_command"], settings["dirac_command_task"], 3, True, settings["script_pause"]),
    )  # fmt: skip


@lru_cache(maxsize=1_024)
def simulate(grid: GridTest, options: Options, seed: int) -> Outcome:
    """Run one system on one grid."""
    ran = build(grid, options, seed).run()
    times = np.array(ran.times, dtype=np.float32).reshape(-1, len(TaskTimes._fields)).T
    parts = {
        **dict(zip(TaskTimes._fields, times, strict=True)),
        "application": np.array(ran.application, dtype=np.float32),
    }
    return Outcome(
        ran.makespan, 100.0 * ran.filling, ran.mean_up, ran.submitted, ran.enrolled, ran.failed, parts
    )  # fmt: skip


def build(grid: GridTest, options: Options, seed: int) -> PilotSystem:
    """The system with these options, not yet run."""
    if isinstance(options, DianeOptions):
        return Diane(grid, seed, options)
    first, script = options
    if isinstance(first, GwpilotOptions):
        return Gwpilot(grid, seed, first, script)
    return Dirac(grid, seed, first, script)
