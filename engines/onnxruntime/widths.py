"""Shapes of passes on a GPU: few and fixed, so that no prompt meets one that was never run.

A new shape costs a GPU kernels' plans, memory of the arena, and bindings. Rounds have few shapes
by themselves: 1 .. K + 1 rows. Prompts have any length, so rows that nobody scores are padded to a
power of two: what the padding writes to the cache lies beyond its length, is masked, and is
overwritten by the tokens that follow. At the end of the context, where padding does not fit, rows
are split into powers of two instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo

__all__ = ["WARM_SECONDS", "pieces", "prompt_widths", "shapes_to_warm", "warm"]

WARM_SECONDS = 5.0
"""Most time that `warm` starts passes for; one that has begun is finished."""
_WARM_ROWS = 9
"""Widths of verification that are run before they are needed: up to 8 drafted tokens."""

_log = logging.getLogger(__name__)


class _Warmed(Protocol):
    @property
    def info(self) -> EngineInfo: ...

    @property
    def prefill_chunk(self) -> int: ...

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]: ...

    def truncate(self, length: int) -> None: ...


def prompt_widths(chunk: int) -> tuple[int, ...]:
    """Rows of the passes that nobody scores: powers of two below `chunk`, and `chunk` (1 .. )."""
    return (*(2**i for i in range((chunk - 1).bit_length())), chunk)


def pieces(rows: int, room: int, chunk: int) -> list[tuple[int, int]]:
    """Split rows that nobody scores into passes of fixed widths.

    Args:
        rows: of the tokens, 1 .. `room`.
        room: rows that still fit in the cache.
        chunk: the widest pass.

    Returns:
        (tokens, rows of the pass) in order; the rows beyond the tokens are padding.
    """
    widths = prompt_widths(chunk)
    found: list[tuple[int, int]] = []
    while rows:
        width = next((w for w in widths if w >= rows), chunk)
        if width > room:
            width = max(w for w in widths if w <= rows)
        tokens = min(rows, width)
        found.append((tokens, width))
        rows, room = rows - tokens, room - tokens
    return found


def shapes_to_warm(info: EngineInfo, chunk: int) -> list[tuple[int, int]]:
    """(rows, scored) of the passes that a generation meets first, those it cannot do without first.

    Steps, a whole chunk of a prompt, verification, a draft that catches up, tails of prompts.
    """
    verified = [(rows, rows) for rows in range(2, _WARM_ROWS + 1)]
    tails = [(width, 0) for width in reversed(prompt_widths(chunk)[:-1])]
    wanted = [(1, 1), (chunk, 0), *verified, (2, 1), *tails]
    return [shape for shape in wanted if shape[0] <= info.max_length]


def warm(
    engine: _Warmed, seconds: float = WARM_SECONDS, clock: Callable[[], float] = perf_counter
) -> int:
    """Run each shape of `shapes_to_warm` once over an empty cache, as long as time is left.

    Args:
        engine: with an empty cache; it is empty again afterwards.
        seconds: no pass begins after this time.
        clock: seconds that pass.

    Returns:
        How many shapes were run.

    Raises:
        EngineError: a pass failed.
    """
    shapes = shapes_to_warm(engine.info, engine.prefill_chunk)
    began, done = clock(), 0
    for rows, scored in shapes:
        if clock() - began > seconds:
            break
        engine.forward(np.zeros((1, rows), np.int64), scored)
        engine.truncate(0)
        done += 1
    _log.info(
        "ran %d of %d shapes of the %s in %.1f s",
        done,
        len(shapes),
        engine.info.name,
        clock() - began,
    )
    return done
