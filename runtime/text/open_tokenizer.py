"""Open a `tokenizer.json` and try it, so that what is wrong with the file shows at load.

The library accepts files that make it panic at the first text or token: a post-processor that
names a token it does not have, pieces of length 0, a table it cannot parse. Here such a file is
tried on a few texts and on some of its own tokens before anybody depends on it.
"""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from specdec.engines.errors import PackageError
from specdec.engines.package.files import open_regular
from specdec.engines.storage.writing import readable_size
from specdec.runtime.text.growth import MAX_ADDED, MAX_FACTOR, growth
from specdec.runtime.text.quiet import TokenizerFault, call_quietly, guarded

__all__ = ["MAX_BYTES", "decodes_safely", "open_tokenizer"]

MAX_BYTES = 256 << 20
"""Largest `tokenizer.json` that is read; those of 256,000 tokens have 35 MB."""
_REDO = "export the package again"
_TEXTS = (
    *(" ", "a", "Hello, world!  1234 :)\n\n\tx = y;"),
    "\u00e9 \u2581 \u6f22\u5b57 \U0001f642 \ufdfa\0",
)
_TRIED = 32
"""Tokens from each end of the vocabulary that are decoded."""
_SAFE = frozenset(
    {"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "WordPiece", "BPEDecoder", "Replace"}
)
"""Decoders without an index that a token's length could put out of range."""


def open_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer for inference: no truncation, no padding, no dropped merges.

    Raises:
        PackageError: the file is missing, larger than `MAX_BYTES`, not a tokenizer, makes texts
            more than `MAX_FACTOR` times longer, or makes the library panic or fail on every text.
    """
    with open_regular(path) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise PackageError(
            f"the tokenizer {path} is larger than {readable_size(MAX_BYTES)}, the most that is "
            f"allowed; {_REDO}"
        )
    try:
        return call_quietly(lambda: _open(data))
    except TokenizerFault as fault:
        raise PackageError(f"cannot read the tokenizer {path}: {fault}; {_REDO}") from fault
    except _UnfitError as error:
        raise PackageError(f"the tokenizer {path} {error}; {_REDO}") from error


def decodes_safely(tokenizer: Tokenizer) -> bool:
    """Whether no token can make the decoder panic, by the kinds of its parts."""
    if tokenizer.decoder is None:
        return True
    parts = [json.loads(tokenizer.decoder.__getstate__())]
    while parts:
        part = parts.pop()
        if "decoders" in part:
            parts.extend(part["decoders"])
        elif part["type"] not in _SAFE and not (part["type"] == "Strip" and part["stop"] == 0):
            return False
    return True


class _UnfitError(Exception):
    """The tokenizer is one, and must not be used; the text says why."""


def _open(data: bytes) -> Tokenizer:
    tokenizer = Tokenizer.from_buffer(data)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None) is not None:
        tokenizer.model.dropout = None
    for name in ("normalizer", "decoder"):
        factor, added = growth(getattr(tokenizer, name))
        if factor > MAX_FACTOR or added > MAX_ADDED:
            raise _UnfitError(
                f"has a {name} that makes a text up to {factor:.3g} times longer, and by "
                f"{added:.3g} characters; allowed are {MAX_FACTOR:g} times and {MAX_ADDED:g}"
            )
    _try(tokenizer)
    return tokenizer


def _try(tokenizer: Tokenizer) -> None:
    """Encode and decode a little; a panic passes, and so does a failure on every text."""
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = [*range(min(_TRIED, size)), *range(max(size - _TRIED, 0), size)]
    ids += list(tokenizer.get_added_tokens_decoder())
    own = [text for i in ids[:_TRIED] if (text := tokenizer.id_to_token(i))]
    tries: list[Any] = [
        partial(tokenizer.encode, text, add_special_tokens=special)
        for text in ["", *_TEXTS, *own]
        for special in (True, False)
    ]
    faults = [fault for fault in map(_fault, tries) if fault is not None]
    pairs = (list(pair) for pair in itertools.pairwise(ids))
    for chosen in ([], ids, *([token_id] for token_id in ids), *pairs):
        guarded(partial(tokenizer.decode, chosen, skip_special_tokens=False))
    if len(faults) == len(tries) - 2:  # an empty text has nothing to fail on
        raise faults[0]


def _fault(call: Any) -> TokenizerFault | None:
    try:
        guarded(call)
    except TokenizerFault as fault:
        if fault.is_panic:
            raise
        return fault
    return None
