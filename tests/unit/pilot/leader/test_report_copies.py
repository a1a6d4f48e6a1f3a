"""Each report is in one copy, and a copy is needed until the server has all that is in it."""

from __future__ import annotations

from shoal.model.limits import MAX_COPY
from shoal.pilot.leader.report_copies import ReportCopies, ReportsToCopy
from shoal.wire import codec
from shoal.wire.messages import Batch, Exchange, Proof, Report


def named(*names: str, result: str = "") -> dict[str, Report]:
    return {name: Report(name, "succeeded", result=result) for name in names}


def test_what_comes_later_goes_into_another_copy() -> None:
    copies = ReportCopies()
    reports = named("r1.1#1@1", "r1.2#1@1")
    batches = {"r1.3#1@1": Batch("r1.3#1@1", 4)}
    (first,) = copies.missing(reports, batches)
    assert (first.reports, first.batches) == (list(reports.values()), list(batches.values()))
    copies.made("one", first)
    assert list(copies.missing(reports, batches)) == []
    reports |= named("r1.9#1@1")
    (second,) = copies.missing(reports, batches)
    assert second.keys() == ["r1.9#1@1"]
    copies.made("two", second)
    assert copies.needless(reports, batches) == []
    del reports["r1.9#1@1"], reports["r1.1#1@1"]
    assert copies.needless(reports, batches) == ["two"]
    assert copies.needless({}, {}) == ["one"]
    assert copies.needless({}, {}) == []


def test_an_attempt_that_is_reported_anew_is_copied_anew() -> None:
    copies = ReportCopies()
    (piece,) = copies.missing(named("r1.1#1@1"), {})
    copies.made("one", piece)
    copies.needless({}, {})
    assert len(list(copies.missing(named("r1.1#1@1"), {}))) == 1


def test_a_copy_is_bounded_unless_one_report_alone_is_larger() -> None:
    reports = named("r1.1#1@1", "r1.2#1@1", result="x" * (MAX_COPY // 2)) | named("r1.3#1@1", result="x" * 2 * MAX_COPY)
    assert [piece.keys() for piece in ReportCopies().missing(reports, {})] == [
        ["r1.1#1@1"], ["r1.2#1@1"], ["r1.3#1@1"]
    ]  # fmt: skip


def test_it_is_a_message_without_a_session() -> None:
    proof = Proof("r1.1#1@1", 1, "p")
    piece = ReportsToCopy(list(named("r1.1#1@1").values()), [])
    message = ReportCopies().message("p1", piece, [proof])
    assert codec.decode(Exchange, codec.encode(message)) == message
    assert (message.pilot, message.session, message.proofs) == ("p1", "", [proof])
