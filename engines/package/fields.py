"""Field rules: each field of a manifest dataclass states its allowed values in its metadata.

One table so serves the constructor (`check_record`) and the reader of a JSON object
(`read_record`, which adds the JSON path), and the message words come with the rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from specdec.engines.errors import PackageError
from specdec.engines.package.strict_json import shown

__all__ = [
    "FieldError",
    "array_of",
    "check_record",
    "choice",
    "digest",
    "flag",
    "integer",
    "matching",
    "nullable",
    "number",
    "object_of_numbers",
    "object_of_paths",
    "object_of_text",
    "path_problem",
    "read_object",
    "read_record",
    "record",
    "relative_path",
    "text",
]

_MAX_PATH = 1024
_MAX_PATH_PART = 255

Metadata = Mapping[str, "Rule"]
T = TypeVar("T")


@dataclass(frozen=True)
class Rule:
    """What one field may hold: the words for a message, and the test."""

    allowed: str
    accepts: Callable[[object], bool]
    kind: type[Any] | None = None
    """The dataclass that a JSON object at this place becomes."""


class FieldError(PackageError):
    """The field at JSON path `where` holds `got`, where only `allowed` may stand."""

    def __init__(self, where: str, got: str, allowed: str) -> None:
        super().__init__(where, got, allowed)
        self.where, self.got, self.allowed = where, got, allowed

    def __str__(self) -> str:
        return (
            f"specdec.json: {self.where} is {self.got}; allowed is {self.allowed}; "
            "export the package again"
        )


# Rules: each returns metadata for `dataclasses.field`.


def integer(low: int, high: int) -> Metadata:
    """Allow an integer in `low .. high`; true and false are not integers."""
    return _rule(
        f"an integer, {low} .. {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


def text() -> Metadata:
    """Allow a string of at least one character."""
    return _rule("a non-empty string", lambda value: isinstance(value, str) and value != "")


def number(low: float) -> Metadata:
    """Allow a finite number of at least `low`; true and false are not numbers."""
    return _rule(
        f"a number of at least {low:g}",
        lambda value: type(value) in (int, float) and low <= value < float("inf"),  # type: ignore[operator]
    )


def matching(pattern: str, allowed: str) -> Metadata:
    """Allow a string that `pattern` matches as a whole, which `allowed` says in words."""
    return _rule(
        allowed, lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None
    )


def choice(*values: str) -> Metadata:
    """Allow one of a few strings."""
    listed = ", ".join(f'"{value}"' for value in values)
    return _rule(f"one of {listed}", lambda value: isinstance(value, str) and value in values)


def flag() -> Metadata:
    """Allow true or false."""
    return _rule("true or false", lambda value: isinstance(value, bool))


def digest() -> Metadata:
    """Allow a SHA-256 as 64 lower-case hexadecimal digits."""
    return _rule(
        "a SHA-256 as 64 lower-case hexadecimal digits",
        lambda value: (
            isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
        ),
    )


def relative_path() -> Metadata:
    """Allow a path that stays inside the package; see `path_problem`."""
    return _rule(
        "a relative path with / between its parts that stays inside the package",
        lambda value: isinstance(value, str) and path_problem(value) is None,
    )


def nullable(rule: Metadata) -> Metadata:
    """Allow null beside what `rule` allows."""
    inner = rule["rule"]
    allowed = f"{inner.allowed}, or null"
    return _rule(allowed, lambda value: value is None or inner.accepts(value), inner.kind)


def array_of(rule: Metadata) -> Metadata:
    """Allow an array whose items `rule` allows; the dataclass holds a tuple."""
    inner = rule["rule"]
    return _rule(
        f"an array, each item {inner.allowed}",
        lambda value: isinstance(value, (list, tuple)) and all(map(inner.accepts, value)),
    )


def object_of_text() -> Metadata:
    """Allow an object of strings."""
    return _rule(
        "an object of strings",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(key, str) and isinstance(item, str) for key, item in value.items())
        ),
    )


def object_of_paths() -> Metadata:
    """Allow an object whose values are paths that stay inside the package."""
    return _rule(
        "an object of relative paths that stay inside the package",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(item, str) and path_problem(item) is None for item in value.values())
        ),
    )


def object_of_numbers() -> Metadata:
    """Allow an object of finite numbers."""
    return _rule(
        "an object of finite numbers",
        lambda value: (
            isinstance(value, Mapping)
            and all(
                isinstance(item, (int, float))
                and not isinstance(item, bool)
                and math.isfinite(item)
                for item in value.values()
            )
        ),
    )


def record(kind: type[Any]) -> Metadata:
    """Allow an instance of the dataclass `kind`, written as a JSON object."""
    return _rule("an object", lambda value: isinstance(value, kind), kind)


def _rule(
    allowed: str, accepts: Callable[[object], bool], kind: type[Any] | None = None
) -> Metadata:
    return {"rule": Rule(allowed, accepts, kind)}


def path_problem(path: str) -> str | None:
    """Say why `path` may not name a file of a package; None when it may.

    A package is read on systems other than the one that wrote it, so this is the strictest
    of their rules: relative, `/` between non-empty parts, no `.` or `..`, no backslash, no
    colon (drives, streams), printable characters only, parts that any file system can hold.
    """
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it is absolute"
    if "\\" in path or ":" in path:
        return "it holds a backslash or a colon"
    if not path.isprintable():
        return "it holds characters that cannot be printed"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return 'one of its parts is empty, "." or ".."'
    if any(part != part.strip() or part.endswith(".") for part in parts):
        return "one of its parts starts or ends with a space, or ends with a dot"
    longest = max(len(part.encode()) for part in parts)
    if longest > _MAX_PATH_PART or len(path) > _MAX_PATH:
        return f"it is longer than {_MAX_PATH_PART} bytes a part or {_MAX_PATH} characters"
    return None


# Records


def check_record(record: Any) -> None:
    """Hold every field of a dataclass instance against its rule.

    Raises:
        FieldError: naming the field, what was got, and what is allowed.
    """
    for item in fields(record):
        rule: Rule = item.metadata["rule"]
        value = getattr(record, item.name)
        if not rule.accepts(value):
            raise FieldError(item.name, shown(value), rule.allowed)


def read_record(kind: type[T], value: object, where: str) -> T:
    """Build the dataclass `kind` from the JSON object at path `where`.

    Raises:
        FieldError: `value` is no object, a key is missing or unknown, or `kind` refuses it.
    """
    known = fields(kind)  # type: ignore[arg-type]
    required = [
        item.name for item in known if item.default is MISSING and item.default_factory is MISSING
    ]
    found = dict(read_object(value, where, required, [item.name for item in known]))
    for item in known:
        inner = item.metadata["rule"].kind
        if inner is not None and found.get(item.name) is not None:
            found[item.name] = read_record(inner, found[item.name], f"{where}.{item.name}")
    try:
        return kind(**found)
    except FieldError as error:
        raise FieldError(f"{where}.{error.where}", error.got, error.allowed) from None


def read_object(
    value: object, where: str, required: list[str], optional: list[str]
) -> dict[str, Any]:
    """Check that `value` is a JSON object with the `required` keys and no unknown ones.

    Raises:
        FieldError: otherwise.
    """
    if not isinstance(value, dict):
        raise FieldError(where, shown(value), "an object")
    for name in required:
        if name not in value:
            raise FieldError(f"{where}.{name}", "missing", f"an object with {', '.join(required)}")
    for name in value:
        if name not in required and name not in optional:
            names = ", ".join(dict.fromkeys([*required, *optional]))
            raise FieldError(where, f"an object with the unknown key {shown(name)}", names)
    return value
