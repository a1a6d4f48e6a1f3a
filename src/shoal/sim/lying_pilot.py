"""A lying pilot of a false world: it has a valid session, knows the names of all attempts, and runs nothing.

It reports successes of attempts that it never had, holds what was never leased to it, of younger and older lives of the
server, of its own owner's runs and of others', and shows proofs that it saw on the way to honest pilots. Nothing that it
says may count, and nothing that it hears may tell it of another owner's runs.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shoal.engine.commands import Drain, Enrol, Talk
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId
from shoal.sim.ledger import Broken
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Exchange, Held, Proof, Register, Registered, Reply, Report

if TYPE_CHECKING:
    from shoal.sim.world import World

EVERY = 10.0  # seconds between lies


class LyingPilot:
    """One lying pilot."""

    def __init__(self, world: World, number: int, owner: str, is_stranger: bool) -> None:
        self.world, self.owner, self.is_stranger = world, owner, is_stranger
        self.rng = Random(f"{world.seed}/liar{number}")
        self.name = f"liar{number}"
        self._registered: Registered | None = None
        self._seq = 0
        self._go_on()

    def _go_on(self) -> None:
        if not self.world.healed:
            self.world.clock.after(self.rng.uniform(0.1, EVERY), self._act)

    def _act(self) -> None:
        server = self.world.server
        if server.engine is not None and not self.world.healed:
            if self._registered is None:
                register = Register(PROTOCOL, "0", self.name, self.name, Capacity(1, 1 << 30, 1 << 30))
                server.ask(Enrol(register, self.owner, "local"), self._joined, lambda error: None)
            elif self._is_set_aside(self._registered.pilot):
                server.exchange(Talk(self._lie(self._registered)), self._heard, self._refused)
        self._go_on()

    def _joined(self, registered: Registered) -> None:
        # It is sent no work: of what it really holds, any pilot can say what it likes.
        if self.world.server.engine is not None and registered.pilot in self.world.server.engine.state.pilots:
            self._registered = registered
            self.world.server.tell(Drain((registered.pilot,), "it is not trusted"))

    def _is_set_aside(self, pilot: str) -> bool:
        """Has the server been told to send it no work? A defect may have undone that."""
        assert self.world.server.engine is not None
        known = self.world.server.engine.state.pilots.get(pilot)
        if known is not None and not known.draining:
            self.world.server.tell(Drain((pilot,), "it is not trusted"))
        return known is None or bool(known.draining)

    def _refused(self, error: ShoalError) -> None:
        self._registered = None

    def _lie(self, registered: Registered) -> Exchange:
        self._seq += 1
        self.world.tally.note("lie")
        attempts = [attempt for attempt in (self._pick() for _ in range(3)) if attempt is not None]
        reports, batches, held = [], [], []
        for attempt in attempts:
            text, how = str(attempt), self.rng.random()
            if how < 0.5:
                reports.append(Report(text, "succeeded", exit_code=0, started=1.0, duration=1.0, last_line="a lie"))
            elif how < 0.7:
                batches.append(Batch(text, 2, [1.0, 1.0], [1.0, 1.0], result=["gAU=", "gAU="]))
            else:
                held.append(Held(text, self.rng.choice(["running", "leased"])))
        seen = self.world.proofs[-200:]
        proofs = [*seen, *(Proof(str(attempt), 1, "0" * 32) for attempt in attempts)]
        return Exchange(
            PROTOCOL, registered.pilot, registered.session, self._seq, self._seq - 1, Capacity(), held, reports,
            batches=batches, proofs=proofs, nonce=f"{self.rng.getrandbits(64):x}",
        )  # fmt: skip

    def _pick(self) -> AttemptId | None:
        """An attempt that is, was, will be or might have been handed out, to somebody else."""
        engine, rng = self.world.server.engine, self.rng
        if self.world.proofs and rng.random() < 0.3:
            return rng.choice(self.world.seen_attempts[-8:])  # a server that crashed may have forgotten these
        if engine is None or not engine.state.runs:
            return None
        state = engine.state
        run = state.runs[rng.choice(sorted(state.runs))]
        life = rng.choice([*self.world.server.lives[-3:], state.incarnation, state.incarnation + 1])
        return AttemptId(run.number, rng.randint(1, run.total), run.base + rng.randint(1, 2), life, run.nonce)

    def _heard(self, reply: Reply) -> None:
        for verdict in reply.verdicts:
            if verdict.verdict in ("recorded", "adopted"):
                raise Broken(f"a lie was recorded: {verdict.attempt} of {self.name}, which ran nothing")
            if self.is_stranger and verdict.verdict != "unknown":
                raise Broken(f"a stranger was told: {verdict.attempt} is {verdict.verdict}, of another owner's run")
        if reply.leases:
            raise Broken(f"leased to a pilot that drains: {reply.leases[0].attempt} to {self.name}")
