"""Pack weights as the native CPU operators read them, and back.

Two layouts, both only permutations of the standard ones, so that a graph of standard operators
reads the same data file (`Reshape`, `Transpose`, `Slice`):

- FP16 panels [ceil(N / 32), K, 32]: 32 consecutive outputs side by side, padded with zeros.
- Blocks: `MatMulNBits` weights in panels of 16 outputs, 4 bytes of each output side by side:
  B uint8 [ceil(N / 16), K / block, block * bits / 32, 16, 4], scales [ceil(N / 16), K / block, 16]
  and zero points uint8 [ceil(N / 16), ceil(K / block * bits / 8), 16].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FP16_COLUMNS = 32
BLOCK_COLUMNS = 16


def _pad_rows(rows: NDArray[Any], multiple: int) -> NDArray[Any]:
    missing = -len(rows) % multiple
    if not missing:
        return rows
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])


def _interleave(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(f"gate {gate.shape} {gate.dtype} and up {up.shape} {up.dtype} differ")
    return np.stack([gate, up], axis=1).reshape(-1, *gate.shape[1:])


def pack_fp16(weights: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return FP16 weights [N, K] as panels [ceil(N / 32), K, 32]; the rest is zero."""
    padded = _pad_rows(weights, FP16_COLUMNS)
    panels = padded.reshape(-1, FP16_COLUMNS, weights.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(panels)


def pack_fp16_gated(gate: NDArray[np.float16], up: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return two products' weights [N, K] as panels [2 ceil(N / 32), K, 32]: gate, up, gate, ...

    Raises `ValueError` where their shapes or types differ.
    """
    return _interleave(pack_fp16(gate), pack_fp16(up))


def unpack_fp16(panels: NDArray[np.float16], rows: int) -> NDArray[np.float16]:
    """Return panels [ceil(N / 32), K, 32] as weights [N, K], N = `rows`."""
    weights: NDArray[np.float16] = panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:rows]
    return weights


def pack_blocks(weights: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `MatMulNBits` weights [N, blocks, bytes] as panels [., blocks, bytes / 4, 16, 4]."""
    _, blocks, width = weights.shape
    padded = _pad_rows(weights, BLOCK_COLUMNS)
    panels = padded.reshape(-1, BLOCK_COLUMNS, blocks, width // 4, 4).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(panels)


def unpack_blocks(panels: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """Return panels of `pack_blocks` as `MatMulNBits` weights [N, K / block, bytes], N = `rows`."""
    _, blocks, quarters, _, _ = panels.shape
    weights: NDArray[np.uint8] = panels.transpose(0, 3, 1, 2, 4).reshape(-1, blocks, quarters * 4)
    return weights[:rows]


def pack_columns(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return values a row, [N * count] or [N, count], as [ceil(N / 16), count, 16].

    For scales count is K / block; for zero points ceil(K / block * bits / 8), bytes as they are.
    """
    padded = _pad_rows(values.reshape(rows, -1), BLOCK_COLUMNS)
    panels = padded.reshape(-1, BLOCK_COLUMNS, padded.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(panels)


def unpack_columns(panels: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return `pack_columns` values as `MatMulNBits` takes them, [N * count], N = `rows`."""
    values: NDArray[Any] = panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:rows]
    return values.reshape(-1)


def interleave_panels(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
    """Return the panels (or scales, or zero points) of a gated product: gate, up, gate, up, ...

    Raises `ValueError` where their shapes or types differ.
    """
    return _interleave(gate, up)
