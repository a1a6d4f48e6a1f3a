"""World and workload files (TOML). What may stand in them: docs/howto/plan-with-the-simulator.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from shoal.flow.formats.wfformat import Instance, Task
from shoal.flow.formats.wfformat import read as read_wfformat
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_ELEMENTS
from shoal.model.policy import INTERVAL, MatchRule, Policy
from shoal.sched.demand import POLICIES, RULE_LIMITS, DemandRule
from shoal.sim.distributions import Distribution
from shoal.sim.network import REPLY, REQUEST, Link
from shoal.sim.planning.description import (
    BOTH,
    LINK,
    MOMENT,
    NONE,
    NORMAL,
    Background,
    Cut,
    Description,
    Downtime,
    PilotLimits,
    Pilots,
    Provision,
    ServerTimes,
    Site,
    Storage,
)
from shoal.sim.planning.table_reader import TableReader, read_toml
from shoal.sim.planning.workloads import MERGING, SERIAL, SPLITTING, Bag, Batch, Given, Job, Part, TwoSteps

MB = 1_000_000
DRAWS = 100  # after which a quantity that was 0 each time is taken for 0
WAYS = {"both": BOTH, "request": (REQUEST,), "reply": (REPLY,)}


def read_world(path: str) -> Description:
    """Read a world file."""
    reader = read_toml(path)
    sites = tuple(_site(one) for one in reader.tables("site")) or (Site(),)
    names = [site.name for site in sites]
    for name in names:
        if names.count(name) > 1:
            raise reader.wrong("site", f"has two sites named {echo(name)}")
    provision = _provision(reader.table("provision"))
    description = Description(
        sites,
        Pilots() if provision is not None else _pilots(reader.table("pilots"), reader),
        _link(reader.table("link")) or LINK,
        _server(reader.table("server")),
        reader.distribution("task_start", MOMENT),
        _policy(reader.table("match")),
        provision,
        reader.flag("beats"),
    )
    reader.close()
    if not any(site.share > 0.0 for site in sites):
        raise reader.wrong("site", "gives no site a share of the pilots")
    return description


def read_workload(path: str) -> list[Part]:
    """Read a workload: a TOML file, or a workflow in WfFormat (.json)."""
    if Path(path).suffix == ".json":
        return [_recorded(path)]
    reader = read_toml(path)
    parts: list[Part] = [_bag(one) for one in reader.tables("bag")]
    parts += [_two_steps(one) for one in reader.tables("two_steps")]
    reader.close()
    if not parts:
        raise BadInput(f"{echo(path)} has no work in it: write [[bag]] or [[two_steps]]")
    return parts


def _recorded(path: str) -> Given:
    """The tasks of a workflow in WfFormat; each takes the run time that was recorded."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read {echo(path)}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{echo(path)} is not UTF-8: {error}") from None
    instance = read_wfformat(text, path)
    numbers = {task.id: number for number, task in enumerate(instance.tasks)}
    return Given(Batch([_recorded_job(path, instance, task, numbers) for task in instance.tasks]))


def _recorded_job(path: str, instance: Instance, task: Task, numbers: Mapping[str, int]) -> Job:
    if task.seconds is None:
        raise BadInput(f"{echo(path)}: task {echo(task.id)} has no recorded run time")
    read, written = (sum(instance.sizes.get(name, 0) for name in names) / MB for names in (task.inputs, task.outputs))
    after = tuple(numbers[parent] for parent in task.parents)
    return Job(task.seconds, after, max(1, int(task.cores or 1)), 0.0, read, written)


def read_policy(path: str) -> DemandRule:
    """Read a file with the table [provision] alone: a policy for a person's sites."""
    whole = read_toml(path)
    reader = whole.table("provision")
    if reader is None:
        raise whole.wrong("provision", 'is missing: [provision] policy = "shoal"')
    rule = _rule(reader)
    reader.close()
    whole.close()
    return rule


def _pilots(reader: TableReader | None, whole: TableReader) -> Pilots:
    if reader is None:
        raise whole.wrong("pilots", "is missing: how many are asked for, [pilots] count = 10")
    pilots = Pilots(reader.whole("count", None, 1, 100_000), reader.flag("keep"), reader.number("per_hour", 0.0))
    reader.close()
    return pilots


def _provision(reader: TableReader | None) -> Provision | None:
    if reader is None:
        return None
    rule = _rule(reader)
    interval = reader.duration("interval", Provision().interval) or 0.0
    if interval < 1.0:
        raise reader.wrong("interval", "has to be a second or more")
    reader.close()
    return Provision(rule, interval)


def _rule(reader: TableReader) -> DemandRule:
    """A policy and its numbers; what is not there is as usual."""
    usual = DemandRule()
    numbers: dict[str, Any] = {}
    policy = reader.text("policy", usual.policy, POLICIES)
    for name, (low, high) in RULE_LIMITS.items():
        default = getattr(usual, name)
        if isinstance(default, int):
            numbers[name] = reader.whole(name, default, int(low), int(high))
        else:
            numbers[name] = reader.number(name, default, low, high)
    return DemandRule(policy, **numbers)


def _server(reader: TableReader | None) -> ServerTimes:
    if reader is None:
        return ServerTimes()
    times = ServerTimes(reader.distribution("commit", MOMENT), reader.duration("service", 0.0) or 0.0)
    reader.close()
    return times


def _link(reader: TableReader | None) -> Link | None:
    if reader is None:
        return None
    link = Link(
        reader.distribution("latency", LINK.latency),
        reader.number("bandwidth_mb_s", 0.0) * MB,
        reader.number("loss", 0.0, 0.0, 0.9),
        reader.number("duplicate", 0.0, 0.0, 1.0),
        reader.number("slow", 0.0, 0.0, 1.0),
        reader.distribution("delay", LINK.delay),
    )
    reader.close()
    return link


def _policy(reader: TableReader | None) -> Policy | None:
    if reader is None:
        return None
    default = MatchRule()
    rule = MatchRule(
        INTERVAL,
        reader.number("interval", default.interval, 0.001, 86_400.0),
        reader.whole("chunk", default.chunk, 1),
        reader.whole("max_running", default.max_running),
    )
    reader.close()
    return Policy(match=rule)


def _site(reader: TableReader) -> Site:
    lifetime = reader.distribution("lifetime", NONE)
    site = Site(
        name=reader.text("name", "local"),
        hosts=reader.whole("hosts", 0),
        slots=reader.whole("slots", 1, 1, 100_000),
        speed=reader.distribution("speed", NORMAL),
        share=reader.number("share", 1.0),
        wait=reader.distribution("wait", NONE),
        background=_background(reader.table("background")),
        wall=reader.duration("wall"),
        start=reader.distribution("start", NONE),
        start_failure=reader.number("start_failure", 0.0, 0.0, 0.99),
        lifetime=None if lifetime is NONE else lifetime,
        task_failure=reader.number("task_failure", 0.0, 0.0, 1.0),
        downtimes=tuple(Downtime(*reader.interval("downtimes", one)) for one in reader.pairs("downtimes")),
        cuts=tuple(_cut(reader, one) for one in reader.pairs("cuts", (2, 3))),
        link=_link(reader.table("link")),
        storage=_storage(reader.table("storage")),
        limits=_limits(reader),
    )
    reader.close()
    if site.wall == 0.0:
        raise reader.wrong("wall", "has to be more than 0")
    if site.lifetime is not None and not _may_be_positive(site.lifetime):
        raise reader.wrong("lifetime", "has to be more than 0")
    return site


def _limits(reader: TableReader) -> PilotLimits:
    usual = PilotLimits()
    limits = PilotLimits(
        reader.whole("max_pilots", usual.max_pilots, 0, 100_000),
        reader.whole("max_queued", usual.max_queued, 0, 100_000),
        reader.whole("min_pilots", usual.min_pilots, 0, 100_000),
        reader.whole("min_idle", usual.min_idle, 0, 100_000),
        reader.duration("min_wall", usual.min_wall) or 0.0,
        reader.number("rank", usual.rank),
    )
    if limits.min_pilots > limits.max_pilots:
        raise reader.wrong("min_pilots", f"is more than max_pilots, {limits.max_pilots}")
    return limits


def _may_be_positive(quantity: Distribution) -> bool:
    rng = Random(0)
    return any(quantity.draw(rng) > 0.0 for _ in range(DRAWS))


def _cut(reader: TableReader, values: list[object]) -> Cut:
    way = values[2] if len(values) > 2 else "both"
    if way not in WAYS:
        raise reader.wrong("cuts", f"loses one of {', '.join(WAYS)}, not {echo(way)}")
    start, end = reader.interval("cuts", values)
    return Cut(start, end, WAYS[str(way)])


def _background(reader: TableReader | None) -> Background | None:
    if reader is None:
        return None
    background = Background(reader.number("per_hour", None, 0.001), reader.distribution("seconds"))
    reader.close()
    return background


def _storage(reader: TableReader | None) -> Storage | None:
    if reader is None:
        return None
    storage = Storage(
        reader.number("bandwidth_mb_s", None, 0.001),
        reader.number("total_mb_s", 0.0),
        reader.number("delay", 0.0),
        reader.number("failure", 0.0, 0.0, 0.99),
    )
    reader.close()
    return storage


def _bag(reader: TableReader) -> Bag:
    bag = Bag(
        reader.whole("tasks", None, 1),
        reader.distribution("seconds"),
        reader.whole("cores", 1, 1, 100_000),
        reader.number("failure", 0.0, 0.0, 1.0),
        reader.number("input_mb", 0.0),
        reader.number("output_mb", 0.0),
        reader.duration("at", 0.0) or 0.0,
        reader.whole("retries", 3, 0, 100),
    )
    reader.close()
    return bag


def _two_steps(reader: TableReader) -> TwoSteps:
    steps = TwoSteps(
        reader.text("kind", SERIAL, (SERIAL, SPLITTING, MERGING)),
        reader.whole("first", None, 1),
        reader.distribution("seconds"),
        reader.whole("fan", 2, 1),
        reader.number("input_mb", 0.0),
        reader.number("output_mb", 0.0),
        reader.duration("at", 0.0) or 0.0,
        reader.whole("retries", 3, 0, 100),
    )
    reader.close()
    tasks = steps.first * (1 + (steps.fan if steps.kind == SPLITTING else 1))
    if tasks > MAX_ELEMENTS:
        raise reader.wrong("fan", f"makes {tasks:,} tasks of it: {MAX_ELEMENTS:,} at most")
    return steps


def with_pilots(description: Description, count: int) -> Description:
    """The same world with another number of pilots asked for."""
    return replace(description, pilots=replace(description.pilots, count=count))
