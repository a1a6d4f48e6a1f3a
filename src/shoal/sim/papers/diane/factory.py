"""`u.factory`: the heuristic agent factory against people who submit workers by hand [DIANE 4.7, 7.6]."""

from __future__ import annotations

from itertools import chain
from random import Random

from shoal.sched.factory import (
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    FactoryRule,
    SentPilot,
    choose_element,
    fitness,
    missing,
    remembered,
)
from shoal.sim.clock import Clock
from shoal.sim.papers.agreement import AtLeast, AtMost, Between, Printed
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value

HOUR, DAY = 3_600.0, 86_400.0
HEURISTIC, MANUAL = "heuristic", "manual"


class WorkerPool:
    """Computing elements of which some cannot run the application, and workers that are sent to them."""

    def __init__(self, inputs: Inputs, mode: str) -> None:
        settings = inputs.settings
        self._mode, self._settings = mode, settings
        self._rng = Random(f"{inputs.seed}/factory")
        self._clock = Clock(0.0)
        self._names = [f"ce{number:03}" for number in range(int(settings["elements"]))]
        self._unfit = {name for name in self._names if self._rng.random() < settings["unfit_share"]}
        self._rule = FactoryRule(
            int(settings["pool"]),
            int(settings["max_pending"]) if mode == HEURISTIC else int(settings["pool"]),
            memory=float(settings["memory_hours"]) * HOUR,
        )
        self._sent: dict[int, SentPilot] = {}  # workers that wait or run
        self._ended: list[SentPilot] = []
        self._running = 0
        self._submitted = 0
        self.active = 0  # workers that brought at least one result
        self.invalid = 0  # workers that ran and never brought any
        self.size: list[tuple[float, int]] = []  # of the pool, each hour

    def run(self, days: float) -> WorkerPool:
        """Let days pass."""
        for name in self._names:
            self._set_change(name)
        every = (
            self._settings["factory_minutes"] * 60.0
            if self._mode == HEURISTIC
            else self._settings["manual_hours"] * HOUR
        )
        self._fill(every)
        self._note()
        while self._clock.now < days * DAY and self._clock.step():
            pass
        return self

    def _set_change(self, name: str) -> None:
        """An element breaks or is repaired now and then; the part of unfit ones stays about the same."""
        self._clock.after(
            self._rng.expovariate(1.0 / (self._settings["change_days"] * DAY)), lambda: self._change(name)
        )

    def _change(self, name: str) -> None:
        self._unfit.discard(name)
        if self._rng.random() < self._settings["unfit_share"]:
            self._unfit.add(name)
        self._set_change(name)

    def _fill(self, every: float) -> None:
        """Submit what the pool lacks, and look again later."""
        count = missing(self._rule, self._running, len(self._sent) - self._running)
        fit = {}
        if self._mode == HEURISTIC and self._settings["uses_fitness"]:
            self._ended = remembered(self._rule, self._ended, self._clock.now)
            fit = fitness(chain(self._sent.values(), self._ended))
        for _ in range(count):
            self._submit(choose_element(fit, self._rng.random()) or self._rng.choice(self._names))
        self._clock.after(every, lambda: self._fill(every))

    def _submit(self, element: str) -> None:
        number = self._submitted
        self._submitted += 1
        self._sent[number] = SentPilot(element, PENDING, self._clock.now)
        wait = self._rng.expovariate(1.0 / (self._settings["wait_hours"] * HOUR))
        self._clock.after(wait, lambda: self._start(number))

    def _start(self, number: int) -> None:
        element = self._sent[number].element
        self._running += 1
        self._sent[number] = SentPilot(element, RUNNING, self._clock.now)
        if element in self._unfit or self._rng.random() < self._settings["mishap"]:
            self._clock.after(self._settings["fails_after_minutes"] * 60.0, lambda: self._end(number, FAILED))
            return
        life = self._rng.expovariate(1.0 / (self._settings["life_hours"] * HOUR))
        first = self._settings["first_result_hours"] * HOUR
        if life < first:
            self._clock.after(life, lambda: self._end(number, FAILED))
        else:
            self._clock.after(first, self._uploads)
            self._clock.after(life, lambda: self._end(number, COMPLETED))

    def _uploads(self) -> None:
        self.active += 1

    def _end(self, number: int, status: str) -> None:
        self.invalid += status == FAILED
        self._running -= 1
        self._ended.append(SentPilot(self._sent.pop(number).element, status, self._clock.now))

    def _note(self) -> None:
        self.size.append((self._clock.now / HOUR, self._running))
        self._clock.after(HOUR, self._note)


def measure(inputs: Inputs) -> Measured:
    """Let both ways work for some weeks on the same elements."""
    days = float(inputs.settings["days"])
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for mode in (HEURISTIC, MANUAL):
        pool = WorkerPool(inputs, mode).run(days)
        values[f"added.{mode}"] = pool.active / (24.0 * days)
        values[f"invalid.{mode}"] = 100.0 * pool.invalid / (pool.invalid + pool.active)
        data += [(hour, mode, size) for hour, size in pool.size]
        inputs.tick()
    values["ratio"] = values["added.heuristic"] / values["added.manual"]
    values["invalid.ratio"] = values["invalid.heuristic"] / values["invalid.manual"]
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="u.factory",
    title="the heuristic agent factory against submission by hand",
    section="DIANE 7.6",
    seconds=3.0,
    parameters=(
        Parameter("pool", 1450, Source.PAPER, "7.6: workers that are wanted, one for each snapshot"),
        Parameter("uses_fitness", True, Source.PAPER, "4.7.3"),
        Parameter("first_result_hours", 6.0, Source.PAPER, "7.4.2, 7.4.3: 3 iterations of 1.5 to 2.5 h before an upload"),
        Parameter("days", 20.0, Source.CHOSEN, "enough for several lives of a worker", varied=False),
        Parameter("elements", 60, Source.CHOSEN, "computing elements that the broker may choose; not printed"),
        Parameter("unfit_share", 0.5, Source.CHOSEN, "elements on which the program does not run; not printed"),
        Parameter("change_days", 7.0, Source.CHOSEN, "until an element breaks or is repaired; not printed"),
        Parameter("mishap", 0.05, Source.CHOSEN, "workers that fail elsewhere, the thesis' class C; not printed"),
        Parameter("fails_after_minutes", 20.0, Source.CHOSEN, "until a worker on an unfit element ends; not printed"),
        Parameter("wait_hours", 1.0, Source.CHOSEN, "in the queue, on average; not printed"),
        Parameter("life_hours", 30.0, Source.CHOSEN, "of a worker, on average, by limits of batch systems; not printed"),
        Parameter("memory_hours", 24.0, Source.CHOSEN, "after which the factory forgets; not printed"),
        Parameter("max_pending", 100, Source.CHOSEN, "MAX_PENDING, a small over-submission; not printed"),
        Parameter("factory_minutes", 60.0, Source.CHOSEN, "between two looks of the factory; not printed"),
        Parameter(
            "manual_hours", 12.0, Source.FITTED, "until people fill up the pool again; they had no schedule",
            fitted_to="added.manual",
        ),
    ),
    claims=(
        Claim("added.manual", "active workers added an hour, by hand", Printed(23.0), "/h"),
        Claim("added.heuristic", "active workers added an hour, heuristic factory", Printed(45.0), "/h",
              "Follows from the chosen lives and bounds, see the sensitivity: the thesis does not print them."),
        Claim("ratio", "the second over the first", AtLeast(1.0, "45 against 23")),
        Claim("invalid.heuristic", "workers that bring nothing, heuristic factory",
              Between(3.0, 30.0, "of the order of 10 %"), "%",
              "Of workers, here; the thesis speaks of wasted resources. 18 % of ours end before their first result by the "
              "chosen lives alone."),
        Claim("invalid.ratio", "the same over those by hand", AtMost(1.0, "fewer")),
    ),
    measure=measure,
    columns=("hour", "mode", "workers"),
    plot=Plot("hour", "workers", "mode", "hours", "workers that run"),
    watched=("added.heuristic", "added.manual", "invalid.heuristic"),
    ablations=(
        Ablation("the factory lets the broker choose", {"uses_fitness": False}, "invalid.heuristic", AtLeast(40.0), "%"),
    ),
    steps=2,
    modelled=(
        "The choice of elements and the bounds are `sched/factory.py`; elements, queues and workers are a model. The thesis "
        "prints hardly any parameter of the grid, so that only the order and the fitted cell's neighbour mean something."
    ),
)  # fmt: skip
