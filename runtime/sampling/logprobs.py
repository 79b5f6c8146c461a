"""Log-probabilities of committed tokens, computed only when asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specdec.runtime.sampling.distribution import Distribution, Floats
from specdec.runtime.sampling.processing import real_logits
from specdec.runtime.sampling.truncation import top_k_ids

__all__ = ["Logprob", "TokenLogprobs", "token_logprobs"]


@dataclass(frozen=True)
class Logprob:
    """One token's natural log-probabilities at one position."""

    token_id: int
    raw: float
    """Under the model: log softmax of its logits, no option applied."""
    processed: float
    """Under the distribution the token was chosen from; -inf where an option excludes it."""


@dataclass(frozen=True)
class TokenLogprobs:
    """A committed token and the most probable other tokens at its position."""

    chosen: Logprob
    alternatives: tuple[Logprob, ...]
    """By raw log-probability, highest first; ties by lowest id."""


def token_logprobs(
    logits: Floats, distribution: Distribution, token: int, num_alternatives: int
) -> TokenLogprobs:
    """Score one committed token.

    Args:
        logits: float [logits_width], the target's row at this position.
        distribution: the processed distribution of the same row.
        num_alternatives: how many other tokens to report; fewer when the vocabulary is small.
    """
    row = real_logits(logits, distribution.vocab_size).astype(np.float64)
    peak = row.max()
    log_total = peak + math.log(float(np.exp(row - peak).sum()))
    best = top_k_ids(row, num_alternatives + 1)
    ranked = best[np.argsort(-row[best], kind="stable")]
    others = [int(other) for other in ranked if other != token][:num_alternatives]

    def score(token_id: int) -> Logprob:
        chance = distribution.prob(token_id)
        processed = math.log(chance) if chance > 0.0 else -math.inf
        return Logprob(token_id, float(row[token_id] - log_total), processed)

    return TokenLogprobs(score(token), tuple(score(other) for other in others))
