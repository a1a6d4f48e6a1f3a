"""What the experiments with cached files share: workflows, conditions of the storage element, parameters, and runs that are
remembered, so that a variation costs only what it changes [CMS V]."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean
from typing import Any, NamedTuple

from shoal.sim.papers.cms.cached_runs import NO_CACHE, PER_HOST, SINGLE, CachedRun, Condition, Run, Scheme, Workflow
from shoal.sim.papers.experiment import Parameter, Source
from shoal.sim.planning.workloads import MERGING, SERIAL, SPLITTING

C1, C2, C3 = Scheme(PER_HOST, True), Scheme(SINGLE, True), Scheme(PER_HOST, False)
NONE = Scheme(NO_CACHE, False)
LOW, MODERATE, DELAYED, HIGH = "d1f1", "d2f2", "d3f1", "d3f3"
W1, W2, W3 = "W1", "W2", "W3"
KINDS = {W1: SERIAL, W2: SPLITTING, W3: MERGING}

# Each fitted to one cell, the first in c.hit-ratio, the others in c.stagein. Elsewhere they are taken as they are.
HOST_SLOTS, DELAY_S, LOCAL_S, JOB_S = 2, 1_800.0, 20.0, 1_150.0

TABLE_I = (
    Parameter("d1", 0.01, Source.PAPER, "table I, delay factor"),
    Parameter("d2", 0.15, Source.PAPER, "table I, delay factor"),
    Parameter("d3", 0.50, Source.PAPER, "table I, delay factor"),
    Parameter("f1", 0.0, Source.PAPER, "table I, failure factor"),
    Parameter("f2", 0.03, Source.PAPER, "table I, failure factor"),
    Parameter("f3", 0.1, Source.PAPER, "table I, failure factor"),
)  # fmt: skip

WORLD = (
    Parameter("pilots", 120, Source.PAPER, "V: concurrent pilot jobs"),
    Parameter("w1_first", 80, Source.PAPER, "V: W1, 80 jobs that make a file each, and one that reads each"),
    Parameter("w2_first", 40, Source.PAPER, "V: W2, 40 jobs that make a file each, and two that read each"),
    Parameter("w3_first", 80, Source.PAPER, "V: W3, 80 jobs that make a file each, and one that reads two"),
    *TABLE_I,
    Parameter("file_mb", 700, Source.PAPER, "V: what each job makes"),
    Parameter("cache_mb", 10_000, Source.PAPER, "IV.C: the space of a pilot"),
    Parameter("reserve_mb", 1_000, Source.CHOSEN, "IV.C: of it for the job that runs; not printed"),
    Parameter("job_spread", 0.1, Source.CHOSEN, "standard deviation over the mean of a job's computing; not printed"),
    Parameter("delay_spread", 0.2, Source.CHOSEN, "the same of an access, which the paper draws from a Gaussian; not printed"),
    Parameter("create_s", 60.0, Source.CHOSEN, "between two looks of ProdAgent for jobs to create, or again; not printed"),
    Parameter("pull_s", 30.0, Source.CHOSEN, "between two requests of an idle pilot; not printed, GWP has 30 s"),
    Parameter("repeats", 5, Source.CHOSEN, "workflows of each kind in a seed, to save seeds", varied=False),
)  # fmt: skip

HOST_AS_FITTED = Parameter("host_slots", HOST_SLOTS, Source.CHOSEN, "pilots on a host, as fitted in c.hit-ratio")
AS_FITTED = (
    Parameter("delay_s", DELAY_S, Source.CHOSEN, "seconds of an access for a delay factor of 1, as fitted in c.stagein"),
    Parameter("local_s", LOCAL_S, Source.CHOSEN, "seconds of an access to the cache, as fitted in c.stagein"),
    Parameter("job_s", JOB_S, Source.CHOSEN, "seconds of computing, as fitted in c.stagein"),
)  # fmt: skip

MODELLED = (
    "A model of the paper's task queue, pilots and storage element. What it reads is counted when it is read. Jobs of the first "
    "step read nothing and all write a file to the storage element, with the same delays and failures. No column of Shoal as it "
    "is: pilots of planning worlds keep no files."
)


class Figures(NamedTuple):
    """The mean over the repeats of a workflow in one scheme and condition."""

    hit_ratio: float  # per cent
    stage_in: float  # seconds, over all jobs
    execution: float
    turnaround: float


def figures(settings: Mapping[str, Any], name: str, scheme: Scheme, condition: str, seed: int) -> Figures:
    """Run a workflow as often as the settings say."""
    runs = [_run(tuple(sorted(settings.items())), name, scheme, condition, f"{seed}/{number}")
            for number in range(int(settings["repeats"]))]  # fmt: skip
    jobs = [job for run in runs for job in run.jobs]
    return Figures(
        100.0 * sum(run.hits for run in runs) / sum(run.reads for run in runs),
        fmean(job.stage_in for job in jobs),
        fmean(job.execution for job in jobs),
        fmean(run.turnaround for run in runs),
    )


@lru_cache(maxsize=4_096)
def _run(settings: tuple[tuple[str, Any], ...], name: str, scheme: Scheme, condition: str, seed: str) -> Run:
    known = dict(settings)
    workflow = Workflow(KINDS[name], int(known[f"{name.lower()}_first"]), 1 if name == W1 else 2)
    storage = Condition(known[condition[:2]], known[condition[2:]])
    return CachedRun(known, workflow, scheme, storage, f"{seed}/{name}").run()


def reduction(without: float, with_it: float) -> float:
    """How much less, in per cent."""
    return 100.0 * (1.0 - with_it / without)
