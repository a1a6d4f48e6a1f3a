"""The task with most of its inputs on the host of a pilot is the pilot's [CMS IV.E]."""

from __future__ import annotations

import pytest

from shoal.engine.locality import index
from shoal.model.limits import MAX_OVERTAKEN
from tests.unit.engine.locality.hosts_with_files import MB, digest, host, inputs_of, reads, sweep, tell
from tests.unit.engine.stand import Stand, back, bad, good


def names(count: int) -> list[str]:
    return [f"f{at}" for at in range(count)]


def test_the_task_with_most_inputs_present_wins() -> None:
    stand = Stand()
    pilot = host(stand, "n1", "b", "c")
    stand.submit(reads("a", "x"), reads("a", "b"), reads("b", "c"), reads("c", "x", "y"))
    (lease,) = pilot.took()
    assert inputs_of([lease]) == ["b", "c"]
    assert stand.sound()


@pytest.mark.parametrize("together", [True, False])
def test_each_host_gets_the_elements_whose_files_it_has(together: bool) -> None:
    stand = Stand()
    stand.policy(data={"wait": "idle"})
    pilots = {name: host(stand, name, *names(40)[at::4]) for at, name in enumerate("abcd")}
    stand.submit(sweep(*names(40)) if together else {}, *([] if together else [reads(name) for name in names(40)]))
    for at, (_, pilot) in enumerate(pilots.items()):
        leases = pilot.took() or pilot.pull()
        for _ in range(9):
            assert {int(name[1:]) % 4 for name in inputs_of(leases)} <= {at}
            leases = [x for lease in leases for x in pilot.talk(good(lease.attempt, duration=60.0)).leases]
    assert stand.sound()


def test_a_class_whose_task_has_its_inputs_here_goes_before_an_older_one_of_the_same_priority() -> None:
    stand = Stand()
    pilot = host(stand, "n1", "b")
    other = {"memory": "1G"}
    stand.submit(reads("a"), {**reads("b"), **other}, {"priority": 5, "name": "urgent"})
    first = pilot.took() or pilot.pull()
    assert inputs_of(first) == [], "priority comes first"
    assert inputs_of(pilot.talk(good(first[0].attempt, duration=60.0)).leases) == ["b"]


def test_the_first_task_of_a_class_is_overtaken_only_so_often() -> None:
    stand = Stand()
    pilot = host(stand, "n1", *names(200))
    stand.submit(sweep("elsewhere", *names(200)))
    leases, order = pilot.took() or pilot.pull(), []
    for _ in range(MAX_OVERTAKEN + 2):
        order += inputs_of(leases)
        leases = pilot.talk(good(leases[0].attempt, duration=60.0)).leases
    assert order.index("elsewhere") == MAX_OVERTAKEN


def test_pilots_of_one_host_have_one_cache_and_those_of_another_owner_have_none_of_it() -> None:
    stand = Stand()
    host(stand, "n1", "b")
    twin = stand.pilot(2, host="n1", identity="id of n1")
    stranger = stand.pilot(2, host="n1", identity="id of n1", owner="bob")
    stand.submit(reads("a", cores=2), reads("b", cores=2))
    stand.submit(reads("a", cores=2), reads("b", cores=2), owner="bob")
    assert inputs_of(twin.pull()) == ["b"]
    assert inputs_of(stranger.pull()) == ["a"]


def test_a_file_is_gone_when_the_last_pilot_of_its_host_says_so_or_ends() -> None:
    stand = Stand()
    one, two = host(stand, "n1", "b"), host(stand, "n1", "b")
    stand.submit(reads("b", cores=2))
    file = stand.engine.state.data.files[digest("b")]
    assert len(file.caches) == 1
    tell(one, gone=("b",))
    assert len(file.caches) == 1
    stand.bury(two)
    assert not file.caches
    assert stand.sound()


def test_what_is_known_of_caches_is_told_again_after_a_restart_and_ends_with_the_pilot() -> None:
    stand = Stand()
    one, two = host(stand, "n1", "b"), host(stand, "n2", "c")
    stand.submit(sweep("a", "b", "c", cores=2))
    stand.restart()
    assert not stand.engine.state.data.caches
    tell(one, "b")
    tell(two, "c")
    assert stand.engine.state.data.located == 2
    stand.bury(one)
    assert stand.engine.state.data.located == 1
    assert stand.sound()


def test_the_index_has_only_what_is_ready() -> None:
    stand = Stand()
    pilot = host(stand, "n1", *names(4), cores=2)
    run = stand.submit(sweep(*names(6), retries=3))
    index = stand.engine.state.data
    assert stand.sound()
    leases = pilot.took() or pilot.pull()
    assert len(leases) == 2
    assert index.located == 2
    pilot.run()
    (first, second) = [lease.attempt for lease in leases]
    leases = pilot.talk(bad(first), back(second)).leases
    assert stand.sound()
    stand.cancel(run)
    assert index.located == 0
    assert not any(file.readers for file in index.files.values())
    assert stand.sound()
    stand.retry(run)
    assert stand.sound()
    assert index.located > 0


def test_fields_that_change_are_looked_up_anew() -> None:
    stand = Stand()
    host(stand, "n1", "a")
    run = stand.submit(reads("a", cores=4))
    assert stand.engine.state.data.located == 1
    stand.set(run, cores=3)
    assert stand.engine.state.data.located == 1
    assert stand.sound()


def test_what_is_remembered_of_caches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_CATALOGUE", 3)
    monkeypatch.setattr(index, "MAX_CATALOGUED", 4)
    stand = Stand()
    one, two = host(stand, "n1", *names(5)), host(stand, "n2", *names(5))
    told = stand.engine.state.data.told
    assert [len(told[pilot.name]) for pilot in (one, two)] == [3, 1]
    tell(one, gone=("f0", "f1"))
    tell(two, "f7", "f8")
    assert [len(told[pilot.name]) for pilot in (one, two)] == [1, 3]
    assert stand.sound()


# --- expressions
def test_expressions_read_what_is_local() -> None:
    stand = Stand()
    stand.policy(data={"wait": "never"})
    none, some, all_ = host(stand, "n0"), host(stand, "n1", "a"), host(stand, "n2", "a", "b")
    stand.submit(reads("a", "b", require="data_local_mb >= 190 and data_local_fraction == 1"))
    assert [len(pilot.took()) for pilot in (none, some, all_)] == [0, 0, 1]


def test_a_rank_over_local_data_chooses_the_pilot() -> None:
    stand = Stand()
    stand.policy(data={"wait": "never"})
    pilots = [host(stand, "n0"), host(stand, "n1", "a"), host(stand, "n2", "a", "b")]
    for pilot in pilots:
        pilot.wait()
    stand.submit(reads("a", "b", rank="data_local_mb"))
    assert [len(pilot.took()) for pilot in pilots] == [0, 0, 1]


def test_numpy_and_plain_evaluation_agree_on_local_data() -> None:
    stand = Stand()
    tasks = [reads(f"f{at}", rank=f"data_local_mb + {at} * 0", priority=0) for at in range(300)]
    pilot = host(stand, "n1")
    stand.submit(*tasks)
    first = pilot.took() or pilot.pull()
    tell(pilot, "f250", size=5 * MB)
    stand.pass_time(2.0)  # ranks over what changes are kept for a moment
    assert inputs_of(pilot.talk(good(first[0].attempt, duration=60.0)).leases) == ["f250"]
