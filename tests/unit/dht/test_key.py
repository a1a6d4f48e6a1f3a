from __future__ import annotations

from random import Random

import pytest

from shoal.dht.key import BITS, LARGEST, bucket_of, key_in_bucket, parse_key, show_key


def test_a_key_has_one_text() -> None:
    for key in (0, 1, LARGEST, Random(1).getrandbits(BITS)):
        assert parse_key(show_key(key)) == key
    for text in (
        "",
        "0" * 63,
        "0" * 65,
        "A" * 64,
        "+" + "1" * 63,
        " " + "1" * 63,
        "0x" + "1" * 62,
        "g" * 64,
        "1_" * 32,
    ):
        with pytest.raises(ValueError, match="64"):
            parse_key(text)


def test_the_bucket_is_the_highest_bit_that_differs() -> None:
    assert bucket_of(5, 5) == -1
    assert bucket_of(0b1000, 0b1001) == 0
    assert bucket_of(0, LARGEST) == BITS - 1
    rng = Random(2)
    for bucket in range(BITS):
        own = rng.getrandbits(BITS)
        assert bucket_of(own, key_in_bucket(own, bucket, rng)) == bucket
