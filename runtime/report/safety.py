"""Thresholds beyond which engines are faulty, and the message of each.

Rounding differs between weights stored in FP16 and FP32, and between a pass of one row and one
of many; what lies beyond rounding is a fault of the engine, and its text is not the model's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdec.engines.engine import Engine
from specdec.runtime.decoding.caches import common_prefix
from specdec.runtime.report.contents import Agreement, GreedyPair, Parity
from specdec.runtime.report.measuring.divergence import score_text

__all__ = [
    "compare_greedy",
    "greedy_problem",
    "measure_parity",
    "original_problem",
    "parity_problem",
]

_MIN_AGREEMENT = 0.9
_MAX_KL = 0.05
_MAX_NOISE = 0.02
"""Of the span of the logits."""
_MARGIN_FACTOR = 4.0


def original_problem(agreement: Agreement) -> str | None:
    """Problems of a target engine, compared with the original weights."""
    got, kl = agreement.argmax_agreement, agreement.kl_divergence
    if got >= _MIN_AGREEMENT and kl <= _MAX_KL:
        return None
    return (
        f"the target engine differs from the original weights: argmax agreement {got:.3f} "
        f"(at least {_MIN_AGREEMENT}), KL {kl:.3g} (at most {_MAX_KL})"
    )


def measure_parity(target: Engine, token_ids: Sequence[int], rows: int) -> Parity:
    """Feed a text row by row and `rows` at a time, and compare the logits."""
    single = score_text(target, token_ids, 1)
    several = score_text(target, token_ids, rows)
    target.truncate(0)
    return Parity(
        rows=rows,
        tokens=len(token_ids),
        max_logit_difference=float(np.abs(single - several).max()),
        logit_span=float(np.ptp(several, axis=1).max()),
        argmax_agreement=float((single.argmax(axis=1) == several.argmax(axis=1)).mean()),
    )


def parity_problem(parity: Parity) -> str | None:
    """Problems of a target whose logits depend on how many rows a pass has."""
    if parity.max_logit_difference <= _MAX_NOISE * parity.logit_span:
        return None
    return (
        f"the target engine depends on how its tokens are fed: {parity.rows} rows a pass differ "
        f"from one by {parity.max_logit_difference:.3g} where logits span {parity.logit_span:.3g}"
    )


def compare_greedy(
    target: Engine, texts: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]]
) -> GreedyPair:
    """Compare greedy texts with and without the draft.

    Args:
        target: its two best logits are compared where two texts differ.
        texts: (prompt, text of the target alone, text of the pair), in token ids.
    """
    margins = []
    for prompt, plain, pair in texts:
        same = common_prefix(plain, pair)
        if same < max(len(plain), len(pair)):
            margins.append(_margin(target, [*prompt, *plain[:same]]))
    return GreedyPair(
        texts=len(texts),
        equal=len(texts) - len(margins),
        tokens=sum(len(plain) for _, plain, _ in texts),
        largest_margin=max(margins, default=None),
    )


def greedy_problem(greedy: GreedyPair, noise: float) -> str | None:
    """Problems where greedy texts differ although the target's choice was clear.

    Args:
        greedy: the comparison.
        noise: largest logit difference between passes of different widths.
    """
    margin = greedy.largest_margin
    if margin is None or margin <= _MARGIN_FACTOR * noise:
        return None
    return (
        f"greedy text of the pair leaves the target's where the two best logits are "
        f"{margin:.3g} apart (noise between widths is {noise:.3g})"
    )


def _margin(target: Engine, token_ids: Sequence[int]) -> float:
    """Distance of the two best logits after a sequence."""
    logits = score_text(target, token_ids)[-1]
    target.truncate(0)
    second, first = np.partition(logits, -2)[-2:]
    return float(first - second)
