"""Waiting for a run: progress, the first failure at once, why nothing runs, Ctrl-C, the summary at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from shoal.cli.display import Display, Status, choose_display
from shoal.cli.session import Session, say
from shoal.cli.tables import clean, print_json, print_lines, write_raw
from shoal.client.client import Client
from shoal.model.errors import NotFound, ShoalError, Unreachable
from shoal.model.limits import MAX_PAGE
from shoal.model.quantities import many, show_duration
from shoal.report.phrases import done_of, live_of
from shoal.report.source import HttpSource
from shoal.report.summary import Failure, Tally, summary_lines, tally_run

AGAIN_WITHIN = 2.0  # a second Ctrl-C so soon cancels the run
STUCK_AFTER = 2.0  # nothing running for so long: say why
HOPELESS_AFTER = 5.0  # nothing can run for so long: stop waiting
LOOK_EVERY = 1.0  # seconds between questions about pilots and reasons
TAIL_LINES = 10
FOLLOW_MOST = 20_000  # of a run with more finished tasks than that, only what happens from now on is followed
REFUSED, INTERRUPTED = 3, 130
# What the engine says of tasks that no pilot there is can ever run, and of those that wait for others.
TOO_LARGE, PARENTS = "no pilot is large enough", "it waits for "

Json = dict[str, Any]


@dataclass
class Watch:
    """One run that is waited for."""

    session: Session
    client: Client
    run: str
    display: Display
    show_failure: bool = True
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tally: Tally = field(default_factory=Tally)
    hopeless: str = ""  # why nothing of the run can ever run here, once that is clear
    _row: Json = field(default_factory=dict)
    _began: float = 0.0
    _looked: float = -1e9
    _moved: float = 0.0
    _facts: Json = field(default_factory=dict)
    _reason: str = ""
    _hopeless_since: float | None = None
    _shown_failure: bool = False
    _lost_at: float | None = None

    def follow(self, after: int = 0) -> None:
        """Until the run is finished and all is read that led to it, or until it is clear that nothing can run."""
        self._began = self._moved = self.clock()
        self.tally.run = self.run
        for events in self.client.pages(self.run, after, wait=1.0, on_lost=self._on_lost, sleep=self.sleep):
            for event in events:
                self.tally.take(event)
            if self.tally.first is not None and not self._shown_failure:
                self._shown_failure = True
                if self.show_failure:
                    self.display.note(failure_text(self.tally.first))
            was_over = self._over
            answered = self._look()
            if self._over and self.tally.finished and len(events) < MAX_PAGE:
                return
            if was_over and answered and not events:
                return  # the journal ends without the run's end: retention took it
            if self.hopeless:
                return
            if 0 < len(events) < MAX_PAGE:
                # Let news gather: at a thousand tasks a second, one question each would be rude.
                self.sleep(0.02 if self.clock() - self._began < 1.0 else 0.2)

    @property
    def _over(self) -> bool:
        return self._row.get("finished") is not None

    def _look(self) -> bool:
        """Ask how far it is, and show it; did the server answer?"""
        now = self.clock()
        try:
            row = one_row(self.client, self.run)
            if self._row and row.get("nonce") != self._row.get("nonce"):
                raise NotFound(
                    f"{self.run} is another run now: the server's database was rolled back, and yours is gone",
                    code="other_history",
                    hint="see `shoal ps`",
                )
            self._row = row
            if now - self._looked >= LOOK_EVERY and now - self._began >= 0.5:
                self._looked = now
                self._facts = self.client.server()
                if now - self._moved > STUCK_AFTER and not self._running():
                    self._ask_why(now)
        except Unreachable:
            return False  # the next page of events finds out, and knows what to do
        if self._running() or self._over:
            self._moved, self._reason, self._hopeless_since = now, "", None
        if self._lost_at is not None:
            self._lost_at = None
            self.display.note("shoal: the server answers again")
        counts = self._row["counts"]
        self.display.update(
            Status(
                run=self.run, name=self._row["name"], total=self._row["total"], running=self._running(),
                succeeded=counts.get("succeeded", 0), failed=counts.get("failed", 0) + counts.get("lost", 0),
                cancelled=counts.get("cancelled", 0), reused=self.tally.reused, elapsed=now - self._began,
                pilots=self._facts.get("pilots", 0), slots=self._facts.get("slots", 0), reason=self._reason,
            )
        )  # fmt: skip
        return True

    def _ask_why(self, now: float) -> None:
        """Why nothing runs. On a server of others a larger pilot may still come; here there is only this machine."""
        answer = self.client.why(self.run)
        self._reason = reason_of(answer)
        if not (self.session.is_embedded and nothing_fits(answer)):
            self._hopeless_since = None
        elif self._hopeless_since is None:
            self._hopeless_since = now
        elif now - self._hopeless_since > HOPELESS_AFTER:
            self.hopeless = reason_of(answer, TOO_LARGE)

    def _running(self) -> int:
        """How many tasks run. The row counts those with a pilot, which also fetches ahead: no more run than fit."""
        live = live_of(self._row)
        if not live and self._facts.get("open_runs") == 1:
            live = int(self._facts.get("live", 0))  # the row is written when a task ends, the server knows now
        left = self._row["total"] - done_of(self._row)
        slots = int(self._facts.get("slots", 0))
        return int(min(live, left, slots) if slots else min(live, left))

    def _on_lost(self, error: Unreachable) -> Client | None:
        """The embedded server is started again; any other is waited for."""
        if self.session.is_embedded:
            self.client.close()
            self.client = self.session.client()
            self.display.note("shoal: the server had ended; it was started again and the run goes on")
            return self.client
        if self._lost_at is None:
            self._lost_at = self.clock()
            self.display.note(f"shoal: {clean(error.message)}; trying again")
        return None


def one_row(client: Client, run: str) -> Json:
    """A run's row without its arrays: the newest run before the next one."""
    page = client.runs(limit=1, before=f"r{int(run[1:]) + 1}")["runs"]
    if page and page[0]["run"] in (run, int(run[1:])):
        row: Json = page[0]
        return row
    return client.run(run)


def reason_of(why: Json, wanted: str = "") -> str:
    """The first reason (with the wanted words), with its fix."""
    reasons = [reason for reason in why.get("reasons") or () if wanted in reason["text"]]
    if not reasons:
        return ""
    first = reasons[0]
    return clean(f"{first['text']}" + (f" ({first['fix']})" if first.get("fix") else ""))


def nothing_fits(why: Json) -> bool:
    """Is everything that is left of a run too large for every pilot, or behind something that is?"""
    texts = [str(reason["text"]) for reason in why.get("reasons") or ()]
    return any(TOO_LARGE in text for text in texts) and all(TOO_LARGE in text or PARENTS in text for text in texts)


def failure_text(failure: Failure) -> str:
    """The first failure as it is shown at once: what, and the end of its standard error."""
    what = failure.message or failure.what or failure.cause
    lines = [f"shoal: {failure.example} failed ({failure.cause}): {clean(what)}"]
    tail = [clean(line) for line in failure.tail.strip().splitlines()[-TAIL_LINES:]]
    return "\n".join([*lines, *(f"  | {line}" for line in tail)])


def wait_for(
    session: Session, client: Client, run: str, quiet: bool = False, as_json: bool = False, single: bool = False
) -> int:
    """Wait for a run, show its end, return the exit status."""
    watch = Watch(session, client, run, choose_display(quiet or as_json), show_failure=not (single or as_json))
    try:
        row = one_row(client, run)
        already = done_of(row)
        if row["finished"] is None:
            watch.follow(0 if already <= FOLLOW_MOST else newest_event(client))
    except KeyboardInterrupt:
        watch.display.close()
        return detach(watch.client, run)
    finally:
        watch.display.close()
    if watch.hopeless:
        return tell_hopeless(watch, as_json)
    return tell_end(watch, as_json, single, quiet, complete=already <= FOLLOW_MOST and watch.tally.finished)


def tell_hopeless(watch: Watch, as_json: bool) -> int:
    """Nothing of the run can run here: one line that says why and what helps [B1]."""
    run = watch.run
    with HttpSource(watch.client) as source:
        if as_json:
            info = source.run(run)
            print_json({**end_document(info, watch.tally, None), "stuck": watch.hopeless})
    say(f"{run} cannot run here: {watch.hopeless}; it stays queued: `shoal cancel {run}` takes it back")
    return REFUSED


def newest_event(client: Client) -> int:
    """Where the journal ends now."""
    return int(client.server().get("last_seq", 0))


def tell_end(watch: Watch, as_json: bool, single: bool, quiet: bool, complete: bool) -> int:
    """Show what became of a run; 0 only if all succeeded."""
    with HttpSource(watch.client) as source:
        return _tell_end(source, watch, as_json, single, quiet, complete)


def _tell_end(source: HttpSource, watch: Watch, as_json: bool, single: bool, quiet: bool, complete: bool) -> int:
    info = source.run(watch.run)
    tally = watch.tally if complete and watch.tally.adds_up(info) else tally_run(source, watch.run, info)
    ended = info["finished"]
    wall = ended - info["created"] if ended is not None else None
    status = 0 if info["counts"].get("succeeded", 0) == info["total"] else 1
    if as_json:
        print_json(end_document(info, tally, wall))
    elif single:
        tell_single(source, f"{watch.run}.1", quiet)
    elif not quiet or status:
        print_lines(clean(line) for line in summary_lines(info, tally, wall))
        happened = tally.happened()
        if happened:
            click.echo("  what happened:")
            print_lines(clean(f"    {sentence}") for sentence in happened)
        click.echo(f"  rows: shoal results {watch.run}")
    return status


def end_document(info: Json, tally: Tally, wall: float | None) -> Json:
    """The end of a run for programs."""
    groups = sorted(tally.failures.values(), key=lambda failure: -failure.count)
    return {
        "run": info["run"],
        "name": info["name"],
        "tasks": info["total"],
        "counts": info["counts"],
        "seconds": wall,
        "median": tally.quantile(0.5),
        "failures": [
            {"cause": g.cause, "what": g.what, "count": g.count, "example": g.example, "message": g.message}
            for g in groups
        ],
        "happened": tally.happened(),
    }


def tell_single(source: HttpSource, task: str, quiet: bool) -> None:
    """A single command: its own output as if it had run here, then one line about it."""
    found = source.task(task)
    row = found["task"] or found.get("span") or {}
    for stream in ("stdout", "stderr"):
        try:
            write_raw(source.logs(task, stream), to_stderr=stream == "stderr")
        except ShoalError as error:
            if row.get("attempt") and not row.get("reused"):
                say(f"its {stream} is not there: {error.line}")
    sys.stdout.flush()
    if found["state"] == "succeeded":
        if not quiet:
            where = f" on {row['host']}" if row.get("host") else ""
            took = f" in {show_duration(row['duration'])}" if row.get("duration") is not None else ""
            say(f"{task} succeeded{took}{where}")
        return
    say(f"{task} {found['state']}: {end_in_words(row)}")


def end_in_words(row: Json) -> str:
    """How a task ended."""
    said, number, code = str(row.get("message") or ""), row.get("signal"), row.get("exit_code")
    if number:
        if not said:
            return f"it was ended by signal {number}"
        return said if f"signal {number}" in said else f"{said} (ended by signal {number})"
    if row.get("cause") == "task_error" and code and said in ("", f"exit code {code}"):
        return f"the command ended with exit code {code}"
    return said or str(row.get("cause") or "it did not run")


def detach(client: Client, run: str, sleep: Callable[[float], None] = time.sleep) -> int:
    """The first Ctrl-C: leave the run alone, say how to come back; the second within 2 s cancels it."""
    try:
        click.echo(  # a second one may come while it is said
            f"\nshoal: detached, {run} goes on.  come back: shoal wait {run}   stop it: shoal cancel {run}"
            f"   (or Ctrl-C again within {AGAIN_WITHIN:.0f} s)",
            err=True,
        )
        sleep(AGAIN_WITHIN)
    except KeyboardInterrupt:
        answer = client.cancel([run])
        click.echo(f"\nshoal: {run}: {many(answer['cancelled'], 'task')} cancelled", err=True)
    return INTERRUPTED
