"""Evidence that a path is seen: as it travels, and what matching keeps of it."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.task.visible import Evidence, View, levels, machine, parse_evidence, read_visible, views, witness

HERE = machine("boot", "mnt:[1]")
DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(True, False, HERE, 7), Evidence(True, False, HERE, 7, ("a" * 16,), "", True),
        Evidence(False, False, HERE, 2**63, (witness("/a", True, 9, 1, 2),)),
        Evidence(True, True, HERE, 0, ("a" * 16, "b" * 16), DIGEST), Evidence(True, True, HERE, 3, (), DIGEST),
    ],
)  # fmt: skip
def test_evidence_travels_as_one_text(evidence: Evidence) -> None:
    assert parse_evidence(evidence.text) == evidence


@pytest.mark.parametrize(
    "text",
    ["", "need", "need dir x 1 -", f"must dir {HERE} 1 -", f"need dir {HERE} -1 -", f"need dir {HERE} 1 sha256:0",
     f"need dir {HERE} 1 - xyz", f"need dir {HERE} 1 - {','.join(['a' * 16] * 17)}", f"need dir {HERE} 1 - {'a' * 16} more"],
)  # fmt: skip
def test_what_is_no_evidence_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no evidence"):
        read_visible({"/a": text}, "visible")


def test_paths_are_absolute_and_few() -> None:
    text = Evidence(True, False, HERE, 7).text
    with pytest.raises(BadInput, match="not an absolute path"):
        read_visible({"a": text}, "visible")
    with pytest.raises(BadInput, match="at most 8"):
        read_visible({f"/{n}": text for n in range(9)}, "visible")


def test_matching_looks_at_what_is_needed_and_from_where_not_at_how_it_looks() -> None:
    """A later run from the same directory is of the same class, although files changed; one from another machine is not."""
    first = {"/a": Evidence(True, False, HERE, 7, ("a" * 16,)).text, "/b": Evidence(False, False, HERE, 8).text}
    later = {"/a": Evidence(True, False, HERE, 7, ("b" * 16,)).text}
    other = {"/a": Evidence(True, False, machine("boot", "mnt:[2]"), 7, ("a" * 16,)).text}
    assert views(first) == views(later) == (View(HERE, "/a"),)
    assert views(other) != views(first)
    written = {"/a": Evidence(True, False, HERE, 7, is_written=True).text}
    assert views(written) == (View(HERE, "/a", True),), "a pilot may see it for who cannot write there, either"


def test_the_look_of_a_file_differs_with_everything_that_is_looked_at() -> None:
    looks = {witness("/a", False, 1, 2, 3), witness("/b", False, 1, 2, 3), witness("/a", True, 1, 2, 3),
             witness("/a", False, 9, 2, 3), witness("/a", False, 1, 9, 3), witness("/a", False, 1, 2, 9)}  # fmt: skip
    assert len(looks) == 6
    assert witness("/a", True, 1, 2, 3) == witness("/a", True, 9, 2, 3)  # directories of one content differ in size


def test_directories_above_are_looked_at_but_not_the_root() -> None:
    assert levels("/a/b/c") == ["/a/b/c", "/a/b", "/a"]
    assert levels("/") == [] and len(levels("/a" * 20)) == 6


def test_evidence_adds_no_comma_to_a_table_and_that_with_commas_is_still_read() -> None:
    """A body may have so many commas; a workflow of 100,000 tables has this text in each of them."""
    evidence = Evidence(False, False, "a" * 16, 12, ("b" * 16, "c" * 16))
    assert "," not in evidence.text and parse_evidence(evidence.text) == evidence
    assert parse_evidence(evidence.text.replace(".", ",")) == evidence
