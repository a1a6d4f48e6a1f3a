"""Chunks and batches taken apart and put together say the same as what they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.ids import AttemptId
from shoal.wire.batches import cut, merge, report_of, weigh_batch
from shoal.wire.chunk import follows, joined, names, part, seed_of, single
from shoal.wire.messages import Batch, Capacity, Lease, Report

_REPORTS = st.lists(
    st.builds(
        lambda run, element, number, outcome, line: Report(
            str(AttemptId(run, element, number, 1)),
            outcome,
            exit_code=0 if outcome == "succeeded" else 1,
            started=5.0,
            duration=element / 7,
            cpu=0.5,
            max_rss=element,
            last_line=line,
        ),
        st.integers(1, 2),
        st.integers(1, 12),
        st.integers(1, 2),
        st.sampled_from(["succeeded", "succeeded", "failed"]),
        st.sampled_from(["", "x", "käse"]),
    ),
    unique_by=lambda report: report.attempt,
)


@given(_REPORTS)
def test_merging_reports_loses_and_changes_none(reports: list[Report]) -> None:
    alone, batches = merge(reports)
    assert all(batch.count > 1 for batch in batches)
    said = [*alone, *(report_of(batch, at) for batch in batches for at in range(batch.count))]
    assert sorted(said, key=lambda r: r.attempt) == sorted(reports, key=lambda r: r.attempt)
    assert {report.attempt for report in reports if report.outcome == "failed"} <= {r.attempt for r in alone}


@given(st.lists(st.text("ab", max_size=300), min_size=1, max_size=40), st.integers(150, 2000))
def test_a_batch_that_is_cut_is_the_same_in_parts_that_fit(results: list[str], most: int) -> None:
    count = len(results)
    batch = Batch("r1.5#1@1", count, duration=[float(n) for n in range(count)], result=results)
    parts = list(cut(batch, most))
    assert all(one.count == 1 or weigh_batch(one) <= most for one in parts)
    assert [report_of(p, at) for p in parts for at in range(p.count)] == [report_of(batch, at) for at in range(count)]


def lease(count: int) -> Lease:
    params: list[dict[str, str | int | float | bool]] = [{"x": n, "i": n + 3} for n in range(count)]
    return Lease(
        "r3.10#1@2", Capacity(1), "safe", ["echo", "{x}", "{{x}}"], env={"A": "v{x}"}, outputs=["o{x}"], cwd="/a{x}",
        count=count, params=params, seed=9,
    )  # fmt: skip


@given(st.integers(1, 30), st.data())
def test_a_part_of_a_lease_gives_the_same_tasks(count: int, data: st.DataObject) -> None:
    whole = lease(count)
    low = data.draw(st.integers(0, count - 1))
    high = data.draw(st.integers(low + 1, count))
    cut_out = part(whole, low, high)
    assert names(cut_out) == names(whole)[low:high]
    assert [single(cut_out, at) for at in range(high - low)] == [single(whole, at) for at in range(low, high)]
    if low > 0 and high == count:
        before = part(whole, 0, low)
        assert follows(before, cut_out) and joined(before, cut_out) == whole


def test_one_of_a_lease_is_whole() -> None:
    one = single(lease(5), 2)
    assert (one.attempt, one.count, one.params, one.seed) == ("r3.12#1@2", 1, [], None)
    assert (one.command, one.outputs, one.cwd) == (["echo", "2", "{x}"], ["o2"], "/a{x}"), (
        "the directory is whole already"
    )
    assert one.env == {"A": "v2", "SHOAL_SEED": str(seed_of(9, 12)), "SHOAL_INDEX": "5"}


def test_leases_of_other_arrays_do_not_follow() -> None:
    whole = lease(6)
    first, second = part(whole, 0, 3), part(whole, 3, 6)
    assert follows(first, second) and not follows(second, first)
    assert not follows(single(whole, 2), second), "what is whole stays by itself"
