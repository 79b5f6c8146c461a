"""Run engines one pass at a time, and add up their seconds by phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Literal, cast

import numpy as np

from specdec.engines.engine import Engine
from specdec.engines.reduction import ReducingEngine, Reduction
from specdec.runtime.sampling.processing import LogitRow

__all__ = ["Meter", "Phase", "chunk_size", "prefill"]

Phase = Literal["prefill", "draft", "verify"]

_DEFAULT_CHUNK = 256


class Meter:
    """Seconds spent inside `Engine.forward` during one generation."""

    def __init__(self) -> None:
        self.seconds: dict[Phase, float] = {"prefill": 0.0, "draft": 0.0, "verify": 0.0}

    def forward(
        self,
        phase: Phase,
        engine: Engine,
        tokens: Sequence[int],
        num_logits: int,
        reduction: Reduction | None = None,
    ) -> Sequence[LogitRow]:
        """Append `tokens` to the engine's cache.

        Args:
            reduction: the values of each row that suffice; None returns whole rows.

        Returns:
            `num_logits` rows for the last tokens, reduced where the engine does that faster, else
            float [logits_width] each. The next pass overwrites them.
        """
        token_ids = np.array([tokens], dtype=np.int64)
        reducing = reduction and _reducing(engine, reduction)
        started = perf_counter()
        try:
            if reduction and reducing:
                return reducing.forward_reduced(token_ids, num_logits, reduction)
            logits: Sequence[LogitRow] = engine.forward(token_ids, num_logits)[0]
            return logits
        finally:
            self.seconds[phase] += perf_counter() - started


def _reducing(engine: Engine, reduction: Reduction) -> ReducingEngine | None:
    reduces = getattr(engine, "reduces", None)
    return cast(ReducingEngine, engine) if reduces is not None and reduces(reduction) else None


def chunk_size(engine: Engine) -> int:
    """Rows of one prefill pass: the engine's optional attribute `prefill_chunk`, else 256."""
    return int(getattr(engine, "prefill_chunk", _DEFAULT_CHUNK))


def prefill(
    engine: Engine,
    tokens: Sequence[int],
    meter: Meter,
    phase: Phase = "prefill",
    cancelled: Callable[[], bool] = bool,
) -> bool:
    """Append many tokens without logits, in chunks of the engine's preferred size.

    Returns:
        False when `cancelled` became true between two chunks; the cache then holds the
        chunks done so far.
    """
    chunk = chunk_size(engine)
    for start in range(0, len(tokens), chunk):
        if cancelled():
            return False
        meter.forward(phase, engine, tokens[start : start + chunk], 0)
    return True
