"""Tokenizer files that make the library panic, raise or multiply, each with what is right."""

from __future__ import annotations

import base64
import json
from typing import Any

from tokenizers import Tokenizer, models

_CHARSMAP = base64.b64encode(b"\x08\0\0\0" + b"\xff" * 64).decode()


def tokenizer_tree(**parts: Any) -> dict[str, Any]:
    """A tokenizer of three tokens, some parts replaced."""
    made = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    tree: dict[str, Any] = json.loads(made.to_str())
    return {**tree, **parts}


def _replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _template(token: str) -> dict[str, Any]:
    single = [
        {"SpecialToken": {"id": token, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bad charsmap": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": _CHARSMAP}},
        "Cannot parse precompiled_charsmap",
    ),
    "bad pattern": ({"normalizer": _replace("x", Regex="(")}, "Oniguruma error"),
    "pieces of no length": (
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        "chunk size must be non-zero",
    ),
    "post-processor names an absent token": ({"post_processor": _template("X")}, "no entry found"),
    "decoder strips more than a token has": (
        {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 5}},
        "index out of bounds",
    ),
    "a model that spells nothing": (
        {"model": {"type": "Unigram", "unk_id": None, "vocab": [], "byte_fallback": False}},
        "unk_id",
    ),
    "scores that are no numbers": (
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", None]], "byte_fallback": False}},
        "cannot read the tokenizer",
    ),
    "a merge of an absent token": (
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "zz"]]}},
        "out of vocabulary",
    ),
    "a normalizer that multiplies": (
        {"normalizer": {"type": "Sequence", "normalizers": [_replace("aa", String="a")] * 40}},
        r"a text up to 1\.1e\+12 times longer, and by 0 characters; allowed are 256 times",
    ),
    "a normalizer that adds": (
        {"normalizer": {"type": "Prepend", "prepend": "x" * 1_000_001}},
        r"up to 1 times longer, and by 1e\+06 characters",
    ),
    "a decoder that multiplies": ({"decoder": _replace("x" * 300, Regex="a?")}, "has a decoder"),
}
"""Name -> (parts, what the message says)."""
