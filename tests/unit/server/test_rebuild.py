"""The engine rebuilt in place after a defect: with a real database and writer, without sockets [ADR 0016]."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.db.sqlite import Database
from shoal.engine.commands import Cancel, Enrol, Submit
from shoal.engine.engine import Engine
from shoal.model.errors import InternalError, TooBusy
from shoal.model.ids import start_count
from shoal.model.timing import Timing
from shoal.server.reserve import Reserve
from shoal.server.service import Service
from shoal.wire.messages import PROTOCOL, Exchange, Register, Registered, Report, Room
from shoal.wire.submission import parse_submission

ROOM = Room(2, 1 << 30, 1 << 30)


def play(folder: Path, story: Callable[[Service], Awaitable[None]]) -> None:
    """Have a story happen to a server's living parts."""

    async def main() -> None:
        database = Database.open(folder / "shoal.db", durability="normal")
        service = Service(database, folder, Timing(), "own", Reserve(folder))
        try:
            await story(service)
        finally:
            await service.close()

    asyncio.run(main())


async def submit(service: Service, count: int = 2) -> int:
    """A run of so many tasks."""
    submission = parse_submission({"tasks": [{"command": ["true"], "array": f"1-{count}"}]})
    done = await service.command(Submit(submission, "anna", "d"), lambda result: service.accept(int(result["run"][1:])))
    return int(done["run"][1:])


async def join(service: Service) -> Registered:
    """A pilot of anna's."""
    register = Register(PROTOCOL, "0", "host", "id", ROOM, nonce="n")
    registered: Registered = await service.command(Enrol(register, "anna", "local"))
    return registered


def say(pilot: Registered, seq: int, **more: Any) -> Exchange:
    return Exchange(PROTOCOL, pilot.pilot, pilot.session, seq, seq - 1, more.pop("free", Room()), **more)


class Trap:
    """A defect behind the first change that a cancellation makes."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = service

        def fail(state: Any, command: Cancel) -> None:
            state.runs.clear()  # half changed, and more than half
            raise ZeroDivisionError("a planted defect")

        monkeypatch.setattr("shoal.engine.runs.cancel", fail)

    async def spring(self) -> None:
        """Have a command meet it."""
        with pytest.raises(InternalError):
            await self.service.command(Cancel((1,)))

    async def over(self) -> None:
        """Wait until the engine is whole again."""
        while self.service.is_rebuilding:
            await asyncio.sleep(0.01)


def test_what_was_handed_out_and_not_yet_committed_is_in_the_rebuilt_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(service: Service) -> None:
        run = await submit(service)
        pilot = await join(service)
        gate = threading.Event()
        apply = service.writer._database.apply

        def slowly(changes: Any) -> None:
            gate.wait(30.0)
            apply(changes)

        monkeypatch.setattr(service.writer._database, "apply", slowly)
        reply = await service.exchange(say(pilot, 1, free=ROOM))  # leases of safe tasks go out before their commit
        first = reply.leases[0].attempt
        assert sum(lease.count for lease in reply.leases) == 2
        reported = asyncio.ensure_future(
            service.exchange(say(pilot, 2, reports=[Report(first, "succeeded", exit_code=0)]))
        )
        await asyncio.sleep(0)
        trap = Trap(service, monkeypatch)
        await trap.spring()
        with pytest.raises(TooBusy):
            await service.exchange(say(pilot, 3))
        with pytest.raises(TooBusy):
            await submit(service)
        service.tick()  # nobody's command: passed over
        assert not reported.done()
        gate.set()
        assert [verdict.verdict for verdict in (await reported).verdicts] == ["recorded"]
        await trap.over()
        state = service.engine.state
        assert service.engine.check() == [] and list(state.runs) == [run] and start_count(state.incarnation) == 1
        assert state.pilots[pilot.pilot].held == 1
        again = await service.exchange(say(pilot, 2, reports=[Report(first, "succeeded", exit_code=0)]))
        assert [verdict.verdict for verdict in again.verdicts] == ["recorded"]
        assert service.contained == 1

    play(tmp_path, story)


def test_a_parked_exchange_is_answered_empty_and_the_next_one_is_parked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(service: Service) -> None:
        pilot = await join(service)
        waiting = asyncio.ensure_future(service.exchange(say(pilot, 1, free=ROOM)))
        await asyncio.sleep(0.05)
        trap = Trap(service, monkeypatch)
        await trap.spring()
        reply = await asyncio.wait_for(waiting, 30.0)
        assert (reply.seq, reply.leases, reply.verdicts) == (1, [], [])
        await service.exchange(say(pilot, 2, free=ROOM))  # it may be older than the rebuild: answered at once
        waiting = asyncio.ensure_future(service.exchange(say(pilot, 3, ack=2, free=ROOM)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await submit(service)
        assert (await asyncio.wait_for(waiting, 30.0)).leases

    play(tmp_path, story)


def test_a_submission_whose_acceptance_meets_a_defect_is_answered_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are durable: the rebuilt engine offers them, and the submitter must not wait for ever."""

    async def story(service: Service) -> None:
        failures = [ZeroDivisionError("planted")]
        accept = Engine.handle

        def handle(self: Any, command: Any, now: float) -> Any:
            if type(command).__name__ == "Accept" and failures:
                raise failures.pop()
            return accept(self, command, now)

        monkeypatch.setattr(Engine, "handle", handle)
        pilot = await join(service)
        run = await asyncio.wait_for(submit(service), 30.0)
        while service.is_rebuilding:
            await asyncio.sleep(0.01)
        await service.exchange(say(pilot, 1, free=ROOM))
        reply = await asyncio.wait_for(service.exchange(say(pilot, 2, ack=1, free=ROOM)), 30.0)
        assert reply.leases[0].attempt.startswith(f"r{run}.")

    play(tmp_path, story)


def test_a_tick_that_meets_a_defect_pauses_and_does_not_stop_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(service: Service) -> None:
        def fail(state: Any) -> None:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr("shoal.engine.losses.watch", fail)
        for _ in range(3):
            service.tick()
            while service.is_rebuilding:
                await asyncio.sleep(0.01)
        assert service.contained == 1  # the others came within the pause
        assert await submit(service) == 1

    play(tmp_path, story)
