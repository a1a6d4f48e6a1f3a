"""Inputs that are named by a URL."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.task.url_input import UrlInput, has_urls, parse_place, parse_url, place_of, read_places

HEX = "0" * 64


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://h/a/b.dat", UrlInput("https://h/a/b.dat", "b.dat", "", "https")),
        ("HTTP://h:8080/b%20c?x=1", UrlInput("http://h:8080/b%20c?x=1", "b c", "", "http")),
        (f"https://h/b#sha256={HEX}", UrlInput("https://h/b", "b", f"sha256:{HEX}", "https")),
        ("file:///data/a%20b", UrlInput("/data/a b", "a b", "", "file")),
        ("root://h:1094//store/a", UrlInput("root://h:1094//store/a", "a", "", "root")),
        ("s3://bucket/deep/key", UrlInput("s3://bucket/deep/key", "key", "", "s3")),
        ("memory:///key", UrlInput("memory:///key", "key", "", "memory")),
    ],
)
def test_a_url_says_what_its_file_is_called_and_what_is_in_it(text: str, found: UrlInput) -> None:
    assert parse_url(text) == found


@pytest.mark.parametrize("text", ["data/x", "/abs", "c:x", "c://x", "https:/x", "storage:x"])
def test_anything_else_is_the_name_of_a_file(text: str) -> None:
    assert parse_url(text) is None and not has_urls([text])


@pytest.mark.parametrize(
    "text",
    [
        *(
            "https://h",
            "https://h/",
            "https://h/..",
            "https:///x",
            "https://h:x/y",
            "https://a:b@h/x",
            "https://h/x#md5=1",
        ),
        *(
            f"https://h/x#sha256={HEX}0",
            "file://h/x",
            "file:///x?y",
            "https://h/a/%2e%2e",
            "https://h/-rf",
            "https://[/x",
            "root:///x",
            "s3://bucket",
            "s3://key:secret@bucket/x",
        ),
    ],
)
def test_what_names_no_file_or_carries_a_password_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_url(text)


def test_pilots_read_and_write_what_their_python_and_hosts_know_and_the_rest_goes_by_the_submitter() -> None:
    assert not any(parse_place(text).is_remote for text in ("file:///a", "https://h/a", "root://h//a", "storage:a/b"))
    assert parse_place("s3://bucket/a").is_remote and parse_place("sftp://h/a").is_remote


@pytest.mark.parametrize(
    "text",
    [
        "out",
        "/abs",
        "storage:",
        "storage:../x",
        "storage:/x",
        "storage:a/./b",
        "https://h/a b",
        f"https://h/x#sha256={HEX}",
    ],
)
def test_what_is_no_place_for_an_output_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_places({"out": text}, "store")


def test_a_file_of_a_directory_keeps_its_place_below_that_of_the_directory() -> None:
    store = {"out": "s3://bucket/run", "deep/x": "storage:x"}
    assert place_of({"d": "file:///s/d"}, "d", "d/a b") == ("/s/d/a b", "a b", "", "file")
    assert place_of({"d": "https://h/d"}, "d", "d/a b") == ("https://h/d/a%20b", "a b", "", "https")
    found = [
        place_of(store, output, file)
        for output, file in (("out", "out/a/b"), ("out", "out"), ("deep/x", "deep/x"), ("z", "z"))
    ]
    assert [place.url if place is not None else "" for place in found] == [
        "s3://bucket/run/a/b",
        "s3://bucket/run",
        "x",
        "",
    ]
