"""Options that hold several values, separated by commas; none counts twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

__all__ = ["acceptances", "contexts", "draft_tokens", "threads"]

_T = TypeVar("_T")


def draft_tokens(value: str) -> tuple[int | str, ...]:
    """Parse numbers of draft tokens; "auto" stays."""
    return _list(value, _draft_tokens, "0 .. 32 or auto")


def threads(value: str) -> tuple[int, ...]:
    """Parse numbers of threads."""
    return _list(value, lambda text: _between(text, 1, 1024), "1 .. 1024 threads")


def contexts(value: str) -> tuple[int, ...]:
    """Parse lengths in tokens."""
    return _list(value, lambda text: _between(text, 1, 1 << 24), "1 token or more")


def acceptances(value: str) -> tuple[float, ...]:
    """Parse shares."""
    return _list(value, _share, "0 .. 1")


def _list(value: str, read: Callable[[str], _T], allowed: str) -> tuple[_T, ...]:
    try:
        items = [read(item.strip()) for item in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not understood; allowed is {allowed}, separated by commas"
        ) from None
    return tuple(dict.fromkeys(items))


def _draft_tokens(text: str) -> int | str:
    return text if text == "auto" else _between(text, 0, 32)


def _between(text: str, low: int, high: int) -> int:
    number = int(text)
    if not low <= number <= high:
        raise ValueError(text)
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0.0 <= number <= 1.0:
        raise ValueError(text)
    return number
