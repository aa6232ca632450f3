"""Exact scalars in and out: tolerances as fractions, bounds as floats that never lie."""

from __future__ import annotations

import re
from fractions import Fraction
from math import inf, nextafter
from sys import float_info

from .errors import UserError

_DECIMAL = re.compile(r"[0-9]{1,40}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_QUOTIENT = re.compile(r"[0-9]{1,60}/[0-9]{1,60}", re.ASCII)
MAX_EXPONENT = 300


def parse_epsilon(value: Fraction | int | float | str, called: str = "eps") -> Fraction:
    """A tolerance or a scale, exactly: "1/4", "0.25" and "25e-2" are 1/4; a float its binary value.

    ``called``: its name in messages.
    Raises ``UserError`` for anything else, for a negative or a non-finite number.
    """
    accepted = 'a number >= 0 such as "1/4" or "0.25"'
    try:
        exact = _exact(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise UserError(f"{called} is {value!r}; accepted: {accepted}") from None
    if not exact >= 0:
        raise UserError(f"{called} is {value!r}, which is negative; accepted: {accepted}")
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > 1280:
        raise UserError(f"{called} is {value!r}: over 1280 bits; accepted: {accepted}")
    return exact


def _exact(value: Fraction | int | float | str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Fraction):
        raise ValueError("not a number")
    if not isinstance(value, str):
        return Fraction(value)
    if _QUOTIENT.fullmatch(value):
        return Fraction(value)
    if not _DECIMAL.fullmatch(value):
        raise ValueError("not a decimal")
    exponent = re.search(r"[eE]([+-]?[0-9]+)", value)
    if exponent and abs(int(exponent[1])) > MAX_EXPONENT:
        raise ValueError("exponent too large")
    return Fraction(value)


def float_above(value: Fraction) -> float:
    """The least float >= value (inf if there is none): an upper bound stays one."""
    try:
        nearest = float(value)
    except OverflowError:
        return inf if value > 0 else -float_info.max
    return nearest if nearest >= value else nextafter(nearest, inf)


def float_below(value: Fraction) -> float:
    """The greatest float <= value: a lower bound stays one."""
    return -float_above(-value)


def hex_ratio(value: Fraction) -> str:
    """The ratio as the certificate format writes it."""
    return f"{value.numerator:#x}/{value.denominator:#x}"
