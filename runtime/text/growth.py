"""How much longer a tokenizer's normalizer or decoder may make a text, read from its parts.

A chain of replacements multiplies: ten times "a" -> "aa" makes a kilobyte a megabyte. Each part
maps n characters to at most `factor * n + added`; a chain multiplies the factors.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

__all__ = ["MAX_ADDED", "MAX_FACTOR", "growth"]

MAX_FACTOR = 256.0
"""Largest growth that is accepted; SentencePiece's own tables make 33 bytes of one character."""
MAX_ADDED = 1_000_000.0
"""Most characters that may be added whatever the length."""


def growth(component: Any) -> tuple[float, float]:
    """Return (factor, added) of a normalizer or decoder of the library, (1, 0) for None."""
    if component is None:
        return 1.0, 0.0
    return _of(json.loads(component.__getstate__()))


def _of(part: dict[str, Any]) -> tuple[float, float]:
    inner = part.get("normalizers") or part.get("decoders")
    if inner:
        factor, added = 1.0, 0.0
        for one in inner:
            times, plus = _of(one)
            factor, added = factor * times, added * times + plus
        return factor, added
    if part.get("type") == "Replace":
        content = len(part.get("content", ""))
        pattern = part.get("pattern", {})
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        if literal:
            return max(1.0, content / len(literal)), 0.0
        return 1.0 + content, float(content)  # may match nothing, between all characters
    if part.get("type") == "Prepend":
        return 1.0, float(len(part.get("prepend", "")))
    if part.get("type") == "Precompiled":
        return max(1.0, float(_longest_mapping(part.get("precompiled_charsmap", "")))), 0.0
    return 1.0, 0.0


def _longest_mapping(charsmap: Any) -> int:
    """Bytes of the longest text in SentencePiece's table: size of a trie, trie, texts by NUL."""
    try:
        data = base64.b64decode(charsmap) if isinstance(charsmap, str) else bytes(charsmap)
    except (binascii.Error, ValueError):
        return 1
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return max(map(len, texts.split(b"\0")), default=1)
