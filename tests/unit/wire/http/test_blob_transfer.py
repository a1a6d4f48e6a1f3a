"""The steps of a blob's way, without a network: what is asked next after each kind of answer."""

from __future__ import annotations

import pytest

from shoal.model.blobs import Bytes, digest_of
from shoal.model.errors import BadInput
from shoal.wire.http.blob_transfer import AT_ONCE, PIECE, TRIES, Get, Put, pieces

BIG = AT_ONCE + 10
DIGEST = digest_of([b"x"])


def test_a_small_blob_is_sent_at_once_and_a_large_one_asked_about() -> None:
    small, big = Put(DIGEST, 5), Put(DIGEST, BIG)
    assert small.offset == 0 and small.headers()["Content-Length"] == "5" and "Content-Range" not in small.headers()
    assert big.offset is None and big.headers() == {"Content-Range": f"bytes */{BIG}", "Content-Length": "0"}
    assert small.answered(200, "", "", None) and big.answered(200, "", "", None)


def test_an_upload_goes_on_where_the_server_says() -> None:
    put = Put(DIGEST, BIG)
    assert not put.answered(409, "wrong_offset", "7", None)
    assert put.offset == 7 and put.pause == 0.0
    assert put.headers()["Content-Range"] == f"bytes 7-{BIG - 1}/{BIG}"
    assert put.headers()["Content-Length"] == str(BIG - 7)


def test_after_a_lost_connection_the_server_is_asked_first_and_patience_ends() -> None:
    put = Put(DIGEST, BIG)
    pauses = []
    for number in range(1, TRIES + 1):
        assert put.lost() == (number < TRIES)
        pauses.append(put.pause)
        assert put.offset is None
        put.answered(409, "wrong_offset", "0", None)
    assert pauses[0] < pauses[-1]


def test_each_byte_more_brings_patience_back() -> None:
    put = Put(DIGEST, BIG)
    for offset in range(1, 3 * TRIES):
        assert put.lost()
        assert not put.answered(409, "wrong_offset", str(offset), None)


def test_the_same_offset_again_and_again_is_an_end() -> None:
    put = Put(DIGEST, BIG)
    answers = [put.answered(409, "wrong_offset", "0", None) for _ in range(TRIES + 1)]
    assert answers == [False] * TRIES + [True]


@pytest.mark.parametrize("offset", ["", "-1", "x", str(BIG + 1)])
def test_an_offset_that_cannot_be_is_the_last_word(offset: str) -> None:
    assert Put(DIGEST, BIG).answered(409, "wrong_offset", offset, None)


def test_a_damaged_part_is_sent_once_more_from_the_start() -> None:
    put = Put(DIGEST, BIG)
    put.answered(409, "wrong_offset", "7", None)
    assert not put.answered(422, "wrong_digest", "", None) and put.offset == 0
    assert put.answered(422, "wrong_digest", "", None), "what we send ourselves is wrong"


def test_what_another_is_sending_is_waited_for_as_long_as_it_goes_on() -> None:
    put = Put(DIGEST, BIG)
    for _ in range(5 * TRIES):
        assert not put.answered(429, "being_sent", "", 1.0)
        assert put.pause == 1.0 and put.offset is None
    assert not put.answered(409, "taken_over", "", None) and put.offset is None


def test_a_busy_server_is_asked_again_when_it_said_but_not_for_ever() -> None:
    for way in (Put(DIGEST, BIG), Get(DIGEST)):
        answers = []
        for _ in range(TRIES):
            answers.append(way.answered(429, "too_busy", "", 3.0) if isinstance(way, Put) else way.answered(429, 3.0))
            assert 3.0 <= way.pause <= 10.0
        assert answers == [False] * (TRIES - 1) + [True]


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422, 507])
def test_a_refusal_is_the_last_word(status: int) -> None:
    assert Put(DIGEST, BIG).answered(status, "no", "", None)
    assert Get(DIGEST).answered(status, None)


def test_a_download_goes_on_behind_what_came_and_is_compared() -> None:
    get = Get(digest_of([b"hello"]))
    assert get.headers() == {} and get.answered(200, None)
    get.took(b"he")
    assert get.lost()
    assert get.headers() == {"Range": "bytes=2-"} and get.answered(206, None)
    get.took(memoryview(b"llo"))
    assert get.is_right and get.got == 5


def test_a_server_that_begins_anew_is_believed() -> None:
    get = Get(digest_of([b"hello"]))
    get.took(b"hx")
    get.answered(200, None)
    get.took(b"hello")
    assert get.is_right


def test_only_names_of_blobs_become_paths() -> None:
    for way in (lambda: Put("sha256:../../x", 1), lambda: Get("sha256:../../x")):
        with pytest.raises(BadInput):
            way()


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5, 6, 7])
def test_pieces_are_the_bytes_from_an_offset_on(offset: int) -> None:
    parts: list[Bytes] = [b"ab", b"", memoryview(bytearray(b"cdef")).cast("H"), memoryview(b"x")[:0], b"g"]
    assert b"".join(pieces(parts, offset)) == b"abcdefg"[offset:]


def test_pieces_are_cut_and_not_copied() -> None:
    data = bytearray(2 * PIECE + 5)
    cut = list(pieces([data], 3))
    assert [len(piece) for piece in cut] == [PIECE, PIECE, 2]
    data[3] = 7
    assert cut[0][0] == 7
