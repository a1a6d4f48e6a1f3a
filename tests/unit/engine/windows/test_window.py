"""Leaders of meshes and the windows of tasks that the server grants them [LBO III.B; promise I17; ADR 0056]."""

from __future__ import annotations

from typing import Any

from shoal.engine.commands import ReportSite
from shoal.engine.pilots.mesh import peer_id
from shoal.engine.windows.window import COPIES_BEATS, GUESTS_WITHIN
from shoal.model.ids import parse_attempt
from shoal.model.limits import WINDOW_HELD, WINDOWS_KEPT
from shoal.wire.http.requests import AllocationChange, SiteStatus
from shoal.wire.messages import Lease, Reply
from tests.unit.engine.stand import FakePilot, Stand, good

MODE = {"data": {"mode": "distributed"}}


class Site:
    """A stand with a mesh, and what its leader was granted."""

    def __init__(self, pilots: int = 3, mode: dict[str, Any] | None = None) -> None:
        self.stand = Stand()
        self.stand.policy(**(MODE if mode is None else mode))
        self.pilots = [self.peer(at) for at in range(1, pilots + 1)]
        self.window: dict[str, Lease] = {}
        self.seen = 0

    def peer(self, at: int, allocation: str = "") -> FakePilot:
        tags = {"peer": f"10.0.0.{at}:7000", **({"allocation": allocation} if allocation else {})}
        return self.stand.pilot(bound=True, identity=f"host{at}", host=f"h{at}", tags=tags)

    @property
    def leader(self) -> FakePilot:
        (window,) = self.stand.engine.state.windows.values()
        return next(pilot for pilot in self.pilots if pilot.name == window.pilot)

    def lead(self, **more: Any) -> Reply:
        """The leader talks, and keeps its window."""
        self.stand.now += 0.5
        reply = self.leader.talk(window=len(self.window), window_seen=self.seen, **more)
        self._keep(reply)
        assert self.stand.sound()
        return reply

    def fill(self) -> None:
        """The leader talks until its window grows no more."""
        before = -1
        while len(self.window) != before:
            before = len(self.window)
            self.lead()

    def work(self, pilot: FakePilot) -> list[str]:
        """A pilot reports all that it holds as done, and asks for more; everybody hears what there is to hear."""
        self.stand.now += 0.5
        state, before = self.stand.engine.state, len(self.stand.answers)
        reports = [good(attempt) for attempt in pilot.held]
        pilot.held.clear()
        leads = {"window": len(self.window), "window_seen": self.seen} if pilot is self.leader else {}
        pilot.send(pilot.make(reports, **leads))
        by_name = {one.name: one for one in self.pilots}
        for answer in self.stand.answers[before:]:
            by_name[answer.pilot].hear(answer.reply)
            if answer.pilot == state.windows["local", "ann"].pilot:
                self._keep(answer.reply)
        assert self.stand.sound()
        return [report.attempt for report in reports]

    def _keep(self, reply: Reply) -> None:
        for attempt in reply.window_gone:
            self.window.pop(attempt, None)
        self.window.update({lease.attempt: lease for lease in reply.window})
        self.seen = reply.window_number or self.seen


def number(attempt: str) -> int:
    """The element of an attempt."""
    return int(attempt.split("#")[0].split(".")[1])


def begin(pilot: FakePilot, lease: Lease) -> None:
    """While the server is away, a member begins a task of the window."""
    pilot.proofs.take(lease)
    pilot.held[lease.attempt] = "running"


def test_the_first_member_leads_and_each_is_told_once() -> None:
    site = Site()
    first, second, _ = site.pilots
    reply = first.talk(tags={"load": 1.0})
    site.stand.pass_time(site.stand.timing.beat)
    replies = [answer.reply for answer in site.stand.answers if answer.pilot == first.name] + [reply]
    (named,) = {one.leader for one in replies if one.leader is not None}
    assert named.id == peer_id(site.stand.engine.state, first.name)
    assert named.address == "10.0.0.1:7000"
    second.wait()
    site.stand.pass_time(site.stand.timing.beat)
    second.wait()
    site.stand.pass_time(site.stand.timing.beat)
    told = [answer.reply.leader for answer in site.stand.answers if answer.pilot == second.name]
    assert [one for one in told if one is not None] == [named]


def test_a_site_in_another_mode_has_no_leader_and_no_window() -> None:
    site = Site(mode={"data": {"mode": "distributed", "sites": {"local": "central"}}})
    site.stand.submit({"array": "1-100"})
    reply = site.pilots[0].talk(window=0)
    assert (reply.leader, reply.window) == (None, [])
    assert not site.stand.engine.state.windows


def test_when_the_leader_ends_the_lowest_id_leads_in_a_greater_term() -> None:
    site = Site()
    site.lead()
    state = site.stand.engine.state
    (window,) = state.windows.values()
    before, gone = window.leadership, site.pilots.pop(0)
    site.stand.bury(gone)
    for pilot in site.pilots:
        pilot.talk(tags={"load": 1.0})
    assert window.leadership.id == min(peer_id(state, pilot.name) for pilot in site.pilots)
    assert window.leadership.term > before.term


def test_a_window_has_the_last_tasks_and_gives_them_back_before_the_others_run_out() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-20"})
    site.fill()
    elements = sorted(number(attempt) for attempt in site.window)
    assert elements and elements == list(range(elements[0], 21))
    assert elements[0] > 3, "slots ask for the first ones"
    done: list[int] = []
    for _ in range(200):
        for pilot in site.pilots:
            done += [number(attempt) for attempt in site.work(pilot)]
    assert done == sorted(done), "all in their order"
    assert len(done) == len(set(done)) == 20
    assert site.window == {}
    assert site.stand.state(run, 20) == "succeeded"


def test_what_must_not_run_twice_or_waits_for_others_is_in_no_window() -> None:
    site = Site()
    site.stand.submit({"array": "1-50", "rerun": "never"})
    site.stand.submit({"array": "1-50", "rerun": "exclusive"})
    site.stand.submit({"name": "a", "array": "1-5"}, {"name": "b", "array": "1-50", "after": ["a"]})
    site.fill()
    assert {attempt.partition(".")[0] for attempt in site.window} <= {"r3"}
    assert all(number(attempt) <= 5 for attempt in site.window)


def test_a_window_keeps_to_a_quota() -> None:
    site = Site(mode={**MODE, "quota": [{"who": "ann", "cores": 4}]})
    site.stand.submit({"array": "1-50"})
    site.fill()
    assert len(site.window) <= 4


def test_after_a_restart_what_members_began_counts_and_the_rest_is_ready_again_when_all_have_spoken() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    begun = list(site.window.values())[:3]
    site.stand.commit()
    site.stand.crash()
    for pilot, lease in zip(site.pilots, begun, strict=True):
        begin(pilot, lease)
    site.pilots[0].talk()
    site.pilots[1].talk(good(begun[1].attempt))
    assert site.stand.engine.state.windows["local", "ann"].closing, "the third has not said what it holds"
    site.pilots[2].talk()
    for pilot in site.pilots:
        pilot.talk()
        pilot.talk()
    assert site.stand.engine.state.windows["local", "ann"].closing, "one may come that the server never heard of"
    site.stand.pass_time(GUESTS_WITHIN)
    assert not site.stand.engine.state.windows["local", "ann"].closing
    elements = [number(lease.attempt) for lease in begun]
    assert [site.stand.state(run, element) for element in elements] == ["running", "succeeded", "running"]
    assert {event.data["how"] for event in site.stand.events("task_adopted")} == {"begun by its site"}
    (back,) = site.stand.events("site_back")
    assert (back.data["begun"], back.data["site"]) == (3, "local")
    assert 0.0 < back.data["since"] <= back.data["until"] <= back.time
    assert [event.data["ended"] for event in site.stand.events("task_adopted")] == [False, True, False]
    assert site.stand.sound()
    assert site.pilots[2].verdict(good(begun[2].attempt)) == "recorded"
    site.window.clear()
    site.seen = 0
    site.fill()
    assert not {lease.attempt for lease in begun} & site.window.keys(), "new windows have new numbers"


def return_unbegun(site: Site) -> None:
    """The server starts again, and nothing of the window was begun meanwhile."""
    site.stand.restart()
    site.window.clear()
    site.seen = 0
    for _ in range(3):
        for pilot in site.pilots:
            pilot.talk()
    site.stand.pass_time(GUESTS_WITHIN)


def test_what_a_site_left_unbegun_is_in_its_next_window() -> None:
    """Issue 17: a site whose server was away once had no window for what was ready then, however often that went away again."""
    site = Site()
    site.stand.submit({"array": "1-40"})
    site.fill()
    before = {number(attempt) for attempt in site.window}
    assert before
    return_unbegun(site)
    site.fill()
    begun = sum(len(pilot.held) for pilot in site.pilots)
    assert {number(attempt) for attempt in site.window} >= set(sorted(before)[begun:])


def test_what_has_failed_or_was_lost_is_in_no_window() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    state = site.stand.engine.state
    (array,) = state.runs[run].arrays
    state.task_at(array, 40).retries = 1
    state.task_at(array, 39).losses = 1
    site.fill()
    assert {number(attempt) for attempt in site.window} & {38, 39, 40} == {38}


def test_of_windows_that_left_a_task_unbegun_a_few_are_remembered() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    for _ in range(WINDOWS_KEPT + 3):
        site.fill()
        return_unbegun(site)
    site.fill()
    task = site.stand.engine.state.task_of(parse_attempt(next(iter(site.window))))
    assert len(task.past) == WINDOWS_KEPT
    assert [attempt.number for attempt in task.past] == sorted(attempt.number for attempt in task.past)[-WINDOWS_KEPT:]
    assert site.stand.state(run, task.element) == "leased"


def test_what_is_done_and_will_be_reported_is_not_ready_again() -> None:
    """The report may ride in a later exchange than the one that says that it is there."""
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    lease = next(iter(site.window.values()))
    site.stand.restart()
    site.pilots[0].proofs.take(lease)
    site.pilots[0].held[lease.attempt] = "done"
    for _ in range(3):
        for pilot in site.pilots:
            pilot.talk()
    site.stand.pass_time(GUESTS_WITHIN)
    assert not site.stand.engine.state.windows["local", "ann"].closing
    assert site.stand.state(run, number(lease.attempt)) == "leased"
    assert site.pilots[0].verdict(good(lease.attempt)) == "recorded"


def test_a_pilot_that_joined_by_a_ticket_keeps_what_it_began() -> None:
    """The server hears of it for the first time after the other members have spoken [ADR 0065]."""
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    lease = next(iter(site.window.values()))
    site.stand.restart()
    for _ in range(3):
        for pilot in site.pilots:
            pilot.talk()
    site.stand.pass_time(GUESTS_WITHIN - 1.0)
    guest = site.peer(4)
    begin(guest, lease)
    guest.talk()
    site.stand.pass_time(1.0)
    for pilot in (*site.pilots, guest):
        pilot.talk()
    site.stand.pass_time(1.0)
    assert site.stand.state(run, number(lease.attempt)) == "running"
    assert guest.verdict(good(lease.attempt)) == "recorded"
    (back,) = site.stand.events("site_back")
    assert (back.data["begun"], back.data["released"]) == (1, len(site.window) - 1)


def test_nothing_is_ready_again_before_the_others_may_have_delivered_what_a_dead_member_finished() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    element = number(next(iter(site.window)))
    site.stand.commit()
    site.stand.crash()
    for pilot in site.pilots[:2]:
        pilot.talk()
    site.stand.pass_time(GUESTS_WITHIN)
    site.stand.bury(site.pilots[2])
    for pilot in site.pilots[:2]:
        pilot.talk()
        pilot.talk()
    site.stand.pass_time(COPIES_BEATS * site.stand.timing.beat - 1.0)
    assert site.stand.state(run, element) == "leased"
    site.stand.pass_time(1.0)
    assert site.stand.state(run, element) == "ready" and site.stand.sound()


def test_two_members_that_began_the_same_are_recorded_once() -> None:
    site = Site()
    site.stand.submit({"array": "1-40"})
    site.fill()
    lease = next(iter(site.window.values()))
    site.stand.restart()
    first, second, _ = site.pilots
    for pilot in (first, second):
        begin(pilot, lease)
        pilot.talk()
    assert first.verdict(good(lease.attempt)) == "recorded"
    assert second.verdict(good(lease.attempt)) in ("final", "stale")


def test_a_silent_site_keeps_its_window_for_a_while() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    element = number(next(iter(site.window)))
    other = site.stand.pilot(site="elsewhere", identity="far", host="far")
    until = site.stand.now + WINDOW_HELD
    while site.stand.now < until - 60.0:
        other.talk(tags={"load": site.stand.now})
        site.stand.pass_time(20.0)
    assert site.stand.state(run, element) == "leased"
    for _ in range(20):
        other.talk(tags={"load": site.stand.now})
        site.stand.pass_time(20.0)
    assert site.stand.state(run, element) == "ready"
    assert site.stand.sound()


def silent_site(*allocations: str) -> tuple[Site, int, int]:
    """A site whose pilots, in these allocations, are silent: their window, a task of it, and its run."""
    site = Site(0)
    site.pilots = [site.peer(at, allocation=name) for at, name in enumerate(allocations, 1)]
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    return site, run, number(next(iter(site.window)))


def say(site: Site, *ended: str, running: int = 0) -> None:
    """What the provisioner reports of the site."""
    changes = [AllocationChange("ended", name) for name in ended]
    site.stand.do(ReportSite("ann", "local", SiteStatus("local", "slurm", running=running, changes=changes)))


def lose_all(site: Site) -> None:
    while site.stand.engine.state.pilots:
        site.stand.pass_time(20.0)
    site.stand.pass_time(1.0)


def test_tasks_of_a_window_are_ready_at_once_when_the_batch_system_says_that_the_pilots_are_gone() -> None:
    site, run, element = silent_site("a1", "a2", "a2")
    lose_all(site)
    say(site, "a1", running=2)
    assert site.stand.state(run, element) == "leased", "those of a2 may go on"
    say(site, "a2", running=1)
    assert site.stand.state(run, element) == "ready"
    assert site.stand.sound()


def test_it_may_say_so_before_the_server_misses_the_pilots() -> None:
    site, run, element = silent_site("a1", "a1")
    say(site, "a1", running=1)
    assert site.stand.state(run, element) == "leased"
    lose_all(site)
    site.stand.pass_time(0.1)
    assert site.stand.state(run, element) == "ready"


def test_that_nothing_runs_there_says_the_same_of_pilots_of_allocations_only() -> None:
    """The word came to the server before it was restarted, or the provisioner was."""
    site, run, element = silent_site("a1", "a2")
    lose_all(site)
    say(site)
    assert site.stand.state(run, element) == "ready"
    site, run, element = silent_site("a1", "")
    lose_all(site)
    say(site)
    assert site.stand.state(run, element) == "leased", "one was started by hand"


def test_of_a_site_whose_pilots_are_known_to_be_dead_nothing_is_kept() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    element = number(next(iter(site.window)))
    for pilot in site.pilots:
        site.stand.bury(pilot)
    site.stand.pass_time(1.0)
    assert site.stand.state(run, element) == "ready"


def test_a_window_alone_asks_for_no_tick_that_never_comes() -> None:
    site = Site(1)
    site.stand.submit({"array": "1-40"})
    site.fill()
    while site.stand.engine.state.pilots:
        due = site.stand.engine.deadline()
        assert due is not None and due < 1e9
        site.stand.now = max(site.stand.now, due)
        site.stand.pass_time(0.0)
    due = site.stand.engine.deadline()
    assert due is not None
    assert due <= site.stand.now + WINDOW_HELD
    site.stand.now = due
    site.stand.pass_time(0.0)
    assert not site.stand.engine.state.windows


def test_cancelled_tasks_leave_the_window() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    site.stand.cancel(run)
    reply = site.lead()
    assert reply.window_gone
    assert site.window == {}


def test_why_says_that_a_task_is_in_a_window() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    element = number(next(iter(site.window)))
    reason = site.stand.why(run, element)
    assert reason.code == "window"
    assert "local" in reason.text


def test_newcomers_are_no_majority_of_those_who_have_the_window() -> None:
    site = Site()
    run = site.stand.submit({"array": "1-40"})
    site.fill()
    element = number(next(iter(site.window)))
    other = site.stand.pilot(site="elsewhere", identity="far", host="far")
    for _ in range(6):  # until all members are lost by their silence
        other.talk(tags={"load": site.stand.now})
        site.stand.pass_time(20.0)
    newcomers = [site.peer(at) for at in range(11, 15)]
    for _ in range(3):
        for pilot in newcomers:
            pilot.talk(tags={"load": site.stand.now})
        site.stand.pass_time(2.0)
    assert site.stand.state(run, element) == "leased", "its old members may be at work"
