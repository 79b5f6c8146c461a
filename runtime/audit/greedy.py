"""Check that greedy texts of the pair equal the target's, and that truncated rows leave no trace.

A pass over K + 1 rows may round differently from K + 1 passes over one, so two tokens whose
logits are nearly equal can change places. To distinguish that from a fault, the text before the
difference is fed to the target alone in both ways: the gap between the two best logits must be
within four times the largest change of a logit between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine
from specdec.runtime.audit.exact import PlainReader
from specdec.runtime.audit.report import GreedyDifference, RollbackReport
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.meter import Meter, prefill
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.sampling.penalties import TokenHistory

__all__ = ["check_rollback", "compare_greedy"]

_NOISE_FACTOR = 4.0
_ROLLBACK_SHARE = 1e-3


def compare_greedy(
    decoder: SpeculativeDecoder, target: Engine, prompt: Sequence[int], params: SamplingParams
) -> tuple[tuple[int, ...], GreedyDifference | None]:
    """Generate with and without the draft.

    Args:
        decoder: over `target` itself.
        params: greedy, with the number of drafted tokens to try.

    Returns:
        (the target's own text, the first difference of the pair's text or None).
    """
    plain = decoder.generate(
        list(prompt), replace(params, num_draft_tokens=0, draft_temperature=None)
    ).token_ids
    pair = decoder.generate(list(prompt), params).token_ids
    if pair == plain:
        return plain, None
    same = next(
        (i for i, (a, b) in enumerate(zip(plain, pair, strict=False)) if a != b),
        min(len(plain), len(pair)),
    )
    one, many = _both_ways(target, prompt, plain[: same + 1], params.num_draft_tokens)
    size = target.info.vocab_size
    row = TokenHistory(params, size, (), prompt).adjust(one[-1], plain[:same])
    second, first = np.partition(row, -2)[-2:]
    noise = float(np.abs(one - many).max())
    ended = same in (len(plain), len(pair))  # one text is the beginning of the other
    gap = float(first - second)
    return plain, GreedyDifference(
        position=same,
        gap=gap,
        noise=noise,
        is_near_tie=not ended and gap <= _NOISE_FACTOR * noise,
    )


def check_rollback(
    target: Engine, writer: Engine, ids: Sequence[int], num_rows: int
) -> RollbackReport:
    """Compare the logits of a pass before and after rows were written and truncated.

    Args:
        writer: the engine that writes the rows: the draft where it shares the target's cache.
        ids: a text of more than 2 * `num_rows` tokens.
        num_rows: K + 1.
    """
    start = len(ids) - num_rows
    block = np.array([ids[start:]], dtype=np.int64)
    target.truncate(0)
    prefill(target, ids[:start], Meter())
    before = _real(target, target.forward(block, num_rows))
    target.truncate(start)
    writer.forward(np.array([ids[:num_rows]], dtype=np.int64), 0)
    target.truncate(start)
    after = _real(target, target.forward(block, num_rows))
    for engine in (target, writer):
        engine.truncate(0)
    return RollbackReport(
        largest_difference=float(np.abs(after - before).max()),
        allowed=_ROLLBACK_SHARE * float(np.ptp(before)),
    )


def _both_ways(
    target: Engine, prompt: Sequence[int], output: Sequence[int], num_draft_tokens: int | str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits [len(output), vocab_size] before each token: fed row by row, and K + 1 at a time."""
    reader = PlainReader(target, prompt)
    one = np.stack([_real(target, reader.logits(output[:i])) for i in range(len(output))])
    rows = [prompt[-1], *output[:-1]]
    step = 9 if isinstance(num_draft_tokens, str) else num_draft_tokens + 1
    target.truncate(0)
    prefill(target, list(prompt[:-1]), Meter())
    parts = []
    for start in range(0, len(rows), step):
        block = np.array([rows[start : start + step]], dtype=np.int64)
        parts.append(_real(target, target.forward(block, block.shape[1])[0]))
    target.truncate(0)
    return one, np.concatenate(parts)


def _real(engine: Engine, logits: NDArray[Any]) -> NDArray[Any]:
    """A copy without the padding of the vocabulary."""
    kept: NDArray[Any] = logits[..., : engine.info.vocab_size].copy()
    return kept
