"""Validators of option values, whose messages are one line: what was got, what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real

from specdec.runtime.errors import InvalidParameterError

__all__ = [
    "MAX_INTEGER",
    "check_bool",
    "check_choice",
    "check_integer",
    "check_real",
    "integer_tuple",
    "is_integer",
    "shown",
]

MAX_INTEGER = 2**31 - 1
"""Largest count or token id; the C interface holds them in 32 bits."""


def is_integer(value: object) -> bool:
    """True for int and NumPy integers; a bool is not a number here."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def shown(value: object) -> str:
    """The value as one short line, for messages; whatever its size and its `repr`."""
    try:
        line = " ".join(repr(value).split())
    except Exception:  # an integer of too many digits, or a foreign repr
        line = f"a value of type {type(value).__name__}"
    return line if len(line) <= 80 else f"{line[:77]}..."


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as an int in `low .. high` (no upper limit when None).

    Raises:
        InvalidParameterError: not an integer, or outside the range.
    """
    allowed = f"an integer >= {low}" if high is None else f"an integer in {low} .. {high}"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidParameterError(f"{name} is {shown(value)}; allowed is {allowed}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise InvalidParameterError(f"{name} is {shown(number)}; allowed is {allowed}")
    return number


def check_real(name: str, value: object, low: float, high: float, allowed: str) -> float:
    """Return `value` as a finite float with `low <= value <= high`.

    Raises:
        InvalidParameterError: not a number, NaN, infinite, or outside the range.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidParameterError(f"{name} is {shown(value)}; allowed is {allowed}")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidParameterError(f"{name} is {shown(value)}; allowed is {allowed}") from None
    if not math.isfinite(number) or not low <= number <= high:
        raise InvalidParameterError(f"{name} is {shown(number)}; allowed is {allowed}")
    return number


def check_bool(name: str, value: object) -> None:
    """Raise `InvalidParameterError` unless `value` is True or False."""
    if not isinstance(value, bool):
        raise InvalidParameterError(f"{name} is {shown(value)}; allowed is True or False")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise `InvalidParameterError` unless `value` equals one of `choices`."""
    if not any(value is choice or (value == choice and choice is not None) for choice in choices):
        raise InvalidParameterError(
            f"{name} is {shown(value)}; allowed is {', '.join(repr(choice) for choice in choices)}"
        )


def integer_tuple(name: str, values: object) -> tuple[int, ...]:
    """Return an iterable of token ids as a tuple of ints.

    Raises:
        InvalidParameterError: not an iterable, or an item is not an integer in 0 .. MAX_INTEGER.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidParameterError(f"{name} is {shown(values)}; allowed is a list of token ids")
    return tuple(
        check_integer(f"{name}[{i}]", value, 0, MAX_INTEGER) for i, value in enumerate(values)
    )
