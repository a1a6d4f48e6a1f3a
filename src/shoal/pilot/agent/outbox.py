"""What has yet to be said to the server, and what of it fits into the next exchange. Pure, like `agent`.

Rules: (1) a report, and the pieces of one stream, ride on one exchange at a time, so nothing overtakes itself;
(2) what an exchange carried in vain goes back to the front; (3) a report that may have been refused rides alone; if
the server itself refuses it twice, it rides without its texts, then as a plain failure; if not even that is taken, we
hold nothing of the attempt any more, and give it back when the server asks for it. What refuses without being the
server costs a report nothing, and one bad report does not stop the others; (4) of what tasks published the
last word counts, so it too rides on one exchange at a time, and so do the checkpoints of one attempt. Plain successes
of neighbours travel as one batch [ADR 0009].
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Union

from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_BODY, MAX_REPORTS, MAX_TAIL, MAX_TAILS, MAX_TASK_TAGS
from shoal.pilot.agent.events import Action, Complain, Settle
from shoal.wire.batches import cut, merge, report_of, weigh_batch
from shoal.wire.chunk import shift
from shoal.wire.messages import Batch, Checkpoint, Exchange, Held, LogPiece, Published, Report, TagValue, Verdict

TAIL_BYTES = 24 * MAX_TAIL  # of all tails in an exchange, as they stand in its JSON: 1.5 MiB
REPORT_BYTES = MAX_BODY // 8
MAX_ANNOUNCED = 256  # published tags per exchange; the rest ride on the next one
ANNOUNCED_KEPT = 4096  # of all tasks, while the server is away
MAX_SAVED = 64  # checkpoints per exchange
MESSAGE_KEPT = 200  # characters of a stripped report's message


class ExchangeContent(NamedTuple):
    """What goes into one exchange."""

    reports: list[Report]
    batches: list[Batch]
    tags: dict[str, TagValue]
    tails: list[LogPiece]
    published: list[Published]
    checkpoints: list[Checkpoint]


NOTHING = ExchangeContent([], [], {}, [], [], [])


class Outbox:
    """Reports, tags and tails on their way to the server."""

    def __init__(self, reports: OrderedDict[str, Report]) -> None:
        self.reports = reports  # until a reply acknowledges them
        self.batches: OrderedDict[str, Batch] = OrderedDict()  # of calls; likewise
        self.tags: dict[str, TagValue] = {}
        # By run and name, in the order of writing: the run tells whose it is, and the last word counts.
        self._published: OrderedDict[tuple[str, str], tuple[str, TagValue]] = OrderedDict()
        self._counts: Counter[str] = Counter()  # of them, by run
        self._checkpoints: OrderedDict[str, Checkpoint] = OrderedDict()  # the newest of each attempt
        self.more = False  # the hands have more tails than there was room for
        self._tails: deque[tuple[LogPiece, int]] = deque()
        self._suspects: OrderedDict[str, int] = OrderedDict()  # attempt -> how often the server refused it alone
        self._others_first = False  # a suspect was refused: what is not suspect goes before the next one

    @property
    def is_empty(self) -> bool:
        """Has everything that must not be lost been said, and heard?"""
        return not (self.reports or self.batches or self._tails or self.more)

    @property
    def unheard(self) -> int:
        """How many attempts' reports are not acknowledged."""
        return len(self.reports) + sum(batch.count for batch in self.batches.values())

    @property
    def tail_room(self) -> int:
        """How many bytes of tails may be added: two exchanges full are kept, the rest stays in its files."""
        return max(0, 2 * TAIL_BYTES - sum(weight for _, weight in self._tails))

    def add_batch(self, batch: Batch) -> None:
        """Calls that succeeded; more than one exchange carries is cut up."""
        for one in cut(batch, REPORT_BYTES):
            self.batches[one.attempt] = one

    def add_tails(self, tails: Iterable[LogPiece], more: bool) -> None:
        """Pieces of streams, in order."""
        self._tails.extend((tail, _weigh(tail)) for tail in tails)
        self.more = more

    def announce(self, attempt: str, tags: Mapping[str, TagValue]) -> None:
        """A task published these tags."""
        run = attempt.partition(".")[0]
        for name, value in tags.items():
            if self._published.pop((run, name), None) is None:
                if self._counts[run] >= MAX_TASK_TAGS or len(self._published) >= ANNOUNCED_KEPT:
                    continue
                self._counts[run] += 1
            self._published[run, name] = attempt, value

    @property
    def has_announced(self) -> bool:
        """Did tasks publish what rides on no exchange yet?"""
        return bool(self._published)

    def save(self, checkpoint: Checkpoint) -> None:
        """A newer checkpoint of an attempt takes the place of one that is not on its way yet."""
        self._checkpoints.pop(checkpoint.attempt, None)
        self._checkpoints[checkpoint.attempt] = checkpoint

    def held(self) -> list[Held]:
        """What is done and not acknowledged."""
        held = [Held(attempt, "done") for attempt in self.reports]
        return held + [Held(batch.attempt, "done", batch.count) for batch in self.batches.values()]

    def attempts(self) -> set[str]:
        """Attempts whose reports are not acknowledged."""
        return {*self.reports, *(attempt for batch in self.batches.values() for attempt in _names(batch))}

    def settle(self, attempt: str) -> bool:
        """A report was acknowledged; did we still hold it?"""
        self._suspects.pop(attempt, None)
        return self.reports.pop(attempt, None) is not None

    def settle_all(self, said: Exchange, verdicts: Sequence[Verdict]) -> list[tuple[str, bool]]:
        """What an exchange carried was acknowledged: the attempts of which something is still to be put away, and
        whether they count."""
        attempts = [report.attempt for report in said.reports]
        for batch in said.batches:
            if self.batches.pop(batch.attempt, None) is None:
                attempts += _names(batch)
        settled = [attempt for attempt in attempts if self.settle(attempt)]
        good = [v for v in verdicts if v.verdict in ("recorded", "adopted")] if settled else []
        accepted = {name for v in good for name in _names(v)}
        return [(attempt, attempt in accepted) for attempt in settled]

    # --- out
    def has_report(self, underway: Sequence[Exchange]) -> bool:
        """Is there a report that rides on no exchange yet?"""
        said = sum(len(exchange.reports) + sum(b.count for b in exchange.batches) for exchange in underway)
        return self.unheard > said

    def has_tail(self, underway: Sequence[Exchange]) -> bool:
        """Is there a piece that could ride now?"""
        riding = _streams(underway)
        return any((tail.attempt, tail.stream) not in riding for tail, _ in self._tails)

    def pack(self, underway: Sequence[Exchange]) -> ExchangeContent:
        """Take out what the next exchange carries."""
        riding = {report.attempt for exchange in underway for report in exchange.reports}
        for exchange in underway:
            for batch in exchange.batches:
                riding.update([batch.attempt] if batch.attempt in self.batches else _names(batch))
        suspects = [attempt for attempt in self._suspects if attempt not in riding]
        if suspects and not (self._others_first and self.unheard > len(self._suspects)):
            return NOTHING._replace(reports=[self.reports[suspects[0]]])
        self._others_first = False
        riding.update(suspects)
        tags, self.tags = self.tags, {}
        reports, batches = self._pack_reports(riding)
        published = [] if any(exchange.published for exchange in underway) else self._pack_published()
        tails, checkpoints = self._pack_tails(_streams(underway)), self._pack_checkpoints(underway)
        return ExchangeContent(reports, batches, tags, tails, published, checkpoints)

    def has_checkpoint(self, underway: Sequence[Exchange]) -> bool:
        """Is there a checkpoint that could ride now?"""
        riding = {one.attempt for exchange in underway for one in exchange.checkpoints}
        return any(attempt not in riding for attempt in self._checkpoints)

    def _pack_checkpoints(self, underway: Sequence[Exchange]) -> list[Checkpoint]:
        riding = {one.attempt for exchange in underway for one in exchange.checkpoints}
        found = [one for attempt, one in self._checkpoints.items() if attempt not in riding][:MAX_SAVED]
        for one in found:
            del self._checkpoints[one.attempt]
        return found

    def _pack_published(self) -> list[Published]:
        packed: list[Published] = []
        for _ in range(min(MAX_ANNOUNCED, len(self._published))):
            (run, name), (attempt, value) = self._published.popitem(last=False)
            self._counts[run] -= 1
            if not packed or packed[-1].attempt != attempt:
                packed.append(Published(attempt, {}))
            packed[-1].tags[name] = value
        self._counts += Counter()  # forget those of which nothing is left
        return packed

    def _pack_reports(self, riding: set[str]) -> tuple[list[Report], list[Batch]]:
        packed: list[Report] = []
        batches: list[Batch] = []
        count = bytes_ = 0
        for attempt, batch in self.batches.items():
            if attempt not in riding:
                count, bytes_ = count + batch.count, bytes_ + weigh_batch(batch)
                if batches and (count > MAX_REPORTS or bytes_ > REPORT_BYTES):
                    return [], batches
                batches.append(batch)
        for attempt, report in self.reports.items():
            if attempt not in riding:
                bytes_ += 500 + len(report.last_line) + len(report.stderr_tail) + sum(map(len, report.new_files))
                bytes_ += len(report.result)
                count += 1
                if (packed or batches) and (count > MAX_REPORTS or bytes_ > REPORT_BYTES):
                    break
                packed.append(report)
        reports, merged = merge(packed)
        return reports, batches + merged

    def _pack_tails(self, barred: set[tuple[str, str]]) -> list[LogPiece]:
        packed: list[LogPiece] = []
        kept: deque[tuple[LogPiece, int]] = deque()
        room = TAIL_BYTES
        for tail, weight in self._tails:
            if (tail.attempt, tail.stream) in barred or weight > room or len(packed) == MAX_TAILS:
                barred.add((tail.attempt, tail.stream))  # its later pieces must not overtake this one
                kept.append((tail, weight))
            else:
                packed.append(tail)
                room -= weight
        self._tails = kept
        return packed

    # --- back
    def put_back(self, exchanges: Sequence[Exchange]) -> None:
        """These were sent in vain: what they carried is said again, before anything newer."""
        for exchange in reversed(exchanges):
            self._tails.extendleft((tail, _weigh(tail)) for tail in reversed(exchange.tails))
            self.tags = {**exchange.tags, **self.tags}
            self._put_back_published(exchange.published)
            for one in exchange.checkpoints:
                self._checkpoints.setdefault(one.attempt, one)  # unless there is a newer one

    def _put_back_published(self, said: Sequence[Published]) -> None:
        newer, self._published = self._published, OrderedDict()
        self._counts.clear()
        for one in said:
            self.announce(one.attempt, one.tags)
        for (_, name), (attempt, value) in newer.items():
            self.announce(attempt, {name: value})

    def reject(self, said: Exchange, why: str, is_sure: bool) -> list[Action]:
        """This exchange was refused; `is_sure`: by the server itself, for what it says. What follows for a report that
        rode alone."""
        if not is_sure:
            self.put_back([replace(said, tails=[])])  # what something between takes offence at may be in the tails
        for batch in said.batches:
            if self.batches.pop(batch.attempt, None) is not None:
                self.reports.update((attempt, report_of(batch, at)) for at, attempt in enumerate(_names(batch)))
            for attempt in _names(batch):
                self._suspects.setdefault(attempt, 0)
        self._others_first = True
        beside = said.batches or said.tails or said.tags or said.published or said.checkpoints
        is_alone = len(said.reports) == 1 and not beside
        refused = said.reports[0].attempt if is_alone else ""
        if refused not in self._suspects:
            for report in said.reports:
                self._suspects.setdefault(report.attempt, 0)
            return []
        self._suspects.move_to_end(refused)
        return self._degrade(said.reports[0], why) if is_sure else []

    def _degrade(self, report: Report, why: str) -> list[Action]:
        """The server refused a report that rode alone, for the second time or more: say less."""
        attempt = report.attempt
        self._suspects[attempt] += 1
        if self._suspects[attempt] == 1:
            self.reports[attempt] = _strip(report)
            return []
        words = f"the server refused the report: {why}"[:MESSAGE_KEPT]
        if self._suspects[attempt] == 2:
            self.reports[attempt] = Report(attempt, "failed", "host_unfit", words, started=report.started)
            return [Complain(f"attempt={attempt} outcome={report.outcome} {words}"), Settle(attempt, False)]
        self.settle(attempt)
        return [Complain(f"attempt={attempt} nothing is reported on it any more: {words}")]


def _names(batch: Union[Batch, Verdict]) -> list[str]:
    """The attempts of a batch."""
    first = parse_attempt(batch.attempt)
    return [str(shift(first, at)) for at in range(batch.count)]


def _streams(exchanges: Iterable[Exchange]) -> set[tuple[str, str]]:
    return {(tail.attempt, tail.stream) for exchange in exchanges for tail in exchange.tails}


def _weigh(tail: LogPiece) -> int:
    """Bytes in the exchange: JSON makes six of a control character."""
    return len(json.dumps(tail.text, ensure_ascii=False).encode("utf-8", "replace"))


def _strip(report: Report) -> Report:
    # A result is what the call was made for: without it there is nothing to report.
    return replace(report, last_line="", stderr_tail="", new_files=[], message=report.message[:MESSAGE_KEPT])
