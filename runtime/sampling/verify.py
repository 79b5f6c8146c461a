"""Verification rules: choose how many drafted tokens to keep, and the token after them.

Drafted tokens x_1 .. x_K were drawn from `draft_probs` Q_1 .. Q_K. The target gave
`target_probs` P_1 .. P_{K+1} at the same positions and one after. All rules commit a prefix
x_1 .. x_n and one more token (a `correction` when n < K, a `bonus` when n = K) such that the
committed tokens follow the target's own distribution exactly. Items of `target_probs` are asked for
in order and only where a rule needs them.

An evaluated position is one whose outcome was decided: the accepted ones, plus the one that
was rejected when n < K. Hence `num_evaluated = min(n + 1, K)` for every rule, and
`acceptance_rate = accepted / evaluated` estimates the chance to go one token further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specdec.runtime.errors import NoTokenLeftError
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.randomness import RoundRandom

__all__ = [
    "VERIFIERS",
    "Rows",
    "Verdict",
    "Verifier",
    "verify_block",
    "verify_coupled",
    "verify_token",
]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one round."""

    num_accepted: int
    """How many drafted tokens are kept: the first ones."""
    token: int
    """The correction or bonus token that follows them."""
    num_evaluated: int
    """Drafted positions whose outcome was decided."""


class Rows(Protocol):
    """Distributions by position; a row may be computed when it is first asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Distribution: ...


Verifier = Callable[[Rows, Rows, Sequence[int], RoundRandom], Verdict]


def verify_token(
    target_probs: Rows, draft_probs: Rows, draft_tokens: Sequence[int], random: RoundRandom
) -> Verdict:
    """Token by token: accept x_i with probability min(1, P_i(x_i) / Q_i(x_i)).

    At the first rejection the token comes from norm([P_i - Q_i]+); after K acceptances from
    P_{K+1}. Leviathan et al., 2023; Chen et al., 2023.

    Args:
        target_probs: K + 1 distributions.
        draft_probs: K distributions, the very ones the tokens were drawn from.
        draft_tokens: K token ids.
    """
    count = _checked(draft_probs, draft_tokens)
    for i, token in enumerate(draft_tokens):
        target, draft = target_probs[i], draft_probs[i]
        if not random.accepts(i, target.prob(token) / draft.prob(token)):
            return Verdict(i, random.final(target.residual(draft)), i + 1)
    return Verdict(count, random.final(target_probs[count]), count)


def verify_block(
    target_probs: Rows, draft_probs: Rows, draft_tokens: Sequence[int], random: RoundRandom
) -> Verdict:
    """The whole block at once; never accepts less than `verify_token` in expectation.

    With a_0 = 1 and a_i = min(1, a_{i-1} P_i(x_i) / Q_i(x_i)), keep the largest i whose
    independent test with probability h_i succeeds: h_K = a_K, and for i < K
    h_i = S_i / (S_i + 1 - a_i) with S_i = sum_x [a_i P_{i+1}(x) - Q_{i+1}(x)]+.
    Then the token comes from P_{K+1}, or from norm([a_i P_{i+1} - Q_{i+1}]+).
    Sun et al., "Block Verification Accelerates Speculative Decoding", ICLR 2025.

    Args:
        target_probs: K + 1 distributions.
        draft_probs: K distributions, the very ones the tokens were drawn from.
        draft_tokens: K token ids.
    """
    _checked(draft_probs, draft_tokens)
    scales, count = _block_scales(target_probs, draft_probs, draft_tokens)
    for i in range(len(scales) - 1, 0, -1):
        if i == count:
            keep = scales[i]
        else:
            mass = target_probs[i].residual_mass(draft_probs[i], scales[i])
            gap = mass + 1.0 - scales[i]
            keep = mass / gap if gap > 0.0 else 1.0
        if random.accepts(i, keep):
            break
    else:
        i = 0
    if i == count:
        return Verdict(count, random.final(target_probs[count]), count)
    return Verdict(i, random.final(target_probs[i].residual(draft_probs[i], scales[i])), i + 1)


def _block_scales(
    target_probs: Rows, draft_probs: Rows, draft_tokens: Sequence[int]
) -> tuple[list[float], int]:
    """(a_0, a_1, ... up to the last positive one, K).

    After a zero every h_i is zero too. Where the caller's bans leave the target no token after
    x_1 .. x_i the block ends at K = i, a decision that depends on tokens already drawn: the
    error surfaces only if they are all accepted, as in plain decoding.
    """
    scales, log_scale = [1.0], 0.0
    for i, token in enumerate(draft_tokens):
        try:
            target = target_probs[i].prob(token)
        except NoTokenLeftError:
            return scales, i
        if target <= 0.0:
            break
        log_scale += math.log(target) - math.log(draft_probs[i].prob(token))
        log_scale = min(0.0, log_scale)
        scales.append(math.exp(log_scale))
    return scales, len(draft_tokens)


def verify_coupled(
    target_probs: Rows, draft_probs: Rows, draft_tokens: Sequence[int], random: RoundRandom
) -> Verdict:
    """Shared noise: the target's own tokens, kept while the draft guessed them.

    The token at absolute position t is argmin_x E_{t,x} / P(x) with noise that depends on
    the seed and t alone, so the text is the same for every draft and every K, plain decoding
    included. The draft draws with the same noise, which makes agreement likely: at least
    (1 - TV) / (1 + TV) (Daliri et al., 2025).

    Args:
        target_probs: K + 1 distributions.
        draft_probs: not used beyond its length.
        draft_tokens: K token ids.
    """
    count = _checked(draft_probs, draft_tokens)
    for i, drafted in enumerate(draft_tokens):
        token = random.coupled(i, target_probs[i])
        if token != drafted:
            return Verdict(i, token, i + 1)
    return Verdict(count, random.coupled(count, target_probs[count]), count)


VERIFIERS: dict[str, Verifier] = {
    "block": verify_block,
    "coupled": verify_coupled,
    "token": verify_token,
}


def _checked(draft_probs: Rows, draft_tokens: Sequence[int]) -> int:
    assert len(draft_probs) == len(draft_tokens), "every drafted token needs its distribution"
    return len(draft_tokens)
