"""Strict JSON: one value per key, finite numbers, bounded depth, text that can be encoded.

Python's own reader keeps the last of two equal keys and accepts NaN, 1e400 and lone
surrogates; a manifest from elsewhere must not mean one thing here and another there.
"""

from __future__ import annotations

import json
import math
from typing import Any

from specdec.engines.errors import PackageError

__all__ = ["MAX_DEPTH", "MAX_VALUES", "parse_object", "shown"]

MAX_DEPTH = 64
"""How deep arrays and objects may nest in a manifest."""

MAX_VALUES = 500_000
"""How many values a manifest may hold; one with a full report has some thousands."""
_MAX_DIGITS = 19
_REDO = "export the package again"


def shown(value: object) -> str:
    """Return `value` as one short printable line, for messages."""
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)} items"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    line = repr(value)
    return line if len(line) <= 80 else line[:77] + "..."


def parse_object(document: str) -> dict[str, Any]:
    """Parse a JSON object strictly.

    Raises:
        PackageError: more than `MAX_VALUES` values, not JSON, not an object, a key twice, NaN or
            an infinity, an integer of more than 19 digits, nesting deeper than `MAX_DEPTH`, or
            half a surrogate pair.
    """
    _check_structure(document)
    try:
        tree = json.loads(
            document,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise PackageError(f"specdec.json is not JSON ({error.msg} at {place}); {_REDO}") from error
    except RecursionError:
        raise _too_deep() from None
    _check_tree(tree)
    if not isinstance(tree, dict):
        raise PackageError(f"specdec.json holds {shown(tree)}; allowed is an object; {_REDO}")
    return tree


def _check_structure(document: str) -> None:
    """Refuse what would take long to parse before it is parsed; texts may hold some of these."""
    count = sum(map(document.count, "[{,:"))
    if count > MAX_VALUES:
        raise PackageError(
            f"specdec.json has about {count} values; allowed are {MAX_VALUES}; {_REDO}"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise PackageError(
                f"specdec.json has the key {shown(key)} twice in one object; "
                f"allowed is once; {_REDO}"
            )
        found[key] = value
    return found


def _refuse_constant(name: str) -> float:
    raise PackageError(f"specdec.json holds the number {name}; allowed are finite ones; {_REDO}")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_constant(digits[:40])


def _bounded(digits: str) -> int:
    if len(digits.lstrip("-")) > _MAX_DIGITS:
        raise PackageError(
            f"specdec.json holds an integer of {len(digits)} digits; "
            f"allowed are {_MAX_DIGITS}; {_REDO}"
        )
    return int(digits)


def _check_tree(tree: object) -> None:
    """Check depth and text level by level, so that no depth can exhaust the stack."""
    level = [tree]
    for _ in range(MAX_DEPTH + 1):
        for value in level:
            _check_text(value)
        containers = [value for value in level if isinstance(value, (dict, list))]
        if not containers:
            return
        level = [child for value in containers for child in _children(value)]
    raise _too_deep()


def _children(value: dict[str, Any] | list[Any]) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else value


def _check_text(value: object) -> None:
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise PackageError(
            f"specdec.json holds the text {shown(value)} with half a surrogate pair; "
            f"allowed is Unicode text; {_REDO}"
        )


def _too_deep() -> PackageError:
    return PackageError(
        f"specdec.json nests deeper than {MAX_DEPTH} levels; allowed are {MAX_DEPTH}; {_REDO}"
    )
