"""What has yet to be delivered to the server, and what of it fits into the next exchange.

Rules: (1) a report, the pieces of one stream, published tags, and the checkpoints of one attempt are in one exchange at a
time, so that nothing overtakes itself; (2) what an undelivered exchange carried goes back to the front; (3) a report
that may have been the reason for a refusal is sent alone. If the server itself refuses it twice, it is sent without its
texts, then as a plain failure; if even that is refused, we drop it and give the attempt back when the server asks for
it. A refusal by a proxy costs a report nothing, and one bad report does not stop the others. Successes of neighbours
are one batch [ADR 0009].
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shoal.model.limits import (
    MAX_BODY,
    MAX_EMITS,
    MAX_FILE_ANSWERS,
    MAX_PEEKS,
    MAX_REPORTS,
    MAX_TAIL,
    MAX_TAILS,
    MAX_TASK_TAGS,
)
from shoal.pilot.agent.events import Action, Complain, Settle
from shoal.wire.batches import cut, merge, report_of, weigh_batch
from shoal.wire.chunk import names
from shoal.wire.messages import (
    Batch,
    Checkpoint,
    Emitted,
    Exchange,
    FileAnswer,
    Held,
    LogPiece,
    Published,
    Report,
    TagValue,
    Verdict,
)

TAIL_BYTES = 24 * MAX_TAIL  # of all tails in an exchange, encoded as JSON: 1.5 MiB
REPORT_BYTES = MAX_BODY // 8
EMITTED_BYTES = 512 * 1024  # of what running attempts emitted, per exchange
MAX_PUBLISHED = 256  # published tags per exchange
PUBLISHED_KEPT = 4096  # published tags of all tasks that are kept while the server is away
MAX_SAVED = 64  # checkpoints per exchange
MESSAGE_KEPT = 200  # characters of a stripped report's message


class ExchangeContent(NamedTuple):
    """The content of one exchange."""

    reports: list[Report]
    batches: list[Batch]
    tags: dict[str, TagValue]
    tails: list[LogPiece]
    published: list[Published]
    checkpoints: list[Checkpoint]
    files: list[FileAnswer]
    emitted: list[Emitted]

    @property
    def may_wait(self) -> bool:
        """True if nothing here waits for the verdicts, as the outputs of commands do: it is successes of calls."""
        return bool(self.batches) and not self.reports and all(batch.result for batch in self.batches)


NOTHING = ExchangeContent([], [], {}, [], [], [], [], [])


class Outbox:
    """Reports, tags and tails on their way to the server."""

    def __init__(self, reports: OrderedDict[str, Report]) -> None:
        self.reports = reports  # until a reply acknowledges them
        self.batches: OrderedDict[str, Batch] = OrderedDict()  # of calls; likewise
        self.tags: dict[str, TagValue] = {}
        # By run and name, in the order of writing: the last value counts.
        self._published: OrderedDict[tuple[str, str], tuple[str, TagValue]] = OrderedDict()
        self._counts: Counter[str] = Counter()  # of them, by run
        self._emitting: dict[str, str] = {}  # what running attempts emitted so far
        self._emitted: OrderedDict[str, None] = OrderedDict()  # those of them that are in no exchange since it changed
        self._checkpoints: OrderedDict[str, Checkpoint] = OrderedDict()  # the newest of each attempt
        self._files: deque[FileAnswer] = deque(
            maxlen=MAX_PEEKS
        )  # somebody waits for them, and asks again if they are lost
        self.more = False  # executors have more tails than were taken
        self._tails: deque[tuple[LogPiece, int]] = deque()
        self._suspects: OrderedDict[str, int] = OrderedDict()  # attempt -> refusals of it alone by the server
        self._is_others_turn = False  # a suspect was refused: other reports go before the next one

    @property
    def is_empty(self) -> bool:
        """True if everything that must not be lost was acknowledged."""
        return not (self.reports or self.batches or self._tails or self.more)

    @property
    def unacknowledged(self) -> int:
        """The number of attempts whose reports are not acknowledged."""
        return len(self.reports) + sum(batch.count for batch in self.batches.values())

    @property
    def tail_capacity(self) -> int:
        """Bytes of tails that may be added: enough for two exchanges is kept, the rest stays in its files."""
        return max(0, 2 * TAIL_BYTES - sum(weight for _, weight in self._tails))

    @property
    def has_suspect(self) -> bool:
        """True if a report may have been the reason for a refusal, and is sent alone."""
        return bool(self._suspects)

    def add_batch(self, batch: Batch) -> None:
        """Add calls that succeeded, cut into batches that fit into an exchange."""
        for one in cut(batch, REPORT_BYTES):
            self.batches[one.attempt] = one

    def add_tails(self, tails: Iterable[LogPiece], more: bool) -> None:
        """Add pieces of streams, in order."""
        self._tails.extend((tail, _weigh(tail)) for tail in tails)
        self.more = more

    def publish(self, attempt: str, tags: Mapping[str, TagValue]) -> None:
        """Add tags that a task published."""
        run = attempt.partition(".")[0]
        for name, value in tags.items():
            if self._published.pop((run, name), None) is None:
                if self._counts[run] >= MAX_TASK_TAGS or len(self._published) >= PUBLISHED_KEPT:
                    continue
                self._counts[run] += 1
            self._published[run, name] = attempt, value

    @property
    def has_published(self) -> bool:
        """True if published tags, or emitted values, are in no exchange yet."""
        return bool(self._published or self._emitted)

    @property
    def has_emitted(self) -> bool:
        """True if some running attempt has emitted values."""
        return bool(self._emitting)

    def emit(self, attempt: str, text: str) -> None:
        """Replace what an attempt that runs has emitted so far."""
        self._emitting[attempt] = text
        self._emitted[attempt] = None

    def forget_emitted(self, attempts: Iterable[str]) -> None:
        """These are over: what they emitted in all is in their reports, if it counts."""
        for attempt in attempts:
            self._emitting.pop(attempt, None)
            self._emitted.pop(attempt, None)

    def emit_again(self) -> None:
        """Send everything once more: the server has forgotten it."""
        self._emitted.update(dict.fromkeys(self._emitting))

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; it replaces an older one of the attempt that was not sent yet."""
        self._checkpoints.pop(checkpoint.attempt, None)
        self._checkpoints[checkpoint.attempt] = checkpoint

    def add_file(self, answer: FileAnswer) -> None:
        """Add the answer to a question about files."""
        self._files.append(answer)

    @property
    def has_file(self) -> bool:
        """True if such an answer is in no exchange yet."""
        return bool(self._files)

    def held(self) -> list[Held]:
        """Attempts that are done and not acknowledged, as exchanges list them."""
        if not (self.reports or self.batches):
            return []
        held = [Held(attempt, "done") for attempt in self.reports]
        return held + [Held(batch.attempt, "done", batch.count) for batch in self.batches.values()]

    def attempts(self) -> set[str]:
        """Attempts whose reports are not acknowledged."""
        return {*self.reports, *(attempt for batch in self.batches.values() for attempt in names(batch))}

    def settle(self, attempt: str) -> bool:
        """Remove an acknowledged report; False if it was removed before."""
        self._suspects.pop(attempt, None)
        return self.reports.pop(attempt, None) is not None

    def settle_all(self, exchange: Exchange, verdicts: Sequence[Verdict]) -> list[tuple[str, bool]]:
        """Remove what an acknowledged exchange carried; returns the attempts of which files may be left, and whether
        their reports were accepted."""
        if not (exchange.reports or exchange.batches):
            return []
        attempts = [report.attempt for report in exchange.reports]
        for batch in exchange.batches:
            if self.batches.pop(batch.attempt, None) is None:
                attempts += names(batch)
        settled = [attempt for attempt in attempts if self.settle(attempt)]
        good = [v for v in verdicts if v.verdict in ("recorded", "adopted")] if settled else []
        accepted = {name for v in good for name in names(v)}
        return [(attempt, attempt in accepted) for attempt in settled]

    # --- packing
    @property
    def _has_nothing(self) -> bool:
        kept = self.reports or self.batches or self.tags or self._published or self._emitted
        return not (kept or self._checkpoints or self._files or self._tails)

    def has_report(self, underway: Sequence[Exchange]) -> bool:
        """True if a report is in no exchange yet."""
        if not (self.reports or self.batches):
            return False
        sent = sum(len(exchange.reports) + sum(b.count for b in exchange.batches) for exchange in underway)
        return self.unacknowledged > sent

    def has_tail(self, underway: Sequence[Exchange]) -> bool:
        """True if a piece of a stream can be sent now."""
        if not self._tails:
            return False
        sent = _streams(underway)
        return any((tail.attempt, tail.stream) not in sent for tail, _ in self._tails)

    def pack(self, underway: Sequence[Exchange]) -> ExchangeContent:
        """Take the content of the next exchange."""
        if self._has_nothing:
            self._is_others_turn = False
            return NOTHING
        sent = {report.attempt for exchange in underway for report in exchange.reports}
        for exchange in underway:
            for batch in exchange.batches:
                sent.update([batch.attempt] if batch.attempt in self.batches else names(batch))
        suspects = [attempt for attempt in self._suspects if attempt not in sent]
        if suspects and not (self._is_others_turn and self.unacknowledged > len(self._suspects)):
            return NOTHING._replace(reports=[self.reports[suspects[0]]])
        self._is_others_turn = False
        sent.update(suspects)
        tags, self.tags = self.tags, {}
        reports, batches = self._pack_reports(sent)
        published = [] if any(exchange.published for exchange in underway) else self._pack_published()
        tails = self._pack_tails(_streams(underway)) if self._tails else []
        checkpoints = self._next_checkpoints(underway)
        for one in checkpoints:
            del self._checkpoints[one.attempt]
        files = [self._files.popleft() for _ in range(min(MAX_FILE_ANSWERS, len(self._files)))]
        emitted = [] if any(exchange.emitted for exchange in underway) else self._pack_emitted()
        return ExchangeContent(reports, batches, tags, tails, published, checkpoints, files, emitted)

    def has_checkpoint(self, underway: Sequence[Exchange]) -> bool:
        """True if a checkpoint can be sent now."""
        return bool(self._next_checkpoints(underway))

    def _next_checkpoints(self, underway: Sequence[Exchange]) -> list[Checkpoint]:
        if not self._checkpoints:
            return []
        sent = {one.attempt for exchange in underway for one in exchange.checkpoints}
        return [one for attempt, one in self._checkpoints.items() if attempt not in sent][:MAX_SAVED]

    def _pack_published(self) -> list[Published]:
        packed: list[Published] = []
        if not self._published:
            return packed
        for _ in range(min(MAX_PUBLISHED, len(self._published))):
            (run, name), (attempt, value) = self._published.popitem(last=False)
            self._counts[run] -= 1
            if not packed or packed[-1].attempt != attempt:
                packed.append(Published(attempt, {}))
            packed[-1].tags[name] = value
        self._counts += Counter()  # removes the zeros
        return packed

    def _pack_emitted(self) -> list[Emitted]:
        packed: list[Emitted] = []
        bytes_ = 0
        while self._emitted and len(packed) < MAX_EMITS and bytes_ < EMITTED_BYTES:
            attempt, _ = self._emitted.popitem(last=False)
            packed.append(Emitted(attempt, self._emitting[attempt]))
            bytes_ += len(packed[-1].text)
        return packed

    def _pack_reports(self, sent: set[str]) -> tuple[list[Report], list[Batch]]:
        packed: list[Report] = []
        batches: list[Batch] = []
        count = bytes_ = 0
        for attempt, batch in self.batches.items():
            if attempt not in sent:
                count, bytes_ = count + batch.count, bytes_ + weigh_batch(batch)
                if batches and (count > MAX_REPORTS or bytes_ > REPORT_BYTES):
                    return [], batches
                batches.append(batch)
        for attempt, report in self.reports.items():
            if attempt not in sent:
                bytes_ += 500 + len(report.last_line) + len(report.stderr_tail) + sum(map(len, report.new_files))
                bytes_ += len(report.result) + len(report.emitted)
                count += 1
                if (packed or batches) and (count > MAX_REPORTS or bytes_ > REPORT_BYTES):
                    break
                packed.append(report)
        reports, merged = merge(packed)
        return reports, batches + merged

    def _pack_tails(self, barred: set[tuple[str, str]]) -> list[LogPiece]:
        packed: list[LogPiece] = []
        kept: deque[tuple[LogPiece, int]] = deque()
        left = TAIL_BYTES
        for tail, weight in self._tails:
            if (tail.attempt, tail.stream) in barred or weight > left or len(packed) == MAX_TAILS:
                barred.add((tail.attempt, tail.stream))  # its later pieces must not overtake this one
                kept.append((tail, weight))
            else:
                packed.append(tail)
                left -= weight
        self._tails = kept
        return packed

    # --- undelivered and refused exchanges
    def put_back(self, exchanges: Sequence[Exchange]) -> None:
        """Take back what undelivered exchanges carried, before anything newer."""
        for exchange in reversed(exchanges):
            self._tails.extendleft((tail, _weigh(tail)) for tail in reversed(exchange.tails))
            self.tags = {**exchange.tags, **self.tags}
            self._put_back_published(exchange.published)
            self._files.extendleft(reversed(exchange.files))
            self._emitted.update({one.attempt: None for one in exchange.emitted if one.attempt in self._emitting})
            for one in exchange.checkpoints:
                self._checkpoints.setdefault(one.attempt, one)  # unless there is a newer one

    def _put_back_published(self, published: Sequence[Published]) -> None:
        newer, self._published = self._published, OrderedDict()
        self._counts.clear()
        for one in published:
            self.publish(one.attempt, one.tags)
        for (_, name), (attempt, value) in newer.items():
            self.publish(attempt, {name: value})

    def reject(self, exchange: Exchange, why: str, is_sure: bool) -> list[Action]:
        """Take back what a refused exchange carried; `is_sure`: the server itself refused its content. Returns what
        follows for a report that was sent alone."""
        if not is_sure:
            self.put_back([replace(exchange, tails=[], files=[])])  # which may be what the proxy refuses
        for batch in exchange.batches:
            if self.batches.pop(batch.attempt, None) is not None:
                self.reports.update((attempt, report_of(batch, at)) for at, attempt in enumerate(names(batch)))
            for attempt in names(batch):
                self._suspects.setdefault(attempt, 0)
        self._is_others_turn = True
        beside = bool(exchange.batches or exchange.tails or exchange.tags or exchange.published)
        beside = beside or bool(exchange.checkpoints or exchange.emitted)
        is_alone = len(exchange.reports) == 1 and not beside
        refused = exchange.reports[0].attempt if is_alone else ""
        if refused not in self._suspects:
            for report in exchange.reports:
                self._suspects.setdefault(report.attempt, 0)
            return []
        self._suspects.move_to_end(refused)
        return self._degrade(exchange.reports[0], why) if is_sure else []

    def _degrade(self, report: Report, why: str) -> list[Action]:
        """The server refused a report that was sent alone: leave more and more of it out."""
        attempt = report.attempt
        self._suspects[attempt] += 1
        if self._suspects[attempt] == 1:
            self.reports[attempt] = _strip(report)
            return []
        message = f"the server refused the report: {why}"[:MESSAGE_KEPT]
        if self._suspects[attempt] == 2:
            self.reports[attempt] = Report(attempt, "failed", "host_unfit", message, started=report.started)
            return [Complain(f"attempt={attempt} outcome={report.outcome} {message}"), Settle(attempt, False)]
        self.settle(attempt)
        return [Complain(f"attempt={attempt} nothing is reported on it any more: {message}")]


def _streams(exchanges: Iterable[Exchange]) -> set[tuple[str, str]]:
    return {(tail.attempt, tail.stream) for exchange in exchanges for tail in exchange.tails}


def _weigh(tail: LogPiece) -> int:
    """Bytes in the exchange: JSON makes six of a control character."""
    return len(tail.data) + len(json.dumps(tail.text, ensure_ascii=False).encode("utf-8", "replace"))


def _strip(report: Report) -> Report:
    # A result is what the call was made for: without it there is nothing to report.
    return replace(report, last_line="", stderr_tail="", new_files=[], message=report.message[:MESSAGE_KEPT])
