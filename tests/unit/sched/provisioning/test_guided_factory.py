from __future__ import annotations

from shoal.sched.provisioning.guided_factory import TaskKind, rank_sites


def test_a_site_is_worth_the_ranks_of_all_tasks_by_their_number_and_priority() -> None:
    many, few = TaskKind("", "speed", 0.0, 30), TaskKind("", "memory_mb", 1.0, 10)
    assert rank_sites([(many, {"a": 4.0, "b": 2.0}), (few, {"b": 8.0})]) == {"a": 3.0, "b": 1.5 + 4.0}
    assert rank_sites([]) == {}
