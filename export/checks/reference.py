"""What the original weights say about a few texts, kept to judge the engines by.

One short text in full, for the checks of the export; our own texts by their likeliest tokens,
for the package, so that engines can be compared with the original weights wherever they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.export.genai.model import GenaiModel
from specdec.export.sources.tokenizers import SourceTokenizer
from specdec.runtime.report.measuring.golden import GoldenText, golden_text
from specdec.runtime.report.measuring.prompt_set import load_texts

__all__ = ["Reference", "score_golden", "score_reference"]

_TEXT = (
    "The river had risen during the night, and by morning the lower road was gone. Maria counted "
    'the sacks twice: forty-two, the same as yesterday. "We can wait," she said, "or we can '
    'carry them over the hill."\n\ndef mean(values):\n    return sum(values) / len(values)\n'
)
_MAX_TOKENS = 64


@dataclass(frozen=True)
class Reference:
    """A token sequence and the original model's logits after each of its tokens."""

    token_ids: NDArray[np.int64]
    """int64, shape [1, T]."""
    logits: NDArray[np.float32]
    """float32, shape [T, vocab_size]."""


def score_reference(
    model: Any, tokenizer: SourceTokenizer, vocab_size: int, max_length: int
) -> Reference:
    """Run the torch model once over a fixed text of at most 64 tokens."""
    ids = tokenizer.backend.encode(_TEXT, add_special_tokens=True).ids
    ids = [i for i in ids if i < vocab_size][: min(_MAX_TOKENS, max_length - 8)]
    if len(ids) < 8:  # a tokenizer that cannot spell the text
        ids = (
            np.random.default_rng(0)
            .integers(0, vocab_size, min(_MAX_TOKENS, max_length - 8))
            .tolist()
        )
    return Reference(np.array([ids], np.int64), _score(model, ids, vocab_size))


def score_golden(
    model: Any, tokenizer: SourceTokenizer, vocab_size: int, max_length: int
) -> tuple[GoldenText, ...]:
    """Run the torch model over our texts, at most 64 tokens of each."""
    golden = []
    for text in load_texts():
        ids = tokenizer.backend.encode(text.text, add_special_tokens=True).ids
        ids = [i for i in ids if i < vocab_size][: min(_MAX_TOKENS, max_length)]
        if ids:
            golden.append(golden_text(ids, _score(model, ids, vocab_size)))
    return tuple(golden)


def _score(model: Any, ids: list[int], vocab_size: int) -> NDArray[np.float32]:
    """Logits after each token, float32 [T, vocab_size]."""
    if isinstance(model, GenaiModel):
        return model.score(ids, vocab_size)
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits
    scored: NDArray[np.float32] = logits[0, :, :vocab_size].float().numpy()
    return np.ascontiguousarray(scored)
