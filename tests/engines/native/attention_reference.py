"""Attention in float64, row by row: what the operator is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """Attributes of the operator."""

    heads: int
    kv_heads: int
    head_size: int
    scale: float = 0.0
    softcap: float = 0.0
    window: int = -1
    rotary_dim: int = 0
    interleaved: bool = False


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """x [..., head size], rotated by the angles of one position [rotary_dim / 2]."""
    half = len(cos)
    out = x.copy()
    one, other = slice(0, half), slice(half, 2 * half)
    if interleaved:
        one, other = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    out[..., one] = x[..., one] * cos - x[..., other] * sin
    out[..., other] = x[..., other] * cos + x[..., one] * sin
    return out


def depths(parents: list[int]) -> list[int]:
    """The depth of each row of a tree: 0 for a row without a parent (-1)."""
    out: list[int] = []
    for parent in parents:
        out.append(0 if parent < 0 else out[parent] + 1)
    return out


def visible(
    settings: Settings, past: int, rows: int, read: tuple[int, int], parents: list[int] | None
) -> NDArray[np.bool_]:
    """Which of past + rows tokens each row sees, [rows, past + rows]."""
    chain = list(range(-1, rows - 1)) if parents is None else parents
    depth = depths(chain)
    out = np.zeros((rows, past + rows), bool)
    for i in range(rows):
        for j in range(past):
            kept = read == (0, 0) or j < read[0] or j >= past - read[1]
            out[i, j] = kept and (settings.window < 0 or j > past + depth[i] - settings.window)
        at = i
        while at >= 0:
            out[i, past + at] = settings.window < 0 or depth[at] > depth[i] - settings.window
            at = chain[at]
    return out


def attend(
    settings: Settings,
    query: Array,
    key: Array,
    value: Array,
    past_key: Array,
    past_value: Array,
    cos: Array | None = None,
    sin: Array | None = None,
    sinks: Array | None = None,
    read: tuple[int, int] = (0, 0),
    parents: list[int] | None = None,
    rounded: bool = False,
) -> tuple[Array, Array, Array]:
    """One sequence: query [M, H, D], key and value [M, G, D], past [G, P, D].

    `rounded`: keys and values are rounded to FP16 where they are cached. Returns the output
    [M, H, D] and the keys and values as cached [G, P + M, D].
    """
    rows, past = len(query), past_key.shape[1]
    depth = list(range(rows)) if parents is None else depths(parents)
    if cos is not None and sin is not None:
        angles = [(cos[past + d], sin[past + d]) for d in depth]
        query = np.stack(
            [rotate(q, *a, settings.interleaved) for q, a in zip(query, angles, strict=True)]
        )
        key = np.stack(
            [rotate(k, *a, settings.interleaved) for k, a in zip(key, angles, strict=True)]
        )
    if rounded:
        key, value = (x.astype(np.float32).astype(np.float16).astype(float) for x in (key, value))
    keys = np.concatenate([past_key, key.transpose(1, 0, 2)], axis=1)
    values = np.concatenate([past_value, value.transpose(1, 0, 2)], axis=1)
    seen = visible(settings, past, rows, read, parents)
    group = settings.heads // settings.kv_heads
    out = np.zeros_like(query)
    scale = settings.scale or settings.head_size**-0.5
    for h in range(settings.heads):
        scores = query[:, h] @ keys[h // group].T * scale
        if settings.softcap:
            scores = settings.softcap * np.tanh(scores / settings.softcap)
        scores = np.where(seen, scores, -np.inf)
        if sinks is not None:
            scores = np.concatenate([scores, np.full((rows, 1), sinks[h])], axis=1)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[:, h] = weights[:, : past + rows] @ values[h // group]
    return out, keys, values
