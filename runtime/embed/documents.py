"""The option documents of the C interface: JSON objects, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specdec.runtime.checks import check_bool
from specdec.runtime.embed.errors import BadArgumentError
from specdec.runtime.embed.host import Request
from specdec.runtime.errors import UnsupportedOptionError
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.text.prompts import Prompt

__all__ = ["check_names", "read_messages", "read_options", "read_request"]


def read_options(document: bytes | None, what: str = "options") -> dict[str, Any]:
    """Read a JSON object; None and an empty text are no options.

    `-Infinity` is accepted, since a `logit_bias` may hold it.

    Raises:
        BadArgumentError: not UTF-8, not JSON, a name twice, or not an object.
    """
    if not document:
        return {}
    value = _parse(document, what)
    if not isinstance(value, dict):
        raise BadArgumentError(f"{what} is a JSON {_kind(value)}; allowed is an object")
    return value


def read_messages(document: bytes) -> list[dict[str, Any]]:
    """Read chat messages.

    Raises:
        BadArgumentError: not JSON, or not an array of one or more objects.
    """
    value = _parse(document, "messages")
    if not isinstance(value, list) or not value or not all(isinstance(m, dict) for m in value):
        raise BadArgumentError('messages must be a JSON array of objects with "role", "content"')
    return value


def read_request(prompt: Prompt, document: bytes | None) -> Request:
    """Sampling options, and beside them "tools", "chat_template_kwargs", "model_defaults" and
    "reuse_prefix".

    Raises:
        BadArgumentError: as `read_options`.
        InvalidParameterError, UnsupportedOptionError: as `SamplingParams.from_dict`.
    """
    options = read_options(document)
    tools = options.pop("tools", None)
    arguments = options.pop("chat_template_kwargs", None)
    over_defaults = options.pop("model_defaults", False)
    reuse_prefix = options.pop("reuse_prefix", False)
    check_bool("model_defaults", over_defaults)
    check_bool("reuse_prefix", reuse_prefix)
    biases = options.get("logit_bias")
    if isinstance(biases, dict):  # names of JSON objects are strings
        options["logit_bias"] = {_token_id(name): bias for name, bias in biases.items()}
    return Request(
        prompt,
        SamplingParams.from_dict(options),
        tools,
        arguments,
        reuse_prefix,
        options if over_defaults else None,
    )


def check_names(options: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Raise `UnsupportedOptionError` for a name that is not allowed."""
    for name in options:
        if name not in allowed:
            raise UnsupportedOptionError(
                f"unknown option {name!r}; allowed is {', '.join(allowed)}"
            )


def _parse(document: bytes, what: str) -> Any:
    try:
        return json.loads(document.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise BadArgumentError(f"{what} cannot be read as JSON: {reason}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} comes twice")
    return found


def _kind(value: object) -> str:
    return {list: "array", str: "string", bool: "boolean"}.get(type(value), "number or null")


def _token_id(name: str) -> int | str:
    return int(name) if name.isascii() and name.isdigit() else name
