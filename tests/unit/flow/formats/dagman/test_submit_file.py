"""Submit descriptions: macros, conditions, includes, and what `queue` makes of them."""

from __future__ import annotations

import pytest

from shoal.flow.formats.dagman.submit_file import processes, read_description
from shoal.model.errors import BadInput
from tests.unit.flow.formats.dagman.reading import around


def made(
    text: str, before: dict[str, str] | None = None, behind: dict[str, str] | None = None, **files: str
) -> list[dict[str, str]]:
    named = {name.replace("_", ".", 1): body for name, body in files.items()}
    found = processes(read_description(text, "a.sub"), before or {}, behind or {}, around(named), "")
    return [dict(process.macros) for process in found]


def test_the_last_value_of_a_name_counts_and_names_are_read_in_any_case() -> None:
    (macros,) = made("Executable = a\nEXECUTABLE = b\nqueue\n")
    assert macros["executable"] == "b"


def test_a_macro_of_itself_takes_its_value_of_before() -> None:
    (macros,) = made("x = 1\nx = $(x) 2\nqueue\n")
    assert macros["x"] == "1 2"


def test_what_is_set_before_is_overridden_and_what_is_set_behind_overrides() -> None:
    (macros,) = made("x = file\ny = file\nqueue\n", {"x": "before", "z": "before"}, {"y": "behind"})
    assert (macros["x"], macros["y"], macros["z"]) == ("file", "behind", "before")


@pytest.mark.parametrize(
    ("condition", "before", "taken"),
    [
        ("defined x", {"x": "1"}, "if"),
        ("defined x", {}, "else"),
        ("! defined x", {}, "if"),
        ("$(x)", {"x": "true"}, "if"),
        ("$(x)", {"x": "0"}, "elif"),
        ("false", {"y": "1"}, "else"),
    ],
)  # fmt: skip
def test_conditions(condition: str, before: dict[str, str], taken: str) -> None:
    text = f"if {condition}\nr = if\nelif defined x\nr = elif\nelse\nr = else\nendif\nqueue\n"
    (macros,) = made(text, before)
    assert macros["r"] == ("else" if taken == "elif" and "x" not in before else taken)


def test_a_description_may_include_others() -> None:
    (macros,) = made("include : more.inc\nqueue\n", more_inc="x = 5\n")
    assert macros["x"] == "5"
    (macros,) = made("include ifexist : none.inc\nqueue\n")
    assert "x" not in macros


@pytest.mark.parametrize(
    ("queue", "rows"),
    [
        ("queue", [""]),
        ("queue 3", ["", "", ""]),
        ("queue $(n)", ["", ""]),
        ("queue item in (a, b c)", ["a", "b", "c"]),
        ("queue in (a b)", ["a", "b"]),
        ("queue 2 item in (a b)", ["a", "a", "b", "b"]),
        ("queue item from list.txt", ["one 1", "two 2"]),
        ("queue item, number from list.txt", ["one", "two"]),
        ("queue item from (\n x\n y\n)", ["x", "y"]),
        ("queue item matching files *.dat", ["a.dat", "b.dat"]),
        ("queue matching *.dat", ["a.dat", "b.dat"]),
        ("queue item matching (a.* b.*)", ["a.dat", "b.dat"]),
    ],
)  # fmt: skip
def test_queue_makes_jobs(queue: str, rows: list[str]) -> None:
    files = {"list_txt": "one 1\n\n# no\ntwo 2\n", "a_dat": "", "b_dat": ""}
    found = made(f"n = 2\n{queue}\n", None, None, **files)
    assert [macros["item"] for macros in found] == rows
    assert [macros["process"] for macros in found] == [str(at) for at in range(len(rows))]


def test_several_names_take_the_words_of_a_line_or_what_commas_separate() -> None:
    found = made("queue a, b from (\n 1 2 3\n x, y z\n)\n")
    assert [(macros["a"], macros["b"]) for macros in found] == [("1", "2 3"), ("x", "y z")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("executable = a\n", "no queue statement"),
        ("queue\nx = 1\n", "follows the queue statement"),
        ("queue many\n", "no number of jobs"),
        ("what is this\nqueue\n", "no line of a submit description"),
        ("if true\nqueue\n", "no endif"),
        ("endif\nqueue\n", "endif without if"),
        ("if maybe\nendif\nqueue\n", "is no condition"),
        ("include : a.inc\nqueue\n", "without end"),
        ("include command : ls\nqueue\n", "output of commands"),
        ("queue x from none.txt\n", "cannot read none.txt"),
        ("queue x in (a b\n", "not closed"),
        ("queue 999999999\n", "too many"),
        ("queue x from (\na\n", "not closed"),
        ("queue in[1:2] (a b)\n", "not supported"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=r"^a\.(sub|inc):[0-9]+: ") as wrong:
        made(text, a_inc="include : a.inc\n")
    assert words in wrong.value.message


def test_an_inline_description_is_one_job() -> None:
    found = processes(read_description("x = 1\n", "w.dag", True), {}, {}, around({}), "")
    assert len(found) == 1
    with pytest.raises(BadInput, match="inline"):
        processes(read_description("queue 2\n", "w.dag", True), {}, {}, around({}), "")
