"""Choose how the rows that a weight multiplies are quantized to 8 bits, one step for all of them.

With x a row [in], W the weight [in, out] and s > 0 one number an input channel,

    x @ W = (x / s) @ (s * W)       is computed as       step * Q(x / s) @ DQ(Q(s * W)),
    Q(v)  = clip(rint(v / step), -128, 127).

A few channels of a language model's activations are a hundred times larger than the rest, and
would leave one step for all rows no resolution. `s` moves most of that spread into the weights,
which have a scale an output (SmoothQuant: Xiao et al., 2023):

    s[j] = max |x[:, j]| ** 0.7 / max |W[j, :]| ** 0.3.

The step then lets the largest value through unclipped. Where a few *tokens* are larger still, as
in what a down projection reads, no step serves them and the others: such a tensor stays FP16.
`docs/backends.md` has the measurements that chose these rules over clipping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["METHOD", "ActivationScale", "choose_scale", "relative_error", "smoothing"]

METHOD = "largest value, smoothed 0.7, FP16 where the error of rows is above 5 %"
"""In words, for the record of a package."""

_LEVELS = 127
_STRENGTH = 0.7
"""How much of a channel's size moves into the weights; 0 is none, 1 is all."""
_MAX_ERROR = 0.05
"""Of a row, relative to its length, above which a tensor stays FP16."""
_SMALLEST_CHANNEL = 1e-4
"""Of the largest channel: what calibration saw less of counts as this much."""
_SMALLEST_STEP = 2.0**-14
"""Smallest normal FP16, the type that TensorRT keeps steps in."""


@dataclass(frozen=True)
class ActivationScale:
    """How one tensor of activations is quantized."""

    step: float
    """Of the grid after smoothing; exact in FP16."""
    smoothing: NDArray[np.float32]
    """[in], positive: each channel is divided by its own."""


def choose_scale(
    largest: NDArray[np.float32], rows: NDArray[np.float32], weight_largest: NDArray[np.float32]
) -> ActivationScale | None:
    """Smoothing and step of one tensor; None when 8 bits cannot hold its rows.

    Args:
        largest: float32 [in], largest magnitude of each channel over all calibration rows.
        rows: float32 [n, in], a sample of those rows.
        weight_largest: float32 [in], largest magnitude of each row of the weights.
    """
    divisors = smoothing(largest, weight_largest)
    top = float((largest / divisors).max())
    step = float(max(np.float16(top / _LEVELS), np.float16(_SMALLEST_STEP)))
    if relative_error(rows / divisors, step) > _MAX_ERROR:
        return None
    return ActivationScale(step, divisors)


def smoothing(
    largest: NDArray[np.float32], weight_largest: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The divisor s of each channel, float32 [in]; arguments as for `choose_scale`."""
    x = np.maximum(largest, _SMALLEST_CHANNEL * largest.max())
    w = np.maximum(weight_largest, _SMALLEST_CHANNEL * weight_largest.max())
    if x.max() == 0 or w.max() == 0:
        return np.ones_like(largest)
    divisors: NDArray[np.float32] = x**_STRENGTH / w ** (1 - _STRENGTH)
    return divisors


def relative_error(rows: NDArray[np.float32], step: float) -> float:
    """Root of the mean over rows of |Q(row) - row|^2 / |row|^2; rows of zeros count as exact.

    Args:
        rows: float32 [n, in], smoothed.
        step: of the grid.
    """
    errors = np.rint(rows / step).clip(-_LEVELS - 1, _LEVELS) * step - rows
    sizes = np.square(rows).sum(axis=1)
    relative = np.square(errors).sum(axis=1) / np.where(sizes > 0, sizes, 1)
    return float(np.sqrt(relative.mean()))
