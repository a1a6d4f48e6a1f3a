"""`c.pilotmonitor`: three ways of submitting a merging workflow, and the delays of its jobs: figure 7 [CMS V]."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean

from shoal.sched.demand import DemandRule
from shoal.sched.provisioning.view import PILOTMONITOR, PILOTMONITOR_REPAIRED
from shoal.sched.provisioning.view import SHOAL as OWN
from shoal.sim.distributions import Constant, Exponential, Normal, Uniform
from shoal.sim.papers.agreement import AtLeast, AtMost, Between, NotJudged
from shoal.sim.papers.cms.direct import DirectSubmission, JobTimes
from shoal.sim.papers.experiment import (
    Ablation,
    AsItIs,
    Claim,
    Experiment,
    Inputs,
    Measured,
    Parameter,
    Plot,
    Source,
    Value,
)
from shoal.sim.papers.product import TIMES
from shoal.sim.planning.description import Arrival, Description, PilotLimits, Pilots, Provision, ServerTimes, Site
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.workloads import MERGING, Batch, Given, TwoSteps
from shoal.sim.planning.world import PlanningWorld

DIRECT, WAITING, SHOAL_WAITING = "direct", "waiting", "shoal, waiting"
BEFORE = 100.0  # seconds, at least, for which pilots that wait are there before the workflow
MINUTE = 60.0


class Delays:
    """The delays of a workflow. A job can begin when those before it have ended; it has a delay until it computes, and
    another one from its end until that is known."""

    def __init__(self, batch: Batch, times: Sequence[JobTimes]) -> None:
        jobs = batch.jobs
        possible = [max((times[parent].ended for parent in job.after), default=0.0) for job in jobs]
        told = [max((times[parent].known for parent in job.after), default=0.0) for job in jobs]
        starts = [one.ended - job.seconds for one, job in zip(times, jobs, strict=True)]
        self.spans = [(start, one.ended) for start, one in zip(starts, times, strict=True)]
        self.mean = fmean(
            start - since + one.known - one.ended for start, since, one in zip(starts, told, times, strict=True)
        )
        self.first = fmean(start for start, job in zip(starts, jobs, strict=True) if not job.after)
        self.between = fmean(
            start - since for start, since, job in zip(starts, possible, jobs, strict=True) if job.after
        )
        longest = max(job.seconds + max((jobs[parent].seconds for parent in job.after), default=0.0) for job in jobs)
        self.turnaround = max(one.known for one in times) - longest

    def running(self, at: float) -> int:
        """Jobs that compute at a time."""
        return sum(start <= at < end for start, end in self.spans)


def workflow(inputs: Inputs) -> Batch:
    """The merging workflow W3: the same jobs in all ways."""
    settings = inputs.settings
    seconds = Normal(settings["job_s"], settings["job_spread"] * settings["job_s"])
    return TwoSteps(MERGING, int(settings["first"]), seconds, int(settings["merged"])).draw(
        Random(f"{inputs.seed}/workflow")
    )


def site_of(inputs: Inputs, most: int | None = None) -> Site:
    """The site, as all ways meet it: a broker's latency, then hosts."""
    settings = inputs.settings
    return Site(
        hosts=int(settings["pilots"]),
        wait=Exponential(settings["latency_s"]),
        start=Constant(settings["check_s"]),
        wall=settings["pilot_life_s"],
        limits=PilotLimits(most or int(settings["pilots"]), int(settings["pilots"])),
    )


def submitted_at(inputs: Inputs) -> float:
    """When the workflow is submitted: at any time between two looks of the PilotMonitor."""
    return BEFORE + Random(f"{inputs.seed}/submission").uniform(0.0, inputs.settings["monitor_s"])


def run_way(inputs: Inputs, batch: Batch, way: str, most: int | None = None) -> Outcome:
    """Run the workflow with the product's engine and agents. The paper's pilots ask for work at intervals; Shoal's are told."""
    settings = inputs.settings
    is_own = way in (OWN, SHOAL_WAITING)
    is_waiting = way in (WAITING, SHOAL_WAITING)
    site = site_of(inputs, most)
    every = settings["shoal_look_s"] if is_own else settings["monitor_s"]
    arrivals = tuple(Arrival(0.0, 1) for _ in range(int(settings["pilots"]))) if is_waiting else ()
    description = Description(
        sites=(site,),
        pilots=Pilots(arrivals=arrivals),
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]) if is_own else Uniform(0.0, settings["pull_s"]),
        provision=None
        if is_waiting
        else Provision(DemandRule(way), every, idle_end=60.0 if is_own else None, keeps_surplus=not is_own),
    )
    return PlanningWorld(description, [Given(batch._replace(at=submitted_at(inputs)))], inputs.seed).run()


def times_of(outcome: Outcome, at: float) -> list[JobTimes]:
    """When each job began, ended and was known to have ended after the submission: the last one's notification is taken for
    all."""
    ended = {one.task: one for one in outcome.record.attempts if one.outcome == "succeeded"}
    notification = outcome.makespan - max(one.end for one in ended.values())
    return [JobTimes(one.start - at, one.end - at, one.end - at + notification) for _, one in sorted(ended.items())]


def measure(inputs: Inputs) -> Measured:
    """Run the workflow in each way; without Shoal's own columns if a parameter is varied."""
    batch = workflow(inputs)
    found = {
        DIRECT: Delays(
            batch,
            DirectSubmission(batch, site_of(inputs), Exponential(inputs.settings["notify_s"]), inputs.seed).run(),
        )
    }
    inputs.tick()
    ways = (PILOTMONITOR, WAITING)
    for way in (*ways, PILOTMONITOR_REPAIRED, OWN, SHOAL_WAITING) if inputs.engine else ways:
        found[way] = Delays(batch, times_of(run_way(inputs, batch, way), submitted_at(inputs)))
        inputs.tick()
    values: dict[str, float] = {}
    direct = found[DIRECT]
    for way, one in found.items():
        values[f"delay.{way}"] = one.mean
        values[f"reduction.{way}"] = 100.0 * (1.0 - one.mean / direct.mean)
        values[f"turnaround.{way}"] = 100.0 * (1.0 - one.turnaround / direct.turnaround)
        values[f"first.{way}"] = one.first / direct.first
        values[f"between.{way}"] = one.between / direct.between
    values["order"] = values[f"reduction.{WAITING}"] - values[f"reduction.{PILOTMONITOR}"]
    if inputs.engine:
        for way in (PILOTMONITOR, PILOTMONITOR_REPAIRED):
            values[f"sent.{way}"] = run_way(inputs, batch, way, most=int(inputs.settings["first"])).asked
            inputs.tick()
    last = max(end for one in found.values() for _, end in one.spans)
    data: list[tuple[Value, ...]] = [
        (minute, way, one.running(MINUTE * minute))
        for way, one in found.items()
        for minute in range(int(last / MINUTE) + 2)
    ]
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="c.pilotmonitor",
    title="three ways of submitting a workflow, and the delays of its jobs",
    section="CMS V, figure 7",
    seconds=2.0,
    parameters=(
        Parameter("first", 80, Source.PAPER, "V: W3 has 80 jobs in its first step"),
        Parameter("merged", 2, Source.PAPER, "V: W3 has 40 in its second step, each after two of the first"),
        Parameter("pilots", 120, Source.PAPER, "V: predefined pilots, and about what a site runs"),
        Parameter("latency_s", 300.0, Source.PAPER, "I: almost five minutes on average until a job starts; without memory"),
        Parameter("job_s", 1_860.0, Source.PAPER,
                  "V, figure 8: with the cache 437 s less of stage-in make a job 18 to 20 % shorter"),
        Parameter("pilot_life_s", 1e6, Source.PAPER, "IV.E: pilots run for ever"),
        Parameter("job_spread", 0.1, Source.CHOSEN, "standard deviation over the mean of a job; not printed"),
        Parameter("notify_s", 300.0, Source.CHOSEN, "until gLite tells of an end, on average; not printed: as long as a start"),
        Parameter("monitor_s", 60.0, Source.CHOSEN, "between two looks of the PilotMonitor; not printed"),
        Parameter("pull_s", 30.0, Source.CHOSEN, "between two requests of an idle pilot of the paper; not printed, GWP has 30 s"),
        Parameter("check_s", 10.0, Source.CHOSEN, "until a pilot has checked its host; not printed"),
        Parameter("shoal_look_s", 30.0, Source.CHOSEN, "between two looks of Shoal's provisioner: ADR 0045", varied=False),
        *TIMES,
    ),
    claims=(
        Claim("reduction.pilotmonitor", "delays of a job less than direct, PilotMonitor", AtLeast(60.0, "more than 60 %"), "%",
              as_it_is=AsItIs("reduction.shoal", "reduction.pilotmonitor", lower_is_better=False)),
        Claim("reduction.waiting", "delays of a job less than direct, pilots that wait", AtLeast(75.0, "more than 75 %"), "%",
              "What is left in the paper may be ProdAgent's own delay, which is not modelled.",
              as_it_is=AsItIs("reduction.shoal, waiting", "reduction.waiting", lower_is_better=False)),
        Claim("order", "the second less the first", AtLeast(0.0, "fewer delays with pilots that wait"), "points"),
        Claim("turnaround.pilotmonitor", "delay of the workflow less than direct, PilotMonitor",
              AtLeast(60.0, "more than 60 %"), "%",
              as_it_is=AsItIs("turnaround.shoal", "turnaround.pilotmonitor", lower_is_better=False)),
        Claim("turnaround.waiting", "delay of the workflow less than direct, pilots that wait",
              AtLeast(75.0, "more than 75 %"), "%",
              as_it_is=AsItIs("turnaround.shoal, waiting", "turnaround.waiting", lower_is_better=False)),
        Claim("first.pilotmonitor", "first delay over direct, PilotMonitor", Between(0.5, 2.0, "as gLite's, and the queue's")),
        Claim("first.waiting", "first delay over direct, pilots that wait", AtMost(0.1, "no submission delays")),
        Claim("between.pilotmonitor", "delay between the steps over direct, PilotMonitor", AtMost(0.1, "almost none")),
        Claim("between.waiting", "delay between the steps over direct, pilots that wait", AtMost(0.1, "almost none")),
        Claim("reduction.pilotmonitor-repaired", "delays of a job less than direct, PilotMonitor repaired", NotJudged(), "%",
              "As printed it sends more pilots than there are jobs, and is faster by that: a group that is as large as the "
              "pilots that wait for it counts as not covered."),
        Claim("sent.pilotmonitor", "pilots sent if maxPilots is the size of the group, as printed", NotJudged(),
              note="Steps 9 and 10 send none for a group that is not smaller than the free slots."),
        Claim("sent.pilotmonitor-repaired", "the same, repaired", NotJudged()),
    ),
    measure=measure,
    columns=("minute", "way", "running"),
    plot=Plot("minute", "running", "way", "minutes after the submission", "jobs that run"),
    watched=("reduction.pilotmonitor", "reduction.waiting", "turnaround.pilotmonitor"),
    ablations=(
        Ablation("gLite takes a second for a start and for a notification", {"latency_s": 1.0, "notify_s": 1.0},
                 "reduction.pilotmonitor", AtMost(0.0), "%"),
    ),
    steps=8,
    modelled=(
        "Pilots, PilotMonitor (`sched/demand.py`) and the queue of tasks are Shoal's engine, agents and policies; "
        "direct submission, gLite and the site are a model. The paper says of delays what figure 7 shows, not how they were "
        "counted; so there are two readings: the delays of a job (submission and scheduling, notification), and of "
        "the workflow (its turnaround less its longest chain of jobs). ProdAgent's own delay before the second step, the same in "
        "all ways, is left out."
    ),
)  # fmt: skip
