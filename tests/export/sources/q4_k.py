"""Pack rows as Q4_K, which the `gguf` package reads and does not write.

A super-block of 256 values has 8 blocks of 32; a value is `d * scale * q - dmin * minimum` with a
6-bit scale and minimum a block, a 4-bit q a value, and two FP16 numbers d and dmin a super-block:
144 bytes (ggml-quants.c, `block_q4_K`). The scales are the nearest,
where llama.cpp searches for the best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack_q4_k"]


def pack_q4_k(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """uint8 [..., columns / 256 * 144] of float32 [..., columns]."""
    blocks = rows.reshape(-1, 8, 32)
    low = np.minimum(blocks.min(axis=2), 0.0)
    step = (blocks.max(axis=2) - low) / 15.0
    d = (step.max(axis=1) / 63.0).astype(np.float16)
    dmin = ((-low).max(axis=1) / 63.0).astype(np.float16)
    scales = _codes(step, d, 63)
    minima = _codes(-low, dmin, 63)
    width = d.astype(np.float32)[:, None] * scales
    floor = dmin.astype(np.float32)[:, None] * minima
    spread = (blocks + floor[..., None]) / np.where(width == 0, 1, width)[..., None]
    q = np.clip(np.rint(spread), 0, 15).astype(np.uint8)
    pairs = q.reshape(-1, 4, 2, 32)  # of two blocks: the low half of a byte, then the high half
    values = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    heads = np.stack([d, dmin], axis=1).view(np.uint8)
    packed = np.concatenate([heads, _sixes(scales, minima), values], axis=1)
    return packed.reshape(*rows.shape[:-1], -1)


def _codes(values: NDArray[np.float32], unit: NDArray[np.float16], most: int) -> NDArray[np.uint8]:
    unit32 = unit.astype(np.float32)[:, None]
    codes = np.rint(values / np.where(unit32 == 0, 1, unit32))
    return np.clip(codes, 0, most).astype(np.uint8)


def _sixes(scales: NDArray[np.uint8], minima: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """12 bytes of 8 scales and 8 minima, 6 bits each; uint8 [N, 12]."""
    out = np.zeros((len(scales), 12), np.uint8)
    out[:, 0:4] = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    out[:, 4:8] = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    out[:, 8:12] = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    return out
