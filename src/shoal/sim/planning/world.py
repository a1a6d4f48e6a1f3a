"""A planning world: the product's engine and agents on a virtual clock, with sites, batch queues and a workload.

PlanningWorld(description, workload, seed).run()      an Outcome
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from shoal.engine.changes import Change
from shoal.engine.commands import Accept, Bury, Enrol, SetPolicy, Submit, Talk
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId, TaskId, parse_attempt
from shoal.model.timing import Timing
from shoal.pilot.agent.events import Announced, Join, Leave, NoAnswer
from shoal.sim.clock import Clock
from shoal.sim.distributions import Constant
from shoal.sim.host import OWNER, TIMEOUT, Host, Placement
from shoal.sim.network import REPLY, REQUEST, Link, Network
from shoal.sim.planning.batch_queue import BatchQueue
from shoal.sim.planning.description import BOTH, Arrival, Cut, Description, Site
from shoal.sim.planning.outcome import Outcome, Recorder
from shoal.sim.planning.provisioner import Allocation, SimProvisioner
from shoal.sim.planning.storage import StorageElement
from shoal.sim.planning.workloads import Batch, Job, Workload, tables
from shoal.sim.server import SimServer
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Lease, Register, Registered, Reply
from shoal.wire.submission import parse_submission

MEMORY, DISK = 1 << 40, 1 << 44  # bytes of every pilot: nothing is short of them
SILENT = 1e9  # times as long as usual: a beat that never comes
STUCK = 86_400.0  # seconds in which nothing runs and nobody comes, after which nothing will
SLOWEST = 0.01  # speed of a host: a distribution may draw 0, with which no task would ever end
KILL_AFTER = 30.0  # seconds after the end of an allocation of a provisioner
ASK_AGAIN = 1.0  # seconds after the end of a pilot: one that ends at once would be asked for without end at one moment
# Bytes of a message, and of each lease or report in it, as JSON with its headers: about what the product sends for a short
# command. They matter only on a link with a bandwidth.
MESSAGE_BYTES, ITEM_BYTES = 500, 300
SHOW_EVERY = 5_000  # steps between two calls of `progress`
Progress = Callable[[int, int], None]


def _timing(beats: bool) -> Timing:
    """The product's timing. Without beats a reply that has no news is held for ever, and nobody is missed: the world
    itself reports the dead."""
    usual = Timing()
    if beats:
        return usual
    patience = {name: SILENT * getattr(usual, name) for name in ("beat", "suspect", "lease", "idle_end", "spool_end")}
    return replace(usual, **patience)


class ProvisionedPilot:
    """A pilot of a provisioner on its host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def is_busy(self) -> bool:
        """True if it runs a task."""
        return bool(self._host.payloads)

    def release(self) -> None:
        """End it, since nothing waits for it."""
        self._host.handle(Leave("nothing waits for it"))


class PlanningWorld:
    """One world and one workload, from one seed."""

    def __init__(self, description: Description, workload: Workload, seed: int) -> None:
        self.description, self.seed = description, seed
        self.clock = Clock()
        # The server misses a pilot that is cut off by its beats only.
        self._beats = description.beats or any(site.cuts for site in description.sites)
        self.timing = _timing(self._beats)
        self.ledger = Recorder(self.clock)
        self.messages: Counter[str] = Counter()
        self.server = SimServer(
            self.clock, Random(f"{seed}/server"), self.timing, self._committed, description.server.commit
        )
        self.network = Network(
            self.clock, Random(f"{seed}/network"), self._link, TIMEOUT, lambda kind: self.messages.update([kind])
        )
        self._batches = [part.draw(Random(f"{seed}/work{number}")) for number, part in enumerate(workload)]
        self._runs: dict[int, Batch] = {}
        self._unsubmitted = len(self._batches)
        self._open: set[int] = set()  # runs that go on
        self._finals: Counter[str] = Counter()
        self._sites = {site.name: site for site in description.sites}
        self._queues = {site.name: BatchQueue(site, self.clock, seed) for site in description.sites}
        self._storage = {
            site.name: StorageElement(site.storage, self.clock, Random(f"{seed}/{site.name}/storage"))
            for site in description.sites
            if site.storage is not None
        }
        self._cuts: Counter[tuple[str, str]] = Counter()  # that go on, by site and kind of message
        self._hosts: dict[str, Host] = {}  # that live
        self._speeds: dict[str, float] = {}
        self._queued_hosts: set[str] = set()  # those that hold a place of a batch queue
        self._walls: dict[str, float] = {}  # when the batch system ends a host's pilot
        self._known_ends: set[str] = set()  # hosts whose end comes when the server notes it
        self._sent: dict[str, float] = {}  # when each pilot sent its last exchange
        self._failures: Counter[TaskId] = Counter()
        self._numbers = 0
        self._asking = Random(f"{seed}/asking")
        self._speed_draws = Random(f"{seed}/speeds")
        self._lives = Random(f"{seed}/lives")
        self._starts = Random(f"{seed}/starts")
        self._asked = self._enrolled = 0
        self._coming = 0  # pilots that were asked for, or will arrive, and are not there
        self._next_request = self.clock.now  # when the next pilot can be asked for
        self._service_free = self.clock.now
        self._began = self.clock.now
        self.steps = 0
        self._allocations: dict[str, Allocation] = {}  # of hosts that a provisioner asked for
        provision = description.provision
        self.provisioner = (
            None
            if provision is None
            else SimProvisioner(provision, description.sites, self.clock, seed, self.ledger, self._request_allocation)
        )

    def run(self, progress: Progress = lambda done, total: None) -> Outcome:
        """Simulate to the end of the workload."""
        was_collecting = gc.isenabled()
        gc.disable()  # a fifth of the time, for next to no garbage: messages and events hold no cycles
        try:
            return self._run(progress)
        finally:
            if was_collecting:
                gc.enable()

    def _run(self, progress: Progress) -> Outcome:
        engine = self.server.start()
        if self.description.policy is not None:
            self.server.apply(SetPolicy(self.description.policy, "{}", OWNER))
        for batch in self._batches:
            self.clock.after(batch.at, lambda b=batch: self._submit(b))  # type: ignore[misc]  # bound now
        for site in self.description.sites:
            self._set_times(site)
        for arrival in self.description.pilots.arrivals:
            self._coming += 1
            self.clock.after(arrival.at, lambda a=arrival: self._arrive(a))  # type: ignore[misc]  # bound now
        for _ in range(self.description.pilots.count):
            self._ask()
        self._provision()
        total = sum(len(batch.jobs) for batch in self._batches)
        stuck = ""
        while self._unsubmitted or self._open:
            self.clock.step()
            self.steps += 1
            if self.steps % SHOW_EVERY == 0:
                done = sum(run.settled for run in engine.state.runs.values())
                progress(done, total)
                stuck = self._why_stuck()
                if stuck:
                    break
        return self._outcome(total, stuck)

    def _why_stuck(self) -> str:
        now = self.clock.now
        if now - self._began > self.description.horizon:
            return "it takes longer than the horizon of the world"
        if self._unsubmitted or self.ledger.running:
            return ""
        if self.provisioner is not None:
            gave_up = not self.provisioner.has_pilots and now - self.ledger.last_change > STUCK
            return "no pilot was asked for in a day" if gave_up else ""
        if not self._hosts and not self._coming:
            return "there is no pilot left, and none comes"
        if not self._coming and now - self.ledger.last_change > STUCK:
            return "nothing ran for a day"
        return ""

    def _outcome(self, total: int, stuck: str) -> Outcome:
        record = self.ledger.finish()
        makespan = math.inf if stuck else record.end
        succeeded = self._finals["succeeded"]
        failed = sum(self._finals.values()) - succeeded
        return Outcome(
            self.seed, makespan, record, total, succeeded, failed, self._asked, self._enrolled, self.messages,
            self.steps, self.ledger.trace, stuck,
        )  # fmt: skip

    # --- the work
    def _submit(self, batch: Batch) -> None:
        submission = parse_submission({"tasks": tables(batch), "cwd": "/"})
        self.messages["submit"] += 1

        def accepted(result: dict[str, Any]) -> None:
            self.server.apply(Accept(run))

        def refused(error: ShoalError) -> None:
            raise error

        assert self.server.engine is not None
        run = 1 + len(self._runs)  # as the engine counts them
        self._runs[run] = batch
        self._open.add(run)
        self._unsubmitted -= 1
        self.ledger.add_run(run, sum(job.cores for job in batch.jobs), len(batch.jobs))
        self.server.request(Submit(submission, OWNER, f"key{run}"), accepted, refused)

    def _committed(self, changes: list[Change]) -> None:
        assert self.server.engine is not None
        runs = self.server.engine.state.runs
        for number in [number for number in self._open if number in runs and runs[number].finished is not None]:
            self._open.discard(number)
            self._finals.update(runs[number].finals)
            self.note(f"r{number} is over")

    def run_time(self, host: Host, lease: Lease) -> tuple[float, bool]:
        """How long a payload takes on a host, and whether it fails. What it reads and writes passes the site's storage; the
        writing is drawn at the start, too."""
        attempt = parse_attempt(lease.attempt)
        job = self._job(attempt, lease)
        site = self._sites.get(host.site)
        failures = self._failures[attempt.task] if job.failed else 0
        known = failures < len(job.failed)
        seconds = (job.failed[failures] if known else job.seconds) / self._speeds[host.name]
        start = self.description.task_start
        seconds += start.value if isinstance(start, Constant) else start.draw(self._starts)
        chance = 1.0 - (1.0 - job.failure) * (1.0 - (site.task_failure if site is not None else 0.0))
        fails = (
            chance > 0.0 and Random(f"{self.seed}/{attempt.run}.{attempt.element}@{attempt.number}").random() < chance
        )
        storage = self._storage.get(host.site)
        if storage is not None:
            before = 0  # accesses of the task itself: it has read everything when it writes
            for megabytes in (job.input_mb, job.output_mb):
                if megabytes:
                    access = storage.access(megabytes, before)
                    before += 1
                    seconds += access.seconds
                    fails = fails or access.fails
        tag = self._runs[attempt.run].publishes
        if tag:
            self.clock.after(0.999 * seconds, lambda: self._publish(host, lease.attempt, tag))
        return seconds, fails or known

    def _publish(self, host: Host, attempt: str, tag: str) -> None:
        """A task tells how fast its host is; whoever asks for pilots sees it, too."""
        speed = self._speeds[host.name]
        host.handle(Announced(attempt, {tag: speed}))
        if self.provisioner is not None:
            self.provisioner.note_speed(host.site, speed)

    def _job(self, attempt: AttemptId, lease: Lease) -> Job:
        """The job of an attempt; of divisible work, what the units of its piece take together."""
        if "SHOAL_COUNT" not in lease.env:
            return self._runs[attempt.run].jobs[attempt.element - 1]
        unit, units = self._runs[attempt.run].jobs[0], int(lease.env["SHOAL_COUNT"])
        return unit._replace(
            seconds=units * unit.seconds, input_mb=units * unit.input_mb, output_mb=units * unit.output_mb
        )

    def steps_of(self, attempt: AttemptId) -> tuple[int, float, bool, bool]:
        """No task here writes checkpoints."""
        return 0, 0.0, False, False

    def payload_failed(self, attempt: str) -> None:
        """Write it down."""
        self._failures[parse_attempt(attempt).task] += 1
        self.ledger.payload_failed()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.ledger.note(text)

    # --- messages
    def _link(self, end: str) -> Link:
        host = self._hosts.get(end)
        site = self._sites.get(host.site) if host is not None else None
        return site.link if site is not None and site.link is not None else self.description.link

    def _serve(self, do: Callable[[], None]) -> None:
        """Have the server take a request: those before it come first."""
        service = self.description.server.service
        if not service:
            do()
            return
        self._service_free = max(self.clock.now, self._service_free) + service
        self.clock.at(self._service_free, do)

    def join(self, host: Host, action: Join) -> None:
        """Carry the registration of a pilot to the server, and the answer back."""
        ends = self._walls.get(host.name)
        register = Register(
            PROTOCOL, "0", host.hostname, host.identity, host.capacity, site=host.site, former=action.former,
            nonce=action.nonce, ends=None if ends is None else max(0.0, ends - self.clock.now),
            tags={self.description.speed_tag: self._speeds[host.name]} if self.description.speed_tag else {},
        )  # fmt: skip

        def lost() -> None:
            host.handle(NoAnswer(0))

        def arrive() -> None:
            self.messages["register"] += 1
            self.server.request(Enrol(register, host.owner, host.site), answer, lambda error: lost())

        def answer(registered: Registered) -> None:
            self.network.send(REPLY, host.name, lambda: joined(registered), lost, MESSAGE_BYTES)

        def joined(registered: Registered) -> None:
            if host.alive and host.agent.registered is None:  # else it is a second answer to one request
                self._enrolled += self.ledger.pilot_came(host.name, host.capacity.cores)
                host.joined(registered)

        self.network.send(REQUEST, host.name, lambda: self._serve(arrive), lost, MESSAGE_BYTES)

    def send(self, host: Host, exchange: Exchange) -> None:
        """Carry an exchange to the server, and the reply back."""
        self._sent[host.name] = self.clock.now

        def lost() -> None:
            host.handle(NoAnswer(exchange.seq))

        def arrive() -> None:
            self.messages["exchange"] += 1
            self.server.exchange(Talk(exchange), answer, refuse)

        def answer(reply: Reply) -> None:
            size = MESSAGE_BYTES + ITEM_BYTES * len(reply.leases)
            self.network.send(REPLY, host.name, lambda: host.answered(reply), lost, size)

        def refuse(error: ShoalError) -> None:
            self.network.send(REPLY, host.name, lambda: host.refused(exchange, error), lost, MESSAGE_BYTES)

        size = MESSAGE_BYTES + ITEM_BYTES * (len(exchange.reports) + len(exchange.batches))
        self.network.send(REQUEST, host.name, lambda: self._serve(arrive), lost, size)

    # --- pilots
    def _set_times(self, site: Site) -> None:
        for downtime in site.downtimes:
            self.clock.after(downtime.start, lambda s=site: self._kill_all(s))  # type: ignore[misc]  # bound now
        for cut in site.cuts:
            self.clock.after(cut.start, lambda s=site, c=cut: self._cut(s, c, 1))  # type: ignore[misc]  # bound now
            self.clock.after(cut.end, lambda s=site, c=cut: self._cut(s, c, -1))  # type: ignore[misc]  # bound now

    def _cut(self, site: Site, cut: Cut, change: int) -> None:
        """A cut begins or ends; what others cut meanwhile stays so."""
        for kind in cut.kinds:
            self._cuts[site.name, kind] += change
        names = self._names(site)
        self.network.mend(names)
        self.network.cut(names, self._lost_kinds(site.name))

    def _lost_kinds(self, site: str) -> list[str]:
        return [kind for kind in BOTH if self._cuts[site, kind]]

    def _names(self, site: Site) -> list[str]:
        return [name for name, host in self._hosts.items() if host.site == site.name]

    def _kill_all(self, site: Site) -> None:
        for name in self._names(site):
            self._hosts[name].die()

    def _ask(self, delay: float = 0.0) -> None:
        """Ask for a pilot, when the requests before it have been made."""
        pilots = self.description.pilots
        self._coming += 1
        site = self._asking.choices(self.description.sites, [site.share for site in self.description.sites])[0]
        at = max(self.clock.now + delay, self._next_request)
        if pilots.per_hour:
            self._next_request = at + 3600.0 / pilots.per_hour
        self.clock.at(at, lambda: self._request(site))

    def _request(self, site: Site) -> None:
        self._asked += 1
        self._queues[site.name].submit(lambda: self._job_starts(site))

    def _provision(self) -> None:
        """Let the provisioner look, now and again after its interval."""
        if self.provisioner is None or self.description.provision is None:
            return
        assert self.server.engine is not None
        runs = self.server.engine.state.runs
        self.provisioner.step(self._runs, {run: runs[run].settled for run in sorted(self._open) if run in runs})
        self.clock.after(self.description.provision.interval, self._provision)

    def _request_allocation(self, one: Allocation) -> None:
        self._asked += 1
        self._queues[one.site].submit(lambda: self._allocation_starts(one))

    def _allocation_starts(self, one: Allocation) -> None:
        site = self._sites[one.site]
        if one.cancelled:
            self._queues[one.site].release()
            return
        assert self.provisioner is not None
        self.provisioner.started(one)
        fails = self._lives.random() < site.start_failure
        self.clock.after(site.start.draw(self._lives), lambda: self._allocation_pilot(site, one, fails))

    def _allocation_pilot(self, site: Site, one: Allocation, fails: bool) -> None:
        assert self.provisioner is not None
        if fails or self._queues[site.name].is_down:
            self._queues[site.name].release()
            self.provisioner.ended(one, False)
            return
        host = self._new_host(site.name, one.cores, site.speed.draw(self._speed_draws), queued=True, wall=one.wall)
        self._allocations[host.name], one.pilot = one, ProvisionedPilot(host)
        self.clock.after(one.wall, lambda: host.handle(Leave("the allocation ends", now=True)))
        self.clock.after(one.wall + KILL_AFTER, lambda: self._kill(host))  # as batch systems do after their signal
        if site.lifetime is not None:
            self.clock.after(site.lifetime.draw(self._lives), lambda: self._kill(host))

    def _job_starts(self, site: Site) -> None:
        """A pilot's job has a host."""
        delay = site.start.draw(self._lives)
        if self._lives.random() < site.start_failure:
            self.clock.after(delay, lambda: self._never_came(site))
        else:
            self.clock.after(delay, lambda: self._pilot_starts(site))

    def _never_came(self, site: Site) -> None:
        self._queues[site.name].release()
        self._coming -= 1
        self._ask_again()

    def _pilot_starts(self, site: Site) -> None:
        if self._queues[site.name].is_down:
            self._never_came(site)
            return
        self._coming -= 1
        host = self._new_host(site.name, site.slots, site.speed.draw(self._speed_draws), queued=True, wall=site.wall)
        if site.wall is not None:
            self.clock.after(site.wall, lambda: host.handle(Leave("the allocation ends", now=True)))
        if site.lifetime is not None:
            self.clock.after(site.lifetime.draw(self._lives), lambda: self._kill(host))

    def _arrive(self, arrival: Arrival) -> None:
        self._coming -= 1
        host = self._new_host(arrival.site, arrival.slots, arrival.speed, queued=False)
        if arrival.until is not None:
            self._known_ends.add(host.name)
            self.clock.at(self._began + arrival.until, lambda: self._kill(host))

    def _new_host(self, site: str, slots: int, speed: float, queued: bool, wall: float | None = None) -> Host:
        name = f"host{self._numbers}"
        self._speeds[name] = max(SLOWEST, speed)
        if queued:
            self._queued_hosts.add(name)
        if wall is not None:
            self._walls[name] = self.clock.now + wall
        self.network.cut([name], self._lost_kinds(site))
        host = Host(self, self._numbers, Capacity(slots, MEMORY, DISK, 0), Placement(name, site))
        self._numbers += 1
        self._hosts[name] = host
        return host

    def _kill(self, host: Host) -> None:
        if host.alive:
            host.die()

    def pilot_ended(self, host: Host) -> None:
        """Its host is free, and another is asked for where pilots are kept."""
        if self._hosts.pop(host.name, None) is None:
            return
        self.ledger.pilot_ended(host.name)
        if host.died and (host.name in self._known_ends or not self._beats):
            self._report_death(host)
        if host.name in self._queued_hosts:
            self._queued_hosts.discard(host.name)
            self._queues[host.site].release()
            allocation = self._allocations.pop(host.name, None)
            if allocation is not None and self.provisioner is not None:
                self.provisioner.ended(allocation, not host.died)
            else:
                self._ask_again()

    def _report_death(self, host: Host) -> None:
        """Tell the server of a death: when it was known in a journal, else when beats would have been missed."""
        registered = host.agent.registered
        if registered is None:
            return
        usual = Timing()
        last = self.clock.now - (self.clock.now - self._sent.get(host.name, self._began)) % usual.beat
        missed = self.clock.now if host.name in self._known_ends else last + usual.lease
        self.clock.at(missed, lambda: self.server.apply(Bury(registered.pilot, "no contact")))

    def _ask_again(self) -> None:
        if self.description.pilots.keep:
            self._ask(ASK_AGAIN)
