"""Small decoders over table engines, and a real tokenizer with one token per letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specdec.runtime import SpeculativeDecoder
from specdec.runtime.text.codec import TextCodec
from tests.support.table_engine import TableEngine, nearby_table, random_table

LETTERS = "abcdef"
END = len(LETTERS)
USER = END + 1
NUM_LETTER_TOKENS = USER + 1
CHAT = (
    "{% for m in messages %}{% if m.role == 'user' %}<user>{% endif %}{{ m.content }}"
    "{% if m.role == 'assistant' %}<end>{% endif %}{% endfor %}"
)


def pair(
    vocab_size: int = 5,
    *,
    seed: int = 0,
    shares_cache: bool = False,
    noise: float = 0.7,
    dtype: Any = np.float64,
    draft_length: int = 64,
    max_length: int = 64,
    **options: Any,
) -> tuple[SpeculativeDecoder, TableEngine, TableEngine]:
    """(decoder, target, draft); `options` go to the decoder."""
    table = random_table(seed, vocab_size, dtype=dtype)
    target = TableEngine(table, max_length=max_length, padding=2)
    draft = TableEngine(
        nearby_table(table, seed + 1, noise),
        name="draft",
        max_length=max_length if shares_cache else draft_length,
        padding=1,
        share_cache_with=target if shares_cache else None,
    )
    decoder = SpeculativeDecoder(target, draft, shares_cache=shares_cache, **options)
    return decoder, target, draft


def letter_codec(folder: Path) -> TextCodec:
    """Token i is the letter i; `<end>` and `<user>` are special."""
    vocab = {letter: i for i, letter in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>"), AddedToken("<user>")])
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return TextCodec(path)


def cycle_table(successor: dict[int, int], vocab_size: int) -> np.ndarray:
    """A first-order table whose greedy continuation follows `successor`."""
    table = np.zeros((vocab_size + 1, vocab_size))
    for token, following in successor.items():
        table[token, following] = 10.0
    return table
