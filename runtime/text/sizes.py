"""How large the result of one operation of a chat template would be, before it is made.

Most operations make at most what they are given, and are charged afterwards. Those below can make
any size in one step of C code, where nothing could stop them: products, widths and counts given as
integers, `replace`, `join`, and lists that hold one text many times becoming text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jinja2.exceptions import SecurityError

from specdec.runtime.text.budget import Budget

__all__ = ["check_filter", "check_format", "check_method", "check_operator", "weigh"]

_MAX_INTEGER = 100_000
"""Largest integer that a filter or a method takes: a width, a count, an indent."""
_MAX_BITS = 4096
"""Largest product or power of integers."""
_OF_STRUCTURE = frozenset(
    (
        *("attr", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int"),
        *("items", "last", "length", "list", "map", "max", "min", "random", "reject", "rejectattr"),
        *("reverse", "round", "select", "selectattr", "slice", "sort", "unique"),
    )
)
"""Filters that make no text of a list or mapping."""
_PLAIN = (int, float, type(None))
_PERCENT_WIDTH = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")
_BRACE_WIDTH = re.compile(r"\{[^{}]*(\d{5}|:[^{}]*\{)")


def weigh(budget: Budget, value: Any) -> int:
    """Characters that `value` has as text, about; what a list holds twice counts twice.

    Raises:
        PromptError: more than the budget has.
    """
    count, pending = 0, [value]
    while pending and count + len(pending) <= budget.left:
        item = pending.pop()
        if isinstance(item, (str, bytes)):
            count += len(item)
        elif isinstance(item, (list, tuple, set, frozenset)):
            pending.extend(item)
        elif not isinstance(item, _PLAIN) and isinstance(item, Mapping):
            pending.extend(item.keys())
            pending.extend(item.values())
        count += 1
    budget.check(count + len(pending))
    return count


def check_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Check `+`, `*`, `**` or `%` of any two values.

    Raises:
        PromptError: more than the budget has.
        SecurityError: an integer out of all proportion, or a width in a format.
    """
    if operator == "**":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * max(right, 0))
    elif operator == "%" and isinstance(left, (str, bytes)):
        if isinstance(left, bytes) or _PERCENT_WIDTH.search(left):
            raise SecurityError("a format with a width of more than 9999, or of bytes")
        weigh(budget, right)
    elif operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and hasattr(value, "__len__"):
                budget.check(len(value) * max(times, 0))


def check_format(budget: Budget, pattern: str, arguments: tuple[Any, ...]) -> None:
    """Check `pattern.format(...)`; errors as `check_operator`."""
    if _BRACE_WIDTH.search(pattern):
        raise SecurityError("a format with a width of more than 9999 or one that is an argument")
    for value in arguments:
        budget.check(weigh(budget, value) * max(pattern.count("{"), 1))


def check_method(
    budget: Budget,
    name: str,
    owner: str | bytes | float,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Check a method of a text or a number; errors as `check_operator`."""
    given = (*args, *kwargs.values())
    _check_integers(name, given)
    if not isinstance(owner, (str, bytes)):
        return
    if name == "replace":
        _check_replace(budget, owner, given)
    elif name == "join" and args:
        count = len(args[0]) if hasattr(args[0], "__len__") else _MAX_INTEGER
        budget.check(weigh(budget, args[0]) + count * len(owner))
    elif name == "translate" and args and isinstance(args[0], Mapping):
        longest = max((len(v) for v in args[0].values() if isinstance(v, str)), default=1)
        budget.check(len(owner) * longest)
    elif name == "expandtabs":
        budget.check(len(owner) * max([8, *(n for n in given if isinstance(n, int))]))


def check_filter(
    budget: Budget, name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Check `value | name(...)`; errors as `check_operator`.

    Returns:
        The value to filter: for `join` a list of what a generator gives.
    """
    given = (*args, *kwargs.values())
    if name not in ("default", "d"):
        _check_integers(name, given)
    if name == "join" and not isinstance(value, (str, list, tuple, Mapping)):
        value = list(value)
    size = len(value) if isinstance(value, str) else 0
    if not isinstance(value, str) and name not in _OF_STRUCTURE:
        size = weigh(budget, value)
    if name == "replace":
        _check_replace(budget, value if isinstance(value, str) else str(value), given)
    elif name == "format":
        check_operator(budget, "%", str(value), given)
    elif name == "join":
        longest = max((len(text) for text in given if isinstance(text, str)), default=0)
        budget.check(size + len(value) * longest)
    elif name in ("indent", "wordwrap", "tojson"):
        widths = [len(text) for text in given if isinstance(text, str)]
        widths += [n for n in given if isinstance(n, int)]
        lines = size if name == "tojson" else str(value).count("\n") + size // 8 + 1
        budget.check(size + lines * max([4, *widths]))
    return value


def _check_replace(budget: Budget, text: str | bytes, given: tuple[Any, ...]) -> None:
    if len(given) < 2 or not all(isinstance(part, type(text)) for part in given[:2]):
        return
    old, new = given[0], given[1]
    count = text.count(old)
    budget.check(len(text) + count * max(len(new) - len(old), 0))


def _check_integers(name: str, given: tuple[Any, ...]) -> None:
    for value in given:
        if isinstance(value, int) and abs(value) > _MAX_INTEGER:
            raise SecurityError(
                f"{name} is given an integer above {_MAX_INTEGER}, the largest allowed"
            )


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise SecurityError(f"an integer of more than {_MAX_BITS} bits")
