"""[CMS] Hasham, Delgado Peris, Anjum et al.: the CMS task queue and its pilots; see docs/papers.md.

Each test names the section, a few words of the sentence, and runs what Shoal has of it today.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.model.file_names import SERVER_FILE
from shoal.sched.demand import DemandRule, Need, SiteView, plan
from tests.integration.cluster import PATIENCE, Cluster, clean_env
from tests.integration.conftest import cluster, pilot_zip
from tests.unit.engine.stand import Stand, good

__all__ = ["cluster", "pilot_zip"]  # fixtures


@pytest.mark.integration
def test_a_pilot_whose_environment_lacks_something_says_so_and_ends_and_no_task_is_harmed(cluster: Cluster) -> None:
    """IV, it "announces the error and terminates itself; hence no job would be executed"."""
    cluster.start_server()
    run = cluster.submit(cluster.telling())
    words = ["--server-file", str(cluster.state / SERVER_FILE), "--work-dir", "/proc/nowhere"]
    argv = [sys.executable, "-I", str(cluster.zip), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=clean_env(), check=False)
    assert done.returncode == 3, done
    assert "this host is unfit" in done.stdout + done.stderr
    (told,) = cluster.until(lambda: cluster.events("pilot_unfit"), "the server was told")
    assert told["data"]["reasons"]
    assert cluster.lives() == [] and cluster.events("tasks_leased") == []
    assert cluster.run_row(run)["finished"] is None
    cluster.start_pilot(1)  # where nothing lacks, the same task runs
    assert cluster.wait_run(run) == {"succeeded": 1}


def test_every_pilot_gets_an_id_that_identifies_it_in_all_its_requests() -> None:
    """IV, the queue "assigns a unique id, PilotID, to each pilot job"; a request under another's id is nobody's."""
    stand = Stand()
    stand.submit({"array": "1-2"})
    one, two = stand.pilot(host="same"), stand.pilot(host="same")
    assert one.name != two.name and one.session != two.session
    mine = one.work()
    two.work()
    assert two.verdict(good(mine)) != "recorded", "the report of another's task"
    assert one.verdict(good(mine)) == "recorded"


def test_a_request_says_how_long_the_pilot_lives_and_the_queue_heeds_it() -> None:
    """IV.E, "The TTL is the remaining life of a pilot job", which counts in scheduling."""
    stand = Stand()
    run = stand.submit({"time": "1h"})
    assert stand.pilot(ends=600.0, host="ending").pull() == []
    assert len(stand.pilot(ends=7200.0, host="staying").pull()) == 1
    assert stand.state(run) == "leased"


def test_the_job_goes_where_most_of_what_it_needs_is_and_one_without_needs_goes_anywhere() -> None:
    """IV.E, a job goes to the pilot that "has the maximum number" of what it needs, here as the user's own tags and rank;
    and "without any specific requirement" to any pilot."""
    stand = Stand()
    rich = stand.pilot(host="rich", tags={"file_a": 1, "file_b": 1})
    poor = stand.pilot(host="poor", tags={"file_a": 1, "file_b": 0})
    for pilot in (poor, rich):
        pilot.wait()
    stand.submit({"rank": "file_a + file_b"})
    assert [len(pilot.took()) for pilot in (poor, rich)] == [0, 1]
    stand.submit({})
    assert len(poor.took()) == 1


def test_a_pilot_asks_and_the_queue_never_calls() -> None:
    """IV, pilots "act as clients"; all that the engine has for a pilot is the answer to something the pilot asked."""
    stand = Stand()
    pilot = stand.pilot()
    stand.submit({})
    assert stand.answers == [], "a task waits, and nobody was called"
    assert len(pilot.pull()) == 1
    assert {(answer.pilot, answer.seq) for answer in stand.answers} == {(pilot.name, pilot.seq)}


def test_the_pilot_monitor_keeps_pilots_within_its_three_thresholds() -> None:
    """IV.A, "the required number of the pilot jobs should not exceed the maxPilots threshold and also they should not be less
    than minPilots", and "always keep some idle pilots that are ready to accept a job"."""

    def sent(site: SiteView, *groups: int) -> int:
        needs = [Need(tasks) for tasks in groups]
        asks = plan(DemandRule("pilotmonitor"), needs, [site], 0.0, lambda: 0.0).asks
        return sum(ask.count for ask in asks)

    site = SiteView("tier0", max_pilots=40, max_queued=40)
    assert sent(site._replace(busy=40), 5) == 0, "steps 2 to 4: no slot"
    assert sent(site._replace(queued=6), 5) == 0, "steps 7 and 8: covered by inactive pilots"
    assert sent(site, 5, 7) == 12, "steps 9 and 10: available slots > number of tasks"
    assert sent(site, 39, 2) == 39 and sent(site, 40) == 0, "as printed, a group as large as the slots gets none"
    assert sent(site._replace(min_idle=3, idle=1)) == 2, "steps 11 and 12"
    assert sent(site._replace(min_pilots=8, busy=5)) == 3, "steps 13 and 14"
