"""Read single weights out of a graph, whatever they are stored as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["Found", "values_at"]

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
Index = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class Found:
    """Some values of a weight."""

    values: NDArray[Any]
    """[N], float32 or float16."""
    steps: NDArray[np.float32] | None = None
    """Of quantized weights, the distance of two neighbouring codes at each value; float32 [N]."""


def values_at(weight: ir.Value, index: Index) -> Found:
    """The values of `weight` at some places.

    Args:
        weight: an initializer: float, or the codes of a quantized matrix.
        index: an int64 array [N] for each axis of the float weight, which for a matrix that
            `MatMulNBits` reads is [inputs, outputs].
    """
    assert weight.const_value is not None
    if weight.dtype in _FLOATS:
        return Found(weight.const_value.numpy()[index])
    use = next(iter(weight.uses()))
    if use.node.op_type == "MatMulNBits":
        return _blocks(use.node, index)
    if use.node.op_type == "DequantizeLinear":
        return _dequantized(use.node, index)
    return _by_name(weight, index)


def _blocks(node: ir.Node, index: Index) -> Found:
    """uint8 codes [outputs, blocks, bytes], scales and zero points of each block."""
    row, column = index
    bits, size = (node.attributes.get_int(name) for name in ("bits", "block_size"))
    assert bits is not None
    assert size is not None
    codes = _array(node.inputs[1])
    scales = _array(node.inputs[2]).reshape(len(codes), -1)
    block, place = row // size, row % size
    code = codes[column, block, place * bits // 8].astype(np.int32)
    if bits == 4:
        code = code >> 4 * (place % 2) & 15
    zero: Any = float(1 << (bits - 1))
    points = node.inputs[3] if len(node.inputs) > 3 else None
    if points is not None:
        zero = _zero_points(_array(points), scales.shape, column, block, bits)
    step = scales[column, block].astype(np.float32)
    return Found((code - zero).astype(np.float32) * step, np.abs(step))


def _zero_points(
    points: NDArray[Any],
    shape: tuple[int, ...],
    column: NDArray[np.int64],
    block: NDArray[np.int64],
    bits: int,
) -> NDArray[Any]:
    """A float a block, or codes packed as the weights are."""
    if points.dtype != np.uint8:
        found: NDArray[Any] = points.reshape(shape)[column, block].astype(np.float32)
        return found
    packed = points.reshape(shape[0], -1)[column, block * bits // 8].astype(np.int32)
    return packed >> 4 * (block % 2) & 15 if bits == 4 else packed


def _dequantized(node: ir.Node, index: Index) -> Found:
    """Codes with one scale an output, or one a block of inputs and output."""
    row, column = index
    codes, scales = _array(node.inputs[0]), _array(node.inputs[1])
    size = node.attributes.get_int("block_size", 0)
    step = scales[row // size, column] if size else scales[column]
    step = step.astype(np.float32)
    return Found(codes[row, column].astype(np.float32) * step, np.abs(step))


def _by_name(weight: ir.Value, index: Index) -> Found:
    """int8 rows of a table, or columns of matrices whose activations are quantized as they come."""
    assert weight.name is not None
    assert weight.graph is not None
    weights = weight.graph.initializers
    codes, column = _array(weight)[index].astype(np.float32), index[-1]
    if weight.name.endswith("_int8"):
        step = _array(weights[weight.name.removesuffix("_int8") + "_scale"])[index[0], 0]
        return Found(codes * step, np.abs(step))
    stem = weight.name.removesuffix("_quantized")
    step, zero = _array(weights[f"{stem}_scale"]), _array(weights[f"{stem}_zero_point"])
    return Found((codes - zero[column]) * step[column], np.abs(step[column]))


def _array(value: Any) -> NDArray[Any]:
    found: NDArray[Any] = value.const_value.numpy()
    return found
