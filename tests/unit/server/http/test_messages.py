"""Requests as the application sees them: headers, and bodies that are here already or still arrive."""

from __future__ import annotations

import asyncio

from shoal.server.http.messages import Body, BodyBroken, Headers


def body(*parts: bytes) -> Body:
    """A body of which so much has arrived."""
    made = Body(lambda is_on: None, lambda: None)
    for part in parts:
        made.feed(part)
    return made


def test_the_first_of_several_values_counts_and_those_given_twice_are_known() -> None:
    headers = Headers([("host", "a"), ("x-one", "1"), ("host", "b")])
    assert headers.get("Host") == "a" and headers.all("HOST") == ["a", "b"]
    assert headers.repeated() == ["host"] and "X-One" in headers and "y" not in headers
    assert headers.get("y", "none") == "none"
    assert Headers([("host", "a")]).repeated() == []


def test_a_body_is_taken_whole_only_if_all_of_it_is_here_and_unread() -> None:
    arriving = body(b"ab")
    assert arriving.take_whole() is None
    arriving.feed(b"c")
    arriving.end()
    assert arriving.take_whole() == b"abc"
    assert arriving.take_whole() is None, "it was read"
    empty = body()
    empty.end()
    assert empty.take_whole() == b""


def test_a_body_that_is_broken_or_begun_has_to_be_read_as_it_comes() -> None:
    broken = body(b"ab")
    broken.end(BodyBroken("the connection was lost"))
    assert broken.take_whole() is None

    async def begin() -> Body:
        begun = body(b"ab")
        assert await begun.readany() == b"ab"
        begun.feed(b"c")
        begun.end()
        return begun

    assert asyncio.run(begin()).take_whole() is None
