"""The engine rebuilt in place after a defect: with a real database and writer, without sockets [ADR 0016]."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.db.sqlite import Database
from shoal.engine.commands import Bury, Cancel, Enrol, Submit
from shoal.engine.engine import Engine
from shoal.model.errors import InternalError, TooBusy
from shoal.model.file_names import PILOT_PIDS
from shoal.model.ids import start_count
from shoal.model.people import PeopleRows
from shoal.model.timing import Timing
from shoal.server.auth.authentication import Authentication, Caller
from shoal.server.context import Context
from shoal.server.disk_reserve import Reserve
from shoal.server.handlers.people import PeopleHandler
from shoal.server.http.request import Call
from shoal.server.own_pilot import OriginalSettings, OwnPilot
from shoal.server.service import Service
from shoal.wire.http.requests import NewToken, NewUser, Revoke
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Register, Registered, Report
from shoal.wire.submission import parse_submission

ROOM = Capacity(2, 1 << 30, 1 << 30)


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
    done = await service.command(
        Submit(submission, "anna", "d"), lambda result: service.accept(int(result["run"][1:]), 1, result["tasks"])
    )
    return int(done["run"][1:])


async def join(service: Service) -> Registered:
    """A pilot of anna's."""
    register = Register(PROTOCOL, "0", "host", "id", ROOM, nonce="n")
    registered: Registered = await service.command(Enrol(register, "anna", "local"))
    return registered


def say(pilot: Registered, seq: int, **more: Any) -> Exchange:
    return Exchange(PROTOCOL, pilot.pilot, pilot.session, seq, seq - 1, more.pop("free", Capacity()), **more)


class Trap:
    """A defect behind the first change that a cancellation makes."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = service

        def fail(state: Any, command: Cancel) -> None:
            state.runs.clear()  # half changed, and more than half
            raise ZeroDivisionError("a planted defect")

        monkeypatch.setattr("shoal.engine.tasks.runs.cancel", fail)

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
        rate_limit = threading.Event()
        apply = service.writer._database.apply

        def slowly(changes: Any) -> None:
            rate_limit.wait(30.0)
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
        rate_limit.set()
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
        waiting = asyncio.ensure_future(service.exchange(say(pilot, 3, free=ROOM)))
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
        reply = await asyncio.wait_for(service.exchange(say(pilot, 2, free=ROOM)), 30.0)
        assert reply.leases[0].attempt.startswith(f"r{run}.")

    play(tmp_path, story)


def test_a_tick_that_meets_a_defect_pauses_and_does_not_stop_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(service: Service) -> None:
        def fail(state: Any) -> None:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr("shoal.engine.pilots.losses.watch", fail)
        for _ in range(3):
            service.tick()
            while service.is_rebuilding:
                await asyncio.sleep(0.01)
        assert service.contained == 1  # the others came within the pause
        assert await submit(service) == 1

    play(tmp_path, story)


def test_a_run_that_cannot_be_loaded_again_costs_its_asker_an_answer_and_the_engine_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(service: Service) -> None:
        run = await submit(service)
        loaded = await service.writer.ask(lambda db: db.load_run(run))
        assert loaded is not None

        def fail(self: Engine, *rows: Any) -> None:
            self.state.runs.clear()
            raise ZeroDivisionError("planted")

        with monkeypatch.context() as planted:
            planted.setattr(Engine, "load", fail)
            with pytest.raises(InternalError):
                service.load(loaded)
        with pytest.raises(TooBusy):
            service.load(loaded)
        while service.is_rebuilding:
            await asyncio.sleep(0.01)
        assert list(service.engine.state.runs) == [run] and service.contained == 1

    play(tmp_path, story)


def test_a_dead_pilot_of_this_machine_whose_burial_meets_a_defect_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(service: Service) -> None:
        pilot = await join(service)
        dead = service.engine.state.pilots[pilot.pilot]
        dead.tags["pid"], dead.host = 2**22 + 1, os.uname().nodename  # no process has such a number
        (tmp_path / PILOT_PIDS).write_text(str(2**22 + 1))

        def fail(state: Any, command: Bury) -> None:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr("shoal.engine.pilots.losses.bury", fail)
        local = OwnPilot(service, OriginalSettings(0o077, 1024))
        local.check()
        counts = [service.contained]
        while service.is_rebuilding:
            await asyncio.sleep(0.01)
        back = service.engine.state.pilots[pilot.pilot]
        back.tags["pid"], back.host = 2**22 + 1, os.uname().nodename
        local.check()
        counts.append(service.contained)
        local._bury_from = 0.0
        local.check()
        counts.append(service.contained)
        assert counts == [1, 1, 2], "not again at once: each costs everybody a rebuild"

    play(tmp_path, story)


def test_a_revocation_that_met_a_defect_is_healed_by_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens were revoked, their pilots lived on, and the same words found no token any more."""

    async def story(service: Service) -> None:
        access = Authentication(PeopleRows([], [], [], [], 1), lambda rows: None)
        for name, role in (("boss", "admin"), ("anna", "user")):
            access.add_user(NewUser(name, role=role), 1.0)
        boss = Caller("submit", "boss", role="admin", scopes=frozenset({"admin"}))
        row, _ = access.mint(boss, NewToken("enrol", owner="anna"), service.clock(), secrets.token_urlsafe)
        register = Register(PROTOCOL, "0", "host", "id", ROOM, nonce="n")
        await service.command(Enrol(register, "anna", "local", token=row.token))
        people = PeopleHandler(cast(Context, SimpleNamespace(access=access, service=service)))

        async def body(kind: type) -> Revoke:
            return Revoke(user="anna")

        def fail(state: Any, command: Any) -> None:
            state.pilots.clear()
            raise ZeroDivisionError("planted")

        call = cast(Call, SimpleNamespace(caller=boss, body=body, request={}))
        await Trap(service, monkeypatch).spring()
        with pytest.raises(TooBusy):
            await people.revoke(call)
        assert access.is_live(row.token), "nothing is changed while the engine is rebuilt"
        await settle(service)
        with monkeypatch.context() as planted:
            planted.setattr("shoal.engine.pilots.losses.expel", fail)
            with pytest.raises(InternalError):
                await people.revoke(call)
        await settle(service)
        assert len(service.engine.state.pilots) == 1
        answer = await people.revoke(call)
        assert json.loads(answer.body) == {"revoked": 0, "pilots": 1}
        assert not service.engine.state.pilots

    play(tmp_path, story)


async def settle(service: Service) -> None:
    """Wait until the engine is whole again."""
    while service.is_rebuilding:
        await asyncio.sleep(0.01)
