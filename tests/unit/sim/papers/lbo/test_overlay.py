"""The three architectures, on a few pilots."""

from __future__ import annotations

from statistics import fmean

import pytest

from shoal.sched.leader.bids import Bid, Listed, best_bids
from shoal.sim.papers.lbo import requests
from shoal.sim.papers.lbo.architectures import ARCHITECTURES
from shoal.sim.papers.lbo.hit_ratio import EXPERIMENT
from shoal.sim.papers.lbo.overlay import CENTRAL, DISTRIBUTED, LOCAL, PEER, STORAGE, TRACKED, Outcome, Overlay
from shoal.sim.papers.lbo.workflow import Next
from shoal.sim.planning.workloads import MERGING, SERIAL, SPLITTING

KINDS = (SERIAL, SPLITTING, MERGING)


def run(architecture: str, kind: str = SERIAL, pilots: int = 12, tasks: int = 48, **settings: float) -> Outcome:
    return Overlay({**EXPERIMENT.settings, **settings}, architecture, kind, pilots, tasks, "1").run()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_task_runs_once_and_every_file_is_read(architecture: str, kind: str) -> None:
    found = run(architecture, kind)
    assert 48 <= found.tasks <= 50
    assert found.requests[requests.DOWNLOAD] == found.requests[requests.COMPLETED] == found.tasks
    assert found.reads.total() == {SERIAL: 24, SPLITTING: 32, MERGING: 32}[kind]
    assert 0 < len(found.delays) <= found.tasks - 12
    assert (found.requests[requests.FILE] > 0) == (architecture == TRACKED)
    assert (found.requests[requests.GET_TASK] > 0) == (architecture != DISTRIBUTED)
    assert (found.reads[PEER] == 0) or architecture != TRACKED


def test_with_a_table_only_what_is_at_no_pilot_of_the_site_comes_from_the_storage_element() -> None:
    """[LBO III.A]"""
    for architecture in (CENTRAL, DISTRIBUTED):
        assert run(architecture, MERGING).reads[STORAGE] == 0
        assert run(architecture, MERGING, peers=False).reads[STORAGE] > 0


def test_all_pilots_wait_until_the_queue_has_matched_them_all() -> None:
    """[LBO IV.A] "It takes the TQ almost 10 minutes to serve them all. Only then, can the pilots retrieve and start" """
    found = run(TRACKED, scan_s=0.25)  # 24 tasks: 6 s each
    assert found.all_begun == pytest.approx(12 * 24 * 0.25, rel=0.05)
    assert run(TRACKED, scan_s=0.0).all_begun < 1.0


def test_a_round_begins_tasks_at_most_a_period_later() -> None:
    found = run(DISTRIBUTED, list_s=20.0, pilots=4, tasks=60)
    assert max(found.delays) <= 20.0 + 4.9 + 1.0 and 10.0 < fmean(found.delays) < 20.0


def test_a_pilot_that_is_free_when_its_files_are_read_gets_the_reader() -> None:
    """One pilot after the other, each with its own files, where the reader is known before the next request."""
    assert run(TRACKED, create_s=0.0, pilots=2, tasks=20).reads == {LOCAL: 10}
    assert run(DISTRIBUTED, create_s=0.0, pilots=2, tasks=20).reads[LOCAL] >= 9


def test_what_a_pilot_bids_is_what_it_would_if_it_ranked_all_tasks() -> None:
    """The simulation ranks few of them, to save time."""
    overlay = Overlay({**EXPERIMENT.settings, "bids": 4}, DISTRIBUTED, SERIAL, 8, 60, "1")
    for file in range(30):
        overlay._queue.keep(file % 4, file, 0.0)
        overlay._create(Next((file,), 0))
    tasks: list[int | None] = [None, *overlay._queue.second[0]]
    columns = {task: column for column, task in enumerate(tasks) if task is not None}
    for count in (0, 5):
        listed = [Listed(count), *(Listed() for _ in tasks[1:])]
        for host in range(4):
            for turn in (0, 3, 30):
                fits = [Bid(at, overlay._rank(host, task)) for at, task in enumerate(tasks) if listed[at].tasks]
                assert overlay.bids(host, turn, listed, tasks, columns) == best_bids(fits, listed, 4, turn)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(DISTRIBUTED, MERGING) == run(DISTRIBUTED, MERGING)
