"""The service around the engine: commands in, answers after the commit, parked exchanges, wake-ups for followers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import Answer, Change, Notice, Outcome
from shoal.engine.commands import Accept, Command, Enrol, Rest, Resume, Submit, Talk, Tick
from shoal.engine.engine import Engine
from shoal.engine.restore import restore
from shoal.engine.snapshot import LoadedRun
from shoal.model.credentials import digest, redact
from shoal.model.errors import REFUSALS, InternalError, Refused, TooBusy, echo
from shoal.model.file_names import LOGS
from shoal.model.ids import run_text, start_count
from shoal.model.limits import MAX_LOOKS
from shoal.model.timing import Timing
from shoal.server.disk_reserve import Reserve
from shoal.server.recent_events import RecentEvents
from shoal.server.recent_results import RecentResults
from shoal.server.uploaded_logs import UploadedLogs
from shoal.server.writer import Writer, fail, give
from shoal.wire.messages import Exchange, Reply

log = logging.getLogger(__name__)
T = TypeVar("T")
BUSY = 0.03  # seconds between commits of a server under load
GATHER = 0.05  # seconds that followers of the journal wait for more events
REBUILD_RETRY = 1.0  # seconds after which a request that met a rebuild is worth sending again
STALL = 1.0  # seconds without a step of a loop that ticks five times a second: the server did not run
TICK_PAUSES = (1.0, 5.0, 30.0, 60.0)  # seconds without a tick after one that met a defect, and after the next ones
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first is Linux only
LOOK_STUCK = 1.0  # seconds between looks whether a command waits for space on the disk
MAX_STUCK = 4.0  # seconds that changes wait for space before whoever waits for them gets that as an answer


class ServerClock:
    """Wall time at the start plus a clock that never jumps and counts suspension: steps of the wall clock do not matter
    [promise R2]."""

    def __init__(self) -> None:
        self._wall, self._boot = time.time(), time.clock_gettime(_BOOT)

    def __call__(self) -> float:
        return self._wall + time.clock_gettime(_BOOT) - self._boot


class PolicyAuthor(NamedTuple):
    """Who changed the policy last, and when; an empty name: nobody did."""

    name: str
    changed: float | None


class PauseDetector:
    """Detects that the server itself did not run: stopped, suspended with its machine, or held up by a long step. Its
    clock must count the time of a suspended machine."""

    def __init__(self, now: float) -> None:
        self._last = now

    def gap(self, now: float) -> float:
        """Seconds until now in which the server did not run; 0 if it did. Each gap is returned once."""
        passed, self._last = now - self._last, now
        return passed if passed > STALL else 0.0


class Service:
    """The engine, its writer and its readers, and everybody who waits for them."""

    def __init__(
        self, database: Database, state_dir: Path, timing: Timing, mode: str, reserve: Reserve, trouble: str = ""
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.state_dir, self.timing, self.mode, self.durability = state_dir, timing, mode, database.durability
        self.clock = ServerClock()
        self.started = self.clock()
        database.raise_incarnation(self.started)
        snapshot = database.snapshot()
        newest = snapshot.policy
        self.policy_author = PolicyAuthor(newest.author, newest.time) if newest is not None else PolicyAuthor("", None)
        self.engine = Engine(snapshot, timing, random.SystemRandom(), self.started, str(state_dir))
        self.reserve = reserve
        self.writer = Writer(database, self.loop, reserve)
        self.writer.trouble = trouble
        self.writer.on_gone = self._refuse_all
        self.writer.on_commit, self.writer.on_stuck = self._wake_listeners, self._look_stuck
        self.reader = Reader(database.path)  # for short look-ups on the loop's thread
        self._far_reader = Reader(database.path)  # for lists, on a thread of its own
        self._far = ThreadPoolExecutor(1, "reader")
        self._queries = 0  # that wait for it or are being answered
        self._waiting: dict[tuple[str, int], list[asyncio.Future[Reply]]] = {}
        self._commands: set[asyncio.Future[None]] = set()  # commands that wait for their commit
        self._listeners: list[asyncio.Future[None]] = []  # followers that wait for any commit
        self._committed, self._is_busy = 0.0, False  # the last commit's time, and whether another was just before it
        self.last_request = self.started
        self.drained_at = float("-inf")  # when somebody drained all pilots at once
        self.retrying = asyncio.Lock()  # one retry at a time: each reads rows and then acts on them
        self.results, self.events = RecentResults(), RecentEvents()
        self.uploaded_logs = UploadedLogs(state_dir / LOGS, reserve.has_space, self.clock)
        self.commit_wait = 0.0  # seconds that answers waited for their commit
        self.report_wait = 0.0  # those of answers to exchanges among them
        self.on_due: Callable[[], None] = lambda: None  # somebody is to be told something, and that is durable
        self.on_notices: Callable[[list[Notice]], None] = lambda notices: None
        self._pauses = PauseDetector(self.clock())
        self.contained = 0  # commands that met a defect since the start
        self.on_rebuilt: Callable[[], None] = lambda: None  # the engine has a new state
        self._rebuild: asyncio.Task[None] | None = None  # until it is done the engine's state is half changed
        self._tick_from, self._bad_ticks = 0.0, 0
        self.writer.start()
        self._perform(self.engine.started(self.started))

    # --- commands
    async def command(self, command: Command, then: Callable[[Any], None] | None = None) -> Any:
        """Carry out a command; returns when it is durable. `then` runs also if the caller has gone away."""
        outcome = self._handle(command)
        done: asyncio.Future[None] = self.loop.create_future()

        def after() -> None:
            try:
                if then is not None:
                    then(outcome.result)
            finally:
                give(done, None)

        self._perform(outcome, after)
        self._commands.add(done)
        try:
            await done
        finally:
            self._commands.discard(done)
        return outcome.result

    def _look_stuck(self) -> None:
        """Changes wait for space on the disk: whoever waits for them hears of it after a while."""
        stuck = self.writer.stuck_for
        if stuck > MAX_STUCK:
            for command in self._commands:
                refused = Refused(
                    f"{self.writer.trouble}; it is done once that can be written", code="disk_full",
                    hint="free some space where the server's state is; `shoal prune` deletes old logs",
                )  # fmt: skip
                fail(command, refused)
        if stuck:
            self.loop.call_later(LOOK_STUCK, self._look_stuck)

    def post(self, command: Command) -> Any:
        """Carry out a command for which nobody waits."""
        outcome = self._handle(command)
        self._perform(outcome)
        return outcome.result

    def tick(self) -> None:
        """The periodic step of the engine. A tick that meets a defect has no sender to be locked out, so ticks pause: a
        defect in each of them must not keep the server from everything else."""
        if self._rebuild is not None and self._rebuild.done():
            self._rebuild.result()  # raises: what is on disk cannot be read back, and no other start could read it
        if self.is_rebuilding:
            return
        try:
            if self.clock() < self._tick_from:
                # The server runs although it does not tick: only what was a pause of its own puts deadlines off.
                with self._contained("Resume", ""):
                    self._resume(self.clock())
                return
            self.post(Tick())
            self._bad_ticks = 0
        except InternalError:
            pause = TICK_PAUSES[min(self._bad_ticks, len(TICK_PAUSES) - 1)]
            self._bad_ticks, self._tick_from = self._bad_ticks + 1, self.clock() + pause

    def accept(self, run: int, first: int, tasks: int) -> None:
        """So many tasks of a run are durable: offer them. An engine that is being rebuilt reads the same rows."""
        if not self.is_rebuilding:
            with contextlib.suppress(InternalError):
                self.post(Accept(run, first, tasks))

    def _handle(self, command: Command) -> Outcome:
        """Have the engine carry out a command. A refusal has changed nothing; any other exception leaves the state half
        changed, so it is discarded and rebuilt from the database: only the command's sender gets an error."""
        now = self.clock()
        self.check_whole()
        try:
            self.engine.describe_server(disk_full=self.writer.trouble)
            self._resume(now)
            return self.engine.handle(command, now)
        except REFUSALS:
            raise
        except Exception as error:
            raise self._contain(error, type(command).__name__, _sender(command)) from error

    def _resume(self, now: float) -> None:
        """Report a pause of the server to the engine, before anything else: a tick that came first would find every
        pilot silent [protocol 5.7]."""
        gap = self._pauses.gap(now)
        if gap:
            log.warning("the server did not run for %.1f s; that counts against nobody", gap)
            self._perform(self.engine.handle(Resume(gap), now))

    def load(self, loaded: LoadedRun) -> None:
        """Bring a finished run back into memory."""
        with self._contained("Load", f" of {run_text(loaded.run.run)}"):
            self.engine.load(loaded)

    # --- after a defect
    @contextlib.contextmanager
    def _contained(self, what: str, sender: str) -> Iterator[None]:
        """Containment of a step of the engine: a refusal passes, any other exception has the engine rebuilt."""
        self.check_whole()
        try:
            yield
        except REFUSALS:
            raise
        except Exception as error:
            raise self._contain(error, what, sender) from error

    def _contain(self, error: Exception, what: str, sender: str) -> InternalError:
        """Have the engine rebuilt; returns the error for the sender."""
        log.critical("a command met a defect: command=%s", what, exc_info=error)
        self.contained += 1
        why = f"{what}{sender}: {type(error).__name__}: {redact(echo(str(error)))}"
        self._rebuild = self.loop.create_task(self._rebuild_engine(why))
        hint = "the server goes on; this request changed nothing"
        return InternalError("this request met a defect in the server", hint=hint)

    @property
    def is_rebuilding(self) -> bool:
        """True while the engine's state is rebuilt, so that it may not be used."""
        return self._rebuild is not None

    def check_whole(self) -> None:
        """Refuse requests while the engine is rebuilt."""
        if self.is_rebuilding:
            raise TooBusy(
                "the server rebuilds its memory after a defect", after=REBUILD_RETRY, code="rebuilding",
                hint="the same request again in a moment",
            )  # fmt: skip

    async def _rebuild_engine(self, why: str) -> None:
        """Restore the engine from the database, in this process: sockets, sessions and followers stay.

        The writer takes the snapshot after everything that was queued: whatever was answered, or will be after its
        commit, is in the new state. Only the command that met the defect is not.
        """
        began = self.clock()
        snapshot = await self.writer.ask(lambda db: db.snapshot())
        await self.writer.settled()  # what waited for these commits has been answered
        engine = self.engine
        state = await asyncio.to_thread(
            restore, snapshot, self.timing, engine.state.rng, self.clock(), str(self.state_dir)
        )
        outcome = engine.rebuild(state, self.clock(), why)
        self._rebuild = None
        self.on_rebuilt()
        self._perform(outcome)
        self._answer_parked()
        log.warning("the engine was rebuilt from the database: seconds=%.2f", self.clock() - began)

    def _answer_parked(self) -> None:
        """Answer the exchanges that were parked in the discarded state. They carried no reports, for those are answered
        after their commit; so an empty reply is true, and their pilots report at once what they hold."""
        parked, self._waiting = self._waiting, {}
        for (_, seq), waiters in parked.items():
            for waiter in waiters:
                give(waiter, Reply(seq, self.engine.state.incarnation, hold=self.timing.beat))

    def exchange(self, exchange: Exchange, is_sealed: bool = False) -> asyncio.Future[Reply]:
        """A pilot's exchange: answered, perhaps at once, when the engine has something to send or its time is over. `is_sealed`:
        whose it is was proven by its seal."""
        key = (exchange.pilot, exchange.seq)
        answer: asyncio.Future[Reply] = self.loop.create_future()
        waiters = self._waiting.setdefault(key, [])
        waiters.append(answer)
        try:
            self.check_whole()
            self._keep_tails(exchange, is_sealed)
            refused = self.post(Talk(exchange, is_sealed))
            if refused is not None:
                raise refused
        except BaseException:
            waiters.remove(answer)
            if not waiters:
                self._waiting.pop(key, None)
            raise
        return answer

    def _perform(self, outcome: Outcome, then: Callable[[], None] | None = None) -> None:
        """Queue changes for the writer first; answers that need not be durable go at once, others after the commit."""
        durable = [answer for answer in outcome.answers if answer.durable]
        if outcome.notices:
            self.on_notices(outcome.notices)
        offers = outcome.offers
        finals, is_due, since = outcome.finals, outcome.is_due, self.loop.time()

        def after() -> None:
            if durable or then is not None:
                waited = self.loop.time() - since
                self.commit_wait += waited
                self.report_wait += waited if durable else 0.0
            if finals:
                self.results.add(finals)
            if is_due:
                self.on_due()
            for run, first, tasks in offers:
                self.accept(run, first, tasks)
            for answer in durable:
                if not (answer.rests and self._rests(answer)):
                    self._reply(answer)
            if then is not None:
                then()

        if outcome.changes or durable or then is not None:
            called = after if durable or finals or is_due or offers or then is not None else None
            self.writer.put(outcome.changes, called, may_wait=outcome.is_underway and not (durable or offers))
        for answer in outcome.answers:
            if not answer.durable:
                self._reply(answer)

    def _rests(self, answer: Answer) -> bool:
        """True if an exchange whose reports are durable now waits for work, or got some at once."""
        if not self.is_rebuilding:
            with contextlib.suppress(InternalError):
                return bool(self.post(Rest(answer.pilot, answer.seq)))
        return False

    def _reply(self, answer: Answer) -> None:
        for waiter in self._waiting.pop((answer.pilot, answer.seq), []):
            give(waiter, answer.reply)

    def _keep_tails(self, exchange: Exchange, is_sealed: bool) -> None:
        """Write the streams of a pilot that cannot reach our log directory itself: of its own attempts only."""
        if not exchange.tails and not self.uploaded_logs.has_sent(exchange.pilot):
            return
        pilot = self.engine.state.pilots.get(exchange.pilot)
        is_its_own = pilot is not None and (is_sealed or pilot.session == digest(exchange.session))
        if pilot is None or not is_its_own or pilot.has_heard(exchange.seq):
            return  # a stranger, or a repeated exchange: later output may be here already
        self.uploaded_logs.receive(self.engine.state, pilot, exchange)

    # --- reading
    async def query(self, query: Callable[[Reader], T], patient: bool = False) -> T:
        """Run a query that may take a while on the reader's thread. If too many wait already, it is refused unless it is
        `patient`."""
        if self._queries >= MAX_LOOKS and not patient:
            raise TooBusy("too many are reading", after=1.0, hint="come back in a second")
        self._queries += 1
        try:
            return await self.loop.run_in_executor(self._far, query, self._far_reader)
        finally:
            self._queries -= 1

    def _wake_listeners(self, written: list[Sequence[Change]]) -> None:
        self.events.add(written, self.clock())
        now = self.loop.time()
        self._is_busy, self._committed = now - self._committed < BUSY, now
        listeners, self._listeners = self._listeners, []
        for woken in listeners:
            give(woken, None)

    async def wait_for_commit(self, within: float, gather: bool = False) -> None:
        """Wait until something is committed, or the time is over. `gather`: while commits follow each other closely, wait
        a little longer, because a query costs the same for one event as for a hundred."""
        woken: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(within, give, woken, None)
        self._listeners.append(woken)
        try:
            await woken
        finally:
            timer.cancel()
            if woken in self._listeners:
                self._listeners.remove(woken)
        if gather and self._is_busy:
            await asyncio.sleep(GATHER)

    def check_database(self) -> None:
        """Refuse to answer from memory once the database was removed or replaced."""
        if self.writer.gone:
            # Its path is in the log, for administrators only.
            hint = "its log says the way out"
            raise Refused("the server's database was taken away, and it ends", code="database_gone", hint=hint)

    def _refuse_all(self) -> None:
        """Fail everything that waits for an answer: the database is gone."""
        try:
            self.check_database()
        except Refused as error:
            for exchange in [waiter for waiters in self._waiting.values() for waiter in waiters]:
                fail(exchange, error)
            for command in self._commands:
                fail(command, error)

    def hang_up(self) -> None:
        """Cancel parked exchanges: their pilots come back to the next server."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.cancel()

    async def close(self) -> None:
        """Write what is queued and close the database."""
        if self._rebuild is not None:
            self._rebuild.cancel()
        # Readers first: the writer's last checkpoint needs the log without readers.
        self._far.shutdown()
        self.reader.close()
        self._far_reader.close()
        await self.writer.stop()

    def facts(self) -> dict[str, Any]:
        """The figures of `shoal server status`."""
        state, pilots = self.engine.state, self.engine.state.pilots
        return {
            "mode": self.mode,
            "pid": os.getpid(),
            "incarnation": start_count(state.incarnation),
            "since": self.started,
            "state_dir": str(self.state_dir),
            "open_runs": sum(1 for run in state.runs.values() if run.finished is None),
            "pilots": len(pilots),
            "slots": sum(pilot.room.cores for pilot in pilots.values()),
            "live": sum(pilot.held for pilot in pilots.values()),
            "durability": self.durability,
            "commits": self.writer.commits,
            "last_seq": state.next_seq - 1,
            "trouble": self.writer.trouble or state.trouble,
        }


def _sender(command: Command) -> str:
    """The sender of a command for the log, as far as the command names it."""
    if isinstance(command, Talk):
        return f" of {echo(command.exchange.pilot)}"
    if isinstance(command, Enrol):
        return f" with {command.token}"
    return f" of {command.owner}" if isinstance(command, Submit) else ""
