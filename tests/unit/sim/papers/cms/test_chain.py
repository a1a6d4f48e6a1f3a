"""The Tier-0 chain, with a few raw files."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.sim.papers.cms.cached_runs import Condition
from shoal.sim.papers.cms.chain import CONSTANTS, DEMAND, DIRECT, STORED, WAITING, Chain, Run, Way
from shoal.sim.papers.cms.tier0 import EXPERIMENT

SETTINGS: dict[str, Any] = {
    **EXPERIMENT.settings,
    "raw_files": 5,
    "machines": 3,
    "job_spread": 0.0,
    "delay_spread": 0.0,
}
CALM = Condition(0.0, 0.0)


def run(way: Way, condition: Condition = CALM, every: float = 0.0, **settings: float) -> Run:
    return Chain({**SETTINGS, **settings}, way, condition, every, "1").run()


def test_every_rule_makes_its_jobs_and_what_is_left_at_the_end_is_merged_as_it_is() -> None:
    """[CMS III] Repacker, PromptReco and AlcaReco, each with its Merge"""
    found = run(Way(WAITING, False))
    assert found.jobs == 5 + 2 + 10 + 2 + 2 + 2
    assert run(Way(WAITING, False), raw_files=6).jobs == 6 + 4 + 20 + 4 + 4 + 2


@pytest.mark.parametrize("way", [Way(DIRECT, False), Way(DEMAND, True), Way(WAITING, True)])
def test_merged_files_have_the_bytes_of_what_went_into_them(way: Way) -> None:
    found = run(way, Condition(0.1, 0.1))
    shares = 1.0 + SETTINGS["reco_share"] * (1.0 + SETTINGS["alca_share"])
    assert found.stored == pytest.approx(SETTINGS["input_gb"] * 1e9 * shares, rel=1e-6)


def test_with_nothing_in_the_way_the_chain_takes_its_computing() -> None:
    way = Way(DIRECT, False)
    found = run(way, batch_s=0.0, create_s=1.0, pull_s=0.0)
    computing = 300.0 + 120.0 + 1_150.0 + 120.0 + 300.0 + 120.0
    assert found.end == pytest.approx(computing, abs=7.0)
    assert found.latency[CONSTANTS] == [pytest.approx(computing, abs=7.0)] * 5
    assert found.latency[STORED] == [pytest.approx(computing - 420.0, abs=7.0)] * 5


def test_a_raw_file_waits_for_those_it_is_merged_with() -> None:
    found = run(Way(WAITING, False), every=1_000.0).latency[STORED]
    assert [one - found[-1] for one in found] == pytest.approx([4_000.0, 3_000.0, 2_000.0, 1_000.0, 0.0])


def test_a_cache_is_read_where_files_were_written_and_never_without_one() -> None:
    assert run(Way(WAITING, False)).hits == 0 < run(Way(WAITING, True)).hits < run(Way(WAITING, True)).reads
    loaded = Condition(0.5, 0.0)
    assert run(Way(WAITING, True), loaded).end < run(Way(WAITING, False), loaded).end


def test_a_failing_storage_element_costs_time_and_no_job() -> None:
    calm, rough = run(Way(WAITING, True), Condition(0.1, 0.0)), run(Way(WAITING, True), Condition(0.1, 0.2))
    assert rough.end > calm.end and rough.jobs == calm.jobs


def test_the_same_seed_gives_the_same_run() -> None:
    for way in (Way(DIRECT, False), Way(DEMAND, True)):
        assert run(way, Condition(0.1, 0.1), 60.0) == run(way, Condition(0.1, 0.1), 60.0)
