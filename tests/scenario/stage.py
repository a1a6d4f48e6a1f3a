"""The stage of a scenario: the product's engine, database and agents on a virtual clock, moved by one command at a time.

A network without faults carries what they say to each other. What a task does stands in its own command: `work 20`
succeeds after 20 s, `fail 20` fails after 20 s, `fail-once 20` fails the first time. Each command answers with what the
journal got meanwhile. All indexes of the engine are checked after every step, as in any simulated world.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from shoal.engine.changes import Change, Successes
from shoal.engine.commands import Cancel, SetPolicy
from shoal.model.event import Event
from shoal.model.ids import AttemptId, TaskId, parse_run, parse_task
from shoal.sim.host import Host, Placement
from shoal.sim.proof.faults import Plan
from shoal.sim.proof.world import World
from shoal.wire.messages import Capacity
from shoal.wire.policy import parse_policy

NO_FAULTS = Plan(0.0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0.0)
SETTLE = 0.5  # seconds that every command takes: what it asked for has come about by then
# What says nothing, or another thing in every replay, or the same as the line's other words.
UNSAID = frozenset(
    {"author", "before", "duration", "host", "incarnation", "leased", "memory", "seconds", "since", "started"}
)
NUMBERS = frozenset({"priority", "retries", "cores"})


class Stage(World):
    """A simulated world in which nothing happens but what a scenario says."""

    def __init__(self) -> None:
        super().__init__(0, NO_FAULTS)
        self.healed = True  # messages take a millisecond, and none is lost
        self._began = self.clock.now
        self._lines: list[str] = []
        self._named: dict[str, Host] = {}
        self._names: dict[str, str] = {}  # pilot -> what the scenario calls it
        self._runs = 0
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "pilot": self._pilot,
            "submit": self._submit,
            "advance": lambda words: self._advance(float(words[0].removesuffix("s"))),
            "kill": lambda words: self._named[words[0]].die(),
            "drain": lambda words: self._named[words[0]].drain(),
            "cancel": self._cancel,
            "policy": self._policy,
            "why": self._why,
            "show": self._show,
        }
        self.server.start()
        self._advance(0.0)

    def close(self) -> None:
        """Close its database."""
        self.server.database.close()

    def perform(self, line: str) -> str:
        """Do one command; returns what came of it, a line each."""
        self._lines = []
        name, *words = line.split()
        self._commands[name](words)
        if name not in ("advance", "why", "show"):
            self._advance(SETTLE)
        return "".join(f"{line}\n" for line in self._lines)

    # --- commands
    def _pilot(self, words: list[str]) -> None:
        name, *more = words
        options = dict(word.split("=", 1) for word in more)
        room = Capacity(int(options.get("cores", 1)), 8 << 30, 8 << 30, 0)
        where = Placement(name, options.get("site", "local"))
        self._named[name] = Host(self, len(self.hosts), room, where)
        self.hosts.append(self._named[name])

    def _submit(self, words: list[str]) -> None:
        at = words.index("--")
        options = dict(word.split("=", 1) for word in words[:at])
        table: dict[str, Any] = {key: int(value) if key in NUMBERS else value for key, value in options.items()}
        self._runs += 1
        self.users.unanswered += 1
        self.users.submit([{"command": words[at + 1 :], **table}], f"run{self._runs}")

    def _cancel(self, words: list[str]) -> None:
        targets: list[int | TaskId] = [parse_task(word) if "." in word else parse_run(word) for word in words]
        self.server.request(Cancel(tuple(targets)), lambda result: self._lines.append(f"answer {result}"), _must_not)

    def _policy(self, words: list[str]) -> None:
        document = json.loads(" ".join(words))
        self.server.request(
            SetPolicy(parse_policy(document), json.dumps(document), "root"), lambda result: None, _must_not
        )

    def _why(self, words: list[str]) -> None:
        assert self.server.engine is not None
        state, reasons = self.server.engine.why(parse_task(words[0]), self.clock.now)
        self._lines.append(state)
        self._lines += [self._readable(f"  {reason.text}") for reason in reasons]

    def _show(self, words: list[str]) -> None:
        assert not self.server.uncommitted
        loaded = self.server.database.load_run(parse_run(words[0]))
        assert loaded is not None
        counts = json.loads(loaded.run.counts)
        self._lines.append(" ".join(f"{state}={count}" for state, count in counts.items() if count))

    def _advance(self, seconds: float) -> None:
        """Let time pass, and look whether all is well after every step."""
        passed: list[bool] = []
        self.clock.after(seconds, lambda: passed.append(True))
        while not passed:
            self.clock.step()
            self.check()

    # --- what a task does
    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """As its command says."""
        assert self.server.engine is not None
        array = self.server.engine.state.runs[attempt.run].array_of(attempt.element)
        assert array is not None
        what, seconds = array.spec.command
        return float(seconds), what == "fail" or (what == "fail-once" and attempt.number == 1)

    def pilot_ended(self, host: Host) -> None:
        """A pilot is no more, and nobody comes in its place."""

    # --- the transcript
    def _committed(self, changes: list[Change]) -> None:
        super()._committed(changes)
        for change in changes:
            events = change.events() if isinstance(change, Successes) else [change] if isinstance(change, Event) else []
            self._names |= {str(e.pilot): e.data["host"] for e in events if e.kind == "pilot_joined"}
            self._lines += [self._told(event) for event in events]

    def _told(self, event: Event) -> str:
        what = f"r{event.run}" if event.run is not None else ""
        what += f".{event.task}" if event.task is not None else ""
        what += f"#{event.attempt}" if event.attempt is not None else ""
        data = {
            key: value for key, value in event.data.items() if key not in UNSAID and value not in (None, "", 0, {}, [])
        }
        words = [f"{int(event.time - self._began):>3}s", event.kind, what, f"on {event.pilot}" if event.pilot else ""]
        words += [f"{key}={value}" for key, value in data.items()]
        return self._readable(" ".join(word for word in words if word))

    def _readable(self, text: str) -> str:
        """With the scenario's names for pilots, attempts without what is random in theirs, whole seconds."""
        for pilot, name in self._names.items():
            text = text.replace(pilot, name)
        return re.sub(r"@\d+(~[0-9a-f]+)?", "", re.sub(r"\b(\d+)\.\d+s\b", r"\1s", text))


def _must_not(error: Exception) -> None:
    raise error
