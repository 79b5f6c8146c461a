"""Records to JSON-ready data and back, driven by their type annotations.

A report travels through `specdec.json` and over pipes, so what comes back is checked field by
field before anything draws it: a package may come from anywhere.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from specdec.engines.errors import PackageError

__all__ = ["from_data", "to_data"]

_T = TypeVar("_T")


def to_data(value: Any) -> Any:
    """Turn a record (a dataclass of records, numbers, text) into plain data for JSON.

    Keys become strings, tuples become lists.
    """
    if dataclasses.is_dataclass(value):
        return {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_data(item) for item in value]
    return value


def from_data(kind: type[_T], data: Any, where: str = "report") -> _T:
    """Build the record that `to_data` took apart.

    Args:
        kind: a dataclass.
        data: what JSON gave.
        where: name of the data, for messages.

    Raises:
        PackageError: a field is missing, unknown, of the wrong type, or not finite; the message
            gives its path.
    """
    built: _T = _read(kind, data, where)
    return built


def _read(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return data
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, data, where)
    if origin in (Union, types.UnionType):
        return _read_union(kind, data, where)
    if origin is Literal:
        if data not in get_args(kind) or isinstance(data, bool):
            raise _wrong(where, data, f"one of {list(get_args(kind))}")
        return data
    if origin is tuple:
        return _read_tuple(get_args(kind), data, where)
    if origin is dict:
        return _read_mapping(get_args(kind), data, where)
    return _read_scalar(kind, data, where)


def _read_record(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, data, "an object")
    hints = get_type_hints(kind)
    missing, unknown = sorted(hints.keys() - data.keys()), sorted(data.keys() - hints.keys())
    if missing or unknown:
        problem = f"without {missing[0]!r}" if missing else f"with an unknown {unknown[0]!r}"
        raise PackageError(f"{where} is {problem}; measure again with specdec-inspect --measure")
    return kind(
        **{name: _read(hint, data[name], f"{where}.{name}") for name, hint in hints.items()}
    )


def _read_union(kind: Any, data: Any, where: str) -> Any:
    choices = [choice for choice in get_args(kind) if choice is not type(None)]
    if data is None and len(choices) < len(get_args(kind)):
        return None
    assert len(choices) == 1, "records use no unions but with None"
    return _read(choices[0], data, where)


def _read_tuple(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list):
        raise _wrong(where, data, "an array")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = kinds[:1] * len(data)
    if len(kinds) != len(data):
        raise _wrong(where, data, f"an array of {len(kinds)}")
    items = zip(kinds, data, strict=True)
    return tuple(_read(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(items))


def _read_mapping(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, data, "an object")
    key_kind, value_kind = kinds
    if key_kind is int and not all(key.isascii() and key.isdigit() for key in data):
        raise _wrong(where, data, "an object whose keys are whole numbers")
    return {key_kind(key): _read(value_kind, item, f"{where}.{key}") for key, item in data.items()}


def _read_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is float and type(data) in (int, float) and math.isfinite(data):
        return float(data)
    if type(data) is kind and kind is not float:
        return data
    names = {float: "a finite number", int: "a whole number", str: "text", bool: "true or false"}
    raise _wrong(where, data, names[kind])


def _wrong(where: str, data: Any, allowed: str) -> PackageError:
    shown = repr(data) if len(repr(data)) <= 60 else f"{type(data).__name__}"
    return PackageError(
        f"{where} is {shown}; allowed is {allowed}; measure again with specdec-inspect --measure"
    )
