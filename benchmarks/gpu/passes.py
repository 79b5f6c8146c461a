"""Time the passes of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np

from specdec.engines import Engine, ReducingEngine, Reduction

__all__ = ["pass_seconds"]

_BEST = Reduction(1)
_REPEATS = 18


def pass_seconds(
    engine: Engine, widths: Sequence[int], limit: float, whole: bool = False
) -> dict[int, float]:
    """Median seconds of a pass by its number of scored rows, the widths taking turns.

    Args:
        engine: its cache is empty afterwards.
        widths: numbers of rows, each after 256 tokens (or what there is room for).
        limit: seconds after which there are fewer repeats, but for two.
        whole: bring the logits to the host whole even where the engine reduces them.
    """
    started = perf_counter()
    past = min(256, engine.info.max_length // 2)
    ids = (np.arange(past + max(widths))[None] * 37) % engine.info.vocab_size
    engine.truncate(0)
    engine.forward(ids[:, :past], 0)
    seconds: dict[int, list[float]] = {rows: [] for rows in widths}
    for repeat in range(_REPEATS):
        if repeat > 1 and perf_counter() - started > limit:
            break
        for rows in widths:
            fed = ids[:, past : past + rows]
            began = perf_counter()
            if not whole and isinstance(engine, ReducingEngine) and engine.reduces(_BEST):
                engine.forward_reduced(fed, rows, _BEST)
            else:
                engine.forward(fed, rows)
            seconds[rows].append(perf_counter() - began)
            engine.truncate(past)
    engine.truncate(0)
    # The first passes of a width allocate, and capture graphs.
    return {rows: median(taken[min(3, len(taken) - 1) :]) for rows, taken in seconds.items()}
