"""What fits into an exchange, and that nothing is lost or overtakes itself on the way."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from shoal.model.limits import MAX_BODY, MAX_EMITS, MAX_FILE_ANSWERS, MAX_PEEKS, MAX_TAIL, MAX_TAILS, MAX_TASK_TAGS
from shoal.pilot.agent.events import Settle
from shoal.pilot.agent.outbox import MAX_PUBLISHED, PUBLISHED_KEPT, TAIL_BYTES, Outbox
from shoal.wire import codec
from shoal.wire.messages import Capacity, Checkpoint, Emitted, Exchange, FileAnswer, LogPiece, Published, Report


def send(box: Outbox, *underway: Exchange) -> Exchange:
    reports, batches, tags, tails, published, checkpoints, files, emitted = box.pack(underway)
    return Exchange(
        2, "p1", "s", 1, 0, Capacity(), [], reports, tags, tails,
        batches=batches, published=published, checkpoints=checkpoints, files=files, emitted=emitted,
    )  # fmt: skip


def tails(text: str, count: int, attempt: str = "r1.1#1@1") -> list[LogPiece]:
    return [LogPiece(attempt, "stdout", text, number * len(text)) for number in range(count)]


def test_tails_of_one_exchange_are_bounded() -> None:
    box = Outbox(OrderedDict())
    box.add_tails(tails("x" * MAX_TAIL, 40), more=False)
    exchange = send(box)
    assert 20 <= len(exchange.tails) <= TAIL_BYTES // MAX_TAIL
    assert [t.offset for t in exchange.tails] == [n * MAX_TAIL for n in range(len(exchange.tails))]


def test_pieces_of_one_exchange_are_counted() -> None:
    box = Outbox(OrderedDict())
    box.add_tails([tail for n in range(100) for tail in tails("x", 2, f"r1.{n}#1@1")], more=False)
    first = send(box)
    assert len(first.tails) == MAX_TAILS
    assert len(first.tails) + len(send(box).tails) + len(send(box).tails) + len(send(box).tails) == 200


def test_what_grows_in_its_encoding_is_counted_as_it_travels() -> None:
    box = Outbox(OrderedDict())
    box.add_tails(tails("\0" * MAX_TAIL, 40), more=False)
    assert len(codec.encode(send(box))) < MAX_BODY


def test_there_is_room_for_two_exchanges_and_no_more() -> None:
    box = Outbox(OrderedDict())
    assert box.tail_capacity == 2 * TAIL_BYTES
    box.add_tails(tails("x" * MAX_TAIL, 60), more=True)
    assert box.tail_capacity == 0
    send(box)
    assert 0 < box.tail_capacity < TAIL_BYTES


def test_a_stream_that_waits_does_not_hold_up_another() -> None:
    box = Outbox(OrderedDict())
    box.add_tails(tails("x", 1), more=False)
    first = send(box)
    box.add_tails([*tails("y", 1), *tails("z", 1, "r1.2#1@1")], more=False)
    assert box.has_tail([first])
    assert [t.text for t in send(box, first).tails] == ["z"]
    assert not box.has_tail([first]) and box.has_tail([])


def test_whatever_happens_each_stream_arrives_whole_and_in_order() -> None:
    rng = Random(3)
    for _ in range(200):
        box = Outbox(OrderedDict())
        written = dict.fromkeys(("a", "b", "c"), 0)
        heard: dict[str, list[int]] = {name: [] for name in written}
        underway: list[Exchange] = []
        for step in range(60):
            deed = rng.random()
            if deed < 0.4 and step < 40:
                name = rng.choice(list(written))
                box.add_tails([LogPiece(name, "stdout", "x" * rng.choice([1, MAX_TAIL]), written[name])], more=False)
                written[name] += 1
            elif deed < 0.7 and len(underway) < 2:
                underway.append(send(box, *underway))
            elif underway and deed < 0.8:
                box.put_back([underway.pop(rng.randrange(len(underway)))])
            elif underway and deed < 0.85:
                box.put_back(underway)
                underway = []
            elif underway:
                for tail in underway.pop(rng.randrange(len(underway))).tails:
                    heard[tail.attempt].append(tail.offset)
        for exchange in [*underway, send(box, *underway)]:
            for tail in exchange.tails:
                heard[tail.attempt].append(tail.offset)
        for tail in send(box).tails:
            heard[tail.attempt].append(tail.offset)
        assert heard == {name: list(range(count)) for name, count in written.items()}


def test_one_bad_report_does_not_stop_the_others() -> None:
    reports = OrderedDict((name, Report(name, "succeeded", last_line=name)) for name in ("a", "bad", "c"))
    box = Outbox(reports)
    heard = []
    while reports:
        exchange = send(box)
        if any(report.attempt == "bad" for report in exchange.reports):
            lost = box.reject(exchange, "no", True)
            assert lost == [] or Settle("bad", False) in lost or not reports
        else:
            heard += [report.attempt for report in exchange.reports if box.settle(report.attempt)]
    assert heard == ["a", "c"]
    assert box.is_empty


# --- what tasks publish
def test_the_last_word_on_a_published_tag_counts_and_stands_where_it_was_said() -> None:
    box = Outbox(OrderedDict())
    box.publish("r1.1#1@1", {"x": 1, "y": 1})
    box.publish("r2.1#1@1", {"x": 7})
    box.publish("r1.2#1@1", {"x": 2})
    said = [Published("r1.1#1@1", {"y": 1}), Published("r2.1#1@1", {"x": 7}), Published("r1.2#1@1", {"x": 2})]
    assert send(box).published == said
    assert send(box).published == [] and not box.has_published


def test_published_tags_ride_on_one_exchange_at_a_time_and_go_back_before_newer_ones() -> None:
    box = Outbox(OrderedDict())
    box.publish("r1.1#1@1", {"x": 1, "y": 1})
    first = send(box)
    box.publish("r1.1#1@1", {"x": 2})
    assert send(box, first).published == [] and box.has_published
    box.put_back([first])
    assert send(box).published == [Published("r1.1#1@1", {"y": 1, "x": 2})]


def test_published_tags_are_bounded_for_each_run_and_in_all() -> None:
    box = Outbox(OrderedDict())
    for number in range(MAX_TASK_TAGS + 10):
        box.publish("r1.1#1@1", {f"t{number}": number})
    box.publish("r1.1#1@1", {"t0": "again"})
    (said,) = send(box).published
    assert len(said.tags) == MAX_TASK_TAGS and said.tags["t0"] == "again"
    for run in range(2, 200):
        box.publish(f"r{run}.1#1@1", {f"t{number}": number for number in range(MAX_TASK_TAGS)})
    counts = []
    while box.has_published:
        counts.append(sum(len(one.tags) for one in send(box).published))
    assert (set(counts), sum(counts)) == ({MAX_PUBLISHED}, PUBLISHED_KEPT)
    box.publish("r2.1#1@1", {"t0": 1})
    assert box.has_published, "what was sent makes room"


def test_checkpoints_of_one_attempt_ride_one_at_a_time_and_a_newer_one_is_never_overtaken() -> None:
    box = Outbox(OrderedDict())
    old, new, other = (
        Checkpoint(f"r1.{n}#1@1", {"state": d}, at) for at, (n, d) in enumerate(((1, "a"), (1, "b"), (2, "c")))
    )
    box.add_checkpoint(old)
    first = send(box)
    assert first.checkpoints == [old]
    box.add_checkpoint(new)
    box.add_checkpoint(other)
    assert box.has_checkpoint([first])
    second = send(box, first)
    assert second.checkpoints == [other] and not box.has_checkpoint([first, second])
    box.put_back([first, second])
    assert send(box).checkpoints == [new, other], "the one sent in vain is outdated"


def test_a_checkpoint_that_the_server_refuses_does_not_take_a_report_with_it() -> None:
    report = Report("r1.1#1@1", "succeeded")
    box = Outbox(OrderedDict({report.attempt: report}))
    box.add_checkpoint(Checkpoint("r1.2#1@1", {"state": "a"}, 1))
    said = send(box)
    assert box.reject(said, "refused", is_sure=True) == []
    assert send(box).reports == [report], "it rides alone next"


def test_answers_about_files_ride_few_at_a_time_go_back_first_and_give_way_to_newer_ones() -> None:
    box = Outbox(OrderedDict())
    for number in range(MAX_FILE_ANSWERS + 1):
        box.add_file(FileAnswer(f"q{number}"))
    first = send(box)
    assert [answer.request for answer in first.files] == [f"q{number}" for number in range(MAX_FILE_ANSWERS)]
    assert box.has_file
    assert box.is_empty, "nobody ends later for an answer: whoever waits asks again"
    box.put_back([first])
    assert [answer.request for answer in send(box, first).files] == [f"q{number}" for number in range(MAX_FILE_ANSWERS)]
    for number in range(100):
        box.add_file(FileAnswer(f"n{number}"))
    assert send(box).files[0].request == f"n{100 - MAX_PEEKS}"


def test_what_an_attempt_emitted_last_is_sent_once_and_again_to_a_server_that_forgot_it() -> None:
    box = Outbox(OrderedDict())
    box.emit("r1.1#1@1", "a")
    box.emit("r1.2#1@1", "b")
    box.emit("r1.1#1@1", "c")
    first = send(box)
    assert first.emitted == [Emitted("r1.1#1@1", "c"), Emitted("r1.2#1@1", "b")] and not box.has_published
    box.emit("r1.1#1@1", "d")
    assert send(box, first).emitted == [], "one exchange at a time, so that nothing is overtaken"
    box.put_back([first])
    assert set(send(box).emitted) == {Emitted("r1.1#1@1", "d"), Emitted("r1.2#1@1", "b")}, "the newest, once"
    assert send(box).emitted == []
    box.forget_emitted(["r1.1#1@1"])
    box.emit_again()
    assert send(box).emitted == [Emitted("r1.2#1@1", "b")] and box.has_emitted
    box.forget_emitted(["r1.2#1@1"])
    box.put_back([first])
    assert send(box).emitted == [] and not box.has_emitted, "nothing of an attempt that is over"


def test_what_many_attempts_emit_is_sent_some_at_a_time() -> None:
    box = Outbox(OrderedDict())
    for number in range(MAX_EMITS + 3):
        box.emit(f"r1.{number + 1}#1@1", "x")
    assert len(send(box).emitted) == MAX_EMITS and box.has_published and len(send(box).emitted) == 3
