"""The progress of a map: what is counted, and what each kind of output shows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client import progress
from shoal.client.executor.futures import Batch
from shoal.client.executor.outcome import ResultRow
from shoal.client.progress import MapProgress, MapStatus, NotebookDisplay, PlainDisplay, TerminalDisplay, choose_display


class Recorder:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[MapStatus] = []
        self.ends: list[MapStatus] = []

    def update(self, status: MapStatus) -> None:
        self.shown.append(status)

    def close(self, status: MapStatus) -> None:
        self.ends.append(status)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.001)


def batch_of(*rows: ResultRow) -> Batch:
    batch = Batch(None)  # type: ignore[arg-type]  # no stream is asked
    batch.extend(4)
    batch.rows[: len(rows)] = rows
    return batch


def wait(condition: Any) -> None:
    import time

    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_calls_are_counted_from_the_first_that_is_sent_to_the_last_result() -> None:
    recorder, batch = Recorder(), batch_of(ResultRow(1, "succeeded"), ResultRow(2, "failed"))
    with MapProgress("f", batch, display=recorder) as bar:
        assert list(bar.count(iter(range(4)))) == [0, 1, 2, 3]
        results = bar.over(iter("abcd"))
    wait(lambda: recorder.shown and recorder.shown[-1][:4] == ("f", 4, 2, 1))
    assert not recorder.ends
    batch.rows[2:] = [ResultRow(3, "succeeded"), ResultRow(4, "succeeded")]
    wait(lambda: recorder.ends)  # also if nobody reads
    assert [status[:4] for status in recorder.ends] == [("f", 4, 4, 1)]
    assert list(results) == ["a", "b", "c", "d"]


def test_the_display_ends_with_the_reader_and_with_an_error() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError

    recorder = Recorder()
    with MapProgress("f", batch_of(), display=recorder) as bar:
        results = bar.over(broken())
    assert next(results) == 1
    with pytest.raises(LookupError):
        next(results)
    assert len(recorder.ends) == 1
    other = Recorder()
    with pytest.raises(KeyError), MapProgress("f", batch_of(), display=other):
        raise KeyError
    assert len(other.ends) == 1


def test_chunks_are_shown_as_the_calls_they_are() -> None:
    recorder = Recorder()
    with MapProgress("f", batch_of(ResultRow(1, "succeeded")), 3, recorder) as bar:
        list(bar.count(iter(range(10))))
    wait(lambda: [status[1:3] for status in recorder.shown][-1:] == [(10, 3)])
    bar.close()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (MapStatus("f", 10, 0, 0, 0.0), "0/10  0ms"),
        (MapStatus("f", 1_000, 500, 0, 10.0), "500/1,000  50.0/s  10.0s  about 10.0s left"),
        (MapStatus("f", 4, 4, 1, 2.0), "4/4  failed 1  2.0/s  2.0s"),
    ],
)
def test_the_text_says_how_many_how_fast_and_how_long(status: MapStatus, text: str) -> None:
    assert status.text == text


def test_pipes_get_a_line_now_and_then_and_nothing_if_it_was_quick() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for elapsed in (0.1, 1.0, 3.0, 6.5):
        display.update(MapStatus("f", 9, 3, 0, elapsed))
    display.close(MapStatus("f", 9, 9, 0, 7.0))
    assert [line.split("  ")[:2] for line in stream.getvalue().splitlines()] == [["shoal: f", "3/9"]] * 2 + [
        ["shoal: f", "9/9"]
    ]
    quick = io.StringIO()
    PlainDisplay(quick).close(MapStatus("f", 9, 9, 0, 0.2))
    assert quick.getvalue() == ""


def test_a_notebook_has_one_output_that_changes_and_no_name_can_inject() -> None:
    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data)

    shown: list[dict[str, str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data)
        return Handle()

    notebook = NotebookDisplay(display)
    notebook.update(MapStatus("<b>", 4, 1, 0, 1.0))
    notebook.close(MapStatus("<b>", 4, 4, 0, 2.0))
    assert [data["text/html"].split(">")[0] for data in shown] == [
        '<progress value="1" max="4"',
        '<progress value="4" max="4"',
    ]
    assert "&lt;b&gt;" in shown[0]["text/html"] and shown[1]["text/plain"].startswith("<b>  ################  4/4")


def test_the_display_fits_where_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_display(), PlainDisplay)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_display(), TerminalDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_display(), PlainDisplay)


def test_a_terminal_has_one_line_that_moves_and_stays_and_none_if_it_was_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, piped = Terminal(), io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("sys.stdout", piped)
    quick = TerminalDisplay()
    quick.update(MapStatus("f", 4, 1, 0, 0.1))
    quick.close(MapStatus("f", 4, 4, 0, 0.2))
    assert screen.getvalue() == ""
    display = TerminalDisplay()
    display.update(MapStatus("f[red]", 4, 1, 0, 1.0))
    print("a result")
    display.close(MapStatus("f[red]", 4, 4, 0, 2.0))
    assert "####............  1/4" in screen.getvalue()
    assert screen.getvalue().rstrip("\x1b[?25h\n").endswith("################  4/4  2.0/s  2.0s")
    assert piped.getvalue() == "a result\n"  # standard output is piped: nothing of it goes to the terminal
