"""The accounts of real work: they add up with the rows of the tasks, survive a kill, and are shown to whom they concern."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shoal.report.acct import account
from shoal.report.data_source import HttpSource
from shoal.report.database_source import FileSource
from tests.integration.cluster import Cluster
from tests.integration.guests import ANNA, BOSS, MIKE, MONA, OLAF, PHYS, Guests, serving

pytestmark = pytest.mark.integration
HOUR = 3_600.0
WORDS = "owner,site,host,pilot,run,day"


def accounts(cluster: Cluster, by: str) -> dict[str, Any]:
    """The accounts as a person gets them from the server."""
    with HttpSource(cluster.client()) as source:
        return account(source, by)


def spent(row: dict[str, Any]) -> float:
    """Core seconds of a line, whatever they were spent for."""
    return HOUR * float(row["useful"] + row["failed"] + row["lost"] + row["duplicated"])


def test_accounts_add_up_with_the_rows_of_the_tasks(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    good = cluster.submit({"command": ["sleep", "0.05"], "array": "1-20"}, {"command": ["sleep", "0.3"], "cores": 2})
    bad = cluster.submit({"command": ["sh", "-c", "sleep 0.1; exit 3"], "array": "1-3"})
    cluster.wait_run(good)
    cluster.wait_run(bad)
    took = {
        run: sum(row["duration"] * (2 if row["element"] == 21 else 1) for row in cluster.rows(run))
        for run in (good, bad)
    }
    rows = {row["run"]: row for row in accounts(cluster, "run")["rows"]}
    assert set(rows) == {f"r{good}", f"r{bad}"}
    assert (rows[f"r{good}"]["tasks"], rows[f"r{bad}"]["tasks"]) == (21, 3)
    assert HOUR * rows[f"r{good}"]["useful"] == pytest.approx(took[good], rel=0.01, abs=0.01)
    assert HOUR * rows[f"r{bad}"]["failed"] == pytest.approx(took[bad], rel=0.01, abs=0.01)
    assert spent(rows[f"r{good}"]) == HOUR * rows[f"r{good}"]["useful"], "nothing of it failed, was lost or done twice"
    assert rows[f"r{bad}"]["useful"] == 0.0
    assert rows[f"r{good}"]["queue"] > 0.0, "twenty-one tasks on two cores: some waited"

    whole = accounts(cluster, WORDS)
    for by in ("owner", "site", "host", "pilot", "day", "site,day", "owner,run"):
        total = accounts(cluster, by)["total"]
        assert total["tasks"] == whole["total"]["tasks"] == 24
        assert spent(total) == pytest.approx(spent(whole["total"]))
    (site,) = accounts(cluster, "site")["rows"]
    (pilot,) = [row for row in cluster_pilots(cluster) if row["state"] != "gone"]
    offered = pilot["cores"] * (time.time() - pilot["joined"]) / HOUR
    assert spent(site) / HOUR + site["idle"] == pytest.approx(offered, abs=2.0 * pilot["cores"] / HOUR)
    assert 0.0 < site["efficiency"] < 1.0

    before = whole["rows"]
    cluster.kill_server()
    with FileSource(cluster.state) as source:
        assert account(source, WORDS)["rows"] == before, "what was acknowledged is there without a server"
    cluster.start_server()
    assert accounts(cluster, WORDS)["rows"] == before, "and is not added again by pilots that come back"


def cluster_pilots(cluster: Cluster) -> list[dict[str, Any]]:
    with cluster.client() as client:
        found: list[dict[str, Any]] = client.pilots()["pilots"]
    return found


def test_a_task_that_runs_is_not_idle_time(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    run = cluster.submit(cluster.telling(cluster.folder / "go"))
    cluster.wait_running(run)
    idle = accounts(cluster, "site")["total"]["idle"]
    time.sleep(2.0)
    assert accounts(cluster, "site")["total"]["idle"] == pytest.approx(idle, abs=0.5 / HOUR)
    (cluster.folder / "go").touch()
    cluster.wait_run(run)
    ended = accounts(cluster, "site")["total"]
    assert HOUR * ended["useful"] >= 2.0 and ended["idle"] == pytest.approx(idle, abs=1.0 / HOUR)


# --- whose they are


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everyone, each with one task that failed after 0.1 seconds on a pilot of their own."""
    with serving(tmp_path_factory.mktemp("acct") / "guests") as made:
        made.invite()
        yield made


def test_each_sees_lines_of_their_own_and_a_manager_those_of_the_group(guests: Guests) -> None:
    sees = {ANNA: [ANNA], MIKE: [MIKE], MONA: [ANNA, MIKE, MONA], OLAF: [OLAF], BOSS: [ANNA, MIKE, MONA, OLAF, BOSS]}
    for who, words in sees.items():
        found = guests.do("GET", "/v1/acct?by=owner,run", token=guests.people[who].token)
        people = [guests.people[word] for word in words]
        assert {(row["owner"], f"r{row['run']}") for row in found["lines"]} == {(p.name, p.run) for p in people}
        assert found["places"] is None
        for row in found["lines"]:
            assert row["tasks"] == 1 and row["failed"] == pytest.approx(0.1), row
        found = guests.do("GET", "/v1/acct?by=pilot", token=guests.people[who].token)
        assert {row["pilot"] for row in found["lines"]} == {person.host.name for person in people}
        assert {row["pilot"] for row in found["places"]} == {person.host.name for person in people}


def test_a_pilot_of_a_group_is_not_idle_while_a_mate_uses_it(guests: Guests) -> None:
    enrol = guests.mint("enrol", group=PHYS, site="zqphys-site", by=guests.people[MONA].token)
    shared = guests.join(enrol.secret, PHYS)
    mike = guests.people[MIKE]
    run = guests.submit(mike.token, MIKE, tasks=[{"command": ["true"], "require": "site == 'zqphys-site'"}])
    lease = shared.lease()
    assert lease["attempt"].startswith(f"{run}.")
    shared.report(lease["attempt"], exit_code=0, started=time.time(), duration=5.0)
    found = guests.do("GET", "/v1/acct?by=pilot", token=guests.people[ANNA].token)
    (place,) = [row for row in found["places"] if row["pilot"] == shared.name]
    assert place["used"] > 0.0 and place["offered"] > 0.0, "anna sees how busy the pilot is"
    assert shared.name not in {row["pilot"] for row in found["lines"]}, "but no line of mike's"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("by=ownr", "did you mean owner"),
        ("by=", "owner,site"),
        ("by=owner,", "owner,site"),
        ("since=5&until=4", "ends before it begins"),
        ("since=-1", "out of range"),
        ("until=99999999999999999999", "out of range"),
        ("by=" + "owner," * 400 + "x", "too long"),
        ("sinse=4", "did you mean since"),
    ],
)
def test_bad_questions_are_refused_in_one_line(guests: Guests, query: str, words: str) -> None:
    answer = guests.ask("GET", f"/v1/acct?{query}", token=guests.people[ANNA].token)
    assert answer.status == 422
    said = answer.json["error"]
    assert words in f"{said['message']} ({said['hint']})" and "\n" not in said["message"]
