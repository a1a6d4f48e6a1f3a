"""A guard process that works through pieces of short commands by itself, without a pilot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from shoal.pilot.guard.messages import Ended, NotStarted, Ran, Shorten, Shortened, Start, Started, StartPiece, Stop
from shoal.pilot.guard.pieces import Piece
from tests.unit.pilot.guard.test_guard import Line, line, until_file  # noqa: F401  # a fixture

RUN = "r1.{}#1@1"


def request(folder: object, commands: Sequence[Sequence[str]], first: int = 1, after: str = "") -> StartPiece:
    env = {"PATH": os.environ["PATH"], "COMMON": "c"}
    start = Start(RUN.format(first), ["true"], str(folder), env, "", "", grace=1.0, umask=0o022, after=after)
    envs = [{"SHOAL_ATTEMPT": f"r1.{first + at}#1"} for at in range(len(commands))]
    return StartPiece(
        start.attempt, list(vars(start).values()), envs, [list(one) for one in commands], f"{folder}/logs"
    )


def told(line: Line, name: str = RUN.format(1)) -> list[Any]:  # noqa: F811
    """Everything that is said of a piece until it is over."""
    found: list[Any] = []
    while not (found and isinstance(found[-1], Ran) and found[-1].over):
        found.append(line.next(name))
    return found


def test_successes_that_wrote_nothing_are_rows_of_columns(line: Line) -> None:  # noqa: F811
    line.send(request(line.folder, [["true"]] * 5))
    news = told(line)
    rows = [row for ran in news for row in zip(ran.started, ran.duration, ran.cpu, ran.max_rss, strict=True)]
    assert len(rows) == 5 and all(began > 1e9 and took > 0 and rss > 0 for began, took, _, rss in rows)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows), "one after another"
    assert not (line.folder / "logs/r1/0").exists() or os.listdir(line.folder / "logs/r1/0") == []


def test_whatever_is_not_plain_is_told_by_itself_and_in_order(line: Line) -> None:  # noqa: F811
    commands = [
        ["true"],
        ["sh", "-c", "exit 3"],
        ["sh", "-c", "echo $COMMON $SHOAL_ATTEMPT"],
        ["no-such-program"],
        ["true"],
    ]
    line.send(request(line.folder, commands))
    news = told(line)
    order = [(type(one), one.attempt, len(getattr(one, "started", []) if isinstance(one, Ran) else [])) for one in news]
    first = RUN.format(1)
    assert order == [
        (Ran, first, 1), (Ended, RUN.format(2), 0), (Ended, RUN.format(3), 0), (NotStarted, RUN.format(4), 0), (Ran, first, 1),
    ]  # fmt: skip
    assert {one.piece for one in news[1:4]} == {first}
    assert (news[1].exit_code, news[2].exit_code, news[3].exit_code) == (3, 0, 127)
    assert news[1].started > 1e9
    assert line.text("logs/r1/0/3.1.out") == "c r1.3#1\n"


def test_what_has_not_begun_is_taken_back_at_once(line: Line) -> None:  # noqa: F811
    mark = line.folder / "third"
    commands = [["true"], ["sh", "-c", f"touch {line.folder}/second; sleep 0.3"], ["touch", str(mark)]]
    line.send(request(line.folder, commands))
    until_file(line.folder / "second")
    line.send(Shorten(RUN.format(1)))
    news = told(line)
    assert [one.count for one in news if isinstance(one, Shortened)] == [2]
    assert sum(len(one.started) for one in news if isinstance(one, Ran)) == 2 and not mark.exists()


def test_one_of_it_is_stopped_before_it_begins_or_while_it_runs(line: Line) -> None:  # noqa: F811
    mark = line.folder / "third"
    line.send(
        request(line.folder, [["sh", "-c", f"touch {line.folder}/first; sleep 60"], ["true"], ["touch", str(mark)]])
    )
    until_file(line.folder / "first")
    line.send(Stop(RUN.format(2), 1.0))
    line.send(Stop(RUN.format(1), 1.0))
    news = [one for one in told(line) if not isinstance(one, Started)]
    assert [type(one) for one in news] == [Ended, NotStarted, Ran] and news[0].why == "stopped"
    assert news[1].cause == "cancelled" and mark.exists(), "the rest goes on"


def test_a_piece_waits_behind_another_and_is_recalled_as_a_whole(line: Line) -> None:  # noqa: F811
    line.send(request(line.folder, [["sleep", "0.3"], ["true"]]))
    line.send(request(line.folder, [["touch", str(line.folder / "a")], ["true"]], 3, after=RUN.format(1)))
    line.send(request(line.folder, [["touch", str(line.folder / "b")], ["true"]], 5, after=RUN.format(3)))
    line.send(Stop(RUN.format(3), None))
    assert [one.over for one in told(line, RUN.format(3))] == [True]
    line.send(Stop(RUN.format(1), None))  # it has begun, and goes on
    assert sum(len(one.started) for one in told(line) if isinstance(one, Ran)) == 2
    assert sum(len(one.started) for one in told(line, RUN.format(5))) == 2
    assert (line.folder / "b").exists() and not (line.folder / "a").exists()


def test_one_that_takes_a_while_is_told_of_when_it_has_its_files(line: Line) -> None:  # noqa: F811
    line.send(request(line.folder, [["true"], ["sleep", "0.3"]]))
    news = told(line)
    assert [type(one) for one in news] == [Ran, Started, Ran]
    assert (news[1].attempt, news[1].piece) == (RUN.format(2), RUN.format(1))


def test_the_time_limit_holds_for_each(line: Line) -> None:  # noqa: F811
    message = request(line.folder, [["sleep", "60"], ["true"]])
    start = Start(*message.start)
    start.time = 0.2
    message.start = list(vars(start).values())
    line.send(message)
    news = [one for one in told(line) if not isinstance(one, Started)]
    assert [type(one) for one in news] == [Ended, Ran] and news[0].why == "time"


def test_what_ran_on_a_full_disk_is_told_one_by_one() -> None:
    piece = Piece(request("/f", [["true"]] * 3))
    for _ in range(2):
        assert piece.next() is not None
        piece.add(1.0, 0.5, 0.1, 7)
    assert piece.next() is not None, "which runs"
    ran = piece.report()
    assert ran is not None
    lost = piece.as_lost(ran, 28)
    assert [(one.attempt, one.no_space, one.folder) for one in lost] == [
        (RUN.format(1), 28, "/f/logs/r1/0"),
        (RUN.format(2), 28, "/f/logs/r1/0"),
    ]


def test_what_was_taken_from_a_piece_is_a_piece_of_its_own(line: Line) -> None:  # noqa: F811
    """The piece that it came from lives on, and must not be taken for it: neither recalled nor stopped in its place."""
    mark, go = line.folder / "second", line.folder / "go"
    wait = f"touch {mark}; while [ ! -e {go} ]; do sleep 0.01; done"
    line.send(request(line.folder, [["true"], ["sh", "-c", wait], ["true"], ["true"], ["true"]]))
    until_file(mark)
    line.send(Shorten(RUN.format(1)))
    line.send(request(line.folder, [["true"]] * 3, 3, after=RUN.format(1)))
    line.send(Stop(RUN.format(3), None))
    assert [(len(one.started), one.over) for one in told(line, RUN.format(3))] == [(0, True)]
    line.send(request(line.folder, [["true"]] * 3, 3, after=RUN.format(1)))
    line.send(Stop(RUN.format(4), 1.0))
    go.touch()
    first = told(line)
    assert sum(len(one.started) for one in first if isinstance(one, Ran)) == 2
    rest = told(line, RUN.format(3))
    assert [type(one) for one in rest] == [Ran, NotStarted, Ran], "only the one that was stopped did not begin"
