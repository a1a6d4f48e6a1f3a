"""Deadlines of runs in the engine: which one a run has, and what is said and told of it."""

from __future__ import annotations

import json

from shoal.engine.commands import Add, NoteChance, Noticed
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import Stand, bad, good


def test_a_run_has_the_deadline_that_all_its_tasks_have() -> None:
    stand = Stand()
    same = stand.submit({"deadline": "1h"}, {"deadline": "1h"}, stated=0.9)
    assert stand.engine.state.runs[same].due == stand.now + 3_600.0
    other = stand.submit({"deadline": "1h"}, {"deadline": "2h"})
    none = stand.submit({"deadline": "1h"}, {})
    assert stand.engine.state.runs[other].due is None and stand.engine.state.runs[none].due is None
    (event,) = stand.events("deadline_stated")
    assert event.run == same and event.data == {"due": stand.now + 3_600.0, "chance": 0.9}
    stand.restart()
    assert stand.engine.state.runs[same].due == 1_000.0 + 3_600.0
    stand.set(same, deadline="3h")
    assert stand.engine.state.runs[same].due == 1_000.0 + 3 * 3_600.0


def test_what_is_added_to_a_run_may_have_another_deadline() -> None:
    stand = Stand()
    run = stand.submit({"deadline": "1h"}, open=True)
    stand.do(Add(run, 2, parse_submission({"tasks": [{"command": ["true"], "deadline": "1h"}]})))
    assert stand.engine.state.runs[run].due == stand.now + 3_600.0
    stand.do(Add(run, 3, parse_submission({"tasks": [{"command": ["true"]}]})))
    assert stand.engine.state.runs[run].due is None
    stand.do(Add(run, 4, parse_submission({"tasks": [{"command": ["true"], "deadline": "1h"}]})))
    assert stand.engine.state.runs[run].due is None


def test_a_risk_is_said_once_and_again_when_it_comes_back() -> None:
    stand = Stand()
    run = stand.submit({"deadline": "1h"}, notify=["https://x/", "true"])
    for chance in (0.9, 0.5, 0.4, 0.75, 0.3, 0.95, 0.2):
        stand.do(NoteChance(run, chance))
    assert [event.data["chance"] for event in stand.events("deadline_at_risk")] == [0.5, 0.2]
    stand.commit()
    rows = stand.reader.notices(10)
    assert [(row.what, row.target) for row in rows] == [("deadline", "https://x/"), ("deadline", "true")] * 2
    assert "may miss its deadline" in rows[0].text and json.loads(rows[0].data)["chance"] == 0.5


def test_notices_are_written_with_their_events_and_deleted_when_they_were_told() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"}, name="night", notify=["https://x/"])
    pilot = stand.pilot(cores=3)
    one, two, three = (lease.attempt for lease in pilot.pull())
    pilot.run()
    stand.commit()
    pilot.send(pilot.make([bad(one)]))
    stand.crash()
    stand.commit()
    assert stand.reader.notices(10) == [], "a crash forgets both"
    pilot.talk(held=pilot.held)
    pilot.talk(bad(one), bad(two), good(three))
    stand.commit()
    failure, end = stand.reader.notices(10)
    assert (failure.what, end.what, end.run) == ("first_failure", "end", run)
    assert failure.text == f"r{run} (night) has its first failure: r{run}.1 failed (task_error)"
    assert end.text == f"r{run} (night) is over: 2 failed, 1 succeeded"
    stand.restart()
    assert stand.engine.state.runs.get(run) is None or stand.engine.state.runs[run].notify == ("https://x/",)
    stand.do(Noticed(end.seq, end.target, "https://x", end.run, end.owner, end.what, 1))
    stand.do(
        Noticed(failure.seq, failure.target, "https://x", failure.run, failure.owner, failure.what, 8, "no answer")
    )
    stand.commit()
    assert stand.reader.notices(10) == []
    assert [event.data["why"] for kind in ("notice_sent", "notice_failed") for event in stand.events(kind)] == [
        "",
        "no answer",
    ]


def test_many_notices_of_one_owner_keep_none_of_others_from_being_read() -> None:
    stand = Stand()
    pilot = stand.pilot()
    for _ in range(5):
        stand.submit({}, notify=["https://x.example.org"])
        pilot.talk(good(pilot.work()))
    stand.submit({}, owner="bob", notify=["https://y.example.org"])
    other = stand.pilot(owner="bob")
    other.talk(good(other.work()))
    stand.commit()
    assert len(stand.reader.notices(10)) == 6
    for page in (1, 2, 500):
        assert [row.owner for row in stand.reader.notices(3, page)] == ["ann", "ann", "ann", "bob"]
