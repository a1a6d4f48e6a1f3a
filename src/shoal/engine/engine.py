"""The queue as one machine: commands in, outcomes out, time as an argument. The server and the simulator call this."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from random import Random
from typing import Any, NamedTuple

from shoal.engine import planning
from shoal.engine.changes import Outcome
from shoal.engine.commands import (
    Accept,
    Add,
    AdvancePlan,
    Bury,
    Cancel,
    Close,
    Command,
    Drain,
    Enrol,
    Expel,
    Look,
    NoteChance,
    Noticed,
    PollRun,
    Regroup,
    Remove,
    ReportSite,
    Rest,
    Resume,
    Retry,
    SetFields,
    SetPolicy,
    Signal,
    Submit,
    Talk,
    TellFiles,
    Tick,
    UsePlan,
    Watch,
)
from shoal.engine.consistency import check
from shoal.engine.matching import balance, prefetch, rounds, visibility
from shoal.engine.matching.demand import Demand, demand_of
from shoal.engine.matching.pilot_attributes import all_facts
from shoal.engine.pilots import exchange, long_poll, losses, orders, server_pause, site_reports
from shoal.engine.pilots.machines import Machines, machines_of
from shoal.engine.placement import preference
from shoal.engine.placement.question import question_of
from shoal.engine.placement.weather import observe, weather_rows
from shoal.engine.policy import apply_policy
from shoal.engine.restore import load, restore
from shoal.engine.snapshot import LoadedRun, Snapshot
from shoal.engine.state import KEEP_FINISHED, State
from shoal.engine.tasks import deadlines, failures, goals, manual_retry, nested, partial, remove, runs, set_fields
from shoal.engine.tasks.checkpoints import digests_of
from shoal.engine.why.pilots_and_sites import why_owner, why_site
from shoal.engine.why.ready_task import widest_ban
from shoal.engine.why.reason import Reason, is_impossible
from shoal.engine.why.runs_and_tasks import why, why_run
from shoal.engine.windows import window as windows
from shoal.engine.windows.site_window import SiteWindow
from shoal.model.errors import REFUSALS, InternalError
from shoal.model.ids import TaskId, start_count
from shoal.model.policy import Rule
from shoal.model.task.spec import Needs
from shoal.model.timing import Timing
from shoal.sched.ban import Banned
from shoal.sched.fit import how_many
from shoal.sched.placement.question import Question
from shoal.sched.placement.weather import EVERY
from shoal.sched.quota import Standing
from shoal.wire.messages import TagValue

UNSENT = (Tick, Resume, Accept)  # commands of the server itself: a refusal would reach nobody, and end its loop
MAKE_WAY = 1.0  # seconds between two looks for a pilot to be cleared


class PilotView(NamedTuple):
    """What expressions read of a pilot at one moment, and the ban that keeps work from it."""

    facts: dict[str, TagValue]
    ban: Banned | None


class Engine:
    """All task, run and pilot state, and the one way to change it."""

    def __init__(self, snapshot: Snapshot, timing: Timing, rng: Random, now: float, state_dir: str = "") -> None:
        self.state: State = restore(snapshot, timing, rng, now, state_dir)
        self._rules: dict[type, Callable[[Any], Any]] = {
            Submit: lambda c: runs.submit(self.state, c),
            Accept: lambda c: runs.accept(self.state, c),
            Add: lambda c: runs.add(self.state, c),
            Close: lambda c: runs.close(self.state, c),
            AdvancePlan: lambda c: planning.advance(self.state, c),
            TellFiles: lambda c: runs.tell_files(self.state, c),
            NoteChance: lambda c: deadlines.note_chance(self.state, c),
            Noticed: lambda c: runs.noticed(self.state, c),
            PollRun: lambda c: runs.note_poll(self.state, c),
            Cancel: lambda c: runs.cancel(self.state, c),
            Retry: lambda c: manual_retry.retry(self.state, c),
            SetFields: lambda c: set_fields.set_fields(self.state, c),
            Remove: lambda c: remove.remove(self.state, c),
            Enrol: lambda c: exchange.enrol(self.state, c),
            Talk: lambda c: exchange.talk(self.state, c.exchange, c.is_sealed),
            Rest: lambda c: long_poll.rest(self.state, c.pilot, c.seq),
            Signal: lambda c: orders.signal(self.state, c),
            Watch: lambda c: orders.watch(self.state, c),
            Look: lambda c: orders.look(self.state, c),
            Expel: lambda c: losses.expel(self.state, c),
            Regroup: lambda c: apply_policy.regroup(self.state, c),
            SetPolicy: lambda c: apply_policy.set_policy(self.state, c),
            Drain: lambda c: losses.drain(self.state, c),
            Bury: lambda c: losses.bury(self.state, c),
            ReportSite: lambda c: site_reports.report(self.state, c),
            UsePlan: lambda c: preference.use_plan(self.state, c),
            Tick: lambda c: self._tick(),
            Resume: lambda c: server_pause.resume(self.state, c),
        }

    def _tick(self) -> None:
        rounds.turn(self.state)  # before exchanges that waited for it are answered empty
        losses.watch(self.state)
        losses.clear_pilots(self.state)
        runs.close_abandoned(self.state)
        runs.grow_in_time(self.state)
        failures.release_avoiding(self.state)
        visibility.ask_again_in_time(self.state)
        prefetch.look_after(self.state)
        balance.balance(self.state)

    def started(self, now: float) -> Outcome:
        """Note in the journal that this incarnation began."""
        self.state.out, self.state.now = Outcome(), now
        self.state.emit("server_started", incarnation=start_count(self.state.incarnation))
        return self.state.out

    def rebuild(self, state: State, now: float, why: str) -> Outcome:
        """Go on with a state that `restore` made of everything that was handed out so far, after the present one was
        left half changed. What only this process knows, and no database keeps, is carried over."""
        before, self.state = self.state, state
        state.pilot_zip, state.keeper, state.trouble = before.pilot_zip, before.keeper, before.trouble
        state.finished = before.finished  # a counter of the metrics: it may not go back
        state.site_reports = before.site_reports
        state.weathers, state.observed = before.weathers, before.observed
        state.enrolled = before.enrolled  # a registration that is repeated is the same pilot, if it was committed
        for name, gone in state.gone.items():
            gone.heir = before.gone[name].heir if name in before.gone else ""
        for name, pilot in state.pilots.items():
            if name in before.pilots:  # the last log lines of attempts that they reported may still come
                pilot.ended, pilot.batches = before.pilots[name].ended, before.pilots[name].batches
        for number, run in state.runs.items():
            if (old := before.runs.get(number)) is not None and old.nonce == run.nonce:
                run.is_at_risk = old.is_at_risk
                partial.carry_over(old, run, state.pilots.values())
        for mesh, window in before.windows.items():  # its next leader has a greater term
            state.windows.setdefault(mesh, SiteWindow()).named = window.named
        state.data.take_over(before.data, state.pilots)
        state.unreconciled = set()  # no lease is missing from the database, so no pilot need be waited for
        state.out, state.now = Outcome(), now
        state.emit("engine_rebuilt", why=why)
        return state.out

    def handle(self, command: Command, now: float) -> Outcome:
        """Carry out one command. A refusal (one of REFUSALS) raises and has changed nothing. After any other exception
        the state is half changed: it must not be used again, and `rebuild` replaces it."""
        state = self.state
        state.out, state.now = Outcome(), now
        try:
            state.out.result = self._rules[type(command)](command)
        except REFUSALS as refusal:
            if state.out.changes or state.out.answers:
                raise InternalError(f"{type(command).__name__} was refused after it had changed something") from refusal
            if isinstance(command, UNSENT):
                raise InternalError(f"{type(command).__name__} was refused, and nobody sent it") from refusal
            raise
        if now >= state.observed + EVERY:
            observe(state)
        if state.emitting:
            goals.settle_changed(state)
        while state.ended or state.ready_noops:
            runs.settle_noops(state)
            runs.settle_dependents(state)
        if state.windows:
            windows.look_after(state)
        if not isinstance(command, (Talk, Rest)):
            state.news += 1  # what an exchange may bring for other pilots is counted where it happens
        rounds.serve_parked(state)
        if state.unwritten:
            state.out.is_underway = all(array.spec.function and not array.todo for array in state.unwritten)
            runs.hold_back(state)
        if isinstance(command, Tick):
            self._forget(now)
        state.update_activity()
        state.out.changes += state.accounting.rows(now)
        return state.out

    def deadline(self) -> float | None:
        """When `Tick` is due at the latest."""
        state, times = self.state, []
        for pilot in state.pilots.values():
            times.append(pilot.seen + (state.timing.lease if pilot.suspect else state.timing.suspect) + 0.001)
            if pilot.parked is not None:
                times.append(pilot.parked_until)
        rights = (t.live[a].orphaned or state.now for a, t in state.orphans.items())
        times += [until for until in rights if until < inf]  # those in windows end with their window
        times += [run.finished + KEEP_FINISHED for run in state.runs.values() if run.finished is not None]
        times += [run.last_poll + runs.ABANDONED + 0.001 for run in state.runs.values() if runs.may_be_abandoned(run)]
        if state.unreconciled:
            times.append(state.quarantine_until)
        if state.suspects:
            times.append(state.now + MAKE_WAY)
        times += state.overtaken.values()
        growing = (run.growth.due() for run in state.runs.values() if run.growth is not None and run.finished is None)
        times += [due for due in growing if due is not None]
        for number in state.emitting:
            emitting = state.runs.get(number)
            times += [goals.due(emitting.partial)] if emitting is not None and emitting.partial is not None else []
        times += state.data.again.values()
        held = windows.next_look(state)
        times += [held] if held is not None else []
        due = rounds.next_turn(state)
        if due is not None:
            times.append(due)
        return min(times) if times else None

    def _forget(self, now: float) -> None:
        """Finished runs leave memory after a while; the database has them."""
        for run in [
            r for r in self.state.runs.values() if r.finished is not None and now >= r.finished + KEEP_FINISHED
        ]:
            del self.state.runs[run.number]
            self.state.keys.pop((run.owner, run.key), None)
            nested.forget(self.state, run)

    def load(self, loaded: LoadedRun) -> None:
        """Bring a finished run back into memory, to be retried."""
        if loaded.run.run not in self.state.runs:
            run, arrays, tasks, done, kept, partials, growths, grown, plans = loaded
            load(
                self.state, [run], arrays, tasks, done, kept=kept, partials=partials, growths=growths, grown=grown, plans=plans
            )  # fmt: skip

    def note_no_space(self, pilot: str, why: str) -> None:
        """The server has no space for what a pilot brings: it tries again, and people are told why they wait."""
        found = self.state.pilots.get(pilot)
        if found is not None:
            found.no_space = (self.state.now, why)

    def note_plan(self, run: int, why: str) -> None:
        """What a run waits for in its planning state: people are told."""
        found = self.state.runs.get(run)
        if found is not None and found.plan is not None:
            found.plan.note = why

    # --- facts that only the server knows; unlike commands they may be set while the state is rebuilt
    def describe_server(
        self,
        *,
        keeper: str | None = None,
        pilot_zip: str | None = None,
        trouble: str | None = None,
        disk_full: str | None = None,
    ) -> None:
        """Set whose pilots the server starts, the digest of the pilot it serves, or why it cannot start one."""
        state = self.state
        state.keeper = state.keeper if keeper is None else keeper
        state.pilot_zip = state.pilot_zip if pilot_zip is None else pilot_zip
        state.trouble = state.trouble if trouble is None else trouble
        state.disk_full = state.disk_full if disk_full is None else disk_full

    def count_stored(self, owner: str, delta: int) -> None:
        """Add to the bytes that an owner stores, which quotas limit."""
        self.state.accounting.ledger.stored(owner, delta)

    # --- queries
    def quota_block(self, owner: str, size: int, now: float) -> str:
        """Which quota keeps an owner from storing so many more bytes; empty: none does."""
        block = self.state.accounting.ledger.may_keep(owner, size, now)
        return block.text if block is not None else ""

    def standings_under(self, rules: Iterable[Rule], now: float) -> list[Standing]:
        """How other quota rules would stand with everything that is counted now; the present rules stay in force."""
        ledger, groups = self.state.accounting.ledger, self.state.groups
        ledger.change(rules, groups)
        try:
            return ledger.standings(now)
        finally:
            ledger.change(self.state.accounting.policy.quotas, groups)

    def view_pilot(self, name: str, now: float) -> PilotView:
        """A living pilot as matching sees it."""
        self.state.now = now
        pilot = self.state.pilots[name]
        return PilotView(all_facts(self.state, pilot), widest_ban(self.state, pilot))

    def demand(self, owner: str, now: float) -> Demand:
        """What a person's ready tasks need, and the pilots that serve them."""
        self.state.now = now
        return demand_of(self.state, owner)

    def placement_question(self, now: float) -> Question | None:
        """What a plan of where tasks go is asked; None: there is nothing to plan."""
        self.state.now = now
        return question_of(self.state)

    def weather(self, owner: str, now: float) -> dict[str, Any]:
        """The weather of the sites that an owner may use."""
        self.state.now = now
        return weather_rows(self.state, owner)

    def slots_for(self, owner: str, needs: Needs) -> int:
        """How many tasks with these needs the pilots that serve an owner can run at once, if nothing else ran there."""
        serving = [
            pilot for pilot in self.state.pilots.values() if self.state.serves(pilot, owner) and not pilot.draining
        ]
        return sum(how_many(needs, pilot.room) for pilot in serving)

    def machines(self, run: int, now: float) -> Machines:
        """Where the tasks of a run run, what they take, and what is asked of its owner's sites."""
        self.state.now = now
        return machines_of(self.state, run)

    def partial(self, run: int) -> dict[str, Any] | None:
        """What the tasks of a run emitted so far; None of a run that is not in memory."""
        found = self.state.runs.get(run)
        return partial.view(found) if found is not None else None

    def why(self, target: int | TaskId | str, now: float) -> tuple[str, list[Reason]]:
        """State and reasons of a run, task or pilot."""
        self.state.now = now
        return why(self.state, target)

    def why_site(self, site: str, pilots: list[str], now: float, owners: Collection[str] | None = None) -> list[Reason]:
        """What a site does with these pilots, and what the provisioners of these owners report of it: what the asker may
        see; None: of all."""
        self.state.now = now
        known = [self.state.pilots[name] for name in pilots if name in self.state.pilots]
        return why_site(self.state, site, known, owners)

    def why_owner(self, owner: str, now: float) -> list[Reason]:
        """What an owner has of its share, its limits, and why its next task waits."""
        self.state.now = now
        return why_owner(self.state, owner)

    def check(self) -> list[str]:
        """Everything that does not add up; empty if all is well."""
        return check(self.state)

    def needs_blobs(self, run: int) -> set[str]:
        """Digests of the blobs that the checkpoints of a run's tasks need; none of a run that is not in memory."""
        found = self.state.runs.get(run)
        return digests_of(found) if found is not None else set()

    def has_open_run(self, owner: str) -> bool:
        """Has this person work that is not over?"""
        return any(run.finished is None and run.owner == owner for run in self.state.runs.values())

    @property
    def busy(self) -> bool:
        """Is there work that is not final?"""
        return any(run.finished is None for run in self.state.runs.values())

    def may_progress(self, now: float) -> bool:
        """Is there work that is not final, and of which something runs or may run on the pilots there are?"""
        self.state.now = now
        return any(
            run.finished is None
            and (run.live or not is_impossible([reason.code for reason in why_run(self.state, run)]))
            for run in self.state.runs.values()
        )
