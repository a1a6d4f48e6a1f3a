"""Keys and ids of the table: whole numbers of 256 bits, compared by XOR. A key is the digest of a file, an id is given by the
server [LBO D2].
"""

from __future__ import annotations

from random import Random

BITS = 256
HEX = BITS // 4  # digits of a key as text
LARGEST = (1 << BITS) - 1


def parse_key(text: str) -> int:
    """A key from its hexadecimal digits; ValueError for anything else, so that one key has one text."""
    if len(text) != HEX or text.strip("0123456789abcdef"):
        raise ValueError(f"a key has {HEX} lower-case hexadecimal digits")
    return int(text, 16)


def show_key(key: int) -> str:
    """The hexadecimal digits of a key."""
    return f"{key:0{HEX}x}"


def bucket_of(own: int, other: int) -> int:
    """The bucket of another id: the position of the highest bit in which it differs from ours; -1 for our own id."""
    return (own ^ other).bit_length() - 1


def key_in_bucket(own: int, bucket: int, rng: Random) -> int:
    """A random key that belongs into a bucket of ours."""
    return own ^ (1 << bucket | rng.getrandbits(bucket) if bucket else 1)
