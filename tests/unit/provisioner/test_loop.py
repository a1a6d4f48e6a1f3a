"""The provisioner's plan: what the server says and what the sites have, as one decision."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from shoal.client.client import Client
from shoal.provisioner.loop import make_plan
from shoal.provisioner.site import Site
from shoal.provisioner.site_file import SiteConfig
from shoal.sched.demand import DemandRule, Plan


def _sites(folder: Path, *names: str, **options: Any) -> dict[str, Site]:
    def client() -> Client:
        raise AssertionError("nothing is asked of a server here")

    sites = {}
    for name in names:
        config = SiteConfig(name, "local://", cores=1, max_pilots=50, max_queued=50, **options)
        sites[name] = Site(config, folder, "word", client)
        sites[name].ledger.note_wait(60.0)
    return sites


def _demand(tasks: int, pilots: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    need = {
        "tasks": tasks, "cores": 1, "memory": 0, "gpus": 0, "seconds": 600.0, "require": "", "rank": "", "priority": 0.0,
        "unfit_sites": [], "tried_for": None, "ranks": {},
    }  # fmt: skip
    return {"needs": [need], "pilots": pilots or [], "unfinished": tasks}


def _pilots(found: Plan) -> int:
    return sum(ask.count for ask in found.asks)


def test_two_sites_are_not_both_asked_for_the_same_work(tmp_path: Path) -> None:
    sites = _sites(tmp_path, "a", "b")
    for policy, count in (("guided", 10), ("pilotmonitor-repaired", 10), ("shoal", 15)):
        found = make_plan(DemandRule(policy), _demand(10), sites, 0.0, Random(1).random)
        assert _pilots(found) == count, "shoal asks for a half more, since queues are uncertain"


def test_what_free_pilots_elsewhere_can_take_is_not_asked_for(tmp_path: Path) -> None:
    laptop = {
        "name": "p1", "site": "laptop", "allocation": "", "state": "idle", "cores": 8, "free_cores": 8, "held": 0,
        "joined": 0.0, "is_proven": True,
    }  # fmt: skip
    found = make_plan(DemandRule("guided"), _demand(10, [laptop]), _sites(tmp_path, "a", "b"), 0.0, Random(1).random)
    assert _pilots(found) == 2


def test_a_budget_that_allocations_reserve_is_not_asked_for_again(tmp_path: Path) -> None:
    sites = _sites(tmp_path, "a", budget=3.5 * 14_400.0)
    found = make_plan(DemandRule("guided"), _demand(10), sites, 0.0, Random(1).random)
    assert _pilots(found) == 3 and "budget" in found.reasons["a"]


def test_sites_are_asked_for_what_a_plan_directs_to_them(tmp_path: Path) -> None:
    sites = _sites(tmp_path, "a", "b")
    demand = _demand(12)
    demand["needs"][0]["directed"] = {"a": 9.0, "b": 1.0, "others": 2.0}
    found = make_plan(DemandRule("pilotmonitor-repaired"), demand, sites, 0.0, Random(1).random)
    assert {ask.site: ask.count for ask in found.asks} == {"a": 9, "b": 1}, (
        "what is directed elsewhere is not asked for"
    )
    demand["needs"][0]["tasks"] = 20
    found = make_plan(DemandRule("pilotmonitor-repaired"), demand, sites, 0.0, Random(1).random)
    assert _pilots(found) == 18, "what came since the plan may go to either"
    demand["needs"][0] |= {"tasks": 6, "seconds": 600.0}
    found = make_plan(DemandRule("pilotmonitor-repaired"), demand, sites, 0.0, Random(1).random)
    assert {ask.site: ask.count for ask in found.asks} == {"a": 4}, "half of it has begun since"
