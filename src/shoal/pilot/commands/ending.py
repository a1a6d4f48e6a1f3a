"""From the end of a command to its report: whose fault it was, checkpoint, outputs.

What blocks here runs on the file threads.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Optional

from shoal.model.ids import parse_attempt, run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.commands import checkpoint, setup, streams
from shoal.pilot.commands.files import NoSpace, StageError, size_of
from shoal.pilot.commands.staging import Prepared, Staging
from shoal.pilot.host import disk_space
from shoal.pilot.uplink.blobs import Blobs
from shoal.wire.messages import GO_ON_LATER, Report, Step

log = logging.getLogger(__name__)

_MEBI = 1024 * 1024
STDERR_END = 4096  # bytes of stderr in which a container runtime shows that it failed


@dataclass(frozen=True)
class End:
    """What is known of the end of a command."""

    made: Prepared
    report: Report
    err: str  # the file of its stderr
    stop: str = ""  # why it was stopped
    keep: bool = False  # it was stopped to be continued later
    staged: float = 0.0  # seconds that staging in took

    @property
    def is_slow(self) -> bool:
        """True if there are files to move or to remove."""
        made, lease = self.made, self.made.lease
        return bool(made.own_dir or lease.container or lease.sent_on) or (bool(lease.checkpoint) and self._may_go_on)

    @property
    def _may_go_on(self) -> bool:
        if self.stop or self.report.cause == "cancelled":
            return self.keep and self.report.cause == "cancelled"
        return self.report.exit_code == GO_ON_LATER and self.report.cause == "task_error"

    def finish(self, stage: Staging, blobs: Optional[Blobs]) -> Report:
        """The report that the server gets."""
        began, made, report = time.monotonic(), self.made, self._judge()
        if report.evidence == "no_space" and made.own_dir:
            report = self._blame_filler(report)
        if made.own_dir:
            report = replace(report, new_files=stage.new_files(made))
        try:
            if made.lease.checkpoint and self._may_go_on and report.cause != "host_unfit":
                report = self._keep(report, blobs)
            elif report.outcome == "succeeded":
                out = time.monotonic()
                kept = stage.collect(made, blobs)
                report = replace(report, result=kept) if kept else report
                if made.lease.measure:
                    report = replace(report, sizes=stage.sizes(made, kept))
                if made.own_dir:
                    moved = stage.moved_out(made, kept)
                    steps = Step("run", report.duration), Step("stage_out", time.monotonic() - out, *moved)
                    report = replace(report, steps=[*made.steps, *steps])
        except NoSpace as error:
            report = replace(report, outcome="returned", cause=error.cause, message=str(error), evidence="no_space")
        except StageError as error:
            report = replace(report, outcome="failed", cause=error.cause, message=str(error))
        except (ValueError, OSError) as error:
            report = replace(report, outcome="failed", cause="stage_out", message=str(error))
        except Exception as error:  # whatever it is, the attempt must have an end
            log.exception("attempt=%s cannot be collected", report.attempt)
            message = f"its outputs cannot be collected: {type(error).__name__}: {error}"
            report = replace(report, outcome="failed", cause="stage_out", message=message)
        if made.own_dir and not report.steps:
            report = replace(report, steps=[*made.steps, Step("run", report.duration)])
        if made.own_dir or report.files or self.staged:
            report = replace(report, staging=self.staged + time.monotonic() - began)
        return report

    def _blame_filler(self, report: Report) -> Report:
        """Blame a full disk on this very task if it wrote that much beyond its disk need."""
        used, asked = size_of(self.made.own_dir), self.made.lease.room.disk
        if used < max(asked, disk_space.PLENTY):
            return report
        message = f"it filled the disk: {used // _MEBI} MiB in its own directory, its disk need is {asked // _MEBI} MiB"
        return replace(report, outcome="failed", cause="task_error", message=message, evidence="")

    def _judge(self) -> Report:
        """Find out whether the command ended, or what comes before it."""
        start_stage, report = self.made.start_stage, self.report
        if start_stage is None:
            return report
        where, runtime = start_stage.reached()
        if start_stage.image and (report.signal is not None or report.cause not in ("", "task_error")):
            wrong = start_stage.remove(self.made.env)
            if wrong:
                log.error("attempt=%s %s", report.attempt, wrong)
        stderr = streams.tail(self.err, STDERR_END) if runtime else ""
        return setup.judge(start_stage, report, where, runtime, stderr)

    def _keep(self, report: Report, blobs: Optional[Blobs]) -> Report:
        """Store its checkpoint, if it wrote one."""
        made, is_exit = self.made, report.exit_code == GO_ON_LATER
        if not is_exit and not checkpoint.is_written(made.cwd, made.before):
            return report
        try:
            if blobs is None:
                raise StageError("stage_out", "this pilot has no way to keep a checkpoint")
            run = run_text(parse_attempt(report.attempt).run)
            patience = checkpoint.WINDOW if self.stop else None
            files = checkpoint.keep(made.cwd, made.lease.checkpoint, blobs, run, patience)
        except StageError as error:
            if not self.stop:
                raise
            log.error("attempt=%s %s", report.attempt, error)  # it is given back, and begins where it began before
            return report
        message = f"wrote its checkpoint{f' when it was stopped: {self.stop}' if self.stop else ''}"
        return replace(report, outcome="checkpointed", cause="", message=message, files=files)
