"""Results of a generation: chunks while it runs, and the whole at its end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.sampling.logprobs import Logprob, TokenLogprobs

__all__ = ["Chunk", "FinishReason", "GenerationResult"]

FinishReason = Literal["stop", "length", "context", "cancelled"]
"""An end token or stop string; max_new_tokens; the context is full; closed or cancelled."""


@dataclass(frozen=True)
class Chunk:
    """One step of a stream. Chunks joined equal the final text and token ids."""

    text: str
    """Whole characters that no later token can change."""
    token_ids: tuple[int, ...]
    """The tokens this chunk releases; a token may come a chunk after its text was sampled."""
    from_draft: tuple[bool, ...]
    """For each token whether the draft proposed it."""
    logprobs: tuple[TokenLogprobs, ...] | None
    """One entry per token when asked for."""
    finish_reason: FinishReason | None
    """Set on the last chunk only."""


@dataclass(frozen=True)
class GenerationResult:
    """One finished generation."""

    text: str
    """Text of the new tokens; empty without a tokenizer."""
    token_ids: tuple[int, ...]
    """New tokens, the end token included."""
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...] | None
    """One entry per token of `token_ids` when asked for."""
    stats: GenerationStats
    prompt_token_ids: tuple[int, ...]
    """The prompt as the model saw it."""
    prompt_cut: str | None = None
    """What `truncate_prompt` dropped of the prompt, in one line; None when nothing was."""

    def to_dict(self) -> dict[str, Any]:
        """The document of `specdec-run --json`: plain data without infinities."""
        document: dict[str, Any] = {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "stats": self.stats.to_dict(),
        }
        if self.prompt_cut is not None:
            document["prompt_cut"] = self.prompt_cut
        if self.logprobs is not None:
            document["logprobs"] = [
                {
                    **_plain(entry.chosen),
                    "alternatives": [_plain(other) for other in entry.alternatives],
                }
                for entry in self.logprobs
            ]
        return document


def _plain(entry: Logprob) -> dict[str, float | None]:
    """A token's log-probabilities; JSON has no infinity, an excluded token has null."""
    return {
        "token_id": entry.token_id,
        "raw": _finite(entry.raw),
        "processed": _finite(entry.processed),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
