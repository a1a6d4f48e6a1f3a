"""A lying pilot of a simulated world: it has a valid session, knows the names of all attempts, and runs nothing.

It reports successes of attempts that were never leased to it and lists them as held, of younger and older incarnations
of the server, of its own owner's runs and of others', and presents proofs that were sent to honest pilots. None of its
reports may count, and no reply may disclose anything about another owner's runs.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shoal.engine.commands import Drain, Enrol, Talk
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId
from shoal.sim.proof.ledger import BrokenPromise
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Exchange, Held, Proof, Register, Registered, Reply, Report

if TYPE_CHECKING:
    from shoal.sim.proof.world import World

INTERVAL = 10.0  # seconds between lies, at most


class LyingPilot:
    """One lying pilot; `is_stranger`: it may not run anything of the honest owner."""

    def __init__(self, world: World, number: int, owner: str, is_stranger: bool) -> None:
        self.world, self.owner, self.is_stranger = world, owner, is_stranger
        self.rng = Random(f"{world.seed}/liar{number}")
        self.name = f"liar{number}"
        self._registered: Registered | None = None
        self._seq = 0
        self._schedule()

    def _schedule(self) -> None:
        if not self.world.healed:
            self.world.clock.after(self.rng.uniform(0.1, INTERVAL), self._act)

    def _act(self) -> None:
        server = self.world.server
        if server.engine is not None and not self.world.healed:
            if self._registered is None:
                register = Register(PROTOCOL, "0", self.name, self.name, Capacity(1, 1 << 30, 1 << 30))
                server.request(Enrol(register, self.owner, "local"), self._joined, lambda error: None)
            elif self._is_draining(self._registered.pilot):
                server.exchange(Talk(self._lie(self._registered)), self._check_reply, self._refused)
        self._schedule()

    def _joined(self, registered: Registered) -> None:
        # It drains, so that it gets no leases: a pilot can report anything about what it really holds.
        if self.world.server.engine is not None and registered.pilot in self.world.server.engine.state.pilots:
            self._registered = registered
            self.world.server.apply(Drain((registered.pilot,), "it is not trusted"))

    def _is_draining(self, pilot: str) -> bool:
        """True if it gets no leases; an injected defect may have undone that, then it is drained once more."""
        assert self.world.server.engine is not None
        known = self.world.server.engine.state.pilots.get(pilot)
        if known is not None and not known.draining:
            self.world.server.apply(Drain((pilot,), "it is not trusted"))
        return known is None or bool(known.draining)

    def _refused(self, error: ShoalError) -> None:
        self._registered = None

    def _lie(self, registered: Registered) -> Exchange:
        self._seq += 1
        self.world.tally.note("false_report")
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
        """An attempt that is, was, will be or might have been leased to another pilot."""
        engine, rng = self.world.server.engine, self.rng
        if self.world.proofs and rng.random() < 0.3:
            return rng.choice(self.world.seen_attempts[-8:])  # a server that crashed may have lost these
        if engine is None or not engine.state.runs:
            return None
        state = engine.state
        run = state.runs[rng.choice(sorted(state.runs))]
        incarnation = rng.choice([*self.world.server.incarnations[-3:], state.incarnation, state.incarnation + 1])
        return AttemptId(run.number, rng.randint(1, run.total), run.base + rng.randint(1, 2), incarnation, run.nonce)

    def _check_reply(self, reply: Reply) -> None:
        for verdict in reply.verdicts:
            if verdict.verdict in ("recorded", "adopted"):
                raise BrokenPromise(f"a lie was recorded: {verdict.attempt} of {self.name}, which ran nothing")
            if self.is_stranger and verdict.verdict != "unknown":
                raise BrokenPromise(f"disclosed to another owner: {verdict.attempt} is {verdict.verdict}")
        if reply.leases:
            raise BrokenPromise(f"leased to a draining pilot: {reply.leases[0].attempt} to {self.name}")
