"""Sums of floats without rounding: a whole number times a power of two. Adding is associative and commutative, so the same
values have the same sum in whichever order, and by however many hosts, they were added [ADR 0053]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from shoal.model.limits import MAX_EXACT_BITS


class ExactSum(NamedTuple):
    """`mantissa * 2 ** exponent`; the mantissa is odd, or both are 0: one value has one form."""

    mantissa: int = 0
    exponent: int = 0

    @property
    def is_sound(self) -> bool:
        """True if it may come from a sum of floats, or of their squares."""
        is_whole = type(self.mantissa) is int and type(self.exponent) is int
        return is_whole and self.mantissa.bit_length() <= MAX_EXACT_BITS and abs(self.exponent) <= MAX_EXACT_BITS


ZERO = ExactSum()


def sums_of(values: Sequence[float]) -> tuple[ExactSum, ExactSum]:
    """The sum of finite floats, and that of their squares, neither of them rounded."""
    total = squares = shift = 0  # all so far in units of 2 ** -shift
    for value in values:
        mantissa, denominator = value.as_integer_ratio()
        own = denominator.bit_length() - 1
        if own > shift:
            total <<= own - shift
            squares <<= 2 * (own - shift)
            shift = own
        mantissa <<= shift - own
        total += mantissa
        squares += mantissa * mantissa
    return _normal(total, -shift), _normal(squares, -2 * shift)


def add(one: ExactSum, other: ExactSum) -> ExactSum:
    """The sum of both."""
    if one.exponent > other.exponent:
        one, other = other, one
    return _normal(one.mantissa + (other.mantissa << (other.exponent - one.exponent)), one.exponent)


def _normal(mantissa: int, exponent: int) -> ExactSum:
    if not mantissa:
        return ZERO
    zeros = (mantissa & -mantissa).bit_length() - 1
    return ExactSum(mantissa >> zeros, exponent + zeros)


def divided(total: ExactSum, by: int) -> float:
    """The nearest float of a sum over a whole number; infinite if it is beyond all floats."""
    return _ratio(total.mantissa, by, total.exponent)


def error_of_mean(count: int, total: ExactSum, squares: ExactSum) -> float:
    """The standard error of the mean of `count` >= 2 values with this sum and this sum of squares. Nothing cancels: all
    is exact up to the last root."""
    # Both at one exponent: the variance of the mean is (n * squares - total * total) / (n * n * (n - 1)).
    low = min(squares.exponent, 2 * total.exponent)
    of_squares = count * (squares.mantissa << (squares.exponent - low))
    of_total = (total.mantissa * total.mantissa) << (2 * total.exponent - low)
    numerator, denominator = max(0, of_squares - of_total), count * count * (count - 1)
    # The variance of large values is beyond all floats where its root is not, and that of small ones is 0: it is brought
    # near 1 by a power of 4, which changes no digit of the root.
    half = (numerator.bit_length() - denominator.bit_length() + low) // 2
    root = math.sqrt(_ratio(numerator, denominator, low - 2 * half))
    try:
        return math.ldexp(root, half)
    except OverflowError:
        return math.inf


def _ratio(numerator: int, denominator: int, exponent: int) -> float:
    if exponent >= 0:
        numerator <<= exponent
    else:
        denominator <<= -exponent
    try:
        return numerator / denominator
    except OverflowError:
        return -math.inf if numerator < 0 else math.inf  # `copysign` would make a float of the numerator
