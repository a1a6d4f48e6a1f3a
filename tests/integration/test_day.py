"""A day of one server, in half a minute: five owners, two groups, three sites, and at the end every account adds up.

Emulated pilots speak the real protocol to a real server; what goes wrong is injected here and written down here, so
that the server's ledger can be held against ours. Late arrivals, a black hole, tasks out of memory, a host that comes
back, quotas that are lowered, a ban that a probe lifts, and a task that is cancelled while it runs.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.model.ids import parse_attempt
from shoal.wire.chunk import shift
from tests.integration.guests import Guests, serving

pytestmark = [pytest.mark.integration, pytest.mark.slow]
Json = dict[str, Any]
GIB = 1 << 30
WORK, BIG, HUGE, BAD, LONG = "work", "big", "huge", "bad", "long"  # what a task's command says it is
SECONDS = {WORK: 0.7, BIG: 0.6, HUGE: 0.6, BAD: 0.6, LONG: 600.0}
PEOPLE = {"anna": "phys", "ben": "phys", "evan": "phys", "cleo": "chem", "dora": "chem"}
SLOTS = 3
BAN = 2  # seconds, at most


@dataclass
class Ours:
    """What the pilots did, by their own word."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    reports: list[Json] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)  # cores that pilots hold by owner
    most: Counter[str] = field(default_factory=Counter)  # the most ever, since a limit was last changed
    dropped: list[str] = field(default_factory=list)  # attempts that were cancelled while they ran
    wrong: list[BaseException] = field(default_factory=list)

    def hold(self, owner: str, cores: int) -> None:
        """An owner has so many cores more."""
        with self.lock:
            self.held[owner] += cores
            self.most[owner] = max(self.most[owner], self.held[owner])


@dataclass
class Job:
    """One attempt that a host has."""

    attempt: str
    kind: str
    owner: str
    cores: int
    memory: int
    began: float | None = None


class Host(threading.Thread):
    """An emulated host with three slots. A black hole fails everything at once until it is repaired."""

    def __init__(self, guests: Guests, ours: Ours, enrol: str, name: str, site: str, is_hole: bool = False) -> None:
        super().__init__(daemon=True)
        self.guests, self.ours, self.enrol = guests, ours, enrol
        self.host, self.site, self.is_hole = name, site, is_hole
        self.leaves = False
        self._jobs: dict[str, Job] = {}
        room = {"cores": SLOTS, "memory": 8 * GIB, "disk": GIB}
        self.pilot = guests.join(enrol, name, host=name, identity=f"id-{name}", room=room, tags={})

    def run(self) -> None:
        try:
            while self._exchange():
                pass
        except BaseException as error:  # a failure here is one of the test
            self.ours.wrong.append(error)

    def _exchange(self) -> bool:
        now = time.time()
        reports = [report for job in list(self._jobs.values()) if (report := self._ended(job, now)) is not None]
        for report in reports:
            job = self._jobs.pop(report["attempt"])
            self.ours.hold(job.owner, -job.cores)
        busy = sum(job.cores for job in self._jobs.values() if job.began is not None)
        self.pilot.held = {name: "leased" if job.began is None else "running" for name, job in self._jobs.items()}
        answer = self.pilot.talk(
            free={"cores": SLOTS - busy}, reports=reports, leaving="its time is over" if self.leaves else ""
        )
        assert answer.status == 200, answer
        reply = answer.json
        verdicts = {verdict["attempt"]: verdict["verdict"] for verdict in reply["verdicts"]}
        with self.ours.lock:
            for report in reports:
                self.ours.reports.append({**report, "host": self.host, "verdict": verdicts[report["attempt"]]})
        for lease in reply["leases"]:
            self._take(lease)
        for order in reply["orders"]:
            if order["kind"] == "cancel" and order["attempt"] in self._jobs:
                job = self._jobs.pop(order["attempt"])
                self.ours.hold(job.owner, -job.cores)
                self.ours.dropped.append(order["attempt"])
        for job in self._jobs.values():
            if job.began is None and busy + job.cores <= SLOTS:
                job.began, busy = time.time(), busy + job.cores
        return not self.leaves or bool(self._jobs)

    def _take(self, lease: Json) -> None:
        first, room = parse_attempt(lease["attempt"]), lease["room"]
        kind, owner = lease["command"]
        for at in range(lease["count"]):
            name = str(shift(first, at))
            if name not in self._jobs:
                self._jobs[name] = Job(name, kind, owner, room["cores"], room["memory"])
                self.ours.hold(owner, room["cores"])

    def _ended(self, job: Job, now: float) -> Json | None:
        """The report of what has ended by now."""
        if job.began is None:
            return None
        lasts = 0.001 if self.is_hole else SECONDS[job.kind]
        if now < job.began + lasts:
            return None
        said: Json = {"attempt": job.attempt, "outcome": "failed", "started": job.began, "duration": lasts}
        if self.is_hole:
            return {**said, "cause": "task_error", "exit_code": 127, "message": "hole"}
        if (job.kind == BIG and job.memory < 3 * GIB) or job.kind == HUGE:
            return {
                **said,
                "cause": "signal",
                "signal": 9,
                "max_rss": job.memory,
                "evidence": "oom_kill",
                "message": "oom",
            }
        if job.kind == BAD:
            return {**said, "cause": "task_error", "exit_code": 3, "message": "bad"}
        return {**said, "outcome": "succeeded", "exit_code": 0}


class Day:
    """The people and places of one day."""

    def __init__(self, guests: Guests) -> None:
        self.guests, self.ours = guests, Ours()
        self.hosts: list[Host] = []
        self.version = 0
        self.runs: dict[str, tuple[str, int]] = {}  # run -> owner, tasks
        self.document: Json = {
            "share": {"anna": 2, "@chem": 1},
            "ban": {"longest": f"{BAN}s", "scale": "1s"},
            "quota": [{"who": "evan", "cores": 3}, {"who": "@chem", "queued": 60}],
        }
        for group in ("phys", "chem"):
            guests.do("POST", "/v1/groups", {"name": group})
        for name, group in PEOPLE.items():
            guests.add_person(name, group)
        self.tokens = {
            (group, site): guests.mint("enrol", group=group, site=site).secret
            for group, site in (("phys", "north"), ("phys", "south"), ("chem", "south"), ("chem", "east"))
        }
        self.rule()

    def rule(self, **changes: Any) -> None:
        """Another policy."""
        self.document |= changes
        asked = {"version": self.version, "policy": self.document}
        self.version = self.guests.do("POST", "/v1/policy", asked)["version"]

    def open(self, name: str, group: str, site: str, is_hole: bool = False) -> Host:
        """A host comes."""
        host = Host(self.guests, self.ours, self.tokens[group, site], name, site, is_hole)
        self.hosts.append(host)
        host.start()
        return host

    def submit(self, owner: str, kind: str, count: int, **more: Any) -> str:
        """Somebody submits; what is refused is not counted."""
        task = {"command": [kind, owner], "array": f"1-{count}", "rerun": "safe", **more}
        asked = {"cwd": "/", "tasks": [task]}
        run = str(self.guests.do("POST", "/v1/runs", asked, token=self.guests.people[owner].token)["run"])
        self.runs[run] = (owner, count)
        return run

    def run(self, run: str) -> Json:
        """How far a run is."""
        return self.guests.do("GET", f"/v1/runs/{run}")

    def leased(self, who: str) -> int:
        """Cores that somebody runs, as their limit counts them."""
        rows = self.guests.do("GET", "/v1/policy")["quotas"]
        return int(next(row["used"] for row in rows if (row["who"], row["kind"]) == (who, "cores")))

    def events(self, *kinds: str) -> list[Json]:
        """The journal's lines of these kinds."""
        found: list[Json] = []
        while True:
            after = found[-1]["seq"] if found else 0
            page = self.guests.do("GET", f"/v1/events?after={after}&kind={','.join(kinds)}")["events"]
            found += page
            if not page:
                return found

    def until(self, condition: Any, what: str) -> None:
        """Wait, unless a host broke."""

        def met() -> bool:
            if self.ours.wrong:
                raise self.ours.wrong[0]
            return bool(condition())

        self.guests.until(met, what)

    def work_until(self, owner: str, condition: Any, what: str) -> None:
        """Wait, while this owner always has work waiting: a host without work is neither banned nor lifted."""
        latest = [self.submit(owner, WORK, 24, retries=3)]

        def met() -> bool:
            if self.run(latest[-1])["counts"].get("succeeded", 0) >= 6:
                latest.append(self.submit(owner, WORK, 24, retries=3))
            return bool(condition())

        self.until(met, what)

    def close(self) -> None:
        """All hosts go home."""
        for host in self.hosts:
            host.leaves = True
        for host in self.hosts:
            host.join(30.0)


def test_a_day_with_everything_that_goes_wrong_and_every_account_adds_up(tmp_path: Path) -> None:
    with serving(tmp_path / "day") as guests:
        day = Day(guests)
        ours = day.ours
        for name, group, site in (("n1", "phys", "north"), ("n2", "phys", "north"), ("s2", "chem", "south")):
            day.open(name, group, site)
        s1 = day.open("s1", "phys", "south")
        day.open("e1", "chem", "east")
        first = day.submit("anna", WORK, 60, retries=3)
        second = day.submit("ben", WORK, 40, retries=3)
        day.submit("cleo", WORK, 40, retries=3)
        # A failure of work that succeeds elsewhere is the host's at once. Where nobody knows the work yet the host is not
        # banned but rests for a minute, so the black hole opens when the work is known, and there is more of it.
        for run in (first, second):
            day.until(lambda run=run: day.run(run)["counts"].get("succeeded", 0) >= 2, "work goes on")
        hole = day.open("hole", "phys", "north", is_hole=True)
        day.work_until("anna", lambda: day.events("place_banned"), "the black hole is banned")
        refused = guests.ask(  # late arrivals: dora wants more than her group may have waiting
            "POST", "/v1/runs", {"cwd": "/", "tasks": [{"command": [WORK, "dora"], "array": "1-61"}]},
            token=guests.people["dora"].token,
        )  # fmt: skip
        assert refused.code == "over_quota"
        day.submit("dora", WORK, 12, retries=3)
        evans = day.submit("evan", WORK, 14, retries=3)
        big = day.submit("anna", BIG, 1, memory="1GiB")
        huge = day.submit("ben", HUGE, 1, memory="1GiB")
        bad = day.submit("dora", BAD, 2, retries=1)
        long = day.submit("ben", LONG, 2)
        day.until(lambda: day.run(evans)["counts"].get("succeeded", 0) >= 1, "evan has had his turn")
        assert ours.most["evan"] <= 3
        s1.leaves = True
        s1.join(60.0)
        assert not s1.is_alive()
        day.rule(quota=[{"who": "evan", "cores": 1}, {"who": "@chem", "queued": 60}])
        # By the server's count and by ours: a lease that was granted before may still be on its way.
        day.until(lambda: day.leased("evan") <= 1 and ours.held["evan"] <= 1, "what is beyond the limit ends by itself")
        ours.most["evan"] = 0
        day.open("s1", "phys", "south")
        day.rule(share={"anna": 1, "ben": 3})
        day.until(lambda: day.run(long)["counts"].get("live", 0) == 2, "the long tasks run")
        time.sleep(0.5)
        guests.do("POST", "/v1/cancel", {"targets": [long]}, token=guests.people["ben"].token)
        hole.is_hole = False
        repaired = time.time()
        day.work_until("anna", lambda: day.events("place_lifted"), "a probe lifts the ban")
        day.until(lambda: all(day.run(run)["finished"] for run in day.runs), "the day is over")
        day.close()
        assert not ours.wrong, ours.wrong[0]
        check_tasks(day, {huge, bad}, long)
        check_accounts(day)
        check_failures(day, bad, huge, big, repaired)
        check_events(day)


def check_tasks(day: Day, failing: set[str], cancelled: str) -> None:
    """What was accepted came to one end each, and failed only where it had to."""
    ends: Counter[str] = Counter()
    for run, (_, tasks) in day.runs.items():
        counts = {state: count for state, count in day.run(run)["counts"].items() if count}
        assert sum(counts.values()) == tasks, (run, counts)
        ends.update(counts)
        state = "failed" if run in failing else "cancelled" if run == cancelled else "succeeded"
        assert counts == {state: tasks}, (run, counts)
    assert sum(ends.values()) == sum(tasks for _, tasks in day.runs.values())
    assert day.ours.most["evan"] <= 1, "never more than the lower limit since it was lowered"


def check_accounts(day: Day) -> None:
    """Attempts and core seconds by any word add up to the same, which is what the pilots reported."""
    ours = day.ours
    assert {report["verdict"] for report in ours.reports} == {"recorded"}
    assert len({report["attempt"] for report in ours.reports}) == len(ours.reports)
    useful = sum(report["duration"] for report in ours.reports if report["outcome"] == "succeeded")
    failed = sum(report["duration"] for report in ours.reports if report["outcome"] == "failed")
    totals = []
    for by in ("owner", "site", "host", "day", "owner,site,host,pilot,run,day"):
        lines = day.guests.do("GET", f"/v1/acct?by={by}")["lines"]
        totals.append(
            [sum(line[word] for line in lines) for word in ("tasks", "useful", "failed", "lost", "duplicated")]
        )
    for total in totals:
        assert total == pytest.approx(totals[0])
    tasks, told_useful, told_failed, lost, duplicated = totals[0]
    assert tasks == len(ours.reports) + len(ours.dropped)
    assert (told_useful, told_failed, duplicated) == pytest.approx((useful, failed, 0.0))
    assert len(ours.dropped) == 2 and lost >= 2 * 0.4, "what was cancelled while it ran was used, too"
    by_owner = {line["owner"]: line for line in day.guests.do("GET", "/v1/acct?by=owner")["lines"]}
    by_host = {line["host"]: line for line in day.guests.do("GET", "/v1/acct?by=host")["lines"]}
    for host in {report["host"] for report in ours.reports}:
        mine = sum(report["duration"] for report in ours.reports if report["host"] == host)
        assert by_host[host]["useful"] + by_host[host]["failed"] == pytest.approx(mine)
    for owner in PEOPLE:
        runs = {run for run, (of, _) in day.runs.items() if of == owner}
        mine = [report for report in ours.reports if report["attempt"].partition(".")[0] in runs]
        assert by_owner[owner]["useful"] + by_owner[owner]["failed"] == pytest.approx(
            sum(report["duration"] for report in mine)
        )


def check_failures(day: Day, bad: str, huge: str, big: str, repaired: float) -> None:
    """Every failed attempt has its reason among what was injected, and the server says the same."""
    why = {report["attempt"]: report["message"] for report in day.ours.reports if report["outcome"] == "failed"}
    kinds = Counter(why.values())
    assert kinds["oom"] == 2 + 3, "1 and 2 GiB are too little for one, 4 as well for the other"
    assert kinds["bad"] >= 2
    banned = min(event["time"] for event in day.events("place_banned"))
    probes = (repaired - banned) / BAN + 1  # one at the end of each ban
    assert 1 <= kinds["hole"] <= 16 + probes, "what a black hole may eat before its ban, and then one at a time"
    by_attempt = {parse_attempt(name)[:3]: reason for name, reason in why.items()}
    causes = {"hole": "task_error", "oom": "out_of_memory", "bad": "task_error"}
    told = 0
    for event in day.events("task_retried", "task_finished"):
        data = event["data"]
        if event["kind"] == "task_finished" and data["state"] != "failed":
            continue
        told += 1
        reason = by_attempt[event["run"], event["task"], event["attempt"]]
        assert data["cause"] == causes[reason], event
    assert told == len(why), "each failed attempt is one line of the journal"
    for run, cause in ((huge, "out_of_memory"), (bad, "task_error")):
        assert day.guests.do("GET", f"/v1/tasks/{run}.1")["task"]["cause"] == cause
    lost_in_hole = sum(reason == "hole" for name, reason in why.items() if name.startswith(f"{big}."))
    assert day.guests.do("GET", f"/v1/tasks/{big}.1")["task"]["attempt"] == 3 + lost_in_hole


def check_events(day: Day) -> None:
    """What happened to places and to the policy is on record."""
    banned, lifted = day.events("place_banned"), day.events("place_lifted")
    assert {event["data"]["name"] for event in banned if event["data"]["place"] == "host"} == {"hole"}
    assert {event["data"]["name"] for event in lifted if event["data"]["place"] == "host"} == {"hole"}
    for before, after in itertools.pairwise(event["time"] for event in banned if event["data"]["place"] == "host"):
        assert after >= before  # several failures may come in one report
    back = [event["data"]["before"] for event in day.events("pilot_joined") if event["data"]["host"] == "s1"]
    assert back == [0, 1], "the host was known when it came back"
    rows = day.guests.do("GET", "/v1/audit?limit=1000")["audit"]
    changes = [row for row in rows if row["what"] == "POST /v1/policy" and row["outcome"] == "ok"]
    assert len(changes) == day.version == 3 == len(day.events("policy_changed"))
