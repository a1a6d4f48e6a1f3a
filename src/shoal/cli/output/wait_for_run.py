"""Waiting for a run: progress, the first failure at once, why nothing runs, Ctrl-C, the summary at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

import click

from shoal.cli.arguments.moments import clock_text
from shoal.cli.main import FAILED, INTERRUPTED, OWN_FAILURE, REFUSED
from shoal.cli.output.describe import run_state
from shoal.cli.output.live_forecast import LiveForecast
from shoal.cli.output.machine_notes import MachineNotes
from shoal.cli.output.progress_display import Display, Status, TimeLeft, choose_display, site_parts
from shoal.cli.output.tables import clean, print_json, print_lines, write_stream
from shoal.cli.session import Session, say
from shoal.client.client import Client
from shoal.client.waiting import waiting
from shoal.engine.why.reason import IMPOSSIBLE, NOT_VISIBLE, is_impossible
from shoal.model.errors import NotFound, ShoalError, Unreachable
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_PAGE
from shoal.model.quantities import many, show_duration, show_size
from shoal.report.data_source import HttpSource
from shoal.report.partial import answer_lines, short_text
from shoal.report.summary import (
    Failure,
    Tally,
    deadline_document,
    deadline_lines,
    live_of,
    summary_lines,
    tally_run,
    task_of,
)
from shoal.sched.vector.deadline import chance_text
from shoal.wire.http.run_counts import done_of, units_of

AGAIN_WITHIN = 2.0  # a second Ctrl-C so soon cancels the run
STUCK_AFTER = 2.0  # nothing running for so long: say why
FEW = 10  # tasks whose events are shown as they come
HOPELESS_AFTER = 5.0  # nothing can run for so long: stop waiting
HOPELESS_WITH_SITES = 30.0  # the same for who has sites: their first report may take a while
LOOK_EVERY = 1.0  # seconds between requests for pilots and reasons
TAIL_LINES = 10
SHOWN_RAISES = 4  # raises of memory that are told at once
SHOWN_NOT_WHOLE = 5  # tasks whose output is not whole
FOLLOW_MOST = 20_000  # of a run with more finished tasks than that, only what happens from now on is followed

Json = dict[str, Any]


@dataclass
class Watch:
    """The state of waiting for one run."""

    session: Session
    client: Client
    run: str
    display: Display
    show_failure: bool = True
    earlier: int = 0  # tasks that were final when the waiting began, also by results that were taken over
    forecast: LiveForecast | None = None  # of its end, if that is told
    machines: MachineNotes | None = None  # what is told of the person's sites, if there are any
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tally: Tally = field(default_factory=Tally)
    hopeless: str = ""  # why nothing of the run can ever run here, once that is clear
    _row: Json = field(default_factory=dict)
    _began: float = 0.0
    _looked: float = -1e9
    _moved: float = 0.0
    _outputs_wait: str = ""  # why what tasks wrote cannot be kept, as the server said last
    _facts: Json = field(default_factory=dict)
    _reason: str = ""
    _tables: Json | None = None  # the run with what was submitted, once that had to be looked at
    _is_impossible: bool = False  # no pilot that is connected can run any of it
    _hopeless_since: float | None = None
    _shown_failure: bool = False
    _shown_raises: int = 0
    _lost_at: float | None = None
    _left: TimeLeft | None = None
    _answers: str = ""
    _risk_told: int = 0

    def follow(self, after: int = 0) -> None:
        """Read events until the run is finished and all of them are read, or until it is clear that nothing can run."""
        self._began = self._moved = self.clock()
        self.tally.run = self.run
        is_first = True
        for events in self.client.pages(self.run, after, wait=1.0, on_lost=self._on_lost, sleep=self.sleep):
            if self.forecast is not None:
                self.forecast.take(events, is_new=not is_first and len(events) < MAX_PAGE)
            is_first = False
            for event in events:
                self.tally.take(event)
                self._tell_raise(event)
                self._tell_risk(event)
                if self.machines is not None:
                    self.machines.take(event)
            if self.tally.first is not None and not self._shown_failure:
                self._shown_failure = True
                if self.show_failure:
                    self.display.note(failure_text(self.tally.first))
            was_over = self._over
            answered = self._look()
            if self._over and self.tally.finished and len(events) < MAX_PAGE:
                return
            if was_over and answered and not events:
                return  # the event of the run's end was deleted by retention
            if self.hopeless:
                return
            if 0 < len(events) < MAX_PAGE and self._row.get("total", 0) > FEW:
                # Let events gather: at a thousand tasks a second, one request each would be too many.
                self.sleep(0.02 if self.clock() - self._began < 1.0 else 0.2)

    def _tell_raise(self, event: Mapping[str, Any]) -> None:
        """Say at once that a task ran out of its memory and starts again with more, of the first few tasks."""
        data = event.get("data") or {}
        if event["kind"] == "task_retried" and data.get("memory") and self._shown_raises < SHOWN_RAISES:
            self._shown_raises += 1
            self.display.note(
                f"shoal: {task_of(event)} ran out of memory and is tried again with {clean(str(data.get('why')))}"
                + ("; further ones are counted in the summary" if self._shown_raises == SHOWN_RAISES else "")
            )

    def _tell_risk(self, event: Mapping[str, Any]) -> None:
        """Say that the deadline is at risk, when the server finds that it is."""
        if event["kind"] == "deadline_at_risk" and event["seq"] > self._risk_told:
            self._risk_told = event["seq"]
            data = event["data"]
            by = clock_text(data["due"], time.time())
            self.display.note(f"shoal: the deadline of {self.run} is at risk: P(by {by}) {chance_text(data['chance'])}")

    @property
    def _over(self) -> bool:
        return self._row.get("finished") is not None

    def _look(self) -> bool:
        """Read the progress and show it; True if the server answered."""
        now = self.clock()
        try:
            row = self.client.run_row(self.run)
            if self._row and row.get("nonce") != self._row.get("nonce"):
                raise NotFound(
                    f"{self.run} is another run now: the server's database was rolled back, and yours is gone",
                    code="other_history",
                    hint="see `shoal ps`",
                )
            self._row = row
            if now - self._looked >= LOOK_EVERY and now - self._began >= 0.5:
                self._looked = now
                self.session.wake_provisioner()  # without it pilots of sites may not reach the server
                self._facts = self.client.server()
                waits = str(self._facts.get("outputs_wait") or "")
                if waits and not self._outputs_wait and not self._over:
                    self.display.note(f"shoal: what tasks wrote waits on their hosts: {clean(waits)}")
                self._outputs_wait = waits
                is_slow = now - self._moved > STUCK_AFTER
                if not (self._running() or self._over) and (is_slow or self._facts.get("pilots")):
                    self._ask_why(now)
                if row.get("emits"):
                    self._answers = short_text(self.client.partial(self.run))
                if self.machines is not None and not self._over:
                    self.machines.look(self.client, row)
            if self.forecast is not None and self._facts:
                self._left = self.forecast.look(self.client, row, self._running(), int(self._facts.get("slots", 0)))
        except Unreachable:
            return False  # the next page of events meets the same error and handles it
        if self._running() or self._over:
            self._moved, self._reason, self._hopeless_since, self._is_impossible = now, "", None, False
        if self._lost_at is not None:
            self._lost_at = None
            self.display.note("shoal: the server answers again")
        counts = self._row["counts"]
        self.display.update(
            Status(
                run=self.run, name=self._row["name"], total=self._row["total"], running=self._running(),
                succeeded=counts.get("succeeded", 0), failed=counts.get("failed", 0) + counts.get("lost", 0),
                cancelled=counts.get("cancelled", 0), earlier=self.earlier, units=units_of(self._row),
                units_done=counts.get("units_done", 0),
                elapsed=now - self._began, pilots=self._facts.get("pilots", 0), slots=self._facts.get("slots", 0),
                reason=self._reason, is_impossible=self._is_impossible, left=self._left, answers=self._answers,
                due=self._row.get("due"),
                sites=site_parts(self._facts.get("sites") or ()),
            )
        )  # fmt: skip
        return True

    def _ask_why(self, now: float) -> None:
        """Ask why nothing runs. On a shared server a larger pilot may still join; the embedded one has only this machine."""
        answer = self.client.why(self.run)
        if any(reason.get("code") == NOT_VISIBLE for reason in answer.get("reasons") or ()):
            from shoal.client.visible_files import with_bindings  # few runs wait for that

            answer = with_bindings(answer, self._read_tables)
        self._is_impossible = is_impossible([str(reason.get("code")) for reason in answer.get("reasons") or ()])
        if self._is_impossible or now - self._moved > STUCK_AFTER:  # anything else may be over in a moment
            self._reason = reason_of(answer, IMPOSSIBLE if self._is_impossible else ())
        if not (self.session.is_embedded and self._is_impossible):
            self._hopeless_since = None
        elif self._hopeless_since is None:
            self._hopeless_since = now
        elif now - self._hopeless_since > (HOPELESS_WITH_SITES if self.session.site_names else HOPELESS_AFTER):
            self.hopeless = self._reason

    def _read_tables(self) -> Json:
        self._tables = self._tables or self.client.run(self.run)
        return self._tables

    def _running(self) -> int:
        """How many tasks run: of those with pilots, which also fetch tasks ahead, no more than there are slots."""
        live = live_of(self._row)
        if not live and self._facts.get("open_runs") == 1:
            live = int(self._facts.get("live", 0))  # the row is written when a task ends, the status is newer
        left = self._row["total"] - done_of(self._row)
        slots = int(self._facts.get("slots", 0))
        return int(min(live, left, slots) if slots else min(live, left))

    def _on_lost(self, error: Unreachable) -> Client | None:
        """Start the embedded server again; wait for any other."""
        if self.session.is_embedded:
            self.client.close()
            self.client = self.session.client()
            self.display.note("shoal: the server had ended; it was started again and the run goes on")
            return self.client
        if self._lost_at is None:
            self._lost_at = self.clock()
            self.display.note(f"shoal: {clean(error.message)}; trying again")
        return None


def reason_of(why: Json, codes: Collection[str] = ()) -> str:
    """The first reason (with one of these codes), with its fix."""
    reasons = [reason for reason in why.get("reasons") or () if not codes or reason.get("code") in codes]
    if not reasons:
        return ""
    first = reasons[0]
    return clean(f"{first['text']}" + (f" ({first['fix']})" if first.get("fix") else ""))


def failure_text(failure: Failure) -> str:
    """The first failure, which is shown at once, with the end of its standard error."""
    what = failure.message or failure.what or failure.cause
    lines = [f"shoal: {failure.example} failed ({failure.cause}): {clean(what)}"]
    tail = [clean(line) for line in failure.tail.strip().splitlines()[-TAIL_LINES:]]
    return "\n".join([*lines, *(f"  | {line}" for line in tail)])


def wait_for(
    session: Session, client: Client, run: str, quiet: bool = False, as_json: bool = False, single: bool = False,
    own_status: bool = False,
) -> int:  # fmt: skip
    """Wait for a run and print its summary; returns the exit status. `single`: it is one command, whose output is shown;
    with `own_status` its exit status is the command's own."""
    watch = Watch(session, client, run, choose_display(quiet or as_json), show_failure=not (single or as_json))
    if as_json or not quiet:
        watch.forecast = LiveForecast(is_shown=not as_json)
    if session.site_names and not (as_json or quiet):
        watch.machines = MachineNotes(watch.display.note)
    try:
        row = client.run_row(run)
        already = watch.earlier = done_of(row)
        if row["finished"] is None:
            if watch.forecast is not None and already > FOLLOW_MOST:
                watch.forecast.read_ends(client, row)
            with waiting():  # in a task that submitted it
                watch.follow(0 if already <= FOLLOW_MOST else int(client.server().get("last_seq", 0)))
    except KeyboardInterrupt:
        watch.display.close()
        return detach(watch.client, run)
    finally:
        watch.display.close()
    if watch.hopeless:
        return tell_hopeless(watch, as_json, own_status)
    complete = already <= FOLLOW_MOST and watch.tally.finished
    return tell_end(watch, as_json, single, quiet, complete, own_status)


def tell_hopeless(watch: Watch, as_json: bool, own_status: bool = False) -> int:
    """Say why nothing of the run can run here, and what helps."""
    run = watch.run
    with HttpSource(watch.client) as source:
        if as_json:
            print_json({**end_document(source.run(run), watch.tally, None), "stuck": watch.hopeless})
    say(f"{run} cannot run here: {watch.hopeless}; it stays queued: `shoal cancel {run}` takes it back")
    return OWN_FAILURE if own_status else REFUSED


def tell_end(
    watch: Watch, as_json: bool, single: bool, quiet: bool, complete: bool, own_status: bool = False
) -> int:  # fmt: skip
    """Print the summary of a run; returns 0 only if all its tasks succeeded and their output is whole; with `own_status`
    the exit status of its single command."""
    with HttpSource(watch.client) as source:
        info = source.run(watch.run)
        tally = watch.tally if complete and watch.tally.adds_up(info) else tally_run(source, watch.run, info)
        wall = info["finished"] - info["created"] if info["finished"] is not None else None
        fetched, is_fetched = _fetch(watch, source, info)
        status = 0 if info["counts"].get("succeeded", 0) == info["total"] and not tally.not_whole else FAILED
        goal = info.get("goal")
        if goal and goal["reached"] and not tally.not_whole:
            status = 0
        if own_status:
            status = exit_status(source.task(f"{watch.run}.1"))
        if not is_fetched:
            status = status or (OWN_FAILURE if own_status else FAILED)
        if as_json:
            from shoal.cli.output.json_documents import iso_document  # the other ways to end do not need it

            forecast = watch.forecast.document(info["finished"]) if watch.forecast is not None else None
            more = {"forecast": iso_document(forecast), **deadline_document(source, info)}
            more |= {"partial": source.partial(watch.run)} if info.get("emits") else {}
            print_json({**end_document(info, tally, wall), **more})
        elif single:
            is_whole = tell_single(source, f"{watch.run}.1", quiet)
            for task, change in tally.raised.items():
                say(f"warning: {task} needed more memory than stated, its last attempt had {clean(change)}")
            status = status or (0 if is_whole else OWN_FAILURE if own_status else FAILED)
        elif not quiet or status:
            happened = [f"    {sentence}" for sentence in tally.happened()]
            lines = [*summary_lines(info, tally, wall), *deadline_lines(source, info)]
            lines += answer_lines(source.partial(watch.run)) if info.get("emits") else []
            lines += ["  what happened:", *happened] if happened else []
            print_lines(clean(line) for line in [*lines, *fetched, f"  rows: shoal results {watch.run}"])
            for task, message in list(tally.not_whole.items())[:SHOWN_NOT_WHOLE]:
                say(f"warning: {task} succeeded, but {clean(message)}")
        return status


def _fetch(watch: Watch, source: HttpSource, info: Json) -> tuple[list[str], bool]:
    """Bring outputs that are on the server home, if we are in the run's directory; returns lines about them, and False if that
    failed. Only of one's own runs: where files are written, and what is in them, says whoever submitted."""
    has_outputs = any(array["task"].get("outputs") for array in info["arrays"])
    if not has_outputs or not info["cwd"] or os.path.realpath(info["cwd"]) != os.path.realpath(os.curdir):
        return [], True
    from shoal.cli.output.kept_outputs import fetch_outputs  # most runs have none

    try:
        stores = any(array["task"].get("store") for array in info["arrays"])
        if not stores and not watch.session.runs_elsewhere(watch.client):
            return [], True
        if not watch.session.is_embedded and info["owner"] != watch.client.whoami()["owner"]:
            return [], True
        done = fetch_outputs(watch.client, source, watch.run, info["cwd"])
    except ShoalError as error:
        say(f"warning: outputs were not fetched: {error.line}; `shoal get {watch.run}` tries again")
        return [], False
    if done.newer:
        say(
            f"warning: {many(done.newer, 'file')} here are newer than the outputs and were left: `shoal get {watch.run} --force`"
        )
    lines = [f"  {many(done.files, 'output')} fetched ({show_size(done.size)})"] if done.files else []
    lines += [f"  {many(done.stored, 'output')} stored where they belong"] if done.stored else []
    return lines, not done.newer


def exit_status(found: Json) -> int:
    """The exit status of a single command: its own, as a shell has it; 125 if there is none, or if it is not all."""
    row = found["task"] or {}
    if found["state"] == "succeeded":
        return OWN_FAILURE if row.get("message") else 0
    if row.get("signal"):
        return 128 + int(row["signal"])
    return abs(int(row.get("exit_code") or 0)) or OWN_FAILURE


def end_document(info: Json, tally: Tally, wall: float | None) -> Json:
    """The summary of a run as a JSON document."""
    fields = ("cause", "what", "count", "example", "message")
    failures = [{name: getattr(failure, name) for name in fields} for failure in tally.sorted_failures()]
    return {
        "run": info["run"], "state": run_state(info), "name": info["name"], "tasks": info["total"], "counts": info["counts"],
        "seconds": wall,
        "median": tally.quantile(0.5), "failures": failures, "happened": tally.happened(), "not_whole": tally.not_whole,
    }  # fmt: skip


def tell_single(source: HttpSource, task: str, quiet: bool) -> bool:
    """Print the output of a single command as if it had run here, then one line about it; True if its output came whole."""
    is_whole, ends_line = True, True
    found = source.task(task)
    row = found["task"] or found.get("span") or {}

    def noted(parts: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal ends_line
        for part in parts:
            ends_line = part.endswith(b"\n") if part else ends_line
            yield part

    for stream in ("stdout", "stderr"):
        try:
            parts = source.logs(task, stream)
            write_stream(noted(parts) if stream == "stderr" else parts, to_stderr=stream == "stderr")
        except ShoalError as error:
            if row.get("attempt") and not row.get("reused"):
                say(f"warning: its {stream} is not whole: {error.line}")
                is_whole = False
    sys.stdout.flush()
    if not ends_line and not sys.stderr.isatty() and (found["state"] != "succeeded" or row.get("message") or not quiet):
        click.echo(err=True)  # what follows begins a line of its own; on a terminal it does already
    if found["state"] != "succeeded":
        say(f"{task} {found['state']}: {end_in_words(row)}")
    elif row.get("message"):
        say(f"warning: {task} succeeded, but {clean(row['message'])}")
    elif not quiet:
        where = f" on {row['host']}" if row.get("host") else ""
        took = f" in {show_duration(row['duration'])}" if row.get("duration") is not None else ""
        say(f"{task} succeeded{took}{where}")
    return is_whole


def end_in_words(row: Json) -> str:
    """How a task ended, as a sentence."""
    message, number, code = str(row.get("message") or ""), row.get("signal"), row.get("exit_code")
    if number:
        if not message:
            return f"it was ended by signal {number}"
        # The message of the cause `signal` names it already.
        return message if row.get("cause") == "signal" else f"{message} (ended by signal {number})"
    if row.get("cause") == "task_error" and code and message in ("", f"exit code {code}"):
        return f"the command ended with exit code {code}"
    return message or str(row.get("cause") or "it did not run")


def detach(client: Client, run: str, sleep: Callable[[float], None] = time.sleep) -> int:
    """After the first Ctrl-C: leave the run alone and say how to come back; a second within 2 s cancels it."""
    try:
        click.echo(  # a second Ctrl-C may come during this output
            f"\nshoal: detached, {run} goes on.  come back: shoal wait {run}   stop it: shoal cancel {run}"
            f"   (or Ctrl-C again within {AGAIN_WITHIN:.0f} s)",
            err=True,
        )
        sleep(AGAIN_WITHIN)
    except KeyboardInterrupt:
        answer = client.cancel([run])
        click.echo(f"\nshoal: {run}: {many(answer['cancelled'], 'task')} cancelled", err=True)
    return INTERRUPTED
