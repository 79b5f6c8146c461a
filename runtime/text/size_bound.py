"""How many tokens a text has at least, from its size alone, so that no giant is tokenized.

A tokenizer that keeps every byte (byte-level, or with byte fallback) gives a text of B bytes at
least B / L tokens, where L is the longest token in bytes. Where a tokenizer may drop or merge
text there is no bound: an unknown word of any length is one token. Where added tokens swallow the
spaces beside them, spaces do not count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

__all__ = ["SizeBound", "size_bound"]

_SHRINKS = {"NFC": 4, "Prepend": 1, "Replace": 1, "Sequence": 1}
"""Most bytes that one byte of normalized text can stand for, by kind of normalizer."""
_KEEPING = {"ByteLevel", "Metaspace", "Digits", "Split", "Sequence"}
"""Pre-tokenizers that drop nothing; a Split may, by its behaviour."""


@dataclass(frozen=True)
class SizeBound:
    """The bound of one tokenizer."""

    bytes_per_token: int
    """Most bytes of text that one token can stand for."""
    ignores_spaces: bool

    def least_tokens(self, text: str) -> int:
        """The text has this many tokens or more."""
        counted = "".join(text.split()) if self.ignores_spaces else text
        return len(counted.encode("utf-8", "replace")) // self.bytes_per_token


def size_bound(tokenizer: Tokenizer) -> SizeBound | None:
    """The bound of a tokenizer; None where it has none."""
    decoder = {part["type"] for part in _parts(tokenizer.decoder, "decoders")}
    if "ByteLevel" not in decoder and not getattr(tokenizer.model, "byte_fallback", False):
        return None
    for part in _parts(tokenizer.pre_tokenizer, "pretokenizers"):
        if part["type"] not in _KEEPING or part.get("behavior") == "Removed":
            return None
    shrink = 1
    for part in _parts(tokenizer.normalizer, "normalizers"):
        if part["type"] not in _SHRINKS or not _grows(part):
            return None
        shrink *= _SHRINKS[part["type"]]
    longest = max(len(token.encode()) for token in tokenizer.get_vocab(with_added_tokens=True))
    added = tokenizer.get_added_tokens_decoder().values()
    return SizeBound(shrink * longest, any(token.lstrip or token.rstrip for token in added))


def _parts(step: Any, inner: str) -> list[dict[str, Any]]:
    """A step of a tokenizer and the steps inside it."""
    waiting = [] if step is None else [json.loads(step.__getstate__())]
    found = []
    while waiting:
        part = waiting.pop()
        found.append(part)
        waiting.extend(part.get(inner, ()))
    return found


def _grows(part: dict[str, Any]) -> bool:
    """Whether a Replace writes no fewer bytes than it takes; other normalizers have none."""
    if part["type"] != "Replace":
        return True
    pattern = part["pattern"].get("String")
    return pattern is not None and len(part["content"].encode()) >= len(pattern.encode())
