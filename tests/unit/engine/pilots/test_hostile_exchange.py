"""Whatever one pilot sends, the engine refuses it without a trace or carries it out; it never meets a defect [ADR 0016]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from shoal.engine.commands import Enrol, Talk
from shoal.engine.tasks.reports import OUTCOMES
from shoal.model.errors import REFUSALS, BadInput
from shoal.model.limits import MAX_HELD
from shoal.model.states import Cause
from shoal.wire import codec_fast
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Exchange, Held, Published, Register, Report
from tests.unit.engine.stand import OWNER, FakePilot, Stand, bad, good

T = TypeVar("T")
SEEDS = 150 if os.environ.get("SHOAL_PROVE") == "1" else 50
SPECS: tuple[dict[str, Any], ...] = (
    {"array": "1-12"}, {"time": "10s", "retries": 2}, {"memory": "1G", "retries": 1}, {"checkpoint": ["state"]},
    {"rerun": "exclusive"}, {"rerun": "never"}, {"outputs": ["out"]},
)  # fmt: skip
DIGEST = "sha256:" + "a" * 64
ODD_NAMES = ("r1.13#1@1", "r1.19#1@1", "r99.1#1@1", "r1.1#2@1", "r1.1#1@9", f"r1.{10**18 - 1}#1@1", "r7.6#9@1", "p1")
ODD_NUMBERS = (-1, 2**31, 2**53, 2**63, 10**18, 10**30, -(2**63))
TEXTS = ("", "x", "é\0\n", "y" * 5_000)


class Liar:
    """Makes exchanges near enough to the truth to get far: each part is odd now and then, all of them hardly ever."""

    def __init__(self, rng: Random, pilot: FakePilot, known: Sequence[str]) -> None:
        self.rng, self.pilot, self.known = rng, pilot, known

    def pick(self, good: Sequence[T], odd: Sequence[T] = ()) -> T:
        """One of the good, or sometimes of the odd."""
        return self.rng.choice(odd if odd and self.rng.random() < 0.03 else good)

    def name(self) -> str:
        """An attempt."""
        return self.pick(ODD_NAMES) if not self.known or self.rng.random() < 0.1 else self.pick(self.known)

    def whole(self) -> int:
        """A whole number."""
        return self.pick((0, 1, 1 << 20, 1 << 30, 1 << 40), ODD_NUMBERS)

    def real(self) -> float:
        """A number."""
        return self.pick((0.0, 0.1, 10.0, 9_999.0), (-1.0, 1e12, 1e18, 1e300, 5e-324))

    def tags(self) -> dict[str, Any]:
        """Tags."""
        values = (*TEXTS, self.whole(), self.real(), True)
        return {
            self.pick(("a", "ann.b", "zip", "cores", "", "é")): self.pick(values) for _ in range(self.pick((0, 0, 2)))
        }

    def report(self) -> Report:
        """A report."""
        causes = ("", *(cause.value for cause in Cause))
        return Report(
            self.name(), self.pick(("succeeded", "failed", *OUTCOMES), ("odd",)), self.pick(causes, ("odd",)), self.pick(TEXTS),
            self.pick((None, 0, 1, 85, 137, -9), (999,)), self.pick((None, 9, 15, 64), (999, -1)),
            self.pick((None, self.real())), self.real(), self.real(), self.whole(),
            files=self.pick(({}, {}, {"state": DIGEST}), ({"other": DIGEST}, {"state": "x"})), staging=self.real(),
            evidence=self.pick(("", "", "oom_kill", "odd")), result=self.pick(("", "gAU=", DIGEST)),
        )  # fmt: skip

    def exchange(self) -> Exchange:
        """An exchange."""
        seq, room = self.pilot.seq, self.pilot.room
        some = range(self.pick((0, 1, 3)))
        stages = ("leased", "running", "running", "done")
        return Exchange(
            self.pick((PROTOCOL, PROTOCOL - 1), (0,)), self.pilot.name, self.pilot.session,
            self.pick((seq + 1, seq + 1, seq + 1, seq, seq - 1), ODD_NUMBERS), self.pick((seq,), ODD_NUMBERS),
            self.pick((room, Capacity(), Capacity(1)), (Capacity(room.cores + 1), Capacity(-1))),
            [Held(self.name(), self.pick(stages, TEXTS), self.pick((1, 1, 2, 7), (0, -1, 10**18))) for _ in some],
            [self.report() for _ in range(self.pick((0, 1, 3)))], self.tags(), leaving=self.pick(("",), TEXTS),
            nonce=self.pick(("",), ("n1", "n2")),
            batches=[Batch(self.name(), self.pick((1, 2, 3, 2_000), (0, -1, 2_001))) for _ in range(self.pick((0, 0, 1)))],
            published=[Published(self.name(), self.tags()) for _ in range(self.pick((0, 0, 1)))],
        )  # fmt: skip


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_no_exchange_meets_a_defect_or_is_refused_half_way(first: int) -> None:
    told = refused = 0
    for seed in range(first, first + 50):
        rng, stand = Random(seed), Stand()
        stand.submit(*SPECS)
        pilots = [stand.pilot(cores=8), stand.pilot(cores=4, host="other")]
        for _ in range(20):
            pilot = rng.choice(pilots)
            if rng.random() < 0.3:
                try:
                    pilot.pull()
                except REFUSALS:  # it lied itself out of its session
                    pilots[pilots.index(pilot)] = pilot = stand.pilot(cores=4, former=pilot, host=f"h{seed}")
            exchange = Liar(rng, pilot, [*pilots[0].held, *pilots[1].held]).exchange()
            try:
                stand.do(Talk(exchange))
            except REFUSALS:
                refused += 1
            else:
                told += 1
                pilot.seq = max(pilot.seq, exchange.seq)
            assert stand.engine.check() == [], f"seed {seed}: {exchange}"
            if rng.random() < 0.3:
                stand.pass_time(rng.choice([0.1, 11.0, 80.0]))
            stand.commit()
        for answer in stand.answers:
            codec_fast.encode(answer.reply)
    assert min(told, refused) > 100, "nothing was tried"


def test_over_time_of_a_task_without_a_time_limit_is_a_plain_failure() -> None:
    """Where its neighbours succeeded, this very report ended the server for everyone."""
    stand = Stand()
    run = stand.submit({"array": "1-6"})
    pilot = stand.pilot(cores=6)
    *others, last = [lease.attempt for lease in pilot.pull()]
    pilot.talk(*(good(attempt) for attempt in others))
    pilot.talk(bad(last, cause="over_time", duration=10.0))
    assert (stand.row(run, 6).state, stand.row(run, 6).cause) == ("failed", "task_error")
    assert stand.sound()


@pytest.mark.parametrize("cause", ["poison", "dependency_failed"])
def test_a_pilot_cannot_give_a_cause_that_only_the_server_knows(cause: str) -> None:
    stand = Stand()
    run = stand.submit({"retries": 1})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work(), cause=cause))
    assert stand.state(run) != "failed"


def test_a_checkpoint_of_a_task_that_declares_none_is_given_back_and_makes_no_part() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    reply = pilot.talk(Report(pilot.work(), "checkpointed", started=stand.now, duration=1.0))
    assert stand.events("task_checkpointed") == []
    assert [event.kind for event in stand.events("task_returned")] == ["task_returned"]
    assert stand.state(run) == "leased" and reply.leases[0].part == 0


def test_a_batch_that_reaches_beyond_every_element_is_refused_whole() -> None:
    """Its last names cannot be read back: half of the exchange had been carried out when that was noticed."""
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    batch = Batch(f"r{run}.{10**18 - 1}#1@1", 2)
    with pytest.raises(BadInput, match="batch"):
        pilot.send(pilot.make([good(attempt)], batches=[batch]))
    assert stand.state(run) == "running"
    assert pilot.verdict(good(attempt)) == "recorded"


@pytest.mark.parametrize(
    "more",
    [
        {"seq": 10**30}, {"ack": -1}, {"ack": 10**30}, {"tags": {"x": 10**60}}, {"tags": {"x": -(10**60)}},
        {"held": {"r1.1#1@1": "odd"}}, {"held": {f"r1.{10**18}#1@1": "leased"}},
    ],
)  # fmt: skip
def test_an_exchange_with_an_impossible_part_is_refused(more: dict[str, Any]) -> None:
    stand = Stand()
    pilot = stand.pilot()
    with pytest.raises(BadInput):
        pilot.send(pilot.make(**more))


@pytest.mark.parametrize("ends", [-5.0, 1e300])
def test_an_allocation_that_ends_in_the_past_or_never_is_taken_within_bounds(ends: float) -> None:
    stand = Stand()
    pilot = stand.pilot(ends=ends)
    known = stand.engine.state.pilots[pilot.name].ends
    assert known is not None and stand.now <= known < 1e10


def test_thousands_of_foreign_attempts_are_stopped_without_growing_work() -> None:
    """Each used to go through all that were stopped before it: one exchange took minutes."""
    stand = Stand()
    pilot = stand.pilot()
    for _ in range(3):
        stand.now += 3.0
        pilot.send(pilot.make(held={f"r9.{n}#1@1": "running" for n in range(1, MAX_HELD + 1)}))
    assert len(stand.engine.state.pilots[pilot.name].orders) <= MAX_HELD


def test_a_refusal_after_a_change_is_a_defect_and_not_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sender would be told changed nothing has changed something: memory may not go on like that."""
    stand = Stand()
    register = Register(PROTOCOL, "0", "host", "id", Capacity(1))

    def refuse(*words: object) -> None:
        stand.engine.state.emit("pilot_suspect")
        raise BadInput("too late")

    monkeypatch.setattr("shoal.engine.pilots.exchange.enrol", refuse)
    with pytest.raises(Exception) as caught:
        stand.do(Enrol(register, OWNER, "local"))
    assert not isinstance(caught.value, REFUSALS)
